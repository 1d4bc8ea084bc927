"""The tiles of a grid in another order, against tiles that NumPy cuts and joins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import functional as F
from tests.images import picture


def shuffled(pixels, order, rows, columns):
    """Return the tiles cut out and joined again in their order; the rest stays."""
    height, width = pixels.shape[0] // rows, pixels.shape[1] // columns
    whole = pixels[: rows * height, : columns * width]
    tiles = [tile for row in np.split(whole, rows) for tile in np.split(row, columns, axis=1)]
    chosen = [tiles[i] for i in order]
    lines = [np.hstack(chosen[i * columns : (i + 1) * columns]) for i in range(rows)]
    expected = pixels.copy()
    expected[: rows * height, : columns * width] = np.vstack(lines)
    return expected


@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (3, 2), (4, 4)])
def test_grid_shuffle(grid):
    order = np.random.default_rng(2).permutation(grid[0] * grid[1])
    pixels = picture(4, 13, 18)
    expected = shuffled(pixels, order, *grid)
    np.testing.assert_array_equal(F.grid_shuffle(pixels, order, grid), expected)
    canvas = np.pad(pixels, ((0, 5), (0, 2), (0, 0)), constant_values=200)
    out = np.asarray(F.grid_shuffle(canvas, order, grid, jnp.array([13, 18])))
    np.testing.assert_array_equal(out[:13, :18], expected)
    np.testing.assert_array_equal(out[13:], canvas[13:])


def test_fewer_pixels_than_tiles_stay():
    pixels = picture(4, 2, 9)
    order = np.arange(12)[::-1]
    np.testing.assert_array_equal(F.grid_shuffle(pixels, order, (4, 3)), pixels)


def test_masks_follow():
    pixels = picture(4, 12, 15)
    mask = pixels[:, :, 0]
    sample = {"image": pixels, "mask": mask, "masks": np.stack([mask, mask.T.reshape(12, 15)])}
    shuffle = augment.RandomGridShuffle((2, 3), p=1.0)
    out = augment.Compose([shuffle])(jax.random.key(1), sample)
    assert not np.array_equal(out["image"], pixels)
    np.testing.assert_array_equal(out["mask"], out["image"][:, :, 0])
    np.testing.assert_array_equal(out["masks"][0], out["mask"])
    assert sorted(out["masks"][1].ravel().tolist()) == sorted(mask.ravel().tolist())


@pytest.mark.parametrize("name, value", [("boxes", (1, 4)), ("keypoints", (1, 2))])
def test_what_a_shuffle_refuses(name, value):
    sample = {"image": picture(0, 8, 8), name: jnp.ones(value)}
    with pytest.raises(ValueError, match=f"which '{name}' cannot follow"):
        augment.RandomGridShuffle()(jax.random.key(0), sample)
    with pytest.raises(ValueError, match="`grid` must be"):
        augment.RandomGridShuffle(0)
