"""Functions of the C library for files and mapped memory that Python lacks or has slower.

Asynchronous reads and openat2 have no function there (glibc 2.36), and are called by the numbers of
`_by_number` alone. Where a function or a number is not known, callers get what tells them to do
without it.
"""

import contextlib
import ctypes
import functools
import mmap
import os
import platform
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

_MAX_RANGES = 1024  # of one call: IOV_MAX of Linux
# struct statx of statx(2), which is the same on all machines.
_STATUS = np.dtype(
    {
        "names": ["inode", "size", "seconds", "nanoseconds", "major", "minor"],
        "formats": ["u8", "u8", "i8", "u4", "u4", "u4"],
        "offsets": [32, 40, 112, 120, 136, 140],
        "itemsize": 256,
    }
)
_STATX_BASIC_STATS = 0x7FF
_AT_EMPTY_PATH = 0x1000  # of the descriptor itself
_STATFS_WORDS = 16  # Linux's struct statfs in int64 (15) and one more; f_type comes first
_IN_MEMORY = {0x01021994, 0x858458F6}  # f_type of tmpfs and ramfs: linux/magic.h
# The asynchronous reads of one call. A context is counted twice as large, and a system may have
# 65,536 in all (/proc/sys/fs/aio-max-nr).
_MAX_EVENTS = 256
_REQUEST = np.dtype(  # struct iocb, linux/aio_abi.h
    {
        "names": ["data", "flags", "descriptor", "address", "length", "offset"],
        "formats": ["u8", "i4", "u4", "u8", "u8", "i8"],
        "offsets": [0, 12, 20, 24, 32, 40],
        "itemsize": 64,
    }
)
_AT_FDCWD = -100
_RESOLVE_CACHED = 0x20
# Not blocking: to open a named pipe waits until someone writes to it.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_OPEN_HOW = np.array([_OPEN_FLAGS, 0, _RESOLVE_CACHED], np.uint64)
_OPEN_HOW_ADDRESS = _OPEN_HOW.ctypes.data


class _CallNumbers(NamedTuple):
    """Numbers of system calls; each means another call on another kind of machine."""

    io_setup: int
    io_submit: int
    io_getevents: int
    openat2: int


# By the machine, for programs of 64 bits. Linux never changes them: arch/x86/entry/syscalls/
# syscall_64.tbl, include/uapi/asm-generic/unistd.h.
_CALL_NUMBERS = {
    "x86_64": _CallNumbers(io_setup=206, io_submit=209, io_getevents=208, openat2=437),
    "aarch64": _CallNumbers(io_setup=0, io_submit=2, io_getevents=4, openat2=437),
}
_contexts: dict[int, list[int]] = {}  # idle ones, by process
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
    found = np.zeros(_STATFS_WORDS, np.int64)
    if call is None or call(os.fsencode(path), found.ctypes.data):
        return None
    return int(found[0]) & 0xFFFFFFFF  # 32 bits, which some architectures extend by the sign


def open_cached(path: str) -> int:
    """Open a file for reading, if its path is in the kernel's cache; keep the GIL.

    Returns:
      The descriptor; -1 if the file cannot be opened so, or the system has no such call.
    """
    numbers = _by_number()
    call = _keeping_gil("syscall")
    if call is None or numbers is None:
        return -1
    name = os.fsencode(path)
    return call(numbers.openat2, _AT_FDCWD, name, _OPEN_HOW_ADDRESS, _OPEN_HOW.nbytes)


def close_descriptor(descriptor: int) -> None:
    """Close a file of `open_cached`; keep the GIL."""
    call = _keeping_gil("close")
    assert call is not None
    call(descriptor)


def file_status(descriptors: Sequence[int], local: bool) -> np.ndarray:
    """Return int64[k, 2], size and modification time in ns of open files; -1 where that fails.

    Args:
      local: the files lie on disks of this machine: the GIL is kept.
    """
    call = _keeping_gil("statx") if local else None
    if call is None:
        return _ask_python(descriptors)[:, 2:]

    status = np.zeros(len(descriptors), _STATUS)
    address = status.ctypes.data
    places = range(address, address + status.nbytes, _STATUS.itemsize)
    failed = [
        number
        for number, (descriptor, place) in enumerate(zip(descriptors, places))
        if call(descriptor, b"", _AT_EMPTY_PATH, _STATX_BASIC_STATS, place)
    ]
    found = _sizes_and_times(status)
    found[failed] = _ask_python([descriptors[number] for number in failed])[:, 2:]
    return found


def read_cached(
    descriptors: np.ndarray, offsets: np.ndarray, addresses: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Read ranges of files that the page cache holds, with two releases of the GIL for all of them.

    These are asynchronous reads of Linux (io_submit(2)) that may not wait, so each has ended when
    `io_submit` returns. Files in memory never wait, and refuse the flag for it. io_uring would
    need one release, but containers often forbid it. preadv2 in a loop would release the GIL for
    each range: beside one or two busy threads, 256 files of 110 kB take 1.5 to 1.8 times as long.

    Args:
      descriptors, offsets, addresses, lengths: int64[k], of each range and of its destination.

    Returns:
      int64[k], the bytes of each that were read; negative where a read would wait or has failed, or
      the system has no such call.
    """
    count = len(descriptors)
    done = np.full(count, -1, np.int64)
    in_memory = count > 0 and _lies_in_memory(int(descriptors[0]))
    flags = 0 if in_memory else getattr(os, "RWF_NOWAIT", 0)
    for first in range(0, count, _MAX_EVENTS):
        part = slice(first, first + _MAX_EVENTS)
        requests = np.zeros(len(descriptors[part]), _REQUEST)
        requests["data"] = np.arange(first, first + len(requests))
        requests["flags"] = flags
        requests["descriptor"] = descriptors[part]
        requests["address"] = addresses[part]
        requests["length"] = lengths[part]
        requests["offset"] = offsets[part]
        if not _submit(requests, done):
            break
    return done


def _lies_in_memory(descriptor: int) -> bool:
    """Return True for a file of tmpfs or ramfs, such as those in /dev/shm."""
    call = _keeping_gil("fstatfs")
    found = np.zeros(_STATFS_WORDS, np.int64)
    if call is None or call(descriptor, found.ctypes.data):
        return False
    return int(found[0]) & 0xFFFFFFFF in _IN_MEMORY


def _submit(requests: np.ndarray, done: np.ndarray) -> bool:
    """Submit reads and fill in `done`; return False unless all of them were accepted."""
    context = _take_context()
    call = _syscall()
    numbers = _by_number()
    if call is None or numbers is None or not context:
        return False

    addresses = requests.ctypes.data + np.arange(len(requests)) * requests.itemsize
    accepted = max(0, call(numbers.io_submit, context, len(requests), addresses.ctypes.data, 0, 0))
    ended = 0
    while ended < accepted:
        events = np.zeros((accepted - ended, 4), np.int64)  # data, request, result, result
        wanted = len(events)
        count = call(numbers.io_getevents, context, wanted, wanted, events.ctypes.data, 0)
        if count > 0:
            done[events[:count, 0]] = events[:count, 2]
            ended += count
    _contexts[os.getpid()].append(context)  # one that an exception has left is not used again
    return accepted == len(requests)


def _take_context() -> int:
    """Return an idle context for reads; 0 if the system gives none.

    A forked child cannot use those of its parent.
    """
    idle = _contexts.setdefault(os.getpid(), [])
    with contextlib.suppress(IndexError):
        return idle.pop()

    context = np.zeros(1, np.uint64)
    call = _syscall()
    numbers = _by_number()
    if call is None or numbers is None or not hasattr(os, "RWF_NOWAIT"):
        return 0
    failed = call(numbers.io_setup, _MAX_EVENTS, context.ctypes.data, 0, 0, 0)
    return 0 if failed else int(context[0])


class FileStatus:
    """Identities, sizes and modification times of local files, read again for every batch.

    `os.stat` releases the GIL each time, and while other threads are busy it takes tens of
    microseconds to get it back: 8.7 ms for 220 files while a Decoder runs. Here the GIL is kept,
    which takes 0.5 ms in all. So it is for local disks only: all threads wait for a disk that does
    not answer. The arguments of the calls are made once, as making them takes as long as the call.

    Args:
      count: number of files; they are numbered from 0.
    """

    def __init__(self, count: int):
        self._status = np.zeros(count, _STATUS)
        self._paths = [b""] * count
        none = (_AT_FDCWD, ctypes.c_char_p(b""), 0, _STATX_BASIC_STATS, ctypes.c_void_p())
        self._arguments = [none] * count

    def add(self, number: int, path: str) -> None:
        """Set the path of file `number`; its links are followed only now."""
        name = os.fsencode(os.path.realpath(path))
        place = ctypes.c_void_p(self._status.ctypes.data + number * _STATUS.itemsize)
        self._paths[number] = name
        self._arguments[number] = (
            _AT_FDCWD,
            ctypes.c_char_p(name),
            0,
            _STATX_BASIC_STATS,
            place,
        )

    def ask(self, numbers: np.ndarray) -> np.ndarray:
        """Return int64[k, 4]: device, inode, size, and modification time in ns of each file.

        A row is -1 if the path has no file any more.
        """
        call = _keeping_gil("statx")
        asked = numbers.tolist()
        if call is None:
            return _ask_python([self._paths[number] for number in asked])

        arguments = [self._arguments[number] for number in asked]
        failed = [place for place, one in enumerate(arguments) if call(*one)]
        status = self._status[numbers]
        devices = map(os.makedev, status["major"].tolist(), status["minor"].tolist())
        found = np.empty((len(asked), 4), np.int64)
        found[:, 0] = list(devices)
        found[:, 1] = status["inode"]
        found[:, 2:] = _sizes_and_times(status)
        found[failed] = _ask_python([self._paths[asked[place]] for place in failed])
        return found


def _sizes_and_times(status: np.ndarray) -> np.ndarray:
    """Return int64[k, 2], size and modification time in ns, of `_STATUS`[k]."""
    times = status["seconds"] * 10**9 + status["nanoseconds"]
    return np.stack([status["size"].astype(np.int64), times], 1)


def _ask_python(files: Sequence[bytes | int]) -> np.ndarray:
    """Return int64[k, 4], device, inode, size and time of paths or descriptors; -1 where none is.

    Also what statx refuses is asked here: some containers forbid that call, not the file.
    """
    found = np.full((len(files), 4), -1, np.int64)
    for row, file in enumerate(files):
        with contextlib.suppress(OSError):
            status = os.stat(file)
            found[row] = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return found


def _by_number() -> _CallNumbers | None:
    """Return the numbers of the system calls that the C library has no function for.

    They are those of this process's machine: another kind has other calls under the same numbers,
    and so has a program of 32 bits on a kernel of 64. None for all that is not in the table.
    """
    is_64_bit_linux = sys.platform == "linux" and sys.maxsize > 1 << 32
    return _CALL_NUMBERS.get(platform.machine()) if is_64_bit_linux else None


@functools.cache
def _keeping_gil(name: str) -> Any:
    """Return a function of the C library, called with the GIL; None if this Linux lacks it.

    glibc has statx from 2.28 on.
    """
    function = getattr(ctypes.PyDLL(None), name, None)
    if function is None or sys.platform != "linux" or sys.maxsize < 1 << 32:
        return None

    number = ctypes.c_long
    pointer = ctypes.c_void_p
    name_of_file = ctypes.c_char_p
    function.argtypes = {
        "statx": (ctypes.c_int, name_of_file, ctypes.c_int, ctypes.c_uint, pointer),
        "fstatfs": (ctypes.c_int, pointer),
        "close": (ctypes.c_int,),
        "syscall": (number, number, name_of_file, pointer, number),
    }[name]
    function.restype = number if name == "syscall" else ctypes.c_int
    return function


@functools.cache
def _syscall() -> Any:
    """Return syscall for the asynchronous reads, called without the GIL; None if not on Linux."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).syscall
    number = ctypes.c_long
    pointer = ctypes.c_void_p
    function.argtypes = (number, ctypes.c_ulong, number, ctypes.c_ulong, pointer, pointer)
    function.restype = number
    return function


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
