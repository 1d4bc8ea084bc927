"""Samples as pictures show them: pixels of screens, planes of masks, visible keypoints."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

COLORS = ("#ffd60a", "#00e5ff", "#ff4dd2", "#7cff4d", "#ff8c42", "#b794ff")
_CHANNELS = (1, 3, 4)
_MOST_WAVES = 8  # channels of a waveform; what has more beside time is features
_FRAME = 512  # samples of a frame of a spectrogram
_MOST_FRAMES = 256
_RANGE = 8.0  # decades of power that are seen
_IGNORED = 255  # of masks: no class, by custom


def viewable(
    image: Any, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0
) -> np.ndarray:
    """Return an image as uint8[h, w, 3]: of floats image * std + mean, clipped to [0, 1].

    Levels of uint16 are those of `augment`, 0 to 65,535: files of 12 bits are dark, unless `std` is
    16.

    Args:
      image: uint8, uint16, bool or floats; [h, w], [h, w, C] or [C, h, w] with C 1, 3 or 4. Of four
        channels the last is left out.
      mean, std: those of `Normalize`, a number or one for each channel.

    Raises:
      ValueError: for an image of another shape.
    """
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim == 3:
        pixels = channels_last(pixels)
    if pixels.ndim != 3 or pixels.shape[2] not in _CHANNELS:
        raise ValueError(
            "an image must be [h, w], [h, w, C] or [C, h, w] with 1, 3 or 4 channels, got"
            f" {list(np.shape(image))}: show the images of one batch, without further axes, and of"
            " many bands three, as show({'image': batch['image'][..., :3]})."
        )

    pixels = pixels[:, :, :3]
    if pixels.dtype != np.uint8:
        full = 65535 if pixels.dtype == np.uint16 else 1
        values = pixels.astype(np.float32) / full * np.asarray(std) + np.asarray(mean)
        pixels = np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def channels_last(images: np.ndarray) -> np.ndarray:
    """Return images [..., h, w, C] of such, or of [..., C, h, w], with C 1, 3 or 4."""
    if images.shape[-1] not in _CHANNELS and images.shape[-3] in _CHANNELS:
        return np.moveaxis(images, -3, -1)
    return images


def sound_of(sample: Mapping[str, Any]) -> tuple[np.ndarray | None, np.ndarray]:
    """Return what is used of the "audio": its waveform [N, C], None of features, and a picture.

    The picture is float[bins, T] in [0, 1], low frequencies first: the features, or the logarithms
    of a spectrogram.
    """
    audio = np.asarray(sample["audio"], np.float32)
    # Of a row that is not valid the first zero: there is nothing else to draw.
    audio = audio[: max(1, int(sample.get("audio_length", len(audio))))]
    if audio.ndim == 1 or audio.shape[1] <= _MOST_WAVES:
        waves = audio.reshape(len(audio), -1)
        return waves, _scaled(_spectrogram(waves.mean(axis=1)))
    return None, _scaled((audio if audio.ndim == 2 else audio.mean(axis=2)).T)


def _spectrogram(samples: np.ndarray) -> np.ndarray:
    """Return log10 of the powers of some frames, [bins, T], down to `_RANGE` below the largest."""
    count = min(_MOST_FRAMES, 1 + len(samples) // (_FRAME // 4))
    padded = np.pad(samples, _FRAME // 2)
    starts = np.linspace(0, len(samples), count).astype(int)
    frames = padded[starts[:, None] + np.arange(_FRAME)] * np.hanning(_FRAME)
    power = np.abs(np.fft.rfft(frames)).T ** 2
    return np.log10(np.maximum(power, max(power.max(), 1e-20) * 10**-_RANGE))


def _scaled(values: np.ndarray) -> np.ndarray:
    """Return finite values brought to [0, 1]."""
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    return (values - low) / (high - low if high > low else 1.0)


def planes(sample: Mapping[str, Any], canvas: tuple[int, ...]) -> list[tuple[int, np.ndarray]]:
    """Return (number, bool[h, w]) of each instance of "masks", and of the classes of "mask".

    Class 0, the background, and 255, no class, have none; class k has the number k - 1.
    """
    found = list(enumerate(np.asarray(sample.get("masks", ()), bool)))
    mask = np.asarray(sample.get("mask", ()))
    if mask.shape[:2] != canvas or mask.size != canvas[0] * canvas[1]:
        return found

    mask = mask.reshape(canvas)
    labels = [int(label) for label in np.unique(mask) if label not in (0, _IGNORED)]
    return found + [(label - 1, mask == label) for label in labels]


def visible_points(sample: Mapping[str, Any]) -> np.ndarray:
    """Return the (x, y) of the "keypoints" that are visible, [n, 2]."""
    points = np.asarray(sample.get("keypoints", np.zeros((0, 2))))
    if points.shape[1] == 2:
        return points
    return points[points[:, 2] > 0, :2]


def color_of(number: int) -> str:
    """Return the color of a box, an instance or a class as "#rrggbb"."""
    return COLORS[number % len(COLORS)]


def rgb_of(number: int) -> tuple[int, ...]:
    """Return the color of a box, an instance or a class as three bytes."""
    color = color_of(number)
    return tuple(int(color[k : k + 2], 16) for k in (1, 3, 5))
