"""Page-locked memory of the host, which a GPU copies from and to while the host goes on."""

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxaug.sharding._assemble import RowLayout

_COPIES = "gpu"  # the platform that does


def suits(layout: RowLayout) -> bool:
    """Return True where rows go through page-locked memory: on one GPU."""
    return len(layout.devices) == 1 and layout.devices[0].platform == _COPIES


def to_host(arrays: Sequence[jax.Array]) -> list[np.ndarray]:
    """Return arrays of single devices on the host, those of GPUs in page-locked memory.

    The results hold that memory, which goes back to JAX with them.
    """
    copies = [
        jax.device_put(array, array.sharding.with_memory_kind("pinned_host"))
        if next(iter(array.devices())).platform == _COPIES
        else array
        for array in arrays
    ]
    return jax.device_get(copies)  # without another copy of what is on the host


class Staging:
    """Buffers that rows are gathered to, and that are written again once their copies are there.

    JAX copies ordinary memory to page-locked memory of its own first, in one thread.

    Args:
      layout: of one device.
    """

    def __init__(self, layout: RowLayout):
        self._there = layout.split
        self._pinned = layout.split.with_memory_kind("pinned_host")
        self._buffers: list[_Buffer] = []
        self._changing = threading.Lock()

    def rows(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return a buffer of this form, whose content is anything, to give to `copy`."""
        with self._changing:
            for buffer in self._buffers:
                if buffer.suits(shape, dtype) and buffer.is_free():
                    buffer.is_lent = True
                    return buffer.rows
        buffer = _Buffer(jax.device_put(np.zeros(shape, dtype), self._pinned))
        with self._changing:
            self._buffers.append(buffer)
        return buffer.rows

    def copy(self, arrays: Any) -> Any:
        """Return a tree of arrays on the device, those of `rows` without another copy."""
        lent = {id(each.rows): each for each in self._buffers if each.is_lent}
        leaves, tree = jax.tree.flatten(arrays)
        ours = [lent.get(id(leaf)) for leaf in leaves]
        copies = jax.device_put(
            [leaf if buffer is None else buffer.array for leaf, buffer in zip(leaves, ours)],
            self._there,
        )
        with self._changing:
            for buffer, copied in zip(ours, copies):
                if buffer is not None:
                    buffer.copied = copied
                    buffer.is_lent = False
        return tree.unflatten(copies)

    def close(self) -> None:
        """Wait for the copies, and free the memory."""
        with self._changing:
            jax.block_until_ready([each.copied for each in self._buffers])
            self._buffers.clear()


class _Buffer:
    """An array of JAX in page-locked memory, and `rows`, a view of it.

    Attributes:
      is_lent: somebody writes to it.
      copied: the array on the device that was last copied from it.
    """

    def __init__(self, array: jax.Array):
        self.array = jax.block_until_ready(array)
        memory = (ctypes.c_uint8 * array.nbytes).from_address(array.unsafe_buffer_pointer())
        self.rows = np.ctypeslib.as_array(memory).view(array.dtype).reshape(array.shape)
        self.is_lent = True
        self.copied: Any = None

    def suits(self, shape: tuple[int, ...], dtype: Any) -> bool:
        return self.rows.shape == shape and self.rows.dtype == dtype

    def is_free(self) -> bool:
        if self.is_lent or not (self.copied is None or self.copied.is_ready()):
            return False
        self.copied = None
        return True
