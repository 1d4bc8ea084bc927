"""JPEG artifacts against libjpeg-turbo, with which Pillow encodes and simplejpeg decodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import simplejpeg

from jaxaug.augment._ops import jpeg as module
from jaxaug.augment._ops.jpeg import jpeg
from tests.images import encode, picture

JPEG = jax.jit(jpeg, static_argnums=2)


def photograph(height, width):
    """A smooth picture with the grain of a photograph."""
    grain = np.random.default_rng(0).normal(0, 6, (height, width, 1))
    return np.clip(picture(5, height, width) + grain, 0, 255).astype(np.uint8)


def floats(pixels):
    return jnp.asarray(pixels, jnp.float32) / 255


def levels(image):
    return np.round(np.clip(np.asarray(image, float), 0, 1) * 255)


def by_libjpeg(pixels, quality, subsampling):
    """Encoded by Pillow, with the accurate cosine transform: simplejpeg has the fast one alone."""
    data = encode(pixels, quality=quality, subsampling=subsampling)
    return simplejpeg.decode_jpeg(data, fastdct=False, fastupsample=False).astype(float)


@pytest.mark.parametrize("quality", [10, 30, 49, 50, 75, 95])
@pytest.mark.parametrize("subsampling", module.SUBSAMPLINGS)
@pytest.mark.parametrize("shape", [(64, 96), (45, 51)])
def test_jpeg_is_that_of_libjpeg(quality, subsampling, shape):
    pixels = photograph(*shape)
    expected = by_libjpeg(pixels, quality, subsampling)
    out = levels(JPEG(floats(pixels), quality, subsampling))
    assert np.abs(out - expected).mean() < 1
    changed = np.abs(expected - pixels).mean()
    assert np.abs(out - expected).mean() < changed / 2  # it is the same loss, not a small one


@pytest.mark.parametrize("quality", [10, 20])
@pytest.mark.parametrize("subsampling", module.SUBSAMPLINGS)
def test_planes_keep_to_8_bits_before_they_are_mixed(quality, subsampling):
    # Blocks of full colors ring beyond black and white: what a decoder cuts there is of each plane.
    colors = np.random.default_rng(0).integers(0, 2, (12, 12, 3)) * 255
    pixels = np.kron(colors, np.ones((4, 4, 1))).astype(np.uint8)
    expected = by_libjpeg(pixels, quality, subsampling)
    out = levels(JPEG(floats(pixels), quality, subsampling))
    assert np.abs(out - expected).mean() < 0.8


@pytest.mark.parametrize("of", ["photographs", "extremes"])
def test_the_cosine_transforms_are_those_of_scipy(of):
    random = np.random.default_rng(0)
    blocks = random.integers(-128, 128, (2, 2, 8, 3, 8))
    if of == "extremes":  # each sign of a wave: the largest sums that there are
        signs = scipy.fft.idctn(np.eye(64).reshape(64, 8, 8), axes=(1, 2), norm="ortho")
        blocks = np.where(signs < 0, -128, 127).reshape(8, 8, 8, 8, 1).transpose(0, 4, 2, 1, 3)
    expected = scipy.fft.dctn(blocks.astype(float), axes=(2, 4), norm="ortho")
    found = module._frequencies(jnp.float32(blocks))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=0.1)  # 12 bits of the weights

    whole = np.round(expected)
    back = scipy.fft.idctn(whole, axes=(2, 4), norm="ortho")
    np.testing.assert_allclose(module._places(jnp.float32(whole)), back, rtol=2e-4, atol=0.1)


@pytest.mark.parametrize("subsampling", module.SUBSAMPLINGS)
def test_the_rest_of_a_canvas_counts_for_nothing(subsampling):
    pixels = photograph(37, 43)
    expected = JPEG(floats(pixels), 30, subsampling)
    for rest in (0, 255):
        canvas = np.full((64, 60, 3), rest, np.uint8)
        canvas[:37, :43] = pixels
        out = JPEG(floats(canvas), 30, subsampling, jnp.array([37, 43], jnp.int32))
        np.testing.assert_allclose(out[:37, :43], expected, atol=1e-5)


@pytest.mark.parametrize("subsampling", module.SUBSAMPLINGS)
def test_gradients_pass_straight_through(subsampling):
    image = floats(photograph(24, 40))
    gradients = jax.jit(jax.grad(lambda x: jpeg(x, 20, subsampling).sum()))(image)
    assert np.isfinite(gradients).all()
    np.testing.assert_allclose(gradients.sum(), image.size, rtol=1e-3)  # a mean is kept


def test_x64_batches_and_dtypes():
    operator = jax.jit(jax.vmap(jpeg))
    images = jnp.stack([floats(photograph(24, 40))[::s, ::t] for s in (1, -1) for t in (1, -1)])
    quality = jnp.array([10, 40, 70, 95], jnp.int32)
    whole = operator(images, quality)
    np.testing.assert_array_equal(whole[:2], operator(images[:2], quality[:2]))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(jax.vmap(jpeg))(images, quality), whole)
    assert operator(images.astype(jnp.bfloat16), quality).dtype == jnp.bfloat16


def test_errors():
    with pytest.raises(ValueError, match=r"`subsampling` must be .* got '4:2:2'"):
        jpeg(jnp.zeros((8, 8, 3)), 50, "4:2:2")
