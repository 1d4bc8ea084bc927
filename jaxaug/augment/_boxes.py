"""The targets of an image: masks go through its resample, boxes and keypoints through the inverse
map.
"""

from typing import Any

import jax.numpy as jnp

from jaxaug._typing import Array, Scalar
from jaxaug.augment._resample import read_exactly
from jaxaug.augment._warp import Warp
from jaxaug.augment.matrix import Matrix, inverse, transform_points

TARGETS = ("mask", "boxes", "keypoints")


def move_targets(
    sample: dict[str, Any],
    extent: tuple[Scalar, Scalar],
    warp: Warp,
    padding_mode: str,
    mask_fill: int,
) -> dict[str, Any]:
    """Move the "mask", "boxes" and "keypoints" of `sample` as `warp` moves the image.

    Args:
      sample: "mask" [H, W] or [H, W, C], read with "nearest"; "boxes" float[n, 4], xyxy in pixels,
        half-open; "keypoints" float[n, 2], (x, y) in pixels. Everything else is left as it is.
      extent: the used (height, width) of the source.
      warp: the pull map.
      padding_mode: what the mask reads outside of the source.
      mask_fill: what "constant" puts there, see `mask_value`.

    Returns:
      A new dict. Boxes are the hulls of their moved corners; nothing is clipped. Rows of boxes that
      are all zero are padding and stay so.
    """
    moved = dict(sample)
    if "mask" in sample:
        moved["mask"] = _move_mask(sample["mask"], extent, warp, padding_mode, mask_fill)
    if "boxes" in sample or "keypoints" in sample:
        push = inverse(warp.matrix)
        if "boxes" in sample:
            moved["boxes"] = move_boxes(push, sample["boxes"])
        if "keypoints" in sample:
            moved["keypoints"] = move_points(push, sample["keypoints"])
    return moved


def move_points(push: Matrix, points: Array) -> Array:
    """Return the (x, y) rows of float[n, 2] through `push`."""
    points = _floating("keypoints", points, 2)
    x, y, _ = transform_points(push, points[:, 0], points[:, 1])
    return jnp.stack([x, y], axis=1).astype(points.dtype)


def move_boxes(push: Matrix, boxes: Array) -> Array:
    """Return the hulls of the corners of float[n, 4] through `push`; zero rows stay zero."""
    boxes = _floating("boxes", boxes, 4)
    x, y, _ = transform_points(push, boxes[:, (0, 2, 2, 0)], boxes[:, (1, 1, 3, 3)])
    hull = [x.min(axis=1), y.min(axis=1), x.max(axis=1), y.max(axis=1)]
    moved = jnp.stack(hull, axis=1).astype(boxes.dtype)
    return jnp.where((boxes == 0).all(axis=1, keepdims=True), boxes, moved)


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
            f"`mask_fill` must fit the mask's {jnp.dtype(dtype).name} ({limits.min} to {limits.max}),"
            f" got {mask_fill}: give Compose(..., mask_fill=...) another value, or the mask another"
            " dtype."
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
