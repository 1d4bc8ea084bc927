"""The kind of transform of a sound, and how much of its array is used."""

import abc
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key
from jaxaug.augment._base import AudioInfo, Drawn, ImageInfo, Parameters, chosen_alike
from jaxaug.augment._chain import Note, State, Transform

_MOST_CHANNELS = 8  # more than these, and than samples: the axes are in another order


class AudioOp(Transform):
    """A transform of the "audio" of a sample: a waveform, or features of one.

    What lies beyond "audio_length" is zero when `apply` sees it, and again afterwards.

    Attributes:
      takes: "waveform" [N] or [N, C], "features" [T, bins] or [T, bins, C], or "either".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug.augment import audio, random
      >>> class Fade(audio.AudioOp):
      ...     def make_params(self, key, info):
      ...         return random.uniform(key, 0.5, 1.0)
      ...     def apply(self, params, audio, info):
      ...         return audio * params ** jnp.arange(info.samples)
      >>> Fade()(jax.random.key(0), jnp.ones(8)).shape
      (8,)
    """

    needs = "audio"
    takes: ClassVar[str] = "waveform"

    @abc.abstractmethod
    def apply(self, params: Parameters, audio: Array, info: AudioInfo) -> Array:
        """Transform float32 audio; draw nothing.

        The result may have another shape, the same for all sounds, which `heard` must tell.
        """

    def heard(self, params: Parameters, info: AudioInfo) -> AudioInfo:
        """Return the `AudioInfo` after `apply`: override it where shape or length change."""
        return info

    def draw(self, key: Key, info: Any) -> Drawn:
        """Draw the parameters and the coin of `p`."""
        return super().draw(key, self._audio_info(info))

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` of the sample afterwards."""
        before = self._audio_info(info)
        audio = self.heard(drawn.params, before)
        if drawn.applied is not None and audio.length is not None:
            length = jnp.where(drawn.applied, audio.length, before.used)
            audio = audio._replace(length=length)
        return info._replace(audio=audio)

    def run(self, drawn: Drawn, state: State) -> State:
        """Apply it to the "audio" of the sample."""
        before = self._audio_info(state.info)
        given = only_used(_as_floats(self, state.rest["audio"]), before)
        result = jnp.asarray(self.apply(drawn.params, given, before), jnp.float32)
        info = self.after(drawn, state.info)
        assert info.audio is not None
        self._check_shape(result, info.audio)
        result = chosen_alike(self, drawn, {"audio": result}, {"audio": given})["audio"]
        rest = {**state.rest, "audio": only_used(result, info.audio)}
        if info.audio.length is not None:
            rest["audio_length"] = info.audio.length
        note = Note("audio op", (type(self).__name__,), f"to {list(result.shape)}", 1)
        return state._replace(rest=rest, info=info, notes=(*state.notes, note))

    def _audio_info(self, info: Any) -> AudioInfo:
        """Return what is known of the audio, which must be what this transform takes."""
        audio = info if isinstance(info, AudioInfo) else info.audio
        if audio is None:
            raise ValueError(f"{type(self).__name__} needs an 'audio', and the sample has none.")
        if self.takes == "features" and audio.bins is None:
            if audio.channels is None:
                raise ValueError(
                    f"{type(self).__name__} needs features [T, bins], got a waveform"
                    f" [{audio.samples}]: put LogMel or another spectrogram before it."
                )
            return audio._replace(bins=audio.channels, channels=None)
        if self.takes == "waveform" and audio.bins is not None:
            raise ValueError(
                f"{type(self).__name__} needs a waveform [N] or [N, channels], got features"
                f" {list(audio.shape)}: put it before what makes a spectrogram."
            )
        if self.takes == "waveform" and (audio.channels or 0) > max(audio.samples, _MOST_CHANNELS):
            raise ValueError(
                f"{type(self).__name__} needs a waveform [N] or [N, channels], got"
                f" {list(audio.shape)}: put channels last; several clips go through jax.vmap."
            )
        return audio

    def _check_shape(self, result: Array, told: AudioInfo) -> None:
        if result.shape != told.shape:
            name = type(self).__name__
            raise ValueError(
                f"{name}.apply returned audio {list(result.shape)}, but {name}.heard tells of"
                f" {list(told.shape)}: override it to return info._replace(samples=...)."
            )


def only_used(audio: Array, info: AudioInfo) -> Array:
    """Return audio with zeros beyond its length."""
    if info.length is None:
        return audio
    return jnp.where(along(used(info), audio), audio, 0.0)


def used(info: AudioInfo) -> Array:
    """Return bool[N], True for the samples or frames that are used."""
    return jnp.arange(info.samples, dtype=jnp.int32) < info.used


def along(line: Any, audio: Any) -> Any:
    """Return a line [N] with the axes of audio [N, ...]."""
    return line.reshape(-1, *(1 for _ in audio.shape[1:]))


def padded(audio: Array, before: int, after: int) -> Array:
    """Return audio [N, ...] with rows of zeros before and behind it."""
    return jnp.pad(audio, ((before, after), *((0, 0) for _ in audio.shape[1:])))


def _as_floats(transform: Transform, audio: Array) -> Array:
    """Return audio in float32, checked."""
    if audio.ndim not in (1, 2, 3) or not jnp.issubdtype(audio.dtype, jnp.floating):
        got = f"{audio.dtype}{list(audio.shape)}"
        hint = ": divide by 32768 for floats" if audio.dtype == jnp.int16 else ""
        raise TypeError(
            f"{type(transform).__name__} needs one waveform, float [N] or [N, channels] in [-1, 1],"
            f" or features [T, bins], got {got}{hint}. Batches go through jax.vmap."
        )
    return audio.astype(jnp.float32)
