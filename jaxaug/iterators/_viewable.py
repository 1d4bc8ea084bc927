"""Pixels as screens take them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_CHANNELS = (1, 3, 4)


def viewable(
    image: Any, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0
) -> np.ndarray:
    """Return an image as uint8[h, w, 3]: of floats image * std + mean, clipped to [0, 1].

    Args:
      image: uint8, bool or floats; [h, w], [h, w, C] or [C, h, w] with C 1, 3 or 4. Of four
        channels the last is left out.
      mean, std: those of `Normalize`, a number or one for each channel.

    Raises:
      ValueError: for an image of another shape.
    """
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS and pixels.shape[0] in _CHANNELS:
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.ndim != 3 or pixels.shape[2] not in _CHANNELS:
        raise ValueError(
            "an image must be [h, w], [h, w, C] or [C, h, w] with 1, 3 or 4 channels, got"
            f" {list(np.shape(image))}: show the images of one batch, without further axes."
        )

    pixels = pixels[:, :, :3]
    if pixels.dtype != np.uint8:
        values = pixels.astype(np.float32) * np.asarray(std) + np.asarray(mean)
        pixels = np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
