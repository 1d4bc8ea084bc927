"""Light and weather against NumPy in float64, OpenCV's HLS, and laws of the clouds."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import functional
from jaxaug.augment._ops.weather import _NOISE, cloud
from tests.images import picture

KEY = jax.random.key(0)
IMAGE = picture(0, 12, 17).astype(np.float32) / 255
Y = ((np.arange(12) + 0.5) / 12)[:, None, None]
X = ((np.arange(17) + 0.5) / 17)[None, :, None]


def snowy(image, point, factor):
    """Python's HLS, pixel by pixel."""
    out = np.zeros(image.shape)
    for place in np.ndindex(image.shape[:2]):
        hue, lightness, saturation = colorsys.rgb_to_hls(*image[place].astype(float))
        if lightness < point / 2 + 1 / 3:
            lightness = min(lightness * factor, 1)
        out[place] = colorsys.hls_to_rgb(hue, lightness, saturation)
    return out


def bilinear(nodes, y, x):
    """A grid from edge to edge, in float64."""
    last = len(nodes) - 1
    row, column = (np.minimum(np.floor(v * last).astype(int), last - 1) for v in (y, x))
    a, b = y * last - row, x * last - column
    upper = nodes[row, column] * (1 - b) + nodes[row, column + 1] * b
    lower = nodes[row + 1, column] * (1 - b) + nodes[row + 1, column + 1] * b
    return upper * (1 - a) + lower * a


SEPIA = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
NODES = np.random.default_rng(0).uniform(size=(5, 5)).astype(np.float32)
DENSE = bilinear(
    NODES.astype(float), np.broadcast_to(Y, (12, 17, 1)), np.broadcast_to(X, (12, 17, 1))
)
SPOT = np.exp(-(((Y - 0.3) * 12 / 17) ** 2 + (X - 0.6) ** 2) / (2 * 0.25**2))
COS, SIN = np.cos(np.deg2rad(30)), np.sin(np.deg2rad(30))
GRADIENT = ((X - 0.5) * COS - (Y - 0.5) * SIN) / (COS + SIN) + 0.5
THROUGH = np.exp(-1.5 * (1 - Y))
COLOR = np.array([0.7, 0.8, 0.9])
CASES = {
    "sepia": ((), IMAGE @ SEPIA.T),
    "snow": ((0.4, 2.5), snowy(IMAGE, 0.4, 2.5)),
    "linear_illumination": ((-0.3, 30.0), IMAGE - 0.3 * GRADIENT),
    "gaussian_illumination": ((0.4, (0.6, 0.3), 0.25), IMAGE * (1 + 0.4 * SPOT)),
    "fog": ((1.5, tuple(COLOR)), IMAGE * THROUGH + COLOR * (1 - THROUGH)),
    "plasma_light": (
        (NODES, 0.2, -0.3),
        0.5 + (IMAGE + 0.2 * DENSE - 0.5) * (1 - 0.3 * DENSE),
    ),
    "film_grain": (
        (DENSE[:, :, 0].astype(np.float32), 0.2),
        IMAGE + 0.2 * (1 - IMAGE.mean(axis=2, keepdims=True)) * DENSE,
    ),
}


def test_values_are_those_of_numpy():
    run = jax.jit(lambda: {n: getattr(functional, n)(IMAGE, *a) for n, (a, _) in CASES.items()})
    for name, out in jax.device_get(run()).items():
        np.testing.assert_allclose(out, CASES[name][1], atol=2e-5, err_msg=name)


def test_a_cloud_fills_its_range_and_gets_rougher():
    numbers = jax.random.uniform(KEY, (20, _NOISE), jnp.float32)
    run = jax.jit(jax.vmap(cloud, (0, None)))
    smooth, rough = (np.asarray(run(numbers, share)) for share in (0.1, 0.7))
    assert smooth.shape == (20, 33, 33)
    for field in (smooth, rough):
        np.testing.assert_allclose(
            [field.min(axis=(1, 2)), field.max(axis=(1, 2))], [[0] * 20, [1] * 20]
        )
    steps = [np.abs(np.diff(field, axis=1)).mean() for field in (smooth, rough)]
    assert steps[1] > 2 * steps[0]


def test_an_illumination_brightens_or_darkens():
    gray = np.full((8, 9, 3), 0.5, np.float32)
    for effect, low, high in [("brighten", 0.5, 1), ("darken", 0, 0.5)]:
        light = A.Illumination("gaussian", (0.5, 0.5), effect, p=1.0)
        out = jax.jit(light)(KEY, gray)
        assert low <= out.min() and out.max() <= high and np.ptp(np.asarray(out)) > 0.01
    with pytest.raises(ValueError, match="`mode` must be one of 'linear', 'gaussian'"):
        A.Illumination("corner")


def test_no_key_is_read_twice():
    chain = A.Compose([A.FilmGrain(p=1.0), A.PlasmaShadow(p=1.0)])
    with jax.debug_key_reuse(True):
        assert jax.jit(chain)(jax.random.key(1), IMAGE).shape == IMAGE.shape
