"""Shrinking pixels of any depth and number of channels, antialiased; what has no data is left out.

The filter is that of `PIL.Image.resize` with BILINEAR, a triangle as wide as the scale: the 8-bit
images of other decoders are shrunk by it as well.
"""

import numpy as np

Size = tuple[int, int]


def shrink(
    pixels: np.ndarray, size: Size, dtype: np.dtype, nodata: float | None, alpha: bool = False
) -> np.ndarray:
    """Return pixels [h, w, channels] at a smaller size (height, width).

    Where some pixels have no data, the mean is that of the others; where none has, it is `nodata`,
    or NaN. Each channel is by itself, but colors count as much as they are opaque.

    Args:
      dtype: of the result; integers are rounded to the nearest.
      nodata: the number of pixels without data; NaN always is.
      alpha: the last channel is one.

    Example:
      >>> shrink(np.array([[[1.0], [3.0]]]), (1, 1), np.dtype(np.float32), nodata=3)[0, 0]
      array([1.], dtype=float32)
    """
    if pixels.shape[:2] == size:
        return pixels
    *colors, last = (pixels[..., k] for k in range(pixels.shape[2]))
    opacity = last.astype(np.float32) if alpha else None
    channels = [_shrink_channel(color, size, dtype, nodata, opacity) for color in colors]
    return np.stack([*channels, _shrink_channel(last, size, dtype, nodata, None)], axis=-1)


def _shrink_channel(
    channel: np.ndarray,
    size: Size,
    dtype: np.dtype,
    nodata: float | None,
    opacity: np.ndarray | None,
) -> np.ndarray:
    if opacity is not None and (opacity == opacity.flat[0]).all():
        opacity = None
    if dtype == np.uint8 and nodata is None and opacity is None:
        return _resize(channel.astype(np.uint8), size)

    empty = np.zeros(channel.shape, np.bool_) if nodata is None else channel == nodata
    if channel.dtype.kind == "f":
        empty = empty | np.isnan(channel)
    numbers = channel.astype(np.float32)
    if not empty.any() and opacity is None:
        return _as(_resize(numbers, size), dtype)

    numbers[empty] = 0
    there = (~empty).astype(np.float32)
    opaque = there if opacity is None else there * opacity
    mean = _mean(numbers, there, size)
    mean[np.isnan(mean)] = np.nan if nodata is None else nodata
    if opacity is not None:
        shown = _mean(numbers, opaque, size)
        mean = np.where(np.isnan(shown), mean, shown)  # nothing is seen of the others
    return _as(mean, dtype)


def _mean(numbers: np.ndarray, weight: np.ndarray, size: Size) -> np.ndarray:
    """Return the weighted mean, NaN where the weights are 0."""
    sums = _resize(numbers * weight, size)
    total = _resize(weight, size)
    return np.where(total > 0, sums / np.where(total > 0, total, 1), np.nan)


def _resize(channel: np.ndarray, size: Size) -> np.ndarray:
    from PIL import Image

    height, width = size
    image = Image.fromarray(np.ascontiguousarray(channel))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def _as(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f":
        return numbers.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    return np.clip(np.floor(numbers + 0.5), limits.min, limits.max).astype(dtype)
