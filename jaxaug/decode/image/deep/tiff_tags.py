"""The directories of a TIFF or BigTIFF, and the tags of one of them.

Reference: TIFF 6.0, Adobe 1992; BigTIFF, www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

import functools
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxaug.errors import DecodeError

# Field types -> the code of NumPy and of `struct`, without the byte order; others are not read.
_TYPES = {1: "B", 2: "B", 3: "H", 4: "I", 6: "b", 7: "B", 8: "h", 9: "i", 11: "f", 12: "d"}
_TYPES |= {13: "I", 16: "Q", 17: "q", 18: "Q"}
_SIZES = {code: struct.calcsize(f"<{code}") for code in _TYPES.values()}
_MAX_ENTRIES = 4096
_HEAD = struct.Struct("=HcQ")  # of `Told`
_NO_DIRECTORY = "TIFF: truncated, a directory lies beyond the end of the file"
_MAX_SHARED = 2**16  # bytes that may be the values of several tags


class Told(NamedTuple):
    """Some tags with what they say; equal ones tell the same.

    Attributes:
      heads: tag, code and count of each, packed.
      values: the bytes of all, one after the other.
    """

    heads: bytes
    values: bytes


class _Kind(NamedTuple):
    """How a directory is written.

    Attributes:
      order: "<" or ">", as numbers are.
      length, offset: of the entries, and of what lies elsewhere.
      head: tag, type and count of an entry, before its value.
      inline: bytes of a value that lies in the entry.
      entry: bytes of an entry.
    """

    order: str
    length: struct.Struct
    offset: struct.Struct
    head: struct.Struct
    inline: int
    entry: int


def _kind(order: str, length: str, head: str, offset: str) -> _Kind:
    parts = (struct.Struct(order + length), struct.Struct(order + offset))
    first, value = struct.Struct(order + head), parts[1].size
    return _Kind(order, *parts, first, value, first.size + value)


_CLASSIC = {order: _kind(order, "H", "HHI", "I") for order in "<>"}
_BIG = {order: _kind(order, "Q", "HHQ", "Q") for order in "<>"}


class _Entry(NamedTuple):
    """What an entry says of its numbers, but for these and where they lie.

    Attributes:
      code, numbers, size: of the numbers, how many they are, and their bytes.
      at: where the value, or its offset, is from the first entry on.
      inline: the value is there.
    """

    code: str
    numbers: int
    size: int
    at: int
    inline: bool


class Tags(NamedTuple):
    """The tags of a directory.

    Attributes:
      data: the whole file.
      start: where the directory begins.
      kind: how it is written.
      first: where its entries begin.
      heads: what all entries say but for their values.
      entries: tag -> what its entry says, of those that are read.
    """

    data: memoryview
    start: int
    kind: _Kind
    first: int
    heads: bytes
    entries: dict[int, _Entry]

    @property
    def order(self) -> str:
        """ "<" or ">", as numbers are written."""
        return self.kind.order

    def array(self, tag: int) -> np.ndarray | None:
        """Return the numbers of a tag, None where it is missing.

        Raises:
          DecodeError: they lie beyond the end of the file.
        """
        found = self.find(tag)
        if found is None:
            return None
        code, count, at = found
        return np.frombuffer(self.data, np.dtype(self.order + code), count, at)

    def number(self, tag: int, default: int) -> int:
        """Return the first number of a tag."""
        found = self.find(tag)
        if found is None or not found[1]:
            return default
        return int(struct.unpack_from(self.order + found[0], self.data, found[2])[0])

    def numbers(self, tag: int, default: Sequence[int], most: int = sys.maxsize) -> Sequence[int]:
        """Return the numbers of a tag, the first `most` of them."""
        found = self.find(tag)
        if found is None or not found[1]:
            return default
        code, count, at = found
        return struct.unpack_from(f"{self.order}{min(count, most)}{code}", self.data, at)

    def told(self, wanted: frozenset[int]) -> Told:
        """Return what some tags tell.

        Raises:
          DecodeError: values lie beyond the end of the file, or many times in the same bytes.
        """
        chosen = _chosen(self.heads, self.kind, wanted)
        data = self.data
        values = chosen.inside.unpack_from(data, self.first)
        if chosen.beyond:
            offsets = chosen.offsets.unpack_from(data, self.first)
            for at, (tag, size) in zip(offsets, chosen.beyond):
                if at + size > len(data):
                    self.find(tag)
            if chosen.total > len(data) + _MAX_SHARED:
                raise DecodeError("TIFF: the values of its tags are more than the whole file")
            far = [data[at : at + size] for at, (_, size) in zip(offsets, chosen.beyond)]
            values = (*values, *far)
        return Told(chosen.heads, b"".join(values))

    @classmethod
    def of(cls, told: Told, order: str) -> "Tags":
        """Return tags of what was told, without the rest of the file."""
        entries = {}
        at = 0
        for tag, letter, count in _HEAD.iter_unpack(told.heads):
            code = letter.decode()
            size = count * _SIZES[code]
            entries[tag] = _Entry(code, count, size, at, True)
            at += size
        return cls(memoryview(told.values), 0, _CLASSIC[order], 0, b"", entries)

    def find(self, tag: int) -> tuple[str, int, int] | None:
        """Return the code, the count and the place of a tag's numbers."""
        entry = self.entries.get(tag)
        if entry is None:
            return None
        at = self.first + entry.at
        if not entry.inline:
            (at,) = self.kind.offset.unpack_from(self.data, at)
        if at + entry.size > len(self.data):
            raise DecodeError(f"TIFF: truncated, tag {tag} lies beyond the end of the file")
        return entry.code, entry.numbers, at

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
    kind = _written(data)
    try:
        (start,) = kind.offset.unpack_from(data, kind.inline)
        pages = dict[int, None]()  # in order; a list that leads back to itself ends there
        while start and start not in pages and len(pages) != most:
            pages[start] = None
            if len(pages) != most:
                start = _next(data, kind, start)
    except struct.error:
        raise DecodeError(_NO_DIRECTORY) from None
    return list(pages)


def tags_at(data: memoryview, start: int) -> Tags:
    """Return the tags of the directory that begins at `start`.

    Raises:
      DecodeError: it is damaged.
    """
    kind = _written(data)
    try:
        (count,) = kind.length.unpack_from(data, start)
        if not 1 <= count <= _MAX_ENTRIES:
            raise DecodeError(f"TIFF: its directory has {count} entries")
        first = start + kind.length.size
        heads = b"".join(_heads(kind, count).unpack_from(data, first))
    except struct.error:
        raise DecodeError(_NO_DIRECTORY) from None
    return Tags(data, start, kind, first, heads, _entries(heads, kind))


def _written(data: memoryview) -> _Kind:
    """Return how the directories are written."""
    order = ">" if data[:2] == b"MM" else "<"
    return (_BIG if data[2 + (order == ">")] == 43 else _CLASSIC)[order]


def _next(data: memoryview, kind: _Kind, start: int) -> int:
    """Return where the directory behind one begins, 0 for none."""
    (count,) = kind.length.unpack_from(data, start)
    after = start + kind.length.size + count * kind.entry
    return kind.offset.unpack_from(data, after)[0]


@functools.lru_cache(64)
def _heads(kind: _Kind, count: int) -> struct.Struct:
    """Return what takes the heads of all entries of a directory."""
    return struct.Struct(f"{kind.head.size}s{kind.inline}x" * count)


@functools.lru_cache(256)  # many files have the same
def _entries(heads: bytes, kind: _Kind) -> dict[int, _Entry]:
    """Return the entries of a directory with these heads."""
    entries: dict[int, _Entry] = {}
    at = kind.head.size
    for tag, number, count in kind.head.iter_unpack(heads):
        code = _TYPES.get(number)
        if code is not None:
            size = count * _SIZES[code]
            entries.setdefault(tag, _Entry(code, count, size, at, size <= kind.inline))
        at += kind.entry
    return entries


class _Chosen(NamedTuple):
    """Where the values of some tags are.

    Attributes:
      inside: takes those that lie in their entries.
      offsets: takes where the others lie.
      beyond: tag and bytes of these.
      heads: of all, in this order; see `Told`.
      total: bytes of all.
    """

    inside: struct.Struct
    offsets: struct.Struct
    beyond: list[tuple[int, int]]
    heads: bytes
    total: int


@functools.lru_cache(256)
def _chosen(heads: bytes, kind: _Kind, wanted: frozenset[int]) -> _Chosen:
    """Return where the values of some tags are in each directory with these heads."""
    found = {tag: entry for tag, entry in _entries(heads, kind).items() if tag in wanted}
    inside = {tag: entry for tag, entry in found.items() if entry.inline}
    beyond = {tag: entry for tag, entry in found.items() if not entry.inline}
    places = [(entry.at, kind.inline, kind.offset.format[1:]) for entry in beyond.values()]
    return _Chosen(
        inside=_taken("=", [(each.at, each.size, f"{each.size}s") for each in inside.values()]),
        offsets=_taken(kind.order, places),
        beyond=[(tag, entry.size) for tag, entry in beyond.items()],
        heads=b"".join(
            _HEAD.pack(tag, entry.code.encode(), entry.numbers)
            for tag, entry in (inside | beyond).items()
        ),
        total=sum(entry.size for entry in found.values()),
    )


def _taken(order: str, fields: Iterable[tuple[int, int, str]]) -> struct.Struct:
    """Return what takes fields: where each is, its bytes, its format."""
    format = order
    at = 0
    for start, size, one in fields:
        format += f"{start - at}x{one}"
        at = start + size
    return struct.Struct(format)
