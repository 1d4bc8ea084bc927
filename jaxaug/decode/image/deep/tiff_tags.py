"""The directories of a TIFF or BigTIFF, and the tags of one of them.

Reference: TIFF 6.0, Adobe 1992; BigTIFF, www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

import functools
import struct
import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from jaxaug.errors import DecodeError

# Field types -> the code of NumPy and of `struct`, without the byte order; others are not read.
_TYPES = {1: "B", 2: "B", 3: "H", 4: "I", 6: "b", 7: "B", 8: "h", 9: "i", 11: "f", 12: "d"}
_TYPES |= {13: "I", 16: "Q", 17: "q", 18: "Q"}
_SIZES = {code: struct.calcsize(f"<{code}") for code in _TYPES.values()}
_MAX_ENTRIES = 4096
_NO_DIRECTORY = "TIFF: truncated, a directory lies beyond the end of the file"
_MAX_SHARED = 2**16  # bytes that may be the values of several tags


class Told(NamedTuple):
    """Some tags with what they say; equal ones tell the same.

    Attributes:
      heads: tag, code and count of each.
      values: the bytes of all, one after the other.
    """

    heads: tuple[tuple[int, str, int], ...]
    values: bytes


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
      entries: tag -> (code of its numbers, count, offset of the value), of those that are read.
    """

    data: memoryview
    start: int
    order: str
    entries: dict[int, tuple[str, int, int]]

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

    def numbers(self, tag: int, default: Sequence[int], most: int = sys.maxsize) -> Sequence[int]:
        """Return the numbers of a tag, the first `most` of them."""
        found = self._find(tag)
        if found is None or not found[1]:
            return default
        code, count, at = found
        return struct.unpack_from(f"{self.order}{min(count, most)}{code}", self.data, at)

    def told(self, wanted: Collection[int]) -> Told:
        """Return what some tags tell.

        Raises:
          DecodeError: values lie beyond the end of the file, or many times in the same bytes.
        """
        heads = []
        values = []
        data = self.data
        left = len(data) + _MAX_SHARED
        for tag, (code, count, at) in self.entries.items():
            if tag in wanted:
                size = count * _SIZES[code]
                left -= size
                if at + size > len(data):
                    self._find(tag)
                if left < 0:
                    raise DecodeError("TIFF: the values of its tags are more than the whole file")
                heads.append((tag, code, count))
                values.append(data[at : at + size])
        return Told(tuple(heads), b"".join(values))

    @classmethod
    def of(cls, told: Told, order: str) -> "Tags":
        """Return tags of what was told, without the rest of the file."""
        entries = {}
        at = 0
        for tag, code, count in told.heads:
            entries[tag] = (code, count, at)
            at += count * _SIZES[code]
        return cls(memoryview(told.values), 0, order, entries)

    def _find(self, tag: int) -> tuple[str, int, int] | None:
        """Return the code, the count and the place of a tag's numbers."""
        entry = self.entries.get(tag)
        if entry and entry[2] + entry[1] * _SIZES[entry[0]] > len(self.data):
            raise DecodeError(f"TIFF: truncated, tag {tag} lies beyond the end of the file")
        return entry

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
        raise DecodeError(_NO_DIRECTORY) from None
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
    except struct.error:
        raise DecodeError(_NO_DIRECTORY) from None
    size = count * _entry_size(order, kind)
    if at + size > len(data):
        raise DecodeError(_NO_DIRECTORY)
    return Tags(data, start, order, _entries(bytes(data[at : at + size]), order, kind, at))


def _written(data: memoryview) -> tuple[str, _Kind]:
    """Return the byte order and the kind of directories."""
    order = ">" if data[:2] == b"MM" else "<"
    return order, _BIG if data[2 + (order == ">")] == 43 else _CLASSIC


def _next(data: memoryview, order: str, kind: _Kind, start: int) -> int:
    """Return where the directory behind one begins, 0 for none."""
    (count,) = struct.unpack_from(order + kind.length, data, start)
    after = start + struct.calcsize(order + kind.length) + count * _entry_size(order, kind)
    return struct.unpack_from(order + kind.offset, data, after)[0]


def _entry_size(order: str, kind: _Kind) -> int:
    return struct.calcsize(order + kind.entry + kind.offset)


@functools.lru_cache(256)  # many files have the same
def _entries(
    directory: bytes, order: str, kind: _Kind, start: int
) -> dict[int, tuple[str, int, int]]:
    """Return the entries of a directory whose first is at `start` in the file."""
    entry = struct.Struct(order + kind.entry + kind.offset)
    entries: dict[int, tuple[str, int, int]] = {}
    at = start - kind.inline
    for tag, number, count, offset in entry.iter_unpack(directory):
        at += entry.size
        code = _TYPES.get(number)
        if code is not None:
            inline = count * _SIZES[code] <= kind.inline
            entries.setdefault(tag, (code, count, at if inline else offset))
    return entries
