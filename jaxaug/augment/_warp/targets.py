"""The entries of a sample that move with its image."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Sample
from jaxaug._warn import warn_once
from jaxaug.augment._base import Canvas, ImageInfo, as_choice, is_pixels, plain, stored_as
from jaxaug.augment._warp.boxes import (
    as_boxes,
    as_points,
    as_polygons,
    convert_bounding_box_format,
    format_inside,
    given_alone,
    move_boxes,
    move_points,
)
from jaxaug.augment._warp.fusion import SettledResampling
from jaxaug.augment._warp.interpolate import in_range, read_exactly, resample
from jaxaug.augment._warp.warp import Warp
from jaxaug.augment._xla import barrier

MASK_FILL = 255  # what losses ignore by custom
KINDS = ("image", "map", "mask", "masks", "boxes", "keypoints", "polygons")
_OWN_KIND = KINDS[2:]  # names that say their kind
BOXES_ELSEWHERE = ("bbox", "bboxes")  # of boxes, in other libraries
POINTS_ELSEWHERE = ("joints", "landmarks", "points")  # of keypoints
_PLANES = ("map", "mask", "masks")  # kinds with pixels, beside images
Swaps: TypeAlias = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
_JOINTS = "keypoints"  # whose pairs are rows; those of other entries are values


class Targets(NamedTuple):
    """The entries of a sample that move with its image, and their conventions.

    Attributes:
      mask_fill, box_format: see `Compose`.
      added: (name, kind) of entries beside those whose name is their kind.
      swap: what changes sides at a mirror, see `Compose`.
    """

    mask_fill: int = MASK_FILL
    box_format: str = "xyxy"
    added: tuple[tuple[str, str], ...] = ()
    swap: Swaps = ()

    @property
    def inside(self) -> "Targets":
        """The same for samples inside of a chain: boxes as xyxy, oriented ones as corners."""
        return self._replace(box_format=format_inside(self.box_format))

    def kinds(self, sample: Sample) -> dict[str, str]:
        """Return the kind of each entry of `sample` that moves."""
        named = {**{name: name for name in _OWN_KIND}, **dict(self.added)}
        return {name: kind for name, kind in named.items() if name in sample}

    def images(self, sample: Sample) -> list[str]:
        """Return the names of the images of `sample` beside its "image"."""
        return [name for name, kind in self.kinds(sample).items() if kind == "image"]

    def begin(self, sample: Sample, image: Array) -> Sample:
        """Return `sample` with its targets checked, boxes as they are `inside`."""
        begun = dict(sample)
        for name, kind in self.kinds(sample).items():
            value = jnp.asarray(sample[name])
            if kind == "boxes":
                begun[name] = as_boxes(value, self.box_format)
            else:
                begun[name] = _checked(name, kind, value, image)
            if name == "boxes":
                begun = given_alone(begun)
            if kind == "boxes":
                inside = self.inside.box_format
                begun[name] = convert_bounding_box_format(begun[name], self.box_format, inside)
        if self.swap:
            _check_swaps(begun, self.swap)
        return begun

    def finish(self, sample: Sample, used: Array | None) -> Sample:
        """Return `sample` with what lies outside of `used` filled, boxes in their format.

        Args:
          sample: with moved targets; images are left as they are.
          used: bool[H, W], or None for the whole canvas.
        """
        finished = dict(sample)
        for name, kind in self.kinds(sample).items():
            if kind in _PLANES and used is not None:
                fill = self._fill(kind, sample[name].dtype)
                finished[name] = jnp.where(spread(used, kind, sample[name]), sample[name], fill)
            if kind == "boxes":
                inside = self.inside.box_format
                finished[name] = convert_bounding_box_format(sample[name], inside, self.box_format)
        return finished

    def move(
        self, sample: Sample, source: ImageInfo, warp: Warp, settings: SettledResampling
    ) -> Sample:
        """Return `sample` with its targets moved as `warp` moves the image.

        Args:
          sample: with the targets. Everything else is left as it is.
          source: the image before the map.
          warp: the pull map.
          settings: those of the image's resample; masks are read with "nearest".
        """
        kinds = self.kinds(sample)
        _check_left_behind(sample, kinds, source.canvas)
        moved = dict(sample)
        for name, kind in kinds.items():
            moved[name] = self._moved(kind, sample[name], source.extent, warp, settings)
            if kind == "polygons":
                moved[name] = _vertices(name, moved, sample[name])
        return _swapped(moved, self.swap, warp.mirrors) if self.swap else moved

    def _moved(
        self, kind: str, value: Array, extent, warp: Warp, settings: SettledResampling
    ) -> Array:
        if kind == "boxes":
            return move_boxes(warp, value)
        if kind in ("keypoints", "polygons"):
            return move_points(warp, value)
        if kind == "image":
            planes = resample(_planes_last(kind, value), extent, warp, *settings)
            # Without the barrier a later resample, or a choice, would compute it for each reading.
            planes = barrier(in_range(planes, settings.interpolation))
        elif kind == "map":  # numbers, interpolated as the image; 0 outside of it
            planes = _planes_last(kind, value)
            planes = resample(
                planes, extent, warp, settings.interpolation, settings.padding_mode, 0.0
            )
            planes = barrier(stored_as(planes, value.dtype))
        else:
            planes = _planes_last(kind, value)
            fill = self._fill(kind, value.dtype)
            planes = read_exactly(planes, extent, warp, settings.padding_mode, fill)
        return _planes_first(kind, planes, value.ndim)

    def _fill(self, kind: str, dtype: Any) -> Array:
        """Return what a target of pixels holds where there is no image."""
        return mask_value(dtype, self.mask_fill) if kind == "mask" else jnp.zeros((), dtype)


def as_added(name: str, targets: Any) -> tuple[tuple[str, str], ...]:
    """Return {name: kind} as pairs, checked."""
    pairs = targets.items() if isinstance(targets, Mapping) else map(tuple, targets)
    checked = []
    for pair in pairs:
        if len(pair) != 2 or pair[0] in ("image", "size"):
            raise ValueError(
                f"`{name}` must be a dict of names of the sample's entries and their kinds, such as"
                f' {{"depth": "image"}}, got {targets!r}.'
            )
        checked.append((pair[0], as_choice(f"{name}[{pair[0]!r}]", pair[1], KINDS)))
    return tuple(checked)


def spread(used: Array, kind: str, value: Array) -> Array:
    """Return bool[H, W] with the axes of a target."""
    if kind == "masks":
        return used[None]
    return used if value.ndim == 2 else used[:, :, None]


def mask_value(dtype: Any, mask_fill: int) -> Array:
    """Return what a mask of `dtype` holds where there is no image: `mask_fill`, False or 0.0."""
    if dtype == jnp.bool_ or not jnp.issubdtype(dtype, jnp.integer):
        return jnp.zeros((), dtype)
    limits = jnp.iinfo(dtype)
    if not limits.min <= mask_fill <= limits.max:
        raise ValueError(
            f"`mask_fill` must fit the mask's {jnp.dtype(dtype).name} ({limits.min} to"
            f" {limits.max}), got {mask_fill}: give Compose(..., mask_fill=...) another value, or"
            " the mask another dtype."
        )
    return jnp.asarray(mask_fill, dtype)


def _check_left_behind(sample: Sample, moving: Mapping[str, str], canvas: Canvas) -> None:
    """Raise ValueError for boxes by another name, which would not move with their image.

    Warn once of any other entry that has the form of one that moves, and no kind.
    """
    for name in BOXES_ELSEWHERE:
        if name in sample and name not in moving:
            raise ValueError(
                f"{name!r} would stay where it is while the image moves: name it 'boxes', give"
                f' Compose(..., targets={{"{name}": "boxes"}}), or leave it out.'
            )

    for name, value in sample.items():
        shape = getattr(value, "shape", ())
        planes = len(shape) in (2, 3) and shape[:2] == canvas
        points = (
            name in POINTS_ELSEWHERE
            and shape[-1:] in ((2,), (3,))
            and jnp.issubdtype(value.dtype, jnp.floating)
        )
        if name in moving or not (points or planes):
            continue

        kinds = '"keypoints"' if points else '"map", "mask" or "image"'
        warn_once(
            f"{name!r} {list(shape)} stays where it is while the image moves: give its kind, "
            f"Compose(..., targets={{{name!r}: {kinds}}}), or leave it out.",
            UserWarning,
        )


def _checked(name: str, kind: str, value: Array, image: Array) -> Array:
    """Return an entry; raise where it does not fit the image."""
    if kind == "keypoints":
        return as_points(value)
    if kind == "polygons":
        return as_polygons(name, value)
    height, width = image.shape[:2]
    frame = value.shape[1:] if kind == "masks" else value.shape[:2]
    if frame != (height, width) or value.ndim not in ((3,) if kind == "masks" else (2, 3)):
        expected = "[H, W] or [H, W, C]"
        shapes = f"({height}, {width}) or ({height}, {width}, C)"
        if kind == "masks":
            expected = "[n, H, W]"
            shapes = f"(n, {height}, {width})"
        raise ValueError(
            f"`{name}` must be {expected} of its image's height and width: expected {shapes} beside"
            f" the image {image.shape}, got {value.shape}."
        )
    if kind in ("image", "map") and not is_pixels(value.dtype):
        raise TypeError(
            f"`{name}` is interpolated and must be uint8, uint16 or floats, got"
            f' {value.dtype}: convert it, or name it a "mask" in `targets`.'
        )
    return value


def _vertices(name: str, moved: Sample, before: Array) -> Array:
    """Return polygons of which the rows that "<name>_length" does not count are as before.

    It counts points [...] of each polygon [..., k, 2], or polygons of [n, k, 2].
    """
    count = moved.get(f"{name}_length")
    if count is None:
        return moved[name]
    count = jnp.asarray(count, jnp.int32)
    counted = count.ndim  # the axis whose rows it counts
    if count.shape != before.shape[:counted] or counted >= before.ndim - 1:
        raise ValueError(
            f"`{name}_length` must count the points of each polygon of `{name}` {before.shape},"
            f" expected shape {before.shape[:-2]}, got {count.shape}."
        )
    row = lax.broadcasted_iota(jnp.int32, before.shape, counted)
    rows = row < count.reshape(*count.shape, *[1] * (before.ndim - counted))
    return jnp.where(rows, moved[name], before)


def _planes_last(kind: str, value: Array) -> Array:
    """Return a target of pixels as [H, W, n]."""
    if value.ndim == 2:
        return value[:, :, None]
    return jnp.moveaxis(value, 0, 2) if kind == "masks" else value


def _planes_first(kind: str, planes: Array, ndim: int) -> Array:
    """Return [H, W, n] in the layout of the target."""
    if ndim == 2:
        return planes[:, :, 0]
    return jnp.moveaxis(planes, 2, 0) if kind == "masks" else planes


# ---- what changes sides when an image is mirrored: joints, and classes, of left and right


def as_swaps(name: str, value: Any) -> Swaps:
    """Return {entry: pairs}, or the pairs of "keypoints", as pairs of a name and pairs."""
    value = plain(tuple(value.items()) if isinstance(value, Mapping) else value)
    if _are_pairs(value):
        value = ((_JOINTS, value),) if value else ()
    named = isinstance(value, tuple) and all(
        isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in value
    )
    if not named or not all(_are_pairs(pairs) for _, pairs in value):
        raise ValueError(
            f"`{name}` must be pairs of joints, such as ((1, 2), (3, 4)), or a dict of entries and"
            f" their pairs, such as {{'keypoints': ((1, 2),), 'box_labels': ((5, 6),)}}, got"
            f" {value!r}: ints of at least 0, each once."
        )
    return tuple((entry, pairs) for entry, pairs in value if pairs)


def _are_pairs(value: Any) -> bool:
    """Return True for pairs of ints of at least 0, none of them twice."""
    if not isinstance(value, tuple):
        return False
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return False
    numbers = [number for pair in value for number in pair]
    whole = all(isinstance(number, int) and number >= 0 for number in numbers)
    return whole and len(set(numbers)) == len(numbers)


def _check_swaps(sample: Sample, swaps: Swaps) -> None:
    """Raise where an entry has not the joints, or not the integers, that `swaps` names."""
    for name, pairs in swaps:
        if name not in sample:
            continue
        value = jnp.asarray(sample[name])
        if name != _JOINTS and not jnp.issubdtype(value.dtype, jnp.integer):
            raise TypeError(
                f"`swap` exchanges classes of {name!r}, integers, got {value.dtype}: name joints"
                f" {_JOINTS!r}."
            )
        largest = max(number for pair in pairs for number in pair)
        if name == _JOINTS and largest >= value.shape[-2]:
            raise ValueError(
                f"`swap` names joint {largest}, got 'keypoints' {value.shape} with"
                f" {value.shape[-2]} joints: they are counted from 0."
            )


def _swapped(sample: Sample, swaps: Swaps, mirrors: Array | bool) -> Sample:
    """Return `sample` with joints and classes exchanged where its image was mirrored."""
    if mirrors is False:
        return sample
    changed = dict(sample)
    for name, pairs in swaps:
        if name in sample:
            value = jnp.asarray(sample[name])
            exchange = _joints if name == _JOINTS else _classes
            changed[name] = jnp.where(mirrors, exchange(value, pairs), value)
    return changed


def _joints(points: Array, pairs: tuple[tuple[int, int], ...]) -> Array:
    order = list(range(points.shape[-2]))
    for left, right in pairs:
        order[left], order[right] = right, left
    return jnp.take(points, jnp.array(order, jnp.int32), axis=-2)


def _classes(values: Array, pairs: tuple[tuple[int, int], ...]) -> Array:
    changed = values
    for left, right in pairs:
        changed = jnp.where(values == left, jnp.asarray(right, values.dtype), changed)
        changed = jnp.where(values == right, jnp.asarray(left, values.dtype), changed)
    return changed
