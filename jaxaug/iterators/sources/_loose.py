"""Many small files, one for each image: read a batch at a time into memory of its own."""

import hashlib
import os
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.iterators.sources._read import NO_WAIT, TimeBudget

_THREADS = 4  # reads under way at a time: for disks
_MIN_FILES_PER_THREAD = 16  # a thread costs as much as reading a few of them
_ALIGNMENT = 64
_CHUNK_BYTES = 8 << 20  # bytes of one buffer
_MAX_FREE_BUFFERS = 128  # buffers kept for later batches: 1 GiB


class _BufferPool(deque[np.ndarray]):
    """Buffers that no batch holds any more, for all files of the process that are in use.

    Fresh memory costs a page fault each 4 KiB, more than reading a cached file.
    """


_shared: weakref.WeakValueDictionary[str, _BufferPool] = weakref.WeakValueDictionary()


def _free_buffers() -> _BufferPool:
    """Return the buffers of the process; they go when the last files and batches do."""
    return _shared.setdefault("free", _BufferPool(maxlen=_MAX_FREE_BUFFERS))


class LooseFiles:
    """Image files below a folder, by number.

    A file costs four system calls and no Python object that outlives them: the files of a batch are
    read one behind the other into large buffers, which later batches use again (measured: 3 to 4
    times the rate of a pool of threads with `open().read()`). Up to 1 GiB of buffers is kept
    between batches, for all sources of loose files together, as long as one of them is in use.

    Args:
      root: the folder; "" for paths that stand alone.
      names: paths relative to it.
    """

    def __init__(self, root: str, names: Sequence[str]):
        self._root = root
        self._names = names
        self._free = _free_buffers()

    def __reduce__(self):
        return LooseFiles, (self._root, self._names)

    def __len__(self) -> int:
        return len(self._names)

    def path(self, index: int) -> str:
        """Return the path of file `index`."""
        return os.path.join(self._root, self._names[index])

    def read(self, indices: np.ndarray) -> Encoded:
        """Read files `indices` (int64[n]); one that cannot be read has length 0.

        From the first file on that the page cache does not hold, several threads read. One is as
        fast as long as it holds them, and more would take the GIL from the threads that decode.
        """
        numbers = np.asarray(indices)
        cached = read_files(self._paths(numbers) if NO_WAIT else [], TimeBudget(), free=self._free)
        rest = numbers[cached.lengths.size :]
        if not rest.size:
            return cached
        threads = max(1, min(_THREADS, rest.size // _MIN_FILES_PER_THREAD))
        shares = [self._paths(share) for share in np.array_split(rest, threads)]
        read = partial(read_files, free=self._free)
        if len(shares) == 1:
            parts = [read(shares[0])]
        else:
            # Its threads end with the batch.
            with ThreadPoolExecutor(threads, thread_name_prefix="jaxaug-files") as pool:
                parts = [*pool.map(read, shares)]
        addresses, lengths, owners = zip(*([cached, *parts] if cached.lengths.size else parts))
        return Encoded(np.concatenate(addresses), np.concatenate(lengths), owners)

    def _paths(self, numbers: np.ndarray) -> list[str]:
        return [self.path(number) for number in numbers.tolist()]

    def describe(self, index: int) -> dict[str, Any]:
        """Return the file's number and path, and "error" if it cannot be read now."""
        found: dict[str, Any] = {"record": index, "path": self.path(index)}
        try:
            os.close(os.open(self.path(index), os.O_RDONLY))
        except OSError as error:
            found["error"] = f"cannot be read: {error.strerror}"
        return found

    def fingerprint(self, *columns: np.ndarray) -> str:
        """Return a hash of the relative paths and of columns of features."""
        names = "\n".join(self._names).encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(names, digest_size=8)
        for column in columns:
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()


def read_files(
    paths: Iterable[str],
    budget: TimeBudget | None = None,
    *,
    free: _BufferPool | None = None,
) -> Encoded:
    """Read files, one after the other; one that cannot be read has length 0.

    Args:
      paths: of local files.
      budget: where given, only the first files, as long as the page cache holds them and the
        patience lasts.
      free: buffers to use, and to give them back to.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile() as file:
      ...     _ = file.write(b"image"), file.flush()
      ...     encoded = read_files([file.name, "/missing"])
      >>> bytes(encoded.view(0)), encoded.lengths.tolist()
      (b'image', [5, 0])
    """
    chunks = _FileBuffers(_BufferPool() if free is None else free)
    flags = 0 if budget is None else NO_WAIT
    addresses = []
    lengths = []
    for path in paths:
        address = 0
        length = 0
        opened = False
        try:
            descriptor = os.open(path, os.O_RDONLY)
            opened = True
            try:
                address, length = chunks.read(descriptor, flags)
            finally:
                os.close(descriptor)
        except OSError:  # told by length 0; `describe` says why
            if opened and flags:
                break
        addresses.append(address)
        lengths.append(length)
        if budget and not budget.lasts(4, length):
            break
    return Encoded(np.array(addresses, np.uint64), np.array(lengths, np.uint64), chunks)


class _FileBuffers:
    """Large buffers that files are read into one behind the other, given back when unused."""

    def __init__(self, free: _BufferPool):
        self._free = free
        self._chunks: list[np.ndarray] = []
        self._room = memoryview(b"")
        self._address = 0

    def read(self, descriptor: int, flags: int) -> tuple[int, int]:
        """Read a whole file; return its address and length."""
        length = _read(descriptor, self._room, flags)
        if length is None:
            # A byte more, to see that the file has ended.
            self._add(os.fstat(descriptor).st_size + 1)
            length = _read(descriptor, self._room, flags)
        if length is None:
            raise OSError("the file grows while it is read")
        address = self._address
        used = -(-length // _ALIGNMENT) * _ALIGNMENT
        self._room = self._room[used:]
        self._address = address + used
        return address, length

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


def _read(descriptor: int, room: memoryview, flags: int) -> int | None:
    """Read a whole file to the beginning of `room`; return its bytes, None if they do not fit."""
    done = 0
    while done < len(room):
        # At most 2 GiB a call, and less on some network disks.
        count = os.preadv(descriptor, [room[done:]], done, flags)
        if count == 0:
            return done
        done += count
    return None
