"""The one table of EXIF orientations against Pillow's own."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from jaxaug.decode.image.orientation import FLIP_X, FLIP_Y, TRANSPOSE, steps, upright, upright_size
from tests.images import picture


def upright_by_pillow(pixels: np.ndarray, orientation: int) -> np.ndarray:
    image = Image.fromarray(pixels)
    image.getexif()[0x0112] = orientation
    return np.asarray(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_and_sizes_are_those_of_pillow(orientation):
    stored = picture(0, 5, 7)
    expected = upright_by_pillow(stored, orientation)
    np.testing.assert_array_equal(upright(stored, orientation), expected)

    sides = (np.array([side]) for side in stored.shape[:2])
    assert upright_size(*sides, np.array([orientation])).tolist() == [list(expected.shape[:2])]


def test_the_eight_orientations_are_all_different():
    assert len({steps(orientation) for orientation in range(1, 9)}) == 8


@pytest.mark.parametrize("orientation", range(9))
def test_the_columns_are_the_steps(orientation):
    columns = (TRANSPOSE[orientation], FLIP_X[orientation], FLIP_Y[orientation])
    assert columns == steps(orientation)
