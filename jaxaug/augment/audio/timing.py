"""Time: shifts, speed, and parts that fall silent."""

from dataclasses import dataclass
from typing import Annotated

import jax.numpy as jnp
from jax import Array

from jaxaug._sinc import PERTURB, resample, resampled_length
from jaxaug._typing import Key
from jaxaug.augment._base import (
    AudioInfo,
    Converter,
    Range,
    as_choice,
    as_range_of,
    as_static_range,
)
from jaxaug.augment.audio._kind import AudioOp, along
from jaxaug.augment.random import between, uniform

STEPS = 1000  # of a speed of 1: speeds are rational, and so is the place that each sample reads


def shift(audio: Array, steps: Array | int, length: Array | int, mode: str = "wrap") -> Array:
    """Return audio moved `steps` samples later.

    Args:
      audio: [N] or [N, C], of which `length` rows are used.
      steps: how far, earlier if negative.
      length: of the sound; 0 to N.
      mode: "wrap" lets what leaves one end enter at the other, "zero" silence.

    Example:
      >>> import jax.numpy as jnp
      >>> shift(jnp.array([1.0, 2.0, 3.0, 0.0]), 1, 3).tolist()
      [3.0, 1.0, 2.0, 0.0]
    """
    place = jnp.arange(audio.shape[0], dtype=jnp.int32)
    source = place - steps
    inside = (source >= 0) & (source < length) & (place < length)
    if mode == "wrap":
        source = source % jnp.maximum(length, 1)
        inside = place < length
    return jnp.where(along(inside, audio), jnp.take(audio, source, axis=0, mode="clip"), 0.0)


@dataclass(frozen=True)
class TimeShift(AudioOp):
    """Move a sound in time by a random part of its length.

    Args:
      shift: (low, high), parts of the length, later if positive.
      mode: "wrap" lets what leaves one end enter at the other, "zero" silence.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> TimeShift((0.5, 0.5))(jax.random.key(0), jnp.arange(4.0)).tolist()
      [2.0, 3.0, 0.0, 1.0]
    """

    shift: Annotated[Range, Converter(as_range_of, -1, 1)] = (-0.5, 0.5)
    mode: Annotated[str, Converter(as_choice, ("wrap", "zero"))] = "wrap"
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> Array:
        """Draw the number of samples."""
        part = uniform(key, *self.shift)
        return jnp.round(part * jnp.asarray(info.used, jnp.float32)).astype(jnp.int32)

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the moved audio."""
        return shift(audio, params, info.used, self.mode)


def speed(audio: Array, thousandths: Array | int, fastest: float = 2.0) -> Array:
    """Return audio played at another speed, which changes its pitch, too: as many rows as before.

    Args:
      audio: [N] or [N, C], zero beyond its length.
      thousandths: the speed times 1000.
      fastest: the highest speed, static: it decides the number of taps.

    Example:
      >>> import jax.numpy as jnp
      >>> slow = speed(jnp.ones(200), 500)
      >>> slow.shape, round(float(slow[150]), 3)
      ((200,), 1.0)
    """
    samples = audio.shape[0]
    return resample(audio, STEPS, thousandths, samples=samples, shrink=fastest, design=PERTURB)


class Paced(AudioOp):
    """A transform that plays a sound at a speed drawn from a field `factor`, in thousandths."""

    factor: Range

    def make_params(self, key: Key, info: AudioInfo) -> Array:
        """Draw the speed in thousandths."""
        return jnp.round(uniform(key, *self.factor) * STEPS).astype(jnp.int32)

    def heard(self, params: Array, info: AudioInfo) -> AudioInfo:
        """Return the facts with the new length."""
        length = resampled_length(info.used, STEPS, params)
        return info._replace(length=jnp.minimum(length, info.samples))


@dataclass(frozen=True)
class Speed(Paced):
    """Play a sound faster or slower, its pitch changing along, by bandlimited interpolation.

    A slower sound that does not fit its array loses its end, a faster one ends earlier and has an
    "audio_length".

    Args:
      factor: (low, high), of which a multiple of 0.001 is drawn.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> twice = Speed((2.0, 2.0))(jax.random.key(0), {"audio": jnp.ones(200)})
      >>> int(twice["audio_length"])
      100

    Reference: T. Ko et al., "Audio Augmentation for Speech Recognition", Interspeech 2015.
    """

    factor: Annotated[Range, Converter(as_static_range, 0.1, 10)] = (0.9, 1.1)
    p: float = 1.0

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the audio at its speed."""
        return speed(audio, params, self.factor[1])


def silence(audio: Array, start: Array | int, count: Array | int) -> Array:
    """Return audio with `count` rows of zeros from `start`.

    Example:
      >>> import jax.numpy as jnp
      >>> silence(jnp.ones(4), 1, 2).tolist()
      [1.0, 0.0, 0.0, 1.0]
    """
    place = jnp.arange(audio.shape[0], dtype=jnp.int32)
    masked = (place >= start) & (place < start + count)
    return jnp.where(along(masked, audio), 0.0, audio)


@dataclass(frozen=True)
class TimeMask(AudioOp):
    """Silence a random part of a sound.

    Args:
      width: (low, high), parts of the length.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> masked = TimeMask((0.5, 0.5))(jax.random.key(0), jnp.ones(8))
      >>> int(masked.sum())
      4
    """

    width: Annotated[Range, Converter(as_range_of, 0, 1)] = (0.0, 0.25)
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> tuple[Array, Array]:
        """Draw start and width in samples."""
        numbers = uniform(key, shape=(2,))
        length = jnp.asarray(info.used, jnp.float32)
        count = jnp.round(between(numbers[0], *self.width) * length)
        start = jnp.floor(numbers[1] * (length - count + 1))
        return start.astype(jnp.int32), count.astype(jnp.int32)

    def apply(self, params: tuple[Array, Array], audio: Array, info: AudioInfo) -> Array:
        """Return the audio with the silent part."""
        return silence(audio, *params)
