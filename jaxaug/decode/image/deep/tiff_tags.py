"""The directories of a TIFF or BigTIFF, and the tags of one of them.

Reference: TIFF 6.0, Adobe 1992; BigTIFF, www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

import functools
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxaug.errors import DecodeError

# Field types -> the code of NumPy and of `struct`, without the byte order; others are not read.
_TYPES = {1: "B", 2: "B", 3: "H", 4: "I", 6: "b", 7: "B", 8: "h", 9: "i", 11: "f", 12: "d"}
_TYPES |= {13: "I", 16: "Q", 17: "q", 18: "Q"}
_SIZES = {kind: struct.calcsize(f"<{code}") for kind, code in _TYPES.items()}
_MAX_ENTRIES = 4096
_MAX_SHARED = 2**16  # bytes that may be the values of several tags

Told = tuple[int, int, int, bytes]  # tag, type, count, value


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
        found = self._find(tag)
        if found is None:
            return None
        code, count, at = found
        return np.frombuffer(self.data, np.dtype(self.order + code), count, at)

    def number(self, tag: int, default: int) -> int:
        """Return the first number of a tag."""
        found = self._find(tag)
        if found is None or not found[1]:
            return default
        return int(struct.unpack_from(self.order + found[0], self.data, found[2])[0])

    def numbers(self, tag: int, default: Sequence[int]) -> Sequence[int]:
        """Return all numbers of a tag."""
        found = self._find(tag)
        if found is None or not found[1]:
            return default
        code, count, at = found
        return struct.unpack_from(f"{self.order}{count}{code}", self.data, at)

    def told(self, wanted: Iterable[int]) -> tuple[Told, ...]:
        """Return some tags with the bytes of their values; equal ones tell the same.

        Raises:
          DecodeError: values lie beyond the end of the file, or many times in the same bytes.
        """
        found = []
        left = len(self.data) + _MAX_SHARED
        for tag in wanted:
            if self._find(tag) is not None:
                kind, count, at = self.entries[tag]
                stop = at + count * _SIZES[kind]
                left -= stop - at
                if left < 0:
                    raise DecodeError("TIFF: the values of its tags are more than the whole file")
                found.append((tag, kind, count, bytes(self.data[at:stop])))
        return tuple(found)

    @classmethod
    def of(cls, told: Iterable[Told], start: int, order: str) -> "Tags":
        """Return tags of what was told, without the rest of the file."""
        entries = {}
        values = b""
        for tag, kind, count, value in told:
            entries[tag] = (kind, count, len(values))
            values += value
        return cls(memoryview(values), start, order, entries)

    def _find(self, tag: int) -> tuple[str, int, int] | None:
        """Return the code, the count and the place of a tag's numbers."""
        entry = self.entries.get(tag)
        if entry is None or entry[0] not in _TYPES:
            return None
        kind, count, at = entry
        if at + count * _SIZES[kind] > len(self.data):
            raise DecodeError(f"TIFF: truncated, tag {tag} lies beyond the end of the file")
        return _TYPES[kind], count, at

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
        (count,) = struct.unpack_from(order + kind.length, data, start)
        if not 1 <= count <= _MAX_ENTRIES:
            raise DecodeError(f"TIFF: its directory has {count} entries")
        at = start + struct.calcsize(order + kind.length)
        entry_size = struct.calcsize(order + kind.entry) + kind.inline
        directory = bytes(data[at : at + count * entry_size])
        return Tags(data, start, order, _entries(directory, order, kind, at, count))
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


@functools.lru_cache(256)  # many files have the same
def _entries(
    directory: bytes, order: str, kind: _Kind, start: int, count: int
) -> dict[int, tuple[int, int, int]]:
    """Return the entries of a directory of `count`, whose first is at `start` in the file."""
    head = struct.Struct(order + kind.entry)
    offset = struct.Struct(order + kind.offset)
    entries: dict[int, tuple[int, int, int]] = {}
    at = 0
    for _ in range(count):
        tag, dtype, values = head.unpack_from(directory, at)
        at += head.size
        inline = values * _SIZES.get(dtype, 8) <= kind.inline
        place = start + at if inline else offset.unpack_from(directory, at)[0]
        entries.setdefault(tag, (dtype, values, place))
        at += kind.inline
    return entries
