"""Noise at a signal-to-noise ratio: white, or from recordings on the device."""

from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import AudioInfo, Converter, Range, as_optional, as_range_of
from jaxaug.augment.audio._kind import AudioOp, along, only_used
from jaxaug.augment.audio._sums import root_mean_square
from jaxaug.augment.audio.filters import as_bank
from jaxaug.augment.audio.level import amplitude
from jaxaug.augment.random import between, integer, normal_field, uniform

_LINE = 256  # samples of a row of the field that noise is drawn from


def white_noise(key: Key, shape: tuple[int, ...]) -> Array:
    """Draw standard normal numbers [N] or [N, C], each by the key and its place alone.

    Example:
      >>> import jax
      >>> key = jax.random.key(0)
      >>> bool((white_noise(key, (10,)) == white_noise(key, (999,))[:10]).all())
      True
    """
    lines = -(-shape[0] // _LINE)
    return normal_field(key, (lines, _LINE, *shape[1:])).reshape(-1, *shape[1:])[: shape[0]]


def add_noise(audio: Array, noise: Array, snr: Scalar, length: Array | int | None = None) -> Array:
    """Return audio + noise, scaled so that audio is `snr` decibels louder by its mean square.

    Args:
      audio: [N] or [N, C], zero beyond its length.
      noise: of the same shape.
      snr: in dB.
      length: how many rows are used; None for all.

    Example:
      >>> import jax.numpy as jnp
      >>> add_noise(jnp.array([1.0, -1.0]), jnp.array([3.0, 3.0]), 0.0).tolist()
      [2.0, 0.0]

    Reference: `torchaudio.functional.add_noise`.
    """
    info = AudioInfo(audio.shape[0], length)  # pyright: ignore[reportArgumentType]
    noise = only_used(noise, info)
    loudness = root_mean_square(noise, info.used)
    wanted = root_mean_square(audio, info.used) / amplitude(snr)
    return audio + noise * jnp.where(loudness > 0, wanted / loudness, 0.0)


@dataclass(frozen=True)
class AddNoise(AudioOp):
    """Add noise at a random signal-to-noise ratio.

    Args:
      snr: (low, high) in dB.
      bank: float[K, M], K recordings of M samples at the rate of the audio, which lie on the
        device: one is drawn, and begins at a random place, repeated where it is shorter. None is
        white noise.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noisy = AddNoise((0, 0))(jax.random.key(0), jnp.ones(10_000))
      >>> print(f"{(noisy - 1).std():.2f}")
      1.00
    """

    snr: Annotated[Range, Converter(as_range_of, -200, 200)] = (5.0, 30.0)
    bank: Annotated[Any, Converter(as_optional, as_bank)] = None
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> tuple[Array, Any]:
        """Draw the ratio, and the recording with its start, or the key of white noise."""
        numbers = uniform(key, shape=(3,))
        ratio = between(numbers[0], *self.snr)
        if self.bank is None:
            return ratio, jax.random.fold_in(key, 1)
        count, samples = self.bank.shape
        return ratio, (integer(numbers[1], 0, count), integer(numbers[2], 0, samples))

    def apply(self, params: tuple[Array, Any], audio: Array, info: AudioInfo) -> Array:
        """Return the noisy audio."""
        ratio, drawn = params
        if self.bank is None:
            noise = white_noise(drawn, audio.shape)
        else:
            number, start = drawn
            place = start + jnp.arange(info.samples, dtype=jnp.int32)
            line = self.bank[number, place % self.bank.shape[1]]
            noise = jnp.broadcast_to(along(line, audio), audio.shape)
        return add_noise(audio, noise, ratio, info.length)
