"""The file of an index: columns with a checksum each, which a process maps into memory.

bytes 0-7    b"jaxaugIX"
bytes 8-15   where the header begins, uint64, little-endian as everything here
bytes 16-23  its length, uint64
bytes 24-27  CRC-32 of the header, uint32
bytes 28-31  CRC-32 of bytes 0-27, uint32
then         the columns, raw, each on a multiple of 64 bytes; of one that has the same row
             everywhere that row alone
then         the header, JSON: version, what the index is of, and of each column dtype, shape,
             offset, CRC-32 and rows that are stored
"""

import io
import json
import os
import struct
import threading
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jaxaug.decode import Sides
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.storage.files import (
    cause_of,
    hide_secrets,
    is_remote,
    open_file,
    read_whole,
    reason,
    write_whole,
)

_MAGIC = b"jaxaugIX"
_PLACE = struct.Struct("<8sQQI")
_CHECKSUM = struct.Struct("<I")
_START = _PLACE.size + _CHECKSUM.size
_ALIGNMENT = 64
_BLOCK_BYTES = 4 << 20  # bytes read at a time for checksums
_MAX_CHECKED_BYTES = 1 << 30  # of a file whose columns are read once when it is opened


class Index(NamedTuple):
    """The places of all records, and the facts known of them.

    Attributes:
      columns: arrays with one row a record, in the order of the files: "offset", "length", "lead"
        (bytes from the record's beginning to its image), "mask_offset" and "mask_length" where it
        has masks, those of `Facts` of the image or video, "form" (the row of `forms`),
        "feature/..." numbers, and "absent/..." for the records that lack one.
      forms: int64[k, facts], facts that many records share.
      sides: of the good images.
      row_starts: int64[files + 1], the number of the first record of each file, and of all.
      extra: what else the format keeps, such as class names.
      fingerprint: a hash of names, sizes and places, the same wherever the files lie.
      path: the file that holds all this.
      checked: every byte was compared with its checksum; else the header alone.
    """

    columns: dict[str, np.ndarray]
    forms: np.ndarray
    sides: Sides
    row_starts: np.ndarray
    extra: dict[str, Any]
    fingerprint: str
    path: str
    checked: bool


class IndexDamaged(Exception):
    """An index file cannot be used; the message says why."""


Columns = Iterable[tuple[str, np.ndarray]]


def write_index(path: str, header: dict[str, Any], columns: Columns, *, sync: bool = True) -> None:
    """Write an index so that a reader sees all of it or none.

    Args:
      path: the file, or its URL; replaced if it exists.
      header: JSON values; gets the places and checksums of the columns.
      columns: names and little-endian numbers, taken one by one.
      sync: wait for the disk. Without, a loss of power may leave a file that readers refuse.
    """
    if is_remote(path):
        write_whole(path, index_bytes(header, columns))
        return
    partial = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(partial, "xb") as file:
            _dump(file, header, columns)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def index_bytes(header: dict[str, Any], columns: Columns) -> bytes:
    """Return what `write_index` writes."""
    file = io.BytesIO()
    _dump(file, header, columns)
    return file.getvalue()


def _dump(file: BinaryIO, header: dict[str, Any], columns: Columns) -> None:
    layout = {}
    file.write(bytes(_START))
    for name, column in columns:
        stored = column[:1] if _is_constant(column) else column
        stored = np.ascontiguousarray(stored, column.dtype.newbyteorder("<"))
        file.write(bytes(-file.tell() % _ALIGNMENT))
        facts = (file.tell(), zlib.crc32(_bytes(stored)), len(stored))
        layout[name] = [stored.dtype.str, column.shape, *facts]
        file.write(_bytes(stored))
    text = json.dumps(header | {"columns": layout}).encode()
    place = _PLACE.pack(_MAGIC, file.tell(), len(text), zlib.crc32(text))
    file.write(text)
    file.seek(0)
    file.write(place + _CHECKSUM.pack(zlib.crc32(place)))


def _is_constant(column: np.ndarray) -> bool:
    """Return True if all rows are the same, told by the last one where they are not, mostly."""
    if len(column) < 2 or (column[-1] != column[0]).any():
        return False
    return bool((column == column[:1]).all())


def is_other_file(path: str) -> bool:
    """Return True for a file that holds something else than an index."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) not in (b"", _MAGIC)


def write_extra(path: str, name: str, value: Any) -> None:
    """Change one of the `extra` entries of an index; what has it open keeps what it was.

    Raises:
      SourceError: the index is damaged, or cannot be written.
    """
    try:
        columns = read_index(path).columns
        header = read_header(path)
        extra = header["extra"] | {name: value}
        write_index(path, header | {"extra": extra}, columns.items())
    except (IndexDamaged, OSError) as error:
        what = f"the index {hide_secrets(path)!r} cannot be changed: {reason(error)}."
        raise SourceError(what) from cause_of(error, path)


def read_index(path: str, subject: dict[str, Any] | None = None) -> Index:
    """Map an index, all checksums verified; of one above 1 GiB that of its header alone.

    One in a store is read once, and kept in memory.

    Args:
      path: the file, or its URL.
      subject: what its header must say: another version, format, option or state of the files is
        refused.

    Raises:
      IndexDamaged: the file is not such an index, or not as it was written.
      OSError: there is none, or it cannot be read.
      SourceError: a server does not give it.
    """
    if is_remote(path):
        data = read_whole(path)
        header = _checked_header(data, subject)
        return _index(np.frombuffer(data, np.uint8), header, path, True)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = _read_header(file, size, subject)
        checked = size <= _MAX_CHECKED_BYTES
        if checked:
            _check_columns(file, header)
        memory = np.memmap(file, np.uint8, "r").view(np.ndarray)
        return _index(memory, header, path, checked)


def _index(memory: np.ndarray, header: dict[str, Any], path: str, checked: bool) -> Index:
    """Return the index that lies in memory."""
    try:
        return Index(
            columns=_columns(memory, header),
            forms=np.array(header.get("forms", []), np.int64),
            sides=sides_from(header.get("sides", [[], []])),
            row_starts=np.cumsum([0, *header["counts"]], dtype=np.int64),
            extra=header["extra"],
            fingerprint=header["fingerprint"],
            path=os.fspath(path),
            checked=checked,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise IndexDamaged(f"its header is incomplete: {error}") from error


def read_header(path: str) -> dict[str, Any]:
    """Return the header of an index without its columns.

    Raises:
      IndexDamaged: the file is no index, or its header not as it was written.
      OSError: it cannot be read.
    """
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        header = _read_header(file, size)
    header.pop("columns", None)
    return header


def parse_index(
    data: bytes, subject: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and columns of an index in memory, all checksums verified.

    Raises:
      IndexDamaged: it is not such an index, or not as it was written.
    """
    header = _checked_header(data, subject)
    return header, _columns(np.frombuffer(data, np.uint8), header)


def _checked_header(data: bytes, subject: dict[str, Any] | None) -> dict[str, Any]:
    """Return the header of an index in memory, all checksums verified."""
    file = io.BytesIO(data)
    header = _read_header(file, len(data), subject)
    _check_columns(file, header)
    return header


def sides_from(lists: list[list[list[int]]]) -> Sides:
    """Return the sides that a header has as lists."""
    heights, widths = (np.array(side, np.int64).reshape(-1, 2) for side in lists)
    return Sides(heights, widths)


def _read_header(
    file: BinaryIO, size: int, subject: dict[str, Any] | None = None
) -> dict[str, Any]:
    prefix = file.read(_START)
    if len(prefix) < _START:
        raise IndexDamaged("it is cut")
    magic, place, length, checksum = _PLACE.unpack(prefix[: _PLACE.size])
    if magic != _MAGIC or _CHECKSUM.pack(zlib.crc32(prefix[: _PLACE.size])) != prefix[-4:]:
        raise IndexDamaged("it is no index")
    if place + length != size:
        raise IndexDamaged("it has another length than its header says")
    file.seek(place)
    text = file.read(length)
    if zlib.crc32(text) != checksum:
        raise IndexDamaged("the checksum of the header differs")
    header = json.loads(text)
    if subject is not None and any(header.get(key) != value for key, value in subject.items()):
        raise IndexDamaged("it is of other files, or of an earlier state of them")
    return header


def _check_columns(file: BinaryIO, header: dict[str, Any]) -> None:
    try:
        for dtype, shape, offset, checksum, rows in header["columns"].values():
            length = np.dtype(dtype).itemsize * int(np.prod([rows, *shape[1:]], dtype=np.int64))
            if _checksum(file, offset, length) != checksum:
                raise IndexDamaged("the checksum of a column differs")
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise IndexDamaged(f"its header is incomplete: {error}") from error


def _columns(memory: np.ndarray, header: dict[str, Any]) -> dict[str, np.ndarray]:
    columns = {}
    for name, (dtype, shape, offset, _, rows) in header["columns"].items():
        stored = np.ndarray((rows, *shape[1:]), dtype, memory, offset)
        columns[name] = stored if rows == shape[0] else np.broadcast_to(stored, shape)
    return columns


def _checksum(file: BinaryIO, start: int, length: int) -> int:
    """Return the CRC-32 of a range, read as a mapping would count as memory of this process."""
    file.seek(start)
    checksum = 0
    buffer = memoryview(bytearray(min(length, _BLOCK_BYTES)))
    while length:
        count = file.readinto(buffer[:length])  # pyright: ignore[reportAttributeAccessIssue]
        if not count:
            raise IndexDamaged("it is cut")
        checksum = zlib.crc32(buffer[:count], checksum)
        length -= count
    return checksum


def _bytes(column: np.ndarray) -> memoryview:
    return column.reshape(-1).view(np.uint8).data
