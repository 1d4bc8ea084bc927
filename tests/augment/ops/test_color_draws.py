"""What the transforms of tone, channels, light, blur, filters, noise and JPEG draw, and their
arguments.
"""

import jax
import numpy as np
import pytest
import scipy.stats

from jaxaug import augment

INFO = augment.ImageInfo((16, 20))
COUNT = 20_000


def draws(transform):
    """Return the parameters of many keys, each leaf [n, ...]."""
    keys = jax.random.split(jax.random.key(5), COUNT)
    params = jax.jit(jax.vmap(lambda key: transform.make_params(key, INFO)))(keys)
    return [
        np.asarray(leaf, float)
        for leaf in jax.tree.leaves(params)
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    ]


def is_uniform(values, low, high):
    assert scipy.stats.kstest(values, scipy.stats.uniform(low, high - low).cdf).pvalue > 1e-4


def columns(leaves):
    """Return one row for each number that is drawn."""
    return np.concatenate([leaf.reshape(COUNT, -1).T for leaf in leaves])


UNIFORM = {
    "RandomGamma": (augment.RandomGamma((0.5, 1.5)), [(0.5, 1.5)]),
    "CLAHE": (augment.CLAHE((1, 3)), [(1, 3)]),
    "RandomRGBShift": (
        augment.RandomRGBShift(0.1, (0.2, 0.3), 0.4),
        [(-0.1, 0.1), (0.2, 0.3), (-0.4, 0.4)],
    ),
    "HueSaturationValue": (
        augment.HueSaturationValue(0.1, 0.2, (0, 0.3)),
        [(-0.1, 0.1), (-0.2, 0.2), (0, 0.3)],
    ),
    "RandomHueYIQ": (augment.RandomHueYIQ(0.25), [(-0.25, 0.25)]),
    "PlanckianJitter": (augment.PlanckianJitter(), [(3000, 15000)]),
    "GaussianBlur": (augment.GaussianBlur(5), [(0.1, 2.0)]),
    "BoxBlur": (augment.BoxBlur(), [(3, 7)]),
    "MotionBlur": (augment.MotionBlur(), [(3, 7), (0, 360), (-1, 1)]),
    "Defocus": (augment.Defocus(), [(3, 10)]),
    "Downscale": (augment.Downscale((0.2, 0.6)), [(0.2, 0.6)]),
    "GaussianNoise": (augment.GaussianNoise(sigma=(0.1, 0.3)), [(0.1, 0.3)]),
    "ShotNoise": (augment.ShotNoise(), [(0.1, 0.3)]),
    "SaltAndPepper": (augment.SaltAndPepper(), [(0.01, 0.06), (0.4, 0.6)]),
    "ISONoise": (augment.ISONoise(), [(0.01, 0.05), (0.1, 0.5)]),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_and_apart(name):
    transform, ranges = UNIFORM[name]
    numbers = columns(draws(transform))
    assert len(numbers) == len(ranges)
    for values, (low, high) in zip(numbers, ranges):
        is_uniform(values, low, high)
    assert np.abs(np.corrcoef(numbers) - np.eye(len(ranges))).max() < 0.03


def test_lighting_and_tone_curve_are_normal():
    alpha = columns(draws(augment.PCALighting(0.2)))
    assert all(scipy.stats.kstest(a, scipy.stats.norm(0, 0.2).cdf).pvalue > 1e-4 for a in alpha)
    curve = columns(draws(augment.RandomToneCurve(0.05, per_channel=True)))
    assert curve.shape == (6, COUNT)
    for heights, mean in zip(curve, (0.25, 0.25, 0.25, 0.75, 0.75, 0.75)):
        assert scipy.stats.kstest(heights, scipy.stats.norm(mean, 0.05).cdf).pvalue > 1e-4
    assert np.abs(np.corrcoef([*alpha]) - np.eye(3)).max() < 0.03
    assert np.abs(np.corrcoef(curve) - np.eye(6)).max() < 0.03


def test_quality_is_a_whole_number_of_the_range():
    (quality,) = draws(augment.JPEG((40, 43)))
    values, counts = np.unique(quality, return_counts=True)
    assert values.tolist() == [40, 41, 42, 43]
    assert scipy.stats.chisquare(counts).pvalue > 1e-4
    assert set(draws(augment.JPEG(70))[0].tolist()) == {70}


def test_permutations_are_as_likely():
    (permutations,) = draws(augment.RandomChannelPermutation())
    _, counts = np.unique(permutations, axis=0, return_counts=True)
    assert len(counts) == 6 and scipy.stats.chisquare(counts).pvalue > 1e-4


def test_dropped_channels_are_as_likely():
    (keep,) = draws(augment.ChannelDropout((1, 2)))
    kept, counts = np.unique(keep, axis=0, return_counts=True)
    assert set(kept.sum(axis=1)) == {1, 2}
    assert len(counts) == 6 and scipy.stats.chisquare(counts).pvalue > 1e-4


def test_photometric_distort_tosses_a_coin_for_each_part():
    leaves = draws(augment.RandomPhotometricDistort(p=0.3))
    brightness, contrast, saturation, hue, order, permutation = leaves
    factors = [(brightness, 0.875, 1.125), (contrast, 0.5, 1.5), (saturation, 0.5, 1.5)]
    coins = []
    for values, low, high in factors:
        coins.append(values != 1)
        is_uniform(values[values != 1], low, high)
    coins.append(hue != 0)
    is_uniform(hue[hue != 0], -0.05, 0.05)
    coins.append(order[:, 1] == 1)
    shares = np.mean(coins, axis=1)
    np.testing.assert_allclose(shares, [0.3, 0.3, 0.3, 0.3, 0.5], atol=0.015)
    changed = (permutation != [0, 1, 2]).any(axis=1)
    assert abs(changed.mean() - 0.3 * 5 / 6) < 0.015
    assert np.abs(np.corrcoef([*coins, changed]) - np.eye(6)).max() < 0.03
    assert {tuple(row) for row in order.astype(int)} == {(0, 1, 2, 3), (0, 2, 3, 1)}


NEUTRAL = {"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0)}


@pytest.mark.parametrize("left_out", [("hue",), ("contrast",), ("brightness", "saturation")])
def test_photometric_distort_has_a_turn_for_each_part_that_changes(left_out):
    """The jitter takes no more turns than that: another one would be left out, whichever it is."""
    distort = augment.RandomPhotometricDistort(**{name: NEUTRAL[name] for name in left_out})
    *_, order, _ = draws(distort)
    changing = [number for number, name in enumerate(NEUTRAL) if name not in left_out]
    assert {tuple(sorted(row)) for row in order.astype(int)} == {tuple(changing)}


WRONG = [
    (lambda: augment.RandomPosterize(9), "`bits` must be an int of 0 to 8, got 9"),
    (lambda: augment.RandomSolarize(128), r"`threshold` must be a number in \[0.0, 1.0\], got 128"),
    (lambda: augment.LookupTable([0.0, 1.0]), "`table` must be 256 numbers in"),
    (lambda: augment.GaussianBlur(4), "`kernel_size` must be an odd int of at least 1, got 4"),
    (lambda: augment.GaussianBlur((3, 5, 7)), "`kernel_size` must be an odd int or two"),
    (lambda: augment.ColorJitter(float("nan")), "`brightness` must be one number of at least 0"),
    (lambda: augment.JPEG((10.5, 20)), "`quality` must be one or two ints"),
    (lambda: augment.JPEG(0), "`quality`"),
    (lambda: augment.ChannelDropout((2, 1)), "`channel_drop_range`"),
    (lambda: augment.Morphological(3, "opening"), "`operation` must be"),
    (lambda: augment.CLAHE(tile_grid_size=0), "`tile_grid_size` must be"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments(number):
    build, message = WRONG[number]
    with pytest.raises(ValueError, match=message):
        build()


def test_color_says_that_it_needs_three_channels():
    gray = np.zeros((4, 5, 1), np.uint8)
    with pytest.raises(ValueError, match="JPEG needs an image of 3 channels"):
        augment.JPEG(50)(jax.random.key(0), gray)
    assert augment.GaussianNoise()(jax.random.key(0), gray).shape == (4, 5, 1)
