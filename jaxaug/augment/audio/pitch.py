"""Tempo without pitch and pitch without tempo, by a phase vocoder.

Frames of a spectrum are read at another pace. Their magnitudes are interpolated; the phase of each
bin advances by what it advances between the two frames that are read. Phases are integers, 2^32 of
them a turn: they wrap by themselves, and their sum has the same bits in any order.

Reference: M. Dolson, "The Phase Vocoder: A Tutorial", Computer Music Journal 10 (4), 1986.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._checks import is_int
from jaxaug._sinc import PERTURB, resample
from jaxaug._typing import Key
from jaxaug.augment._base import AudioInfo, Converter, Range, as_static_range
from jaxaug.augment.audio._kind import AudioOp, along, padded
from jaxaug.augment.audio.spectrum import magnitudes, window
from jaxaug.augment.audio.timing import STEPS, Paced
from jaxaug.augment.random import uniform

_OVERLAP = 4  # frames that hear a sample
_TURN = 2.0**30  # of what is rounded: float32 has no bits for 2^32


def _as_frame(name: str, value: Any) -> int:
    """Return an int that four hops fill."""
    if not is_int(value) or value < _OVERLAP or value % _OVERLAP:
        raise ValueError(f"`{name}` must be a multiple of {_OVERLAP}, got {value!r}.")
    return int(value)


def stretch(
    audio: Array, up: Array | int, down: Array | int, *, samples: int, n_fft: int = 512
) -> Array:
    """Return audio that lasts up / down times as long, at its pitch.

    Args:
      audio: [N] or [N, C], zero beyond its length.
      up, down: int32, maybe traced.
      samples: rows of the result.
      n_fft: samples of a frame, a multiple of 4; frames follow each other by a quarter of it.

    Example:
      >>> import jax.numpy as jnp
      >>> stretch(jnp.ones(4000), 3, 2, samples=6000).shape
      (6000,)

    Reference: `librosa.effects.time_stretch`.
    """
    hop, half = n_fft // _OVERLAP, n_fft // 2
    hann = window("hann", n_fft).astype(np.float32)
    given = padded(audio, half, n_fft)
    place = np.arange(1 + (given.shape[0] - n_fft) // hop)[:, None] * hop + np.arange(n_fft)
    frames = jnp.take(given, jnp.asarray(place, jnp.int32), axis=0)
    spectrum = jnp.fft.rfft(frames * along(hann, frames[0])[None], axis=1)

    count = -(-samples // hop) + _OVERLAP
    number = jnp.arange(count, dtype=jnp.int32)
    up, down = jnp.asarray(up, jnp.int32), jnp.asarray(down, jnp.int32)
    turns, part = number // up, number % up  # number * down would overflow in long sounds
    read, rest = turns * down + part * down // up, part * down % up
    weight = along(rest.astype(jnp.float32) / up.astype(jnp.float32), spectrum)
    size = magnitudes(spectrum)
    size = (1 - weight) * _rows(size, read) + weight * _rows(size, read + 1)
    angle = lax.stop_gradient(_advanced(_phases(spectrum), read))
    turned = jnp.fft.irfft(lax.complex(size * jnp.cos(angle), size * jnp.sin(angle)), axis=1)
    return _overlapped(turned, hann)[half : half + samples]


def _rows(values: Array, number: Array) -> Array:
    """Return rows by their numbers, zeros beyond the last."""
    return values.at[number].get(mode="fill", fill_value=0)


def _phases(spectrum: Array) -> Array:
    """Return phases in int32, of which 2^32 are a turn."""
    turns = jnp.arctan2(spectrum.imag, spectrum.real) / (2 * np.pi)
    return jnp.round(turns * _TURN).astype(jnp.int32) * 4


def _advanced(phases: Array, read: Array) -> Array:
    """Return the angles of frames that advance as those that are `read`, in radians."""
    steps = _rows(phases, read + 1) - _rows(phases, read)
    advance = jnp.cumsum(steps, axis=0, dtype=jnp.int32) - steps
    return (phases[:1] + advance).astype(jnp.float32) * np.float32(2 * np.pi / 2**32)


def _overlapped(frames: Array, hann: np.ndarray) -> Array:
    """Return the sum of frames [T, n_fft, ...] that follow by a quarter, over their windows'."""
    weights = along(hann, frames[0])[None]
    weighed = _sum_of_quarters(frames * weights)
    shape = (*frames.shape[:2], *weights.shape[2:])
    loudness = _sum_of_quarters(np.broadcast_to(weights**2, shape))
    return weighed / np.maximum(loudness, 1e-3)


def _sum_of_quarters(frames: Any) -> Any:
    """Return frames [T, n_fft, ...], each a quarter after the one before, added up."""
    count, length = frames.shape[:2]
    quarters = frames.reshape(count, _OVERLAP, length // _OVERLAP, *frames.shape[2:])
    numeric = np if isinstance(frames, np.ndarray) else jnp
    total: Any = 0
    for number in range(_OVERLAP):
        widths = [(number, _OVERLAP - 1 - number), *((0, 0) for _ in quarters.shape[2:])]
        total = total + numeric.pad(quarters[:, number], widths)
    return total.reshape(-1, *frames.shape[2:])


@dataclass(frozen=True)
class TimeStretch(Paced):
    """Play a sound faster or slower at its pitch.

    A slower sound that does not fit its array loses its end, a faster one ends earlier and has an
    "audio_length".

    Args:
      factor: (low, high) of the speed, of which a multiple of 0.001 is drawn.
      n_fft: samples of a frame of the phase vocoder, a multiple of 4: 20 to 60 ms.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> twice = TimeStretch((2.0, 2.0))(jax.random.key(0), {"audio": jnp.ones(2000)})
      >>> int(twice["audio_length"])
      1000

    Reference: `librosa.effects.time_stretch`. Gradients go through the magnitudes alone.
    """

    factor: Annotated[Range, Converter(as_static_range, 0.1, 10)] = (0.8, 1.25)
    _: KW_ONLY
    n_fft: Annotated[int, Converter(_as_frame)] = 512
    p: float = 1.0

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the audio at its tempo."""
        return stretch(audio, STEPS, params, samples=info.samples, n_fft=self.n_fft)


def pitch_shift(
    audio: Array, thousandths: Array | int, *, highest: float = 2.0, n_fft: int = 512
) -> Array:
    """Return audio at another pitch that lasts as long: stretched, then played faster.

    Args:
      audio: [N] or [N, C], zero beyond its length.
      thousandths: 1000 times the ratio of frequencies, 2000 for an octave up.
      highest: of the ratios, static.
      n_fft: samples of a frame of the phase vocoder, a multiple of 4.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> jax.jit(pitch_shift)(jnp.ones(4000), 1500).shape
      (4000,)
    """
    samples = audio.shape[0]
    room = int(np.ceil(samples * max(highest, 1.0))) + n_fft
    long = stretch(audio, thousandths, STEPS, samples=room, n_fft=n_fft)
    fastest = max(highest, 1.0)
    return resample(long, STEPS, thousandths, samples=samples, shrink=fastest, design=PERTURB)


@dataclass(frozen=True)
class PitchShift(AudioOp):
    """Raise or lower the pitch of a sound, which lasts as long as before.

    Args:
      semitones: (low, high), 12 of them an octave; the ratio of frequencies, 2^(semitones / 12), is
        rounded to 0.001, that is to 2 hundredths of a semitone.
      n_fft: samples of a frame of the phase vocoder, a multiple of 4: 20 to 60 ms.
      p: the probability of being applied.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PitchShift((-2, 2))(jax.random.key(0), jnp.ones(2000)).shape
      (2000,)

    Reference: `librosa.effects.pitch_shift`, `torchaudio.transforms.PitchShift`. Gradients go
      through the magnitudes of the vocoder alone.
    """

    semitones: Annotated[Range, Converter(as_static_range, -24, 24)] = (-4.0, 4.0)
    _: KW_ONLY
    n_fft: Annotated[int, Converter(_as_frame)] = 512
    p: float = 1.0

    def make_params(self, key: Key, info: AudioInfo) -> Array:
        """Draw the ratio in thousandths."""
        ratio = 2.0 ** (uniform(key, *self.semitones) / 12)
        return jnp.round(ratio * STEPS).astype(jnp.int32)

    def apply(self, params: Array, audio: Array, info: AudioInfo) -> Array:
        """Return the audio at its pitch."""
        highest = 2.0 ** (self.semitones[1] / 12)
        return pitch_shift(audio, params, highest=highest, n_fft=self.n_fft)
