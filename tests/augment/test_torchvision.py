"""The pure functions against values that torchvision 0.29.2 gave for the same image, stored here.

The image is `arange(90).reshape(5, 6, 3) * 37 % 256 / 255`; the values are its red channel, in
255ths.
"""

import jax.numpy as jnp
import numpy as np
import pytest

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
    ],
    ids=["affine", "perspective", "hue", "contrast", "saturation", "center_crop"],
)
def test_equals_torchvision(image, expected):
    # Nothing is clipped here, torchvision clips.
    np.testing.assert_allclose(np.clip(image[:, :, 0], 0, 1) * 255, expected, atol=0.01)
