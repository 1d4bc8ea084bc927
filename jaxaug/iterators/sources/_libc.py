"""Functions of the C library for files and mapped memory that Python lacks or has slower."""

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
# Linux's struct stat in int64: its size, and the places of st_dev, st_ino, st_size, st_mtim.
_STAT_WORDS = 18
_DEVICE = 0
_INODE = 1
_SIZE = 6
_TIME = 11
_STATFS_WORDS = 16  # Linux's struct statfs in int64 (15) and one more; f_type comes first
_MAP_FAILED = ctypes.c_void_p(-1).value


def will_need(address: int, length: int) -> None:
    """Advise the kernel to begin to read a range of a mapped file.

    Args:
      address: of the beginning of a page.
      length: bytes.
    """
    _madvise()(address, length, mmap.MADV_WILLNEED)


def map_pages(addresses: np.ndarray) -> None:
    """Put the pages of some addresses into the page tables of this process.

    The first use of a page takes microseconds even if the page cache holds it. This function spends
    them in one call without the GIL: the kernel reads the byte at each address. If the system has
    or allows no such call, the first reader of the page spends them.

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
    """A file that is mapped into memory for reading, as long as this object lives.

    Unlike Python's `mmap`, it keeps no descriptor: a process may map many more files than it may
    hold open.

    Args:
      descriptor: of the open file; it may be closed afterwards.
      length: bytes to map, at least 1.

    Attributes:
      address: of the file's first byte.

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
    """Return the number that Linux gives to the type of a path's file system.

    Returns:
      f_type of statfs(2); None if the system is not Linux or does not answer.
    """
    call = _statfs()
    facts = np.zeros(_STATFS_WORDS, np.int64)
    if call is None or call(os.fsencode(path), facts.ctypes.data):
        return None
    return int(facts[0]) & 0xFFFFFFFF  # 32 bits, which some architectures extend by the sign


class FileFacts:
    """Identities, sizes and modification times of local files, read again for every batch.

    `os.stat` releases the GIL each time, and while other threads are busy it takes tens of
    microseconds to get it back: 8.7 ms for 220 files while a Decoder runs. Here the GIL is kept,
    which takes 0.3 ms in all. So it is for local disks only: all threads wait for a disk that does
    not answer. The arguments of the calls are made once, as making them takes as long as the call.

    Args:
      count: number of files; they are numbered from 0.
    """

    def __init__(self, count: int):
        self._facts = np.zeros((count, _STAT_WORDS), np.int64)
        self._arguments = [(ctypes.c_char_p(b""), ctypes.c_void_p())] * count

    def add(self, number: int, path: str) -> None:
        """Set the path of file `number`; its links are followed only now."""
        address = self._facts.ctypes.data + number * self._facts.strides[0]
        name = os.fsencode(os.path.realpath(path))
        self._arguments[number] = ctypes.c_char_p(name), ctypes.c_void_p(address)

    def ask(self, numbers: np.ndarray) -> np.ndarray:
        """Return int64[k, 4]: device, inode, size, and modification time in ns of each file.

        A row is -1 if the path has no file any more.
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
    """Return stat, called with the GIL; None before glibc 2.33, or if its struct is not known."""
    function = getattr(ctypes.PyDLL(None), "stat", None)
    known = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return function if known else None


@functools.cache
def _statfs() -> Any:
    """Return statfs, called without the GIL; None if its struct is not known."""
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
    """Return madvise, called with the GIL.

    It takes 10 us, and releasing the GIL while other threads are busy costs milliseconds.
    """
    function = ctypes.PyDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


@functools.cache
def _process_vm_readv() -> Any:
    """Return process_vm_readv, called without the GIL; None if libc lacks it."""
    function = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if function is not None:
        size = ctypes.c_size_t
        pointer = ctypes.c_void_p
        function.argtypes = (ctypes.c_int, pointer, size, pointer, size, size)
        function.restype = ctypes.c_ssize_t
    return function
