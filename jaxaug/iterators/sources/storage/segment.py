"""A file of blocks on a disk of this machine, which several processes fill and map."""

import ctypes
import os
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from jaxaug.iterators.sources.storage.crc32c import native_crc32c
from jaxaug.iterators.sources.storage.libc import Mapping

SUFFIX = ".blocks"
_ENTRY_BYTES = 8  # of the table: the checksum of a block, and its length once it is there
_PAGE = 4096
_MAX_REMEMBERED = 50_000  # segments, with 512 bytes each
# By path the entries of blocks that this process has written, or whose checksum it has compared.
# One that is the same in the table is of a block that is there, also if the file is a new one.
_good: dict[str, np.ndarray] = {}
_remembering = threading.Lock()


class Segment:
    """Blocks of equal length at their places in a file with holes, behind a table of checksums.

    A block is written first and its entry in the table afterwards, so a process that is killed
    leaves none that is half written; after a loss of power the checksum tells. What is written
    twice is the same both times. A file is never made shorter, and removed as a whole: whoever has
    mapped it reads on, and its blocks are written anew elsewhere. A process looks at the checksum
    of a block once, also where several sources read it.

    Args:
      path: of the file, which is made if there is none, or none of this form.
      lengths: int64[k], bytes of each block; all but the last are `block` long.
      block: bytes from the start of one to that of the next.

    Raises:
      OSError: the file cannot be opened, made or mapped.
    """

    def __init__(self, path: str, lengths: np.ndarray, block: int):
        self.path = path
        self._lengths = lengths
        self._block = block
        self._start = -(-_ENTRY_BYTES * len(lengths) // _PAGE) * _PAGE
        descriptor = self._open(self._start + int(lengths.sum()))
        try:
            facts = os.fstat(descriptor)
            self._identity = (facts.st_dev, facts.st_ino)
            self.mapping = Mapping(descriptor, facts.st_size)
        finally:
            os.close(descriptor)
        self._table = _memory(self.mapping.address, _ENTRY_BYTES * len(lengths)).view("<u8")
        self._good = _good_of(path, len(lengths))

    def _open(self, size: int) -> int:
        with suppress(FileNotFoundError):
            descriptor = os.open(self.path, os.O_RDWR)
            if os.fstat(descriptor).st_size == size:
                return descriptor
            os.close(descriptor)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        unfinished = f"{self.path}.{os.getpid()}-{threading.get_ident()}"
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.ftruncate(descriptor, size)
            os.replace(unfinished, self.path)
        except OSError:
            os.close(descriptor)
            os.unlink(unfinished)
            raise
        return descriptor

    def addresses(self, blocks: np.ndarray) -> np.ndarray:
        """Return where blocks int64[n] lie in memory."""
        return self.mapping.address + self._start + blocks * self._block

    def find(self, blocks: np.ndarray) -> np.ndarray:
        """Return bool[n], which of the blocks int64[n] are there and as they were written."""
        entries = self._table[blocks]
        new = (entries != self._good[blocks]) & (entries >> 32 == self._lengths[blocks])
        for block, entry in zip(blocks[new].tolist(), entries[new]):
            content = _memory(int(self.addresses(np.array(block))), int(self._lengths[block]))
            if _entry_of(content) == entry:
                self._good[block] = entry
        return (entries != 0) & (self._good[blocks] == entries)

    def write(self, block: int, address: int) -> None:
        """Keep a block whose bytes are at an address, unless the file was removed.

        Raises:
          OSError: the disk is full, or fails.
        """
        length = int(self._lengths[block])
        content = _memory(address, length)
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            facts = os.fstat(descriptor)
            if (facts.st_dev, facts.st_ino) != self._identity:
                return
            done = 0
            while done < length:
                place = self._start + block * self._block + done
                done += os.pwrite(descriptor, content[done:].data, place)
            entry = _entry_of(content)
            os.pwrite(descriptor, entry.tobytes(), _ENTRY_BYTES * block)
            self._good[block] = entry
        finally:
            os.close(descriptor)

    def is_there(self) -> bool:
        """Return False if the file was removed, or another one has its place."""
        try:
            facts = os.stat(self.path)
        except OSError:
            return False
        return (facts.st_dev, facts.st_ino) == self._identity


def _good_of(path: str, count: int) -> np.ndarray:
    """Return the entries that were found good of a segment."""
    with _remembering:
        if path not in _good and len(_good) >= _MAX_REMEMBERED:
            del _good[next(iter(_good))]
        return _good.setdefault(path, np.zeros(count, "<u8"))


def _entry_of(content: np.ndarray) -> np.uint64:
    """Return what the table has of a block that is there."""
    return np.array([_checksum()[1](content), len(content)], "<u4").view("<u8")[0]


def checksum_name() -> str:
    """Return the name of the checksum, which differs by what is installed."""
    return _checksum()[0]


@lru_cache(maxsize=1)
def _checksum() -> tuple[str, Callable[[Any], int]]:
    """Return the name and the function of the fastest checksum that is there."""
    native = native_crc32c()
    return ("crc32", zlib.crc32) if native is None else ("crc32c", native)


def _memory(address: int, length: int) -> np.ndarray:
    """Return a read-only view of memory, uint8[length]."""
    found = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address))
    found.flags.writeable = False
    return found
