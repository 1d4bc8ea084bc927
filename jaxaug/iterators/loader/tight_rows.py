"""Rows that are sent to the devices as what is used of them, and spread there."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug.iterators.loader.compile import compile_rows
from jaxaug.iterators.loader.tiles import numbered
from jaxaug.sharding._assemble import RowLayout

_PADS = "cpu"  # where a copy costs little, and a gather of single values much
_LEAST = 4096  # bytes of a row
_PARTS = 8  # room is made in eighths of whole rows, so that few programs are compiled


class RowSpread:
    """How rows of an array are sent.

    Args:
      row: the shape and dtype of a row.
      layout: the devices, each of which gets an equal share of the rows.
    """

    def __init__(self, row: jax.ShapeDtypeStruct, layout: RowLayout):
        self._row = row
        self._layout = layout
        self._parts: dict[int, int] = {}
        self._compiled: dict[tuple[int, int], Callable[..., Array]] = {}

    @staticmethod
    def suits(row: jax.ShapeDtypeStruct, layout: RowLayout) -> bool:
        """Return True where rows are worth it, and their values have numbers of 32 bits."""
        size = math.prod(row.shape)
        large = size * np.dtype(row.dtype).itemsize >= _LEAST
        return layout.devices[0].platform != _PADS and large and len(layout.rows) * size < 2**31

    def places(self, extents: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Return where what rows use begins and ends, int64[n] twice, and the room for all."""
        sizes = extents.astype(np.int64).prod(1) * math.prod(self._row.shape[extents.shape[1] :])
        sizes = sizes.reshape(len(self._layout.devices), -1)
        ends = sizes.cumsum(1)
        room = self._room(sizes.shape[1], int(ends[:, -1].max()))
        ends += room * np.arange(len(ends))[:, None]
        return (ends - sizes).reshape(-1), ends.reshape(-1), room * len(ends)

    def _room(self, rows: int, used: int) -> int:
        """Return how many values are sent of rows of a device, at least those that are used."""
        whole = rows * math.prod(self._row.shape)
        parts = max(self._parts.get(rows, 1), -(-_PARTS * used // whole))
        self._parts[rows] = parts
        return -(-whole * parts // _PARTS)

    def rows(self, values: Array, extents: Array) -> Array:
        """Return rows [n, ...] on the devices, zeros where they are not used.

        Args:
          values: what is used of them, at the `places`.
          extents: int32[n, k], how far each is used in its first k sides.
        """
        key = len(values), len(extents)
        if key not in self._compiled:
            self._compiled[key] = compile_rows(self._spread, self._layout, (values, extents))
        return self._compiled[key](values, extents)

    def _spread(self, values: Array, extents: Array) -> Array:
        sides = extents.astype(np.uint32)
        rest = np.uint32(math.prod(self._row.shape[sides.shape[1] :]))
        sizes = sides.prod(1, dtype=np.uint32) * rest
        first = sizes.cumsum(dtype=np.uint32) - sizes
        numbers, used = numbered(first, sides, self._row.shape)
        found = values.at[jnp.where(used, numbers, 0)].get(mode="clip")
        return jnp.where(used, found, 0)
