"""Channels: the pure functions against numpy, colorsys and Planck's law."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.augment._ops import channels, lighting

IMAGE = np.random.default_rng(0).uniform(0, 1, (9, 13, 3)).astype(np.float32)
IMAGE[0, :6] = [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 1], [1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("center", [(0.5, 0.5), (0.3, 0.9), (0.0, 1.0)])
def test_vignette_falls_off_with_the_square_of_the_distance(center):
    image = np.random.default_rng(3).uniform(0, 1, (9, 14, 2)).astype(np.float32)
    middle = np.array([center[1] * 9, center[0] * 14])
    corners = np.array([[0, 0], [0, 14], [9, 0], [9, 14]])
    farthest = max(np.linalg.norm(corner - middle) for corner in corners)
    expected = image.astype(float)
    for row, column in np.ndindex(9, 14):
        distance = np.linalg.norm([row + 0.5, column + 0.5] - middle)
        expected[row, column] *= 1 - 0.7 * (distance / farthest) ** 2
    out = lighting.vignette(image, 0.7, center)
    np.testing.assert_allclose(out, expected, atol=1e-6)
    canvas = np.pad(image, ((0, 4), (0, 3), (0, 0)))
    on_canvas = lighting.vignette(canvas, 0.7, center, jnp.array([9, 14]))
    np.testing.assert_allclose(on_canvas[:9, :14], expected, atol=1e-6)


def test_permute_channels():
    for permutation in [(0, 1, 2), (2, 0, 1), (1, 0, 2)]:
        out = jax.jit(channels.permute_channels)(IMAGE, jnp.array(permutation))
        np.testing.assert_array_equal(out, IMAGE[:, :, permutation])
    with pytest.raises(ValueError, match="one entry for each of the 3 channels"):
        channels.permute_channels(IMAGE, [0, 1])


@pytest.mark.parametrize("permutation", [(3, 2, 1), (2, 1, -3), np.array([0, 1, 1])])
def test_what_is_no_permutation_is_refused(permutation):
    with pytest.raises(ValueError, match="each of 0 to 2 once"):
        channels.permute_channels(IMAGE, permutation)


def test_drop_channels():
    expected = IMAGE.copy()
    expected[:, :, [0, 2]] = 0.5
    np.testing.assert_array_equal(
        channels.drop_channels(IMAGE, [False, True, False], 0.5), expected
    )


def test_shift_rgb():
    out = channels.shift_rgb(IMAGE, 0.1, -0.2, 0.3)
    np.testing.assert_allclose(out, IMAGE.astype(float) + [0.1, -0.2, 0.3], atol=1e-6)


@pytest.mark.parametrize("hue", [-0.4, 0.0, 0.15, 1 / 3])
@pytest.mark.parametrize("saturation, value", [(0.0, 0.0), (0.3, -0.2), (-0.4, 0.5), (-1.0, 0.0)])
def test_shift_hsv_is_that_of_colorsys(hue, saturation, value):
    expected = np.empty(IMAGE.shape)
    for place in np.ndindex(IMAGE.shape[:2]):
        h, s, v = colorsys.rgb_to_hsv(*IMAGE[place].astype(float))
        expected[place] = colorsys.hsv_to_rgb(
            (h + hue) % 1.0, np.clip(s + saturation, 0, 1), np.clip(v + value, 0, 1)
        )
    out = jax.jit(channels.shift_hsv)(IMAGE, hue, saturation, value)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_shift_hsv_has_finite_gradients_on_gray_and_black():
    gradients = jax.grad(lambda x: channels.shift_hsv(x, 0.1, 0.2, 0.3).sum())(IMAGE)
    assert np.isfinite(gradients).all()


@pytest.mark.parametrize("turns", [-0.5, -0.1, 0.0, 0.25])
def test_hue_of_yiq_turns_the_chroma(turns):
    to_yiq = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
    luma, i, q = np.moveaxis(IMAGE.astype(float) @ to_yiq.T, 2, 0)
    turned = (i + 1j * q) * np.exp(-2j * np.pi * turns)
    yiq = np.stack([luma, turned.real, turned.imag], axis=2)
    expected = np.linalg.solve(to_yiq, yiq[..., None])[..., 0]
    np.testing.assert_allclose(channels.adjust_hue_yiq(IMAGE, turns), expected, atol=1e-5)


def test_hue_of_yiq_takes_red_towards_yellow():
    _, green, blue = channels.adjust_hue_yiq(jnp.array([[[1.0, 0.0, 0.0]]]), 0.1)[0, 0]
    assert green > 0.1 > blue


def black_body(temperature):
    """Red and blue beside green of Planck's law, by Wyman's fit of the CIE 1931 observer."""
    wave = np.arange(360.0, 831.0)
    power = wave**-5 / np.expm1(1.438777e7 / (wave * temperature))

    def bell(center, left, right):
        return np.exp(-0.5 * ((wave - center) * np.where(wave < center, left, right)) ** 2)

    x = 0.362 * bell(442.0, 0.0624, 0.0374) + 1.056 * bell(599.8, 0.0264, 0.0323)
    x -= 0.065 * bell(501.1, 0.0490, 0.0382)
    y = 0.821 * bell(568.8, 0.0213, 0.0247) + 0.286 * bell(530.9, 0.0613, 0.0322)
    z = 1.217 * bell(437.0, 0.0845, 0.0278) + 0.681 * bell(459.0, 0.0385, 0.0725)
    to_rgb = [[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.204, 1.057]]
    red, green, blue = np.array(to_rgb) @ [(curve * power).sum() for curve in (x, y, z)]
    return red / green, blue / green


@pytest.mark.parametrize("temperature", [2500.0, 3000.0, 4000.0, 6500.0, 9000.0, 15000.0])
def test_temperature_follows_plancks_law(temperature):
    red, blue = np.array(black_body(temperature)) / black_body(6500.0)
    out = lighting.adjust_temperature(np.ones((1, 1, 3), np.float32), temperature)[0, 0]
    expected = [red ** (1 / 2.2), 1.0, blue ** (1 / 2.2)]
    np.testing.assert_allclose(out, expected, rtol=0.02)


def test_daylight_leaves_the_image():
    np.testing.assert_allclose(lighting.adjust_temperature(IMAGE, 6500.0), IMAGE, atol=1e-6)


def test_pca_lighting():
    alpha = np.array([0.1, -0.2, 0.3])
    vectors = [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.814], [-0.5836, -0.6948, 0.4203]]
    expected = IMAGE + np.array(vectors) @ (alpha * [0.2175, 0.0188, 0.0045])
    np.testing.assert_allclose(lighting.pca_lighting(IMAGE, alpha), expected, atol=1e-6)
    np.testing.assert_allclose(np.array(vectors).T @ vectors, np.eye(3), atol=2e-3)


OPERATORS = {
    "permute_channels": lambda image: channels.permute_channels(image, [1, 2, 0]),
    "drop_channels": lambda image: channels.drop_channels(image, [True, False, True]),
    "shift_rgb": lambda image: channels.shift_rgb(image, 0.1, 0.0, jnp.float32(0.2)),
    "shift_hsv": lambda image: channels.shift_hsv(image, 0.1, 0.2, jnp.float32(-0.2)),
    "adjust_hue_yiq": lambda image: channels.adjust_hue_yiq(image, jnp.float32(0.2)),
    "adjust_temperature": lambda image: lighting.adjust_temperature(image, jnp.float32(4000)),
    "pca_lighting": lambda image: lighting.pca_lighting(image, [0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_x64_batches_and_dtypes(name):
    operator = jax.jit(jax.vmap(OPERATORS[name]))
    images = jnp.stack([IMAGE, IMAGE[::-1], IMAGE[:, ::-1], 1 - IMAGE])
    whole = operator(images)
    np.testing.assert_array_equal(whole[:2], operator(images[:2]))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(jax.vmap(OPERATORS[name]))(images), whole)
    assert operator(images.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", ["shift_hsv", "pca_lighting"])
def test_color_needs_three_channels(name):
    with pytest.raises(TypeError, match=rf"`{name}` needs three channels.* got \[4, 5, 1\]"):
        OPERATORS[name](jnp.zeros((4, 5, 1)))
