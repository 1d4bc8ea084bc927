"""The EXIF orientation of JPEG files, of many at once or of one."""

import struct
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import memory_view
from jaxaug.decode.image.parse.jpeg_segments import APP1, Segments
from jaxaug.decode.image.parse.memory_windows import as_bytes, read_windows

_ORIENTATION = 0x0112  # number of the tag
_SHORT = 3  # type of an entry with a number of 16 bits
_ENTRY = 12  # bytes
_TAG_BYTES = 6  # "Exif" and two zeros, before the TIFF header
# Up to so many segments, reading one after another takes less time than numpy's calls for all.
_MAX_LOOPED_SEGMENTS = 8

# The first bytes of a TIFF header in each byte order.
_LITTLE = 0x49492A00
_BIG = 0x4D4D002A
_NUMBERS = {
    _LITTLE: (struct.Struct("<H"), struct.Struct("<I")),
    _BIG: (struct.Struct(">H"), struct.Struct(">I")),
}


class _Directories(NamedTuple):
    """The first image directories of EXIF segments.

    Attributes:
      row: int64[m], the file of each.
      start, stop: int64[m], from the directory's beginning to the segment's end.
      little: bool[m], True if the bytes are in little-endian order.
    """

    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    little: np.ndarray


def read_orientation(segments: Segments, count: int) -> np.ndarray:
    """Return uint8[count], the orientation 1..8 of each file; 1 for a file without one."""
    orientation = np.ones(count, np.uint8)
    exif = segments.find_tagged(APP1, b"Exif", 14)
    if exif.size <= _MAX_LOOPED_SEGMENTS:
        for number in exif[::-1].tolist():  # the first one of a file counts, so it comes last
            start = int(segments.start[number]) + _TAG_BYTES
            found = first_orientation(memory_view(start, int(segments.stop[number]) - start))
            if found:
                orientation[segments.row[number]] = found
        return orientation

    directories = _first_directories(segments, exif)
    owner, value = _orientation_entries(directories)
    valid = ((value >= 1) & (value <= 8)).nonzero()[0]
    in_reverse = valid[::-1]  # the first entry of a file counts, so it is assigned last
    orientation[directories.row[owner[in_reverse]]] = value[in_reverse]
    return orientation


def _first_directories(segments: Segments, exif: np.ndarray) -> _Directories:
    """Return the directories of those EXIF segments that have one."""
    tiff_start = segments.start[exif] + _TAG_BYTES  # all offsets count from here
    stop = segments.stop[exif]
    head = read_windows(tiff_start, 8, stop)
    magic = as_bytes(head)[:, :4].view(">u4")[:, 0]
    little = magic == _LITTLE

    start = tiff_start + _number(head, 4, "u4", little)
    usable = (little | (magic == _BIG)) & (start + 2 <= stop)
    return _Directories(
        row=segments.row[exif][usable],
        start=start[usable],
        stop=stop[usable],
        little=little[usable],
    )


def _orientation_entries(directories: _Directories) -> tuple[np.ndarray, np.ndarray]:
    """Return all orientation entries: int64[k], the number of its directory, and its value."""
    _, start, stop, little = directories
    stated = _number(read_windows(start, 2, stop), 0, "u2", little)
    counts = np.minimum(stated, (stop - start - 2) // _ENTRY)
    owner = np.repeat(np.arange(start.size), counts)
    number = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)

    entry = read_windows(start[owner] + 2 + _ENTRY * number, _ENTRY, stop[owner])
    tagged = (_number(entry, 0, "u2", little[owner]) == _ORIENTATION).nonzero()[0]
    owner = owner[tagged]
    entry = entry[tagged]
    little = little[owner]

    is_short = _number(entry, 2, "u2", little) == _SHORT
    short = _number(entry, 8, "u2", little)
    long = _number(entry, 8, "u4", little)  # as some programs write it
    return owner, np.where(is_short, short, long)


def _number(windows: np.ndarray, at: int, dtype: str, little: np.ndarray) -> np.ndarray:
    """Return int64[k], the integer at one place of each window, in the byte order of each."""
    data = as_bytes(windows)[:, at : at + int(dtype[1])]
    in_little = data.view(f"<{dtype}")[:, 0]
    in_big = data.view(f">{dtype}")[:, 0]
    return np.where(little, in_little, in_big).astype(np.int64)


def first_orientation(tiff: memoryview) -> int:
    """Return the orientation 1..8 in an EXIF segment; 0 without one.

    Args:
      tiff: the segment from its TIFF header on, which follows the tag.
    """
    numbers = _NUMBERS.get(int.from_bytes(tiff[:4], "big"))
    if not numbers:
        return 0

    short, long = numbers
    start = long.unpack_from(tiff, 4)[0] + 2
    if start > len(tiff):
        return 0

    entries = min(short.unpack_from(tiff, start - 2)[0], (len(tiff) - start) // _ENTRY)
    for at in range(start, start + _ENTRY * entries, _ENTRY):
        if short.unpack_from(tiff, at)[0] == _ORIENTATION:
            number = short if short.unpack_from(tiff, at + 2)[0] == _SHORT else long
            value = number.unpack_from(tiff, at + 8)[0]
            if 1 <= value <= 8:
                return value
    return 0
