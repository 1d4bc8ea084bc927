"""Dots, few colors and flat cells against NumPy, Pillow and SciPy."""

import jax
import numpy as np
import scipy.ndimage
import scipy.spatial
from PIL import Image, ImageOps

from jaxaug import augment as A
from jaxaug.augment import functional
from tests.images import picture

PIXELS = picture(0, 24, 31)
IMAGE = PIXELS.astype(np.float32) / 255
HEIGHT, WIDTH = IMAGE.shape[:2]
RANDOM = np.random.default_rng(3)
KEY = jax.random.key(0)


def test_halftone_is_a_loop_over_cells():
    wanted = np.zeros(IMAGE.shape)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] + 0.5
    for top in range(0, HEIGHT, 5):
        for left in range(0, WIDTH, 5):
            cell = np.s_[top : top + 5, left : left + 5]
            color = IMAGE[cell].astype(float).mean(axis=(0, 1))
            radius = max(color.mean() * 2.5, 1)
            away = np.hypot(y[cell] - top - 2.5, x[cell] - left - 2.5)
            wanted[cell] = np.clip(radius - away + 0.5, 0, 1)[:, :, None] * color
    out = functional.halftone(IMAGE, np.int32(5), 0.25)
    np.testing.assert_allclose(out, 0.75 * wanted + 0.25 * IMAGE, atol=1e-5)


def test_dithering_keeps_means_and_has_few_values():
    ramp = np.tile(np.linspace(0, 1, 64, dtype=np.float32)[None, :, None], (64, 1, 3))
    for method in ("ordered", "random"):
        out = np.asarray(jax.jit(A.Dithering(method, 3, p=1.0))(KEY, ramp))
        np.testing.assert_allclose(np.unique(out), [0, 0.5, 1], atol=1e-6)
        coarse = scipy.ndimage.uniform_filter(out[:, :, 0], 16)[8:-8, 8:-8]
        np.testing.assert_allclose(coarse, ramp[8:-8, 8:-8, 0], atol=0.12)


def test_the_bayer_matrix_has_each_threshold_once():
    known = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]])
    np.testing.assert_allclose(functional.bayer_matrix(4) * 16 - 0.5, known)
    assert len(np.unique(functional.bayer_matrix(8))) == 64


def test_superpixels_are_scipys_nearest_seeds():
    seeds = RANDOM.uniform(0.2, 0.8, (3, 4, 2)).astype(np.float32)
    replaced = RANDOM.uniform(size=(3, 4)) < 0.6
    rows, columns = np.mgrid[0:3, 0:4]
    places = np.stack(
        [(rows + seeds[:, :, 0]) * HEIGHT / 3, (columns + seeds[:, :, 1]) * WIDTH / 4], axis=2
    ).reshape(-1, 2)
    pixels = np.mgrid[0:HEIGHT, 0:WIDTH].reshape(2, -1).T + 0.5
    nearest = scipy.spatial.KDTree(places).query(pixels)[1].reshape(HEIGHT, WIDTH)
    wanted = IMAGE.astype(float)
    for number in np.flatnonzero(replaced):
        wanted[nearest == number] = IMAGE[nearest == number].astype(float).mean(axis=0)
    out = functional.superpixels(IMAGE, seeds, replaced, (3, 4))
    np.testing.assert_allclose(out, wanted, atol=1e-5)


def test_means_of_16_bits_are_those_of_their_levels():
    """A cell of one level keeps it; through 8 bits 300 would become 257."""
    flat = np.full((24, 31, 2), (300, 40_001), np.uint16)
    out = jax.jit(A.Superpixels((1.0, 1.0), segments=4, p=1.0))(KEY, flat)
    np.testing.assert_array_equal(out, flat)

    deep = RANDOM.integers(0, 65536, (24, 31, 3)).astype(np.uint16)
    printed = np.asarray(jax.jit(A.Halftone((64, 64), (0.0, 0.0), p=1.0))(KEY, deep))
    middle = printed[20, 28]  # inside of the only dot
    np.testing.assert_allclose(middle, deep.astype(float).mean((0, 1)), rtol=0, atol=0.51)


def test_colors_are_pillows():
    gray = ImageOps.grayscale(Image.fromarray(PIXELS))
    wanted = np.asarray(ImageOps.colorize(gray, (20, 0, 90), (255, 240, 150)))
    black, white = ([v / 255 for v in color] for color in ((20, 0, 90), (255, 240, 150)))
    out = np.asarray(A.Colorize(tuple(black), tuple(white), p=1.0)(KEY, PIXELS))
    assert np.abs(out.astype(int) - wanted).max() <= 1


def test_exposure_and_standardize_are_numpys():
    out = functional.match_exposure(IMAGE, 0.4)
    np.testing.assert_allclose(out, IMAGE * (0.4 / IMAGE.astype(float).mean()), atol=1e-5)
    out = np.asarray(functional.standardize(IMAGE))
    exact = IMAGE.astype(float)
    np.testing.assert_allclose(out, (exact - exact.mean()) / exact.std(), atol=1e-4)
    canvas = np.full((30, 40, 3), 0.9, np.float32)
    canvas[:HEIGHT, :WIDTH] = IMAGE
    beside = functional.standardize(canvas, np.array([HEIGHT, WIDTH]))
    np.testing.assert_array_equal(np.asarray(beside)[:HEIGHT, :WIDTH], out)
    assert not np.asarray(functional.standardize(np.full((4, 4, 3), 0.5, np.float32))).any()


def test_white_stays_white_where_the_threshold_is_zero():
    assert functional.dither(np.ones((1, 1, 1), np.float32), np.zeros((1, 1), np.float32)) == 1


def test_standardize_sees_a_low_contrast():
    image = np.float32([0.495, 0.505]).repeat(3).reshape(1, 2, 3).repeat(9000, axis=1)
    out = np.asarray(functional.standardize(image))
    np.testing.assert_allclose(np.abs(out), 1, rtol=0.02)
