"""The targets of an image: masks go through its resample, boxes and keypoints through the map from
its source to its output.
"""

from typing import Any

import jax.numpy as jnp

from jaxaug._typing import Array, Sample, Scalar
from jaxaug.augment._info import ImageInfo
from jaxaug.augment._resample import read_exactly
from jaxaug.augment._warp import Warp

TARGETS = ("mask", "boxes", "keypoints")
_SIDE_POINTS = 32  # a chord of a 32nd of a side misses a bend by a hundredth of a pixel or so


def move_targets(
    sample: Sample,
    extent: tuple[Scalar, Scalar],
    warp: Warp,
    padding_mode: str,
    mask_fill: int,
) -> Sample:
    """Return `sample` with its "mask", "boxes" and "keypoints" moved as `warp` moves the image.

    Args:
      sample: "mask" [H, W] or [H, W, C], read with "nearest"; "boxes" float[n, 4], xyxy in pixels,
        half-open; "keypoints" float[n, 2], (x, y) in pixels. Everything else is left as it is.
      extent: the used (height, width) of the source.
      warp: the pull map.
      padding_mode: says what the mask reads outside of the source.
      mask_fill: the label that "constant" puts there, see `mask_value`.
    """
    moved = dict(sample)
    if "mask" in sample:
        moved["mask"] = _move_mask(sample["mask"], extent, warp, padding_mode, mask_fill)
    if "boxes" in sample:
        moved["boxes"] = move_boxes(warp, sample["boxes"])
    if "keypoints" in sample:
        moved["keypoints"] = move_points(warp, sample["keypoints"])
    return moved


def moved_info(info: ImageInfo, warp: Warp) -> ImageInfo:
    """Return the facts about an image after `warp`."""
    boxes = None if info.boxes is None else move_boxes(warp, info.boxes)
    return ImageInfo(warp.canvas, warp.size, boxes, info.epoch)


def move_points(warp: Warp, points: Array) -> Array:
    """Return the (x, y) rows of float[n, 2], moved."""
    points = _floating("keypoints", points, 2)
    x, y = warp.push(*points.astype(jnp.float32).T)
    return jnp.stack([x, y], axis=1).astype(points.dtype)


def move_boxes(warp: Warp, boxes: Array) -> Array:
    """Return the hulls of float[n, 4], moved and not clipped; rows of zeros are padding and stay.

    A matrix takes the hull of the corners to the hull of the box; a bend does not, so that its hull
    is that of points all along the sides.
    """
    boxes = as_boxes(boxes)
    x, y = warp.push(*_outline(boxes.astype(jnp.float32), _SIDE_POINTS if warp.bends else 1))
    hull = [x.min(axis=1), y.min(axis=1), x.max(axis=1), y.max(axis=1)]
    moved = jnp.stack(hull, axis=1).astype(boxes.dtype)
    return jnp.where((boxes == 0).all(axis=1, keepdims=True), boxes, moved)


def as_boxes(boxes: Array) -> Array:
    """Return float[n, 4] boxes, checked."""
    return _floating("boxes", boxes, 4)


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


def check_mask(mask: Array, image: Array) -> None:
    """Raise where `mask` does not cover `image` pixel for pixel."""
    if mask.ndim not in (2, 3) or mask.shape[:2] != image.shape[:2]:
        height, width = image.shape[:2]
        raise ValueError(
            f"`mask` must be [H, W] or [H, W, C] of its image's height and width: expected"
            f" ({height}, {width}) or ({height}, {width}, C) beside the image {image.shape}, got"
            f" {mask.shape}."
        )


def mask_value(dtype: Any, mask_fill: int) -> Array:
    """Return what a mask of `dtype` holds where there is no image: `mask_fill`, False or 0.0."""
    if dtype == jnp.bool_ or not jnp.issubdtype(dtype, jnp.integer):
        return jnp.zeros((), dtype)
    limits = jnp.iinfo(dtype)
    if not limits.min <= mask_fill <= limits.max:
        raise ValueError(
            f"`mask_fill` must fit the mask's {jnp.dtype(dtype).name} ({limits.min} to"
            f" {limits.max}), got {mask_fill}: give Compose(..., mask_fill=...) another value, or"
            " the mask another dtype."
        )
    return jnp.asarray(mask_fill, dtype)


def fill_unused(mask: Array, used: Array, mask_fill: int) -> Array:
    """Return `mask` with its `mask_value` outside of `used`, bool[H, W]."""
    used = used if mask.ndim == 2 else used[:, :, None]
    return jnp.where(used, mask, mask_value(mask.dtype, mask_fill))


def _move_mask(mask: Array, extent, warp: Warp, padding_mode: str, mask_fill: int) -> Array:
    planes = mask if mask.ndim == 3 else mask[:, :, None]
    fill = mask_value(mask.dtype, mask_fill)
    moved = read_exactly(planes, extent, warp, padding_mode, fill)
    return moved if mask.ndim == 3 else moved[:, :, 0]


def _floating(name: str, value: Array, columns: int) -> Array:
    value = jnp.asarray(value)
    if (
        value.ndim != 2
        or value.shape[1] != columns
        or not jnp.issubdtype(value.dtype, jnp.floating)
    ):
        got = f"{value.dtype}{list(value.shape)}"
        raise ValueError(f"`{name}` must be float[n, {columns}] in pixels, got {got}.")
    return value
