"""Rows of an array as tiles, of which those alone are kept that a row uses."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_SIDE = 32
_WORTH = 0.9  # of the bytes of whole rows; a gather of tiles takes longer


class Tiling:
    """The cut of rows into tiles of 32 a side.

    Args:
      row: the shape and dtype of a row.
      extents: int[n, k], how far rows are used in their first k sides, behind which they are zeros;
        those that are expected.

    Attributes:
      tile: the shape and dtype of a tile.
      most: the tiles of a row that is used in full.

    Example:
      >>> row = jax.ShapeDtypeStruct((64, 40, 3), np.uint8)
      >>> tiling = Tiling(row, np.array([[20, 40], [64, 9]]))
      >>> tiling.tile.shape, tiling.most, tiling.counts(np.array([[33, 32], [1, 40]])).tolist()
      ((32, 32, 3), 4, [2, 2])
    """

    def __init__(self, row: jax.ShapeDtypeStruct, extents: np.ndarray):
        axes = extents.shape[1]
        self._shape = row.shape
        self._grid = tuple(-(-side // _SIDE) for side in row.shape[:axes])
        self.tile = jax.ShapeDtypeStruct((_SIDE,) * axes + row.shape[axes:], row.dtype)
        self.most = math.prod(self._grid)
        self._expected = self.counts(extents)

    def counts(self, extents: np.ndarray) -> np.ndarray:
        """Return how many tiles rows use, int64[n]."""
        return (-(-extents.astype(np.int64) // _SIDE)).prod(axis=1)

    @property
    def worthwhile(self) -> bool:
        """True where tiles take clearly less than whole rows."""
        whole = math.prod(self._shape) / math.prod(self.tile.shape)
        return float(self._expected.mean()) < _WORTH * whole

    def expected(self, count: int, length: int) -> int:
        """Return how many tiles `count` of `length` rows use, by a sample of these hardly more."""
        counts = self._expected
        error = 0 if len(counts) == length else 3 * float(counts.std()) / math.sqrt(len(counts))
        return math.ceil(count * (float(counts.mean()) + error))

    def gather(self, tiles: Array, first: Array, extents: Array) -> Array:
        """Return rows [n, ...].

        Args:
          tiles: of all rows.
          first: uint32[n], the number of each row's first tile.
          extents: int[n, k].
        """
        numbers, used = self._numbers(first, extents)
        found = tiles.at[jnp.where(used, numbers, 0)].get(mode="promise_in_bounds")
        found = jnp.where(used.reshape(*used.shape, *[1] * len(self.tile.shape)), found, 0)
        axes = len(self._grid)
        order = 1 + np.arange(2 * axes).reshape(2, axes).T.reshape(-1)  # each place beside its side
        rows = found.transpose(0, *order, *range(2 * axes + 1, found.ndim))
        padded = [count * _SIDE for count in self._grid]
        rows = rows.reshape(len(rows), *padded, *self._shape[axes:])
        return rows[:, *map(slice, self._shape[:axes])]

    def scatter(
        self, tiles: Array, rows: Array, first: Array, extents: Array, written: Array
    ) -> Array:
        """Return tiles with those of rows [n, ...] that are to be `written`, bool[n]."""
        axes = len(self._grid)
        spare = [(0, -side % _SIDE) for side in self._shape[:axes]]
        rows = jnp.pad(rows, [(0, 0), *spare, *[(0, 0)] * (rows.ndim - 1 - axes)])
        split = [side for count in self._grid for side in (count, _SIDE)]
        rows = rows.reshape(len(rows), *split, *self._shape[axes:])
        order = 1 + np.arange(2 * axes).reshape(axes, 2).T.reshape(-1)
        cut = rows.transpose(0, *order, *range(2 * axes + 1, rows.ndim))
        cut = cut.reshape(-1, *self.tile.shape)
        numbers, used = self._numbers(first, extents)
        used &= _like(written, used)
        behind = len(tiles) + jnp.arange(numbers.size, dtype=np.uint32)  # no number occurs twice
        numbers = jnp.where(used.reshape(-1), numbers.reshape(-1), behind)
        return tiles.at[numbers].set(cut, mode="drop", unique_indices=True)

    def _numbers(self, first: Array, extents: Array) -> tuple[Array, Array]:
        """Return the numbers of all tiles of rows, uint32[n, *grid], and which are used."""
        grids = (extents.astype(np.uint32) + np.uint32(_SIDE - 1)) // np.uint32(_SIDE)
        return numbered(first, grids, self._grid)


def numbered(first: Array, counts: Array, sides: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the numbers of all places of rows, uint32[n, *sides], and which are used.

    Args:
      first: uint32[n], the number of each row's first place.
      counts: uint32[n, k], how many places it uses along its first k sides, all along the others.
      sides: of a row.
    """
    shape = (len(first), *sides)
    numbers = jnp.zeros(shape, np.uint32)
    used = jnp.ones(shape, bool)
    for axis, side in enumerate(sides):
        place = lax.broadcasted_iota(np.uint32, shape, 1 + axis)
        count: Any = np.uint32(side)
        if axis < counts.shape[1]:
            count = _like(counts[:, axis], numbers)
            used &= place < count
        numbers = numbers * count + place
    return numbers + _like(first, numbers), used


def _like(values: Array, array: Array) -> Array:
    """Return a value for each row with as many axes as an array."""
    return values.reshape(-1, *[1] * (array.ndim - 1))
