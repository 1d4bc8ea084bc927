"""The places of boxes, keypoints and masks on the canvas.

They follow their image: turned upright by its EXIF orientation, and scaled as it was.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxaug._typing import Array, Features
from jaxaug.decode._orientation import FLIP_X, FLIP_Y, TRANSPOSE


def place_points(
    features: Features, size: np.ndarray, original_size: np.ndarray, orientation: np.ndarray
) -> dict[str, np.ndarray]:
    """Move "boxes" and "keypoints" from the stored file's pixels to the canvas; other features
    stay.

    A box of four zeros is a padding row and stays as it is.

    Args:
      features: "boxes" [n, k, 4] xyxy and "keypoints" [n, k, 2] xy, edge coordinates, absolute
        pixels; also flat, [n, 4 k] and [n, 2 k], as packed files have them. They leave as
        float32[n, k, 4] and [n, k, 2]; "boxes_count" beside flat boxes counts their numbers, and
        leaves as a count of boxes, "keypoints_count" likewise.
      size: int32[n, 2] (height, width) used on the canvas.
      original_size: int32[n, 2] (height, width) of the upright image.
      orientation: uint8[n], the EXIF orientation 1 to 8.

    Raises:
      ValueError: boxes or keypoints of another shape or count.
    """
    placed = dict(features)
    placed |= _whole_counts("boxes", features, 4)
    placed |= _whole_counts("keypoints", features, 2)
    if "keypoints" in features:
        points = _unflatten("keypoints", features["keypoints"], 2)
        placed["keypoints"] = _place(points, size, original_size, orientation)

    if "boxes" in features:
        boxes = _unflatten("boxes", features["boxes"], 4)
        corners = _place(boxes.reshape(len(boxes), -1, 2), size, original_size, orientation)
        corners = corners.reshape(*boxes.shape[:2], 2, 2)
        low = corners.min(axis=2)
        high = corners.max(axis=2)
        moved = np.concatenate([low, high], axis=-1)
        padding = (boxes == 0).all(axis=-1, keepdims=True)
        placed["boxes"] = np.where(padding, np.float32(0), moved)

    return placed


def _whole_counts(name: str, features: Features, numbers: int) -> dict[str, np.ndarray]:
    """Return the count beside a flat column, of boxes or keypoints instead of their numbers."""
    column = features.get(name)
    count = features.get(f"{name}_count")
    if column is None or count is None or column.ndim != 2:
        return {}
    if (count % numbers).any():
        raise ValueError(
            f"feature {name!r} must have {numbers} numbers for each of its {name}, got a record "
            f"with {count[count % numbers != 0][0]} in all: other data needs another name."
        )
    return {f"{name}_count": count // numbers}


def _unflatten(name: str, column: np.ndarray, numbers: int) -> np.ndarray:
    """Return the column as [n, k, numbers]."""
    column = np.asarray(column)
    flat = column.ndim == 2 and column.shape[1] % numbers == 0
    if not flat and (column.ndim != 3 or column.shape[2] != numbers):
        raise ValueError(
            f"feature {name!r} must have {numbers} numbers for each of k {name}, "
            f"[n, k, {numbers}] or flat [n, {numbers} k], got {list(column.shape)}: other data "
            "needs another name."
        )
    return column.reshape(len(column), -1, numbers)


def _place(
    points: np.ndarray, size: np.ndarray, original_size: np.ndarray, orientation: np.ndarray
) -> np.ndarray:
    """Return points float[n, k, 2] (x, y) transposed, mirrored and scaled."""
    height = original_size[:, :1].astype(np.float32)
    width = original_size[:, 1:].astype(np.float32)
    x = points[..., 0].astype(np.float32)
    y = points[..., 1].astype(np.float32)

    transposed = TRANSPOSE[orientation][:, None]
    x, y = np.where(transposed, y, x), np.where(transposed, x, y)
    x = np.where(FLIP_X[orientation][:, None], width - x, x)
    y = np.where(FLIP_Y[orientation][:, None], height - y, y)

    scale_x = size[:, 1:] / width
    scale_y = size[:, :1] / height
    return np.stack([x * scale_x, y * scale_y], axis=-1).astype(np.float32)


def mask_names(features: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns of masks: "mask", and "masks" [n, k, Hm, Wm] of instances."""
    names = [name for name in ("mask", "masks") if name in features]
    return [name for name in names if name == "mask" or len(features[name].shape) == 4]


def check_masks(
    name: str,
    mask: np.ndarray,
    original_size: np.ndarray,
    orientation: np.ndarray,
    valid: np.ndarray,
    indices: np.ndarray,
) -> None:
    """Refuse masks [n, Hm, Wm(, C)], or [n, k, Hm, Wm] of instances, that are smaller than the
    stored image of a valid row.

    Raises:
      ValueError: names the record and both sizes.
    """
    transposed = TRANSPOSE[orientation][:, None]
    stored = np.where(transposed, original_size[:, ::-1], original_size)
    sides = mask.shape[2:4] if name == "masks" else mask.shape[1:3]
    larger = (stored > np.array(sides)).any(axis=1)
    small = valid & larger
    if not small.any():
        return

    row = int(np.flatnonzero(small)[0])
    height, width = stored[row].tolist()
    raise ValueError(
        f"feature {name!r} must be at least as large as its stored image, {height} x {width} "
        f"pixels in record {int(indices[row])}, got {sides[0]} x {sides[1]}: its top-left part "
        "is used, so pad masks of images of different sizes to the largest. Data that is no mask "
        "needs another name."
    )


def check_mask_shape(shape: tuple[int, ...]) -> None:
    """Refuse a column of masks that is not [n, Hm, Wm] or [n, Hm, Wm, C]."""
    if len(shape) not in (3, 4):
        raise ValueError(
            "feature 'mask' must be [n, height, width] or [n, height, width, channels], got "
            f"{list(shape)}: other data needs another name."
        )


def place_masks(masks: Array, **place: Any) -> Array:
    """Return the masks of instances [k, Hm, Wm] on the canvas, [k, H, W], see `place_mask`."""
    return jnp.moveaxis(place_mask(jnp.moveaxis(masks, 0, -1), **place), -1, 0)


def place_mask(
    mask: Array,
    size: Array,
    original_size: Array,
    orientation: Array,
    canvas: tuple[int, int],
    fill: int,
) -> Array:
    """Return one mask on the canvas.

    Its top-left part is turned upright and shrunk with nearest; `fill` is elsewhere. Pixel i of
    `size` takes pixel floor((i + 1/2) original / size) of the upright image, in integers, so that
    every device picks the same one.

    Args:
      mask: [Hm, Wm] or [Hm, Wm, C], at least as large as the stored image.
      size: int32[2] (height, width) used on the canvas.
      original_size: int32[2] (height, width) of the upright image.
      orientation: uint8, the EXIF orientation 1 to 8.
      canvas: (H, W).
      fill: the value outside of `size`.

    Returns:
      [H, W] or [H, W, C] of the mask's dtype.
    """
    y, y_inside = _nearest_pixels(canvas[0], size[0], original_size[0])
    x, x_inside = _nearest_pixels(canvas[1], size[1], original_size[1])
    y = jnp.where(jnp.asarray(FLIP_Y)[orientation], original_size[0] - 1 - y, y)
    x = jnp.where(jnp.asarray(FLIP_X)[orientation], original_size[1] - 1 - x, x)

    rows = jnp.broadcast_to(y[:, None], canvas)
    columns = jnp.broadcast_to(x[None, :], canvas)
    transposed = jnp.asarray(TRANSPOSE)[orientation]
    rows, columns = jnp.where(transposed, columns, rows), jnp.where(transposed, rows, columns)
    rows = jnp.clip(rows, 0, mask.shape[0] - 1)
    columns = jnp.clip(columns, 0, mask.shape[1] - 1)
    placed = mask[rows, columns]

    inside = y_inside[:, None] & x_inside[None, :]
    inside = inside.reshape(inside.shape + (1,) * (placed.ndim - 2))
    return jnp.where(inside, placed, jnp.asarray(fill, placed.dtype))


def _nearest_pixels(length: int, size: Array, original: Array) -> tuple[Array, Array]:
    """Return the upright image's pixel for each of `length` on the canvas.

    The second array, bool[length], is True for those that the image covers; of the others the pixel
    may lie beyond the image.
    """
    position = jnp.arange(length, dtype=jnp.int32)
    pixel = (2 * position + 1) * original // (2 * size)
    return pixel, position < size
