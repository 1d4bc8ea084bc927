"""Bytes of data files, local or remote."""

import os
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np

from jaxaug.errors import SourceError
from jaxaug.iterators.sources._files import (
    DataFile,
    file_system_of,
    hide_secrets,
    is_remote,
    pause,
    reason,
    stat_file,
)

_BLOCK_BYTES = 8 << 20  # bytes read ahead while a file is run through from front to back
# of preadv: only what the page cache holds; Linux alone can tell
NO_WAIT = getattr(os, "RWF_NOWAIT", 0)

# (file, offset, destination) -> bytes read, 0 at the end of the file. Raises OSError, which is
# retried.
Read = Callable[[DataFile, int, memoryview], int]


class TimeBudget:
    """The time that one thread may take to read from the page cache before others had better help.

    Where it takes longer, it hardly gets the GIL, as beside Python that never waits: several
    threads get it more often.
    """

    def __init__(self):
        self._until = time.perf_counter() + 5e-3

    def lasts(self, calls: int, length: int) -> bool:
        """Return True if there was time for more system calls, 0.1 ms each, and bytes, 1 GB/s."""
        self._until += 1e-4 * calls + 1e-9 * length
        return time.perf_counter() < self._until


class OpenFile:
    """A local file, still the one that was indexed; open as long as a thread refers to it.

    Raises:
      SourceError: it is another one, or was written to.
      OSError: it cannot be opened.
    """

    def __init__(self, file: DataFile):
        self._file = file
        self._stamp = int(file.stamp)
        self.descriptor = os.open(file.path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)
        self.check()

    def check(self) -> None:
        """Raise SourceError if it was written to, as size and time of modification tell."""
        facts = os.fstat(self.descriptor)
        if facts.st_mtime_ns != self._stamp or facts.st_size != self._file.size:
            raise changed(self._file)


def changed(file: DataFile) -> SourceError:
    """Return the error for a file that is not the one that was indexed."""
    return SourceError(f"{file.name!r} changed since it was indexed: open the source again.")


def allowed_open(count: int) -> int:
    """Return how many of `count` files a reader may hold open: a quarter of the process's limit."""
    import resource  # POSIX only, as much of this package; nothing else here needs it

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return count if soft == resource.RLIM_INFINITY else min(count, max(1, soft // 4))


class FileReader:
    """`Read` of local files by preadv and of remote ones by fsspec.

    Args:
      max_open: local files that stay open between calls. Opening one costs as much as reading
        some images.
    """

    def __init__(self, max_open: int = 16):
        self._max_open = max_open
        self._lock = threading.Lock()
        self._opened: dict[DataFile, OpenFile] = {}  # the longest unused first

    def __call__(self, file: DataFile, offset: int, destination: memoryview) -> int:
        if not is_remote(file.path):
            # Held until the bytes are there: others may drive it out of the cache.
            opened = self._open(file)
            return os.preadv(opened.descriptor, [destination], offset)
        system, name = file_system_of(file.path)
        try:
            data = system.cat_file(name, start=offset, end=offset + len(destination))
        except Exception as error:  # each protocol has its own; all of them are worth another try
            raise OSError(hide_secrets(f"{type(error).__name__}: {error}")) from None
        if len(data) > len(destination):
            raise SourceError(
                f"the server of {file.name!r} ignores ranges: "
                f"sent {len(data)} bytes for {len(destination)}."
            )
        destination[: len(data)] = data
        return len(data)

    def check(self, file: DataFile) -> None:
        """Raise unless what was read before this call are the bytes that were indexed.

        Raises:
          SourceError: the file has changed, or is not to be found.
          OSError: an open one cannot be asked.
        """
        if not is_remote(file.path):
            return self._open(file).check()
        system, name = file_system_of(file.path)
        system.invalidate_cache(name)
        if stat_file(file.path) != file:
            raise changed(file)

    def _open(self, file: DataFile) -> OpenFile:
        # Outside of the lock: a dead disk never answers.
        opened = self._opened.get(file) or OpenFile(file)
        with self._lock:
            self._opened.pop(file, None)
            self._opened[file] = opened
            while len(self._opened) > self._max_open:
                del self._opened[next(iter(self._opened))]
        return opened

    def cached(self, file: DataFile, offset: int, destination: memoryview) -> bool:
        """Fill `destination` if that needs no wait: the file is open, in the page cache all of it.

        Returns:
          True if it was filled.
        """
        opened = self._opened.get(file)
        if opened is None or not NO_WAIT:
            return False
        try:
            return os.preadv(opened.descriptor, [destination], offset, NO_WAIT) == len(destination)
        except OSError:  # not there, or a file system that cannot tell
            return False


def read_fully(
    read: Read, file: DataFile, offset: int, destination: memoryview, retries: int = 3
) -> None:
    """Fill `destination` with the bytes from `offset` on, trying again after an OSError.

    Raises:
      SourceError: the file ends too early, or the last try failed too.
    """
    done = 0
    failures = 0
    while done < len(destination):
        try:
            count = read(file, offset + done, destination[done:])
        except OSError as error:
            if failures == retries:
                raise SourceError(
                    f"{file.name!r} cannot be read at byte {offset + done}: {reason(error)}."
                ) from error
            pause(failures)
            failures += 1
            continue
        if count <= 0:
            raise SourceError(
                f"{file.name!r} ends at byte {offset + done}, within what was indexed: it was cut."
            )
        done += count


class BlockReader:
    """A file read from front to back in large blocks; views of earlier blocks stay valid."""

    def __init__(self, read: Read, file: DataFile, block: int = _BLOCK_BYTES):
        self.file = file
        self.block_size = block
        self._read = read
        self._start = 0
        self._block = np.zeros(0, np.uint8)

    def at(self, offset: int, length: int) -> np.ndarray:
        """Return uint8[length] from `offset` on; fewer where the file ends."""
        length = min(length, self.file.size - offset)
        if length <= 0:
            return self._block[:0]
        begin = offset - self._start
        if not 0 <= begin <= begin + length <= self._block.size:
            size = min(max(length, self.block_size), self.file.size - offset)
            self._block = np.empty(size, np.uint8)
            self._start = offset
            begin = 0
            read_fully(self._read, self.file, offset, self._block.data)
        return self._block[begin : begin + length]
