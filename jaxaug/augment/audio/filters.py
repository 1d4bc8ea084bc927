"""Filters: low and high passes, rooms, pre-emphasis."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxaug._checks import is_int
from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    AudioInfo,
    Converter,
    Flag,
    PositiveInt,
    Range,
    as_choice,
    as_number,
    as_range_of,
)
from jaxaug.augment._xla import rounded
from jaxaug.augment.audio._kind import AudioOp, along, padded
from jaxaug.augment.audio._sums import total
from jaxaug.augment.random import between, integers, uniform

RATE = 16_000  # Hz: what models of speech take, and `decode.Audio` gives


def as_bank(name: str, value: Any) -> Array:
    """Return recordings float32[K, M]; of one recording [M] a bank of one."""
    bank = value if isinstance(value, (jax.Array, Tracer)) else jnp.asarray(np.asarray(value))
    bank = bank[None] if bank.ndim == 1 else bank
    if bank.ndim != 2 or 0 in bank.shape or not jnp.issubdtype(bank.dtype, jnp.floating):
        got = f"{bank.dtype}{list(bank.shape)}"
        raise ValueError(f"`{name}` must be floats [K, M], K recordings of M samples, got {got}.")
    return bank.astype(jnp.float32)


def _as_taps(name: str, value: Any) -> int:
    if not is_int(value) or value < 3 or value % 2 == 0:
        raise ValueError(f"`{name}` must be an odd int of at least 3, got {value!r}.")
    return int(value)


def convolve(audio: Array, impulse: Array) -> Array:
    """Return the convolution of audio with an impulse response, as many rows as before.

    y(n) = sum_k h(k) x(n - k), by an FFT of both with room for their tails.

    Args:
      audio: [N] or [N, C].
      impulse: [M].

    Example:
      >>> import jax.numpy as jnp
      >>> convolve(jnp.array([1.0, 0.0, 0.0]), jnp.array([0.5, 0.25])).round(4).tolist()
      [0.5, 0.25, 0.0]

    Reference: `scipy.signal.fftconvolve`.
    """
    samples = audio.shape[0]
    size = 1 << (samples + impulse.shape[0] - 2).bit_length()
    response = along(jnp.fft.rfft(impulse, size), audio)
    spectrum = jnp.fft.rfft(audio, size, axis=0) * response
    return jnp.fft.irfft(spectrum, size, axis=0)[:samples].astype(audio.dtype)


def low_pass_taps(cutoff: Scalar, taps: int) -> Array:
    """Return the taps of a low pass: a sinc under Hamming's window, their sum 1.

    Args:
      cutoff: parts of the Nyquist frequency, 0 to 1.
      taps: an odd number.

    Example:
      >>> print(" ".join(f"{tap:.3f}" for tap in low_pass_taps(0.5, 3)))
      0.046 0.908 0.046

    Reference: `scipy.signal.firwin`.
    """
    place = jnp.arange(taps, dtype=jnp.float32) - (taps - 1) / 2
    angle = np.float32(np.pi) * (cutoff * place)
    center = angle == 0
    # jnp.sinc cannot be traced inside of jax.shard_map by jax 0.12.
    sinc = jnp.where(center, 1.0, jnp.sin(angle) / jnp.where(center, 1.0, angle))
    kernel = sinc * np.hamming(taps).astype(np.float32)
    return kernel / total(kernel)


def _filtered(audio: Array, kernel: Array) -> Array:
    """Return audio through a symmetric kernel, without its delay."""
    half = kernel.shape[0] // 2
    tail = padded(audio, 0, half)
    return convolve(tail, kernel)[half:]


def low_pass(audio: Array, cutoff: Scalar, *, rate: int = RATE, taps: int = 255) -> Array:
    """Return audio without what lies above `cutoff`, by a symmetric filter: nothing is delayed.

    Args:
      audio: [N] or [N, C].
      cutoff: Hz, where half of the amplitude is left.
      rate: of the audio, in Hz.
      taps: of the filter, odd; more are steeper.

    Example:
      >>> import jax.numpy as jnp
      >>> low_pass(jnp.ones(600), 1000.0).shape
      (600,)
    """
    return _filtered(audio, low_pass_taps(cutoff / (rate / 2), taps))


def high_pass(audio: Array, cutoff: Scalar, *, rate: int = RATE, taps: int = 255) -> Array:
    """Return audio without what lies below `cutoff`: the audio less its `low_pass`.

    Example:
      >>> import jax.numpy as jnp
      >>> bool(jnp.abs(high_pass(jnp.ones(600), 1000.0)[300]) < 1e-5)
      True
    """
    return audio - low_pass(audio, cutoff, rate=rate, taps=taps)


def band_stop(
    audio: Array, low: Scalar, high: Scalar, *, rate: int = RATE, taps: int = 255
) -> Array:
    """Return audio without what lies between `low` and `high`: their `low_pass` and `high_pass`.

    Example:
      >>> import jax.numpy as jnp
      >>> band_stop(jnp.ones(600), 1000.0, 2000.0).shape
      (600,)
    """
    nyquist = rate / 2
    band = low_pass_taps(high / nyquist, taps) - low_pass_taps(low / nyquist, taps)
    return audio - _filtered(audio, band)


@dataclass(frozen=True)
class LowPass(AudioOp):
    """Take out what lies above a random frequency, as telephones do.

    Args:
      cutoff: (low, high) in Hz, where half of the amplitude is left.
      rate: of the audio, in Hz.
      taps: of the filter, odd; more are steeper.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> LowPass()(jax.random.key(0), jnp.ones(600)).shape
      (600,)
    """

    cutoff: Annotated[Range, Converter(as_range_of, 0, 1e6)] = (2000.0, 7000.0)
    _: KW_ONLY
    rate: PositiveInt = RATE
    taps: Annotated[int, Converter(_as_taps)] = 255
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> Array:
        """Draw the frequency."""
        return uniform(key, *self.cutoff)

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the filtered audio."""
        return low_pass(audio, params, rate=self.rate, taps=self.taps)


@dataclass(frozen=True)
class HighPass(LowPass):
    """Take out what lies below a random frequency.

    Args:
      cutoff: (low, high) in Hz, where half of the amplitude is left.
      rate: of the audio, in Hz.
      taps: of the filter, odd; more are steeper.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> HighPass()(jax.random.key(0), jnp.ones(600)).shape
      (600,)
    """

    cutoff: Annotated[Range, Converter(as_range_of, 0, 1e6)] = (20.0, 1000.0)

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the filtered audio."""
        return high_pass(audio, params, rate=self.rate, taps=self.taps)


@dataclass(frozen=True)
class BandStop(AudioOp):
    """Take a random band of frequencies out.

    Args:
      center: (low, high) of its middle, in Hz.
      width: (low, high) of its width, in parts of its middle.
      rate: of the audio, in Hz.
      taps: of the filter, odd; more are steeper.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> BandStop()(jax.random.key(0), jnp.ones(600)).shape
      (600,)

    Reference: the frequency masks of time-domain SpecAugment, as in audiomentations'
      BandStopFilter.
    """

    center: Annotated[Range, Converter(as_range_of, 0, 1e6)] = (200.0, 4000.0)
    width: Annotated[Range, Converter(as_range_of, 0, 2)] = (0.5, 1.5)
    _: KW_ONLY
    rate: PositiveInt = RATE
    taps: Annotated[int, Converter(_as_taps)] = 255
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> tuple[Array, Array]:
        """Draw the ends of the band, at most half of the rate."""
        numbers = uniform(key, shape=(2,))
        center = between(numbers[0], *self.center)
        half = between(numbers[1], *self.width) * center / 2
        nyquist = self.rate / 2
        return jnp.minimum(center - half, nyquist), jnp.minimum(center + half, nyquist)

    def apply(self, params: tuple[Array, Array], audio: Array, info: AudioInfo) -> Array:
        """Return the filtered audio."""
        return band_stop(audio, *params, rate=self.rate, taps=self.taps)


@dataclass(frozen=True)
class RoomImpulse(AudioOp):
    """Put a sound into a random room: convolve it with one of some impulse responses.

    Args:
      bank: float[K, M], K responses of M samples at the rate of the audio, which lie on the device.
      normalize: divide each by the root of its energy, so that loudness stays about the same.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> echo = RoomImpulse(jnp.array([[1.0, 0.0, 0.5]]), normalize=False)
      >>> echo(jax.random.key(0), jnp.array([1.0, 0.0, 0.0])).round(4).tolist()
      [1.0, 0.0, 0.5]
    """

    bank: Annotated[Any, Converter(as_bank)]
    normalize: Flag = True
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> Array:
        """Draw the response."""
        return integers(key, 0, self.bank.shape[0])

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the audio in its room."""
        impulse = self.bank[params]
        if self.normalize:
            energy = total(impulse**2)
            impulse = impulse / jnp.sqrt(jnp.where(energy > 0, energy, 1.0))
        return convolve(audio, impulse)


# What stands before the first sample, from the first two.
_BEFORE = {
    "torchaudio": lambda first, second: jnp.zeros_like(first),
    "kaldi": lambda first, second: first,
    "dali": lambda first, second: first,
    # librosa's initial state is a sample of its own, and not times the coefficient.
    "librosa": None,
}


def preemphasis(audio: Array, coefficient: Scalar = 0.97, like: str = "torchaudio") -> Array:
    """Return y(n) = x(n) - coefficient * x(n - 1), which lifts high frequencies.

    Args:
      audio: [N] or [N, C].
      coefficient: 0 to 1.
      like: what stands before the first sample: "torchaudio" silence, "kaldi" and "dali" the first
        sample again, "librosa" what extrapolates the first two.

    Example:
      >>> import jax.numpy as jnp
      >>> preemphasis(jnp.array([1.0, 1.0, 0.0]), 0.5).tolist()
      [1.0, 0.5, -0.5]
    """
    first, second = audio[:1], audio[1:2]
    before = _BEFORE[like]
    if before is None:
        start = rounded(3 * first) - second
    else:
        start = first - rounded(coefficient * before(first, second))
    return jnp.concatenate([start, audio[1:] - rounded(coefficient * audio[:-1])])


@dataclass(frozen=True)
class Preemphasis(AudioOp):
    """Lift high frequencies: y(n) = x(n) - coefficient * x(n - 1).

    Args:
      coefficient: 0 to 1.
      like: "librosa", "torchaudio", "dali" or "kaldi", which differ in the first sample.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Preemphasis(0.5)(jax.random.key(0), jnp.array([1.0, 1.0, 0.0])).tolist()
      [1.0, 0.5, -0.5]
    """

    coefficient: Annotated[Scalar, Converter(as_number, 0, 1)] = 0.97
    like: Annotated[str, Converter(as_choice, tuple(_BEFORE))] = "torchaudio"

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the filtered audio."""
        return preemphasis(audio, self.coefficient, self.like)
