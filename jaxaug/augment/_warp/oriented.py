"""Oriented boxes: four corners, clockwise on the screen from the upper left one of the object.

The corners are the form that operators see, float[..., 8]: each moves as a keypoint does. Angles
are in degrees, counter-clockwise on the screen, as everywhere.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Scalar

CORNERS = 8  # the numbers of an oriented box
# After a mirror: the side that was the upper one stays it, and corners run clockwise again.
_MIRRORED = (2, 3, 0, 1, 6, 7, 4, 5)


def is_oriented(boxes: Array) -> bool:
    """Return True for corners [..., 8], False for xyxy [..., 4]."""
    return boxes.shape[-1] == CORNERS


def corners_of(boxes: Array, box_format: str) -> Array:
    """Return the corners [..., 8] of boxes of any format but those of two points."""
    if box_format == "xyxyxyxy":
        return boxes
    if box_format == "xyxy":
        return jnp.take(boxes, jnp.array([0, 1, 2, 1, 2, 3, 0, 3]), axis=-1)
    across, down = _axes(boxes[..., 4])
    across = across * boxes[..., 2, None]
    down = down * boxes[..., 3, None]
    first = boxes[..., :2]
    if box_format == "cxcywhr":
        first = first - (across + down) / 2
    return jnp.concatenate([first, first + across, first + across + down, first + down], axis=-1)


def from_corners(corners: Array, box_format: str) -> Array:
    """Return corners [..., 8] as "xyxyxyxy", or as the rectangles about them of other formats.

    With an angle, the rectangle is the smallest one along the first side that holds the corners:
    of a rectangle itself, of what a shear or a perspective makes of it a larger one.
    """
    if box_format == "xyxyxyxy":
        return corners
    points = corners.reshape(*corners.shape[:-1], 4, 2)
    if box_format == "xyxy":
        return jnp.concatenate([points.min(axis=-2), points.max(axis=-2)], axis=-1)
    middle = points.mean(axis=-2)
    side = points[..., 1, :] - points[..., 0, :]
    angle = jnp.rad2deg(jnp.arctan2(-side[..., 1], side[..., 0]))
    across, down = _axes(angle)
    places = points - middle[..., None, :]  # small numbers, which lose less to rounding
    low, high = [], []
    for axis in (across, down):
        along = jnp.sum(places * axis[..., None, :], axis=-1)
        low.append(along.min(axis=-1))
        high.append(along.max(axis=-1))
    first = [(a + b) / 2 for a, b in zip(low, high)] if box_format == "cxcywhr" else low
    place = middle + first[0][..., None] * across + first[1][..., None] * down
    sides = [high[0] - low[0], high[1] - low[1], angle]
    return jnp.concatenate([place, jnp.stack(sides, axis=-1)], axis=-1)


def mirrored_corners(corners: Array) -> Array:
    """Return corners [..., 8] that a mirror has moved in their usual order."""
    return jnp.take(corners, jnp.array(_MIRRORED), axis=-1)


def area_within(corners: Array, window: Sequence[Scalar]) -> Array:
    """Return the areas float32[n] of boxes [n, 8] inside a window (left, top, right, bottom).

    By Green's theorem the sum over the sides of the integral of y dx, of points of the side that
    are brought to the nearest ones of the window's rows, over the window's columns.
    """
    points = corners.astype(jnp.float32).reshape(*corners.shape[:-1], 4, 2)
    x, y = points[..., 0], points[..., 1]
    left, top, right, bottom = map(jnp.float32, window)
    next_x, next_y = (jnp.roll(value, -1, axis=-1) for value in (x, y))
    # The part of each side over the columns, then where it meets the rows: linear between them.
    across = next_x - x
    begin, end = (_share(jnp.clip(at, left, right) - x, across) for at in (x, next_x))
    down = next_y - y
    meets = [jnp.clip(_share(row - y, down), *_sorted(begin, end)) for row in (top, bottom)]
    first, second = _sorted(*meets)
    forward = end >= begin
    knots = [begin, jnp.where(forward, first, second), jnp.where(forward, second, first), end]
    width = jnp.clip(next_x, left, right) - jnp.clip(x, left, right)
    heights = [jnp.clip(y + knot * down, top, bottom) - top for knot in knots]
    span = jnp.where(end == begin, 1.0, end - begin)
    total = jnp.zeros_like(x)
    for i in range(3):
        share = (knots[i + 1] - knots[i]) / span
        total = total + share * (heights[i] + heights[i + 1]) / 2
    return jnp.abs(jnp.sum(total * width, axis=-1))


def area_of_corners(corners: Array) -> Array:
    """Return the areas float32[n] of boxes [n, 8]."""
    points = corners.astype(jnp.float32).reshape(*corners.shape[:-1], 4, 2)
    first = points[..., 2, :] - points[..., 0, :]
    second = points[..., 3, :] - points[..., 1, :]
    return jnp.abs(first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]) / 2


def sides_of(corners: Array) -> tuple[Array, Array]:
    """Return the lengths float32[n] of the first two sides of boxes [n, 8]."""
    points = corners.astype(jnp.float32).reshape(*corners.shape[:-1], 4, 2)
    steps = points[..., 1:3, :] - points[..., 0:2, :]
    lengths = jnp.sqrt(jnp.sum(steps * steps, axis=-1))
    return lengths[..., 0], lengths[..., 1]


def _axes(degrees: Array) -> tuple[Array, Array]:
    """Return the directions [..., 2] of a box's width and of its height."""
    radians = jnp.deg2rad(degrees)
    cosine, sine = jnp.cos(radians), jnp.sin(radians)
    return jnp.stack([cosine, -sine], axis=-1), jnp.stack([sine, cosine], axis=-1)


def _share(part: Array, whole: Array) -> Array:
    return part / jnp.where(whole == 0, 1.0, whole)


def _sorted(first: Array, second: Array) -> tuple[Array, Array]:
    return jnp.minimum(first, second), jnp.maximum(first, second)
