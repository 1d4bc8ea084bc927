"""Noise: the distributions of scipy.stats, by moments and by the test of Kolmogorov and Smirnov."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxaug.augment._ops import noise

KEY = jax.random.key(3)
IMAGE = np.random.default_rng(0).uniform(0, 1, (21, 30, 3)).astype(np.float32)


def flat(value, channels=1):
    return jnp.full((100, 200, channels), value, jnp.float32)


def jittered(counts, seed=0):
    """Whole numbers made continuous, for a test that knows no ties."""
    return counts + np.random.default_rng(seed).uniform(0, 1, counts.shape)


def same(a, b):
    assert scipy.stats.ks_2samp(a.ravel(), b.ravel()).pvalue > 1e-4


def test_gaussian_noise():
    out = np.asarray(noise.gaussian_noise(flat(0.4), KEY, 0.1, 0.2), float).ravel()
    assert scipy.stats.kstest(out, scipy.stats.norm(0.5, 0.2).cdf).pvalue > 1e-4
    out = noise.gaussian_noise(flat(0.4, 3), KEY)
    assert np.abs(np.corrcoef(out.reshape(-1, 3).T) - np.eye(3)).max() < 0.03
    np.testing.assert_array_equal(noise.gaussian_noise(IMAGE, KEY, 0.0, 0.0), IMAGE)


@pytest.mark.parametrize("photons", [0.3, 4.0, 11.9, 12.1, 31.0, 500.0])
def test_shot_noise(photons):
    value = np.float32(0.8)
    scale = value / photons
    out = np.asarray(jax.jit(noise.shot_noise)(flat(value), KEY, scale), float) / scale
    counts = np.round(out).ravel()
    np.testing.assert_allclose(out.ravel(), counts, atol=2e-3)
    assert abs(counts.mean() / photons - 1) < 5 / np.sqrt(photons * counts.size)
    assert abs(counts.var() / photons - 1) < 5 * np.sqrt((2 + 1 / photons) / counts.size)
    expected = scipy.stats.poisson(photons).rvs(counts.size, random_state=1)
    same(jittered(counts), jittered(expected, 1))


def test_shot_noise_of_black_and_its_gradient():
    np.testing.assert_array_equal(noise.shot_noise(flat(0.0), KEY, 0.1), flat(0.0))
    gradients = jax.grad(lambda x: noise.shot_noise(x, KEY, 0.1).sum())(jnp.asarray(IMAGE))
    np.testing.assert_array_equal(gradients, np.ones_like(IMAGE))


def test_salt_and_pepper():
    out = np.asarray(jax.jit(noise.salt_and_pepper)(flat(0.4, 3), KEY, 0.3, 0.25))
    assert (out == out[:, :, :1]).all()
    share = [(out[:, :, 0] == value).mean() for value in (1, 0, np.float32(0.4))]
    np.testing.assert_allclose(share, [0.075, 0.225, 0.7], atol=0.015)
    np.testing.assert_array_equal(noise.salt_and_pepper(IMAGE, KEY, 0.0), IMAGE)


@pytest.mark.parametrize("per_channel", [False, True])
def test_multiplicative_noise(per_channel):
    out = np.asarray(noise.multiplicative_noise(flat(0.5, 3), KEY, 0.8, 1.4, per_channel), float)
    factors = out[:, :, 1].ravel() / 0.5
    assert scipy.stats.kstest(factors, scipy.stats.uniform(0.8, 0.6).cdf).pvalue > 1e-4
    assert (out == out[:, :, :1]).all() != per_channel


def test_iso_noise_draws_hue_and_lightness():
    height, width = 100, 200
    image = np.empty((height, width, 3), np.float32)
    image[:, ::2] = (0.2, 0.3, 0.6)
    image[:, 1::2] = (0.9, 0.7, 0.5)
    out = np.asarray(jax.jit(noise.iso_noise)(image, KEY, 0.04, 0.5), float)
    before = np.array([colorsys.rgb_to_hls(*pixel) for pixel in image[0, :2].astype(float)])
    after = np.array([colorsys.rgb_to_hls(*pixel) for pixel in out[:, ::2].reshape(-1, 3)])
    turns = (after[:, 0] - before[0, 0] + 0.5) % 1 - 0.5
    assert scipy.stats.kstest(turns, scipy.stats.norm(0, 0.02).cdf).pvalue > 1e-4
    deviation = np.std([before[0, 1], before[1, 1]]) * 255
    counts = (after[:, 1] - before[0, 1]) / (1 - before[0, 1]) * 255
    np.testing.assert_allclose(counts, np.round(counts), atol=2e-3)
    expected = scipy.stats.poisson(0.5 * deviation).rvs(counts.size, random_state=1)
    same(jittered(np.round(counts)), jittered(expected, 1))
    np.testing.assert_allclose(after[:, 2], before[0, 2], atol=1e-4)
    assert abs(np.corrcoef(turns, counts)[0, 1]) < 0.03


def test_iso_noise_of_no_intensity_is_the_image():
    np.testing.assert_allclose(noise.iso_noise(IMAGE, KEY, 0.5, 0.0), IMAGE, atol=1e-6)


def test_iso_noise_takes_the_used_part():
    canvas = np.ones((40, 41, 3), np.float32)
    canvas[:21, :30] = IMAGE * 0.1
    rest = canvas.copy()
    rest[21:] = rest[:, 30:] = 0
    size = jnp.array([21, 30], jnp.int32)
    out = noise.iso_noise(canvas, KEY, 0.05, 0.5, size)[:21, :30]
    np.testing.assert_array_equal(out, noise.iso_noise(rest, KEY, 0.05, 0.5, size)[:21, :30])


OPERATORS = {
    "gaussian_noise": lambda key, image: noise.gaussian_noise(image, key),
    "shot_noise": lambda key, image: noise.shot_noise(image, key, 0.05),
    "salt_and_pepper": lambda key, image: noise.salt_and_pepper(image, key, 0.1),
    "multiplicative_noise": lambda key, image: noise.multiplicative_noise(image, key),
    "iso_noise": lambda key, image: noise.iso_noise(image, key),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_x64_batches_and_dtypes(name):
    operator = jax.jit(jax.vmap(OPERATORS[name]))
    keys = jax.random.split(KEY, 4)
    images = jnp.stack([IMAGE, IMAGE[::-1], IMAGE[:, ::-1], 1 - IMAGE])
    whole = operator(keys, images)
    np.testing.assert_array_equal(whole[:2], operator(keys[:2], images[:2]))
    assert not np.array_equal(whole[0], operator(keys[1:2], images[:1])[0])
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(jax.vmap(OPERATORS[name]))(keys, images), whole)
    assert operator(keys, images.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    gradients = jax.jit(jax.grad(lambda x: OPERATORS[name](KEY, x).sum()))(images[0])
    assert np.isfinite(gradients).all()
