"""Figures of batches."""

import sys
import warnings

import jax
import numpy as np
import pytest

from jaxaug import Loader, augment, decode
from jaxaug.iterators import InMemory, show
from jaxaug.iterators.export.viewable import viewable
from tests.images import jpegs, picture

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

IMAGES = np.stack([picture(k, 12, 16) for k in range(4)])


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def shown(axes) -> np.ndarray:
    """Return the pixels of the image of an axes."""
    return np.asarray(axes.images[0].get_array())


def titles(figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_normalized_images_are_shown_as_they_were(layout, dtype):
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    chain = augment.Compose([augment.Normalize(mean, std, dtype=dtype, layout=layout)])
    keys = jax.random.split(jax.random.key(0), 4)
    batch = {"image": jax.vmap(chain)(keys, IMAGES)}
    for axes, image in zip(show(batch, mean=mean, std=std).axes, IMAGES, strict=True):
        close = 0 if dtype == "float32" else 2
        assert np.abs(shown(axes).astype(int) - image).max() <= close


def test_of_lists_the_first_images_are_shown_side_by_side():
    lists = np.stack([IMAGES, IMAGES[::-1]])
    lists = np.concatenate([lists, lists], axis=1)
    batch = {"image": lists, "image_length": np.array([4, 2]), "size": np.full((2, 8, 2), 12)}
    for axes, images in zip(show(batch).axes, lists, strict=True):
        np.testing.assert_array_equal(shown(axes), np.concatenate(images[:4], axis=1))


def test_without_a_mean_floats_are_values_and_clipped():
    image = np.array([[[-1.0, 0.25, 2.0]]], np.float32)
    assert viewable(image).tolist() == [[[0, 64, 255]]]
    assert viewable(np.full((2, 3), 7, np.uint8)).tolist() == [[[7] * 3] * 3] * 2
    assert viewable(np.ones((2, 3, 4), np.uint8)).shape == (2, 3, 3)
    assert viewable(np.array([[True]])).tolist() == [[[255] * 3]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        levels = np.array([[[[0], [257], [65535]]]], np.uint16)
        assert shown(show({"image": levels}).axes[0])[0, :, 0].tolist() == [0, 1, 255]


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_normalized_images_without_their_mean_are_warned_of(layout):
    chain = augment.Compose([augment.Normalize(0.5, 0.25, layout=layout)])
    keys = jax.random.split(jax.random.key(0), 4)
    batch = {"image": jax.vmap(chain)(keys, IMAGES)}
    with pytest.warns(UserWarning, match=r"values from -\d\.\d+ to .*: give the `mean` and `std`"):
        show(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        show(batch, mean=0.5, std=0.25)
        show({"image": IMAGES / 255})
        show({"image": IMAGES})


def test_titles_tell_label_index_and_what_is_not_valid():
    batch = {
        "image": IMAGES,
        "label": np.array([1, 0, 7, -1], np.int32),
        "index": np.array([10, 11, 12, -1], np.int32),
        "valid": np.array([True, True, True, False]),
    }
    assert titles(show(batch)) == ["1  #10", "0  #11", "7  #12", "not valid"]
    assert titles(show(batch, names=["cat", "dog"], count=3)) == ["dog  #10", "cat  #11", "7  #12"]


@pytest.mark.parametrize("name, title", [("to $5_$9", "to $5_$9"), ("d\udce4", r"d\udce4")])
def test_names_are_neither_formulas_nor_errors(name, title):
    boxes = np.array([[[1, 1, 5, 5]]], np.float32)
    batch = {"image": IMAGES[:1], "label": np.array([0]), "boxes": boxes}
    figure = show(batch | {"box_labels": np.array([[0]])}, names=[name])
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_title() == axes.texts[0].get_text() == title


def test_soft_labels_and_labels_of_several_numbers():
    soft = np.array([[0.3, 0.0, 0.7], [0.0, 1.0, 0.0]], np.float32)
    assert titles(show({"image": IMAGES[:2], "label": soft}, names="abc")) == [
        "c 0.70, a 0.30",
        "b 1.00",
    ]
    several = np.array([[1, 2], [3, 4]], np.int32)
    assert titles(show({"image": IMAGES[:2], "label": several})) == ["[1 2]", "[3 4]"]


def test_the_used_part_and_its_targets_are_drawn_in_pixels():
    mask = np.zeros((1, 12, 16), np.uint8)
    mask[0, 2:4, 5:9] = 2
    mask[0, 9:] = 255
    batch = {
        "image": IMAGES[:1],
        "size": np.array([[9, 14]], np.int32),
        "mask": mask,
        "boxes": np.array([[[5.0, 2.0, 9.0, 4.0], [0.0] * 4]], np.float32),
        "box_labels": np.array([[1, -1]], np.int32),
        "keypoints": np.array([[[3.0, 4.0, 1.0], [6.0, 5.0, 0.0]]], np.float32),
    }
    (axes,) = show(batch, names=["cat", "dog"]).axes
    np.testing.assert_array_equal(shown(axes), IMAGES[0, :9, :14])
    assert axes.images[0].get_extent() == [0, 14, 9, 0]
    covered = np.asarray(axes.images[1].get_array())[:, :, 3] > 0
    np.testing.assert_array_equal(covered, mask[0, :9, :14] == 2)
    assert len(axes.images) == 2  # none for 255

    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert frame.get_bbox().extents.tolist() == [5.0, 2.0, 9.0, 4.0]
    assert [text.get_text() for text in axes.texts] == ["dog"]
    assert axes.collections[0].get_offsets().tolist() == [[3.0, 4.0]]


def test_instances_are_drawn_each():
    masks = np.zeros((1, 3, 12, 16), bool)
    masks[0, 1, :5] = True
    (axes,) = show({"image": IMAGES[:1], "masks": masks}).axes
    assert len(axes.images) == 4
    assert (np.asarray(axes.images[2].get_array())[:, :, 3] > 0).sum() == 5 * 16


def test_a_batch_of_a_loader_is_shown_and_saved(tmp_path):
    with Loader(
        InMemory(jpegs(16), {"label": np.arange(16)}), 16, decode=decode.Image(canvas=(48, 64))
    ) as loader:
        batch = next(loader)
    figure = show(batch, count=6, columns=3)
    expected = [f"{label}  #{label}" for label in np.asarray(batch["index"])[:6].tolist()]
    assert titles(figure) == expected
    height, width = np.asarray(batch["size"])[0]
    pixels = np.asarray(batch["image"])[0, :height, :width]
    np.testing.assert_array_equal(shown(figure.axes[0]), pixels)
    figure.savefig(tmp_path / "batch.png")
    assert (tmp_path / "batch.png").stat().st_size > 10_000


def test_wrong_arguments_are_named():
    with pytest.raises(
        ValueError,
        match=r'`batch` must have an "image", "video" or "audio", got \[\'label\'\]: give',
    ):
        show({"label": np.arange(2)})
    with pytest.raises(ValueError, match="`count` must be an int of at least 1, got 0"):
        show({"image": IMAGES}, count=0)
    with pytest.raises(ValueError, match=r"got \[1, 4, 12, 16, 3\]"):
        show({"image": IMAGES[None, None]})
    with pytest.raises(ValueError, match=r"of many bands three, as .*\[\.\.\., :3\]"):
        show({"image": IMAGES[..., [0] * 13]})


def test_without_matplotlib_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="show needs matplotlib: pip install"):
        show({"image": IMAGES})


def test_entries_of_several_arrays_are_not_shown():
    batch = {"image": np.zeros((2, 8, 9, 3), np.uint8), "more": {"label": np.zeros(2)}}
    assert len(show(batch | {"pair": (np.zeros(2), np.zeros(2))}).axes) == 2


@pytest.mark.parametrize("left, top", [(0.0, 0.0), (-3.0, -2.0), (10.0, 7.0)])
def test_the_label_of_a_box_at_the_edge_is_not_cut_off(left, top):
    batch = {
        "image": np.zeros((1, 120, 160, 3), np.uint8),
        "boxes": np.array([[[left, top, 90.0, 60.0]]], np.float32),
        "box_labels": np.array([[1]], np.int32),
    }
    figure = show(batch, columns=1, names=["cat", "dog"])
    figure.canvas.draw()
    axes = figure.axes[0]
    whole = axes.get_window_extent()
    label = axes.texts[0].get_window_extent()
    assert whole.x0 - 1 <= label.x0 and label.x1 <= whole.x1
    assert whole.y0 <= label.y0 and label.y1 <= whole.y1 + 1


@pytest.mark.parametrize("shape, lines", [((4000,), 1), ((4000, 2), 2), ((90, 20), 0)])
def test_sounds_are_lines_above_spectrograms_and_features_pictures(shape, lines):
    """A tone of 1/8 of the rate lies at 1/4 of the picture's height."""
    tone = np.sin(2 * np.pi / 8 * np.arange(shape[0]), dtype=np.float32)
    audio = np.broadcast_to(tone.reshape(-1, *(1 for _ in shape[1:])), shape)
    length = np.array([shape[0], 50])
    batch = {"audio": np.stack([audio, audio]), "audio_length": length, "label": np.array([1, 0])}
    figure = show(batch, names=["no", "yes"])
    assert [axes.get_title() for axes in figure.axes] == ["yes", "no"]
    for axes, used in zip(figure.axes, length):
        assert len(axes.lines) == lines and len(axes.images) == 1
        for line in axes.lines:
            assert len(line.get_ydata()) == used
        picture = np.asarray(axes.images[0].get_array())
        if lines == 0:
            assert picture.shape == (20, used)
    if lines:
        loudest = np.asarray(figure.axes[0].images[0].get_array()).mean(axis=1).argmax()
        assert abs(loudest / 256 - 0.25) < 0.01


@pytest.mark.parametrize("shape", [(400,), (400, 2), (90, 20)])
def test_a_row_without_sound_is_drawn_empty(shape):
    batch = {"audio": np.zeros((1, *shape), np.float32), "audio_length": np.zeros(1, np.int32)}
    (axes,) = show(batch).axes
    assert all(line.get_ydata().tolist() == [0] for line in axes.lines)
    assert not np.asarray(axes.images[0].get_array()).any()


def test_of_a_video_some_frames_are_drawn_side_by_side():
    frames = np.arange(8, dtype=np.uint8)[None, :, None, None, None] * 10
    videos = np.broadcast_to(frames, (2, 8, 6, 5, 3))
    planes = np.moveaxis(videos, -1, 2)  # "NCHW"
    for frames in (videos, planes, videos[:, None].repeat(2, 1), planes[:, None].repeat(2, 1)):
        batch = {"video": frames}
        figure = show({**batch, "label": np.array([3, 4]), "size": np.array([[6, 5]] * 2)})
        assert [axes.get_title() for axes in figure.axes] == ["3", "4"]
        strip = np.asarray(figure.axes[0].images[0].get_array())
        assert strip.shape == (6, 20, 3) and strip[0, ::5, 0].tolist() == [0, 20, 40, 70]
        assert [line.get_xdata()[0] for line in figure.axes[0].lines] == [5, 10, 15]  # edges
    with pytest.raises(
        ValueError, match=r"must be clips \[n, t, h, w, C\] or .*, got \[8, 6, 5, 3\]"
    ):
        show({"video": videos[0]})
