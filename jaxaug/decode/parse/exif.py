"""The EXIF orientation of JPEG files, many at once or of one."""

import struct

import numpy as np

from jaxaug.decode.parse.memory_windows import as_bytes, read_windows
from jaxaug.decode.parse.segments import APP1, Segments

_ORIENTATION = 0x0112
# how a TIFF header in each byte order begins
_LITTLE = 0x49492A00
_BIG = 0x4D4D002A
_NUMBERS = {
    _LITTLE: (struct.Struct("<H"), struct.Struct("<I")),
    _BIG: (struct.Struct(">H"), struct.Struct(">I")),
}


def read_orientation(segments: Segments, count: int) -> np.ndarray:
    """Return uint8[k], the orientation 1..8 in the first image directory of the EXIF segments."""
    orientation = np.ones(count, np.uint8)
    exif = segments.tagged(APP1, b"Exif", 14)
    if not exif.size:
        return orientation
    row = segments.row[exif]
    start = segments.start[exif] + 6
    stop = segments.stop[exif]
    head = read_windows(start, 8, stop)  # EXIF offsets count from this TIFF header
    magic = as_bytes(head)[:, :4].view(">u4")[:, 0]
    little = magic == _LITTLE
    start = start + _number(head, 4, "u4", little)
    usable = (little | (magic == _BIG)) & (start + 2 <= stop)
    row = row[usable]
    start = start[usable]
    stop = stop[usable]
    little = little[usable]
    entries = np.minimum(
        _number(read_windows(start, 2, stop), 0, "u2", little), (stop - start - 2) // 12
    )
    owner = np.repeat(np.arange(row.size), entries)
    nth = np.arange(owner.size) - np.repeat(np.cumsum(entries) - entries, entries)
    entry = read_windows(start[owner] + 2 + 12 * nth, 12, stop[owner])
    tagged = (_number(entry, 0, "u2", little[owner]) == _ORIENTATION).nonzero()[0]
    owner, entry, little = owner[tagged], entry[tagged], little[owner[tagged]]
    short = _number(entry, 2, "u2", little) == 3
    value = np.where(
        short, _number(entry, 8, "u2", little), _number(entry, 8, "u4", little)
    )  # some write a LONG
    found = ((value >= 1) & (value <= 8)).nonzero()[0][
        ::-1
    ]  # the first one of a file wins: assigned last
    orientation[row[owner[found]]] = value[found]
    return orientation


def _number(windows: np.ndarray, at: int, kind: str, little: np.ndarray) -> np.ndarray:
    """Return int64[k], the integers at one place of each window, in the byte order of each."""
    data = as_bytes(windows)[:, at : at + int(kind[1])]
    return np.where(little, data.view(f"<{kind}")[:, 0], data.view(f">{kind}")[:, 0]).astype(
        np.int64
    )


def first_orientation(tiff: memoryview) -> int:
    """Return the orientation 1..8 in an EXIF segment, behind its tag; 0 without one."""
    numbers = _NUMBERS.get(int.from_bytes(tiff[:4], "big"))
    if not numbers:
        return 0
    short, long = numbers
    start = long.unpack_from(tiff, 4)[0] + 2
    if start > len(tiff):
        return 0
    entries = min(short.unpack_from(tiff, start - 2)[0], (len(tiff) - start) // 12)
    for at in range(start, start + 12 * entries, 12):
        if short.unpack_from(tiff, at)[0] == _ORIENTATION:
            number = short if short.unpack_from(tiff, at + 2)[0] == 3 else long
            value = number.unpack_from(tiff, at + 8)[0]
            if 1 <= value <= 8:
                return value
    return 0
