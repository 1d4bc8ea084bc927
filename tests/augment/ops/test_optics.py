"""Kernels, maps and blurs against SciPy and OpenCV, and laws of what is drawn at random."""

import cv2
import jax
import numpy as np
import pytest
import scipy.ndimage
import scipy.special

from jaxaug import augment as A
from jaxaug.augment import functional
from jaxaug.augment._ops.optics import Shape, _generalized_gaussian, sinc_kernel
from tests.images import picture

IMAGE = picture(0, 24, 31).astype(np.float32) / 255
HEIGHT, WIDTH = IMAGE.shape[:2]
RANDOM = np.random.default_rng(3)
KEY = jax.random.key(0)


@pytest.mark.parametrize("interpolation, flag", [("bilinear", 1), ("nearest", 0)])
def test_remap_is_scipys(interpolation, flag):
    x = RANDOM.uniform(-5, WIDTH + 5, (7, 8)).astype(np.float32)
    y = RANDOM.uniform(-5, HEIGHT + 5, (7, 8)).astype(np.float32)
    out = functional.remap(IMAGE, x, y, interpolation)
    for channel in range(3):
        plane = IMAGE[:, :, channel]
        places = [y.astype(float) - 0.5, x.astype(float) - 0.5]
        wanted = scipy.ndimage.map_coordinates(plane, places, order=flag, mode="mirror")
        np.testing.assert_allclose(out[:, :, channel], wanted, atol=1e-4)


def test_correlate_is_opencvs():
    kernel = RANDOM.normal(size=(5, 5)).astype(np.float32)
    wanted = cv2.filter2D(IMAGE, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    np.testing.assert_allclose(functional.correlate(IMAGE, kernel), wanted, atol=1e-5)
    with pytest.raises(ValueError, match="`kernel` must be"):
        A.KernelFilter([[1.0, 2.0]])


def test_zoom_blur_is_the_mean_of_zooms():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] + 0.5
    total = IMAGE.astype(float)
    for share in (0.25, 0.5, 0.75, 1.0):
        zoom = 1 + 0.4 * share
        rows = (y - HEIGHT / 2) / zoom + HEIGHT / 2 - 0.5
        columns = (x - WIDTH / 2) / zoom + WIDTH / 2 - 0.5
        for channel in range(3):
            plane = IMAGE[:, :, channel]
            read = scipy.ndimage.map_coordinates(plane, [rows, columns], order=1, mode="mirror")
            total[:, :, channel] += read
    np.testing.assert_allclose(functional.zoom_blur(IMAGE, 1.4, 4), total / 5, atol=1e-5)


def test_chromatic_aberration_is_opencvs_lens():
    """Whose pixel centers are whole numbers: its camera is moved by half a pixel."""
    camera = np.array([[WIDTH, 0, WIDTH / 2 - 0.5], [0, HEIGHT, HEIGHT / 2 - 0.5], [0, 0, 1]])
    out = np.asarray(functional.chromatic_aberration(IMAGE, (-0.1, 0.2), (0.15, -0.1)))
    np.testing.assert_array_equal(out[:, :, 1], IMAGE[:, :, 1])
    for channel, (a, b) in ((0, (-0.1, 0.2)), (2, (0.15, -0.1))):
        lens = np.array([a, b, 0, 0, 0])
        maps = cv2.initUndistortRectifyMap(camera, lens, np.eye(3), camera, (WIDTH, HEIGHT), 5)
        wanted = scipy.ndimage.map_coordinates(
            IMAGE[:, :, channel], [maps[1], maps[0]], order=1, mode="mirror"
        )
        np.testing.assert_allclose(out[:, :, channel], wanted, atol=2e-4)


def test_pixels_are_spread_as_far_as_said_and_evenly():
    ramp = np.tile(np.arange(64, dtype=np.float32)[None, :, None] / 64, (64, 1, 1))
    out = np.asarray(A.PixelSpread(3, p=1.0)(KEY, ramp))
    moved = np.rint((out - ramp)[:, 8:-8] * 64).astype(int)
    found, counts = np.unique(moved, return_counts=True)
    assert list(found) == list(range(-3, 4)) and counts.min() > 0.8 * counts.mean()


def test_glass_keeps_what_is_flat_and_stays_near():
    flat = np.full((16, 16, 3), 0.25, np.float32)
    np.testing.assert_allclose(A.GlassBlur(p=1.0)(KEY, flat), flat, atol=1e-6)
    step = np.zeros((32, 64, 1), np.float32)
    step[:, 32:] = 1
    out = np.asarray(jax.jit(A.GlassBlur(p=1.0))(KEY, step))
    assert out[:, :18].max() == 0 and out[:, 46:].min() > 1 - 1e-6  # 2 x 4 and 2 x 3 pixels
    assert 0 < out[:, 28:36].std()


def test_the_generalized_gaussian_is_that_of_numpy():
    noise = RANDOM.uniform(0.9, 1.1, (7, 7)).astype(np.float32)
    shape = Shape(*map(np.float32, (2, 1.5, 0.7, 30.0, 1.3)), noise)
    radians = np.deg2rad(30)
    turn = np.array([[np.cos(radians), np.sin(radians)], [-np.sin(radians), np.cos(radians)]])
    inverse = turn.T @ np.diag([1 / 1.5**2, 1 / 0.7**2]) @ turn
    wanted = np.zeros((7, 7))
    for i, j in np.ndindex(7, 7):
        offset = np.array([j - 3, i - 3])
        if abs(offset).max() <= 2:
            wanted[i, j] = np.exp(-0.5 * (offset @ inverse @ offset) ** 1.3) * noise[i, j]
    np.testing.assert_allclose(_generalized_gaussian(shape), wanted / wanted.sum(), atol=1e-6)


def test_the_ringing_kernel_has_scipys_bessel_function():
    offsets = np.arange(15) - 7
    radius = np.hypot(offsets[:, None], offsets[None, :])
    with np.errstate(invalid="ignore"):
        wanted = 1.4 * scipy.special.j1(1.4 * radius) / (2 * np.pi * radius)
    wanted[7, 7] = 1.4**2 / (4 * np.pi)
    wanted[np.maximum(abs(offsets)[:, None], abs(offsets)[None, :]) > 5] = 0
    out = sinc_kernel(15, np.int32(5), np.float32(1.4))
    np.testing.assert_allclose(out, wanted / wanted.sum(), atol=2e-6)
    edge = np.zeros((9, 40, 1), np.float32)
    edge[:, 20:] = 0.5
    assert A.RingingOvershoot(p=1.0)(KEY, edge).max() > 0.51
