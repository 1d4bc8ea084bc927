"""Filters: the pure functions against scipy.ndimage, OpenCV and Pillow."""

from fractions import Fraction

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
from PIL import Image, ImageEnhance

from jaxaug.augment._ops import blur, filters

# Each as one program: eagerly it is some tens of them. The examples of their docstrings are eager.
GAUSSIAN_BLUR = jax.jit(blur.gaussian_blur, static_argnums=1)
UNSHARP_MASK = jax.jit(filters.unsharp_mask, static_argnums=1)
NOISE = np.random.default_rng(0).uniform(0, 1, (21, 30, 3)).astype(np.float32)
SHAPES = [(21, 30), (1, 9), (9, 1), (1, 1), (2, 5)]


def gaussian(taps, sigma):
    weights = np.exp(-0.5 * ((np.arange(taps) - taps // 2) / sigma) ** 2)
    return weights / weights.sum()


def correlated(image, kernel):
    """In float64, mirrored at the border."""
    image = image.astype(float)
    return scipy.ndimage.correlate(image, kernel[:, :, None], mode="mirror")


def noise(height, width, channels=2):
    return np.random.default_rng(1).uniform(0, 1, (height, width, channels)).astype(np.float32)


@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0, 5.0])
@pytest.mark.parametrize("taps", [1, 3, 11, 23])
def test_gaussian_blur(taps, sigma):
    kernel = gaussian(taps, sigma)
    expected = correlated(NOISE, np.outer(kernel, kernel))
    out = GAUSSIAN_BLUR(NOISE, taps, sigma)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_gaussian_blur_takes_x_first():
    expected = correlated(NOISE, np.outer(gaussian(3, 0.6), gaussian(7, 2.0)))
    out = GAUSSIAN_BLUR(NOISE, (7, 3), (2.0, 0.6))
    np.testing.assert_allclose(out, expected, atol=1e-5)
    by_size = correlated(NOISE, np.outer(gaussian(3, 0.8), gaussian(7, 1.4)))
    np.testing.assert_allclose(blur.gaussian_blur(NOISE, [7, 3]), by_size, atol=1e-5)


def test_no_sigma_is_the_image():
    np.testing.assert_array_equal(blur.gaussian_blur(NOISE, 9, 0.0), NOISE)
    np.testing.assert_array_equal(blur.defocus(NOISE, 9, 0.0), NOISE)


@pytest.mark.parametrize("shape", SHAPES)
def test_small_images_are_mirrored(shape):
    kernel = gaussian(7, 1.5)
    expected = correlated(noise(*shape), np.outer(kernel, kernel))
    np.testing.assert_allclose(GAUSSIAN_BLUR(noise(*shape), 7, 1.5), expected, atol=1e-5)


@pytest.mark.parametrize("taps", [1, 3, 7])
def test_box_blur(taps):
    expected = correlated(NOISE, np.full((taps, taps), 1 / taps**2))
    out = jax.jit(blur.box_blur, static_argnums=1)(NOISE, taps)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_unsharp_mask(shape):
    image = noise(*shape)
    kernel = gaussian(5, 1.3)
    expected = image + 1.7 * (image - correlated(image, np.outer(kernel, kernel)))
    np.testing.assert_allclose(UNSHARP_MASK(image, 5, 1.3, 1.7), expected, atol=1e-5)
    np.testing.assert_allclose(UNSHARP_MASK(image, 5, 0.0, 1.7), image, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_emboss(shape):
    image = noise(*shape)
    kernel = np.array([[-1.4, -0.4, 0.0], [-0.4, 1.0, 0.4], [0.0, 0.4, 1.4]])
    kernel = 0.7 * np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]]) + 0.3 * kernel
    expected = cv2.filter2D(image.astype(float), -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    out = jax.jit(filters.emboss)(image, 0.3, 0.4)
    np.testing.assert_allclose(out, expected.reshape(image.shape), atol=1e-5)


@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, 200.0])
@pytest.mark.parametrize("direction", [-1.0, 0.0, 0.6])
def test_motion_blur_is_the_mean_along_a_line(angle, direction):
    radians = np.deg2rad(angle)
    y, x = np.mgrid[:21, :30].astype(float)
    expected = np.zeros(NOISE.shape)
    for step in range(-3, 4):
        places = [y - step * np.sin(radians), x + step * np.cos(radians)]
        for channel in range(3):
            moved = scipy.ndimage.map_coordinates(
                NOISE[:, :, channel].astype(float), places, order=1, mode="mirror"
            )
            expected[:, :, channel] += (1 - direction * step / 3) / 7 * moved
    out = jax.jit(blur.motion_blur, static_argnums=1)(NOISE, 7, angle, direction)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("taps, radius", [(3, 1.0), (9, 2.7), (21, 10.0)])
def test_defocus_is_a_disk(taps, radius):
    y, x = np.mgrid[:taps, :taps] - taps // 2
    disk = np.clip(radius + 0.5 - np.hypot(x, y), 0, 1)
    expected = correlated(NOISE, disk / disk.sum())
    out = jax.jit(blur.defocus, static_argnums=1)(NOISE, taps, radius)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("taps", [1, 3, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_median_blur(taps, shape):
    expected = scipy.ndimage.median_filter(noise(*shape), size=(taps, taps, 1), mode="mirror")
    out = jax.jit(blur.median_blur, static_argnums=1)(noise(*shape), taps)
    np.testing.assert_array_equal(out, expected)


def test_median_blur_is_that_of_opencv():
    pixels = (NOISE * 255).astype(np.uint8)
    expected = cv2.medianBlur(pixels, 5)[2:-2, 2:-2]
    out = np.round(blur.median_blur(pixels.astype(np.float32) / 255, 5) * 255)
    np.testing.assert_array_equal(out[2:-2, 2:-2], expected)


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.9])
def test_sharpness_is_that_of_pillow(factor):
    pixels = (NOISE * 255).astype(np.uint8)
    expected = np.asarray(ImageEnhance.Sharpness(Image.fromarray(pixels)).enhance(factor), int)
    out = filters.adjust_sharpness(pixels.astype(np.float32) / 255, factor)
    assert np.abs(np.round(np.clip(out, 0, 1) * 255) - expected).max() <= 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("factor", [0.0, 1.0, 1.9])
def test_sharpness_keeps_the_outermost_pixels(shape, factor):
    image = noise(*shape)
    kernel = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    expected = image.astype(float)
    blend = factor * expected + (1 - factor) * correlated(image, kernel)
    expected[1:-1, 1:-1] = blend[1:-1, 1:-1]
    out = jax.jit(filters.adjust_sharpness)(image, factor)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_laplacian(shape):
    expected = np.stack(
        [scipy.ndimage.laplace(noise(*shape)[:, :, c], mode="mirror") for c in range(2)], axis=2
    )
    np.testing.assert_allclose(jax.jit(filters.laplacian)(noise(*shape)), expected, atol=1e-5)


@pytest.mark.parametrize("taps", [1, 3, 5])
def test_dilate_and_erode(taps):
    kernel = np.ones((taps, taps), np.uint8)
    np.testing.assert_array_equal(filters.dilate(NOISE, taps), cv2.dilate(NOISE, kernel))
    np.testing.assert_array_equal(filters.erode(NOISE, taps), cv2.erode(NOISE, kernel))


@pytest.mark.parametrize("scale", [0.05, 0.25, 0.5, 0.77, 1.0])
def test_downscale_is_nearest_both_ways(scale):
    """In fractions: where a center falls between two pixels, libraries round either way."""

    def nearest(length):
        small = max(1, round(length * scale))
        blocks = [int((pixel + Fraction(1, 2)) * small / length) for pixel in range(length)]
        return [int((block + Fraction(1, 2)) * length / small) for block in blocks]

    expected = NOISE[nearest(21)][:, nearest(30)]
    np.testing.assert_array_equal(jax.jit(filters.downscale)(NOISE, scale), expected)


def test_downscale_to_blocks_is_that_of_pillow():
    pixels = (NOISE[:20] * 255).astype(np.uint8)
    shrunk = Image.fromarray(pixels).resize((6, 4), Image.Resampling.NEAREST)
    expected = np.asarray(shrunk.resize((30, 20), Image.Resampling.NEAREST))
    out = filters.downscale(pixels.astype(np.float32), 0.2)
    np.testing.assert_array_equal(out, expected)


def test_blurs_do_not_shift():
    """The centroid of a pixel stays to a thousandth."""
    image = jnp.zeros((31, 33, 1)).at[14, 17, 0].set(1.0)

    @jax.jit
    def blurred(image):
        return (
            blur.gaussian_blur(image, 23, 3.0),
            blur.box_blur(image, 5),
            blur.motion_blur(image, 7, 33.0),
            blur.defocus(image, 15, 6.3),
        )

    for out in blurred(image):
        weights = np.asarray(out[:, :, 0], float)
        y, x = np.mgrid[:31, :33]
        assert abs(weights.sum() - 1) < 1e-5
        assert abs((weights * y).sum() - 14) < 1e-3 and abs((weights * x).sum() - 17) < 1e-3


def test_errors():
    with pytest.raises(ValueError, match="`kernel_size` must be an odd int of at least 1, got 4"):
        blur.box_blur(NOISE, 4)
    with pytest.raises(TypeError, match=r"expected a float image .* got uint8"):
        filters.laplacian(np.zeros((2, 2, 1), np.uint8))


OPERATORS = {
    "gaussian_blur": lambda image, size: blur.gaussian_blur(image, 5, jnp.float32(1.3), size),
    "box_blur": lambda image, size: blur.box_blur(image, 5, size),
    "motion_blur": lambda image, size: blur.motion_blur(image, 5, 40.0, 0.3, size),
    "defocus": lambda image, size: blur.defocus(image, 7, jnp.float32(2.3), size),
    "median_blur": lambda image, size: blur.median_blur(image, 3, size),
    "adjust_sharpness": lambda image, size: filters.adjust_sharpness(image, 1.5, size),
    "laplacian": lambda image, size: filters.laplacian(image, size),
    "dilate": lambda image, size: filters.dilate(image, 5, size),
    "erode": lambda image, size: filters.erode(image, 5, size),
    "downscale": lambda image, size: filters.downscale(image, jnp.float32(0.4), size),
}
operators = pytest.mark.parametrize("name", OPERATORS)


@operators
def test_the_rest_of_a_canvas_counts_for_nothing(name):
    operator = jax.jit(OPERATORS[name])
    size = jnp.array(NOISE.shape[:2], jnp.int32)
    expected = operator(NOISE, size)
    for rest in (0.0, 1e6):
        canvas = np.full((40, 41, 3), rest, np.float32)
        canvas[:21, :30] = NOISE
        np.testing.assert_allclose(operator(canvas, size)[:21, :30], expected, atol=1e-6)


@operators
def test_x64_batches_and_dtypes(name):
    operator = jax.jit(jax.vmap(OPERATORS[name]))
    images = jnp.stack([NOISE, NOISE[::-1], NOISE[:, ::-1], 1 - NOISE])
    size = jnp.array([[21, 30], [1, 30], [20, 11], [7, 1]], jnp.int32)
    whole = operator(images, size)
    np.testing.assert_array_equal(whole[:2], operator(images[:2], size[:2]))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(jax.vmap(OPERATORS[name]))(images, size), whole)
    assert operator(images.astype(jnp.bfloat16), size).dtype == jnp.bfloat16
    gradients = jax.jit(jax.grad(lambda x: OPERATORS[name](x, size[0])[:21, :30].sum()))(NOISE)
    assert np.isfinite(gradients).all()
