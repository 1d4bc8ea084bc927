"""Distortions that bend straight lines: uneven grids, lenses, thin plates.

Displacements are computed at the nodes of an even grid over the image, and are bilinear between
them. Where they are steeper than a gradient of 0.6 they are scaled down to it.
"""

import functools
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    PaddingMode,
    PositiveInt,
    Range,
    Size,
    UnitRange,
    as_int,
    as_int_range,
    as_range,
    as_symmetric_range,
)
from jaxaug.augment._chain import Bordered
from jaxaug.augment._warp import Displacement, Warp, displaced_by
from jaxaug.augment._xla import barrier, rounded
from jaxaug.augment.random import between, integer, uniform

# Nodes along each axis for smooth displacements: a cell is 8 pixels of 512, over which the defaults
# below deviate from bilinear by about a hundredth of a pixel.
_NODES = 65


class Grid(NamedTuple):
    """Drawn parameter of `GridDistortion`: float32[2, num_steps], the steps along y and x."""

    steps: Array


@dataclass(frozen=True)
class GridDistortion(Bordered):
    """Stretch and squeeze the rows and the columns of an even grid, each by its own random factor.

    The lines of the grid stay straight, and the frame is the same: the steps are divided by their
    sum.

    Args:
      num_steps: the number of cells along each axis.
      distort_limit: (low, high), by how much a step may differ from 1, within [-0.9, 0.9]; a number
        v means (-v, v).
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> GridDistortion()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    The rule is albumentations' with `normalized=True`. Differs in scaling displacements down to a
    gradient of 0.6 where they are steeper.
    """

    num_steps: PositiveInt = 5
    distort_limit: Annotated[Range, Converter(as_symmetric_range, -0.9, 0.9)] = (-0.3, 0.3)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Grid:
        """Draw the steps."""
        low, high = self.distort_limit
        return Grid(uniform(key, 1 + low, 1 + high, shape=(2, self.num_steps)))

    def warp(self, params: Grid, info: ImageInfo) -> Warp:
        """Return the displacement of the grid's lines."""
        height, width = info.extent
        steps = params.steps / jnp.sum(params.steps, axis=1, keepdims=True)
        ends = [steps[:, 0]]
        for i in range(1, self.num_steps):
            ends.append(ends[-1] + steps[:, i])
        even = jnp.linspace(0.0, 1.0, self.num_steps + 1, dtype=jnp.float32)
        shifts = jnp.pad(jnp.stack(ends, axis=1), ((0, 0), (1, 0))) - even[None, :]
        shape = (self.num_steps + 1, self.num_steps + 1)
        dx = jnp.broadcast_to(shifts[1][None, :] * width, shape)
        dy = jnp.broadcast_to(shifts[0][:, None] * height, shape)
        return displaced_by(info, Displacement.between_edges(dx, dy, height, width))


class Lens(NamedTuple):
    """Drawn parameter of `OpticalDistortion`: float32, the coefficient k."""

    k: Array


@dataclass(frozen=True)
class OpticalDistortion(Bordered):
    """Distort as a lens does: a point at radius r shows what lies at r (1 + k r^2 + k r^4).

    The radius is that of ((x - W/2) / W, (y - H/2) / H).

    Args:
      distort_limit: (low, high) of k, within [-1, 1]; a number v means (-v, v).
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> OpticalDistortion()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    The rule is that of albumentations' `mode="camera"` and OpenCV's `initUndistortRectifyMap`.
    Differs in the center, which lies at (W / 2, H / 2) in edge coordinates, and in scaling
    displacements down to a gradient of 0.6 where they are steeper.
    """

    distort_limit: Annotated[Range, Converter(as_symmetric_range, -1.0, 1.0)] = (-0.05, 0.05)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Lens:
        """Draw the coefficient."""
        return Lens(uniform(key, *self.distort_limit))

    def warp(self, params: Lens, info: ImageInfo) -> Warp:
        """Return the displacement along the radius."""
        height, width = info.extent
        grid = np.mgrid[0 : 1 : _NODES * 1j, 0 : 1 : _NODES * 1j].astype(np.float32)
        y, x = grid - np.float32(0.5)
        squared = x * x + y * y
        along = params.k * (squared + squared * squared)
        dx, dy = x * along * width, y * along * height
        return displaced_by(info, Displacement.between_edges(dx, dy, height, width))


class Nodes(NamedTuple):
    """Drawn parameter of `PiecewiseAffine`: float32[2, rows, columns], the (x, y) displacements of
    the nodes as shares of width and height.
    """

    displacements: Array


@dataclass(frozen=True)
class PiecewiseAffine(Bordered):
    """Displace the nodes of an even grid at random, and what lies between them bilinearly.

    The displacements are normal, of a standard deviation that is uniform in `scale_range`.

    Args:
      scale_range: (low, high) of the standard deviation, as a share of width and height, within
        [0, 1].
      grid: (rows, columns) of nodes from edge to edge, at least 2 each, or an int for both.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PiecewiseAffine()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    The draws are albumentations'. Differs in the map between nodes, there affine on triangles, and
    in scaling displacements down to a gradient of 0.6 where they are steeper.
    """

    scale_range: UnitRange = (0.03, 0.05)
    grid: Size = (4, 4)
    p: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        for side in self.grid:
            as_int("grid", side, 2)

    def make_params(self, key: Key, info: ImageInfo) -> Nodes:
        """Draw the displacements."""
        keys = jax.random.split(key)
        scale = between(uniform(keys[0]), *self.scale_range)
        return Nodes(jax.random.normal(keys[1], (2, *self.grid), jnp.float32) * scale)

    def warp(self, params: Nodes, info: ImageInfo) -> Warp:
        """Return the displacement by the nodes."""
        height, width = info.extent
        dx, dy = params.displacements[0] * width, params.displacements[1] * height
        return displaced_by(info, Displacement.between_edges(dx, dy, height, width))


class ThinPlate(NamedTuple):
    """Drawn parameter of `ThinPlateSpline`: float32[2, n, n], the (x, y) displacements of the
    control points as shares of width and height.
    """

    displacements: Array


@dataclass(frozen=True)
class ThinPlateSpline(Bordered):
    """Bend the image as a thin plate whose control points are displaced at random.

    The displacements are normal, of standard deviation scale / 10 of the width and height, with a
    scale that is uniform in `scale_range`.

    Args:
      scale_range: (low, high) of the scale, within [0, 1].
      num_control_points: n, for n x n points on an even grid from edge to edge, at least 2.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ThinPlateSpline()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: F. Bookstein, "Principal Warps: Thin-Plate Splines and the Decomposition of
      Deformations", 1989. The rule is albumentations'.

    Differs in scaling displacements down to a gradient of 0.6 where they are steeper.
    """

    scale_range: UnitRange = (0.2, 0.4)
    num_control_points: Annotated[int, Converter(as_int, 2)] = 4
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> ThinPlate:
        """Draw the displacements of the control points."""
        keys = jax.random.split(key)
        scale = between(uniform(keys[0]), *self.scale_range)
        shape = (2, self.num_control_points, self.num_control_points)
        return ThinPlate(jax.random.normal(keys[1], shape, jnp.float32) * (scale / 10))

    def warp(self, params: ThinPlate, info: ImageInfo) -> Warp:
        """Return the displacement by the spline."""
        height, width = info.extent
        count = self.num_control_points
        # The spline is linear in the displacements; a sum written out is no dot.
        field = jnp.zeros((2, _NODES, _NODES), jnp.float32)
        for i, basis in enumerate(_spline_basis(count)):
            field = field + params.displacements[:, i // count, i % count, None, None] * basis[None]
        dx, dy = field[0] * width, field[1] * height
        return displaced_by(info, Displacement.between_edges(dx, dy, height, width))


class Ripples(NamedTuple):
    """Drawn parameters of `WaterRefraction`, float32[n] each: amplitude and wavelength as shares of
    the shorter side, the angle of the wave's direction, and its phase, both in radians.
    """

    amplitude: Array
    wavelength: Array
    angle: Array
    phase: Array


@dataclass(frozen=True)
class WaterRefraction(Bordered):
    """Look through moving water: a sum of waves displaces the image along their directions.

    Args:
      amplitude: (low, high) of the displacement by all waves at most, as a share of the shorter
        side, within [0, 1].
      wavelength: (low, high), as a share of the shorter side, within [0.02, 10].
      num_waves: (low, high), or a number, how many waves there are, at least 1.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> WaterRefraction()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.WaterRefraction`, DALI's `fn.water`.

    Differs in scaling displacements down to a gradient of 0.6 where they are steeper.
    """

    amplitude: UnitRange = (0.01, 0.05)
    wavelength: Annotated[Range, Converter(as_range, 0.02, 10.0)] = (0.05, 0.2)
    num_waves: Annotated[Range, Converter(as_int_range, 1)] = (3, 7)
    p: float = 0.5
    _: KW_ONLY
    padding_mode: PaddingMode = "reflect"

    def make_params(self, key: Key, info: ImageInfo) -> Ripples:
        """Draw how many waves there are, and each of them."""
        low, high = self.num_waves
        numbers = uniform(key, shape=(4 * high + 1,))
        each = numbers[1:].reshape(4, high)
        count = integer(numbers[0], low, high + 1)
        shown = jnp.arange(high, dtype=jnp.int32) < count
        amplitude = between(each[0], *self.amplitude) / count.astype(jnp.float32)
        return Ripples(
            jnp.where(shown, amplitude, 0.0),
            between(each[1], *self.wavelength),
            each[2] * (2 * np.pi),
            each[3] * (2 * np.pi),
        )

    def warp(self, params: Ripples, info: ImageInfo) -> Warp:
        """Return the displacement by the waves."""
        height, width = info.extent
        shorter = jnp.minimum(height, width)
        grid = np.mgrid[0 : 1 : _FINE_NODES * 1j, 0 : 1 : _FINE_NODES * 1j].astype(np.float32)
        y, x = grid[0] * (height / shorter), grid[1] * (width / shorter)
        dx = dy = jnp.zeros_like(x)
        for i in range(params.phase.shape[0]):
            right, down = jnp.cos(params.angle[i]), jnp.sin(params.angle[i])
            along = rounded(x * right) + rounded(y * down)
            turns = rounded(along * (2 * np.pi / params.wavelength[i])) + params.phase[i]
            wave = params.amplitude[i] * barrier(jnp.sin(turns))
            dx, dy = dx + rounded(wave * right), dy + rounded(wave * down)
        return displaced_by(
            info, Displacement.between_edges(dx * shorter, dy * shorter, height, width)
        )


# Six for the shortest wave of the defaults. A power of 2: LLVM rounds the sines of what remains
# behind its vectors in another way.
_FINE_NODES = 128


@functools.cache
def _spline_basis(count: int) -> np.ndarray:
    """Return float32[count^2, nodes, nodes]: at the nodes, the spline that is 1 in one control
    point and 0 in the others.

    The spline is a x + b y + c + sum w_i U(r_i) with U(r) = r^2 log r; the equations of its
    coefficients are solved here, in float64.
    """
    y, x = np.mgrid[0 : 1 : count * 1j, 0 : 1 : count * 1j]
    control = np.column_stack([x.ravel(), y.ravel()])
    affine = np.column_stack([control, np.ones(len(control))])
    equations = np.block([[_kernel(control, control), affine], [affine.T, np.zeros((3, 3))]])
    values = np.eye(len(equations))[:, : len(control)]
    coefficients = np.linalg.solve(equations, values)

    y, x = np.mgrid[0 : 1 : _NODES * 1j, 0 : 1 : _NODES * 1j]
    nodes = np.column_stack([x.ravel(), y.ravel()])
    at_nodes = np.column_stack([_kernel(nodes, control), nodes, np.ones(len(nodes))])
    basis = (at_nodes @ coefficients).T.reshape(-1, _NODES, _NODES)
    return basis.astype(np.float32)


def _kernel(points: np.ndarray, control: np.ndarray) -> np.ndarray:
    """Return r^2 log r for the distances of points, 0 at 0."""
    squared = ((points[:, None] - control[None]) ** 2).sum(axis=2)
    return 0.5 * squared * np.log(np.where(squared == 0, 1.0, squared))
