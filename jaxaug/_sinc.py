"""Bandlimited interpolation: sound at another rate, for decoders and transforms.

y(n) = sum_k x(k) c sinc(c t) w(t / W), t = k - n down / up, with Kaiser's window w of half-width W
and a cutoff c below the half of the lower rate. Each output is a sum in one order, so that its bits
do not depend on the batch.

Reference: J. O. Smith, "Digital Audio Resampling Home Page",
  https://ccrma.stanford.edu/~jos/resample/.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_DEGREE = 9  # by which the window is off by 2e-8
_UNROLL = 8  # taps of one turn of the loop, which become one kernel


class Filter(NamedTuple):
    """A low pass by Kaiser's formulas.

    Attributes:
      zeros: half of its width, in samples of the lower rate.
      attenuation: of the stop band, in dB.
    """

    zeros: int
    attenuation: float

    @property
    def beta(self) -> float:
        """The shape of the window."""
        return 0.1102 * (self.attenuation - 8.7)

    @property
    def cutoff(self) -> float:
        """The middle of the transition, which ends at 1, the half of the lower rate."""
        return 1 - (self.attenuation - 8) / (2.285 * math.pi * 4 * self.zeros)


RESAMPLE = Filter(zeros=76, attenuation=100.0)  # the pass band ends at 0.916, as of soxr's HQ
PERTURB = Filter(zeros=32, attenuation=80.0)


def resampled_length(length: Array | int, up: Array | int, down: Array | int) -> Array:
    """Return ceil(length * up / down) without overflow, int32."""
    length, up, down = (jnp.asarray(n, jnp.int32) for n in (length, up, down))
    whole, rest = length // down, length % down
    return whole * up + (rest * up + down - 1) // down


def resample(
    audio: Array,
    up: Array | int,
    down: Array | int,
    *,
    samples: int,
    shrink: float,
    first: int = 0,
    design: Filter = RESAMPLE,
) -> Array:
    """Return audio at up / down times its rate.

    Args:
      audio: float32 [N] or [N, C], zero beyond its length.
      up, down: int32 without a common divisor, maybe traced; their product fits int32.
      samples: rows of the result.
      shrink: the largest down / up, static; it decides the number of taps.
      first: the row of the audio at which the result begins.
      design: of the low pass.
    """
    audio = jnp.asarray(audio)
    up, down = jnp.asarray(up, jnp.int32), jnp.asarray(down, jnp.int32)
    n = jnp.arange(samples, dtype=jnp.int32)
    within = (n % up) * down
    rest = within % up
    # From the nearest sample: a sine near 0 must not be a difference of large numbers.
    later = (2 * rest >= up).astype(jnp.int32)
    base = first + (n // up) * down + within // up + later
    fraction = (rest - later * up).astype(jnp.float32) / up.astype(jnp.float32)
    scale = jnp.minimum(1.0, up.astype(jnp.float32) / down.astype(jnp.float32))
    taps = _Taps(fraction, scale, design)

    half = math.ceil(design.zeros * max(1.0, shrink))
    trailing = (1,) * (audio.ndim - 1)

    def add(k: Array, total: Array) -> Array:
        read = audio.at[base + k].get(mode="fill", fill_value=0.0)
        read = jnp.where((base + k >= 0).reshape(-1, *trailing), read, 0.0)
        return total + taps.weights(k).reshape(-1, *trailing) * read

    def turn(i: Array, total: Array) -> Array:
        for j in range(_UNROLL):
            total = add(jnp.asarray(i, jnp.int32) * _UNROLL + jnp.int32(j - half), total)
        return total

    turns = math.ceil((2 * half + 1) / _UNROLL)
    start = audio[:1] * 0 + jnp.zeros((samples, *audio.shape[1:]), jnp.float32)
    return lax.fori_loop(0, turns, turn, start)


class _Taps:
    """The weights of a filter at the places of all outputs."""

    def __init__(self, fraction: Array, scale: Array, design: Filter):
        self._fraction = fraction
        self._cutoff = scale * design.cutoff
        self._per_width = scale / design.zeros
        angle = jnp.pi * self._cutoff * fraction
        self._sin, self._cos = jnp.sin(angle), jnp.cos(angle)
        self._window = _kaiser_polynomial(design.beta)

    def weights(self, k: Array) -> Array:
        """Return the weight of the k-th sample from each output's place."""
        t = k.astype(jnp.float32) - self._fraction
        turn = jnp.pi * jnp.mod(self._cutoff * k.astype(jnp.float32), 2.0)
        # sin(pi c (k - fraction)): a sine for each output and tap would cost most of the time.
        sine = jnp.sin(turn) * self._cos - jnp.cos(turn) * self._sin
        away = jnp.where(t == 0, 1.0, t)
        sinc = jnp.where(t == 0, self._cutoff, sine / (jnp.pi * away))
        v = 1 - (t * self._per_width) ** 2
        window = jnp.zeros_like(v)
        for coefficient in self._window:
            window = window * v + coefficient
        return jnp.where(v > 0, sinc * window, 0.0)


def _kaiser_polynomial(beta: float) -> list[float]:
    """Return the coefficients of I0(beta sqrt(v)) / I0(beta) on [0, 1], of the highest power first.

    The polynomial through Chebyshev's nodes: as exact in float32 as its series, of half the length.
    """

    def window(v: np.ndarray) -> np.ndarray:
        return np.i0(beta * np.sqrt(v)) / np.i0(beta)

    found = np.polynomial.Chebyshev.interpolate(window, _DEGREE, domain=[0, 1])
    return found.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist()
