"""Crops about labeled pixels and painted labels: laws, and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxaug import augment as A
from jaxaug.augment import functional
from tests.images import picture

KEYS = jax.random.split(jax.random.key(0), 400)
IMAGE = picture(0, 24, 31)


def sample(mask, **more):
    return {"image": jnp.asarray(IMAGE), "mask": jnp.asarray(mask), **more}


def test_every_marked_pixel_is_as_likely():
    marked = np.random.default_rng(1).uniform(size=(9, 11)) < 0.2
    numbers = np.arange(0, 1, 1 / 4000, np.float32)
    rows, columns = jax.vmap(functional.random_mask_pixel, (0, None))(numbers, marked)
    counts = np.zeros(marked.shape, int)
    np.add.at(counts, (np.asarray(rows), np.asarray(columns)), 1)
    assert (counts[~marked] == 0).all()
    assert np.ptp(counts[marked]) <= 1


def test_a_crop_holds_a_marked_pixel_and_what_is_beside_moves_along():
    mask = np.zeros((24, 31), np.uint8)
    mask[3, 28], mask[20, 2], mask[10, 10] = 1, 1, 255
    chain = A.Compose([A.CropNonEmptyMaskIfExists((6, 7), ignore_value=255)])
    points = jnp.array([[28.5, 3.5], [2.5, 20.5]])
    given = sample(mask, keypoints=points, boxes=jnp.array([[28.0, 3.0, 29.0, 4.0]]))
    out = jax.device_get(jax.jit(jax.vmap(chain, (0, None)))(KEYS, given))
    assert ((out["mask"] == 1).sum(axis=(1, 2)) == 1).all()
    np.testing.assert_allclose(out["boxes"][:, 0, :2], out["keypoints"][:, 0] - 0.5)
    first = np.asarray([(m[3] == 1).any() for m in out["mask"]])
    inside = (out["keypoints"] > 0).all(axis=2) & (out["keypoints"] < [7, 6]).all(axis=2)
    assert (inside.sum(axis=1) == 1).all() and 0.3 < inside[:, 0].mean() < 0.7 and first.any()
    for row in range(20):
        left, top = np.rint(np.array([28.5, 3.5]) - out["keypoints"][row, 0]).astype(int)
        np.testing.assert_array_equal(out["image"][row], IMAGE[top : top + 6, left : left + 7])


def test_an_empty_mask_gives_any_window():
    crop = A.CropNonEmptyMaskIfExists(8)
    given = sample(np.zeros((24, 31), np.uint8), keypoints=jnp.zeros((1, 2)))
    out = jax.jit(jax.vmap(crop, (0, None)))(KEYS, given)
    corners = -np.rint(np.asarray(out["keypoints"])[:, 0])
    for axis, room in ((0, 24), (1, 17)):
        counts = np.bincount(corners[:, axis].astype(int), minlength=room)
        assert len(counts) == room and scipy.stats.chisquare(counts).pvalue > 1e-4


def test_labels_are_painted_over():
    mask = np.random.default_rng(1).integers(0, 5, (24, 31)).astype(np.uint8)
    drop = A.MaskDropout(2, fill=0.2, fill_mask=9, p=1.0)
    out = jax.device_get(jax.jit(jax.vmap(drop, (0, None)))(KEYS, sample(mask)))
    how_many = []
    for image, after in zip(out["image"], out["mask"]):
        gone = [label for label in range(1, 5) if not (after == label).any()]
        how_many.append(len(gone))
        dropped = np.isin(mask, gone)
        np.testing.assert_array_equal(after, np.where(dropped, 9, mask))
        np.testing.assert_array_equal(image, np.where(dropped[:, :, None], 51, IMAGE))
    assert scipy.stats.chisquare(np.bincount(how_many)[1:]).pvalue > 1e-4


def test_where_a_turn_left_no_image_there_is_no_label():
    mask = np.zeros((24, 31), np.uint8)
    mask[10:14, 12:18] = 3
    turn = A.RandomRotation((40, 40), fill=1.0)
    drop = A.Compose([turn, A.MaskDropout(1, fill=0.5, fill_mask=9, p=1.0)])
    out = jax.device_get(jax.jit(jax.vmap(drop, (0, None)))(KEYS[:40], sample(mask)))
    assert ((out["mask"] == 255).sum(axis=(1, 2)) > 50).all()
    assert ((out["mask"] == 9).sum(axis=(1, 2)) > 10).all() and not (out["mask"] == 3).any()

    crop = A.Compose([turn, A.CropNonEmptyMaskIfExists(5)])
    out = jax.device_get(jax.jit(jax.vmap(crop, (0, None)))(KEYS[:40], sample(mask)))
    assert (out["mask"] == 3).any(axis=(1, 2)).all()


@pytest.mark.parametrize("transform", [A.MaskDropout(p=1.0), A.CropNonEmptyMaskIfExists(4)])
def test_a_sample_without_a_mask_is_an_error(transform):
    with pytest.raises(ValueError, match="needs a 'mask'"):
        transform(KEYS[0], {"image": IMAGE})


def test_labels_count_as_marked_and_a_label_that_does_not_fit_is_refused():
    row, column = functional.random_mask_pixel(jnp.float32(0.6), jnp.array([[1, 1, 200]]))
    assert (int(row), int(column)) == (0, 1)
    with pytest.raises(ValueError, match="`fill_mask` must be an int of 0 to 255"):
        A.MaskDropout(fill_mask=300)
