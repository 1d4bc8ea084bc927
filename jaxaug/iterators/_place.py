"""The places of boxes, keypoints and masks on the canvas.

They follow their image: turned upright by its EXIF orientation, and scaled as it was.
"""

from collections.abc import Callable, Mapping
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

    A box of four zeros is a padding row and stays as it is, as does a keypoint of three.

    Args:
      features: "boxes" [n, k, 4] xyxy and "keypoints" [n, ..., 2] xy, edge coordinates, absolute
        pixels, or [n, ..., 3] with a visibility, which stays; also flat, boxes [n, 4 k] and
        keypoints [n, 2 k], as packed files have them. They leave as float32, flat ones as [n, k, 4]
        and [n, k, 2]; "boxes_count" beside flat boxes counts their numbers, and leaves as a count
        of boxes, "keypoints_count" likewise.
      size: int32[n, 2] (height, width) used on the canvas.
      original_size: int32[n, 2] (height, width) of the upright image.
      orientation: uint8[n], the EXIF orientation 1 to 8.

    Raises:
      ValueError: boxes or keypoints of another shape or count.
    """
    counts = _whole_counts("boxes", features, 4) | _whole_counts("keypoints", features, 2)

    def place(points: np.ndarray) -> np.ndarray:
        points = _turn_upright(points, original_size, orientation)
        return points * (size / original_size.astype(np.float32))[:, None, ::-1]

    return {**features, **counts, **_moved(features, place)}


def stored_points(
    features: Features, original_size: np.ndarray, orientation: np.ndarray, rows: np.ndarray
) -> dict[str, np.ndarray]:
    """Return features with "boxes" and "keypoints", of some rows moved from the upright image's
    pixels to the stored file's, as float32 in their own shape.

    Args:
      features, original_size, orientation: as `place_points` says.
      rows: bool[n], the rows to move; the others are in pixels of the stored file already.
    """

    def store(points: np.ndarray) -> np.ndarray:
        turned = _turn_back(points, original_size, orientation)
        return np.where(rows[:, None, None], turned, points)

    moved = _moved(features, store)
    shaped = {name: column.reshape(features[name].shape) for name, column in moved.items()}
    return {**features, **shaped}


def _moved(features: Features, move: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    """Return "boxes" and "keypoints", those there are, after `move` of points float32[n, k, 2]."""
    moved = {}
    if "keypoints" in features:
        points = _as_keypoints(features["keypoints"])
        places = move(points[..., :2].reshape(len(points), -1, 2)).reshape(*points.shape[:-1], 2)
        joined = np.concatenate([places, points[..., 2:]], axis=-1)
        padding = (points == 0).all(axis=-1, keepdims=True) & (points.shape[-1] == 3)
        moved["keypoints"] = np.where(padding, np.float32(0), joined).astype(np.float32)

    if "boxes" in features:
        boxes = _unflatten("boxes", features["boxes"], 4).astype(np.float32)
        corners = move(boxes.reshape(len(boxes), -1, 2)).reshape(*boxes.shape[:2], 2, 2)
        hulls = np.concatenate([corners.min(axis=2), corners.max(axis=2)], axis=-1)
        padding = (boxes == 0).all(axis=-1, keepdims=True)
        moved["boxes"] = np.where(padding, np.float32(0), hulls).astype(np.float32)

    return moved


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


def _as_keypoints(column: np.ndarray) -> np.ndarray:
    """Return the column as float32[n, ..., 2] or [n, ..., 3]."""
    column = np.asarray(column)
    if column.ndim < 3 or column.shape[-1] not in (2, 3):
        column = _unflatten("keypoints", column, 2)
    return column.astype(np.float32)


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


def _turn_upright(
    points: np.ndarray, original_size: np.ndarray, orientation: np.ndarray
) -> np.ndarray:
    """Return points float32[n, k, 2] (x, y) of the stored image transposed and mirrored."""
    return _mirror(_transpose(points, orientation), original_size, orientation)


def _turn_back(
    points: np.ndarray, original_size: np.ndarray, orientation: np.ndarray
) -> np.ndarray:
    """Return points float32[n, k, 2] (x, y) of the upright image where the stored one has them."""
    return _transpose(_mirror(points, original_size, orientation), orientation)


def _transpose(points: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    return np.where(TRANSPOSE[orientation][:, None, None], points[..., ::-1], points)


def _mirror(points: np.ndarray, original_size: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    flips = np.stack([FLIP_X[orientation], FLIP_Y[orientation]], axis=1)[:, None]
    sides = original_size[:, None, ::-1].astype(np.float32)
    return np.where(flips, sides - points, points)


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
