"""Files that are compressed as a whole: a read unpacks all of each, in memory."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from jaxaug._install import install_command
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.storage.files import (
    DataFile,
    Refused,
    Unpack,
    changed,
    is_remote,
    stat_file,
)
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader, read_fully

_THREADS = 8  # files unpacked at a time


class Unpacked:
    """Ranges of what is in compressed files, from which no range can be got alone.

    A file that has changed or is damaged gives failed rows; a remote one that has changed, is
    missing or forbidden is an error, as of `Staged`.

    Args:
      files: with `unpack`.
      timeout: seconds for which a read of a remote file is tried again.
    """

    def __init__(self, files: list[DataFile], timeout: float):
        self._files = files
        self._reader = FileReader(timeout=timeout / 4)
        self._wanted = 0  # bytes

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[Encoded, dict[int, str]]:
        """Return addresses inside of the unpacked files."""
        self._wanted += int(lengths.sum())
        numbers, which = np.unique(files, return_inverse=True)
        with ThreadPoolExecutor(_THREADS, "jaxaug-unpack") as pool:
            found = [*pool.map(self._whole, numbers.tolist())]
        bases = [each.ctypes.data if isinstance(each, np.ndarray) else 0 for each in found]
        addresses = np.array(bases, np.int64)[which] + offsets
        failures = {
            row: error
            for row, number in enumerate(which.tolist())
            if isinstance(error := found[number], str)
        }
        known = lengths.astype(np.uint64)
        known[list(failures)] = 0
        return Encoded(addresses.astype(np.uint64), known, found), failures

    @property
    def traffic(self) -> dict[str, int]:
        """What was asked of servers, see `Far`; nothing where files are local."""
        if not any(is_remote(file.path) for file in self._files):
            return {}
        return {"wanted_bytes": self._wanted} | self._reader.remote.counts

    def _whole(self, number: int) -> np.ndarray | str:
        """Return what is in a file, with zeros up to the size that it has at most, or an error."""
        file = self._files[number]
        try:
            data = unpack_file(self._reader, file)
        except Refused:
            raise
        except SourceError as error:
            return str(error)
        return np.concatenate([data, np.zeros(file.size - len(data), np.uint8)])


def open_blocks(read: FileReader, file: DataFile, **options: Any) -> BlockReader:
    """Return a reader of what is in a file, which may be compressed as a whole.

    Args:
      read, file: as `BlockReader` takes them.
      options: of it.
    """
    if file.unpack is None:
        return BlockReader(read, file, **options)
    data = unpack_file(read, file)
    return BlockReader(read, file._replace(size=len(data)), known=data)


def unpack_file(read: FileReader, file: DataFile) -> np.ndarray:
    """Return what is in a compressed file, uint8[n].

    Raises:
      SourceError: it has changed, cannot be read, is damaged, or has more bytes than it may.
    """
    assert file.unpack is not None
    stored = stat_file(file.path)
    if stored.stamp != file.stamp:
        raise changed(file)
    data = np.empty(stored.size, np.uint8)
    read_fully(read, stored, 0, data.data)
    read.check(stored)
    try:
        found = file.unpack(data, file.size)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SourceError(f"{file.name!r} cannot be unpacked: {error}.") from error
    if len(found) > file.size:
        what = f"has more than the {file.size} bytes in it that its index.json tells"
        raise SourceError(f"{file.name!r} {what}: it is another file, or damaged.")
    return found


def unpack_stream(data: np.ndarray, size: int, codec: str) -> np.ndarray:
    """Return what is in the bytes of a compressed file: no more than one byte beyond `size`."""
    arrow = _arrow(codec)
    with arrow.CompressedInputStream(arrow.BufferReader(data), codec) as stream:
        return np.frombuffer(stream.read(size + 1), np.uint8)


def unpack_snappy(data: np.ndarray, size: int) -> np.ndarray:
    """Return what is in the bytes of a file without frames, whose size must be known."""
    found = _arrow("snappy").decompress(data, decompressed_size=size, codec="snappy")
    return np.frombuffer(found, np.uint8)


def _arrow(codec: str):
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise SourceError(
            f"to unpack files of {codec} needs pyarrow: {install_command('parquet')}."
        ) from error


# By the names that Streaming and LitData have for them.
UNPACK: dict[str, Unpack] = {
    "zstd": partial(unpack_stream, codec="zstd"),
    "br": partial(unpack_stream, codec="brotli"),
    "gz": partial(unpack_stream, codec="gzip"),
    "bz2": partial(unpack_stream, codec="bz2"),
    "snappy": unpack_snappy,
}
