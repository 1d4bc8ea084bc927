"""Mosaic against one drawn in numpy, pixel by pixel and box by box."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug import augment as A
from tests.images import picture

KEYS = jax.random.split(jax.random.key(6), 2000)
CANVAS = (24, 30)
SIZES = np.array([[24, 30], [20, 11], [9, 30], [15, 18]], np.int32)
FRAME = (34, 28)


def group():
    image = np.full((4, *CANVAS, 3), 255, np.uint8)
    mask = np.full((4, *CANVAS), 255, np.uint8)
    boxes = np.zeros((4, 3, 4), np.float32)
    rng = np.random.default_rng(0)
    for i, (height, width) in enumerate(SIZES):
        image[i, :height, :width] = picture(i, height, width)
        mask[i, :height, :width] = rng.integers(0, 9, (height, width))
        for k in range(2):
            y = np.sort(rng.choice(height + 1, 2, replace=False))
            x = np.sort(rng.choice(width + 1, 2, replace=False))
            boxes[i, k] = x[0], y[0], x[1], y[1]
    return {
        "image": image,
        "mask": mask,
        "size": SIZES,
        "boxes": boxes,
        "box_labels": np.array([[10 * i, 10 * i + 1, -1] for i in range(4)], np.int32),
        "box_count": np.full(4, 2, np.int32),
        "label": np.arange(4, dtype=np.int32),
    }


def drawn(samples, center, order, min_visibility):
    """One mosaic: images, masks, shares of the area, and the boxes with their labels."""
    image = np.full((*FRAME, 3), 51, np.uint8)
    mask = np.full(FRAME, 7, np.uint8)
    shown = np.zeros(4)
    boxes = []
    for quadrant, sample in enumerate(order):
        height, width = SIZES[sample]
        top = center[0] - height if quadrant < 2 else center[0]
        left = center[1] - width if quadrant % 2 == 0 else center[1]
        rows = range(max(top, 0), min(top + height, center[0] if quadrant < 2 else FRAME[0]))
        ends = center[1] if quadrant % 2 == 0 else FRAME[1]
        columns = range(max(left, 0), min(left + width, ends))
        for y in rows:
            for x in columns:
                image[y, x] = samples["image"][sample, y - top, x - left]
                mask[y, x] = samples["mask"][sample, y - top, x - left]
        shown[sample] += len(rows) * len(columns)
        for box, label in zip(samples["boxes"][sample][:2], samples["box_labels"][sample][:2]):
            x = np.clip(box[[0, 2]] + left, columns.start, max(columns.stop, columns.start))
            y = np.clip(box[[1, 3]] + top, rows.start, max(rows.stop, rows.start))
            seen = (x[1] - x[0]) * (y[1] - y[0])
            if seen > 0 and seen >= min_visibility * (box[2] - box[0]) * (box[3] - box[1]):
                boxes.append((x[0], y[0], x[1], y[1], label))
    return image, mask, shown / shown.sum(), np.array(boxes).reshape(-1, 5)


@pytest.mark.parametrize("min_visibility", [0.0, 0.4])
def test_a_mosaic_is_the_one_drawn_pixel_by_pixel(min_visibility):
    mosaic = A.Mosaic(FRAME, (0.1, 0.9), 4, fill=0.2, mask_fill=7, min_visibility=min_visibility)
    samples = group()
    run = jax.jit(mosaic)
    for key in KEYS[:6]:
        out = jax.device_get(run(key, samples))
        layout = mosaic.make_params(key, A.ImageInfo(CANVAS))
        for i in range(4):
            center = np.asarray(layout.center[i])
            image, mask, share, boxes = drawn(
                samples, center, np.asarray(layout.order[i]), min_visibility
            )
            np.testing.assert_array_equal(out["image"][i], image)
            np.testing.assert_array_equal(out["mask"][i], mask)
            np.testing.assert_allclose(out["label"][i], share, atol=1e-6)
            count = len(boxes)
            assert out["box_count"][i] == count == out["boxes_valid"][i].sum()
            np.testing.assert_allclose(out["boxes"][i][:count], boxes[:, :4])
            assert out["box_labels"][i][:count].tolist() == boxes[:, 4].tolist()
            assert not out["boxes"][i][count:].any()
            assert (out["box_labels"][i][count:] == -1).all()
        assert "size" not in out


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_floating_labels_of_any_shape_are_mixed_by_area(shape):
    labels = np.random.default_rng(0).random((4, *shape)).astype(np.float32)
    samples = {**group(), "label": np.arange(4, dtype=np.int32)}
    shares = np.asarray(A.Mosaic(FRAME, num_classes=4)(KEYS[0], samples)["label"], np.float64)
    out = A.Mosaic(FRAME)(KEYS[0], {**samples, "label": labels})["label"]
    assert out.shape == labels.shape
    np.testing.assert_allclose(out, np.tensordot(shares, labels, axes=1), atol=1e-6)


@pytest.mark.parametrize("mask_fill", [None, 1.5, True])
def test_a_fill_that_is_no_class_is_refused(mask_fill):
    with pytest.raises(ValueError, match="`mask_fill` must be an int"):
        A.Mosaic(FRAME, mask_fill=mask_fill)


def test_a_fill_of_another_number_of_channels_is_refused():
    gray = {"image": group()["image"][..., :1]}
    with pytest.raises(ValueError, match=r"`fill` of Mosaic must be one number, .* \(24, 30, 1\)"):
        A.Mosaic(FRAME, fill=(0.1, 0.2, 0.3))(KEYS[0], gray)


def test_centers_and_orders_are_uniform():
    mosaic = A.Mosaic((1000, 2000), (0.25, 0.75))
    layout = jax.device_get(
        jax.vmap(lambda key: mosaic.make_params(key, A.ImageInfo(CANVAS)))(KEYS)
    )
    for column, side in ((0, 1000), (1, 2000)):
        values = layout.center[:, 0, column] / side
        assert stats.kstest(values, stats.uniform(0.25, 0.5).cdf)[1] > 1e-4
    codes = (layout.order * 4 ** np.arange(4)).sum(axis=2)[:, 1]
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 24 and stats.chisquare(counts)[1] > 1e-4
    assert (np.sort(layout.order, axis=2) == np.arange(4)).all()


def test_a_sample_that_is_not_valid_is_replaced_by_the_one_whose_mosaic_it_is():
    samples = {**group(), "valid": np.array([True, False, True, False])}
    only = np.zeros(4)
    for key in KEYS[:5]:
        out = jax.device_get(A.Mosaic(FRAME, num_classes=4)(key, samples))
        for i in (0, 2):
            assert not out["label"][i][[1, 3]].any()
            only += out["label"][i]
    assert (only[[0, 2]] > 0).all()


def test_in_a_chain_boxes_follow_to_the_frame_of_the_model():
    chain = A.GroupCompose(
        [A.Mosaic((48, 60)), A.Resize((24, 30)), A.RandomHorizontalFlip(1.0), A.ToFloat()]
    )
    samples = {name: group()[name] for name in ("image", "boxes", "box_labels", "size")}
    out = jax.jit(chain)(KEYS[0], samples)
    alone = A.Mosaic((48, 60))(jax.random.fold_in(jax.random.fold_in(KEYS[0], 0), 0), samples)
    assert out["image"].shape == (4, 24, 30, 3) and out["image"].dtype == jnp.float32
    before = np.asarray(alone["boxes"])[np.asarray(alone["boxes_valid"])] / 2
    after = np.asarray(out["boxes"])[np.asarray(out["boxes_valid"])]
    np.testing.assert_allclose(after[:, 0], 30 - before[:, 2], atol=1e-4)
    np.testing.assert_allclose(after[:, 1], before[:, 1], atol=1e-4)
