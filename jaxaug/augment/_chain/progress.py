"""The state of a chain: made of a sample, and made a sample again.

Geometric steps only add their map to `pending`; the first step that needs pixels resamples, once
for all of them. So a run is whatever stands between two such steps and is resampled alike (see
`_run`), in nested chains too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxaug._typing import Sample
from jaxaug.augment._base import (
    LEVELS,
    NO_IMAGE,
    AudioInfo,
    Epilogue,
    ImageInfo,
    VolumeInfo,
    is_pixels,
    stored_as,
    top_level,
)
from jaxaug.augment._chain.levels import LevelStep, through_levels
from jaxaug.augment._warp import (
    Resampling,
    Run,
    Targets,
    Warp,
    in_range,
    moved_info,
    packed,
    resample,
    spread,
    with_kept_boxes,
)
from jaxaug.augment._xla import barrier, channels_to_front


class Note(NamedTuple):
    """A line of `Compose.explain`: the steps of one stage and its passes over the pixels."""

    stage: str
    names: tuple[str, ...]
    detail: str
    passes: int


class State(NamedTuple):
    """A sample on its way through a chain: an image with what moves along, a sound, a volume.

    Attributes:
      image: uint8, uint16, or float in [0, 1], [H, W, C], before the maps of `pending`; None for a
        sample without an image.
      info: of the image after them.
      rest: the other entries of the sample, "audio" among them.
      dtypes: of the images that were given, by their names.
      targets: the entries of `rest` that move with the image.
      pending: the run that is not resampled yet.
      volume: that of the "volume", which `settle(state)` resamples; None where there is none.
      steps: transforms of single values that are not computed yet; `image` is uint8, and nothing
        else is pending.
      costly: True where XLA would compute the image anew for each of its readers.
      stored: the image that was stored last, not to be stored again.
      layout: "HWC" or "CHW" once an output step is done, else None.
      notes: for `Compose.explain`.
    """

    image: Any
    info: ImageInfo
    rest: Sample
    dtypes: Mapping[str, Any]
    targets: Targets
    pending: Run | None = None
    volume: Any = None
    steps: tuple[LevelStep, ...] = ()
    costly: bool = False
    stored: Array | None = None
    layout: str | None = None
    notes: tuple[Note, ...] = ()


def check_key(key: Any, sample: Any) -> None:
    """Raise where `key` is not one PRNG key."""
    if _is_key(key):
        return
    if _is_key(sample):
        raise TypeError("the arguments are swapped: call transform(key, image), the key first.")
    shape = getattr(key, "shape", None)
    got = type(key).__name__ if shape is None else f"{key.dtype}{list(shape)}"
    batch = " One image a call: batches go through jax.vmap, with one key per image."
    hint = batch if shape else ""
    raise TypeError(f"`key` must be a PRNG key such as jax.random.key(0), got {got}.{hint}")


def begin(given: Any, targets: Targets, entry: str = "image") -> State:
    """Return the state of a sample, or of an array that is its `entry`, checked."""
    rest = dict(given) if isinstance(given, Mapping) else {entry: given}
    audio = None
    if "audio" in rest:
        rest, audio = _begin_audio(rest)
    volume = _volume_info(rest) if "volume" in rest else None
    if "image" not in rest:
        if audio is None and volume is None:
            raise ValueError(
                "a sample must have an 'image', an 'audio' or a 'volume', got the keys"
                f" {sorted(rest)}{_FRAMES_HINT if 'video' in rest else ''}."
            )
        info = ImageInfo(NO_IMAGE, epoch=rest.get("epoch"), audio=audio, volume=volume)
        return State(None, info, rest, dtypes={}, targets=targets)
    images = check_values(rest, targets)
    image = jnp.asarray(rest.pop("image"))
    size = rest.pop("size", None)
    _check_image(image)
    canvas = (image.shape[0], image.shape[1])
    if size is not None:
        size = _as_size(size, canvas)

    rest = targets.begin(rest, image)
    dtypes = {name: {**rest, "image": image}[name].dtype for name in images}
    info = ImageInfo(
        canvas,
        size,
        boxes=rest.get("boxes"),
        epoch=rest.get("epoch"),
        channels=image.shape[2],
        audio=audio,
        levels=(top_level(image.dtype) or LEVELS - 1) + 1,
        volume=volume,
    )
    return State(image, info, rest, dtypes=dtypes, targets=targets)


def _begin_audio(rest: Sample) -> tuple[Sample, AudioInfo]:
    """Return a sample whose "audio" is an array, and what is known of it."""
    audio = jnp.asarray(rest["audio"])
    sizes = (*audio.shape, None, None, None)
    bins, channels = sizes[1:3] if audio.ndim == 3 else (None, sizes[1])
    length = rest.get("audio_length")
    info = AudioInfo(sizes[0] or 0, length, channels, bins, rest.get("epoch"))
    return {**rest, "audio": audio}, info


def _volume_info(rest: Sample) -> VolumeInfo:
    """Return what is known of the "volume" of a sample, whose shape is checked."""
    shape = jnp.shape(rest["volume"])
    if len(shape) not in (3, 4):
        raise ValueError(
            f"`volume` must be one volume [D, H, W] or [D, H, W, C], got {shape}: batches go"
            " through jax.vmap."
        )
    labels = rest.get("labels")
    if labels is not None and jnp.shape(labels)[:3] != shape[:3]:
        raise ValueError(
            f"`labels` must have the depth, height and width of its volume {shape}, got"
            f" {jnp.shape(labels)}; channels come last, [D, H, W, C]."
        )
    depth, height, width, *channels = shape
    count = channels[0] if channels else None
    return VolumeInfo((depth, height, width), count, rest.get("spacing"), rest.get("epoch"))


def finish(state: State) -> Sample:
    """Return the sample: unused parts filled, the image in its final dtype and layout."""
    state = resampled(state)
    if state.image is None:
        return dict(state.rest)
    used = state.info.used()
    sample = {**state.targets.finish(state.rest, used), "image": state.image}
    for name, dtype in state.dtypes.items():
        sample[name] = _finished(sample[name], dtype, used, state.layout)
    if used is not None:
        sample["size"] = state.info.size
    return sample


def warped(state: State, warp: Warp, resampling: Resampling, transform: Any) -> State:
    """Return the state with one more map to be resampled, in the same run where they agree."""
    run = state.pending
    together = None if run is None else run.resampling.joined(resampling)
    if run is None or together is None:
        state = resampled(state)
        run = Run(Warp.identity(state.info), resampling, source=state.info)
        together = resampling

    run = run.then(warp, together, transform)
    return state._replace(pending=run, info=moved_info(run.source, run.warp))


def without_boxes(state: State, kept: Array, per_box: Sequence[str]) -> State:
    """Return the state with the boxes that are kept, bool[n]; a map that is pending moves those."""
    run = state.pending
    if run is not None:
        run = run._replace(source=with_kept_boxes(run.source, kept))
    rest = packed(state.rest, kept, per_box)
    return state._replace(rest=rest, info=with_kept_boxes(state.info, kept), pending=run)


def resampled(state: State, epilogue: Epilogue | None = None) -> State:
    """Return the state with nothing pending: one resample for all the maps of the run.

    Args:
      state: of the chain.
      epilogue: what becomes of the values of an image, if something is pending.
    """
    if state.volume is not None:
        state = state.volume.settle(state)
    if state.steps:
        image = through_levels(state.image, state.steps, epilogue)
        return state._replace(image=image, steps=())

    run = state.pending
    if run is None:
        return state
    run.check_shape()
    extent = run.source.extent
    settings = run.resampling.settled()
    image = resample(state.image, extent, run.warp, **settings._asdict(), epilogue=epilogue)
    if epilogue is None:
        image = in_range(image, settings.interpolation)
    rest = state.targets.move(state.rest, run.source, run.warp, settings)
    detail, passes = run.explain()
    notes = (*state.notes, Note("resample", run.names, detail, passes))
    return state._replace(image=image, rest=rest, pending=None, costly=True, notes=notes)


def stored(state: State) -> State:
    """Return the state with its image computed once, however often it is read."""
    if state.image is state.stored:
        return state
    image = barrier(state.image)
    return state._replace(image=image, costly=False, stored=image)


def _finished(image: Array, dtype: Any, used: Array | None, layout: str | None) -> Array:
    """Return an image in its layout, zero where it is not used.

    Without an output step in the dtype that came in, rounded for levels.
    """
    if layout is None:
        image = stored_as(image, dtype)
    if used is not None:
        image = jnp.where(spread(used, "image", image), image, jnp.zeros_like(image))
    return channels_to_front(image) if layout == "CHW" and image.ndim == 3 else image


def _is_key(value: Any) -> bool:
    """Return True for one typed key, and for the uint32 words of one."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return False
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return value.shape == ()
    return dtype == np.uint32 and value.shape in ((2,), (4,))  # threefry's two, rbg's four


def check_values(sample: Sample, targets: Targets) -> list[str]:
    """Return the names of the images of a sample, whose floats are in [0, 1], if any can be read.

    Raises:
      ValueError: they are not.
    """
    images = ["image", *targets.images(sample)]
    for name in images:
        if name in sample:
            _check_values(name, sample[name])
    return images


def _check_values(name: str, image: Any) -> None:
    """Raise for float values beyond [0, 1], where they can be read: not while tracing."""
    if isinstance(image, Tracer) or not isinstance(image, (np.ndarray, jax.Array)):
        return
    if not jnp.issubdtype(image.dtype, jnp.floating) or image.size == 0:
        return
    values = np.asarray(image)
    smallest, largest = float(values.min()), float(values.max())
    if smallest < -_OVERSHOOT or largest > 1 + _OVERSHOOT:
        numbers = "" if name == "image" else ', or name it a "map" of numbers in `targets`'
        what = "a float image" if name == "image" else f"`{name}`, a float image,"
        raise ValueError(
            f"expected {what} in [0, 1], got values from {smallest:g} to {largest:g}:"
            f" bring them there (8-bit levels: divide by 255), or give uint8 or uint16{numbers}."
        )


_OVERSHOOT = 1e-2  # what float arithmetic and half precision may leave below 0 and above 1


USUAL_CHANNELS = (1, 2, 3, 4)
_FRAMES_HINT = ": clips go through Frames(chain)"


def _check_image(image: Array) -> None:
    shape = tuple(image.shape)
    if image.ndim != 3:
        raise ValueError(f"expected one image (h, w, channels), got {shape}{_rank_hint(shape)}.")
    if shape[0] in USUAL_CHANNELS and shape[2] not in USUAL_CHANNELS:
        raise ValueError(f"expected one image (h, w, channels), got {shape}: put channels last.")
    if not is_pixels(image.dtype):
        got = f"{image.dtype}{list(shape)}"
        raise TypeError(
            f"expected a uint8 or uint16 image, or a float image in [0, 1], got {got}: convert 0 to"
            " 255 with .astype('uint8'), 0 to 65535 with .astype('uint16')."
        )


def _rank_hint(shape: tuple[int, ...]) -> str:
    if len(shape) == 4:
        return (
            ": batches go through jax.vmap, groups of a `batch_transform` through GroupCompose,"
            " clips of a video through Frames"
        )
    if len(shape) == 2 and shape[1] == 3:
        return ": under jax.vmap give a batch (n, h, w, 3), or in_axes=(0, None) for one image"
    if len(shape) == 2:
        return ": give a gray image its channel, image[:, :, None]"
    return ""


def _as_size(size: Any, canvas: tuple[int, int]) -> Array:
    """Return the used (height, width), checked; its numbers where they can be read."""
    given = size
    size = jnp.asarray(size)
    if size.shape != (2,) or not jnp.issubdtype(size.dtype, jnp.integer):
        got = f"{size.dtype}{list(size.shape)}"
        raise ValueError(f"`size` must be int32[2], the used (height, width), got {got}.")
    if not isinstance(given, Tracer) and (np.asarray(given) > np.asarray(canvas)).any():
        raise ValueError(
            f"`size`, the used (height, width), must lie within the image's {canvas}, got"
            f" {np.asarray(given).tolist()}: cut or pad images and their `size` together."
        )
    return size.astype(jnp.int32)
