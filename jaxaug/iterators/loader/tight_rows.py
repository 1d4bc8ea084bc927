"""Rows that go to the devices, and come from there, as what is used of them."""

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug.iterators.loader.compile import compile_rows
from jaxaug.iterators.loader.staging import to_host
from jaxaug.iterators.loader.tiles import numbered
from jaxaug.sharding._assemble import RowLayout, local_shards

_PADS = "cpu"  # where a copy costs little, and a gather of single values much
_LEAST = 4096  # bytes of a row
_PARTS = 8  # room is made in eighths of whole rows, so that few programs are compiled
_PIECE = 128  # values; each row begins with one, so that devices look for the rows of pieces


class TightRows:
    """How rows of an array go to devices and come from there: what is used of them, row behind row.

    Args:
      row: the shape and dtype of a row.
      layout: the devices, each of which has an equal share of the rows.
    """

    def __init__(self, row: jax.ShapeDtypeStruct, layout: RowLayout):
        self._row = row
        self._layout = layout
        self._parts: dict[int, int] = {}
        self._programs: dict[tuple[str, int, int], Callable[..., Array]] = {}
        self._compiling = threading.Lock()

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
        taken = _whole_pieces(sizes)
        starts = taken.cumsum(1) - taken
        room = self._room(sizes.shape[1], int(taken.sum(1).max()))
        starts += room * np.arange(len(starts))[:, None]
        return starts.reshape(-1), (starts + sizes).reshape(-1), room * len(starts)

    def _room(self, rows: int, used: int) -> int:
        """Return how many values are moved of rows of a device, at least those that are used."""
        whole = rows * math.prod(self._row.shape)
        parts = max(self._parts.get(rows, 1), -(-_PARTS * used // whole))
        self._parts[rows] = parts
        return _whole_pieces(-(-whole * parts // _PARTS))

    def spread(self, values: Array, extents: Array) -> Array:
        """Return rows [n, ...] on the devices, zeros where they are not used.

        Args:
          values: what is used of them, at the `places`.
          extents: int32[n, k], how far each is used in its first k sides.
        """
        key = "spread", len(values), len(extents)
        return self._compiled(key, self._spread, values, extents)(values, extents)

    def _spread(self, values: Array, extents: Array) -> Array:
        sides, first = self._firsts(extents)
        numbers, used = numbered(first, sides, self._row.shape)
        found = values.at[jnp.where(used, numbers, 0)].get(mode="clip")
        return jnp.where(used, found, 0)

    def join(self, shards: Sequence[Array], extents: np.ndarray) -> list[np.ndarray]:
        """Return what is used of each row on the host; behind it the shards may be written again.

        Args:
          shards: the rows of each device.
          extents: int[n, k], zeros for rows that are not wanted.
        """
        starts, ends, room = self.places(extents)
        layout = self._layout
        shape = (len(extents), *self._row.shape)
        rows = jax.make_array_from_single_device_arrays(shape, layout.split, list(shards))
        sides = jax.device_put(extents.astype(np.int32), layout.split)
        join = functools.partial(self._join, room // len(shards))
        joined = self._compiled(("join", room, len(extents)), join, rows, sides)(rows, sides)
        runs = to_host(local_shards(joined))
        numbers = np.arange(len(extents)) * len(runs) // len(extents)
        behind = numbers * len(runs[0])
        cuts = zip(numbers, starts - behind, ends - behind)
        return [runs[number][start:end] for number, start, end in cuts]

    def _join(self, room: int, rows: Array, extents: Array) -> Array:
        """Return what is used of rows in `room` values, with anything behind what a row uses."""
        sides, first = self._firsts(extents)
        places = jnp.arange(room, dtype=np.uint32).reshape(-1, _PIECE)
        row = jnp.searchsorted(first, places[:, 0], side="right") - 1
        left = places - first[row][:, None]

        stride = math.prod(self._row.shape[sides.shape[1] :])
        left, number = jnp.divmod(left, np.uint32(stride))
        for axis in reversed(range(sides.shape[1])):
            left, digit = jnp.divmod(left, sides[row, axis][:, None])
            number += digit * np.uint32(stride)
            stride *= self._row.shape[axis]
        number += row.astype(np.uint32)[:, None] * np.uint32(stride)
        return rows.reshape(-1).at[number.reshape(-1)].get(mode="clip")

    def _compiled(
        self, key: tuple[str, int, int], function: Callable[..., Array], *arguments: Array
    ) -> Callable[..., Array]:
        """Return a function of rows, compiled by the first thread that asks for it."""
        with self._compiling:
            if key not in self._programs:
                self._programs[key] = compile_rows(function, self._layout, arguments)
            return self._programs[key]

    def _firsts(self, extents: Array) -> tuple[Array, Array]:
        """Return the sides of rows, uint32[n, k], and the numbers of their first values."""
        sides = extents.astype(np.uint32)
        rest = np.uint32(math.prod(self._row.shape[sides.shape[1] :]))
        taken = _whole_pieces(sides.prod(1, dtype=np.uint32) * rest)
        return sides, taken.cumsum(dtype=np.uint32) - taken


def _whole_pieces(count: Any) -> Any:
    """Return numbers of values, rounded up to whole pieces."""
    return (count + (_PIECE - 1)) // _PIECE * _PIECE
