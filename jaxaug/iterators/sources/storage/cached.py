"""Blocks of remote files, kept on a disk of this machine."""

import hashlib
import os
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.iterators.sources.storage.files import DataFile, reason
from jaxaug.iterators.sources.storage.staged import Staged

BLOCK_BYTES = 1 << 20
_GROUP_BLOCKS = 128  # that are in memory at a time
_SUFFIX = ".block"
_CHECKSUM = struct.Struct("<I")  # the CRC-32 of a block, behind it
_SHARE_LEFT = 0.9  # of the bound, after the oldest blocks were removed
_MAX_UNCOUNTED = 1 / 64  # of the bound, written before the folder is counted again
_OLD_SECONDS = 3600  # after which an unfinished file is one of a process that was killed


class _Pieces(NamedTuple):
    """Parts of the wanted ranges, each within one block: int64[p] each.

    Attributes:
      block: number of the block among those touched, sorted.
      row: of the range.
      start: of the part in its block.
      place: of the part in the result.
      length: bytes.
    """

    block: np.ndarray
    row: np.ndarray
    start: np.ndarray
    place: np.ndarray
    length: np.ndarray


class Cached:
    """Ranges of remote files by whole blocks, which are kept in a folder.

    A block is asked for once; after that it comes from the folder until others that were used
    later need its room. Its name holds the ETag of its file, so another state of the file has other
    blocks. It is written to a file of its own, which is renamed when it is whole, and checked by a
    CRC-32 at its first use: processes share the folder, and one that is killed leaves no wrong
    bytes. A full disk ends the keeping, with a warning, and no more.

    Args:
      far: the storage of the files.
      files: remote; one without a stamp is not kept, as nothing would tell a change.
      folder: of the blocks.
      bound: bytes, which the folder may exceed by a sixty-fourth for each process.
    """

    def __init__(self, far: Staged, files: list[DataFile], folder: str, bound: float):
        self._far = far
        self._files = files
        self._folder = folder
        self._bound = bound
        self._checked: set[str] = set()
        self._lock = threading.Lock()
        self._uncounted = bound  # so that the first block to be kept has the folder counted
        self._keeping = True

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[Encoded, dict[int, str]]:
        """Return addresses inside a new buffer."""
        starts = np.cumsum(lengths) - lengths
        staging = np.empty(int(lengths.sum()), np.uint8)
        blocks, pieces = _cut(files, offsets, lengths, starts)
        failures: dict[int, str] = {}
        for first in range(0, len(blocks), _GROUP_BLOCKS):
            group = slice(*np.searchsorted(pieces.block, [first, first + _GROUP_BLOCKS]))
            part = _Pieces(*(column[group] for column in pieces))
            errors = self._fill(blocks, part, staging)
            failures |= {
                row: errors[block]
                for block, row in zip(part.block.tolist(), part.row.tolist())
                if block in errors
            }
        good = np.ones(len(files), bool)
        good[list(failures)] = False
        addresses = (staging.ctypes.data + starts).astype(np.uint64)
        return Encoded(addresses, np.where(good, lengths, 0).astype(np.uint64), staging), failures

    def _fill(self, blocks: np.ndarray, pieces: _Pieces, staging: np.ndarray) -> dict[int, str]:
        """Copy pieces to their places; return errors by block."""
        missing = []
        for number, part in _by_block(pieces):
            if not self._from_folder(blocks[number], part, staging):
                missing.append((number, part))
        if not missing:
            return {}

        wanted = blocks[[number for number, _ in missing]]
        sizes = np.array([self._size(block) for block in wanted], np.int64)
        encoded, errors = self._far.read(wanted[:, 0], wanted[:, 1] * BLOCK_BYTES, sizes)
        for row, (number, part) in enumerate(missing):
            if row not in errors:
                content = np.frombuffer(encoded.view(row), np.uint8)
                _copy(content, part, staging)
                self._keep(blocks[number], content)
        return {missing[row][0]: error for row, error in errors.items()}

    def _size(self, block: np.ndarray) -> int:
        """Return the bytes of a block; the last one of a file may be shorter."""
        file, number = block.tolist()
        return min(BLOCK_BYTES, self._files[file].size - number * BLOCK_BYTES)

    def _path(self, block: np.ndarray) -> str:
        file, number = block.tolist()
        name = "\n".join([self._files[file].identity, self._files[file].stamp, str(number)])
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        return os.path.join(self._folder, digest[:2], digest[2:] + _SUFFIX)

    def _from_folder(self, block: np.ndarray, pieces: _Pieces, staging: np.ndarray) -> bool:
        """Copy pieces of a block that is kept; return False if it is not, or is damaged."""
        path = self._path(block)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            return False
        try:
            if path not in self._checked and not self._check(descriptor, path, block):
                return False
            os.utime(descriptor)
            return all(
                os.preadv(descriptor, [staging[place : place + length].data], start) == length
                for start, place, length in zip(*(x.tolist() for x in pieces[2:]))
            )
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def _check(self, descriptor: int, path: str, block: np.ndarray) -> bool:
        """Return True if a block is as it was written; remove it if not."""
        size = self._size(block)
        data = os.pread(descriptor, size + _CHECKSUM.size + 1, 0)
        whole = len(data) == size + _CHECKSUM.size
        if whole and _CHECKSUM.pack(zlib.crc32(memoryview(data)[:size])) == data[size:]:
            self._checked.add(path)
            return True
        with suppress(OSError):
            os.unlink(path)
        return False

    def _keep(self, block: np.ndarray, content: np.ndarray) -> None:
        """Write a block, after the oldest ones have made room for it."""
        if not self._keeping or not self._files[block[0]].stamp:
            return
        path = self._path(block)
        unfinished = f"{path}.{os.getpid()}-{threading.get_ident()}"
        try:
            self._make_room(content.size)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(unfinished, "xb") as file:
                file.write(content.data)
                file.write(_CHECKSUM.pack(zlib.crc32(content.data)))
            os.replace(unfinished, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(unfinished)
            self._keeping = False
            warnings.warn(
                f"`cache`: nothing more is kept in {self._folder!r}: {reason(error)}.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _make_room(self, size: int) -> None:
        """Count the folder now and then, and remove what was not used for longest."""
        with self._lock:
            self._uncounted += size
            if self._uncounted <= self._bound * _MAX_UNCOUNTED:
                return
            self._uncounted = 0
            with _locked(self._folder) as first:
                if first:
                    _shrink(self._folder, self._bound)


def _cut(
    files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, _Pieces]:
    """Return the touched blocks, int64[k, 2] of (file, number), and the ranges cut at them."""
    first = offsets // BLOCK_BYTES
    counts = np.where(lengths > 0, (offsets + lengths - 1) // BLOCK_BYTES - first + 1, 0)
    row = np.repeat(np.arange(len(files)), counts)
    number = first[row] + np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.maximum(offsets[row], number * BLOCK_BYTES)
    end = np.minimum(offsets[row] + lengths[row], (number + 1) * BLOCK_BYTES)
    place = starts[row] + begin - offsets[row]
    pairs = np.stack([files[row], number], axis=1).astype(np.int64)
    blocks, block = np.unique(pairs, axis=0, return_inverse=True)
    pieces = (block.reshape(-1), row, begin - number * BLOCK_BYTES, place, end - begin)
    order = np.argsort(pieces[0], kind="stable")
    return blocks, _Pieces(*(column[order] for column in pieces))


def _by_block(pieces: _Pieces) -> Iterator[tuple[int, _Pieces]]:
    """Yield the number of each block, and its pieces."""
    numbers, heads = np.unique(pieces.block, return_index=True)
    for number, head, stop in zip(numbers.tolist(), heads, [*heads[1:], pieces.block.size]):
        yield number, _Pieces(*(column[head:stop] for column in pieces))


def _copy(content: np.ndarray, pieces: _Pieces, staging: np.ndarray) -> None:
    for start, place, length in zip(*(column.tolist() for column in pieces[2:])):
        staging[place : place + length] = content[start : start + length]


@contextmanager
def _locked(folder: str) -> Iterator[bool]:
    """Hold the lock of a folder; False if another process has it, which removes blocks already."""
    import fcntl  # POSIX only, as is `resource` elsewhere

    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _shrink(folder: str, bound: float) -> None:
    """Remove the blocks that were not used for longest if there are too many."""
    found = []
    for entry in _entries(folder):
        with suppress(OSError):  # another process may have removed it
            facts = entry.stat()
            if entry.name.endswith(_SUFFIX):
                found.append((facts.st_mtime, facts.st_size, entry.path))
            elif facts.st_mtime < time.time() - _OLD_SECONDS:
                os.unlink(entry.path)
    total = sum(size for _, size, _ in found)
    if total <= bound * (1 - _MAX_UNCOUNTED):
        return
    for _, size, path in sorted(found):
        if total <= bound * _SHARE_LEFT:
            return
        with suppress(OSError):
            os.unlink(path)
        total -= size


def _entries(folder: str) -> Iterator[os.DirEntry]:
    for below in os.scandir(folder):
        if below.is_dir():
            yield from os.scandir(below.path)
