"""Resampling in numpy float64, straight from the definitions: pad, then interpolate; weigh, then
sum.
"""

import numpy as np


def warp(
    image, pull, shape, mode="constant", fill=0.0, interpolation="bilinear", stretch=(1.0, 1.0)
):
    """`image` [H, W, C] through the output-to-source matrix `pull`: padded widely, then read.

    `stretch` is that of the kernel along x and y: 1 interpolates, `footprint(pull)` antialiases.
    """
    x, y = places(pull, shape)
    fill = np.asarray(fill if mode == "constant" else 0.0, np.float64)
    if interpolation == "nearest":
        columns, along_x = np.floor(x)[None], np.ones((1, *shape))
        rows, along_y = np.floor(y)[None], np.ones((1, *shape))
    else:
        columns, along_x = _taps(x, interpolation, stretch[0])
        rows, along_y = _taps(y, interpolation, stretch[1])
    rows, columns = rows.astype(int), columns.astype(int)
    before = -min(0, rows.min()), -min(0, columns.min())
    behind = [max(0, at.max() - length + 1) for at, length in zip((rows, columns), image.shape[:2])]
    sides = (*zip(before, behind), (0, 0))
    padded = np.pad(image.astype(np.float64) - fill, sides, mode)
    result = np.zeros((*shape, image.shape[2]))
    for row, y_weight in zip(rows + before[0], along_y):
        for column, x_weight in zip(columns + before[1], along_x):
            result += padded[row, column] * (y_weight * x_weight)[:, :, None]
    return result + fill


def places(pull, shape):
    """The source (x, y) of the center of each output pixel, planes of `shape`."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    x, y, w = np.einsum("ij,jhw->ihw", pull, np.stack([x, y, np.ones(shape)]))
    return x / w, y / w


def footprint(pull):
    """The source pixels per output pixel of an affine `pull` along x and y, at least 1."""
    return np.maximum(1.0, np.hypot(pull[:2, 0], pull[:2, 1]))


def _taps(position, interpolation, stretch):
    """The pixels around positions and their weights, whose sum is 1: [taps, H, W] each."""
    reach = int(np.ceil(2 * stretch)) + 1
    nearby = np.floor(position)[None] + np.arange(-reach, reach + 1)[:, None, None]
    weights = _KERNELS[interpolation](np.abs(nearby + 0.5 - position) / stretch)
    return nearby, weights / weights.sum(axis=0)


def _triangle(distance):
    return np.maximum(0.0, 1.0 - distance)


def _cubic(distance, a=-0.5):
    """Keys' cubic convolution, as he wrote it with the parameter a."""
    near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return np.select([distance < 1, distance < 2], [near, far], 0.0)


_KERNELS = {"bilinear": _triangle, "bicubic": _cubic}


def scaling(factor, height, width):
    """The pull matrix of a scale about the center of an image."""
    shrink = np.diag([1 / factor, 1 / factor, 1.0])
    return shift(width / 2, height / 2) @ shrink @ shift(-width / 2, -height / 2)


def resize(image, height, width, interpolation="bilinear"):
    """Return it antialiased: source pixels weighed by a kernel as wide as an output pixel."""
    rows = _shares(image.shape[0], height, interpolation)
    columns = _shares(image.shape[1], width, interpolation)
    return np.einsum("oh,hwc,pw->opc", rows, image.astype(np.float64), columns)


def _shares(length, target, interpolation):
    scale = length / target
    centers = (np.arange(target) + 0.5) * scale
    distance = np.abs(centers[:, None] - (np.arange(length) + 0.5)[None]) / max(scale, 1.0)
    weights = _KERNELS[interpolation](distance)
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
