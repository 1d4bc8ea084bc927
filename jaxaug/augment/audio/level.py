"""Loudness: gain, polarity, clipping, and levels that all sounds share."""

from dataclasses import dataclass
from typing import Annotated

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import AudioInfo, Converter, Range, as_choice, as_number, as_range_of
from jaxaug.augment.audio._kind import AudioOp, along, used
from jaxaug.augment.audio._sums import bin_means, mean, root_mean_square
from jaxaug.augment.random import uniform

_SILENCE = 1e-10  # amplitude, -200 dB: below it nothing is amplified


def amplitude(decibels: Scalar) -> Scalar:
    """Return the factor of an amplitude: 10^(dB / 20).

    Example:
      >>> amplitude(20.0)
      10.0
    """
    return 10.0 ** (decibels / 20.0)


def gain(audio: Array, db: Scalar) -> Array:
    """Return audio amplified by `db` decibels: audio * 10^(db / 20).

    Example:
      >>> import jax.numpy as jnp
      >>> gain(jnp.array([0.5, -0.25]), 20.0).tolist()
      [5.0, -2.5]

    Reference: `torchaudio.functional.gain`.
    """
    return audio * amplitude(db)


@dataclass(frozen=True)
class Gain(AudioOp):
    """Amplify by a random number of decibels.

    Args:
      db: (low, high) in dB, or one number.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Gain(db=(20, 20))(jax.random.key(0), jnp.array([0.5])).tolist()
      [5.0]
    """

    db: Annotated[Range, Converter(as_range_of, -200, 200)] = (-6.0, 6.0)
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> Array:
        """Draw the decibels."""
        return uniform(key, *self.db)

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the amplified audio."""
        return gain(audio, params)


@dataclass(frozen=True)
class PolarityInversion(AudioOp):
    """Turn the sign of every sample.

    Args:
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PolarityInversion(p=1.0)(jax.random.key(0), jnp.array([0.5])).tolist()
      [-0.5]
    """

    p: float = 0.5

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the inverted audio."""
        return -audio


def clip(audio: Array, level: Scalar) -> Array:
    """Return audio cut off at -level and level.

    Example:
      >>> import jax.numpy as jnp
      >>> clip(jnp.array([0.5, -0.75]), 0.5).tolist()
      [0.5, -0.5]
    """
    return jnp.clip(audio, -level, level)


@dataclass(frozen=True)
class Clip(AudioOp):
    """Cut the peaks off, as an overdriven recording does.

    Args:
      db: (low, high), at most 0: where to cut, in dB below the highest peak.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Clip(db=(-20, -20))(jax.random.key(0), jnp.array([1.0, -0.05])).tolist()
      [0.10000000149011612, -0.05000000074505806]
    """

    db: Annotated[Range, Converter(as_range_of, -200, 0)] = (-12.0, 0.0)
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> Array:
        """Draw the level."""
        return uniform(key, *self.db)

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the audio, cut off relative to its peak."""
        return clip(audio, jnp.max(jnp.abs(audio)) * amplitude(params))


@dataclass(frozen=True)
class Normalize(AudioOp):
    """Bring every sound to one level.

    Args:
      to: "peak", the largest absolute value, or "rms", the root of the mean square.
      db: that level, in dB of full scale; 0 is an amplitude of 1.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Normalize()(jax.random.key(0), jnp.array([0.25, -0.5])).tolist()
      [0.5, -1.0]

    Silence stays silent.
    """

    to: Annotated[str, Converter(as_choice, ("peak", "rms"))] = "peak"
    db: Annotated[Scalar, Converter(as_number, -200, 200)] = 0.0

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the audio at its level."""
        peak = jnp.max(jnp.abs(audio), initial=0.0)
        level = peak if self.to == "peak" else root_mean_square(audio, info.used)
        return audio * (amplitude(self.db) / jnp.where(level > _SILENCE, level, jnp.inf))


@dataclass(frozen=True)
class Standardize(AudioOp):
    """Bring every sound to a mean of 0 and a standard deviation of 1, over what is used of it.

    Args:
      over: "all" takes one mean and deviation of the whole array, "bins" one of each bin of
        features, or of each channel of a waveform.
      epsilon: added to the variance.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Standardize()(jax.random.key(0), jnp.array([1.0, 3.0])).round(3).tolist()
      [-1.0, 1.0]
    """

    takes = "either"

    over: Annotated[str, Converter(as_choice, ("all", "bins"))] = "all"
    epsilon: Annotated[Scalar, Converter(as_number, 0, 1)] = 1e-7

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the standardized audio."""
        centered = audio - self._mean(audio, info)
        centered = jnp.where(along(used(info), audio), centered, 0.0)
        variance = self._mean(centered**2, info)
        return centered / jnp.sqrt(jnp.maximum(variance + self.epsilon, 1e-30))

    def _mean(self, values: Array, info: AudioInfo) -> Array:
        """Return a mean, or one of each bin [1, ...]."""
        return (
            bin_means(values, info.used)[None] if self.over == "bins" else mean(values, info.used)
        )
