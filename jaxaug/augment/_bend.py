"""Displacements on a grid: what bends a map that a matrix cannot."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxaug._typing import Array, Scalar

MAX_GRADIENT = 0.6  # below 1 the map folds nowhere; at 0.6 the inverse below converges quickly
_INVERSE_STEPS = 24  # 0.6^24 of a displacement of 100 pixels is 5e-4 pixels


class Bend(NamedTuple):
    """The map (x, y) -> (x + dx, y + dy), displacements read bilinearly between grid nodes.

    Attributes:
      dx, dy: float32[h, w], displacements in pixels. Beyond the outermost nodes theirs hold.
      origin: (x, y) of node [0, 0].
      spacing: (x, y), the distance of the nodes, in pixels.
    """

    dx: Array
    dy: Array
    origin: tuple[Scalar, Scalar] = (0.5, 0.5)
    spacing: tuple[Scalar, Scalar] = (1.0, 1.0)

    def pull(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the images of points of the output."""
        dx, dy = self._displacement(x, y)
        return x + dx, y + dy

    def push(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the points whose images are (x, y), by fixed-point iteration."""

        def step(_, point: tuple[Array, Array]) -> tuple[Array, Array]:
            dx, dy = self._displacement(*point)
            return x - dx, y - dy

        return lax.fori_loop(jnp.int32(0), jnp.int32(_INVERSE_STEPS), step, (x, y))

    def bounded(self) -> "Bend":
        """Return the displacements, scaled down to a gradient of MAX_GRADIENT where it is steeper.

        The gradient of a cell is the Frobenius norm of the largest differences along its sides: an
        upper bound of how far the map stretches, everywhere between the nodes.
        """
        squares = [_steepness(field, self.spacing) for field in (self.dx, self.dy)]
        gradient = jnp.sqrt(jnp.max(squares[0] + squares[1], initial=0.0))
        share = jnp.minimum(1.0, MAX_GRADIENT / jnp.maximum(gradient, 1e-6))
        return self._replace(dx=self.dx * share, dy=self.dy * share)

    def _displacement(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return (dx, dy) at points of any shape."""
        rows, columns = self.dx.shape
        u = jnp.clip((x - self.origin[0]) / self.spacing[0], 0.0, columns - 1.0)
        v = jnp.clip((y - self.origin[1]) / self.spacing[1], 0.0, rows - 1.0)
        left = jnp.minimum(jnp.floor(u).astype(jnp.int32), max(columns - 2, 0))
        top = jnp.minimum(jnp.floor(v).astype(jnp.int32), max(rows - 2, 0))
        right = jnp.minimum(left + 1, columns - 1)
        bottom = jnp.minimum(top + 1, rows - 1)
        along_x = (u - left.astype(jnp.float32))[..., None]
        along_y = (v - top.astype(jnp.float32))[..., None]

        field = jnp.stack([self.dx, self.dy], axis=2)
        upper = _take(field, top, left) * (1 - along_x) + _take(field, top, right) * along_x
        lower = _take(field, bottom, left) * (1 - along_x) + _take(field, bottom, right) * along_x
        displacement = upper * (1 - along_y) + lower * along_y
        return displacement[..., 0], displacement[..., 1]


def _take(field: Array, row: Array, column: Array) -> Array:
    return field.at[row, column].get(mode="promise_in_bounds")


def _steepness(field: Array, spacing: tuple[Scalar, Scalar]) -> Array:
    """Return the squares of the largest slopes along the sides of each cell, summed."""
    field = jnp.pad(field, ((0, field.shape[0] == 1), (0, field.shape[1] == 1)), mode="edge")
    along_x = jnp.abs(field[:, 1:] - field[:, :-1]) / spacing[0]
    along_y = jnp.abs(field[1:] - field[:-1]) / spacing[1]
    largest_x = jnp.maximum(along_x[1:], along_x[:-1])
    largest_y = jnp.maximum(along_y[:, 1:], along_y[:, :-1])
    return largest_x * largest_x + largest_y * largest_y
