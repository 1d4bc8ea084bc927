"""The laws of `test_contract`, of images of 16 bits, of floats, and of any number of channels.

One representative of each family runs here; all of them, of all dtypes and channels, are slow.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from tests.test_contract import (
    CASES,
    EXPORTED,
    KEYS,
    OTHER_KEYS,
    ROWS,
    always,
    build,
    has_p,
    input_canvas,
    output_canvas,
)

# With a number for each of three channels, or three colors inside.
OF_THREE = {"Compose", "Normalize", "OneOf", "RandomApply", "RandomChoice", "RandomOrder", "SomeOf"}
OF_THREE |= {"ByEpoch", "ThreeAugment"}
COLORS_OF = {"Colorize": ("black", "white"), "RandomErasing": ("mean", "std")}
NEEDS_BOXES = {"ConstrainedCoarseDropout", "RandomIoUCrop", "SanitizeBoxes"}
# They compare floats at 8 bits and uint16 at 16.
STEPPED = {
    "CLAHE",
    "Halftone",
    "RandomAutocontrast",
    "RandomPosterize",
    "RandomSolarize",
    "Superpixels",
}
# Levels that a rounding is worth: the angle of a wave, up to 60, may be one of 4e-6 off, and each
# of two has an amplitude of up to 0.5.
AMPLIFIED = {"KSpaceSpikeNoise": 0.25}
REPRESENTATIVE = {
    "uint16": ("CLAHE", "GaussianNoise", "RandomPosterize", "RandomRotation"),
    "float32": ("CoarseDropout", "GaussianBlur", "RandomGamma", "RandomResizedCrop"),
}
QUICK = {"uint16": 4, "float32": 13}
TOP = {"uint16": 65535, "float32": 1.0}


def takes(name, dtype, channels):
    kind = getattr(augment, name)
    deep = dtype == "uint16" and kind.eight_bits
    few = channels == 1 and name in ("ChannelDropout", "RandomChannelPermutation")
    return not deep and not few and name not in NEEDS_BOXES and kind.channels in (None, channels)


def combinations():
    found = []
    for name, dtype, channels in itertools.product(EXPORTED, TOP, (1, 2, 4, 13)):
        if name in OF_THREE or not takes(name, dtype, channels):
            continue
        quick = channels == QUICK[dtype] and name in REPRESENTATIVE[dtype]
        marks = () if quick else pytest.mark.slow
        found.append(pytest.param(name, dtype, channels, marks=marks))
    return found


def samples(name, dtype, channels, rest=0):
    """Eight images of several sizes; of uint16 most levels are no multiple of 257."""
    rng = np.random.default_rng(channels)
    sizes = np.array(
        [[16, 20], [12, 20], [1, 1], [13, 14], [15, 19], [16, 16], [1, 9], [14, 12]], np.int32
    )
    pixels = np.full((ROWS, *input_canvas(name), channels), rest * TOP[dtype], dtype)
    for row, (height, width) in enumerate(sizes):
        values = rng.random((height, width, channels)) * 0.7 + 0.15
        pixels[row, :height, :width] = (values * TOP[dtype]).astype(dtype)
    sample = {"image": jnp.asarray(pixels), "size": jnp.asarray(sizes)}
    if CASES[name].mask:
        sample["mask"] = jnp.asarray(rng.integers(0, 7, pixels.shape[:3], np.uint8))
    return sample


def of_channels(name, channels):
    """Return the arguments of a case that have numbers for each channel, as many as images have."""
    colors = COLORS_OF.get(name, ())
    taken = {}
    for key, value in CASES[name].arguments.items():
        if key in ("references", "elements"):
            count = channels + (key == "elements")  # with its opacity behind its colors
            taken[key] = np.asarray(value)[..., np.arange(count) % 3]
        elif key in colors:
            taken[key] = tuple(value[channel % 3] for channel in range(channels))
    return taken


@functools.cache
def run_of(name, channels):
    """Return the compiled laws: a call, a replay, a call that never applies, one of floats."""
    given = of_channels(name, channels)
    chain = augment.Compose([build(name, **given, **({"p": 1.0} if has_p(name) else {}))])
    never = augment.Compose([build(name, **given, p=0.0)]) if has_p(name) else None

    def laws(key, sample):
        image = sample["image"]
        values = image.astype(jnp.float32) / (65535 if image.dtype == jnp.uint16 else 1)
        return {
            "called": chain(key, sample),
            "replayed": chain.apply(chain.make_params(key, sample), sample),
            "never": None if never is None else never(key, sample)["image"],
            "of_floats": chain(key, {**sample, "image": values})["image"],
        }

    return jax.jit(jax.vmap(laws))


@pytest.mark.parametrize("name, dtype, channels", combinations())
def test_laws_of_deep_images(name, dtype, channels):
    given = samples(name, dtype, channels)
    run = run_of(name, channels)
    out = jax.device_get(run(KEYS, given))
    image = out["called"]["image"]
    output = issubclass(getattr(augment, name), augment.Output)
    assert image.dtype == ("float32" if output else dtype)
    assert image.shape == (ROWS, *output_canvas(name), channels)

    jax.tree.map(np.testing.assert_array_equal, out["replayed"], out["called"])
    if out["never"] is not None:
        kept = np.asarray(given["image"])
        height, width = np.minimum(kept.shape[1:3], out["never"].shape[1:3])
        np.testing.assert_array_equal(out["never"][:, :height, :width], kept[:, :height, :width])
        assert (image[:, :height, :width] != kept[:, :height, :width]).any()
    if dtype == "uint16" and name not in STEPPED:
        # 16 bits are rounded once, at the end: half a level, and what floats are off by.
        expected = np.clip(out["of_floats"], 0, 1) * (1 if output else TOP[dtype])
        off = 0.51 + AMPLIFIED.get(name, 0)
        np.testing.assert_allclose(image, expected, rtol=0, atol=1e-6 if output else off)

    other = jax.device_get(run(OTHER_KEYS, given))["called"]["image"]
    # So few pixels in 65536 levels leave CLAHE the least limit, one pixel.
    random = CASES[name].random and (name, dtype) != ("CLAHE", "uint16")
    assert np.array_equal(other, image) == (not random)
    backwards = jax.tree.map(lambda leaf: leaf[::-1], (KEYS, given))
    np.testing.assert_array_equal(run(*backwards)["called"]["image"][::-1], image)
    if CASES[name].local:
        beside = run(KEYS, samples(name, dtype, channels, rest=1))
        np.testing.assert_array_equal(beside["called"]["image"], image)


def test_all_levels_of_16_bits_come_back():
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    twice = augment.Compose([augment.RandomInvert(1.0), augment.RandomInvert(1.0)])
    for chain in (twice, augment.RandomGamma((1.0, 1.0), p=1.0)):
        np.testing.assert_array_equal(jax.jit(chain)(KEYS[0], levels), levels)
    np.testing.assert_array_equal(augment.RandomInvert(1.0)(KEYS[0], levels), 65535 - levels)


def test_steps_of_16_bits_are_those_of_integers():
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    for bits in (0, 3, 8):
        cut = (levels >> (16 - bits)) << (16 - bits)
        np.testing.assert_array_equal(augment.RandomPosterize(bits, p=1.0)(KEYS[0], levels), cut)
    flipped = np.where(levels >= 30000, 65535 - levels, levels)
    solarize = augment.RandomSolarize(30000 / 65535, p=1.0)
    np.testing.assert_array_equal(solarize(KEYS[0], levels), flipped)

    narrow = np.clip(levels, 20000, 50001)
    stretched = (narrow - np.float64(20000)) * 65535 / 30001
    out = augment.RandomAutocontrast(p=1.0)(KEYS[0], narrow)
    np.testing.assert_allclose(out, stretched, rtol=0, atol=0.51)


def test_dots_of_16_bits_have_means_of_65536_levels():
    """As in float64, where the nearest levels of 8 bits would be up to 128 off."""
    image = np.random.default_rng(0).integers(0, 65536, (8, 12, 2)).astype(np.uint16)
    out = augment.Halftone((4, 4), (0.0, 0.0), p=1.0)(KEYS[0], image)
    means = image.astype(np.float64).reshape(2, 4, 3, 4, 2).mean((1, 3)) / 65535
    color = means.repeat(4, 0).repeat(4, 1)
    place = np.arange(12) % 4 - 1.5
    distance = np.hypot(place[:8, None], place[None])
    radius = np.maximum(color.mean(2) * 2, 1)
    dots = np.clip(radius - distance + 0.5, 0, 1)[:, :, None] * color
    np.testing.assert_allclose(out, dots * 65535, rtol=0, atol=0.51)


def test_flat_cells_of_16_bits_have_means_of_65536_levels():
    image = np.random.default_rng(0).integers(0, 65536, (8, 12, 2)).astype(np.uint16)
    one = augment.Superpixels(p_replace=(1.0, 1.0), segments=1, p=1.0)
    means = np.broadcast_to(image.astype(np.float64).mean((0, 1)), image.shape)
    np.testing.assert_allclose(one(KEYS[0], image), means, rtol=0, atol=0.51)


def test_clahe_of_16_bits_is_that_of_opencv():
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(0).normal(30000, 3000, (64, 48, 1)).astype(np.uint16)
    expected = cv2.createCLAHE(4, (4, 4)).apply(image[:, :, 0])
    out = np.asarray(augment.CLAHE((4, 4), (4, 4), p=1.0)(KEYS[0], image))[:, :, 0]
    assert np.abs(out.astype(int) - expected).max() <= 1


def test_clahe_of_16_bits_takes_bounded_memory():
    """Its 64 curves of 65,536 levels are those of one channel at a time, in 16 bits: 8.4 MB."""
    clahe = augment.CLAHE(p=1.0)
    for channels in (1, 4):
        image = jax.ShapeDtypeStruct((64, 64, channels), jnp.uint16)
        memory = jax.jit(clahe).lower(KEYS[0], image).compile().memory_analysis()
        assert memory.temp_size_in_bytes < 20e6


@pytest.mark.parametrize("name", ["JPEG", "LookupTable", "RandAugment", "RandomEqualize"])
def test_what_has_256_levels_refuses_16_bits(name):
    with pytest.raises(ValueError, match=f"{name} is defined on 256 levels, got .* uint16"):
        jax.eval_shape(always(name), KEYS[0], jnp.zeros((16, 20, 3), jnp.uint16))


def test_channels_that_cannot_be_are_told_at_construction():
    jitter = augment.ColorJitter(0.2)
    bands = augment.Normalize([0.5] * 13, [0.2] * 13)
    with pytest.raises(
        ValueError, match="ColorJitter needs images of 3 channels, and Normalize be"
    ):
        augment.Compose([augment.RandomHorizontalFlip(), jitter, bands])
    four = np.zeros((1, 5, 6, 4), np.uint8)
    for of_four in (augment.HistogramMatching, augment.PixelDistributionAdaptation, augment.FDA):
        with pytest.raises(ValueError, match=f"3 channels, and {of_four.__name__} behind it of 4"):
            augment.Compose([jitter, of_four(four)])
    with pytest.raises(ValueError, match=r"OverlayElements needs .* 3 .* Normalize .* of 13"):
        augment.Compose([augment.OverlayElements(four), bands])
    augment.Compose([jitter, augment.Lambda(lambda key, image: image), bands])
    augment.Compose([jitter, augment.Normalize(0.5, 0.2)])


def test_mixes_keep_16_bits():
    images = np.random.default_rng(0).integers(0, 65536, (2, 8, 9, 4)).astype(np.uint16)
    group = {"image": jnp.asarray(images), "label": jnp.arange(2, dtype=jnp.int32)}
    out = jax.jit(augment.MixUp(num_classes=2))(KEYS[0], group)
    weight = np.asarray(out["label"], np.float64)[:, [0]].reshape(2, 1, 1, 1)
    expected = weight * images[0] + (1 - weight) * images[1]
    assert out["image"].dtype == np.uint16
    np.testing.assert_allclose(out["image"], expected, rtol=0, atol=0.52)
    four = jnp.asarray(np.concatenate([images, images]))
    fill = jax.jit(augment.Mosaic((30, 30), fill=1.0))(KEYS[0], {"image": four})["image"]
    assert fill.dtype == np.uint16 and fill.max() == 65535


def test_noise_of_bands_has_a_deviation_of_each():
    noise = augment.GaussianNoise(0.5, (0.0, 0.1), clip=False, per_channel=True)
    image = jnp.zeros((64, 64, 5))
    params = noise.make_params(KEYS[0], augment.ImageInfo((64, 64), channels=5))
    out = np.asarray(noise.apply(params, image, augment.ImageInfo((64, 64))))
    assert len(set(np.asarray(params.numbers).tolist())) == 5
    np.testing.assert_allclose(out.std(axis=(0, 1)), params.numbers, rtol=0.1)


def test_rician_noise_has_the_moments_of_its_distribution():
    stats = pytest.importorskip("scipy.stats")
    image = jnp.full((128, 128, 1), 0.2)
    out = augment.functional.rician_noise(image, KEYS[0], 0.1)
    assert stats.kstest(np.asarray(out).ravel(), stats.rice(2.0, scale=0.1).cdf).pvalue > 1e-4


def test_bands_that_drop_out_are_as_many_as_were_asked_for():
    drop = augment.ChannelDropout((2, 4), p=1.0)
    image = jnp.full((5, 5, 13), 60_000, jnp.uint16)
    out = jax.jit(jax.vmap(drop, (0, None)))(jax.random.split(KEYS[0], 300), image)
    dropped = np.asarray(out == 0)[:, 0, 0].sum(axis=1)
    assert set(dropped.tolist()) == {2, 3, 4}
    with pytest.raises(ValueError, match="must end at the 2 channels"):
        jax.eval_shape(drop, KEYS[0], image[:, :, :2])
