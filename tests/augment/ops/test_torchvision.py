"""The pure functions against values that torchvision 0.29.2 gave for the same image, stored here.

The image is `arange(90).reshape(5, 6, 3) * 37 % 256 / 255`; the values are its red channel, in
255ths.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import functional as F

IMAGE = (np.arange(90).reshape(5, 6, 3) * 37 % 256 / 255).astype(np.float32)

# fmt: off
# affine(t, 25.0, [1, -1], 1.2, [12.0, -7.0], BILINEAR)
AFFINE = [
    [124.61, 116.58, 155.4, 74.5, 149.59, 172.4],
    [148.72, 95.93, 108.08, 61.43, 132.86, 167.69],
    [132.06, 152.75, 132.7, 75.59, 116.12, 234.84],
    [3.51, 42.18, 115.64, 116.93, 107.78, 187.08],
    [0.0, 0.0, 35.02, 52.84, 82.66, 200.87],
]
# perspective(t, [[0, 0], [6, 0], [6, 5], [0, 5]], [[-1, 0], [6, -1], [7, 5], [0, 6]], BILINEAR)
PERSPECTIVE = [
    [74.39, 148.92, 166.68, 143.43, 132.08, 141.91],
    [73.28, 52.24, 131.48, 201.3, 147.03, 151.33],
    [96.54, 111.64, 32.97, 115.25, 195.1, 168.49],
    [126.44, 99.73, 131.58, 64.85, 96.59, 177.66],
    [164.1, 131.85, 120.77, 121.61, 105.56, 79.15],
]
# adjust_hue(t, 0.2)
HUE = [
    [51.8, 162.8, 215.2, 128.8, 6.0, 94.8],
    [205.8, 60.8, 171.8, 224.2, 137.8, 15.0],
    [103.8, 214.8, 69.8, 180.8, 233.2, 146.8],
    [24.0, 112.8, 223.8, 78.8, 189.8, 242.2],
    [155.8, 33.0, 121.8, 232.8, 87.8, 198.8],
]
# adjust_contrast(t, 0.6)
CONTRAST = [
    [50.81, 117.41, 184.01, 97.01, 163.61, 76.61],
    [143.21, 56.21, 122.81, 189.41, 102.41, 169.01],
    [82.01, 148.61, 61.61, 128.21, 194.81, 107.81],
    [174.41, 87.41, 154.01, 67.01, 133.61, 200.21],
    [113.21, 179.81, 92.81, 159.41, 72.41, 139.01],
]
# adjust_saturation(t, 1.7)
SATURATION = [
    [0.0, 89.9, 255.0, 55.9, 187.33, 21.89],
    [132.9, 0.0, 98.9, 255.0, 64.9, 196.33],
    [30.9, 141.9, 0.0, 107.9, 255.0, 73.9],
    [205.33, 39.9, 150.9, 5.89, 116.9, 255.0],
    [82.9, 214.34, 48.9, 159.9, 14.89, 125.9],
]
# center_crop(t, [8, 3])
CENTER = [
    [0.0, 0.0, 0.0],
    [222.0, 77.0, 188.0],
    [120.0, 231.0, 86.0],
    [18.0, 129.0, 240.0],
    [172.0, 27.0, 138.0],
    [70.0, 181.0, 36.0],
    [0.0, 0.0, 0.0],
    [0.0, 0.0, 0.0],
]
# rotate(t, 40.0, BILINEAR, center=[1, 2])
ROTATE = [
    [117.0, 136.46, 155.93, 171.31, 180.01, 214.33],
    [81.9, 76.26, 34.17, 74.74, 92.08, 65.19],
    [76.94, 116.43, 100.14, 120.19, 143.47, 20.26],
    [15.66, 185.1, 151.66, 111.31, 9.52, 0.0],
    [0.0, 36.13, 67.45, 0.0, 0.0, 0.0],
]
# adjust_sharpness(t, 1.8)
SHARPNESS = [
    [0.0, 111.0, 222.0, 77.0, 188.0, 43.0],
    [154.0, 0.0, 120.0, 255.0, 54.49, 197.0],
    [52.0, 194.51, 0.0, 129.0, 255.0, 95.0],
    [206.0, 29.49, 203.51, 0.0, 138.0, 249.0],
    [104.0, 215.0, 70.0, 181.0, 36.0, 147.0],
]
# adjust_gamma(t, 0.6, 1.1)
GAMMA = [
    [0.0, 170.3, 255.0, 136.74, 233.62, 96.4],
    [207.26, 37.72, 178.45, 255.0, 146.12, 240.26],
    [108.05, 214.45, 57.17, 186.36, 255.0, 155.11],
    [246.79, 118.91, 221.48, 72.92, 194.06, 255.0],
    [163.77, 253.2, 129.14, 228.36, 86.65, 201.56],
]
# gaussian_blur(t, [5, 3], [1.1, 0.7])
BLUR = [
    [82.59, 99.67, 132.38, 144.07, 137.53, 130.79],
    [84.7, 94.0, 120.0, 143.59, 148.38, 146.35],
    [102.65, 100.62, 105.41, 129.0, 155.0, 164.3],
    [129.11, 122.36, 112.02, 114.41, 136.61, 151.08],
    [143.75, 137.93, 122.88, 113.93, 117.5, 125.09],
]
# resize(t, [3, 8], BICUBIC)
RESIZE = [
    [62.13, 57.5, 107.1, 180.78, 150.74, 146.62, 129.37, 103.35],
    [115.9, 107.56, 86.47, 74.66, 121.24, 171.17, 179.88, 156.63],
    [147.73, 153.6, 139.75, 112.06, 112.23, 82.34, 119.24, 196.77],
]
# resized_crop(t, 1, 2, 4, 3, [3, 5])
RESIZED_CROP = [
    [89.4, 133.8, 200.4, 159.48, 132.2],
    [95.0, 88.2, 78.0, 144.6, 189.0],
    [100.6, 114.28, 134.8, 93.88, 66.6],
]
# The boxes [[1, 1, 4, 3], [0, 0, 6, 5]] with clamping_mode=None, through
# rotate(boxes, 40.0, center=[1, 2]) and affine(boxes, 25.0, [0, 0], 1.2, [12.0, -7.0]).
ROTATED_BOXES = [[0.35721, -0.69441, 3.94092, 2.76604], [-1.05162, -2.74603, 6.75859, 4.94092]]
AFFINE_BOXES = [[0.58686, -0.20844, 5.11291, 3.61637], [-1.88859, -1.80051, 7.88859, 6.80051]]
# fmt: on


def corners(points):
    return jnp.asarray(points, jnp.float32)


@pytest.mark.parametrize(
    "image, expected",
    [
        # The angle of torchvision's affine is clockwise.
        (F.affine(IMAGE, -25.0, (1.0, -1.0), 1.2, (12.0, -7.0)), AFFINE),
        (
            F.perspective(
                IMAGE,
                corners([[0, 0], [6, 0], [6, 5], [0, 5]]),
                corners([[-1, 0], [6, -1], [7, 5], [0, 6]]),
            ),
            PERSPECTIVE,
        ),
        (F.adjust_hue(IMAGE, 0.2), HUE),
        (F.adjust_contrast(IMAGE, 0.6), CONTRAST),
        (F.adjust_saturation(IMAGE, 1.7), SATURATION),
        (F.center_crop(IMAGE, (8, 3)), CENTER),
        (F.rotate(IMAGE, 40.0, center=(1.0, 2.0)), ROTATE),
        (F.adjust_sharpness(IMAGE, 1.8), SHARPNESS),
        (F.adjust_gamma(IMAGE, 0.6, 1.1), GAMMA),
        (F.gaussian_blur(IMAGE, (5, 3), (1.1, 0.7)), BLUR),
        (F.resize(IMAGE, (3, 8), "bicubic"), RESIZE),
        (F.resized_crop(IMAGE, 1, 2, 4, 3, (3, 5)), RESIZED_CROP),
    ],
    ids=[
        "affine",
        "perspective",
        "hue",
        "contrast",
        "saturation",
        "center_crop",
        "rotate",
        "sharpness",
        "gamma",
        "blur",
        "resize",
        "resized_crop",
    ],
)
def test_equals_torchvision(image, expected):
    # Nothing is clipped here, torchvision clips.
    np.testing.assert_allclose(np.clip(image[:, :, 0], 0, 1) * 255, expected, atol=0.01)


@pytest.mark.parametrize(
    "transform, expected",
    [
        (augment.RandomRotation((40, 40), center=(1, 2)), ROTATED_BOXES),
        (augment.RandomAffine((-25, -25), scale=(1.2, 1.2), shear=(12, 12, -7, -7)), AFFINE_BOXES),
    ],
    ids=["rotate", "affine"],
)
def test_boxes_equal_torchvisions_without_clamping(transform, expected):
    boxes = jnp.array([[1.0, 1, 4, 3], [0, 0, 6, 5]])
    moved = transform(jax.random.key(0), {"image": IMAGE, "boxes": boxes})["boxes"]
    np.testing.assert_allclose(moved, expected, atol=1e-4)
