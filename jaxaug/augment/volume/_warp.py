"""The map of a run of spatial operators: from places of the output to places of the source.

Places are (z, y, x) in voxels from the outer edge of the first: voxel i covers [i, i + 1). A map is
a tuple of steps, each a linear map, a perspective or a field of displacements, and two linear ones
next to each other are one. No step is a matrix product: its rounding would depend on the batch.
"""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Scalar
from jaxaug.augment._base import VolumeInfo, chosen
from jaxaug.augment._xla import barrier
from jaxaug.augment.matrix import is_static

Shape = tuple[int, int, int]
Places = tuple[Array, Array, Array]  # z, y, x: float32 that broadcast to [D, H, W]
_NEAREST = 1e-3  # of a perspective's depth, which is 1 at the center
_ROUNDS = 12  # of the fixed point of an inverse: displacements shrink by their steepness in each


class Linear(NamedTuple):
    """The map q = matrix p + offset.

    Attributes:
      matrix: float32[3, 3].
      offset: float32[3].
      diagonal: static; True where each axis stays itself.
      whole: static; True where voxels fall on voxels.
    """

    matrix: Array
    offset: Array
    diagonal: bool = False
    whole: bool = False

    def __call__(self, places: Places) -> Places:
        """Return the places q of p."""
        m, b = self.matrix, self.offset
        if self.diagonal:
            z, y, x = (m[i, i] * place + b[i] for i, place in enumerate(places))
        else:
            z, y, x = (
                m[i, 0] * places[0] + m[i, 1] * places[1] + m[i, 2] * places[2] + b[i]
                for i in range(3)
            )
        return z, y, x

    def after(self, first: "Linear") -> "Linear":
        """Return the map that does `first`, then this one."""
        m, n = self.matrix, first.matrix
        matrix = m[:, :1] * n[:1] + m[:, 1:2] * n[1:2] + m[:, 2:] * n[2:]
        turned = m[:, 0] * first.offset[0] + m[:, 1] * first.offset[1] + m[:, 2] * first.offset[2]
        both = self.diagonal and first.diagonal
        return Linear(matrix, turned + self.offset, both, self.whole and first.whole)

    def inverse(self) -> "Linear":
        """Return the map from q to p, by the cofactors of the matrix."""
        rows = [self.matrix[i] for i in range(3)]
        columns = [jnp.cross(rows[i - 2], rows[i - 1]) for i in range(3)]
        determinant = jnp.sum(rows[0] * columns[0])
        matrix = jnp.stack(columns, axis=1) / determinant
        back = Linear(matrix, jnp.zeros(3, jnp.float32), self.diagonal, self.whole)
        z, y, x = back((-self.offset[0], -self.offset[1], -self.offset[2]))
        return back._replace(offset=jnp.stack([z, y, x]))

    def back(self, places: Places) -> Places:
        """Return the places p of q."""
        return self.inverse()(places)

    def where(self, applied: Array) -> "Linear":
        """Return this map, or the identity where `applied` is False."""
        matrix = chosen(applied, self.matrix, jnp.eye(3, dtype=jnp.float32))
        return self._replace(matrix=matrix, offset=jnp.where(applied, self.offset, 0.0))


class Perspective(NamedTuple):
    """The map q = center + d / (1 + tilt d), with d = p - center.

    Attributes:
      tilt: float32[3], 1 / voxels.
      center: float32[3].
    """

    tilt: Array
    center: Array

    def __call__(self, places: Places) -> Places:
        """Return the places q of p."""
        away = [place - self.center[i] for i, place in enumerate(places)]
        depth = 1.0 + sum(self.tilt[i] * each for i, each in enumerate(away))
        # What lies behind the viewer, far outside of the volume, would be turned into it.
        scale = 1.0 / jnp.maximum(depth, _NEAREST)
        z, y, x = (self.center[i] + each * scale for i, each in enumerate(away))
        return z, y, x

    def back(self, places: Places) -> Places:
        """Return the places p of q."""
        return self._replace(tilt=-self.tilt)(places)

    def where(self, applied: Array) -> "Perspective":
        """Return this map, or the identity where `applied` is False."""
        return self._replace(tilt=jnp.where(applied, self.tilt, 0.0))


class Field(NamedTuple):
    """The map q = p + d(p), with d a cubic B-spline of displacements.

    Attributes:
      control: float32[3, a, b, c], displacements in voxels at a grid that covers the volume and one
        cell around it.
      shape: static, of the volume that it lies on.
    """

    control: Array
    shape: Shape

    def __call__(self, places: Places) -> Places:
        """Return the places q of p."""
        z, y, x = (place + each for place, each in zip(places, self.at(places), strict=True))
        return z, y, x

    def at(self, places: Places) -> Places:
        """Return the displacements at places: axis by axis where these are a grid."""
        if _is_grid(places):
            return self._on_grid(places)
        # A spline reads 64 numbers a place; between the voxels it is as good as straight.
        table = jnp.stack(self._on_grid(centers(self.shape)), axis=3)
        read = linear(table, places, "edge", 0.0)
        return read[..., 0], read[..., 1], read[..., 2]

    def back(self, places: Places) -> Places:
        """Return the places p of q, by rounds of p = q - d(p)."""
        goal = places
        for _ in range(_ROUNDS):
            moved = self.at(places)
            places = goal[0] - moved[0], goal[1] - moved[1], goal[2] - moved[2]
        return places

    def where(self, applied: Array) -> "Field":
        """Return this map, or the identity where `applied` is False."""
        return self._replace(control=jnp.where(applied, self.control, 0.0))

    def _on_grid(self, places: Places) -> Places:
        """Return the spline: four control points of each axis, one axis after the other."""
        values = self.control
        for axis, place in enumerate(places):
            cells = self.control.shape[1 + axis] - 3
            position = jnp.clip(place.reshape(-1) * (cells / self.shape[axis]), 0.0, cells)
            first = jnp.clip(jnp.floor(position), 0, cells - 1)
            weights = _spline(position - first)
            first = first.astype(jnp.int32)
            along = [1] * 4
            along[1 + axis] = -1
            terms = [
                jnp.take(values, first + k, axis=1 + axis, mode="clip") * weight.reshape(along)
                for k, weight in enumerate(weights)
            ]
            values = functools.reduce(jnp.add, terms)
        return values[0], values[1], values[2]


class VolumeWarp(NamedTuple):
    """The map of a run: `steps` take a place of the output to one of the source, in their order.

    Attributes:
      steps: linear maps, perspectives and fields.
      shape: of the output, static.
      spacing: of the output's voxels, float32[3] in mm; None where unknown.

    Example:
      >>> from jaxaug import augment
      >>> info = augment.VolumeInfo((4, 4, 4))
      >>> half = VolumeWarp.of(info, np.eye(3) / 2, np.zeros(3))
      >>> [float(place) for place in half.then(half).pull((4.0, 2.0, 0.0))]
      [1.0, 0.5, 0.0]
    """

    steps: tuple[Any, ...]
    shape: Shape
    spacing: Array | None = None

    @classmethod
    def identity(cls, info: VolumeInfo) -> "VolumeWarp":
        """Return the map that moves nothing."""
        return cls((), info.shape, info.spacing)

    @classmethod
    def of(
        cls, info: VolumeInfo, matrix: Any, offset: Any, *, shape: Shape | None = None, **flags: Any
    ) -> "VolumeWarp":
        """Return a linear map, to an output of `shape`."""
        step = Linear(jnp.asarray(matrix, jnp.float32), jnp.asarray(offset, jnp.float32), **flags)
        return cls((step,), info.shape if shape is None else shape, info.spacing)

    @property
    def whole(self) -> bool:
        """True where voxels fall on voxels: nothing is interpolated."""
        return all(isinstance(step, Linear) and step.whole for step in self.steps)

    def then(self, later: "VolumeWarp") -> "VolumeWarp":
        """Return the map of this operator followed by another one."""
        steps = list(later.steps)
        for step in self.steps:
            if steps and isinstance(step, Linear) and isinstance(steps[-1], Linear):
                steps[-1] = step.after(steps[-1])
            else:
                steps.append(step)
        return VolumeWarp(tuple(steps), later.shape, later.spacing)

    def pull(self, places: Places) -> Places:
        """Return the places of the source that places of the output show."""
        for step in self.steps:
            places = step(places)
        return places

    def push(self, places: Places) -> Places:
        """Return the places of the output at which places of the source appear."""
        for step in reversed(self.steps):
            places = step.back(places)
        return places


def centers(shape: Shape) -> Places:
    """Return the centers of voxels, one line for each axis."""
    z, y, x = (jnp.arange(side, dtype=jnp.float32) + 0.5 for side in shape)
    return z[:, None, None], y[None, :, None], x[None, None, :]


def linear(values: Array, places: Places, mode: str, fill: Scalar) -> Array:
    """Return [..., C] of values [D, H, W, C], interpolated linearly between the centers of voxels.

    Args:
      values: float32.
      places: in `values`.
      mode: of what lies outside: "constant", `fill`; "edge"; or "reflect" (1234|321).
      fill: of "constant"; the values run into it from the last voxel to the next.
    """
    if mode == "constant":
        values = _framed(values, fill)
    index, shares = [], []
    for place, side in zip(places, values.shape):
        position = _reflected(place - 0.5, side) if mode == "reflect" else place - 0.5
        position = position + 1 if mode == "constant" else position
        # Each reader would compute its own, and round it in its own way: the voxel and the share of
        # its neighbor must be of one number.
        position = barrier(jnp.clip(position, 0.0, side - 1.0))
        first = jnp.clip(jnp.floor(position), 0.0, max(side - 2.0, 0.0))
        index.append(first.astype(jnp.int32))
        shares.append((position - first)[..., None])

    depth, height, width, channels = values.shape
    flat = values.reshape(-1, channels)
    strides = (height * width, width, 1)
    corner = index[0] * strides[0] + index[1] * strides[1] + index[2]
    steps = [stride if side > 1 else 0 for stride, side in zip(strides, (depth, height, width))]

    def along(axis: int, place: Array) -> Array:
        if axis == 3:
            return flat.at[place].get(mode="promise_in_bounds")
        before, behind = along(axis + 1, place), along(axis + 1, place + steps[axis])
        return before + shares[axis] * (behind - before)

    return along(0, corner)


def _framed(values: Array, fill: Scalar) -> Array:
    """Return [D, H, W, C] with a voxel of `fill` on all sides."""
    padding = [(1, 1)] * 3 + [(0, 0)]
    if is_static(fill):
        return jnp.pad(values, padding, constant_values=fill)
    # JAX 0.10 fails on the derivative of a pad by what it is filled with alone.
    z, y, x = (jnp.asarray(np.pad(np.ones(side, bool), 1)) for side in values.shape[:3])
    inside = z[:, None, None, None] & y[None, :, None, None] & x[None, None, :, None]
    return jnp.where(inside, jnp.pad(values, padding), fill)


def nearest(values: Array, places: Places, mode: str, fill: Scalar) -> Array:
    """Return [..., C] of values [D, H, W, C]: the voxels in which the places lie."""
    index, inside = [], []
    for place, side in zip(places, values.shape):
        voxel = jnp.floor(place)
        inside.append((voxel >= 0) & (voxel <= side - 1))
        voxel = _reflected(voxel, side) if mode == "reflect" else voxel
        index.append(jnp.clip(voxel, 0, side - 1).astype(jnp.int32))
    if _is_grid(places):
        read = values
        for axis, line in enumerate(index):
            read = jnp.take(read, line.reshape(-1), axis=axis, mode="clip")
    else:
        read = values.at[index[0], index[1], index[2]].get(mode="promise_in_bounds")
    if mode != "constant":
        return read
    return jnp.where((inside[0] & inside[1] & inside[2])[..., None], read, fill)


def _is_grid(places: Places) -> bool:
    """Return True where each of z, y and x varies along its own axis alone."""
    return all(
        place.ndim == 3 and place.size == place.shape[axis] for axis, place in enumerate(places)
    )


def _reflected(index: Array, side: int) -> Array:
    """Return indices, also between two voxels, folded into [0, side - 1]: 1234|321."""
    period = max(2.0 * side - 2.0, 1.0)
    index = jnp.abs(index)
    index = index - period * jnp.floor(index / period)
    return jnp.minimum(index, period - index)


def _spline(share: Array) -> list[Array]:
    """Return the weights of the control points about a place, `share` of a cell from the second.

    Reference: M. Unser, "Splines: a perfect fit for signal and image processing", 1999.
    """
    rest = 1 - share
    square, cube = share * share, share * share * share
    return [
        rest * rest * rest / 6,
        (3 * cube - 6 * square + 4) / 6,
        (-3 * cube + 3 * square + 3 * share + 1) / 6,
        cube / 6,
    ]


def rotation(angles: Array) -> Array:
    """Return the product of the turns about x, y and z, float32[3, 3] for (z, y, x).

    Args:
      angles: float32[3], about z, y and x, in degrees.
    """
    cosines, sines = jnp.cos(jnp.deg2rad(angles)), jnp.sin(jnp.deg2rad(angles))
    total = Linear(jnp.asarray(np.eye(3, dtype=np.float32)), jnp.zeros(3, jnp.float32))
    for axis in range(3):
        i, j = [other for other in range(3) if other != axis]
        turn = jnp.asarray(np.eye(3, dtype=np.float32))
        turn = turn.at[i, i].set(cosines[axis]).at[j, j].set(cosines[axis])
        turn = turn.at[i, j].set(-sines[axis]).at[j, i].set(sines[axis])
        total = Linear(turn, jnp.zeros(3, jnp.float32)).after(total)
    return total.matrix
