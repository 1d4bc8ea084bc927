"""Parts of a volume: crops at random, in the middle, about what is labeled; pads, tiles."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._typing import Key, Sample, Scalar
from jaxaug.augment._base import (
    LARGEST,
    Converter,
    Range,
    VolumeInfo,
    as_choice,
    as_number,
    as_probability,
    as_range_of,
)
from jaxaug.augment.random import between, integer, permutation, uniform
from jaxaug.augment.volume._fields import Size
from jaxaug.augment.volume._kind import LABELS, Spatial, VolumeOp, moved_beside, warn_of_left_behind
from jaxaug.augment.volume._warp import Shape, VolumeWarp
from jaxaug.augment.volume.spatial import BORDERS, EDGE, resized_along


@dataclass(frozen=True)
class Crop(Spatial):
    """Cut a part out of the volume at a random place.

    Args:
      size: (depth, height, width) of the part, or an int for a cube; at most that of the volume.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Crop(4)(jax.random.key(0), jnp.zeros((8, 9, 10), jnp.uint8)).shape
      (4, 4, 4)

    Reference: `monai.transforms.RandSpatialCrop`.
    """

    size: Size

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw the first voxel, int32[3]."""
        numbers = uniform(key, shape=(3,))
        rooms = _rooms(self, info.shape, self.size)
        return jnp.stack([integer(number, 0, room + 1) for number, room in zip(numbers, rooms)])

    def warp(self, params: Array, info: VolumeInfo) -> VolumeWarp:
        """Return p -> p + first."""
        return _shifted(info, params.astype(jnp.float32), self.size)


@dataclass(frozen=True)
class CenterCrop(Spatial):
    """Cut the middle out of the volume.

    Args:
      size: (depth, height, width) of the part, or an int for a cube; at most that of the volume.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> CenterCrop(1)(jax.random.key(0), jnp.arange(27.0).reshape(3, 3, 3)).ravel().tolist()
      [13.0]
    """

    size: Size

    def warp(self, params: None, info: VolumeInfo) -> VolumeWarp:
        """Return p -> p + first."""
        rooms = _rooms(self, info.shape, self.size)
        return _shifted(info, np.array([room // 2 for room in rooms], np.float32), self.size)


@dataclass(frozen=True)
class CropOrPad(Spatial):
    """Bring every volume to one size without a resample: cut or padded on both sides alike.

    Args:
      size: (depth, height, width), or an int for a cube.
      padding_mode: of what is added: "constant", "edge" or "reflect" (1234|321).
      fill: of "constant", in the units of the volume; labels are 0 there.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> CropOrPad((1, 1, 4))(jax.random.key(0), jnp.ones((1, 1, 2))).ravel().tolist()
      [0.0, 1.0, 1.0, 0.0]

    Reference: `torchio.CropOrPad`, `monai.transforms.ResizeWithPadOrCrop`.
    """

    size: Size
    _: KW_ONLY
    padding_mode: Annotated[str, Converter(as_choice, BORDERS)] = "constant"
    fill: Annotated[float, Converter(as_number, -LARGEST, LARGEST)] = 0.0

    def warp(self, params: None, info: VolumeInfo) -> VolumeWarp:
        """Return p -> p + first, which is below 0 where there is padding."""
        first = [(side - wanted) // 2 for side, wanted in zip(info.shape, self.size)]
        return _shifted(info, np.array(first, np.float32), self.size)


class Part(NamedTuple):
    """Drawn parameters of `ResizedCrop`, float32[3] of whole numbers: first voxel, and sides."""

    first: Array
    size: Array


@dataclass(frozen=True)
class ResizedCrop(Spatial):
    """Cut out a part of random size and bring it to one size: antialiased where it shrinks.

    Each side of the part is a random share of the volume's, rounded to whole voxels, and its place
    is uniform. It is a resample of its own, axis by axis. The "spacing" changes with it.

    Args:
      size: (depth, height, width) of the output, or an int for a cube.
      scale: (low, high), within (0, 1], the range of the part's share of the voxels; one number for
        both.
      ratio: (low, high), above 0: each axis is stretched by a factor that is log-uniform in it,
        over the mean of the three; sides beyond the volume's are cut to it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ResizedCrop(8)(jax.random.key(0), jnp.zeros((16, 20, 12))).shape
      (8, 8, 8)

    Reference: `albumentations.RandomResizedCrop3D`, `monai.transforms.RandZoom` of more than 1.
    """

    size: Size
    scale: Annotated[Range, Converter(as_range_of, 1e-3, 1.0)] = (0.3, 1.0)
    ratio: Annotated[Range, Converter(as_range_of, 1e-3)] = (3 / 4, 4 / 3)

    def make_params(self, key: Key, info: VolumeInfo) -> Part:
        """Draw the part."""
        numbers = uniform(key, shape=(7,))
        factors = between(numbers[1:4], *map(jnp.log, self.ratio))
        factors = jnp.exp(factors - (factors[0] + factors[1] + factors[2]) / 3)
        sides = jnp.array(info.shape, jnp.float32)
        share = jnp.cbrt(between(numbers[0], *self.scale))
        size = jnp.clip(jnp.round(sides * share * factors), 1.0, sides)
        first = jnp.floor(numbers[4:] * (sides - size + 1.0))
        return Part(first=jnp.minimum(first, sides - size), size=size)

    def warp(self, params: Part, info: VolumeInfo) -> VolumeWarp:
        """Return the map; without the antialiasing, for `inverse`."""
        factors = params.size / np.array(self.size, np.float32)
        matrix = factors[:, None] * np.eye(3, dtype=np.float32)
        warp = VolumeWarp.of(info, matrix, params.first, shape=self.size, diagonal=True)
        spacing = None if info.spacing is None else jnp.asarray(info.spacing) * factors
        return warp._replace(spacing=spacing)

    def change(self, params: Part, sample: Sample, info: VolumeInfo) -> Sample:
        """Return the part in the new size."""
        resized = moved_beside({**sample}, self.warp(params, info), EDGE)
        for axis, side in enumerate(self.size):
            first, length = params.first[axis], params.size[axis]
            resized["volume"] = resized_along(resized["volume"], axis, side, first, length)
        return resized

    def run(self, drawn: Any, state: Any) -> Any:
        """Resize, which ends a run: it is resampled axis by axis."""
        return super(Spatial, self).run(drawn, state)


@dataclass(frozen=True)
class GridShuffle(VolumeOp):
    """Put the tiles of a grid in a random order; labels follow.

    All tiles are of one size, the whole voxels of each side over its number of tiles; what is left
    over at the end of an axis stays as it is.

    Args:
      grid: (deep, high, wide), how many tiles along each axis, or an int for all.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> out = GridShuffle((1, 1, 3))(jax.random.key(0), jnp.arange(7.0).reshape(1, 1, 7))
      >>> sorted(out.ravel().tolist()), float(out[0, 0, 6])
      ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 6.0)

    Reference: `albumentations.GridShuffle3D`.
    """

    grid: Size = 3
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw which tile comes to each place, int32[deep * high * wide], row by row."""
        return permutation(key, math.prod(self.grid))

    def change(self, params: Array, sample: Sample, info: VolumeInfo) -> Sample:
        """Return the sample with its tiles in another order."""
        if any(side < count for side, count in zip(info.shape, self.grid)):
            raise ValueError(
                f"`grid` of GridShuffle must have at most a tile for each voxel of {info.shape},"
                f" got {self.grid}."
            )
        warn_of_left_behind(sample)
        names = [name for name in ("volume", LABELS) if name in sample]
        return {**sample, **{name: _shuffled(sample[name], params, self.grid) for name in names}}


class Focus(NamedTuple):
    """Drawn parameters of `ForegroundCrop`: float32 numbers of [0, 1), the last [3]."""

    foreground: Array
    which: Array
    place: Array


@dataclass(frozen=True)
class ForegroundCrop(VolumeOp):
    """Cut out a part about a labeled voxel, or with probability 1 - `foreground` at any place.

    Each voxel whose label is above 0 is as likely; the part is moved into the volume where it would
    leave it. Where nothing is labeled the place is random. It reads the labels, which ends a run of
    spatial transforms: put it before those.

    Args:
      size: (depth, height, width) of the part, or an int for a cube; at most that of the volume.
      foreground: the probability of a labeled voxel in the middle.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> labels = jnp.zeros((8, 8, 8), jnp.int32).at[6, 1, 4].set(1)
      >>> sample = {"volume": jnp.zeros((8, 8, 8)), "labels": labels}
      >>> int(ForegroundCrop(2, 1.0)(jax.random.key(0), sample)["labels"].sum())
      1

    Reference: `monai.transforms.RandCropByPosNegLabel`, `torchio.LabelSampler`.

    Differs from MONAI in any place, not one without a label, as the alternative.
    """

    size: Size
    foreground: Annotated[Scalar, Converter(as_probability)] = 0.5

    def make_params(self, key: Key, info: VolumeInfo) -> Focus:
        """Draw the kind of place, the labeled voxel, and the place elsewhere."""
        numbers = uniform(key, shape=(5,))
        return Focus(numbers[0], numbers[1], numbers[2:])

    def seen(self, params: Focus, info: VolumeInfo) -> VolumeInfo:
        """Return the `VolumeInfo` of the part."""
        return info._replace(shape=self.size)

    def change(self, params: Focus, sample: Sample, info: VolumeInfo) -> Sample:
        """Return the part."""
        if LABELS not in sample:
            raise ValueError(
                "ForegroundCrop needs 'labels' beside the volume, and there are none: take Crop."
            )
        warn_of_left_behind(sample)
        rooms = jnp.array(_rooms(self, info.shape, self.size), jnp.int32)
        anywhere = jnp.floor(params.place * (rooms + 1).astype(jnp.float32)).astype(jnp.int32)
        marked = jnp.asarray(sample[LABELS]) > 0
        marked = marked if marked.ndim == 3 else jnp.any(marked, axis=3)
        voxel, any_marked = _marked_voxel(marked, params.which)
        around = voxel - jnp.array(self.size, jnp.int32) // 2
        first = jnp.where((params.foreground < self.foreground) & any_marked, around, anywhere)
        first = jnp.clip(first, 0, rooms)
        part = {name: _cut(sample[name], first, self.size) for name in ("volume", LABELS)}
        return {**sample, **part}


def _shuffled(values: Array, order: Array, grid: Shape) -> Array:
    """Return values [D, H, W, ...] whose tile k is their tile `order[k]`."""
    values = jnp.asarray(values)
    (a, b, c), rest = grid, values.shape[3:]
    depth, height, width = (side // count for side, count in zip(values.shape, grid))
    moved = values[: a * depth, : b * height, : c * width]
    tiles = moved.reshape(a, depth, b, height, c, width, *rest).swapaxes(1, 2)
    tiles = jnp.moveaxis(tiles, 4, 2)  # [a, b, c, depth, height, width, ...]
    tiles = tiles.reshape(a * b * c, depth, height, width, *rest)
    tiles = jnp.take(tiles, order, axis=0, mode="clip")
    tiles = tiles.reshape(a, b, c, depth, height, width, *rest)
    tiles = jnp.moveaxis(tiles, 2, 4).swapaxes(1, 2).reshape(moved.shape)
    return values.at[: a * depth, : b * height, : c * width].set(tiles)


def _marked_voxel(marked: Array, number: Array) -> tuple[Array, Array]:
    """Return (z, y, x) of the voxel at a quantile of those that are marked, and if there is one.

    Counted by slices, then by rows of the slice, then along the row: one pass over the voxels.
    """
    rows = jnp.sum(marked, axis=2, dtype=jnp.int32)
    slices = jnp.sum(rows, axis=1, dtype=jnp.int32)
    total = jnp.sum(slices, dtype=jnp.int32)
    rank = integer(number, 0, jnp.maximum(total, 1))

    def within(counts: Array, rank: Array) -> tuple[Array, Array]:
        reached = jnp.cumsum(counts, dtype=jnp.int32)
        index = jnp.sum(reached <= rank, dtype=jnp.int32)
        index = jnp.minimum(index, counts.shape[0] - 1)
        return index, rank - (reached[index] - counts[index])

    z, rank = within(slices, rank)
    y, rank = within(rows[z], rank)
    x, _ = within(marked[z, y].astype(jnp.int32), rank)
    return jnp.stack([z, y, x]), total > 0


def _cut(values: Array, first: Array, size: Shape) -> Array:
    values = jnp.asarray(values)
    rest = values.shape[3:]
    starts = [*first, *(jnp.int32(0) for _ in rest)]
    return lax.dynamic_slice(values, starts, (*size, *rest))


def _shifted(info: VolumeInfo, first: Array | np.ndarray, size: Shape) -> VolumeWarp:
    matrix = np.eye(3, dtype=np.float32)
    return VolumeWarp.of(info, matrix, first, shape=size, diagonal=True, whole=True)


def _rooms(transform: Spatial | VolumeOp, shape: Shape, size: Shape) -> list[int]:
    """Return how far the first voxel of a part may lie along each axis."""
    rooms = [side - wanted for side, wanted in zip(shape, size, strict=True)]
    if min(rooms) < 0:
        raise ValueError(
            f"`size` of {type(transform).__name__} must fit into the volume of {shape}, got {size}:"
            " put CropOrPad before it."
        )
    return rooms
