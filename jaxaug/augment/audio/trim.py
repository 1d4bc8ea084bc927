"""Silence before and after a sound: where it ends and begins, and cutting it off."""

from dataclasses import dataclass
from typing import Annotated

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import AudioInfo, Converter, Drawn, PositiveInt, as_number
from jaxaug.augment._chain import State
from jaxaug.augment.audio._kind import AudioOp, only_used
from jaxaug.augment.audio._sums import total
from jaxaug.augment.audio.level import amplitude
from jaxaug.augment.audio.timing import shift

_BLOCKS = 4  # of a window, each as long as the step from one window to the next


def nonsilent_region(
    audio: Array, db: Scalar = 60.0, *, hop: int = 512, length: Array | int | None = None
) -> tuple[Array, Array]:
    """Return where sound begins, and how many samples it lasts, int32.

    Sound is from the first to the last window of 4 hops whose mean square is at most `db` decibels
    below that of the loudest. Windows lie about each hop-th sample.

    Args:
      audio: [N] or [N, C], zero beyond its length.
      db: above 0.
      hop: samples from one window to the next.
      length: rows of the audio that are used; None for all.

    Example:
      >>> import jax.numpy as jnp
      >>> sound = jnp.zeros(4000).at[1000:2000].set(1.0)
      >>> [int(each) for each in nonsilent_region(sound, hop=100)]
      [900, 1300]

    Reference: `librosa.effects.trim` at a `frame_length` of 4 hops.

    Differs from `nvidia.dali.fn.nonsilent_region` in windows that move by a hop, not by a sample.
    """
    samples = audio.shape[0]
    used = jnp.asarray(samples if length is None else length, jnp.int32)
    mono = audio.reshape(samples, -1)
    widths = [(2 * hop, -samples % hop + 2 * hop), (0, 0)]
    blocks = jnp.pad(mono, widths).reshape(-1, hop * mono.shape[1])
    energy = total(blocks.T**2)
    count = 1 + samples // hop
    windows = sum(energy[number : number + count] for number in range(_BLOCKS))

    number = jnp.arange(count, dtype=jnp.int32)
    heard = (windows > jnp.max(windows) * amplitude(-db) ** 2) & (number <= used // hop)
    first = jnp.argmax(heard).astype(jnp.int32)
    last = jnp.max(jnp.where(heard, number, -1))
    start = jnp.minimum(first * hop, used)
    end = jnp.minimum((last + 1) * hop, used)
    return jnp.where(last < 0, 0, start), jnp.where(last < 0, 0, end - start)


@dataclass(frozen=True)
class TrimSilence(AudioOp):
    """Cut silence off at both ends: what is left begins at 0 and has an "audio_length".

    What it leaves depends on the sound: `Compose.make_params`, which hears none, draws for those
    behind it as if nothing were cut off. A call draws by the length that is left.

    Args:
      db: how far below the loudest window silence is, in dB.
      hop: samples from one window to the next; a window has 4 hops.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sound = {"audio": jnp.zeros(4000).at[1000:2000].set(1.0)}
      >>> int(TrimSilence(hop=100)(jax.random.key(0), sound)["audio_length"])
      1300

    Reference: `librosa.effects.trim`.
    """

    db: Annotated[Scalar, Converter(as_number, 0, 200)] = 60.0
    hop: PositiveInt = 512

    def make_params(self, key: Key, info: AudioInfo) -> tuple[Array, Array]:
        """Return the region that is all of the sound: nothing is heard yet."""
        return jnp.int32(0), jnp.asarray(info.used, jnp.int32)

    def heard(self, params: tuple[Array, Array], info: AudioInfo) -> AudioInfo:
        """Return the facts with the new length."""
        return info._replace(length=params[1])

    def apply(self, params: tuple[Array, Array], audio: Array, info: AudioInfo) -> Array:
        """Return the region, from 0."""
        return shift(audio, -params[0], info.used, mode="zero")

    def run(self, drawn: Drawn, state: State) -> State:
        """Find the region, and cut it out."""
        info = self._audio_info(state.info)
        audio = only_used(jnp.asarray(state.rest["audio"], jnp.float32), info)
        region = nonsilent_region(audio, self.db, hop=self.hop, length=info.used)
        return super().run(drawn._replace(params=region), state)
