"""Tone: the pure functions against Pillow, OpenCV and formulas in float64."""

from itertools import pairwise

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageOps

from jaxaug.augment._ops import histogram, tone

RNG = np.random.default_rng(0)
RAMP = np.arange(256, dtype=np.uint8).reshape(8, 32, 1).repeat(3, 2)
NOISE = RNG.integers(0, 256, (21, 30, 3), dtype=np.uint8)
DARK = (RNG.beta(2, 6, (37, 41, 3)) * 255).astype(np.uint8)
FLAT = np.full((5, 7, 3), (0, 90, 255), np.uint8)
PICTURES = {"ramp": RAMP, "noise": NOISE, "dark": DARK, "flat": FLAT}
pictures = pytest.mark.parametrize("name", PICTURES)


def floats(pixels):
    return jnp.asarray(pixels, jnp.float32) / 255


def pixels(image):
    return np.asarray(jnp.round(jnp.clip(image, 0, 1) * 255).astype(jnp.uint8))


def canvas_of(picture, height=48, width=50, rest=255):
    canvas = np.full((height, width, picture.shape[2]), rest, np.uint8)
    canvas[: picture.shape[0], : picture.shape[1]] = picture
    return canvas


@pictures
@pytest.mark.parametrize("bits", range(1, 9))
def test_posterize_is_that_of_pillow(name, bits):
    expected = np.asarray(ImageOps.posterize(Image.fromarray(PICTURES[name]), bits))
    out = jax.jit(tone.posterize)(floats(PICTURES[name]), bits)
    np.testing.assert_array_equal(pixels(out), expected)


@pictures
@pytest.mark.parametrize("threshold", [0, 1, 77, 127.5, 128, 246.5, 255, 256])
def test_solarize_is_that_of_pillow(name, threshold):
    expected = np.asarray(ImageOps.solarize(Image.fromarray(PICTURES[name]), threshold))
    out = jax.jit(tone.solarize)(floats(PICTURES[name]), threshold / 255)
    np.testing.assert_array_equal(pixels(out), expected)


@pictures
def test_invert_is_that_of_pillow(name):
    expected = np.asarray(ImageOps.invert(Image.fromarray(PICTURES[name])))
    np.testing.assert_array_equal(pixels(tone.invert(floats(PICTURES[name]))), expected)


@pictures
def test_equalize_is_that_of_pillow(name):
    expected = np.asarray(ImageOps.equalize(Image.fromarray(PICTURES[name])))
    np.testing.assert_array_equal(
        pixels(jax.jit(histogram.equalize)(floats(PICTURES[name]))), expected
    )


@pictures
def test_autocontrast_is_that_of_pillow(name):
    expected = np.asarray(ImageOps.autocontrast(Image.fromarray(PICTURES[name])), int)
    out = pixels(jax.jit(histogram.autocontrast)(floats(PICTURES[name]))).astype(int)
    assert np.abs(out - expected).max() <= 1  # Pillow cuts off the fraction


def test_autocontrast_is_the_formula():
    low = DARK.min((0, 1)).astype(float)
    high = DARK.max((0, 1)).astype(float)
    expected = (DARK - low) / (high - low)
    np.testing.assert_allclose(histogram.autocontrast(floats(DARK)), expected, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.4, 1.0, 2.2])
@pytest.mark.parametrize("gain", [1.0, 1.3])
def test_gamma(gamma, gain):
    expected = gain * (NOISE / 255.0) ** gamma
    np.testing.assert_allclose(tone.adjust_gamma(floats(NOISE), gamma, gain), expected, atol=1e-5)


def test_gamma_has_a_finite_gradient_at_black():
    gradient = jax.grad(lambda x: tone.adjust_gamma(x, 0.4).sum())(jnp.zeros((1, 2, 3)))
    assert np.isfinite(gradient).all()


def test_lookup_table():
    table = RNG.uniform(0, 1, 256)
    np.testing.assert_allclose(tone.lookup_table(floats(NOISE), table), table[NOISE], atol=1e-6)
    tables = RNG.uniform(0, 1, (3, 256))
    expected = np.stack([tables[c][NOISE[:, :, c]] for c in range(3)], axis=2)
    np.testing.assert_allclose(tone.lookup_table(floats(NOISE), tables), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"`table` must have the shape \(256,\) or \(3, 256\)"):
        tone.lookup_table(floats(NOISE), table[:9])


@pytest.mark.parametrize("low, high", [(0.1, 0.7), (1 / 3, 2 / 3), (0.5, 0.5)])
def test_tone_curve_is_a_bezier_curve(low, high):
    """By de Casteljau's construction."""
    x = NOISE / 255.0
    points = [np.zeros_like(x), np.full_like(x, low), np.full_like(x, high), np.ones_like(x)]
    while len(points) > 1:
        points = [(1 - x) * a + x * b for a, b in pairwise(points)]
    np.testing.assert_allclose(tone.tone_curve(floats(NOISE), low, high), points[0], atol=1e-5)


def test_tone_curve_of_each_channel():
    low = jnp.array([0.1, 0.2, 0.3])
    high = jnp.array([0.7, 0.8, 0.9])
    out = tone.tone_curve(floats(NOISE), low, high)
    for channel in range(3):
        alone = tone.tone_curve(floats(NOISE), low[channel], high[channel])
        np.testing.assert_array_equal(out[:, :, channel], alone[:, :, channel])


@pytest.mark.parametrize("channels", [1, 4])
def test_curves_of_other_channels_than_the_image_has_are_refused(channels):
    with pytest.raises(ValueError, match=rf"`low_y` must be .* channel of .*{channels}\), got 3"):
        tone.tone_curve(np.zeros((4, 5, channels), np.float32), np.zeros(3), 0.5)


clahe = jax.jit(histogram.clahe, static_argnums=2)  # op by op each one would be compiled alone


@pytest.mark.parametrize("tiles", [(8, 8), (2, 3), (1, 1)])
@pytest.mark.parametrize("clip_limit", [1.0, 2.5, 40.0])
@pytest.mark.parametrize("shape", [(48, 64), (37, 41), (40, 45)])
def test_clahe_is_that_of_opencv(tiles, clip_limit, shape):
    picture = (np.random.default_rng(3).beta(2, 6, (*shape, 2)) * 255).astype(np.uint8)
    picture[: shape[0] // 2] //= 2
    opencv = cv2.createCLAHE(clip_limit, tiles[::-1])
    expected = np.stack([opencv.apply(picture[:, :, c].copy()) for c in range(2)], axis=2)
    out = pixels(clahe(floats(picture), clip_limit, tiles))
    assert np.abs(out.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("tiles", [(3, 4), (8, 8)])
@pytest.mark.parametrize("shape", [(35, 2), (1, 1), (3, 5)])
def test_clahe_of_tiles_thinner_than_a_pixel(tiles, shape):
    """OpenCV extends the image until each has one."""
    picture = np.random.default_rng(4).integers(0, 256, (*shape, 1)).astype(np.uint8)
    expected = cv2.createCLAHE(1.15, tiles[::-1]).apply(picture[:, :, 0].copy())
    values = clahe(floats(picture), 1.15, tiles)
    assert 0 <= values.min() and values.max() <= 1
    assert np.abs(pixels(values)[:, :, 0].astype(int) - expected).max() <= 1


OPERATORS = {
    "posterize": lambda image, size: tone.posterize(image, 3),
    "solarize": lambda image, size: tone.solarize(image, 0.5),
    "invert": lambda image, size: tone.invert(image),
    "equalize": lambda image, size: histogram.equalize(image, size),
    "autocontrast": lambda image, size: histogram.autocontrast(image, size),
    "adjust_gamma": lambda image, size: tone.adjust_gamma(image, 0.7),
    "lookup_table": lambda image, size: tone.lookup_table(image, np.arange(255, -1, -1) / 255),
    "tone_curve": lambda image, size: tone.tone_curve(image, 0.2, 0.8),
    "clahe": lambda image, size: histogram.clahe(image, 3.0, (3, 4), size),
}
operators = pytest.mark.parametrize("name", OPERATORS)


@operators
def test_the_rest_of_a_canvas_counts_for_nothing(name):
    operator = jax.jit(OPERATORS[name])
    size = jnp.array(DARK.shape[:2], jnp.int32)
    expected = operator(floats(DARK), size)
    for rest in (0, 255):
        out = operator(floats(canvas_of(DARK, rest=rest)), size)[: DARK.shape[0], : DARK.shape[1]]
        np.testing.assert_allclose(out, expected, atol=1e-6)


@operators
def test_x64_batches_and_dtypes(name):
    operator = jax.jit(jax.vmap(OPERATORS[name]))
    image = floats(np.stack([canvas_of(NOISE), canvas_of(DARK), canvas_of(RAMP)] * 2))
    size = jnp.array([[21, 30], [37, 41], [8, 32]] * 2, jnp.int32)
    whole = operator(image, size)
    np.testing.assert_array_equal(whole[:3], operator(image[:3], size[:3]))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(jax.vmap(OPERATORS[name]))(image, size), whole)
    half = operator(image.astype(jnp.bfloat16), size)
    assert half.dtype == jnp.bfloat16
    again = operator(image.astype(jnp.bfloat16).astype(jnp.float32), size)
    np.testing.assert_array_equal(half, again.astype(jnp.bfloat16))
