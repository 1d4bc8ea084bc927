"""The kinds of transform of a volume, and the one resample of a run of spatial ones."""

import abc
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug._warn import warn_once
from jaxaug.augment._base import (
    Drawn,
    ImageInfo,
    Parameters,
    VolumeInfo,
    chosen,
    chosen_alike,
    unit,
)
from jaxaug.augment._chain import Note, State, Transform
from jaxaug.augment._warp import alike
from jaxaug.augment._xla import barrier
from jaxaug.augment.volume._warp import VolumeWarp, centers, linear, nearest

LABELS = "labels"


class VolumeOp(Transform):
    """A transform of the "volume" of a sample, with its "labels" and its "spacing".

    A "volume" [D, H, W] or [D, H, W, C] is float32 after it: of uint8 and uint16 in [0, 1], of
    other numbers as they are. "labels" [D, H, W] are whole numbers, one for each voxel; "spacing"
    float32[3] is the sides of a voxel in mm.

    Derive from `Spatial` what moves voxels, from `Intensity` what changes their values.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug.augment import volume
      >>> class Count(volume.VolumeOp):
      ...     def change(self, params, sample, info):
      ...         return {**sample, "voxels": jnp.sum(sample["labels"] > 0)}
      >>> sample = {"volume": jnp.zeros((2, 2, 2)), "labels": jnp.ones((2, 2, 2), jnp.int32)}
      >>> int(Count()(jax.random.key(0), sample)["voxels"])
      8
    """

    needs = "volume"

    @abc.abstractmethod
    def change(self, params: Parameters, sample: Sample, info: VolumeInfo) -> Sample:
        """Return the sample, of which "volume" is float32; draw nothing."""

    def seen(self, params: Parameters, info: VolumeInfo) -> VolumeInfo:
        """Return the `VolumeInfo` after `change`: override it where shape or spacing change."""
        return info

    def draw(self, key: Key, info: Any) -> Drawn:
        """Draw the parameters and the coin of `p`."""
        return super().draw(key, volume_info(self, info))

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` of the sample afterwards."""
        return info._replace(volume=self.seen(drawn.params, volume_info(self, info)))

    def run(self, drawn: Drawn, state: State) -> State:
        """Change the sample, which ends a run."""
        state = settled(state)
        info = volume_info(self, state.info)
        sample = {**state.rest, "volume": as_floats(state.rest["volume"])}
        changed = self.change(drawn.params, dict(sample), info)
        rest = chosen_alike(self, drawn, changed, sample)
        note = Note("volume op", (type(self).__name__,), "reads the stored volume", 1)
        state = state._replace(rest=rest, notes=(*state.notes, note))
        return state._replace(info=self.after(drawn, state.info))


class Intensity(VolumeOp):
    """A transform of the values of a volume.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug.augment import random, volume
      >>> class Scale(volume.Intensity):
      ...     def make_params(self, key, info):
      ...         return random.uniform(key, 0.5, 1.0)
      ...     def apply(self, params, volume, info):
      ...         return params * volume
      >>> Scale()(jax.random.key(0), jnp.ones((4, 5, 6))).shape
      (4, 5, 6)
    """

    @abc.abstractmethod
    def apply(self, params: Parameters, volume: Array, info: VolumeInfo) -> Array:
        """Return float32 of the shape of `volume`; draw nothing."""

    def change(self, params: Parameters, sample: Sample, info: VolumeInfo) -> Sample:
        """Return the sample with its volume changed."""
        volume = jnp.asarray(self.apply(params, sample["volume"], info), jnp.float32)
        if volume.shape != sample["volume"].shape:
            raise ValueError(
                f"{type(self).__name__}.apply must keep the shape of the volume,"
                f" {sample['volume'].shape}, got {volume.shape}."
            )
        return {**sample, "volume": volume}


class Border(NamedTuple):
    """What lies outside of a volume: a `mode`, and the `fill` of "constant"; labels are 0 there.

    Example:
      >>> Border("edge").mode
      'edge'
    """

    mode: str = "constant"
    fill: Any = 0.0


class Spatial(VolumeOp):
    """A transform that moves voxels: it gives a `VolumeWarp`, and a run of them is one resample.

    Volumes are interpolated linearly, labels are those of the nearest voxel. Where voxels fall on
    voxels nothing is interpolated.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> from jaxaug.augment import volume
      >>> class Upwards(volume.Spatial):
      ...     def make_params(self, key, info):
      ...         return jnp.array([1.0, 0.0, 0.0])
      ...     def warp(self, params, info):
      ...         return volume.VolumeWarp.of(info, np.eye(3), params)
      >>> Upwards()(jax.random.key(0), jnp.array([[[1.0]], [[2.0]]])).ravel().tolist()
      [2.0, 0.0]
    """

    @abc.abstractmethod
    def warp(self, params: Parameters, info: VolumeInfo) -> VolumeWarp:
        """Return the map from output to source that `params` stand for."""

    @property
    def border(self) -> Border | None:
        """What it sees outside of the volume; None where it never looks there."""
        fill = getattr(self, "fill", None)
        return None if fill is None else Border(getattr(self, "padding_mode", "constant"), fill)

    def drawn_volume_warp(self, drawn: Drawn, info: VolumeInfo) -> VolumeWarp:
        """Return `warp`, or the identity where the coin of `p` says no."""
        warp = self.warp(drawn.params, info)
        if drawn.applied is None:
            return warp
        if warp.shape != info.shape:
            raise ValueError(
                f"`p` of {type(self).__name__} must be 1: it changes the shape of the volume from"
                f" {info.shape} to {warp.shape}, and all volumes need the same."
            )
        steps = tuple(step.where(drawn.applied) for step in warp.steps)
        spacing = warp.spacing
        if spacing is not None and info.spacing is not None:
            spacing = chosen(drawn.applied, jnp.asarray(spacing), jnp.asarray(info.spacing))
        return warp._replace(steps=steps, spacing=spacing)

    def change(self, params: Parameters, sample: Sample, info: VolumeInfo) -> Sample:
        """Return the sample, resampled."""
        return resample(sample, self.warp(params, info), self.border or Border())

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` of the sample afterwards."""
        before = volume_info(self, info)
        warp = self.drawn_volume_warp(drawn, before)
        return info._replace(volume=before._replace(shape=warp.shape, spacing=warp.spacing))

    def run(self, drawn: Drawn, state: State) -> State:
        """Add the map to the run that is pending."""
        info = volume_info(self, state.info)
        run, border = state.volume, self.border
        if run is not None and None not in (border, run.border) and not alike(border, run.border):
            state = settled(state)
            run = None
        if run is None:
            run = VolumeRun(VolumeWarp.identity(info), None, ())
        warp = run.warp.then(self.drawn_volume_warp(drawn, info))
        names = (*run.names, type(self).__name__)
        run = VolumeRun(warp, run.border if border is None else border, names)
        return state._replace(volume=run, info=self.after(drawn, state.info))


class VolumeRun(NamedTuple):
    """Spatial transforms whose one resample is still to be done."""

    warp: VolumeWarp
    border: Border | None
    names: tuple[str, ...]

    def settle(self, state: State) -> State:
        """Return the state with its volume and its labels resampled."""
        rest = resample(state.rest, self.warp, self.border or Border())
        how = "moved by whole voxels" if self.warp.whole else "2 x 2 x 2 taps per voxel"
        size = " x ".join(map(str, self.warp.shape))
        note = Note("resample", self.names, f"{how}, to {size}", 1)
        return state._replace(rest=rest, volume=None, notes=(*state.notes, note))


def resample(sample: Sample, warp: VolumeWarp, border: Border) -> Sample:
    """Return a sample whose volume, labels and spacing are those that `warp` shows."""
    places = warp.pull(centers(warp.shape))
    read = nearest if warp.whole else linear
    volume = _read(read, as_floats(sample["volume"]), places, *border)
    return {**moved_beside(sample, warp, border), "volume": barrier(volume)}


def moved_beside(sample: Sample, warp: VolumeWarp, border: Border) -> dict[str, Any]:
    """Return a sample whose labels and spacing are those that `warp` shows."""
    warn_of_left_behind(sample)
    moved = dict(sample)
    if LABELS in moved:
        places = warp.pull(centers(warp.shape))
        moved[LABELS] = _read(nearest, jnp.asarray(moved[LABELS]), places, border.mode, 0)
    if warp.spacing is not None and "spacing" in moved:
        moved["spacing"] = jnp.asarray(warp.spacing, jnp.float32)
    return moved


def warn_of_left_behind(sample: Sample) -> None:
    """Warn once of entries with a value for each voxel, which do not move with the volume."""
    shape = jnp.shape(sample["volume"])[:3]
    for name, value in sample.items():
        if name in ("volume", LABELS) or getattr(value, "shape", ())[:3] != shape:
            continue
        warn_once(
            f"{name!r} {list(value.shape)} stays where it is while the volume moves: name whole"
            f" numbers 'labels', as Renamed(source, {{{name!r}: 'labels'}}) does, or make them a"
            " channel of these, and others one of 'volume', by jnp.stack(..., -1) in a function"
            " before, or leave it out.",
            UserWarning,
        )


def inverse(prediction: Array, warp: VolumeWarp, info: VolumeInfo) -> Array:
    """Return what was found in a moved volume, in the frame of the volume before.

    Whole numbers are those of the nearest voxel, floats are interpolated; what the moved volume
    does not show is 0.

    Args:
      prediction: [D, H, W] or [D, H, W, C] of `warp.shape`, such as the logits of a segmentation.
      warp: of the chain: `warp_of(chain, params, info)`.
      info: of the volume before, as it was given to `chain.make_params`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> chain = augment.Compose([augment.volume.Flip((0,), p=1.0)])
      >>> info = augment.VolumeInfo((2, 1, 1))
      >>> params = chain.make_params(jax.random.key(0), info)
      >>> warp = augment.volume.warp_of(chain, params, info)
      >>> inverse(jnp.array([[[1.0]], [[2.0]]]), warp, info).ravel().tolist()
      [2.0, 1.0]
    """
    if prediction.shape[:3] != warp.shape:
        raise ValueError(
            f"`prediction` must have the shape of the warp's output, {warp.shape}, got"
            f" {prediction.shape}."
        )
    places = warp.push(centers(info.shape))
    if jnp.issubdtype(prediction.dtype, jnp.floating):
        return _read(linear, prediction.astype(jnp.float32), places, "constant", 0.0)
    return _read(nearest, prediction, places, "constant", 0)


def warp_of(chain: Transform, params: Iterable[Drawn], info: VolumeInfo) -> VolumeWarp:
    """Return the one map of the spatial transforms of a chain, for what `make_params` drew.

    Others, of values, are left out; what moves voxels by what it sees, as `volume.ForegroundCrop`
    does, is an error.

    Example:
      >>> import jax
      >>> from jaxaug import augment
      >>> chain = augment.Compose([augment.volume.CenterCrop(2), augment.volume.Gamma()])
      >>> info = augment.VolumeInfo((4, 4, 4))
      >>> warp_of(chain, chain.make_params(jax.random.key(0), info), info).shape
      (2, 2, 2)
    """
    total = VolumeWarp.identity(info)
    for transform, drawn in zip(chain.parts or (), params, strict=True):
        if isinstance(transform, Intensity):
            continue
        if not isinstance(transform, Spatial):
            raise TypeError(f"{type(transform).__name__} has no map that its parameters tell.")
        total = total.then(transform.drawn_volume_warp(drawn, info))
        info = info._replace(shape=total.shape, spacing=total.spacing)
    return total


def volume_info(transform: Transform, info: Any) -> VolumeInfo:
    """Return what is known of the volume, which the sample must have."""
    volume = info if isinstance(info, VolumeInfo) else info.volume
    if volume is None:
        raise ValueError(
            f"{type(transform).__name__} needs a 'volume', and the sample has none: name one so, as"
            " Renamed(source, {'image': 'volume'}) does."
        )
    return volume


def as_floats(volume: Any) -> Array:
    """Return float32: levels of uint8 and uint16 in [0, 1], other numbers as they are."""
    return unit(jnp.asarray(volume))


def settled(state: State) -> State:
    """Return the state with nothing of its volume pending."""
    return state if state.volume is None else state.volume.settle(state)


def _read(read: Any, values: Array, places: Any, mode: str, fill: Any) -> Array:
    """Return values [D, H, W] or [D, H, W, C] read at places."""
    if values.ndim == 4:
        return read(values, places, mode, fill)
    return read(values[..., None], places, mode, fill)[..., 0]
