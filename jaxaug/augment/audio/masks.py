"""SpecAugment: bands of time and of frequency that a model does not see, and bent time."""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._checks import is_int
from jaxaug._typing import Key
from jaxaug.augment._base import AudioInfo, Converter, as_choice, as_number
from jaxaug.augment.audio._kind import AudioOp, along
from jaxaug.augment.audio._sums import mean
from jaxaug.augment.random import uniform


def _as_count(name: str, value: Any) -> int:
    """Return an int of at least 0."""
    if not is_int(value) or value < 0:
        raise ValueError(f"`{name}` must be an int of at least 0, got {value!r}.")
    return int(value)


def mask_bands(features: Array, axis: int, start: Array, width: Array, fill: Any = 0.0) -> Array:
    """Return features with `fill` in bands of one axis.

    Args:
      features: [T, bins] or [T, bins, C].
      axis: 0 for time, 1 for frequency.
      start, width: int32[n], of n bands.
      fill: a number, or an array that broadcasts.

    Example:
      >>> import jax.numpy as jnp
      >>> mask_bands(jnp.ones((1, 4)), 1, jnp.array([1]), jnp.array([2])).tolist()
      [[1.0, 0.0, 0.0, 1.0]]
    """
    place = jnp.arange(features.shape[axis], dtype=jnp.int32)[:, None]
    masked = ((place >= start[None]) & (place < (start + width)[None])).any(axis=1)
    shape = [1] * features.ndim
    shape[axis] = -1
    return jnp.where(masked.reshape(shape), fill, features)


def warp_time(features: Array, center: Array, moved: Array, length: Array | int) -> Array:
    """Return features whose frame `center` lies at `moved`, the frames between interpolated.

    Args:
      features: [T, bins] or [T, bins, C], of which `length` frames are used.
      center, moved: float, strictly between 0 and length - 1.
      length: frames.

    Example:
      >>> import jax.numpy as jnp
      >>> warp_time(jnp.arange(7.0)[:, None], 3.0, 2.0, 7)[:, 0].tolist()
      [0.0, 1.5, 3.0, 3.75, 4.5, 5.25, 6.0]
    """
    last = jnp.asarray(length, jnp.float32) - 1
    place = jnp.arange(features.shape[0], dtype=jnp.float32)
    before = place * center / moved
    after = center + (place - moved) * (last - center) / (last - moved)
    source = jnp.clip(jnp.where(place < moved, before, after), 0, jnp.maximum(last, 0))
    lower = jnp.floor(source)
    weight = along(source - lower, features)
    lower = lower.astype(jnp.int32)
    first = jnp.take(features, lower, axis=0, mode="clip")
    upper = jnp.minimum(lower + 1, jnp.maximum(last, 0).astype(jnp.int32))
    second = jnp.take(features, upper, axis=0, mode="clip")
    return first + weight * (second - first)


class SpecAugmentParams(NamedTuple):
    """What `SpecAugment` draws.

    Attributes:
      time, frequency: starts and widths of the masks, int32[n] each.
      warp: (center, moved), floats; None without a warp.
    """

    time: tuple[Array, Array]
    frequency: tuple[Array, Array]
    warp: Any


@dataclass(frozen=True)
class SpecAugment(AudioOp):
    """Mask bands of time and frequency of features, after bending their time.

    A mask is as wide as a number drawn uniformly from 0 to its largest width, and lies anywhere
    inside of what is used.

    Args:
      time_masks: how many masks of time.
      time_width: their largest width in frames.
      frequency_masks: how many masks of frequency.
      frequency_width: their largest width in bins.
      warp: the largest distance in frames by which a random frame is moved; 0 for none. Sounds of
        less than 2 warp + 3 frames are not bent.
      time_share: the largest width of a mask of time as a part of the frames that are used, too.
      fill: "zero", or "mean", the mean of the features that are used.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> SpecAugment()(jax.random.key(0), jnp.ones((100, 80))).shape
      (100, 80)

    Reference: D. Park et al., "SpecAugment: A Simple Data Augmentation Method for Automatic Speech
      Recognition", Interspeech 2019.

    Differs from the paper in interpolating linearly between frames where it warps.
    """

    takes = "features"

    time_masks: Annotated[int, Converter(_as_count)] = 2
    time_width: Annotated[int, Converter(_as_count)] = 40
    frequency_masks: Annotated[int, Converter(_as_count)] = 2
    frequency_width: Annotated[int, Converter(_as_count)] = 27
    warp: Annotated[int, Converter(_as_count)] = 0
    time_share: Annotated[float, Converter(as_number, 0, 1)] = 1.0
    fill: Annotated[str, Converter(as_choice, ("zero", "mean"))] = "zero"
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> SpecAugmentParams:
        """Draw the masks and the warp."""
        count = self.time_masks + self.frequency_masks
        numbers = uniform(key, shape=(count + 1, 2))
        length = jnp.asarray(info.used, jnp.float32)
        widest = jnp.minimum(jnp.float32(self.time_width), jnp.floor(self.time_share * length))
        time = _bands(numbers[: self.time_masks], widest, length)
        bins = jnp.float32(info.bins or 0)
        frequency = _bands(
            numbers[self.time_masks : count],
            jnp.minimum(jnp.float32(self.frequency_width), bins),
            bins,
        )
        return SpecAugmentParams(time, frequency, self._warp(numbers[count], length))

    def apply(self, params: SpecAugmentParams, audio: Array, info: AudioInfo) -> Array:
        """Return the masked features."""
        if params.warp is not None:
            center, moved = params.warp
            audio = warp_time(audio, center, moved, info.used)
        fill = 0.0 if self.fill == "zero" else mean(audio, info.used)
        audio = mask_bands(audio, 0, *params.time, fill)
        return mask_bands(audio, 1, *params.frequency, fill)

    def _warp(self, numbers: Array, length: Array) -> tuple[Array, Array] | None:
        """Return the frame that moves, and where to: nowhere in what is too short."""
        if self.warp == 0:
            return None
        enough = length >= 2 * self.warp + 3
        low = jnp.float32(self.warp + 1)
        center = low + jnp.floor(numbers[0] * jnp.maximum(length - 2 * low, 1.0))
        moved = center + jnp.floor(numbers[1] * (2 * self.warp + 1)) - self.warp
        middle = jnp.maximum(length - 1, 2.0) / 2
        return jnp.where(enough, center, middle), jnp.where(enough, moved, middle)


def _bands(numbers: Array, widest: Array, length: Array) -> tuple[Array, Array]:
    """Return starts and widths of numbers [n, 2] of [0, 1)."""
    width = jnp.floor(numbers[:, 0] * (widest + 1))
    start = jnp.floor(numbers[:, 1] * (length - width + 1))
    return start.astype(jnp.int32), width.astype(jnp.int32)
