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
from jax.core import Tracer

from jaxaug._typing import Array, Sample
from jaxaug.augment._base import Epilogue, ImageInfo
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
    """An image on its way through a chain, with what moves along.

    Attributes:
      image: uint8, or float in [0, 1], [H, W, C], before the maps of `pending`.
      info: of the image after them.
      rest: the other entries of the sample.
      dtypes: of the images that were given, by their names.
      targets: the entries of `rest` that move with the image.
      pending: the run that is not resampled yet.
      steps: transforms of single values that are not computed yet; `image` is uint8, and nothing
        else is pending.
      costly: True where XLA would compute the image anew for each of its readers.
      stored: the image that was stored last, not to be stored again.
      layout: "HWC" or "CHW" once an output step is done, else None.
      notes: for `Compose.explain`.
    """

    image: Array
    info: ImageInfo
    rest: Sample
    dtypes: Mapping[str, Any]
    targets: Targets
    pending: Run | None = None
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


def begin(given: Any, targets: Targets) -> State:
    """Return the state of an image or a sample, checked."""
    rest = dict(given) if isinstance(given, Mapping) else {"image": given}
    if "image" not in rest:
        raise ValueError(f"a sample must have an 'image', got the keys {sorted(rest)}.")
    images = ["image", *targets.images(rest)]
    for name in images:
        _check_values(name, rest[name])
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
    )
    return State(image, info, rest, dtypes=dtypes, targets=targets)


def finish(state: State) -> Sample:
    """Return the sample: unused parts filled, the image in its final dtype and layout."""
    state = resampled(state)
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
      epilogue: what becomes of the values, if something is pending.
    """
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
    rest = state.targets.move(state.rest, extent, run.warp, settings)
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

    Without an output step in the dtype that came in, rounded for uint8.
    """
    if layout is None:
        if dtype == jnp.uint8 and image.dtype != jnp.uint8:
            image = jnp.round(jnp.clip(image, 0.0, 1.0) * 255)
        image = image.astype(dtype)
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
            f" bring them there (8-bit levels: divide by 255), or give uint8{numbers}."
        )


_OVERSHOOT = 1e-2  # what float arithmetic and half precision may leave below 0 and above 1


USUAL_CHANNELS = (1, 2, 3, 4)


def _check_image(image: Array) -> None:
    shape = tuple(image.shape)
    if image.ndim != 3:
        raise ValueError(f"expected one image (h, w, channels), got {shape}{_rank_hint(shape)}.")
    if shape[0] in USUAL_CHANNELS and shape[2] not in USUAL_CHANNELS:
        raise ValueError(f"expected one image (h, w, channels), got {shape}: put channels last.")
    if image.dtype != jnp.uint8 and not jnp.issubdtype(image.dtype, jnp.floating):
        got = f"{image.dtype}{list(shape)}"
        hint = "convert 0 to 255 with .astype('uint8')"
        if image.dtype == jnp.uint16:
            hint = "divide by its largest value, 65535 or less, for floats"
        raise TypeError(f"expected a uint8 image, or a float image in [0, 1], got {got}: {hint}.")


def _rank_hint(shape: tuple[int, ...]) -> str:
    if len(shape) == 4:
        return ": batches go through jax.vmap, groups of a `batch_transform` through GroupCompose"
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
