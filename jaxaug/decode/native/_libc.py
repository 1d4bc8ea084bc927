"""Calls of the C library about mapped memory, which Python has no functions for."""

import ctypes
import functools
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np

_MOST_RANGES = 1024  # of one call: IOV_MAX of Linux


def will_need(address: int, length: int) -> None:
    """Ask the kernel to begin to read a range of a mapped file; advice that it may refuse.

    Args:
      address: of the beginning of a page.
    """
    _madvise()(address, length, mmap.MADV_WILLNEED)


def map_pages(addresses: np.ndarray) -> None:
    """Have the kernel read the byte at each address, which puts its page into this process's page tables.

    A page's first use takes microseconds even where the page cache holds it. Here they pass without the GIL, in one
    call; where the system has or allows no such call, whoever reads the page first takes them.

    Args:
      addresses: int64[k].
    """
    read = _process_vm_readv()
    if read is None:
        return
    ranges = np.ones((addresses.size, 2), np.uint64)  # struct iovec: address, length
    ranges[:, 0] = addresses
    seen = np.empty(_MOST_RANGES, np.uint8)
    for first in range(0, len(ranges), _MOST_RANGES):
        piece = ranges[first : first + _MOST_RANGES]
        destination = np.array([seen.ctypes.data, len(piece)], np.uint64)
        read(os.getpid(), destination.ctypes.data, 1, piece.ctypes.data, len(piece), 0)


@functools.cache
def _madvise() -> Callable[[int, int, int], int]:
    """Called with the GIL: it takes 10 us, and beside busy threads giving the GIL away costs milliseconds."""
    function = ctypes.PyDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


@functools.cache
def _process_vm_readv() -> Any:
    """Called without the GIL; None where there is none."""
    function = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if function is not None:
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        function.argtypes, function.restype = (ctypes.c_int, pointer, size, pointer, size, size), ctypes.c_ssize_t
    return function
