"""Bytes at absolute addresses, read for many images in one numpy call."""

import numpy as np


class _HostMemory:
    """All of this process's memory as one uint8 array, whose element i is the byte at address i + 1.

    numpy takes a null data pointer for "no data", hence the 1. Only `read_bytes` indexes it.
    """

    __array_interface__ = {"version": 3, "typestr": "|u1", "data": (1, True), "shape": (2**62,)}  # noqa: RUF012


_MEMORY = np.asarray(_HostMemory())


def read_bytes(starts: np.ndarray, count: int, stops: np.ndarray) -> np.ndarray:
    """The `count` bytes from each start on, never one at or beyond its stop.

    Args:
      starts: int64[k] absolute addresses inside readable memory.
      count: how many bytes to read for each.
      stops: int64[k], where the readable memory of each ends; what would lie beyond repeats the last byte.

    Returns:
      uint8[k, count].

    Example:
      >>> import numpy as np
      >>> data = np.arange(5, dtype=np.uint8)
      >>> start = np.array([data.ctypes.data])
      >>> read_bytes(start + 2, 4, start + 5).tolist()
      [[2, 3, 4, 4]]
    """
    addresses = np.minimum(starts[:, None] + np.arange(count), stops[:, None] - 1)
    return _MEMORY[addresses - 1]


def read_ragged(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All bytes of the ranges [start, start + count), one range after the other.

    Args:
      starts: int64[k] absolute addresses; the caller has checked that each range is readable.
      counts: int64[k] lengths.

    Returns:
      (range number int64[total], bytes uint8[total]).

    Example:
      >>> import numpy as np
      >>> data = np.arange(5, dtype=np.uint8)
      >>> rows, found = read_ragged(np.array([0, 3]) + data.ctypes.data, np.array([2, 1]))
      >>> rows.tolist(), found.tolist()
      ([0, 0, 1], [0, 1, 3])
    """
    rows = np.repeat(np.arange(counts.size), counts)
    within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, _MEMORY[starts[rows] + within - 1]
