"""Many small files, one for each image: read a batch at a time into memory of its own."""

import hashlib
import os
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from jaxaug._cached import cached_property
from jaxaug._checks import checked_indices
from jaxaug.decode import Encoded
from jaxaug.decode.video.stored import StoredVideos
from jaxaug.iterators.loader.columns import column_bytes
from jaxaug.iterators.sources._findings import (
    places,
    read_findings,
    without_rows,
    write_findings,
)
from jaxaug.iterators.sources._video_index import VideoIndex, open_video_index
from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage.local_disks import all_local

_THREADS = 4  # reads under way at a time: for disks
_MIN_FILES_PER_THREAD = 16  # a thread costs as much as reading a few of them
_OPEN_FILES = 64  # files that are open at a time while cached ones are read
_ALIGNMENT = 64
_CHUNK_BYTES = 8 << 20  # bytes of one buffer; longer files are mapped
_MAX_FREE_BUFFERS = 128  # buffers kept for later batches: 1 GiB


class _BufferPool(deque[np.ndarray]):
    """Buffers that no batch holds any more, for all files of the process that are in use.

    Fresh memory costs a page fault each 4 KiB, more than reading a cached file.
    """


_shared: weakref.WeakValueDictionary[str, _BufferPool] = weakref.WeakValueDictionary()


class LooseFiles:
    """Image files below a folder, by number.

    The files of a batch are read one behind the other into large buffers, which later batches use
    again, without a Python object for each (measured: 3 to 4 times the rate of a pool of threads
    with `open().read()`). On disks of this machine, those that the page cache holds are opened and
    closed with the GIL held, and 64 of them are read in one call without it. There, files of more
    than 8 MiB are mapped into memory: of a long sound or video a clip needs a small part. (One that
    is made shorter while a batch uses it ends the process, as with any mapping.) Up to 1 GiB of
    buffers is kept between batches, for all sources of loose files together, as long as one of them
    is in use.

    Args:
      root: the folder; "" for paths that stand alone.
      names: paths relative to it.
      trusting: False to read the files that a verification found bad, too; True gives them the
        length 0, as if they could not be read.
    """

    def __init__(self, root: str, names: Sequence[str], trusting: bool = True):
        self._root = root
        self._names = names
        self._trusting = trusting
        self._bad = read_findings(root, names) if trusting else {}
        self._local = len(names) > 0 and all_local([self.path(0)])
        # Of the process; they go when the last files and batches do.
        self._free = _shared.setdefault("free", _BufferPool(maxlen=_MAX_FREE_BUFFERS))

    @cached_property
    def _videos(self) -> VideoIndex | None:
        return open_video_index(self._root, self._names)

    def tables(self, indices: np.ndarray) -> StoredVideos | None:
        """Return what an index knows of videos `indices` (int64[n]); None without an index."""
        return None if self._videos is None else self._videos.tables(indices)

    def __reduce__(self):
        return LooseFiles, (self._root, self._names, self._trusting)

    def __len__(self) -> int:
        return len(self._names)

    def untrusting(self) -> "LooseFiles":
        """Return the same files, also those found bad."""
        return LooseFiles(self._root, self._names, trusting=False)

    def findings_place(self) -> str:
        """Return the file that `keep_findings` writes, if it can."""
        return places(self._root)[0]

    def keep_findings(self, findings: Mapping[int, str]) -> str:
        """Keep number -> reason for later copies of these files; return the file that holds it."""
        return write_findings(self._root, self._names, findings)

    def path(self, index: int) -> str:
        """Return the path of file `index`."""
        return os.path.join(self._root, self._names[index])

    def read(self, indices: np.ndarray) -> Encoded:
        """Read files `indices` (int64[n]); one unreadable or found bad has length 0."""
        encoded = self._read(indices)
        return without_rows(encoded, [*self._bad], indices) if self._bad else encoded

    def read_parts(self, indices: np.ndarray, ranges: np.ndarray) -> Encoded:
        """Read the bytes [begin, end) (int64[n, 2]) of files; an end may lie behind that of a file.

        One that cannot be read, or was found bad, has length 0.
        """
        paths = self._paths(indices)
        threads = max(1, min(_THREADS, len(paths)))
        with ThreadPoolExecutor(threads, thread_name_prefix="jaxaug-files") as pool:
            parts = [*pool.map(partial(_read_range, self._free), paths, ranges.tolist())]
        encoded = Encoded.join(parts)._replace(begins=ranges[:, 0].copy())
        return without_rows(encoded, [*self._bad], indices) if self._bad else encoded

    def _read(self, indices: np.ndarray) -> Encoded:
        """Read files `indices` (int64[n]); one that cannot be read has length 0.

        What the page cache holds is read by the calling thread, the rest by several: more of them
        would take the GIL from the threads that decode.
        """
        paths = self._paths(indices)
        chunks = _FileBuffers(self._free, self._local)
        addresses, lengths, found = _read_cached(paths if self._local else [], chunks)
        missing = np.ones(len(paths), bool)
        missing[: found.size] = ~found
        rest = missing.nonzero()[0]
        if not rest.size:
            return Encoded(addresses, lengths, chunks)

        parts = self._read_in_threads([paths[row] for row in rest.tolist()])
        columns = np.zeros((2, len(paths)), np.uint64)
        columns[:, : found.size] = addresses, lengths
        columns[:, rest] = np.concatenate([part[:2] for part in parts], axis=1)
        return Encoded(columns[0], columns[1], (chunks, [part.owner for part in parts]))

    def _read_in_threads(self, paths: list[str]) -> list[Encoded]:
        """Read files in threads, which end with the batch; return them in their order."""
        threads = max(1, min(_THREADS, len(paths) // _MIN_FILES_PER_THREAD))
        shares = [share.tolist() for share in np.array_split(np.array(paths, object), threads)]
        read = partial(read_files, free=self._free, local=self._local)
        if len(shares) == 1:
            return [read(shares[0])]
        with ThreadPoolExecutor(threads, thread_name_prefix="jaxaug-files") as pool:
            return [*pool.map(read, shares)]

    def _paths(self, numbers: np.ndarray) -> list[str]:
        return [self.path(number) for number in checked_indices(numbers, len(self)).tolist()]

    def describe(self, index: int) -> dict[str, Any]:
        """Return the file's number and path, and "error" if it cannot be read now."""
        found: dict[str, Any] = {"record": index, "path": self.path(index)}
        if index in self._bad:
            return found | {"error": self._bad[index]}
        try:
            descriptor = _open(self.path(index))
            try:
                os.pread(descriptor, 1, 0)  # a folder and a failing disk tell no sooner
            finally:
                os.close(descriptor)
        except OSError as error:
            found["error"] = f"cannot be read: {error.strerror}"
        return found

    def fingerprint(self, *columns: np.ndarray) -> str:
        """Return a hash of the relative paths and of columns of features."""
        names = "\n".join(self._names).encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(names, digest_size=8)
        for column in columns:
            digest.update(column_bytes(column))
        return digest.hexdigest()


def read_files(
    paths: Iterable[str], free: _BufferPool | None = None, local: bool = False
) -> Encoded:
    """Read files, one after the other; one that cannot be read has length 0.

    Args:
      paths: of local files.
      free: buffers to use, and to give them back to.
      local: they lie on disks of this machine, so that long ones may be mapped.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile() as file:
      ...     _ = file.write(b"image"), file.flush()
      ...     encoded = read_files([file.name, "/missing"])
      >>> bytes(encoded.view(0)), encoded.lengths.tolist()
      (b'image', [5, 0])
    """
    chunks = _FileBuffers(_BufferPool() if free is None else free, local)
    addresses = []
    lengths = []
    for path in paths:
        address = 0
        length = 0
        try:
            descriptor = _open(path)
            try:
                address, length = chunks.read(descriptor)
            finally:
                os.close(descriptor)
        except OSError:  # told by length 0; `describe` says why
            pass
        addresses.append(address)
        lengths.append(length)
    return Encoded(np.array(addresses, np.uint64), np.array(lengths, np.uint64), chunks)


def _read_range(free: _BufferPool, path: str, bounds: list[int]) -> Encoded:
    """Read the bytes [begin, end) of a file; what cannot be read has length 0."""
    begin, end = bounds
    chunks = _FileBuffers(free, maps=False)
    address, length = 0, 0
    try:
        descriptor = _open(path)
        try:
            size = max(0, min(end, os.fstat(descriptor).st_size) - begin)
            address, length = chunks.read_range(descriptor, begin, size)
        finally:
            os.close(descriptor)
    except OSError:  # told by length 0; `describe` says why
        pass
    return Encoded(np.array([address], np.uint64), np.array([length], np.uint64), chunks)


def _open(path: str) -> int:
    """Return the descriptor of a file, of a pipe without waiting for someone to write to it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def _read_cached(
    paths: list[str], chunks: "_FileBuffers"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read the files that need no wait, as long as these are the most.

    Returns:
      Addresses and lengths uint64[k] of the first files, and bool[k], True for those that were
      read.
    """
    columns = [np.zeros((3, 0), np.int64)]
    for first in range(0, len(paths), _OPEN_FILES):
        opened = [libc.open_cached(path) for path in paths[first : first + _OPEN_FILES]]
        try:
            columns.append(_read_opened(opened, chunks))
        finally:
            for descriptor in opened:
                if descriptor >= 0:
                    libc.close_descriptor(descriptor)
        if columns[-1][2].mean() < 0.5:
            break

    addresses, lengths, found = np.concatenate(columns, axis=1)
    return addresses.astype(np.uint64), lengths.astype(np.uint64), found.astype(bool)


def _read_opened(opened: list[int], chunks: "_FileBuffers") -> np.ndarray:
    """Read whole files from the page cache; return int64[3, k], addresses, lengths and successes.

    Args:
      opened: descriptors, -1 for a file that is not open.
      chunks: the memory.
    """
    lengths = libc.file_status(opened, local=True)[:, 0]
    long = lengths > _CHUNK_BYTES
    addresses = np.zeros(len(opened), np.int64)
    for row in long.nonzero()[0].tolist():
        addresses[row] = chunks.map(opened[row], int(lengths[row]))
    usable = (lengths >= 0) & ~long
    for row in usable.nonzero()[0].tolist():
        addresses[row] = chunks.take(int(lengths[row]) + 1)

    # A byte more, to see that the file has ended.
    descriptors = np.array(opened, np.int64)[usable]
    offsets = np.zeros(len(descriptors), np.int64)
    wanted = lengths[usable] + 1
    done = libc.read_cached(descriptors, offsets, addresses[usable], wanted)
    usable[usable] = done == lengths[usable]
    usable |= long
    return np.stack([addresses, np.where(usable, lengths, 0), usable])


class _FileBuffers:
    """Large buffers that files are read into one behind the other, given back when unused."""

    def __init__(self, free: _BufferPool, maps: bool):
        self._free = free
        self._maps = maps
        self._mappings: list[libc.Mapping] = []
        self._chunks: list[np.ndarray] = []
        self._room = memoryview(b"")
        self._address = 0

    def read(self, descriptor: int) -> tuple[int, int]:
        """Read a whole file; return its address and length."""
        size = os.fstat(descriptor).st_size if self._maps else 0
        if size > _CHUNK_BYTES:
            return self.map(descriptor, size), size
        length = _read(descriptor, self._room)
        if length is None:
            # A byte more, to see that the file has ended.
            self._add(os.fstat(descriptor).st_size + 1)
            length = _read(descriptor, self._room)
        if length is None:
            raise OSError("the file grows while it is read")
        return self.take(length), length

    def read_range(self, descriptor: int, begin: int, size: int) -> tuple[int, int]:
        """Read so many bytes of a file from one on; return their address and their number."""
        if size > len(self._room):
            self._add(size)
        done = 0
        while done < size:
            count = os.preadv(descriptor, [self._room[done:size]], begin + done)
            if count == 0:
                break
            done += count
        return self.take(done), done

    def map(self, descriptor: int, size: int) -> int:
        """Map a whole file; return its address."""
        self._mappings.append(libc.Mapping(descriptor, size))
        return self._mappings[-1].address

    def take(self, size: int) -> int:
        """Return the address of so many bytes."""
        if size > len(self._room):
            self._add(size)
        address = self._address
        used = -(-size // _ALIGNMENT) * _ALIGNMENT
        self._room = self._room[used:]
        self._address = address + used
        return address

    def _add(self, size: int) -> None:
        try:
            chunk = np.empty(size, np.uint8) if size > _CHUNK_BYTES else self._free.pop()
        except IndexError:
            chunk = np.empty(_CHUNK_BYTES, np.uint8)
        self._chunks.append(chunk)
        self._room = chunk.data
        self._address = chunk.ctypes.data

    def __del__(self):
        self._free.extend(chunk for chunk in self._chunks if chunk.size == _CHUNK_BYTES)


def _read(descriptor: int, room: memoryview) -> int | None:
    """Read a whole file to the beginning of `room`; return its bytes, None if they do not fit."""
    done = 0
    while done < len(room):
        # At most 2 GiB a call, and less on some network disks.
        count = os.preadv(descriptor, [room[done:]], done)
        if count == 0:
            return done
        done += count
    return None
