"""Pad, RandomZoomOut and LetterBox against numpy and PIL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageOps
from scipy import stats

from jaxaug import augment as A
from jaxaug.augment import functional as F
from tests.augment.targets import check_targets, on_canvas
from tests.images import picture
from tests.reference.points import matrix_pull
from tests.reference.warp import shift

KEY = jax.random.key(0)
SHAPES = [(65, 97), (1, 1), (1, 9)]
NOISE = {
    shape: np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8) for shape in SHAPES
}


def run(transform, sample):
    return jax.device_get(jax.jit(transform)(KEY, jax.tree.map(jnp.asarray, sample)))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pad_is_numpys(shape, mode):
    image = NOISE[shape]
    options = {"constant_values": 51} if mode == "constant" else {}
    expected = np.pad(image, ((2, 4), (1, 3), (0, 0)), mode, **options)
    transform = A.Pad((1, 2, 3, 4), 0.2, mode)
    np.testing.assert_array_equal(run(transform, image), expected)
    np.testing.assert_array_equal(F.pad(image, (1, 2, 3, 4), 0.2, mode), expected)
    out = run(transform, on_canvas(image, 200))
    assert out["size"].tolist() == list(expected.shape[:2])
    np.testing.assert_array_equal(out["image"][: expected.shape[0], : expected.shape[1]], expected)


def test_pad_takes_what_torchvision_takes():
    assert A.Pad(2) == A.Pad((2, 2, 2, 2)) and A.Pad([1, 2]) == A.Pad((1, 2, 1, 2))
    for bad in (None, (1, 2, 3), -1):
        with pytest.raises(ValueError, match="`padding` must be 1, 2 or 4 ints"):
            A.Pad(bad)
    with pytest.raises(ValueError, match="`padding_mode` must be one of"):
        A.Pad(1, 0.0, "mirror")


def test_pad_moves_the_targets():
    pull = matrix_pull(shift(-1, -2))
    check_targets(A.Pad((1, 2, 3, 4), 1.0), KEY, (65, 97), pull, 1e-3, 1e-3)


def zoomed(transform, shape):
    """What `run(transform, ...)` draws for an image of `shape`: the frame and the corner."""
    side, place = transform.make_params(jax.random.fold_in(KEY, 0), A.ImageInfo(shape))
    frame = np.floor(np.float32(shape) * side).astype(int)
    top, left = np.floor((frame - np.float32(shape)) * place).astype(int)
    return frame, top, left


@pytest.mark.parametrize("shape", SHAPES)
def test_zoom_out_pastes_the_image_into_a_larger_frame(shape):
    transform = A.RandomZoomOut((0.2, 0.4, 0.6), (1.5, 3.0), p=1.0)
    (height, width), top, left = zoomed(transform, shape)
    expected = np.broadcast_to(np.array([51, 102, 153], np.uint8), (height, width, 3)).copy()
    expected[top : top + shape[0], left : left + shape[1]] = NOISE[shape]
    for sample in ({"image": NOISE[shape]}, on_canvas(NOISE[shape], 200)):
        out = run(transform, sample)
        assert out["size"].tolist() == [height, width]
        np.testing.assert_array_equal(out["image"][:height, :width], expected)
        assert out["image"].shape[:2] == tuple(3 * side for side in sample["image"].shape[:2])
    pull = matrix_pull(shift(-left, -top))
    check_targets(A.RandomZoomOut(1.0, (1.5, 3.0), 1.0), KEY, shape, pull, 1e-3, 1e-3)


def test_zoom_out_draws_what_torchvision_draws():
    transform = A.RandomZoomOut(p=0.5)
    keys = jax.random.split(KEY, 20_000)
    side, place = jax.vmap(lambda key: transform.draw(key, A.ImageInfo((40, 60))).params)(keys)
    on = np.asarray(side) > 1
    assert abs(on.mean() - 0.5) < 0.02
    assert stats.kstest(np.asarray(side)[on], stats.uniform(1, 3).cdf).pvalue > 1e-4
    for share in np.asarray(place)[on].T:
        assert stats.kstest(share, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(share, np.asarray(side)[on])[0, 1]) < 0.03


def test_zoom_out_without_luck_is_the_image_in_a_larger_array():
    out = run(A.RandomZoomOut(0.5, p=0.0), on_canvas(NOISE[65, 97], 200))
    assert out["size"].tolist() == [65, 97]
    np.testing.assert_array_equal(out["image"][:65, :97], NOISE[65, 97])
    assert out["image"][65:].max() == 0 and out["image"][:, 97:].max() == 0


def test_zoom_out_then_resize_is_one_resample():
    chain = A.Compose([A.RandomZoomOut(), A.Resize((30, 30))])
    assert "RandomZoomOut, Resize: bilinear" in chain.explain(A.ImageInfo((40, 60)))


@pytest.mark.parametrize("target", [(40, 64), (33, 20), (128, 128)])
@pytest.mark.parametrize("shape", SHAPES)
def test_letter_box_is_pils_pad(shape, target):
    image = picture(3, *shape)
    pil = Image.fromarray(image)
    # PIL centers by rounding, which for an odd rest may put the larger half before the image.
    fitted = ImageOps.contain(pil, target[::-1], Image.Resampling.BILINEAR)
    expected = Image.new("RGB", target[::-1], (51, 51, 51))
    expected.paste(fitted, ((target[1] - fitted.width) // 2, (target[0] - fitted.height) // 2))
    for sample in ({"image": image}, on_canvas(image, 200)):
        out = run(A.LetterBox(target, fill=0.2), sample)
        assert "size" not in out
        difference = np.abs(out["image"].astype(int) - np.asarray(expected).astype(int))
        assert difference.max() <= 1


def test_letter_box_moves_the_targets():
    scale = 40 / 97
    height = round(65 * scale)
    top = (64 - height) // 2
    pull = np.diag([97 / 40, 65 / height, 1]) @ shift(0, -top)
    check_targets(A.LetterBox((64, 40), fill=1.0), KEY, (65, 97), matrix_pull(pull), 1e-3, 1e-3)


@pytest.mark.parametrize("side, factor", [(100, 1.15), (100, 2.3)])
def test_no_frame_is_larger_than_the_array_of_the_largest(side, factor):
    """In float32 100 x 1.15 is 115, in float64 114.99999."""
    zoom = A.RandomZoomOut(side_range=(factor, factor), p=1.0)
    out = zoom(KEY, {"image": np.zeros((side, 4, 3), np.uint8)})
    assert (
        out["size"].tolist()
        == list(out["image"].shape[:2])
        == [int(side * factor), int(4 * factor)]
    )


def test_a_resize_without_a_static_shape_leaves_the_frame_without_one():
    sample = {"image": picture(0, 40, 60), "size": np.array([30, 45], np.int32)}
    zoom = A.RandomZoomOut(side_range=(1.5, 2.0), p=1.0)
    with pytest.raises(ValueError, match=r"Resize keeps the aspect .* a static shape"):
        A.Compose([A.Resize(10), zoom])(KEY, sample)
    chains = [
        A.Compose([first, zoom, A.Resize((8, 8))])
        for first in (A.Resize(10), A.Resize(10, (16, 16)))
    ]
    open_, bounded = (chain(KEY, sample)["image"].astype(np.int32) for chain in chains)
    assert np.abs(open_ - bounded).max() <= 1
