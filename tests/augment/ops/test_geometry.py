"""Flips, rotations, affine maps and perspective: what they draw, and that it is what they do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.augment import (
    ImageInfo,
    RandomAffine,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomRotation,
    RandomVerticalFlip,
)
from jaxaug.augment import functional as F
from tests.images import picture
from tests.reference import warp as reference

KEY = jax.random.key(0)
INFO = ImageInfo((40, 100))
NOISE = np.random.default_rng(0).uniform(0, 1, (11, 15, 3)).astype(np.float32)


def run(transform, sample):
    return jax.jit(transform)(KEY, sample)


def draw(transform, count=4000):
    """Return `count` draws: parameters and coins."""
    drawn = jax.jit(jax.vmap(lambda key: transform.draw(key, INFO)))
    return jax.tree.map(np.asarray, drawn(jax.random.split(KEY, count)))


def parameters(transform):
    """What `run(transform, NOISE)` draws."""
    return transform.make_params(jax.random.fold_in(KEY, 0), ImageInfo((11, 15)))


@pytest.mark.parametrize("flip", [RandomHorizontalFlip, RandomVerticalFlip])
def test_flips(flip):
    assert abs(draw(flip(0.3)).applied.mean() - 0.3) < 0.03
    axis = 1 if flip is RandomHorizontalFlip else 0
    np.testing.assert_array_equal(run(flip(1.0), NOISE), np.flip(NOISE, axis))
    canvas = np.zeros((20, 20, 3), np.float32)
    canvas[:11, :15] = NOISE
    out = run(flip(1.0), {"image": canvas, "size": jnp.array([11, 15], jnp.int32)})
    np.testing.assert_array_equal(out["image"][:11, :15], np.flip(NOISE, axis))
    assert out["size"].tolist() == [11, 15]


def test_rotation_angles_are_uniform_and_applied_with_their_sign():
    (angles,), coins = draw(RandomRotation(30, p=0.5))
    applied = angles[coins]
    assert abs(len(applied) / len(angles) - 0.5) < 0.03
    assert abs((applied > 0).mean() - 0.5) < 0.03  # the coin of `p` says nothing about the sign
    assert applied.min() < -29 and applied.max() > 29 and abs(applied.std() - 30 / 3**0.5) < 0.5
    transform = RandomRotation((20, 40))
    angle = parameters(transform).angle
    np.testing.assert_allclose(run(transform, NOISE), F.rotate(NOISE, angle), atol=1e-5)


def test_affine_draws_each_parameter_by_itself():
    transform = RandomAffine((-10, 20), (0.1, 0.25), (0.5, 2.0), (-5.0, 5.0, 10.0, 15.0))
    angle, (x, y), scale, (shear_x, shear_y) = draw(transform).params
    # Whole pixels; a tenth of 100 columns, a quarter of 40 rows.
    assert set(np.unique(x)) == set(range(-10, 11)) and set(np.unique(y)) == set(range(-10, 11))
    ranges = ((angle, -10, 20), (scale, 0.5, 2), (shear_x, -5, 5), (shear_y, 10, 15))
    for values, low, high in ranges:
        edge = (high - low) / 50
        assert low <= values.min() < low + edge and high - edge < values.max() <= high
    together = np.corrcoef([angle, x, y, scale, shear_x, shear_y])
    assert np.abs(together - np.eye(6)).max() < 0.06


def test_affine_is_applied_with_its_probability_whatever_it_drew():
    """The coin says nothing about the numbers that are used where it falls on its head."""
    transform = RandomAffine(30, (0.1, 0.2), (0.5, 1.5), (-5.0, 5.0, -5.0, 5.0), p=0.3)
    (angle, (x, _), scale, shear), on = draw(transform)
    assert abs(on.mean() - 0.3) < 0.03
    warps = jax.vmap(lambda key: transform.drawn_warp(transform.draw(key, INFO), INFO).matrix)
    matrices = np.stack(np.broadcast_arrays(*warps(jax.random.split(KEY, 200))), axis=1)
    identity = (matrices == np.eye(3).ravel()).all(axis=1)
    np.testing.assert_array_equal(~identity, draw(transform, 200).applied)
    ranges = ((angle, 0, 30), (x, 0, 10), (scale, 1, 0.5), (shear[0], 0, 5))
    for values, middle, reach in ranges:
        assert abs(values[on].mean() - middle) < reach / 10
        assert abs(values[on].std() - reach / 3**0.5) < reach / 15


def test_affine_does_what_it_drew():
    transform = RandomAffine(30, (0.2, 0.2), (1.1, 1.5), (-8.0, 8.0, -8.0, 8.0))
    angle, translate, scale, shear = parameters(transform)
    expected = F.affine(NOISE, angle, translate, float(scale), shear)
    np.testing.assert_allclose(run(transform, NOISE), expected, atol=1e-5)


def test_a_single_shear_is_that_of_x():
    expected = F.affine(NOISE, shear=(10.0, 0.0))
    np.testing.assert_array_equal(F.affine(NOISE, shear=10.0), expected)


def test_turns_and_shears_without_a_scale_are_bilinear():
    """As in torchvision: only what shrinks is antialiased."""
    transform = RandomAffine((20, 20), shear=(30.0, 30.0, -25.0, -25.0), padding_mode="reflect")
    angle, _, _, shear = parameters(transform)
    pull = reference.about(reference.shear(*map(float, shear)), 11, 15)
    pull = pull @ reference.rotation(float(angle), 11, 15)
    expected = reference.warp(NOISE, pull, (11, 15), "reflect")
    np.testing.assert_allclose(run(transform, NOISE), expected, atol=1e-5)


def test_affine_that_asks_for_nothing_is_the_identity_and_costs_no_resample():
    transform = RandomAffine(0)
    np.testing.assert_array_equal(run(transform, NOISE), NOISE)
    factor = transform.warp(parameters(transform), ImageInfo((11, 15)))
    assert all(isinstance(entry, float) for entry in factor.matrix)


def test_perspective_moves_corners_inwards():
    transform = RandomPerspective(0.6, 0.25)
    (inwards,), coins = draw(transform)
    applied = inwards[coins]
    assert abs(len(applied) / len(inwards) - 0.25) < 0.03
    assert 0 <= applied.min() and 0.29 < applied.max() <= 0.3
    assert np.abs(np.corrcoef(applied.reshape(-1, 8).T) - np.eye(8)).max() < 0.15


def test_perspective_does_what_it_drew():
    transform = RandomPerspective(0.5, 1.0)
    inwards = np.asarray(parameters(transform).inwards)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32)
    moved = (corners + inwards * (1 - 2 * corners)) * [15, 11]
    expected = F.perspective(NOISE, jnp.float32(corners * [15, 11]), jnp.float32(moved))
    np.testing.assert_allclose(run(transform, NOISE), expected, atol=2e-5)


def test_a_used_part_is_turned_about_its_own_center():
    image = picture(0, 11, 15)
    canvas = np.full((20, 24, 3), 255, np.uint8)
    canvas[:11, :15] = image
    transform = RandomRotation((25, 25), padding_mode="reflect")
    out = run(transform, {"image": canvas, "size": jnp.array([11, 15], jnp.int32)})
    expected = reference.warp(image, reference.rotation(25, 11, 15), (11, 15), "reflect")
    np.testing.assert_allclose(out["image"][:11, :15], expected, atol=0.51)
    assert not out["image"][11:].any() and not out["image"][:, 15:].any()


def test_errors():
    with pytest.raises(
        ValueError, match=r"`degrees` must be a pair \(low, high\) .* got \(30, -30\)"
    ):
        RandomRotation((30, -30))
    with pytest.raises(ValueError, match=r"`degrees` must be one number of at least 0 .* got -3"):
        RandomRotation(-3)
    with pytest.raises(ValueError, match=r"`p` must be a probability in \[0, 1\], got -0.1"):
        RandomHorizontalFlip(-0.1)
    with pytest.raises(
        ValueError, match=r"`fill` must be a number in \[0, 1\] or one per channel, got 128"
    ):
        RandomRotation(10, fill=128)
    with pytest.raises(ValueError, match=r"`scale` must be above 0, got \(0.0, 1.0\)"):
        RandomAffine(0, scale=(0, 1))
    with pytest.raises(ValueError, match="`shear` must be a number, a pair or four numbers"):
        RandomAffine(0, shear=(1, 2, 3))
    with pytest.raises(
        ValueError, match=r"`distortion_scale` must be a number in \[0.0, 1.0\], got 1.5"
    ):
        RandomPerspective(1.5)
