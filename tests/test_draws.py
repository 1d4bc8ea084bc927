"""The parameters that every exported transform draws: their distributions, and the coin of `p`.

The transforms and their arguments are those of `test_contract.py`. Each that draws something needs
one line in DRAWS.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxaug import augment
from tests.test_contract import BOXES, CASES, NAMES, WITH_P, always, build, has_p, input_canvas

COUNT = 20_000
MIN_PVALUE = 1e-4
MAX_CORRELATION = 0.03  # the standard deviation of that of independent numbers is 0.007
MAX_COLUMNS = 4  # of an array of parameters


class Uniform:
    """Uniform on [low, high]."""

    def __init__(self, low, high):
        self._low, self._high = low, high

    def pvalue(self, values):
        within = scipy.stats.uniform(self._low, self._high - self._low)
        return scipy.stats.kstest(values, within.cdf).pvalue


class Normal:
    def __init__(self, mean, deviation):
        self._mean, self._deviation = mean, deviation

    def pvalue(self, values):
        return scipy.stats.kstest(values, scipy.stats.norm(self._mean, self._deviation).cdf).pvalue


class Choice:
    """Any of the values, each as likely."""

    def __init__(self, values):
        self._values = np.sort(np.asarray(values))

    def pvalue(self, values):
        found, counts = np.unique(values, return_counts=True)
        np.testing.assert_array_equal(found, self._values)
        return scipy.stats.chisquare(counts).pvalue


class Rounded:
    """Uniform on [low, high], then rounded."""

    def __init__(self, low, high):
        self._low, self._high = low, high

    def pvalue(self, values):
        found, counts = np.unique(values, return_counts=True)
        low = np.maximum(found - 0.5, self._low)
        shares = (np.minimum(found + 0.5, self._high) - low) / (self._high - self._low)
        assert shares.sum() == pytest.approx(1)
        return scipy.stats.chisquare(counts, shares * len(values)).pvalue


# In the tests of its own module: not distributed alone, but together with others.
ELSEWHERE = object()

# The codes of torchvision's, which have neither SolarizeAdd nor Invert.
OPERATIONS = [*range(12), 13, 14]

BRANCHES = {
    ".drawn[0].params.angle": Uniform(20, 40),
    ".drawn[1].params.brightness": Uniform(0.3, 0.6),
    ".drawn[2].params[1].params.angle": Uniform(5, 25),
}

# By transform and place in its parameters; a list has one for each of the first columns.
DRAWS = {
    "OverlayElements": {".element": Choice((0, 1)), ".place": Uniform(0, 1)},
    "WaterRefraction": {
        ".amplitude": ELSEWHERE,
        ".wavelength": Uniform(0.05, 0.2),
        ".angle": Uniform(0, 2 * np.pi),
        ".phase": Uniform(0, 2 * np.pi),
    },
    "CropNonEmptyMaskIfExists": {"": Uniform(0, 1)},
    "FDA": {".reference": Choice((0, 1)), ".amount": Uniform(0.2, 0.3)},
    "HistogramMatching": {".reference": Choice((0, 1)), ".amount": Uniform(0.5, 1)},
    "MaskDropout": {"": Uniform(0, 1)},
    "PixelDistributionAdaptation": {".reference": Choice((0, 1)), ".amount": Uniform(0.25, 1)},
    "BiasField": {"": Uniform(-0.5, 0.5)},
    "ExposureMatching": {"": Uniform(0.3, 0.5)},
    "HEStain": {
        ".stains": ELSEWHERE,
        ".separation": ELSEWHERE,
        ".scale": Uniform(0.7, 1.3),
        ".shift": Uniform(-0.2, 0.2),
    },
    "Halftone": {".dot_size": Choice(range(4, 11)), ".blend": Uniform(0, 0.5)},
    "KSpaceSpikeNoise": {
        ".waves": Choice(range(-4, 5)),
        ".phase": Uniform(0, 2 * np.pi),
        ".intensity": ELSEWHERE,
    },
    "Superpixels": {".seeds": Uniform(0, 1), ".replaced": ELSEWHERE},
    "AdvancedBlur": {
        ".reach": Choice((1, 2, 3)),
        ".sigma_x": Uniform(1.0, 2.0),
        ".sigma_y": Uniform(0.2, 1.0),
        ".angle": Uniform(-90, 90),
        ".beta": Uniform(0.5, 8.0),
        ".noise": Uniform(0.9, 1.1),
    },
    "ChromaticAberration": {
        ".blue": [Uniform(-0.5, 0.5), Uniform(-0.4, 0.4)],
        ".red": [Uniform(-0.5, 0.5), Uniform(-0.4, 0.4)],
    },
    "RandomGravel": {".stones": ELSEWHERE, ".half": Choice((1, 2, 3)), ".lightness": Uniform(0, 1)},
    "RandomRain": {".drops": Uniform(0, 1), ".slant": Uniform(-10, 10)},
    "RandomShadow": ELSEWHERE,
    "RandomSunFlare": ELSEWHERE,
    "RingingOvershoot": {".reach": Choice((2, 3)), ".cutoff": Uniform(np.pi / 4, np.pi / 2)},
    "Spatter": {".threshold": Uniform(0.5, 0.6)},
    "ZoomBlur": {"": Uniform(1.2, 1.5)},
    "AtmosphericFog": {"": Uniform(1.0, 3.0)},
    "AugMix": ELSEWHERE,
    "AutoAugment": ELSEWHERE,
    "BandGain": {".gain": [Uniform(0.8, 1.2)] * 3, ".offset": [Uniform(-0.1, 0.1)] * 3},
    "BoxBlur": {"": Uniform(3, 7)},
    "ByEpoch": {key: BRANCHES[key] for key in list(BRANCHES)[:2]},
    "CLAHE": {"": Uniform(1, 40)},
    "ChannelDropout": ELSEWHERE,
    "CoarseDropout": ELSEWHERE,
    "ColorJitter": {
        ".brightness": Uniform(0.6, 1.4),
        ".contrast": Uniform(0.6, 1.4),
        ".saturation": Uniform(0.6, 1.4),
        ".hue": Uniform(-0.1, 0.1),
        ".order": Choice(range(4)),
    },
    "Compose": {
        "[0]": ELSEWHERE,
        "[1].params.angle": Uniform(-20, 20),
        "[2].params.brightness": Uniform(0.7, 1.3),
    },
    "ConstrainedCoarseDropout": ELSEWHERE,
    "CropAndPad": {".shares": Uniform(-0.1, 0.1)},
    "Defocus": {"": Uniform(1, 3)},
    "Downscale": {"": Uniform(0.2, 0.8)},
    "ElasticTransform": {".noise": Uniform(-1, 1)},
    "Emboss": {".alpha": Uniform(0.2, 0.5), ".strength": Uniform(0.2, 0.7)},
    "FilmGrain": {".intensity": Uniform(0.1, 0.3)},
    "GaussianBlur": {"": Uniform(0.1, 2.0)},
    "GridDistortion": {".steps": Uniform(0.7, 1.3)},
    "GridDropout": ELSEWHERE,
    "HueSaturationValue": {
        ".hue": Uniform(-20 / 180, 20 / 180),
        ".saturation": Uniform(-30 / 255, 30 / 255),
        ".value": Uniform(-20 / 255, 20 / 255),
    },
    "ISONoise": {".numbers": [Uniform(0.01, 0.05), Uniform(0.1, 0.5)]},
    "Illumination": {
        ".intensity": ELSEWHERE,
        ".angle": Uniform(0, 360),
        ".center": Uniform(0.1, 0.9),
        ".sigma": Uniform(0.2, 1.0),
    },
    "JPEG": {"": Choice(range(30, 91))},
    "MotionBlur": {
        ".length": Uniform(3, 7),
        ".angle": Uniform(0, 360),
        ".direction": Uniform(-1, 1),
    },
    "OneOf": BRANCHES | {".chosen": Choice(range(3))},
    "OpticalDistortion": {".k": Uniform(0.05, 0.15)},
    "PCALighting": {"": Normal(0, 0.1)},
    "PiecewiseAffine": ELSEWHERE,
    "PlanckianJitter": {"": Uniform(3000, 15000)},
    "PlasmaBrightnessContrast": {
        ".roughness": Uniform(0.1, 0.7),
        ".brightness": Uniform(-0.3, 0.3),
        ".contrast": Uniform(-0.3, 0.3),
    },
    "PlasmaShadow": {".roughness": Uniform(0.1, 0.7), ".brightness": Uniform(0.3, 0.7)},
    "RandAugment": {".code": Choice(OPERATIONS), ".magnitude": ELSEWHERE},
    "RandomAffine": {".angle": Uniform(-25, 25), ".scale": Uniform(0.7, 1.2)},
    "RandomApply": {
        ".drawn[0].params[0].params.angle": Uniform(20, 40),
        ".drawn[0].params[1].params.brightness": Uniform(0.3, 0.6),
        ".drawn[0].params[2].params[1].params.angle": Uniform(5, 25),
    },
    "RandomChannelPermutation": {"": Choice(range(3))},
    "RandomChoice": BRANCHES | {".chosen": Choice(range(3))},
    "RandomCrop": {".top": Choice(range(8)), ".left": Choice(range(10))},
    "RandomCropNearBox": ELSEWHERE,
    "RandomD4": {".element": Choice(range(8))},
    "RandomErasing": ELSEWHERE,
    "RandomGamma": {"": Uniform(0.8, 1.2)},
    "RandomGridShuffle": {"": Choice(range(9))},
    "RandomHueYIQ": {"": Uniform(-0.5, 0.5)},
    "RandomIoUCrop": ELSEWHERE,
    "RandomOrder": BRANCHES | {".chosen": Choice(range(3))},
    "RandomPerspective": {".inwards": Uniform(0, 0.25)},
    "RandomPhotometricDistort": {
        ".jitter.brightness": Uniform(0.875, 1.125),
        ".jitter.contrast": Uniform(0.5, 1.5),
        ".jitter.saturation": Uniform(0.5, 1.5),
        ".jitter.hue": Uniform(-0.05, 0.05),
        ".jitter.order": [None, Choice((1, 2)), Choice((2, 3)), Choice((1, 3))],
        ".permutation": Choice(range(3)),
    },
    "RandomRGBShift": {"": Uniform(-0.5, 0.5)},
    "RandomResize": {".side": Choice(range(5, 13))},
    "RandomResizedCrop": ELSEWHERE,
    "RandomRotate90": {".element": Choice(range(4))},
    "RandomRotation": {".angle": Uniform(-25, 25)},
    "RandomShear": {".shear[0]": Uniform(5, 25), ".shear[1]": Uniform(-20, 20)},
    "RandomShortestSize": {".side": Choice((6, 8))},
    "RandomSizedBoxSafeCrop": ELSEWHERE,
    "RandomSnow": {"": Uniform(0.1, 0.3)},
    "RandomToneCurve": {".low_y": Normal(0.25, 0.1), ".high_y": Normal(0.75, 0.1)},
    "RandomTranslate": {".translate[0]": Rounded(-6, 6), ".translate[1]": Rounded(-3.2, 3.2)},
    "RandomZoomOut": {".side": Uniform(1.2, 2.0), ".place": Uniform(0, 1)},
    "RicianNoise": {".numbers": Uniform(0.0, 0.1)},
    "SaltAndPepper": {".numbers": [Uniform(0.01, 0.06), Uniform(0.4, 0.6)]},
    "ScaleJitter": {".scale": Uniform(0.5, 2.0)},
    "ShotNoise": {".numbers": Uniform(0.1, 0.3)},
    "SomeOf": BRANCHES | {".chosen": ELSEWHERE},
    "ThinPlateSpline": ELSEWHERE,
    "ThreeAugment": {".chosen": Choice(range(3)), ".drawn[2].params": Uniform(0.1, 2.0)},
    "TrivialAugmentWide": {".code": Choice(OPERATIONS), ".magnitude": ELSEWHERE},
    "UnsharpMask": {".sigma": Uniform(0.8, 1.4), ".amount": Uniform(0.2, 0.5)},
    "Vignetting": {
        ".intensity": Uniform(0.2, 0.5),
        ".x": Uniform(0.3, 0.7),
        ".y": Uniform(0.3, 0.7),
    },
    "XYMasking": ELSEWHERE,
}


@functools.cache
def draws(name):
    """Return what many keys draw with p = 1, and with p = 1/2 where there is a `p`."""
    info = augment.ImageInfo(input_canvas(name), None, BOXES, jnp.int32(3))
    transforms = [always(name)]
    if has_p(name):
        transforms.append(build(name, p=0.5))
    keys = jax.random.split(jax.random.key(3), COUNT)
    # Compiled as one: what both draw alike is computed once.
    return jax.device_get(
        jax.jit(jax.vmap(lambda key: [each.draw(key, info) for each in transforms]))(keys)
    )


def parameters(name):
    """Return {place: numbers [COUNT, columns]} of what differs between keys."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(draws(name)[0].params):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            continue
        columns = leaf.reshape(COUNT, -1)[:, :MAX_COLUMNS].astype(np.float64)
        if (columns != columns[0]).any():
            found[jax.tree_util.keystr(path)] = columns
    return found


def distributions(name, place, columns):
    """Return the distribution of each column; none for those that are compared elsewhere."""
    line = DRAWS[name]
    if line is ELSEWHERE:
        return []
    assert isinstance(line, dict)
    matching = [key for key in line if place.startswith(key)]
    assert matching, f"DRAWS[{name!r}] must say how {place!r} is distributed"
    wanted = line[matching[0]]
    if wanted is ELSEWHERE:
        return []
    return wanted if isinstance(wanted, list) else [wanted] * columns


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_distributed_as_said(name):
    found = parameters(name)
    assert not found or name in DRAWS, f"add a line for {name} to DRAWS"
    for place, columns in found.items():
        wanted = distributions(name, place, columns.shape[1])
        for values, distribution in zip(columns.T, wanted):
            if distribution is not None:
                assert distribution.pvalue(values) > MIN_PVALUE, place


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_drawn_in_loops(name):
    """A GPU waits for each turn of a loop, as those are that reject numbers."""
    info = augment.ImageInfo(input_canvas(name), None, BOXES, jnp.int32(3))
    traced = jax.jit(lambda key: always(name).draw(key, info)).trace(jax.random.key(0))
    assert "stablehlo.while" not in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("name", WITH_P)
def test_the_coin_says_nothing_about_the_parameters(name):
    if not CASES[name].one_coin:
        pytest.skip("it has several coins")
    full, half = draws(name)
    coin = half.applied
    if coin is None:  # the parameters tell: those that change nothing stand for the coin's no
        pairs = zip(jax.tree.leaves(full.params), jax.tree.leaves(half.params), strict=True)
        # Two programs, whose floats may differ by a rounding.
        kept = [np.isclose(a, b, rtol=1e-5).reshape(COUNT, -1).all(axis=1) for a, b in pairs]
        coin = np.all(kept, axis=0)
    assert scipy.stats.binomtest(int(coin.sum()), COUNT, 0.5).pvalue > MIN_PVALUE
    for columns in parameters(name).values():
        for values in columns.T:
            check_uncorrelated(coin, values)


def check_uncorrelated(coin, values):
    """The coin knows neither the number, nor its sign, nor its distance from the mean."""
    for feature in (values, np.sign(values), np.abs(values - values.mean())):
        if feature.std() > 1e-6:
            assert abs(np.corrcoef(coin, feature)[0, 1]) < MAX_CORRELATION
