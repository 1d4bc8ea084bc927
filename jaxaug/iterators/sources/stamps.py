"""Whether a record is still what it was: a number for each, which is another one if it is not."""

import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxaug._typing import Values
from jaxaug.decode import Encoded, Ragged
from jaxaug.iterators.loader.columns import column_bytes
from jaxaug.iterators.sources.protocol import Source, Stamped
from jaxaug.iterators.sources.storage.files import DataFile


def stamps_of(source: Source, indices: np.ndarray) -> np.ndarray:
    """Return the stamps of records int64[n], uint32[n]; see `Stamped`.

    Of other sources they are those of the files that `path` names, or zeros.
    """
    if isinstance(source, Stamped):
        return source.stamps(indices)
    path = getattr(source, "path", None)
    if path is None:
        return np.zeros(len(indices), np.uint32)
    return file_stamps(map(path, indices.tolist()))


def file_stamps(paths: Iterable[str]) -> np.ndarray:
    """Return a stamp of size and time of change of each file, or of all files below a folder.

    Example:
      >>> file_stamps(["/missing"]).tolist()
      [0]
    """
    return np.array([zlib.crc32(_state(path)) for path in paths], np.uint32)


def data_stamps(files: Sequence[DataFile]) -> np.ndarray:
    """Return a stamp of size and time of change of each file, or of its ETag, as it was opened."""
    return np.array([zlib.crc32(f"{file.size} {file.stamp}".encode()) for file in files], np.uint32)


def row_stamps(columns: Mapping[str, Values], count: int) -> np.ndarray:
    """Return a checksum of all bytes of each of `count` records.

    Example:
      >>> first, second, third = row_stamps({"x": np.array([[1, 2], [3, 4], [1, 2]])}, 3)
      >>> bool(first == third), bool(first == second)
      (True, False)
    """
    stamps = [0] * count
    for name in sorted(columns):
        for row, parts in enumerate(_bytes_of_rows(columns[name])):
            for part in parts:
                stamps[row] = zlib.crc32(part, stamps[row])
    return np.array(stamps, np.uint32)


def joined(*stamps: np.ndarray) -> np.ndarray:
    """Return one stamp for several of each record, uint32[n] each."""
    total = np.zeros_like(stamps[0])
    for each in stamps:
        total = total * np.uint32(1000003) + each  # odd, so that each of them alone changes it
    return total


def _state(path: str) -> bytes:
    """Return size and time of change of a file; nothing where there is none."""
    try:
        facts = os.stat(path)
        if stat.S_ISDIR(facts.st_mode):
            return b"".join(_state(os.fspath(each)) for each in sorted(Path(path).iterdir()))
    except OSError:
        return b""
    return f"{facts.st_size} {facts.st_mtime_ns} ".encode()


def _bytes_of_rows(values: Values) -> Iterator[list[Any]]:
    """Yield the bytes of each record, in parts."""
    if isinstance(values, Ragged):
        stops = np.cumsum(values.lengths).tolist()
        for stop, length in zip(stops, values.lengths.tolist()):
            if isinstance(values.values, Encoded):
                yield [values.values.view(row) for row in range(stop - length, stop)]
            else:
                yield [column_bytes(values.values[stop - length : stop])]
    elif isinstance(values, Encoded):
        for row in range(len(values.lengths)):
            yield [values.view(row)]
    else:
        for row in range(len(values)):
            yield [column_bytes(values[row : row + 1])]
