"""Calls of the C library about files and their mapped memory, which Python has no functions for or
slower ones.
"""

import ctypes
import functools
import mmap
import os
import platform
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

_MAX_RANGES = 1024  # of one call: IOV_MAX of Linux
# Linux's struct stat in int64: its size, and the places of st_dev, st_ino, st_size, st_mtim
_STAT_WORDS = 18
_DEVICE = 0
_INODE = 1
_SIZE = 6
_TIME = 11
_STATFS_WORDS = 16  # Linux's struct statfs in int64 (15) and one more; f_type comes first
_MAP_FAILED = ctypes.c_void_p(-1).value


def will_need(address: int, length: int) -> None:
    """Ask the kernel to begin to read a range of a mapped file; advice that it may refuse.

    Args:
      address: of the beginning of a page.
    """
    _madvise()(address, length, mmap.MADV_WILLNEED)


def map_pages(addresses: np.ndarray) -> None:
    """Have the kernel read the byte at each address, which puts its page into this process's page
    tables.

    A page's first use takes microseconds even where the page cache holds it. Here they pass without
    the GIL, in one call; where the system has or allows no such call, whoever reads the page first
    takes them.

    Args:
      addresses: int64[k].
    """
    read = _process_vm_readv()
    if read is None:
        return
    ranges = np.ones((addresses.size, 2), np.uint64)  # struct iovec: address, length
    ranges[:, 0] = addresses
    seen = np.empty(_MAX_RANGES, np.uint8)
    for first in range(0, len(ranges), _MAX_RANGES):
        piece = ranges[first : first + _MAX_RANGES]
        destination = np.array([seen.ctypes.data, len(piece)], np.uint64)
        read(os.getpid(), destination.ctypes.data, 1, piece.ctypes.data, len(piece), 0)


class Mapping:
    """A file mapped into memory for reading until nobody refers to it.

    Unlike Python's `mmap`, which keeps a duplicate of the descriptor, it needs none once it is
    made: a process may map many more files than it may hold open.

    Args:
      descriptor: of the open file; it may be closed afterwards.
      length: bytes to map, at least 1.

    Attributes:
      address: where the file begins in memory.

    Raises:
      OSError: the system refuses.
    """

    def __init__(self, descriptor: int, length: int):
        address = _mmap()(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address = int(address)
        # Not at the interpreter's exit, when threads may still read.
        weakref.finalize(self, _munmap(), address, length).atexit = False


def file_system(path: str) -> int | None:
    """Return the type of the file system that holds a path, as Linux numbers them.

    Returns:
      f_type of statfs(2); None where the system is not Linux, or cannot tell.
    """
    call = _statfs()
    facts = np.zeros(_STATFS_WORDS, np.int64)
    if call is None or call(os.fsencode(path), facts.ctypes.data):
        return None
    return int(facts[0]) & 0xFFFFFFFF  # 32 bits, which some architectures extend by the sign


class FileFacts:
    """Identities, sizes and times of modification of local files, asked for with every batch.

    `os.stat` gives the GIL away each time, and beside busy threads it takes tens of microseconds to
    have it back: 8.7 ms for 220 files beside a Decoder. Here one call after the other keeps it,
    0.3 ms in all. So it is for disks of this machine alone: all threads wait for one that does not
    answer. The calls' arguments are made once, as making them takes as long as the call.

    Args:
      count: the files have numbers below it.
    """

    def __init__(self, count: int):
        self._facts = np.zeros((count, _STAT_WORDS), np.int64)
        self._arguments = [(ctypes.c_char_p(b""), ctypes.c_void_p())] * count

    def add(self, number: int, path: str) -> None:
        """Set the path of file `number`; links in it are not followed anew with each question."""
        address = self._facts.ctypes.data + number * self._facts.strides[0]
        name = os.fsencode(os.path.realpath(path))
        self._arguments[number] = ctypes.c_char_p(name), ctypes.c_void_p(address)

    def ask(self, numbers: np.ndarray) -> np.ndarray:
        """Return int64[k, 4]: device, inode, size, and time in ns of each file now.

        -1 where there is no file under the path any more.
        """
        call = _stat()
        arguments = [self._arguments[number] for number in numbers.tolist()]
        if call is None:
            found = [_python_stat(name.value) for name, _ in arguments]
            return np.array(found, np.int64).reshape(-1, 4)
        failed = [place for place, one in enumerate(arguments) if call(*one)]
        found = self._facts[numbers]
        times = found[:, _TIME] * 10**9 + found[:, _TIME + 1]
        facts = np.stack([found[:, _DEVICE], found[:, _INODE], found[:, _SIZE], times], 1)
        facts[failed] = -1
        return facts


def _python_stat(path: bytes | None) -> tuple[int, int, int, int]:
    try:
        facts = os.stat(path or b"")
    except OSError:
        return -1, -1, -1, -1
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@functools.cache
def _stat() -> Callable[[ctypes.c_char_p, ctypes.c_void_p], int] | None:
    """Return stat(2), to be called with the GIL; None where its struct is not known."""
    function = getattr(ctypes.PyDLL(None), "stat", None)
    known = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return function if known else None


@functools.cache
def _statfs() -> Any:
    """Return statfs(2), called without the GIL as network disks may not answer; None if unknown."""
    function = getattr(ctypes.CDLL(None), "statfs", None)
    if function is None or sys.platform != "linux" or sys.maxsize < 1 << 32:
        return None
    function.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function


@functools.cache
def _mmap() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mmap
    size = ctypes.c_size_t
    pointer = ctypes.c_void_p
    number = ctypes.c_int
    function.argtypes = (pointer, size, number, number, number, ctypes.c_int64)
    function.restype = pointer
    return function


@functools.cache
def _munmap() -> Any:
    function = ctypes.CDLL(None).munmap
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    function.restype = ctypes.c_int
    return function


@functools.cache
def _madvise() -> Callable[[int, int, int], int]:
    """Return madvise(2), called with the GIL: beside busy threads getting it back takes longer."""
    function = ctypes.PyDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


@functools.cache
def _process_vm_readv() -> Any:
    """Return process_vm_readv(2), called without the GIL; None where there is none."""
    function = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if function is not None:
        size = ctypes.c_size_t
        pointer = ctypes.c_void_p
        function.argtypes = (ctypes.c_int, pointer, size, pointer, size, size)
        function.restype = ctypes.c_ssize_t
    return function
