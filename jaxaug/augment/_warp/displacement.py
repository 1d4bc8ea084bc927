"""Displacements on a grid: what a map does that a matrix cannot."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Scalar
from jaxaug.augment._xla import barrier, barrier_on_cpu

MAX_GRADIENT = 0.6  # below 1 the map folds nowhere; at 0.6 the inverse below converges quickly
_INVERSE_STEPS = 24  # 0.6^24 of a displacement of 100 pixels is 5e-4 pixels


class Displacement(NamedTuple):
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

    @classmethod
    def between_edges(cls, dx: Array, dy: Array, height: Scalar, width: Scalar) -> "Displacement":
        """Return displacements at the nodes of an even grid from edge to edge of an image."""
        rows, columns = dx.shape
        return cls(dx, dy, (0.0, 0.0), (width / (columns - 1), height / (rows - 1)))

    def pull(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the images of points of the output."""
        dx, dy = self._at(x, y)
        return x + dx, y + dy

    def push(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the points whose images are (x, y), by fixed-point iteration."""

        def step(_, point: tuple[Array, Array]) -> tuple[Array, Array]:
            dx, dy = self._at(*point)
            return x - dx, y - dy

        return lax.fori_loop(jnp.int32(0), jnp.int32(_INVERSE_STEPS), step, (x, y))

    def bounded(self) -> "Displacement":
        """Return the displacements, scaled down to a gradient of MAX_GRADIENT where it is steeper.

        The gradient of a cell is the Frobenius norm of the largest differences along its sides: an
        upper bound of how far the map stretches, everywhere between the nodes.
        """
        squares = [_steepness(field, self.spacing) for field in (self.dx, self.dy)]
        steepest = jnp.max(squares[0] + squares[1], initial=0.0)
        gradient = jnp.sqrt(jnp.maximum(steepest, 1e-12))  # the root's derivative at 0 is infinite
        share = jnp.minimum(1.0, MAX_GRADIENT / gradient)
        # Once for pixels and points, which would round them each in its own way.
        dx, dy = barrier(self.dx * share), barrier(self.dy * share)
        return self._replace(dx=dx, dy=dy)

    def _at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return (dx, dy) at points of any shape."""
        rows, columns = self.dx.shape
        left, right, along_x = _cell((x - self.origin[0]) / self.spacing[0], columns)
        top, bottom, along_y = _cell((y - self.origin[1]) / self.spacing[1], rows)

        if x.ndim == 2 and x.shape[0] == 1 and y.shape[1] == 1:  # one axis after the other

            def separably(field: Array) -> Array:
                lines = _mixed(_take(field, top[:, 0]), _take(field, bottom[:, 0]), along_y)
                lines = barrier_on_cpu(lines)
                # By rows, too: of columns alone XLA's CPU backend makes a transposed array.
                line = jnp.arange(len(y), dtype=jnp.int32)[:, None]
                return _mixed(_take(lines, line, left), _take(lines, line, right), along_x)

            return separably(self.dx), separably(self.dy)

        field = jnp.stack([self.dx, self.dy], axis=2)
        along_x, along_y = along_x[..., None], along_y[..., None]
        upper = _mixed(_take(field, top, left), _take(field, top, right), along_x)
        lower = _mixed(_take(field, bottom, left), _take(field, bottom, right), along_x)
        displacement = _mixed(upper, lower, along_y)
        return displacement[..., 0], displacement[..., 1]


def _cell(position: Array, count: int) -> tuple[Array, Array, Array]:
    """Return the nodes on both sides of positions among `count` nodes, and the way between them."""
    position = jnp.clip(position, 0.0, count - 1.0)
    before = jnp.floor(position).astype(jnp.int32)
    after = jnp.minimum(before + 1, count - 1)
    return before, after, position - before.astype(jnp.float32)


def _mixed(before: Array, after: Array, along: Array) -> Array:
    return before + (after - before) * along  # what it is between two equal ones, to the bit


def _take(field: Array, *places: Any) -> Array:
    return field.at[places].get(mode="promise_in_bounds")


def _steepness(field: Array, spacing: tuple[Scalar, Scalar]) -> Array:
    """Return the squares of the largest gradients along the sides of each cell, summed."""
    field = jnp.pad(field, ((0, field.shape[0] == 1), (0, field.shape[1] == 1)), mode="edge")
    along_x = jnp.abs(field[:, 1:] - field[:, :-1]) / spacing[0]
    along_y = jnp.abs(field[1:] - field[:-1]) / spacing[1]
    largest_x = jnp.maximum(along_x[1:], along_x[:-1])
    largest_y = jnp.maximum(along_y[:, 1:], along_y[:, :-1])
    return largest_x * largest_x + largest_y * largest_y
