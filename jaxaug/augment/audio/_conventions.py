"""What libraries mean by a spectrogram: windows, borders, mel filters, decibels, cepstra.

All tables are made in float64 of NumPy, once, and are constants of a program.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

LIKE = ("librosa", "torchaudio", "dali", "kaldi")


class Convention(NamedTuple):
    """What a library does where nothing else is said.

    Attributes:
      window: "hann" (periodic), "hann_half" (its samples half a step later) or "povey".
      border: before the first and after the last sample: "zero", "reflect", or None for no frame
        that reaches beyond the sound.
      padded: True where the transform is centered, and the window in it, by halves that are
        rounded down: an odd window in an even transform begins a sample earlier.
      mel: the scale, "slaney", "htk" or "kaldi" (of triangles in mel, not in Hz).
      slaney: divide each filter by its width in Hz.
      lowest: frequency of the filters in Hz.
      range_db: how far below the sample's maximum decibels are cut off; None for nowhere.
      reference: of decibels: a power, or "max", that of the sample.
      floor: the smallest power.
      natural: natural logarithms in place of decibels.
      lifter: of cepstra; 0 for none.
      orthonormal: scale the cosines of cepstra so that they are.
    """

    window: str
    border: str | None
    mel: str
    slaney: bool
    padded: bool = False
    lowest: float = 0.0
    range_db: float | None = None
    reference: Any = 1.0
    floor: float = 1e-10
    natural: bool = False
    lifter: int = 0
    orthonormal: bool = True


CONVENTIONS = {
    "librosa": Convention("hann", "zero", "slaney", slaney=True, padded=True, range_db=80.0),
    "torchaudio": Convention("hann", "reflect", "htk", slaney=False, padded=True),
    "dali": Convention(
        "hann_half",
        "reflect",
        "slaney",
        slaney=True,
        range_db=200.0,
        reference="max",
        floor=0.0,
        orthonormal=False,
    ),
    "kaldi": Convention(
        "povey",
        None,
        "kaldi",
        slaney=False,
        lowest=20.0,
        floor=float(np.finfo(np.float32).eps),
        natural=True,
        lifter=22,
    ),
}


def to_mel(hertz: Any, scale: str) -> Any:
    """Return frequencies in mel; `scale` as in `Convention`, an array of floats."""
    hertz = np.asarray(hertz, np.float64)
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    if scale == "kaldi":
        return 1127 * np.log(1 + hertz / 700)
    linear = hertz / (200 / 3)
    above = 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4)
    return np.where(hertz < 1000, linear, above)


def from_mel(mel: Any, scale: str) -> Any:
    """Return mel as frequencies in Hz."""
    mel = np.asarray(mel, np.float64)
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    if scale == "kaldi":
        return 700 * (np.exp(mel / 1127) - 1)
    return np.where(mel < 15, mel * (200 / 3), 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


@functools.cache
def mel_filters(
    rate: int, n_fft: int, count: int, low: float, high: float, scale: str, slaney: bool
) -> np.ndarray:
    """Return triangular filters, float64[n_fft // 2 + 1, count]."""
    bins = np.arange(n_fft // 2 + 1) * (rate / n_fft)
    mels = np.linspace(to_mel(low, scale), to_mel(high, scale), count + 2)
    if scale == "kaldi":
        edges, places = mels, to_mel(bins, scale)
    else:
        edges, places = from_mel(mels, scale), bins

    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (places[:, None] - left) / (center - left)
    falling = (right - places[:, None]) / (right - center)
    filters = np.maximum(0, np.minimum(rising, falling))
    if scale == "kaldi":
        filters[-1] = 0  # kaldi's filters do not read the Nyquist frequency
    return filters * (2 / (right - left)) if slaney else filters


@functools.cache
def cosines(bins: int, count: int, orthonormal: bool) -> np.ndarray:
    """Return the first `count` rows of the DCT-II as float64[bins, count]."""
    place = (np.arange(bins) + 0.5)[:, None]
    table = np.cos(np.pi / bins * place * np.arange(count))
    if orthonormal:
        table = table * np.sqrt(2 / bins)
        table[:, 0] /= np.sqrt(2)
    return table


def lifter(count: int, strength: int) -> np.ndarray:
    """Return the weights of cepstra: 1 + strength / 2 sin(pi k / strength)."""
    if strength == 0:
        return np.ones(count)
    return 1 + strength / 2 * np.sin(np.pi * np.arange(count) / strength)
