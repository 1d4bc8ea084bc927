"""The directories of a TIFF or BigTIFF, and the tags of one of them.

Reference: TIFF 6.0, Adobe 1992; BigTIFF, www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

import struct
from typing import NamedTuple

import numpy as np

from jaxaug.errors import DecodeError

# Field types -> NumPy's code, without the byte order; others are not read.
_TYPES = {1: "u1", 2: "u1", 3: "u2", 4: "u4", 6: "i1", 7: "u1", 8: "i2", 9: "i4", 11: "f4"}
_TYPES |= {12: "f8", 13: "u4", 16: "u8", 17: "i8", 18: "u8"}
_MAX_ENTRIES = 4096


class _Kind(NamedTuple):
    """How a directory is written: the formats of its count, of an entry, of an offset."""

    length: str
    entry: str
    offset: str
    inline: int  # bytes of a value that lies in the entry


_CLASSIC = _Kind("H", "HHI", "I", 4)
_BIG = _Kind("Q", "HHQ", "Q", 8)


class Tags(NamedTuple):
    """The tags of a directory.

    Attributes:
      data: the whole file.
      order: "<" or ">", as numbers are written.
      entries: tag -> (type, count, offset of the value).
    """

    data: memoryview
    order: str
    entries: dict[int, tuple[int, int, int]]

    def array(self, tag: int) -> np.ndarray | None:
        """Return the numbers of a tag, None where it is missing.

        Raises:
          DecodeError: they lie beyond the end of the file.
        """
        entry = self.entries.get(tag)
        if entry is None or entry[0] not in _TYPES:
            return None
        kind, count, at = entry
        dtype = np.dtype(self.order + _TYPES[kind])
        if at + count * dtype.itemsize > len(self.data):
            raise DecodeError(f"TIFF: truncated, tag {tag} lies beyond the end of the file")
        return np.frombuffer(self.data, dtype, count, at)

    def number(self, tag: int, default: int) -> int:
        """Return the first number of a tag."""
        values = self.array(tag)
        return default if values is None or not len(values) else int(values[0])

    def numbers(self, tag: int, default: list[int]) -> list[int]:
        """Return all numbers of a tag."""
        values = self.array(tag)
        return default if values is None or not len(values) else values.tolist()

    def text(self, tag: int) -> str:
        """Return an ASCII tag, "" where it is missing."""
        values = self.array(tag)
        if values is None:
            return ""
        return values.tobytes().split(b"\0")[0].decode("latin-1").strip()


def read_tags(data: memoryview, page: int) -> Tags:
    """Return the tags of a page, counted from 0.

    Raises:
      DecodeError: there is no such page, or its directory is damaged.
    """
    order = ">" if data[:2] == b"MM" else "<"
    kind = _BIG if data[2 + (order == ">")] == 43 else _CLASSIC
    head = 8 if kind is _BIG else 4
    try:
        (start,) = struct.unpack_from(order + kind.offset, data, head)
        seen = set()
        for _ in range(page):
            seen.add(start)
            start = _next(data, order, kind, start)
            if start == 0 or start in seen:
                raise DecodeError(f"TIFF: it has {len(seen)} pages, and page={page} was asked for")
        return Tags(data, order, _entries(data, order, kind, start))
    except struct.error:
        raise DecodeError("TIFF: truncated, a directory lies beyond the end of the file") from None


def count_pages(data: memoryview) -> int:
    """Return the number of pages.

    Raises:
      DecodeError: the list of directories is damaged.
    """
    order = ">" if data[:2] == b"MM" else "<"
    kind = _BIG if data[2 + (order == ">")] == 43 else _CLASSIC
    try:
        (start,) = struct.unpack_from(order + kind.offset, data, 8 if kind is _BIG else 4)
        seen = set[int]()
        while start and start not in seen:
            seen.add(start)
            start = _next(data, order, kind, start)
    except struct.error:
        raise DecodeError("TIFF: truncated, a directory lies beyond the end of the file") from None
    return len(seen)


def _next(data: memoryview, order: str, kind: _Kind, start: int) -> int:
    """Return where the directory behind one begins, 0 for none."""
    (count,) = struct.unpack_from(order + kind.length, data, start)
    size = struct.calcsize(order + kind.length)
    entry = struct.calcsize(order + kind.entry) + kind.inline
    return struct.unpack_from(order + kind.offset, data, start + size + count * entry)[0]


def _entries(
    data: memoryview, order: str, kind: _Kind, start: int
) -> dict[int, tuple[int, int, int]]:
    (count,) = struct.unpack_from(order + kind.length, data, start)
    if not 1 <= count <= _MAX_ENTRIES:
        raise DecodeError(f"TIFF: its directory has {count} entries")
    at = start + struct.calcsize(order + kind.length)
    head = struct.Struct(order + kind.entry)
    offset = struct.Struct(order + kind.offset)
    entries = {}
    for _ in range(count):
        tag, dtype, values = head.unpack_from(data, at)
        at += head.size
        itemsize = int(_TYPES.get(dtype, "u8")[1])
        inline = values * itemsize <= kind.inline
        place = at if inline else offset.unpack_from(data, at)[0]
        entries.setdefault(tag, (dtype, values, place))
        at += kind.inline
    return entries
