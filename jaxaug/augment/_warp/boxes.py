"""Boxes and keypoints: how they move with an image, their formats, and the rows that are left."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Sample, Scalar
from jaxaug.augment._base import ImageInfo, as_choice
from jaxaug.augment._warp.warp import Warp

_ORIENTED = {"xyxyxyxy": 8, "xywhr": 5, "cxcywhr": 5}
_COLUMNS = {"xyxy": 4, "xywh": 4, "cxcywh": 4, **_ORIENTED}
BOX_FORMATS = tuple(_COLUMNS)
COUNTS = ("box_count", "boxes_length")  # as `Coco`, and as the other sources name it
VALID = "boxes_valid"
WEIGHTS = "box_weights"  # of `MixUp` and its kind
# Columns of boxes in samples of COCO, Pascal VOC, torchvision, detectors and trackers.
USUAL_COLUMNS = (
    *("labels", "classes", "category", "categories", "scores", "area", "areas", "iscrowd"),
    *("difficult", "truncated", "occluded", "track_ids"),
)
_SIDE_POINTS = 32  # a chord of a 32nd of a side misses a bend by a hundredth of a pixel or so
CORNERS = 8  # the numbers of an oriented box
# After a mirror: the side that was the upper one stays it, and corners run clockwise again.
_MIRRORED = (2, 3, 0, 1, 6, 7, 4, 5)


def moved_info(info: ImageInfo, warp: Warp) -> ImageInfo:
    """Return the `ImageInfo` of an image after `warp`."""
    boxes = None if info.boxes is None else move_boxes(warp, info.boxes)
    return info._replace(canvas=warp.canvas, size=warp.size, boxes=boxes)


def move_points(warp: Warp, points: Array) -> Array:
    """Return the (x, y) rows of float[..., 2], moved.

    Of (x, y, visibility) rows, float[..., 3], those that leave the frame have visibility 0, and
    rows of zeros are padding and stay.
    """
    shape = points.shape
    points = as_points(points).reshape(-1, shape[-1])
    x, y = warp.push(*points[:, :2].astype(jnp.float32).T)
    moved = jnp.stack([x, y], axis=1).astype(points.dtype)
    if points.shape[1] == 2:
        return moved.reshape(shape)
    height, width = ImageInfo(warp.canvas, warp.size).extent
    inside = (x >= 0) & (x <= width) & (y >= 0) & (y <= height)
    visibility = jnp.where(inside, points[:, 2], jnp.zeros_like(points[:, 2]))
    moved = jnp.concatenate([moved, visibility[:, None]], axis=1)
    return jnp.where(present(points)[:, None], moved, points).reshape(shape)


def move_boxes(warp: Warp, boxes: Array) -> Array:
    """Return the hulls of float[n, 4], moved and not clipped; rows of zeros are padding and stay.

    A matrix takes the hull of the corners to the hull of the box; a displacement does not, so that
    its hull is that of points all along the sides. Of oriented boxes [n, 8] the corners are moved.
    """
    boxes = as_boxes(boxes)
    if is_oriented(boxes):
        corners = warp.push(*boxes.astype(jnp.float32).reshape(-1, 2).T)
        moved = jnp.stack(corners, axis=1).reshape(boxes.shape)
        moved = jnp.where(warp.mirrors, mirrored_corners(moved), moved)
    else:
        points = _SIDE_POINTS if warp.displacements else 1
        x, y = warp.push(*_outline(boxes.astype(jnp.float32), points))
        hull = [x.min(axis=1), y.min(axis=1), x.max(axis=1), y.max(axis=1)]
        moved = jnp.stack(hull, axis=1)
    moved = moved.astype(boxes.dtype)
    return jnp.where(present(boxes)[:, None], moved, boxes)


def as_boxes(boxes: Array, box_format: str | None = None) -> Array:
    """Return boxes float[n, k] of a format, checked; None for xyxy [n, 4] or corners [n, 8]."""
    columns = (4, CORNERS) if box_format is None else (_COLUMNS[box_format],)
    return _floating("boxes", boxes, "n", columns)


def as_polygons(name: str, points: Array) -> Array:
    """Return float[..., k, 2], the points of polygons, checked."""
    return _floating(name, points, "...", (2,))


def format_inside(box_format: str) -> str:
    """Return the format that operators see of boxes of another."""
    return "xyxyxyxy" if box_format in _ORIENTED else "xyxy"


def as_box_format(name: str, value: Any) -> str:
    """Return one of BOX_FORMATS; torchvision writes them in capitals."""
    value = value.lower() if isinstance(value, str) else value
    return as_choice(name, value, BOX_FORMATS)


def as_points(points: Array) -> Array:
    """Return float[..., 2] or float[..., 3] keypoints, such as [n, joints, 3], checked."""
    return _floating("keypoints", points, "...", (2, 3))


def _outline(boxes: Array, per_side: int) -> tuple[Array, Array]:
    """Return x and y [n, 4 * per_side] of points along the sides, the corners among them."""
    left, top, right, bottom = (boxes[:, i, None] for i in range(4))
    share = jnp.arange(per_side, dtype=jnp.float32)[None, :] / per_side
    x_on = left + (right - left) * share
    x_back = right + (left - right) * share
    y_on = top + (bottom - top) * share
    y_back = bottom + (top - bottom) * share
    x = [x_on, jnp.broadcast_to(right, x_on.shape), x_back, jnp.broadcast_to(left, x_on.shape)]
    y = [jnp.broadcast_to(top, x_on.shape), y_on, jnp.broadcast_to(bottom, x_on.shape), y_back]
    return jnp.concatenate(x, axis=1), jnp.concatenate(y, axis=1)


def _floating(name: str, value: Array, rows: str, columns: tuple[int, ...]) -> Array:
    value = jnp.asarray(value)
    if (
        value.ndim < 2
        or (rows == "n" and value.ndim > 2)
        or value.shape[-1] not in columns
        or not jnp.issubdtype(value.dtype, jnp.floating)
    ):
        got = f"{value.dtype}{list(value.shape)}"
        shapes = " or ".join(f"float[{rows}, {count}]" for count in columns)
        hint = ""
        if name == "boxes" and value.shape[-1:] in ((5,), (8,)):
            hint = ": name the format of oriented boxes, Compose(box_format=...)"
        raise ValueError(f"`{name}` must be {shapes} in pixels, got {got}{hint}.")
    return value


# ---- formats and rows


def convert_bounding_box_format(boxes: Array, old_format: str, new_format: str) -> Array:
    """Return boxes in another format.

    Args:
      boxes: float[..., 4], of oriented ones [..., 5] or [..., 8], in pixels. Rows of zeros stay.
      old_format, new_format: "xyxy" (left, top, right, bottom), "xywh" (left, top, width, height)
        or "cxcywh" (center, width, height); of oriented boxes "cxcywhr" (with an angle r in
        degrees, counter-clockwise), "xywhr" (the first corner, width, height, r) or "xyxyxyxy",
        the corners clockwise from the upper left one of the object.

    Returns:
      The boxes. Of oriented ones "xyxy" is the hull, and "cxcywhr" the rectangle along the first
      side that holds the four corners.

    Example:
      >>> import jax.numpy as jnp
      >>> boxes = jnp.array([[1.0, 2.0, 5.0, 8.0]])
      >>> convert_bounding_box_format(boxes, "xyxy", "cxcywh").tolist()
      [[3.0, 5.0, 4.0, 6.0]]

    Differs from torchvision in "xywhr" and "cxcywhr" of corners that are no rectangle, there the
    lengths of two sides.
    """
    old_format = as_box_format("old_format", old_format)
    new_format = as_box_format("new_format", new_format)
    if old_format == new_format:
        return boxes
    if old_format in _ORIENTED or new_format in _ORIENTED:
        if old_format not in _ORIENTED:
            boxes = convert_bounding_box_format(boxes, old_format, old_format := "xyxy")
        corners = corners_of(boxes, old_format)
        if new_format in _ORIENTED:
            return from_corners(corners, new_format)
        boxes, old_format = from_corners(corners, "xyxy"), "xyxy"
        return convert_bounding_box_format(boxes, old_format, new_format)
    low, other = boxes[..., :2], boxes[..., 2:]
    size = other - low if old_format == "xyxy" else other
    if old_format == "cxcywh":
        low = low - size / 2
    if new_format == "xyxy":
        return jnp.concatenate([low, low + size], axis=-1)
    first = low + size / 2 if new_format == "cxcywh" else low
    return jnp.concatenate([first, size], axis=-1)


def clamp_bounding_boxes(boxes: Array, height: Scalar, width: Scalar) -> Array:
    """Return xyxy boxes cut at the edges of an image; what lies beside it becomes zeros.

    Args:
      boxes: float[n, 4], xyxy in pixels; or corners [n, 8], which are not cut.
      height, width: of the image, in pixels.

    Example:
      >>> import jax.numpy as jnp
      >>> boxes = jnp.array([[-2.0, 1.0, 5.0, 9.0], [7.0, 0.0, 9.0, 2.0]])
      >>> clamp_bounding_boxes(boxes, 4, 6).tolist()
      [[0.0, 1.0, 5.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    """
    return clipped(boxes, (0, 0, width, height))


def clipped(boxes: Array, window: Sequence[Scalar]) -> Array:
    """Return boxes cut at a window (left, top, right, bottom); what lies beside it is zeros.

    Oriented ones [n, 8] that show at all are left as they are.
    """
    if is_oriented(boxes):  # a part of such a box is none: it stays whole where some of it shows
        return zeroed(boxes, area_within(boxes, window) > 0)
    left, top, right, bottom = (jnp.asarray(side, boxes.dtype) for side in window)
    x0, x1 = (jnp.clip(boxes[:, i], left, right) for i in (0, 2))
    y0, y1 = (jnp.clip(boxes[:, i], top, bottom) for i in (1, 3))
    inside = (x1 > x0) & (y1 > y0)
    cut = jnp.stack([x0, y0, x1, y1], axis=1)
    return jnp.where(inside[:, None], cut, jnp.zeros_like(cut))


def area(boxes: Array) -> Array:
    """Return the areas float32[n] of boxes, xyxy [n, 4] or corners [n, 8]."""
    if is_oriented(boxes):
        return area_of_corners(boxes)
    boxes = boxes.astype(jnp.float32)  # those of float16 end at 65,504 square pixels
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def shown_area(boxes: Array, window: Sequence[Scalar]) -> Array:
    """Return the areas float32[n] of what lies in a window (left, top, right, bottom)."""
    return area_within(boxes, window) if is_oriented(boxes) else area(clipped(boxes, window))


def shorter_sides(boxes: Array) -> Array:
    """Return the lengths [n] of the shorter sides of boxes, xyxy [n, 4] or corners [n, 8]."""
    if is_oriented(boxes):
        return jnp.minimum(*sides_of(boxes))
    return jnp.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])


def hulls(boxes: Array) -> Array:
    """Return boxes, xyxy [n, 4] or corners [n, 8], as xyxy."""
    return from_corners(boxes, "xyxy") if is_oriented(boxes) else boxes


def present(boxes: Array) -> Array:
    """Return bool[n], False for the rows of zeros, which are padding."""
    return (boxes != 0).any(axis=1)


def given_alone(sample: Sample) -> Sample:
    """Return a sample whose "boxes" are zeros where a count or "boxes_valid" calls them padding."""
    boxes = sample["boxes"]
    rows = jnp.arange(boxes.shape[0], dtype=jnp.int32)
    given = jnp.ones(rows.shape, bool)
    for name in COUNTS:
        if name in sample:
            given = given & (rows < jnp.asarray(sample[name]).astype(jnp.int32))
    if VALID in sample:
        given = given & jnp.asarray(sample[VALID])
    if not {VALID, *COUNTS} & set(sample):
        return sample
    return {**sample, "boxes": zeroed(boxes, given)}


def packed(sample: Sample, keep: Array, per_box: Sequence[str] = ()) -> Sample:
    """Return a sample whose kept boxes stand first, in their order; the other rows are padding.

    Every `box_columns` goes along. Its padding is 0, False, and that of integers -1. The counts of
    boxes and of columns are those of the boxes that are kept.

    Args:
      sample: with "boxes" [n, 4].
      keep: bool[n].
      per_box: see `box_columns`.

    Raises:
      ValueError: for a column that does not have n rows.
    """
    order = jnp.argsort(jnp.logical_not(keep))  # stable
    count = jnp.sum(keep, dtype=jnp.int32)
    valid = jnp.arange(keep.shape[0], dtype=jnp.int32) < count
    columns = box_columns(sample, per_box)
    sample = dict(sample)
    for name in columns:
        rows = _rows(name, sample[name], keep.shape[0])
        rows = jnp.take(rows, order, axis=0)
        blank = -1 if jnp.issubdtype(rows.dtype, jnp.signedinteger) else 0
        kept = valid.reshape(-1, *[1] * (rows.ndim - 1))
        sample[name] = jnp.where(kept, rows, jnp.asarray(blank, rows.dtype))
    for name in (*COUNTS, *(f"{column}_length" for column in columns)):
        if name in sample and name not in columns:
            sample[name] = count.astype(jnp.asarray(sample[name]).dtype)
    return sample


def box_columns(sample: Sample, per_box: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the entries of one sample that have a row for each of its boxes.

    They are "boxes", "boxes_valid", arrays whose names begin with "box_", and those of `per_box`.
    """
    names = []
    counted = {f"{name}_length" for name in per_box}  # such as the points of each polygon
    for name, value in sample.items():
        ours = name in ("boxes", VALID) or name in per_box
        many = jnp.ndim(value) > 0 and (name.startswith("box_") or name in counted)
        if ours or many:
            names.append(name)
    return tuple(names)


def check_box_columns(transform: Any, sample: Sample) -> None:
    """Raise where entries of the usual names would stay while boxes change places."""
    name = type(transform).__name__
    per_box = getattr(transform, "per_box", ())
    rows = jnp.shape(sample["boxes"])[:1]
    for column in USUAL_COLUMNS:
        if column not in per_box and jnp.shape(sample.get(column, 0))[:1] == rows:
            raise ValueError(
                f"`{column}` has a row for each box and would not go along with them: call it"
                f" 'box_{column}', write {name}(..., per_box=('{column}',)), or where it does not"
                " belong to boxes, give it another name."
            )
    for column in ("masks", "keypoints", "polygons"):
        if column not in per_box and jnp.shape(sample.get(column, 0))[:1] == rows:
            raise ValueError(
                f"`{column}` has a row for each box and would not go along with them: write"
                f" {name}(..., per_box=('{column}', ...)), or where they do not belong to boxes,"
                f' give them another name by Compose(..., targets={{name: "{column}"}}).'
            )


def with_kept_boxes(info: ImageInfo, kept: Array | None) -> ImageInfo:
    """Return `info` with the boxes that are kept first; None keeps all of them."""
    if kept is None or info.boxes is None:
        return info
    return info._replace(boxes=packed({"boxes": info.boxes}, kept)["boxes"])


def zeroed(boxes: Array, kept: Array) -> Array:
    """Return boxes [n, 4] with zeros for those that are not kept, bool[n]."""
    return jnp.where(kept[:, None], boxes, jnp.zeros_like(boxes))


def _rows(name: str, value: Any, count: int) -> Array:
    """Return an entry, checked to have so many rows."""
    rows = jnp.asarray(value)
    if rows.shape[:1] != (count,):
        raise ValueError(
            f"`{name}` must have a row for each of the {count} boxes, got {rows.shape}: names that"
            ' begin with "box_" are for such columns, and `per_box` names others.'
        )
    return rows


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
