"""The columns of a batch as one array of bytes: one copy to each device instead of one for each."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxaug._typing import Array

# A column of more bytes in each row, such as masks, travels alone: packing copies it once more.
_MAX_COLUMN_BYTES = 1024


class RowPacking:
    """The places of the columns of a batch in the bytes of a row.

    Args:
      columns: a tree of arrays [n, ...] or of their `jax.ShapeDtypeStruct`s.

    Attributes:
      shapes: those of the packed arrays.

    Example:
      >>> rows = {"label": np.array([7, 8], np.int32), "valid": np.array([True, False])}
      >>> packing = RowPacking(rows)
      >>> packed = packing.pack(rows)
      >>> [array.shape for array in packed], packing.unpack(packed)["label"].tolist()
      ([(2, 5)], [7, 8])
    """

    def __init__(self, columns: Any):
        leaves, self._tree = jax.tree.flatten(columns)
        row_bytes = [math.prod(leaf.shape[1:]) * np.dtype(leaf.dtype).itemsize for leaf in leaves]
        self._is_alone = [size > _MAX_COLUMN_BYTES for size in row_bytes]
        small, large = self._divide(leaves)
        fields = [(f"column {i}", leaf.dtype, leaf.shape[1:]) for i, leaf in enumerate(small)]
        self._record = np.dtype(fields)

        count = leaves[0].shape[0]
        packed = jax.ShapeDtypeStruct((count, self._record.itemsize), np.uint8)
        self.shapes = [packed, *(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in large)]

    def pack(self, columns: Any) -> list[np.ndarray]:
        """Return the columns as uint8[n, bytes], and those that travel alone.

        Raises:
          TypeError: a column has another dtype than at construction.
        """
        leaves = self._tree.flatten_up_to(columns)
        small, large = self._divide(leaves)
        packed = np.empty(len(leaves[0]), self._record)
        for name, column in zip(self._record.names or (), small):
            np.copyto(packed[name], column, casting="equiv")
        return [packed.view(np.uint8).reshape(len(packed), -1), *large]

    def unpack(self, arrays: "Sequence[Array | np.ndarray]") -> Any:
        """Return the tree of columns, on the device; of any number of rows."""
        packed, *large = arrays
        small = []
        start = 0
        for number in range(len(self._record.names or ())):
            field = self._record[number]
            small.append(_column(packed[:, start : start + field.itemsize], field))
            start += field.itemsize

        packed_columns = iter(small)
        others = iter(large)
        leaves = [next(others if is_alone else packed_columns) for is_alone in self._is_alone]
        return jax.tree.unflatten(self._tree, leaves)

    def _divide(self, leaves: list) -> tuple[list, list]:
        """Return the columns that are packed, and those that travel alone."""
        small = [leaf for leaf, is_alone in zip(leaves, self._is_alone) if not is_alone]
        large = [leaf for leaf, is_alone in zip(leaves, self._is_alone) if is_alone]
        return small, large


def _column(data: "Array | np.ndarray", field: np.dtype) -> Array:
    """Return the column [n, ...] of a field of each row, from its bytes uint8[n, k]."""
    shape = (len(data), *field.shape)
    if field.base == np.bool_:
        return lax.ne(data, np.uint8(0)).reshape(shape)
    if field.base.itemsize > 1:
        shape += (field.base.itemsize,)
    return lax.bitcast_convert_type(data.reshape(shape), field.base)
