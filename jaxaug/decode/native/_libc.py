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
_STAT_WORDS, _SIZE, _TIME = 18, 6, 11  # Linux's struct stat in int64: its size, st_size, st_mtim


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


class FileFacts:
    """Sizes and times of modification of open local files, asked for with every batch.

    `os.fstat` gives the GIL away each time, and beside busy threads it takes tens of microseconds to have it back:
    8.7 ms for 220 files beside a Decoder. Here one call after the other keeps it, 0.3 ms in all. The arguments of the
    calls are made once, as making them takes as long as the call.

    Args:
      count: the files have numbers below it.
    """

    def __init__(self, count: int):
        self._facts = np.zeros((count, _STAT_WORDS), np.int64)
        self._arguments = [(ctypes.c_int(-1), ctypes.c_void_p())] * count

    def add(self, number: int, descriptor: int) -> None:
        """That file `number` is open."""
        address = self._facts.ctypes.data + number * self._facts.strides[0]
        self._arguments[number] = ctypes.c_int(descriptor), ctypes.c_void_p(address)

    def ask(self, numbers: np.ndarray) -> np.ndarray:
        """int64[k, 2]: size and time in ns of each of these files now; -1 where a file is not open or cannot tell."""
        call, arguments = _fstat(), [self._arguments[number] for number in numbers.tolist()]
        if call is None:
            return np.array([_python_fstat(descriptor.value) for descriptor, _ in arguments], np.int64).reshape(-1, 2)
        failed = [place for place, one in enumerate(arguments) if call(*one)]
        found = self._facts[numbers]
        facts = np.stack([found[:, _SIZE], found[:, _TIME] * 10**9 + found[:, _TIME + 1]], 1)
        facts[failed] = -1
        return facts


def _python_fstat(descriptor: int) -> tuple[int, int]:
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return -1, -1
    return facts.st_size, facts.st_mtime_ns


@functools.cache
def _fstat() -> Callable[[ctypes.c_int, ctypes.c_void_p], int] | None:
    """Called with the GIL; None where libc has none (glibc before 2.33) or its struct stat is another one."""
    function = getattr(ctypes.PyDLL(None), "fstat", None)
    if function is None or sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return None
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
