"""Occlusion: torchvision's draws in numpy, counted pixels, and what happens to masks."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug import augment as A
from tests.images import picture

KEY = jax.random.key(0)
N = 4000
KEYS = jax.random.split(jax.random.key(5), N)


def draws(transform, info):
    return jax.device_get(jax.jit(jax.vmap(lambda key: transform.make_params(key, info)))(KEYS))


def torchvision_windows(rng, height, width, scale, ratio):
    """`RandomErasing.make_params` of torchvision, N times; height 0 where it gives up."""
    found = []
    for _ in range(N):
        window = (0, 0, 0, 0)
        for _ in range(10):
            area = height * width * rng.uniform(*scale)
            aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
            h = round(math.sqrt(area * aspect))
            w = round(math.sqrt(area / aspect))
            if h < height and w < width:
                window = (
                    rng.integers(0, height - h, endpoint=True),
                    rng.integers(0, width - w, endpoint=True),
                    h,
                    w,
                )
                break
        found.append(window)
    return np.array(found).T


@pytest.mark.parametrize(
    "height, width, scale, ratio",
    [
        (224, 224, (0.02, 0.33), (0.3, 3.3)),
        (90, 400, (0.1, 0.6), (0.5, 6.0)),
        (12, 200, (0.05, 0.6), (0.8, 1.25)),
    ],
)
@pytest.mark.parametrize("canvas", [False, True])
def test_windows_are_those_of_torchvision(height, width, scale, ratio, canvas):
    info = A.ImageInfo((height, width))
    if canvas:
        info = A.ImageInfo((height + 9, width + 50), jnp.array([height, width], jnp.int32))
    windows = draws(A.RandomErasing(1.0, scale, ratio), info)[0]
    ours = np.stack([column[:, 0] for column in windows])
    theirs = torchvision_windows(np.random.default_rng(1), height, width, scale, ratio)
    assert (ours[0] + ours[2] <= height).all() and (ours[1] + ours[3] <= width).all()
    for mine, other in zip(ours, theirs):
        result = stats.ks_2samp(mine[ours[2] > 0], other[theirs[2] > 0])
        assert np.asarray(result)[1] > 1e-4
    given_up = np.array([(ours[2] == 0).sum(), (theirs[2] == 0).sum()])
    if given_up.any():
        table = [given_up, N - given_up]
        assert stats.chi2_contingency(table).pvalue > 1e-4  # pyright: ignore


def test_erase_is_a_slice_assignment():
    image = picture(0, 20, 30).astype(np.float32) / 255
    for window in [(3, 4, 5, 6), (0, 0, 20, 30), (18, 25, 9, 9), (5, 5, 0, 3)]:
        top, left, height, width = window
        expected = image.copy()
        expected[top : top + height, left : left + width] = (0.1, 0.2, 0.3)
        out = jax.jit(A.functional.erase)(image, *window, (0.1, 0.2, 0.3))
        np.testing.assert_array_equal(out, expected)


def test_random_values_are_normal_after_normalize():
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)
    erasing = A.RandomErasing(1.0, (0.9, 0.9), (1, 1), "random", mean=mean, std=std)
    chain = A.Compose([erasing, A.Normalize(mean, std)])
    out = np.asarray(chain(KEY, jnp.zeros((120, 120, 3), jnp.uint8)))
    zero = (-np.array(mean) / np.array(std)).astype(np.float32)
    erased = ~np.isclose(out, zero, atol=1e-5).all(axis=2)
    assert abs(erased.mean() - 0.9) < 0.02
    for channel in range(3):
        assert stats.kstest(out[erased][:, channel], "norm")[1] > 1e-4


def test_holes_are_as_many_and_as_large_as_said():
    dropout = A.CoarseDropout((1, 4), (0.1, 0.3), (0.5, 0.5))
    top, left, height, width = draws(dropout, A.ImageInfo((100, 40)))
    counts = np.bincount((height > 0).sum(axis=1), minlength=5)
    assert counts[0] == 0 and stats.chisquare(counts[1:])[1] > 1e-4
    sides = height[height > 0]
    assert sides.min() == 10 and sides.max() == 30 and (width == 20).all()
    assert (top + height <= 100).all() and left.max() == 20 and left.min() == 0


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("degrees", [0.0, 45.0])
def test_a_grid_covers_the_square_of_its_ratio(ratio, degrees):
    grid = A.GridDropout(ratio, (0.1, 0.1), degrees, p=1.0)
    image = jnp.full((200, 240, 3), 255, jnp.uint8)
    covered = np.asarray(jax.vmap(grid, (0, None))(KEYS[:40], image)[..., 0]) == 0
    assert abs(covered.mean() - ratio**2) < 0.02
    if degrees == 0:
        lengths = np.diff(np.flatnonzero(np.diff(covered[0].any(axis=0).astype(int))))
        assert set(lengths) == {round(20 * ratio), 20 - round(20 * ratio)}


@pytest.mark.parametrize("ratio, side", [(0.05, 1), (0.95, 3)])
def test_a_small_grid_has_squares_and_gaps(ratio, side):
    image = jnp.full((40, 40, 3), 255, jnp.uint8)
    covered = np.asarray(A.GridDropout(ratio, (0.1, 0.1), p=1.0)(KEY, image))[..., 0] == 0
    assert covered.sum() == 100 * side**2


def test_pixels_drop_at_their_rate():
    image = jnp.full((200, 200, 3), 255, jnp.uint8)
    out = np.asarray(A.PixelDropout(0.1, p=1.0)(KEY, image)) == 0
    assert (out.all(axis=2) == out.any(axis=2)).all()
    assert stats.binomtest(int(out[:, :, 0].sum()), 40_000, 0.1).pvalue > 1e-4
    each = np.asarray(A.PixelDropout(0.1, True, p=1.0)(KEY, image)) == 0
    assert stats.binomtest(int(each.sum()), 120_000, 0.1).pvalue > 1e-4
    assert abs(np.corrcoef(each[:, :, 0].ravel(), each[:, :, 1].ravel())[0, 1]) < 0.03


MASKED = [
    A.RandomErasing(1.0, mask_fill=7),
    A.CoarseDropout(mask_fill=7, p=1.0),
    A.GridDropout(mask_fill=7, p=1.0),
]


@pytest.mark.parametrize("transform", MASKED, ids=lambda t: type(t).__name__)
def test_the_mask_is_filled_where_the_image_is_painted_over(transform):
    image = np.full((24, 30, 3), 200, np.uint8)
    for mask in (np.ones((24, 30), np.uint8), np.ones((24, 30, 2), np.int32)):
        out = jax.jit(transform)(KEY, {"image": image, "mask": mask})
        painted = np.asarray(out["image"])[:, :, 0] == 0
        assert painted.any() and not painted.all()
        plane = out["mask"] if mask.ndim == 2 else out["mask"][:, :, 1]
        np.testing.assert_array_equal(plane, np.where(painted, 7, 1))
    kept = dataclasses.replace(transform, mask_fill=None)(KEY, {"image": image, "mask": mask})
    np.testing.assert_array_equal(kept["mask"], mask)
    never = dataclasses.replace(transform, p=0.0)(KEY, {"image": image, "mask": mask})
    np.testing.assert_array_equal(never["mask"], mask)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="`value` must be a color or 'random', got 'noise'"):
        A.RandomErasing(value="noise")
    with pytest.raises(ValueError, match="`scale` must be a pair"):
        A.RandomErasing(scale=(0.5, 1.5))
    with pytest.raises(ValueError, match="`mask_fill` must be None or an int"):
        A.CoarseDropout(mask_fill=0.5)  # pyright: ignore
    with pytest.raises(ValueError, match="`holes` must be one or two ints, got"):
        A.CoarseDropout((1.5, 2))
    with pytest.raises(ValueError, match="`ratio` must be a number in"):
        A.GridDropout(1.0)
    with pytest.raises(ValueError, match=r"`value` of PixelDropout must be .*\(4, 4, 1\), got 3"):
        A.PixelDropout(value=(0.1, 0.2, 0.3), p=1.0)(KEY, jnp.zeros((4, 4, 1), jnp.uint8))
