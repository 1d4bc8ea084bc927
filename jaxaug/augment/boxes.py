"""Boxes by themselves: formats, clipping, and the rows that are left."""

from collections.abc import Sequence

import jax.numpy as jnp

from jaxaug._checks import check_choice
from jaxaug._typing import Array, Sample, Scalar

BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
_COUNTS = ("box_count", "boxes_count")  # as `Coco`, and as the other sources name it


def convert_bounding_box_format(boxes: Array, old_format: str, new_format: str) -> Array:
    """Return boxes in another format.

    Args:
      boxes: float[..., 4], in pixels. Rows of zeros stay so.
      old_format, new_format: "xyxy" (left, top, right, bottom), "xywh" (left, top, width, height)
        or "cxcywh" (center, width, height).

    Example:
      >>> import jax.numpy as jnp
      >>> boxes = jnp.array([[1.0, 2.0, 5.0, 8.0]])
      >>> convert_bounding_box_format(boxes, "xyxy", "cxcywh").tolist()
      [[3.0, 5.0, 4.0, 6.0]]
    """
    check_choice("old_format", old_format, BOX_FORMATS)
    check_choice("new_format", new_format, BOX_FORMATS)
    if old_format == new_format:
        return boxes
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

    Example:
      >>> import jax.numpy as jnp
      >>> boxes = jnp.array([[-2.0, 1.0, 5.0, 9.0], [7.0, 0.0, 9.0, 2.0]])
      >>> clamp_bounding_boxes(boxes, 4, 6).tolist()
      [[0.0, 1.0, 5.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    """
    return clipped(boxes, (0, 0, width, height))


def clipped(boxes: Array, window: Sequence[Scalar]) -> Array:
    """Return xyxy boxes [n, 4] cut at a window (left, top, right, bottom); empty ones are zeros."""
    left, top, right, bottom = (jnp.asarray(side, boxes.dtype) for side in window)
    x0, x1 = (jnp.clip(boxes[:, i], left, right) for i in (0, 2))
    y0, y1 = (jnp.clip(boxes[:, i], top, bottom) for i in (1, 3))
    inside = (x1 > x0) & (y1 > y0)
    cut = jnp.stack([x0, y0, x1, y1], axis=1)
    return jnp.where(inside[:, None], cut, jnp.zeros_like(cut))


def area(boxes: Array) -> Array:
    """Return the areas [n] of xyxy boxes [n, 4]."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def present(boxes: Array) -> Array:
    """Return bool[n], False for the rows of zeros, which are padding."""
    return (boxes != 0).any(axis=1)


def packed(sample: Sample, keep: Array, per_box: Sequence[str]) -> Sample:
    """Return a sample whose kept boxes stand first, in their order; the other rows are padding.

    Args:
      sample: with "boxes" [n, 4].
      keep: bool[n].
      per_box: the names of the other entries with a row per box, which go along where present.
        Their padding is 0, that of integers -1.

    Returns:
      The sample with "boxes_valid" bool[n], and "box_count" or "boxes_count" brought up to date
      where there is one.
    """
    order = jnp.argsort(jnp.logical_not(keep))  # stable
    count = jnp.sum(keep, dtype=jnp.int32)
    valid = jnp.arange(keep.shape[0], dtype=jnp.int32) < count
    sample = {**sample, "boxes_valid": valid}
    for name in ("boxes", *per_box):
        if name in sample:
            sample[name] = _blanked(jnp.take(sample[name], order, axis=0), valid)
    for name in _COUNTS:
        if name in sample:
            sample[name] = count.astype(jnp.asarray(sample[name]).dtype)
    return sample


def _blanked(rows: Array, valid: Array) -> Array:
    blank = -1 if jnp.issubdtype(rows.dtype, jnp.signedinteger) else 0
    return jnp.where(
        valid.reshape(-1, *[1] * (rows.ndim - 1)), rows, jnp.asarray(blank, rows.dtype)
    )
