"""Bytes at absolute addresses, read for many images in one numpy call."""

from functools import cache

import numpy as np

# The largest address spaces have 57 bits. More would overflow as a size in bytes.
_ADDRESSES = 2**57


@cache
def _memory(width: int) -> np.ndarray:
    """Return all memory of this process as an array of overlapping items of `width` bytes.

    Item i begins at address i + 1, because numpy takes a null data pointer for "no data". numpy
    copies an item at once, however wide it is, so a window costs no more than a byte. Only
    `read_inside` and `read_windows` may index the array.
    """

    class HostMemory:
        __array_interface__ = {  # noqa: RUF012
            "version": 3,
            "typestr": f"|V{width}",
            "data": (1, True),
            "shape": (_ADDRESSES,),
            "strides": (1,),
        }

    return np.asarray(HostMemory())


def read_inside(starts: np.ndarray, width: int) -> np.ndarray:
    """Return the `width` bytes from each start on, V{width}[k]; all of them must be readable."""
    return _memory(width)[starts - 1]


def read_windows(starts: np.ndarray, width: int, stops: np.ndarray) -> np.ndarray:
    """Return the `width` bytes from each start on; no byte at or beyond its stop is read.

    Args:
      starts: int64[k] absolute addresses inside readable memory.
      width: bytes of each window.
      stops: int64[k], where the readable memory of each ends; beyond it the last byte repeats.

    Returns:
      V{width}[k], one item for each window.

    Example:
      >>> import numpy as np
      >>> data = np.arange(5, dtype=np.uint8)
      >>> start = np.array([data.ctypes.data])
      >>> as_bytes(read_windows(start + 2, 4, start + 5)).tolist()
      [[2, 3, 4, 4]]
    """
    inside = starts <= stops - width
    if np.count_nonzero(inside) == starts.size:
        return read_inside(starts, width)
    windows = np.empty(starts.size, f"V{width}")
    windows[inside] = read_inside(starts[inside], width)
    late = (~inside).nonzero()[0]
    addresses = np.minimum(starts[late, None] + np.arange(width), stops[late, None] - 1)
    as_bytes(windows)[late] = read_inside(addresses, 1).view(np.uint8)
    return windows


def as_bytes(windows: np.ndarray) -> np.ndarray:
    """Return a view of V{width}[k] as uint8[k, width]."""
    return windows.view(np.uint8).reshape(windows.size, windows.itemsize)
