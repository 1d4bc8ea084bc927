"""Moved voxels: flips, quarter turns, affine maps, perspectives, elastic ones, other sizes."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key, Sample, Scalar
from jaxaug.augment._base import (
    KERNELS,
    LARGEST,
    Axis,
    Converter,
    Drawn,
    Flag,
    Parameters,
    Range,
    VolumeInfo,
    as_choice,
    as_int,
    as_number,
    as_range_of,
    find_taps,
    sum_of_taps,
    tap_count,
)
from jaxaug.augment._xla import barrier
from jaxaug.augment.random import between, integers, uniform
from jaxaug.augment.volume import _warp
from jaxaug.augment.volume._fields import (
    Axes,
    Ranges,
    Size,
    as_factors,
    as_plane,
    as_ranges,
)
from jaxaug.augment.volume._kind import Border, Spatial, moved_beside, volume_info
from jaxaug.augment.volume._warp import Field, Linear, VolumeWarp, rotation

BORDERS = ("constant", "edge", "reflect")
EDGE = Border("edge")


@dataclass(frozen=True)
class Flip(Spatial):
    """Mirror the volume along each of some axes, each with probability `p`.

    Args:
      axes: of 0 (depth), 1 (height) and 2 (width).
      p: the probability of each axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Flip((2,), p=1.0)(jax.random.key(0), jnp.array([[[1.0, 2.0]]])).tolist()
      [[[2.0, 1.0]]]

    Reference: `monai.transforms.RandFlip`, `torchio.RandomFlip`.
    """

    axes: Axes = (0, 1, 2)
    _: KW_ONLY
    p: float = 0.5

    def draw(self, key: Key, info: Any) -> Any:
        """Draw the parameters, which hold the coin of each axis."""
        return Drawn(self.make_params(key, volume_info(self, info)))

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw which axes are mirrored, bool[3]."""
        tossed = uniform(key, shape=(3,)) < self.p
        return tossed & jnp.array([axis in self.axes for axis in range(3)])

    def warp(self, params: Array, info: VolumeInfo) -> VolumeWarp:
        """Return p -> n - p along the axes that are mirrored."""
        sign = jnp.where(params, -1.0, 1.0)
        matrix = sign[:, None] * jnp.eye(3, dtype=jnp.float32)
        offset = jnp.where(params, jnp.array(info.shape, jnp.float32), 0.0)
        return VolumeWarp.of(info, matrix, offset, diagonal=True, whole=True)


@dataclass(frozen=True)
class QuarterTurn(Spatial):
    """Turn the volume by a random number of quarter turns in the plane of two axes.

    Args:
      axes: two of 0 (depth), 1 (height) and 2 (width), along which the volume has one length; (1,
        2) turns counter-clockwise on a slice.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> QuarterTurn((1, 2))(jax.random.key(0), jnp.zeros((2, 4, 4))).shape
      (2, 4, 4)

    Reference: `monai.transforms.RandRotate90`.
    """

    axes: Annotated[Axes, Converter(as_plane)] = (1, 2)
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw the number of turns, 0 to 3."""
        return integers(key, 0, 4)

    def warp(self, params: Array, info: VolumeInfo) -> VolumeWarp:
        """Return the turn about the center."""
        first, second = self.axes
        if info.shape[first] != info.shape[second]:
            raise ValueError(
                f"QuarterTurn needs one length along the axes {self.axes}, got a volume of"
                f" {info.shape}: crop or pad it to that before."
            )
        turns = np.broadcast_to(np.eye(3, dtype=np.float32), (4, 3, 3)).copy()
        for count in range(4):
            cosine, sine = ((1, 0), (0, 1), (-1, 0), (0, -1))[count]
            turns[count, first, first] = turns[count, second, second] = cosine
            turns[count, first, second], turns[count, second, first] = sine, -sine
        center = np.array(info.shape, np.float32) / 2
        offsets = center - np.einsum("kij,j->ki", turns, center)
        matrix, offset = jnp.asarray(turns)[params], jnp.asarray(offsets, jnp.float32)[params]
        warp = VolumeWarp.of(info, matrix, offset, whole=True)
        if info.spacing is None:
            return warp
        spacing = jnp.asarray(info.spacing, jnp.float32)
        swapped = spacing.at[first].set(spacing[second]).at[second].set(spacing[first])
        return warp._replace(spacing=jnp.where(params % 2 == 1, swapped, spacing))


class AffineDraw(NamedTuple):
    """Drawn parameters of `Affine`, float32: degrees [3], factors [3], shears [6], voxels [3]."""

    degrees: Array
    scale: Array
    shear: Array
    translate: Array


@dataclass(frozen=True)
class Affine(Spatial):
    """Turn, scale, shear and shift the volume about its center, in one resample with its neighbors.

    Where the sample has a "spacing" this is done in mm, so that a turn does not bend what is in the
    volume.

    Args:
      degrees: v draws the angle about each axis from [-v, v], a pair (low, high) from itself; three
        of these are about the axes of depth, height and width. On the slices that an axis crosses
        positive is counter-clockwise, with the later of their axes to the right.
      scale: (low, high), the range of the factors, above 1 larger; or three of these.
      shear: as `degrees`, of the factors by which each axis moves along each other.
      translate: as `degrees`, in voxels.
      isotropic: True draws one factor of scale for all axes, False three.
      padding_mode: of what lies outside: "constant", "edge" or "reflect" (1234|321).
      fill: of "constant", in the units of the volume; labels are 0 there.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {"volume": jnp.zeros((8, 9, 10)), "labels": jnp.ones((8, 9, 10), jnp.int32)}
      >>> Affine(15, (0.9, 1.1))(jax.random.key(0), sample)["labels"].dtype
      dtype('int32')

    Reference: `monai.transforms.RandAffine`, `torchio.RandomAffine`.

    Differs from both in being resampled once with the spatial transforms beside it.
    """

    degrees: Ranges = 0.0
    scale: Annotated[Ranges, Converter(as_factors)] = 1.0
    shear: Ranges = 0.0
    translate: Ranges = 0.0
    _: KW_ONLY
    isotropic: Flag = True
    padding_mode: Annotated[str, Converter(as_choice, BORDERS)] = "constant"
    fill: Annotated[float, Converter(as_number, -LARGEST, LARGEST)] = 0.0
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> AffineDraw:
        """Draw the angles, factors, shears and shifts."""
        numbers = uniform(key, shape=(15,))
        scales = jnp.broadcast_to(numbers[3], (3,)) if self.isotropic else numbers[3:6]
        shears = [pair for pair in self.shear for _ in range(2)]
        return AffineDraw(
            _between(numbers[:3], self.degrees),
            _between(scales, self.scale),
            _between(numbers[6:12], shears),
            _between(numbers[12:], self.translate),
        )

    def warp(self, params: AffineDraw, info: VolumeInfo) -> VolumeWarp:
        """Return the inverse of the shift of the turn of the shear of the scale."""
        zero = jnp.zeros(3, jnp.float32)
        places = np.array([(i, j) for i in range(3) for j in range(3) if i != j])
        eye = jnp.eye(3, dtype=jnp.float32)
        shear = eye.at[places[:, 0], places[:, 1]].set(params.shear)
        scale = eye * params.scale[:, None]
        forward = Linear(shear, zero).after(Linear(scale, zero))
        forward = Linear(rotation(params.degrees), zero).after(forward)
        if info.spacing is not None:
            spacing = jnp.asarray(info.spacing, jnp.float32)
            within = forward.matrix * spacing[None, :] / spacing[:, None]
            forward = Linear(within, zero)
        back = forward.inverse().matrix
        center = jnp.array(info.shape, jnp.float32) / 2
        z, y, x = Linear(back, zero)(tuple(center + params.translate))
        return VolumeWarp.of(info, back, center - jnp.stack([z, y, x]))


@dataclass(frozen=True)
class Perspective(Spatial):
    """Show the volume as from nearby: of two faces across an axis one larger, the other smaller.

    Args:
      distortion: v draws a number of each axis from [-v, v], a pair (low, high) from itself; three
        of these are of depth, height and width. Where d is drawn the last face is shown 1 + d times
        as large, the first 1 - d times. At most 0.3: at 1/3 a corner may be at infinity.
      padding_mode: of what lies outside: "constant", "edge" or "reflect" (1234|321).
      fill: of "constant", in the units of the volume; labels are 0 there.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Perspective(0.2)(jax.random.key(0), jnp.zeros((8, 9, 10))).shape
      (8, 9, 10)

    Reference: `kornia.augmentation.RandomPerspective3D`.

    Differs from kornia in three drawn numbers for the places of eight corners.
    """

    distortion: Annotated[Ranges, Converter(as_ranges, -0.3, 0.3)] = 0.2
    _: KW_ONLY
    padding_mode: Annotated[str, Converter(as_choice, BORDERS)] = "constant"
    fill: Annotated[float, Converter(as_number, -LARGEST, LARGEST)] = 0.0
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw the distortion along each axis, float32[3]."""
        return _between(uniform(key, shape=(3,)), self.distortion)

    def warp(self, params: Array, info: VolumeInfo) -> VolumeWarp:
        """Return the perspective about the center."""
        center = jnp.array(info.shape, jnp.float32) / 2
        step = _warp.Perspective(params / center, center)
        return VolumeWarp((step,), info.shape, info.spacing)


class ElasticDraw(NamedTuple):
    """Drawn parameter of `Elastic`: float32[3, n, n, n], displacements in voxels."""

    control: Array


@dataclass(frozen=True)
class Elastic(Spatial):
    """Move the voxels by a cubic B-spline through random displacements.

    Args:
      control: the control points along each axis, at least 4: n make n - 3 cells of the volume.
      magnitude: (low, high), or one number, of the largest displacement of a control point, in
        voxels; at most 0.4 of a cell, where nothing can fold, so that `inverse` finds the way back.
      padding_mode: of what lies outside: "constant", "edge" or "reflect" (1234|321).
      fill: of "constant", in the units of the volume; labels are 0 there.

    Raises:
      ValueError: on tracing, for a magnitude of more than 0.4 of a cell.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Elastic(5, 1.0)(jax.random.key(0), jnp.zeros((8, 9, 10))).shape
      (8, 9, 10)

    Reference: `torchio.RandomElasticDeformation`; the bound is that of Y. Choi and S. Lee,
      "Injectivity Conditions of 2D and 3D Uniform Cubic B-Spline Functions", 2000.

    Differs from TorchIO in voxels for millimeters, in moving the border, too, and in its bound,
    half a cell there, near which some draws fold.
    """

    control: Annotated[int, Converter(as_int, 4)] = 7
    magnitude: Annotated[Range, Converter(as_range_of, 0.0)] = (0.0, 5.0)
    _: KW_ONLY
    padding_mode: Annotated[str, Converter(as_choice, BORDERS)] = "constant"
    fill: Annotated[float, Converter(as_number, -LARGEST, LARGEST)] = 0.0
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> ElasticDraw:
        """Draw the displacements of the control points."""
        cell = min(info.shape) / (self.control - 3)
        largest = self.magnitude[1]
        if isinstance(largest, float) and largest > 0.4 * cell:
            raise ValueError(
                f"`magnitude` of Elastic must be at most 0.4 of a cell, {0.4 * cell:g} voxels for a"
                f" volume of {info.shape} with {self.control} control points, got {largest:g}: take"
                " fewer points, or move them less."
            )
        size_key, control_key = jax.random.split(key)
        size = uniform(size_key, *self.magnitude)
        numbers = uniform(control_key, shape=(3, self.control, self.control, self.control))
        return ElasticDraw(size * (2.0 * numbers - 1.0))

    def warp(self, params: ElasticDraw, info: VolumeInfo) -> VolumeWarp:
        """Return the displacements."""
        return VolumeWarp((Field(params.control, info.shape),), info.shape, info.spacing)


@dataclass(frozen=True)
class Resize(Spatial):
    """Bring every volume to one size: interpolated where it grows, antialiased where it shrinks.

    It is a resample of its own, axis by axis. The "spacing" changes with it.

    Args:
      size: (depth, height, width), or an int for a cube.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {"volume": jnp.zeros((8, 8, 8)), "spacing": jnp.array([2.0, 1.0, 1.0])}
      >>> Resize((16, 8, 4))(jax.random.key(0), sample)["spacing"].tolist()
      [1.0, 1.0, 2.0]

    Reference: `monai.transforms.Resize`, `torchio.Resize`.
    """

    size: Size

    def warp(self, params: Parameters, info: VolumeInfo) -> VolumeWarp:
        """Return the map; without the antialiasing, for `inverse`."""
        factors = np.array(info.shape, np.float32) / np.array(self.size, np.float32)
        spacing = None if info.spacing is None else jnp.asarray(info.spacing) * factors
        warp = VolumeWarp.of(info, np.diag(factors), np.zeros(3), shape=self.size, diagonal=True)
        return warp._replace(spacing=spacing)

    def change(self, params: Parameters, sample: Sample, info: VolumeInfo) -> Sample:
        """Return the sample in the new size."""
        resized = moved_beside({**sample}, self.warp(params, info), EDGE)
        for axis, side in enumerate(self.size):
            resized["volume"] = resized_along(resized["volume"], axis, side)
        return resized

    def run(self, drawn: Any, state: Any) -> Any:
        """Resize, which ends a run: it is resampled axis by axis."""
        return super(Spatial, self).run(drawn, state)


def resized_along(
    volume: Array, axis: int, side: int, first: Scalar = 0.0, length: Scalar | None = None
) -> Array:
    """Return a part of the volume along an axis in another length, antialiased as PIL does.

    Args:
      side: voxels of the result.
      first, length: of the part in whole voxels; all of the axis where `length` is None.
    """
    whole = volume.shape[axis]
    length = float(whole) if length is None else length
    shrink = length / side
    kernel = KERNELS["bilinear"]
    taps_of = Axis(
        extent=float(whole),
        window=(first, first + length - 1.0),
        mode="edge",
        fills=False,
        framed=True,
        kernel=kernel,
        taps=tap_count(whole / side, kernel),
        most=max(1.0, whole / side),
    )
    place = first + (jnp.arange(side, dtype=jnp.float32) + 0.5) * shrink
    taps = find_taps(place, jnp.full(side, shrink, jnp.float32), taps_of)
    along = [1] * volume.ndim
    along[axis] = -1

    def term(index: Array, weight: Array) -> Array:
        return jnp.take(volume, index, axis=axis, mode="clip") * weight.reshape(along)

    return barrier(
        sum_of_taps(term, taps.indices, taps.weights, ndim=1) * taps.scale.reshape(along)
    )


def _between(numbers: Array, ranges: Any) -> Array:
    """Return numbers of [0, 1), each brought to its range."""
    return jnp.stack([between(number, *pair) for number, pair in zip(numbers, ranges, strict=True)])
