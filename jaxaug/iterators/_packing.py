"""The columns of a batch as one array of bytes: one copy to each device, whatever they are."""

from typing import Any

import jax
import numpy as np
from jax import lax

from jaxaug._typing import Array


class RowPacking:
    """The places of the columns of a batch in the bytes of a row.

    Args:
      columns: a tree of arrays [n, ...] or of their `jax.ShapeDtypeStruct`s.

    Example:
      >>> rows = {"label": np.array([7, 8], np.int32), "valid": np.array([True, False])}
      >>> packing = RowPacking(rows)
      >>> packed = packing.pack(rows)
      >>> packed.shape, packing.unpack(packed)["label"].tolist()
      ((2, 5), [7, 8])
    """

    def __init__(self, columns: Any):
        leaves, self._tree = jax.tree.flatten(columns)
        fields = [(f"column {i}", leaf.dtype, leaf.shape[1:]) for i, leaf in enumerate(leaves)]
        self._record = np.dtype(fields)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return self._record.itemsize

    def pack(self, columns: Any) -> np.ndarray:
        """Return the columns as uint8[n, row_bytes].

        Raises:
          TypeError: a column has another dtype than at construction.
        """
        leaves = self._tree.flatten_up_to(columns)
        packed = np.empty(len(leaves[0]), self._record)
        for name, leaf in zip(self._record.names or (), leaves):
            np.copyto(packed[name], leaf, casting="equiv")
        return packed.view(np.uint8).reshape(len(packed), self.row_bytes)

    def unpack(self, packed: "Array | np.ndarray") -> Any:
        """Return the tree of columns, on the device."""
        fields = self._record.fields or {}
        columns = [_column(packed, *fields[name][:2]) for name in self._record.names or ()]
        return jax.tree.unflatten(self._tree, columns)


def _column(packed: "Array | np.ndarray", field: np.dtype, offset: int) -> Array:
    """Return the column [n, ...] that begins at one byte of each row."""
    shape = (len(packed), *field.shape)
    data = packed[:, offset : offset + field.itemsize]
    if field.base == np.bool_:
        return lax.ne(data, np.uint8(0)).reshape(shape)
    if field.base.itemsize > 1:
        shape += (field.base.itemsize,)
    return lax.bitcast_convert_type(data.reshape(shape), field.base)
