"""Calls of the C library about files and their mapped memory, which Python has no functions for or slower ones."""

import ctypes
import functools
import mmap
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_MOST_RANGES = 1024  # of one call: IOV_MAX of Linux
_STAT_WORDS, _SIZE, _TIME = 32, 6, 11  # Linux's struct stat in int64: room for it, st_size, st_mtim


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


def sizes_and_times(descriptors: np.ndarray) -> np.ndarray:
    """int64[k, 2]: size and time of modification in ns of each open local file; size -1 where it cannot be told.

    `os.fstat` gives the GIL away each time, and beside busy threads it takes tens of microseconds to have it back:
    8.7 ms for 220 files beside a Decoder. Here one call after the other keeps it, 0.3 ms in all.

    Args:
      descriptors: int[k].
    """
    call = _fstat()
    if call is None:
        return np.array([_python_fstat(descriptor) for descriptor in descriptors.tolist()], np.int64).reshape(-1, 2)
    facts = np.full((len(descriptors), _STAT_WORDS), -1, np.int64)
    address = facts.ctypes.data
    for descriptor in descriptors.tolist():
        call(descriptor, address)
        address += facts.strides[0]
    return np.stack([facts[:, _SIZE], facts[:, _TIME] * 10**9 + facts[:, _TIME + 1]], 1)


def _python_fstat(descriptor: int) -> tuple[int, int]:
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return -1, -1
    return facts.st_size, facts.st_mtime_ns


@functools.cache
def _fstat() -> Callable[[int, int], int] | None:
    """Called with the GIL; None where libc has none (glibc before 2.33) or its struct stat is another one."""
    function = getattr(ctypes.PyDLL(None), "fstat", None)
    if function is None or sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_void_p]
    return function


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
