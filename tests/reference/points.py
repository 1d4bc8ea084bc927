"""Points and boxes through a pull map in numpy float64: the inverse by Newton's method."""

import numpy as np

SIDE_POINTS = 64


def matrix_pull(matrix):
    """The function of points (x, y)[n, 2] that an output-to-source 3x3 matrix stands for."""

    def pull(points):
        homogeneous = np.column_stack([points, np.ones(len(points))]) @ np.asarray(matrix).T
        return homogeneous[:, :2] / homogeneous[:, 2:]

    return pull


def push(pull, targets):
    """The points that `pull` takes to `targets` [n, 2]."""
    points = np.array(targets, np.float64)
    for _ in range(60):
        step = 1e-4
        at = pull(points)
        along_x = (pull(points + [step, 0]) - pull(points - [step, 0])) / (2 * step)
        along_y = (pull(points + [0, step]) - pull(points - [0, step])) / (2 * step)
        jacobian = np.stack([along_x, along_y], axis=2)
        points = points - np.linalg.solve(jacobian, (at - targets)[:, :, None])[:, :, 0]
    return points


def hull(pull, box):
    """The hull (left, top, right, bottom) of a box, from 64 points on each of its sides."""
    left, top, right, bottom = box
    share = np.linspace(0, 1, SIDE_POINTS)
    x = left + (right - left) * share
    y = top + (bottom - top) * share
    sides = [
        np.column_stack([x, np.full_like(x, top)]),
        np.column_stack([x, np.full_like(x, bottom)]),
        np.column_stack([np.full_like(y, left), y]),
        np.column_stack([np.full_like(y, right), y]),
    ]
    moved = push(pull, np.concatenate(sides))
    return np.concatenate([moved.min(axis=0), moved.max(axis=0)])
