"""Bytes of data files, local or remote."""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from jaxaug.errors import SourceError
from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage.files import (
    LOCAL,
    REMOTE,
    DataFile,
    Patience,
    Refused,
    cause_of,
    changed,
    insist,
    is_remote,
    may_pass,
    reason,
)
from jaxaug.iterators.sources.storage.remote import RemoteReader

_BLOCK_BYTES = 8 << 20  # bytes read ahead while a file is run through from front to back

# (file, offset, destination) -> bytes read, 0 at the end of the file. What it raises is retried
# where `may_pass` says so.
Read = Callable[[DataFile, int, memoryview], int]


class OpenFile:
    """A local file, still the one that was indexed; open as long as a thread refers to it.

    Args:
      file: as it was indexed.
      descriptor: of the file if it is open already; this object closes it.

    Raises:
      SourceError: it is another one, or was written to.
      OSError: it cannot be opened.
    """

    def __init__(self, file: DataFile, descriptor: int = -1):
        self.file = file
        self.status = (file.size, int(file.stamp))
        self.descriptor = os.open(file.path, os.O_RDONLY) if descriptor < 0 else descriptor
        weakref.finalize(self, os.close, self.descriptor)
        self.check()

    def check(self) -> None:
        """Raise SourceError if it was written to, as size and time of modification tell."""
        facts = os.fstat(self.descriptor)
        if (facts.st_size, facts.st_mtime_ns) != self.status:
            raise changed(self.file)


def allowed_open(count: int) -> int:
    """Return how many of `count` files a reader may hold open: a quarter of the process's limit."""
    import resource  # POSIX only, as much of this package; nothing else here needs it

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return count if soft == resource.RLIM_INFINITY else min(count, max(1, soft // 4))


class FileReader:
    """`Read` of local files by preadv, and of remote ones.

    Args:
      max_open: local files that stay open between calls. Opening one costs as much as reading
        some images.
      local: all files lie on disks of this machine, so calls that do not wait may keep the GIL.
      timeout: of requests for remote files, see `RemoteReader`.
    """

    def __init__(self, max_open: int = 16, local: bool = False, timeout: float = 15.0):
        self._max_open = max_open
        self._local = local
        self._lock = threading.Lock()
        self.remote = RemoteReader(timeout)
        self._opened: dict[DataFile, OpenFile] = {}  # the longest unused first

    def __call__(self, file: DataFile, offset: int, destination: memoryview) -> int:
        if not is_remote(file.path):
            # Held until the bytes are there: others may drive it out of the cache.
            opened = self._open(file)
            return os.preadv(opened.descriptor, [destination], offset)
        return self.remote.read(file, offset, destination)

    def check(self, file: DataFile) -> None:
        """Raise unless what was read before this call are the bytes that were indexed.

        Raises:
          SourceError: the file has changed, or is not to be found.
          OSError: an open one cannot be asked.
        """
        if not is_remote(file.path):
            opened = self._open(file)
            try:
                return opened.check()
            except SourceError:  # another one may take its path
                with self._lock:
                    if self._opened.get(file) is opened:
                        del self._opened[file]
                raise
        self.remote.check(file)

    def _open(self, file: DataFile) -> OpenFile:
        # Outside of the lock: a dead disk never answers.
        return self._keep(self._opened.get(file) or OpenFile(file))

    def _keep(self, opened: OpenFile) -> OpenFile:
        """Count a file as used last, and close those that were not used for long."""
        with self._lock:
            self._opened.pop(opened.file, None)
            self._opened[opened.file] = opened
            while len(self._opened) > self._max_open:
                del self._opened[next(iter(self._opened))]
        return opened

    def read_cached(
        self,
        files: Sequence[DataFile],
        offsets: np.ndarray,
        addresses: np.ndarray,
        lengths: np.ndarray,
    ) -> np.ndarray:
        """Read ranges that need no wait: the page cache holds them, and the paths of their files.

        Args:
          files: k of them; remote ones count as not cached.
          offsets, addresses, lengths: int64[k], of each range and of its destination.

        Returns:
          bool[k], True for ranges of files that are as they were indexed.
        """
        numbers = {file: number for number, file in enumerate(dict.fromkeys(files))}
        distinct = list(numbers)
        which = np.array([numbers[file] for file in files], np.int64)
        done = np.zeros(len(files), bool)
        for first in range(0, len(distinct), self._max_open):
            group = distinct[first : first + self._max_open]
            rows = ((which >= first) & (which < first + len(group))).nonzero()[0]
            ranges = (offsets[rows], addresses[rows], lengths[rows])
            done[rows] = self._read_group(group, which[rows] - first, *ranges)
        return done

    def _read_group(
        self,
        files: Sequence[DataFile],
        which: np.ndarray,
        offsets: np.ndarray,
        addresses: np.ndarray,
        lengths: np.ndarray,
    ) -> np.ndarray:
        """Read ranges of a few files, `which` (int64[k]) says of which, see `read_cached`."""
        opened = [None if is_remote(file.path) else self._open_cached(file) for file in files]
        descriptors = [-1 if each is None else each.descriptor for each in opened]
        usable = np.array(descriptors)[which] >= 0
        rows = usable.nonzero()[0]
        done = np.zeros(len(which), np.int64)
        done[rows] = libc.read_cached(
            np.array(descriptors)[which[rows]], offsets[rows], addresses[rows], lengths[rows]
        )
        # The files are open until here: other threads may close them in the reader.
        unchanged = self._are_unchanged(opened)
        return usable & (done == lengths) & unchanged[which]

    def _open_cached(self, file: DataFile) -> OpenFile | None:
        opened = self._opened.get(file)
        if opened is not None:
            return self._keep(opened)
        descriptor = libc.open_cached(file.path) if self._local else -1
        if descriptor < 0:
            return None
        try:
            return self._keep(OpenFile(file, descriptor))
        except (SourceError, OSError):  # told by the threads, who open it again
            return None

    def _are_unchanged(self, opened: Sequence[OpenFile | None]) -> np.ndarray:
        """Return bool[k], True for open files that are as they were indexed."""
        expected = [(-1, -1) if each is None else each.status for each in opened]
        descriptors = [-1 if each is None else each.descriptor for each in opened]
        found = libc.file_status(descriptors, self._local)
        return (found == np.array(expected, np.int64)).all(axis=1)


def read_fully(
    read: Read,
    file: DataFile,
    offset: int,
    destination: memoryview,
    patience: Patience | None = None,
) -> None:
    """Fill `destination` with the bytes from `offset` on, trying again where a failure may pass.

    Args:
      read, file, offset, destination: see `Read`.
      patience: when to give up; None for what is usual with such a file.

    Raises:
      Refused: a remote file cannot be read for good.
      SourceError: the file ends too early, or the last try failed too.
    """
    remote = is_remote(file.path)
    patience = patience or (REMOTE if remote else LOCAL)
    done = 0
    while done < len(destination):
        try:
            count = insist(partial(read, file, offset + done, destination[done:]), patience)
        except SourceError:
            raise
        except Exception as error:  # each protocol has its own
            kind = Refused if remote and not may_pass(error) else SourceError
            raise kind(
                f"{file.name!r} cannot be read at byte {offset + done}: {reason(error)}."
            ) from cause_of(error, file.path)
        if count <= 0:
            raise SourceError(
                f"{file.name!r} ends at byte {offset + done}, within what was indexed: it was cut."
            )
        done += count


class BlockReader:
    """A file read from front to back in large blocks; views of earlier blocks stay valid.

    Blocks follow each other, and the last two are kept: whoever looks ahead, as at the next header
    of a tar, and then comes back has no byte read twice.

    Args:
      read: reads the file.
      file: the file.
      block: bytes read at a time.
      known: the bytes from `start` on, uint8[n], which need no read.
    """

    def __init__(
        self,
        read: Read,
        file: DataFile,
        block: int = _BLOCK_BYTES,
        *,
        known: np.ndarray | None = None,
        start: int = 0,
    ):
        self.file = file
        self.block_size = block
        self._read = read
        self._last = _Block(start, _NO_BYTES if known is None else known)
        self._before = _Block(start, _NO_BYTES)

    def at(self, offset: int, length: int) -> np.ndarray:
        """Return uint8[length] from `offset` on; fewer where the file ends."""
        length = min(length, self.file.size - offset)
        if length <= 0:
            return _NO_BYTES
        stop = offset + length
        if offset >= self._last.start and stop > self._last.stop:
            self._advance(offset, stop)
        for block in (self._last, self._before):
            if block.start <= offset and stop <= block.stop:
                return block.data[offset - block.start : stop - block.start]

        joined = self._before.start <= offset and self._before.stop >= self._last.start
        if joined and stop <= self._last.stop:
            begun = self._before.data[offset - self._before.start :][: self._last.start - offset]
            return np.concatenate([begun, self._last.data[: length - len(begun)]])
        data = np.empty(length, np.uint8)
        read_fully(self._read, self.file, offset, data.data)
        return data

    def _advance(self, offset: int, stop: int) -> None:
        """Read the next block, to `stop` at least; what is known of it is not read again."""
        near = offset < self._last.stop + self.block_size
        begin = min(offset, self._last.stop) if near else offset
        known = self._last.data[begin - self._last.start :] if near else _NO_BYTES
        end = min(max(stop, begin + len(known) + self.block_size), self.file.size)
        data = np.empty(end - begin, np.uint8)
        data[: len(known)] = known
        read_fully(self._read, self.file, begin + len(known), data[len(known) :].data)
        self._before = self._last
        self._last = _Block(begin, data)


class _Block(NamedTuple):
    """Bytes of a file from `start` on."""

    start: int
    data: np.ndarray

    @property
    def stop(self) -> int:
        return self.start + len(self.data)


_NO_BYTES = np.zeros(0, np.uint8)
