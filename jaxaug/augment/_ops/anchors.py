"""Targets of detectors with anchors: boxes matched to default boxes, and their offsets."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxaug.augment._warp import present


def encode_boxes(
    boxes: Array,
    labels: Array,
    anchors: Any,
    criteria: float = 0.5,
    variances: tuple[float, float] = (0.1, 0.2),
) -> tuple[Array, Array]:
    """Return the target of each anchor of a detector such as SSD: an offset and a label.

    An anchor belongs to the box with which its intersection over union is largest, where that is
    above `criteria`; a box that overlaps any has at least the one that fits it best, the last of
    several boxes that one. The offset is
    ((cx - ax) / aw / v0, (cy - ay) / ah / v0, log(w / aw) / v1, log(h / ah) / v1), of centers and
    sides.

    Args:
      boxes: float[n, 4], xyxy; rows of zeros are none.
      labels: int[n], from 0 on.
      anchors: float[m, 4], xyxy, in the units of the boxes.
      criteria: the least intersection over union, in [0, 1].
      variances: (v0, v1), what offsets are divided by.

    Returns:
      offsets float32[m, 4], zeros for the background, and labels int32[m]: 0 for the background,
      else one more than that of the box.

    Example:
      >>> import jax.numpy as jnp
      >>> anchors = jnp.array([[0.0, 0.0, 4.0, 4.0], [4.0, 4.0, 8.0, 8.0]])
      >>> offsets, labels = encode_boxes(anchors[:1], jnp.array([2]), anchors)
      >>> offsets.tolist()[0], labels.tolist()
      ([0.0, 0.0, 0.0, 0.0], [3, 0])

    Reference: W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016; DALI's
      `fn.box_encoder`, there without variances.
    """
    anchors, boxes = jnp.asarray(anchors, jnp.float32), jnp.asarray(boxes, jnp.float32)
    if boxes.shape[0] == 0:
        return jnp.zeros_like(anchors), jnp.zeros(anchors.shape[0], jnp.int32)
    here = present(boxes)
    overlap = jnp.where(here[:, None], _overlaps(boxes, anchors), -1.0)
    best_box = jnp.argmax(overlap, axis=0)
    share = jnp.max(overlap, axis=0, initial=-1.0)

    # The anchor that fits a box best is that box's, whatever else it fits.
    fits = jnp.max(overlap, axis=1) > 0
    best_anchor = jnp.where(fits, jnp.argmax(overlap, axis=1), anchors.shape[0])
    number = jnp.arange(boxes.shape[0], dtype=best_box.dtype)
    owner = jnp.full_like(best_box, -1).at[best_anchor].max(number, mode="drop")
    best_box = jnp.where(owner >= 0, owner, best_box)

    matched = (share > criteria) | (owner >= 0)
    centers, sides = _centers(boxes[best_box])
    own_centers, own_sides = _centers(anchors)
    least = jnp.finfo(jnp.float32).tiny
    moved = (centers - own_centers) / (own_sides * variances[0])
    stretched = jnp.log(jnp.maximum(sides, least) / own_sides) / variances[1]
    offsets = jnp.concatenate([moved, stretched], axis=1)
    found = jnp.where(matched, jnp.asarray(labels, jnp.int32)[best_box] + 1, 0)
    return jnp.where(matched[:, None], offsets, 0.0), found


def _overlaps(boxes: Array, anchors: Array) -> Array:
    """Return intersections over unions [n, m] of xyxy boxes."""
    low = jnp.maximum(boxes[:, None, :2], anchors[None, :, :2])
    high = jnp.minimum(boxes[:, None, 2:], anchors[None, :, 2:])
    sides = jnp.maximum(high - low, 0.0)
    common = sides[..., 0] * sides[..., 1]
    areas = [(each[:, 2] - each[:, 0]) * (each[:, 3] - each[:, 1]) for each in (boxes, anchors)]
    union = areas[0][:, None] + areas[1][None, :] - common
    return common / jnp.maximum(union, jnp.finfo(jnp.float32).tiny)


def _centers(boxes: Array) -> tuple[Array, Array]:
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
