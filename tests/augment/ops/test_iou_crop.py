"""RandomIoUCrop against torchvision's rule, written in Python loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug import augment as A
from tests.augment.targets import on_canvas

KEY = jax.random.key(0)
SHAPE = (65, 97)
IMAGE = np.random.default_rng(0).integers(0, 256, (*SHAPE, 3), np.uint8)
BOXES = np.array([[5, 5, 40, 50], [50, 10, 90, 60], [60, 40, 70, 48], [0, 0, 0, 0]], np.float32)


def iou(box, window):
    """The intersection over union of two boxes (left, top, right, bottom)."""
    across = min(box[2], window[2]) - max(box[0], window[0])
    down = min(box[3], window[3]) - max(box[1], window[1])
    common = max(across, 0) * max(down, 0)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (box, window)]
    return common / (sum(areas) - common)


def first(boxes):
    """Return the boxes in four rows, the others zeros."""
    return np.concatenate([boxes, np.zeros((4 - len(boxes), 4))])


def centers_inside(window, boxes):
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    return (window[0] < x) & (x < window[2]) & (window[1] < y) & (y < window[3])


def torchvisions(rng, boxes, options, trials=40, height=65, width=97):
    """A window (left, top, right, bottom) by torchvision's loops; None where it crops nothing."""
    while True:
        least = options[rng.integers(len(options))]
        if least >= 1:
            return None
        for _ in range(trials):
            share = 0.3 + 0.7 * rng.uniform(size=2)
            new_width = int(width * share[0])
            new_height = int(height * share[1])
            if not 0.5 <= new_width / new_height <= 2:
                continue
            place = rng.uniform(size=2)
            left = int((width - new_width) * place[0])
            top = int((height - new_height) * place[1])
            window = (left, top, left + new_width, top + new_height)
            inside = centers_inside(window, boxes)
            if inside.any() and max(iou(box, window) for box in boxes[inside]) >= least:
                return window


def draw(transform, count, boxes=BOXES):
    info = A.ImageInfo(SHAPE, None, jnp.asarray(boxes))
    draw = jax.jit(jax.vmap(lambda key: transform.make_params(key, info)))
    return jax.tree.map(np.asarray, draw(jax.random.split(KEY, count)))


@pytest.mark.parametrize("options", [(0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0), (0.3,)])
def test_windows_are_distributed_as_torchvisions(options):
    rng = np.random.default_rng(0)
    windows, _ = draw(A.RandomIoUCrop(sampler_options=options), 3000)
    found = [torchvisions(rng, BOXES[:3], options) for _ in range(1500)]
    theirs = np.array([(0, 0, 97, 65) if each is None else each for each in found])
    ours = windows[:, [1, 0, 3, 2]]
    ours[:, 2:] += ours[:, :2]
    for column in range(4):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
    whole = (windows[:, 2:] == SHAPE).all(axis=1)
    assert abs(whole.mean() - np.mean([each is None for each in found])) < 0.05


def test_a_window_keeps_what_was_asked_for():
    windows, crops = draw(A.RandomIoUCrop(sampler_options=(0.5,)), 500)
    for (top, left, height, width), cropped in zip(windows, crops):
        window = (left, top, left + width, top + height)
        if not cropped:
            assert window == (0, 0, SHAPE[1], SHAPE[0])
            continue
        keeps = centers_inside(window, BOXES[:3])
        assert max(iou(box, window) for box in BOXES[:3][keeps]) >= 0.5 - 1e-5
        assert 0.5 <= width / height <= 2 and width >= 29 and height >= 19


def test_padding_is_inside_of_no_window_and_a_point_is_a_box():
    boxes = jnp.array([[0, 0, 0, 0], [48, 30, 48, 30]], jnp.float32)
    sample = {"image": jnp.asarray(IMAGE), "boxes": boxes, "boxes_valid": jnp.array([True, True])}
    transform = A.RandomIoUCrop(sampler_options=(0.0,))
    out = jax.jit(jax.vmap(transform, (0, None)))(jax.random.split(KEY, 100), sample)
    cropped = (np.asarray(out["size"]) != SHAPE).any(axis=1)

    assert cropped.mean() > 0.9
    assert (np.asarray(out["boxes_valid"])[cropped] == [True, False]).all()


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("canvas", [False, True])
def test_the_image_is_cropped_and_the_boxes_dropped(number, canvas):
    transform = A.RandomIoUCrop(sampler_options=(0.0,))
    key = jax.random.fold_in(KEY, number)
    info = A.ImageInfo(SHAPE, None, jnp.asarray(BOXES))
    drawn = transform.make_params(jax.random.fold_in(key, 0), info)
    (top, left, height, width), crops = jax.device_get(drawn)
    kept = np.append(centers_inside((left, top, left + width, top + height), BOXES[:3]), False)
    sample = on_canvas(IMAGE, 200) if canvas else {"image": IMAGE}
    sample |= {"boxes": BOXES, "boxes_valid": np.array([True, True, True, False])}
    out = jax.jit(transform)(key, jax.tree.map(jnp.asarray, sample))
    assert out["size"].tolist() == [height, width]
    used = np.asarray(out["image"])[:height, :width]
    np.testing.assert_array_equal(used, IMAGE[top : top + height, left : left + width])
    expected = first((BOXES - [left, top, left, top])[kept])
    np.testing.assert_allclose(out["boxes"], expected, atol=1e-4)
    assert out["boxes_valid"].tolist() == [True] * kept.sum() + [False] * (4 - kept.sum())
    assert crops and (not kept[:3].all() or number)  # some are dropped


def test_after_a_flip_it_sees_the_boxes_where_they_are_and_replays():
    chain = A.Compose(
        [A.RandomHorizontalFlip(1.0), A.RandomIoUCrop(sampler_options=(0.3,)), A.Resize((32, 32))]
    )
    sample = {"image": jnp.asarray(IMAGE), "boxes": jnp.asarray(BOXES)}
    out = jax.jit(chain)(KEY, sample)
    drawn = chain.make_params(KEY, A.ImageInfo(SHAPE, None, sample["boxes"]))
    (top, left, height, width), _ = jax.device_get(drawn[1].params)
    flipped = BOXES[:3, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [97, 0, 97, 0]
    window = (left, top, left + width, top + height)
    kept = centers_inside(window, flipped)
    expected = (flipped - [left, top, left, top]) * np.tile([32 / width, 32 / height], 2)
    np.testing.assert_allclose(out["boxes"], first(expected[kept]), atol=1e-3)
    np.testing.assert_allclose(chain.apply(drawn, sample)["boxes"], out["boxes"], atol=1e-4)


@pytest.mark.parametrize("behind", [[], [A.RandomHorizontalFlip(1.0)]])
def test_a_choice_drops_boxes_too(behind):
    crop = A.RandomIoUCrop(sampler_options=(0.0,))
    choice = A.RandomApply([crop, *behind], p=1.0)
    sample = on_canvas(IMAGE, 200) | {"boxes": BOXES}
    sample = jax.tree.map(jnp.asarray, sample)
    key = jax.random.fold_in(KEY, 2)
    drawn = choice.draw(key, A.ImageInfo(SHAPE, None, sample["boxes"]))
    inner = drawn.params.drawn[0]
    chain = A.Compose([crop, *behind])
    expected = jax.jit(chain.apply)(inner.params if behind else (inner,), sample)
    out = jax.jit(A.Compose([choice]).apply)((drawn,), sample)
    assert (np.asarray(expected["boxes"])[:3] == 0).all(axis=1).any()
    jax.tree.map(np.testing.assert_array_equal, out, expected)


@pytest.mark.parametrize("count", [0, 3])
def test_without_any_box_nothing_is_cropped(count):
    windows, crops = draw(A.RandomIoUCrop(), 50, np.zeros((count, 4), np.float32))
    assert (windows == [0, 0, *SHAPE]).all() and not crops.any()


def test_an_image_without_boxes_is_refused():
    with pytest.raises(ValueError, match='RandomIoUCrop needs a sample with "boxes"'):
        A.RandomIoUCrop()(KEY, IMAGE)
    with pytest.raises(ValueError, match="`sampler_options` must be a sequence"):
        A.RandomIoUCrop(sampler_options=())
    with pytest.raises(ValueError, match="`max_scale` must be a number in"):
        A.RandomIoUCrop(min_scale=0.5, max_scale=0.2)
