"""What moves with the image: masks through the same resample, boxes and keypoints through the inverse map."""

from typing import Any

import jax.numpy as jnp

from jaxaug._typing import Array, Scalar
from jaxaug.augment._factor import Factor
from jaxaug.augment._matrix import Matrix, inverse, transform_points
from jaxaug.augment._resample import resample


def move_targets(sample: dict[str, Any], extent: tuple[Scalar, Scalar], factor: Factor, padding_mode: str):
    """`sample` with its "mask", "boxes" and "keypoints" moved as `factor` moves the image.

    Args:
      sample: "mask" [H, W] or [H, W, C], read with "nearest" and filled with 0; "boxes" float[n, 4], xyxy in
        pixels, half-open; "keypoints" float[n, 2], (x, y) in pixels. Everything else is left as it is.
      extent: the used (height, width) of the source.
      factor: the pull map.
      padding_mode: what the mask reads outside of the source.

    Returns:
      A new dict. Boxes are the hulls of their moved corners; nothing is clipped.
    """
    moved = dict(sample)
    if "mask" in sample:
        moved["mask"] = _move_mask(jnp.asarray(sample["mask"]), extent, factor, padding_mode)
    if "boxes" in sample or "keypoints" in sample:
        push = inverse(factor.matrix)
        if "boxes" in sample:
            moved["boxes"] = move_boxes(push, sample["boxes"])
        if "keypoints" in sample:
            moved["keypoints"] = move_points(push, sample["keypoints"])
    return moved


def move_points(push: Matrix, points: Array) -> Array:
    """The (x, y) rows of float[n, 2] through `push`."""
    points = _floating("keypoints", points, 2)
    x, y, _ = transform_points(push, points[:, 0], points[:, 1])
    return jnp.stack([x, y], axis=1).astype(points.dtype)


def move_boxes(push: Matrix, boxes: Array) -> Array:
    """The hulls of the corners of float[n, 4] (x0, y0, x1, y1) through `push`."""
    boxes = _floating("boxes", boxes, 4)
    x, y, _ = transform_points(push, boxes[:, (0, 2, 2, 0)], boxes[:, (1, 1, 3, 3)])
    hull = [x.min(axis=1), y.min(axis=1), x.max(axis=1), y.max(axis=1)]
    return jnp.stack(hull, axis=1).astype(boxes.dtype)


def _move_mask(mask: Array, extent, factor: Factor, padding_mode: str) -> Array:
    planes = mask if mask.ndim == 3 else mask[:, :, None]
    moved = resample(planes, extent, factor, "nearest", padding_mode)
    return moved if mask.ndim == 3 else moved[:, :, 0]


def _floating(name: str, value: Array, columns: int) -> Array:
    value = jnp.asarray(value)
    if value.ndim != 2 or value.shape[1] != columns or not jnp.issubdtype(value.dtype, jnp.floating):
        got = f"{value.dtype}{list(value.shape)}"
        raise ValueError(f"`{name}` must be float[n, {columns}] in pixels, got {got}.")
    return value
