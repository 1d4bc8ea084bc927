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
      start: where the directory begins.
      order: "<" or ">", as numbers are written.
      entries: tag -> (type, count, offset of the value).
    """

    data: memoryview
    start: int
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
    pages = find_pages(data, page + 1)
    if page >= len(pages):
        raise DecodeError(f"TIFF: it has {len(pages)} pages, and page={page} was asked for, from 0")
    return tags_at(data, pages[page])


def find_pages(data: memoryview, most: int | None = None) -> list[int]:
    """Return where the directory of each page begins, of the first `most` pages.

    Raises:
      DecodeError: the list of directories is damaged.
    """
    order, kind = _written(data)
    try:
        (start,) = struct.unpack_from(order + kind.offset, data, 8 if kind is _BIG else 4)
        pages = dict[int, None]()  # in order; a list that leads back to itself ends there
        while start and start not in pages and len(pages) != most:
            pages[start] = None
            if len(pages) != most:
                start = _next(data, order, kind, start)
    except struct.error:
        raise DecodeError("TIFF: truncated, a directory lies beyond the end of the file") from None
    return list(pages)


def tags_at(data: memoryview, start: int) -> Tags:
    """Return the tags of the directory that begins at `start`.

    Raises:
      DecodeError: it is damaged.
    """
    order, kind = _written(data)
    try:
        return Tags(data, start, order, _entries(data, order, kind, start))
    except struct.error:
        raise DecodeError("TIFF: truncated, a directory lies beyond the end of the file") from None


def _written(data: memoryview) -> tuple[str, _Kind]:
    """Return the byte order and the kind of directories."""
    order = ">" if data[:2] == b"MM" else "<"
    return order, _BIG if data[2 + (order == ">")] == 43 else _CLASSIC


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
