"""Spectrograms: of linear and mel frequencies, in decibels, and cepstra.

`like` names the library whose window, borders, filters and decibels are meant. Frames are the
first axis of the result, bins the second; "audio_length" counts frames afterwards.
"""

import functools
import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._warn import warn_once
from jaxaug.augment._base import (
    AudioInfo,
    Converter,
    PositiveInt,
    as_choice,
    as_number,
    as_optional,
)
from jaxaug.augment._xla import barrier, barrier_on_cpu, rounded
from jaxaug.augment.audio._conventions import (
    CONVENTIONS,
    LIKE,
    Convention,
    cosines,
    lifter,
    mel_filters,
)
from jaxaug.augment.audio._kind import AudioOp, along, padded, used
from jaxaug.augment.audio.filters import RATE, preemphasis

_FULL_SCALE = 2.0**15  # kaldi's waveforms are integers of 16 bits
_KALDI_PREEMPHASIS = 0.97
_UNROLL = 16  # terms of a turn of a loop, which become one kernel


def frame_count(length: Array | int, hop: int, win: int, like: str = "librosa") -> Any:
    """Return the number of frames of a sound of `length` samples.

    Example:
      >>> frame_count(16_000, 160, 400), frame_count(16_000, 160, 400, "kaldi")
      (101, 98)
    """
    if CONVENTIONS[like].border is not None:
        return 1 + length // hop
    count = 1 + (length - win) // hop
    if isinstance(count, int):
        return max(count, 0)
    return jnp.maximum(count, 0)


def spectrogram(
    audio: Array,
    *,
    n_fft: int = 512,
    hop: int = 160,
    win: int = 400,
    power: float = 2.0,
    like: str = "librosa",
    length: Array | int | None = None,
) -> Array:
    """Return the magnitudes of short Fourier transforms to a power, [T, n_fft // 2 + 1].

    Args:
      audio: [N] or [N, C], zero beyond its length.
      n_fft: samples of a transform. Of an odd number librosa and torchaudio leave out a last frame
        about the sound's end.
      hop: samples between two frames.
      win: samples of the window, at most `n_fft`.
      power: 1 for magnitudes, 2 for powers.
      like: "librosa", "torchaudio", "dali" or "kaldi".
      length: rows of the audio that are used; None for all.

    Example:
      >>> import jax.numpy as jnp
      >>> spectrogram(jnp.ones(1600)).shape
      (11, 257)

    Differs from librosa and torchaudio in the order of axes: frames come first.
    """
    convention = CONVENTIONS[like]
    frames = _frames(audio, convention, n_fft, hop, win, length)
    spectrum = jnp.fft.rfft(frames, n_fft, axis=1)
    return magnitudes(spectrum, power)


def magnitudes(spectrum: Array, power: float = 1.0) -> Array:
    """Return |spectrum|^power, of a power of 1 or 2."""
    squares = spectrum.real**2 + spectrum.imag**2
    if power == 2:
        return squares
    # The root has no slope at 0.
    positive = jnp.where(squares > 0, squares, 1.0)
    return jnp.where(squares > 0, jnp.sqrt(positive), 0.0)


@functools.cache
def window(name: str, length: int) -> np.ndarray:
    """Return a window, float64[length]."""
    n = np.arange(length)
    if name == "hann":
        return 0.5 - 0.5 * np.cos(2 * np.pi * n / length)
    if name == "hann_half":
        return 0.5 - 0.5 * np.cos(2 * np.pi * (n + 0.5) / length)
    return (0.5 - 0.5 * np.cos(2 * np.pi * n / (length - 1))) ** 0.85


def _frames(
    audio: Array, convention: Convention, n_fft: int, hop: int, win: int, length: Any
) -> Array:
    """Return windowed frames [T, win, ...]."""
    samples = audio.shape[0]
    weights = window(convention.window, win).astype(np.float32)
    if convention.border is None:
        count = frame_count(samples, hop, win, "kaldi")
        return _windowed(_as_kaldi(audio * _FULL_SCALE, count, hop, win), weights)
    before = n_fft // 2 - (n_fft - win) // 2 if convention.padded else win // 2
    bordered = _bordered(audio, convention.border, (before, win - before), length)
    return _windowed(_cut(bordered, 1 + samples // hop, hop, win), weights)


def _cut(audio: Array, count: int, hop: int, win: int) -> Array:
    """Return frames [count, win, ...] of audio, `hop` samples apart, zero behind its end.

    They are lines of `hop` samples put side by side: a gather of single samples takes as long as
    half of the transforms.
    """
    blocks = -(-win // hop)
    rows = count + blocks - 1
    missing = max(0, rows * hop - audio.shape[0])
    lines = padded(audio, 0, missing)[: rows * hop].reshape(rows, hop, *audio.shape[1:])
    parts = [lines[j : j + count, : win - j * hop] for j in range(blocks)]
    return jnp.concatenate(parts, axis=1)


def _windowed(frames: Array, weights: np.ndarray) -> Array:
    return frames * weights.reshape(1, -1, *(1 for _ in frames.shape[2:]))


def _bordered(audio: Array, border: str, widths: tuple[int, int], length: Any) -> Array:
    """Return audio with borders before and after what is used, zero beyond its length."""
    samples = audio.shape[0]
    before, after = widths
    bordered = padded(audio, before, after)
    if border == "zero":
        return bordered
    last = jnp.asarray(samples if length is None else length, jnp.int32) - 1
    period = jnp.maximum(2 * last, 1)
    head = jnp.arange(-before, 0, dtype=jnp.int32)
    tail = last + jnp.arange(1, after + 1, dtype=jnp.int32)
    # Only the ends are gathered: a gather of all samples takes as long as the transforms.
    for place, start in ((head, jnp.int32(0)), (tail, last + 1 + before)):
        folded = jnp.abs((place + last) % period - last)
        end = jnp.take(audio, folded, axis=0, mode="clip")
        bordered = lax.dynamic_update_slice_in_dim(bordered, end, start, axis=0)
    return bordered


def _as_kaldi(audio: Array, count: int, hop: int, win: int) -> Array:
    """Return frames [count, win, ...] without their means, pre-emphasized."""
    step = math.gcd(hop, win)  # frames share sums of so many samples
    sums = _sums(_cut(audio, audio.shape[0] // step, step, step))[:, 0]
    means = _sums(_cut(sums, count, hop // step, win // step)) / win
    emphasized = jax.vmap(lambda frame: preemphasis(frame, _KALDI_PREEMPHASIS, "kaldi"))
    return emphasized(_cut(audio, count, hop, win) - means)


def _sums(values: Array) -> Array:
    """Return the sums [T, 1, ...] of values [T, n, ...], whose bits depend on nothing else."""
    return _projected(values, np.ones((values.shape[1], 1)))


def mel_scale(
    spectrum: Array,
    *,
    rate: int = RATE,
    n_mels: int = 80,
    low: float | None = None,
    high: float | None = None,
    like: str = "librosa",
) -> Array:
    """Return a spectrogram [T, bins, ...] in triangular bands of mel frequencies, [T, n_mels].

    Args:
      spectrum: of an even number of samples a transform.
      rate: of the audio, in Hz.
      n_mels: bands.
      low, high: their range in Hz; None for the library's lowest, and for half of the rate.
      like: "librosa" and "dali" are Slaney's scale and norm, "torchaudio" HTK's scale, "kaldi" its
        own.

    Example:
      >>> import jax.numpy as jnp
      >>> mel_scale(jnp.ones((11, 257))).shape
      (11, 80)
    """
    convention = CONVENTIONS[like]
    n_fft = 2 * (spectrum.shape[1] - 1)
    low = convention.lowest if low is None else low
    high = rate / 2 if high is None else high
    filters = mel_filters(rate, n_fft, n_mels, low, high, convention.mel, convention.slaney)
    if empty := int((filters == 0).all(axis=0).sum()):
        warn_once(
            f"{empty} of the {n_mels} mel bands from {low:g} to {high:g} Hz are always 0: none of"
            f" the {n_fft // 2 + 1} frequencies up to {rate / 2:g} Hz lies in them. Take a larger"
            " `n_fft`, a smaller `n_mels`, or a `high` of at most half of the `rate`."
        )
    return _projected(spectrum, filters)


def _projected(values: Array, table: np.ndarray) -> Array:
    """Return values [T, n, ...] times a table [n, m], [T, m, ...].

    A dot would be tiled by the batch size, and its bits with it. Each term adds a number to each
    column, from its first that is not zero on: of mel filters there are few. Terms that stand one
    behind the other are one pass over the memory, each turn of a loop is one. A term reads whole
    lines of frames, and no bins one by one.
    """
    filled = table != 0
    first = np.where(filled.any(axis=0), filled.argmax(axis=0), 0)
    extent = np.where(filled, np.arange(len(table))[:, None] + 1, 0).max(axis=0) - first
    terms = max(extent.max(), 1)
    turns = -(-terms // _UNROLL)
    unrolled = -(-terms // turns)
    place = first + np.arange(turns * unrolled)[:, None]
    inside = place < first + extent
    place = np.minimum(place, len(table) - 1)
    weights = np.where(inside, table[place, np.arange(table.shape[1])], 0.0).astype(np.float32)
    places, weights = jnp.asarray(place, jnp.int32), jnp.asarray(weights)
    lines = barrier(jnp.moveaxis(values, 1, 0))

    def turn(i: Any, total: Array) -> Array:
        for j in range(unrolled):
            k = i * unrolled + j
            read = jnp.take(lines, places[k], axis=0, mode="clip")
            total = total + rounded(read * along(weights[k], lines))
        return total

    start = lines[:1] * 0 + jnp.zeros((table.shape[1], *lines.shape[1:]), jnp.float32)
    total = turn(0, start) if turns == 1 else lax.fori_loop(0, turns, turn, start)
    return jnp.moveaxis(barrier_on_cpu(total), 0, 1)


def amplitude_to_db(
    values: Array, *, like: str = "librosa", power: float = 2.0, length: Any = None
) -> Array:
    """Return 10 log10 of powers, or 20 log10 of magnitudes.

    Args:
      values: at least 0, frames first.
      like: librosa's reference is 1, and nothing lies more than 80 dB below the sample's maximum;
        torchaudio's are cut off at -100 dB alone; dali's reference is the sample's maximum, and its
        range 200 dB; kaldi takes natural logarithms.
      power: of the values: 1 for magnitudes, 2 for powers.
      length: frames that are used; None for all.

    Example:
      >>> import jax.numpy as jnp
      >>> amplitude_to_db(jnp.array([[1.0, 0.01]])).round(3).tolist()
      [[0.0, -20.0]]
    """
    return _decibels(values, CONVENTIONS[like], power, length)


def _decibels(values: Array, convention: Convention, power: float, length: Any) -> Array:
    if power == 1:
        values = values**2
    if convention.natural:
        return jnp.log(jnp.maximum(values, convention.floor))
    info = AudioInfo(values.shape[0], length)
    most = jnp.max(jnp.where(along(used(info), values), values, 0.0), initial=0.0)
    if convention.reference == "max":
        values = values / jnp.where(most > 0, most, 1.0)
        lowest = 10 ** (-(convention.range_db or 0) / 10)
        return 10 * jnp.log10(jnp.maximum(values, lowest))
    decibels = 10 * jnp.log10(jnp.maximum(values, convention.floor))
    if convention.range_db is None:
        return decibels
    top = 10 * jnp.log10(jnp.maximum(most, convention.floor))
    return jnp.maximum(decibels, top - convention.range_db)


def cepstrum(
    values: Array, count: int, *, like: str = "librosa", strength: int | None = None
) -> Array:
    """Return the first `count` coefficients of the DCT-II of logarithms [T, n], [T, count].

    Args:
      values: logarithms of mel bands.
      count: of coefficients.
      like: "librosa", "torchaudio" and "kaldi" are orthonormal.
      strength: of the lifter, 0 for none; None for the library's, 22 for kaldi and 0 else.

    Example:
      >>> import jax.numpy as jnp
      >>> cepstrum(jnp.ones((2, 4)), 1).tolist()
      [[2.0], [2.0]]
    """
    convention = CONVENTIONS[like]
    strength = convention.lifter if strength is None else strength
    table = cosines(values.shape[1], count, convention.orthonormal)
    return _projected(values, table * lifter(count, strength))


@dataclass(frozen=True)
class Spectrogram(AudioOp):
    """The magnitudes of short Fourier transforms to a power: [N] to [T, n_fft // 2 + 1].

    Args:
      n_fft: samples of a transform.
      hop: samples between two frames.
      win: samples of the window, at most `n_fft`.
      power: 1 for magnitudes, 2 for powers.
      like: the library whose windows and borders are meant: "librosa" (periodic Hann, zeros),
        "torchaudio" (periodic Hann, reflected), "dali" (Hann half a sample later, reflected) or
        "kaldi" (its own window of frames inside the sound, without mean, pre-emphasized).

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Spectrogram()(jax.random.key(0), jnp.ones(1600)).shape
      (11, 257)
    """

    n_fft: PositiveInt = 512
    hop: PositiveInt = 160
    win: PositiveInt = 400
    _: KW_ONLY
    power: Annotated[float, Converter(as_choice, (1, 2))] = 2.0
    like: Annotated[str, Converter(as_choice, LIKE)] = "librosa"

    def __post_init__(self):
        super().__post_init__()
        if self.win > self.n_fft or self.n_fft % 2:
            raise ValueError(
                f"`n_fft` must be even and at least `win`, {self.win}, got {self.n_fft}."
            )

    def heard(self, params: None, info: AudioInfo) -> AudioInfo:
        """Return the facts of the frames."""
        frames = frame_count(info.samples, self.hop, self.win, self.like)
        length = info.length
        if length is not None:
            length = frame_count(length, self.hop, self.win, self.like)
            length = jnp.where(info.length == 0, 0, length)
        return info._replace(samples=frames, length=length, bins=self._bins())

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the spectrogram."""
        return spectrogram(
            audio,
            n_fft=self.n_fft,
            hop=self.hop,
            win=self.win,
            power=self.power,
            like=self.like,
            length=info.length,
        )

    def _bins(self) -> int:
        return self.n_fft // 2 + 1


@dataclass(frozen=True)
class MelSpectrogram(Spectrogram):
    """A spectrogram in triangular bands of mel frequencies: [N] to [T, n_mels].

    Args:
      n_fft, hop, win, power, like: see `Spectrogram`; `like` decides the filters, too.
      n_mels: bands.
      rate: of the audio, in Hz.
      low, high: their range in Hz; None for the library's lowest, and for half of the rate.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> MelSpectrogram()(jax.random.key(0), jnp.ones(1600)).shape
      (11, 80)

    Reference: `librosa.feature.melspectrogram`, `torchaudio.transforms.MelSpectrogram`,
      `nvidia.dali.fn.mel_filter_bank`.
    """

    n_mels: PositiveInt = 80
    rate: PositiveInt = RATE
    low: Annotated[float | None, Converter(as_optional, as_number, 0, 1e6)] = None
    high: Annotated[float | None, Converter(as_optional, as_number, 0, 1e6)] = None

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the mel spectrogram."""
        spectrum = super().apply(params, audio, info)
        return mel_scale(
            spectrum,
            rate=self.rate,
            n_mels=self.n_mels,
            low=self.low,
            high=self.high,
            like=self.like,
        )

    def _bins(self) -> int:
        return self.n_mels

    def _frames(self, info: AudioInfo) -> Any:
        """Return how many frames are used; None for all."""
        return MelSpectrogram.heard(self, None, info).length


@dataclass(frozen=True)
class LogMel(MelSpectrogram):
    """The logarithms of a mel spectrogram, in decibels; for "kaldi" natural ones, its fbank.

    Args:
      n_fft, hop, win, power, like, n_mels, rate, low, high: see `MelSpectrogram`; of decibels
        `AmplitudeToDB`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> LogMel(like="kaldi")(jax.random.key(0), jnp.ones(16_000)).shape
      (98, 80)

    Reference: `librosa.power_to_db` of `librosa.feature.melspectrogram`, Kaldi's
      compute-fbank-feats without dither.
    """

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the logarithms."""
        mel = super().apply(params, audio, info)
        return amplitude_to_db(mel, like=self.like, power=self.power, length=self._frames(info))


@dataclass(frozen=True)
class MFCC(LogMel):
    """Mel-frequency cepstral coefficients: [N] to [T, n_mfcc].

    Args:
      n_fft, hop, win, power, like, n_mels, rate, low, high: see `LogMel`.
      n_mfcc: coefficients, at most `n_mels`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> MFCC(n_mfcc=13)(jax.random.key(0), jnp.ones(1600)).shape
      (11, 13)

    Reference: `librosa.feature.mfcc`, `torchaudio.transforms.MFCC`, whose decibels reach 80 dB
      down from the maximum, Kaldi's compute-mfcc-feats with its lifter of 22 and without energy.
    """

    n_mfcc: PositiveInt = 13

    def __post_init__(self):
        super().__post_init__()
        if self.n_mfcc > self.n_mels:
            raise ValueError(f"`n_mfcc` must be at most `n_mels`, {self.n_mels}: {self.n_mfcc}.")

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the coefficients."""
        mel = MelSpectrogram.apply(self, params, audio, info)
        convention = CONVENTIONS[self.like]
        if self.like == "torchaudio":
            convention = convention._replace(range_db=80.0)
        logarithms = _decibels(mel, convention, self.power, self._frames(info))
        return cepstrum(logarithms, self.n_mfcc, like=self.like)

    def _bins(self) -> int:
        return self.n_mfcc


@dataclass(frozen=True)
class AmplitudeToDB(AudioOp):
    """Bring a spectrogram to decibels.

    Args:
      like: librosa's reference is 1, and nothing lies more than 80 dB below the sample's maximum;
        torchaudio's are cut off at -100 dB alone; dali's reference is the sample's maximum, and its
        range 200 dB; kaldi takes natural logarithms.
      power: of the values: 1 for magnitudes, 2 for powers.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> AmplitudeToDB()(jax.random.key(0), jnp.array([[1.0, 0.01]])).round(3).tolist()
      [[0.0, -20.0]]
    """

    takes = "features"

    like: Annotated[str, Converter(as_choice, LIKE)] = "librosa"
    power: Annotated[float, Converter(as_choice, (1, 2))] = 2.0

    def apply(self, params: None, audio: Array, info: AudioInfo) -> Array:
        """Return the decibels."""
        return amplitude_to_db(audio, like=self.like, power=self.power, length=info.length)
