"""Resampling in numpy float64, straight from the definitions: pad, then interpolate; weigh, then
sum.
"""

import numpy as np


def warp(image, pull, shape, mode="constant", fill=0.0, nearest=False):
    """`image` [H, W, C] through the output-to-source matrix `pull`: padded widely, then read
    bilinearly.
    """
    pad = 3 * max(image.shape[:2])
    options = {"constant_values": fill} if mode == "constant" else {}
    padded = np.pad(image.astype(np.float64), ((pad, pad), (pad, pad), (0, 0)), mode, **options)
    result = np.empty((*shape, image.shape[2]))
    for row in range(shape[0]):
        for column in range(shape[1]):
            x, y, w = pull @ np.array([column + 0.5, row + 0.5, 1.0])
            x, y = x / w + pad, y / w + pad
            result[row, column] = (
                padded[int(y), int(x)] if nearest else _bilinear(padded, x - 0.5, y - 0.5)
            )
    return result


def _bilinear(image, x, y):
    left = int(np.floor(x))
    top = int(np.floor(y))
    right_share = x - left
    bottom_share = y - top
    upper = image[top, left] * (1 - right_share) + image[top, left + 1] * right_share
    lower = image[top + 1, left] * (1 - right_share) + image[top + 1, left + 1] * right_share
    return upper * (1 - bottom_share) + lower * bottom_share


def antialiased(image, pull, shape, mode="constant", fill=0.0):
    """`image` through an affine `pull`: padded widely, then each pixel weighed by a triangle along
    x and one along y.

    Their half-widths are the source pixels per output pixel, the row norms of `pull`, at least 1.
    """
    pad = 3 * max(image.shape[:2])
    options = {"constant_values": fill} if mode == "constant" else {}
    padded = np.pad(image.astype(np.float64), ((pad, pad), (pad, pad), (0, 0)), mode, **options)
    half_x, half_y = np.maximum(1.0, np.hypot(pull[:2, 0], pull[:2, 1]))
    centers_x, centers_y = (np.arange(length) - pad + 0.5 for length in padded.shape[1::-1])
    result = np.empty((*shape, image.shape[2]))
    for row in range(shape[0]):
        for column in range(shape[1]):
            x, y, _ = pull @ np.array([column + 0.5, row + 0.5, 1.0])
            weights_x = np.maximum(0.0, 1.0 - np.abs(centers_x - x) / half_x)
            weights_y = np.maximum(0.0, 1.0 - np.abs(centers_y - y) / half_y)
            total = weights_x.sum() * weights_y.sum()
            result[row, column] = np.einsum("h,hwc,w->c", weights_y, padded, weights_x) / total
    return result


def scaling(factor, height, width):
    """The pull matrix of a scale about the center of an image."""
    shrink = np.diag([1 / factor, 1 / factor, 1.0])
    return shift(width / 2, height / 2) @ shrink @ shift(-width / 2, -height / 2)


def resize(image, height, width):
    """Return it antialiased: source pixels weighed by a triangle as wide as an output pixel."""
    rows = _triangle(image.shape[0], height)
    columns = _triangle(image.shape[1], width)
    return np.einsum("oh,hwc,pw->opc", rows, image.astype(np.float64), columns)


def _triangle(length, target):
    scale = length / target
    centers = (np.arange(target) + 0.5) * scale
    distance = np.abs(centers[:, None] - (np.arange(length) + 0.5)[None]) / max(scale, 1.0)
    weights = np.maximum(0.0, 1.0 - distance)
    return weights / weights.sum(axis=1, keepdims=True)


def rotation(degrees, height, width):
    """The pull matrix of a counter-clockwise turn about the center of an image, y pointing down."""
    cos = np.cos(np.radians(degrees))
    sin = np.sin(np.radians(degrees))
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    return shift(width / 2, height / 2) @ turn @ shift(-width / 2, -height / 2)


def shear(x_degrees, y_degrees):
    """The pull of a shear about the origin: the inverse of x -> x - tan(x) y, then y -> y - tan(y)
    x.
    """
    x, y = np.tan(np.radians([x_degrees, y_degrees]))
    push = np.array([[1, 0, 0], [-y, 1, 0], [0, 0, 1]]) @ np.array(
        [[1, -x, 0], [0, 1, 0], [0, 0, 1]]
    )
    return np.linalg.inv(push)


def about(pull, height, width):
    """`pull` about the center of an image."""
    return shift(width / 2, height / 2) @ pull @ shift(-width / 2, -height / 2)


def shift(x, y):
    """The matrix that adds (x, y)."""
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def homography(source, target):
    """The matrix that takes four points (x, y) to four others, from the eight linear equations."""
    rows = []
    right = []
    for (x, y), (u, v) in zip(source, target):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(
        np.linalg.solve(np.array(rows, np.float64), np.array(right, np.float64)), 1
    ).reshape(3, 3)
