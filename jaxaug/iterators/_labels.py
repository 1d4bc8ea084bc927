"""Boxes and keypoints follow their image onto the canvas: upright by its EXIF orientation, scaled as it was."""

import numpy as np

from jaxaug._typing import Features

_TRANSPOSED, _MIRRORED_X, _MIRRORED_Y = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)  # EXIF 2.3, tag 0x0112


def place_features(
    features: Features, size: np.ndarray, original_size: np.ndarray, orientation: np.ndarray
) -> dict[str, np.ndarray]:
    """Move "boxes" and "keypoints" from the stored file's pixels to the canvas; other features stay.

    Args:
      features: "boxes" [n, k, 4] xyxy and "keypoints" [n, k, 2] xy, edge coordinates, absolute pixels; also flat,
        [n, 4 k] and [n, 2 k], as packed files have them. They leave as float32[n, k, 4] and [n, k, 2].
      size: int32[n, 2] (height, width) used on the canvas.
      original_size: int32[n, 2] (height, width) of the upright image.
      orientation: uint8[n], the EXIF orientation 1 to 8.

    Raises:
      ValueError: boxes or keypoints of another shape.
    """
    placed = dict(features)
    if "keypoints" in features:
        points = _unflatten("keypoints", features["keypoints"], 2)
        placed["keypoints"] = _place(points, size, original_size, orientation)
    if "boxes" in features:
        boxes = _unflatten("boxes", features["boxes"], 4)
        corners = _place(boxes.reshape(len(boxes), -1, 2), size, original_size, orientation)
        corners = corners.reshape(*boxes.shape[:2], 2, 2)
        placed["boxes"] = np.concatenate([corners.min(axis=2), corners.max(axis=2)], axis=-1)
    return placed


def _unflatten(name: str, column: np.ndarray, numbers: int) -> np.ndarray:
    """The column as [n, k, numbers]."""
    column = np.asarray(column)
    flat = column.ndim == 2 and column.shape[1] % numbers == 0
    if not flat and (column.ndim != 3 or column.shape[2] != numbers):
        raise ValueError(
            f"feature {name!r} must have {numbers} numbers for each of k {name}, [n, k, {numbers}] or flat "
            f"[n, {numbers} k], got {list(column.shape)}: what is no {name} needs another name."
        )
    return column.reshape(len(column), -1, numbers)


def _place(points: np.ndarray, size: np.ndarray, original_size: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """Transpose, mirror, scale points float[n, k, 2] (x, y)."""
    height, width = original_size[:, :1].astype(np.float32), original_size[:, 1:].astype(np.float32)
    x, y = points[..., 0].astype(np.float32), points[..., 1].astype(np.float32)
    transposed = np.isin(orientation, _TRANSPOSED)[:, None]
    x, y = np.where(transposed, y, x), np.where(transposed, x, y)
    x = np.where(np.isin(orientation, _MIRRORED_X)[:, None], width - x, x)
    y = np.where(np.isin(orientation, _MIRRORED_Y)[:, None], height - y, y)
    scale_y, scale_x = size[:, :1] / np.maximum(height, 1), size[:, 1:] / np.maximum(width, 1)
    return np.stack([x * scale_x, y * scale_y], axis=-1).astype(np.float32)
