"""The header of one JPEG of the usual form, read without numpy.

Nearly all files are of this form, and pass in a tenth of the time that numpy's calls take for one
file. A file with anything else (a fault, other bytes between the segments, tables of 16 bits) is
left to `jpeg_checks.py`, so that what is wrong with a file is said in one place.
"""

import struct
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from jaxaug.decode.image.parse.exif import first_orientation
from jaxaug.decode.image.parse.jpeg_checks import (
    CHECKS_STRUCT,
    HUFFMAN_PLACES,
    MAX_CODES,
    MAX_DC_SYMBOL,
    MAX_SIDE,
    MAX_SYMBOLS,
)
from jaxaug.decode.image.parse.jpeg_segments import (
    APP0,
    APP1,
    APP14,
    CODES,
    DAC,
    DHT,
    DNL,
    DQT,
    DRI,
    FRAMES,
    MAX_SEGMENTS,
    SOS,
)

_DHT, _DQT, _DRI, _SOS, _JFIF, _EXIF, _ADOBE = (
    0xFF00 | marker for marker in (DHT, DQT, DRI, SOS, APP0, APP1, APP14)
)
_FRAMES = frozenset(0xFF00 | marker for marker in FRAMES)
_OTHERS = CODES - {0xFF00 | DNL, 0xFF00 | DAC}  # those that are not looked into
# Bytes of a file that are copied: those of most headers, and of longer ones.
_COPIED = (2**14, 2**18)
_MAX_COMPONENTS = 4
_QUANTIZATION_TABLES = 4
_QUANTIZATION_BYTES = 65
_FIRST_AC_PLACE = HUFFMAN_PLACES[0x10]
_CODE_AND_LENGTH = struct.Struct(">HH")
_HEIGHT_AND_WIDTH = struct.Struct(">HH")
# Of a code of 1 to 16 bits: how many codes of 16 bits begin with it.
_CODE_SPACES = tuple(2**bits for bits in range(15, -1, -1))


class UsualJpeg(NamedTuple):
    """The checks of one file, and what of its header does not decide about it.

    Attributes:
      checks: a `Checks`, as `CHECKS_STRUCT` packs it.
      height, width: of the stored image.
      orientation: 1..8.
      scan_start: offset of the image data.
    """

    checks: bytes
    height: int
    width: int
    orientation: int
    scan_start: int


def read_usual_jpeg(data: memoryview) -> UsualJpeg | None:
    """Return the checks of a file that begins with FF D8, None for one of another form."""
    for size in _COPIED:
        found = _read(bytes(data[:size]))
        if found or len(data) <= size:
            return found
    return None


def _read(head: bytes) -> UsualJpeg | None:
    """Return what the first bytes of a file tell, None if they are not all or of another form."""
    size = len(head)
    frame = b""
    jfif = adobe = orientation = 0
    tables = bytearray(12)
    stop = 2
    for _ in range(MAX_SEGMENTS):
        start = stop + 4
        if start > size:
            return None
        code, length = _CODE_AND_LENGTH.unpack_from(head, stop)
        stop += 2 + length
        if length < 2 or stop > size:
            return None

        if code == _DHT or code == _DQT:
            read = _huffman_places if code == _DHT else _quantization_places
            places = read(head[start:stop])
            if places is None:
                return None
            for place in places:
                tables[place] = 1
        elif code in _FRAMES:
            if frame:
                return None
            frame = head[start - 4 : stop]
        elif code == _SOS:
            checks = _pack(frame, head[start - 2 : stop], tables, jfif, adobe)
            if checks is None:
                return None
            return UsualJpeg(checks, *_sides(frame), orientation or 1, stop)
        elif code == _JFIF:
            jfif |= length >= 16 and head.startswith(b"JFIF\0", start)
        elif code == _ADOBE:
            if length >= 14 and head.startswith(b"Adobe", start):
                adobe = 1 + (head[start + 11] > 0)
        elif code == _EXIF:
            if not orientation and length >= 16 and head.startswith(b"Exif\0", start):
                orientation = first_orientation(memoryview(head)[start + 6 : stop])
        elif code not in _OTHERS or (code == _DRI and length != 4):
            return None
    return None


def _pack(frame: bytes, scan: bytes, tables: bytearray, jfif: int, adobe: int) -> bytes | None:
    """Return the checks of a file whose tables are good, None if its frame or scan is not.

    Args:
      frame: the SOF segment, empty without one.
      scan: the SOS segment from its length on.
      tables, jfif, adobe: see `Checks`.
    """
    if len(frame) < 10 or len(frame) != 10 + 3 * frame[9] or frame[9] > _MAX_COMPONENTS:
        return None
    if len(scan) < 3 or len(scan) != 6 + 2 * scan[2] or not 0 < scan[2] <= _MAX_COMPONENTS:
        return None
    height, width = _sides(frame)
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        return None
    kept = frame[:5] + bytes(4) + frame[9:]
    return CHECKS_STRUCT.pack(kept, scan, b"", tables, 1, 0, 0, 0, 0, jfif, adobe, 0)


def _sides(frame: bytes) -> tuple[int, int]:
    """Return the height and the width in a SOF segment."""
    return _HEIGHT_AND_WIDTH.unpack_from(frame, 5)


@lru_cache(2**9)  # many files have the tables of T.81 annex K
def _huffman_places(payload: bytes) -> list[int] | None:
    """Return the places of the tables in a DHT segment, None if one is not well formed."""
    places = []
    size = len(payload)
    at = 0
    while at < size:
        place = HUFFMAN_PLACES.get(payload[at])
        counts = payload[at + 1 : at + 17]
        symbols_at = at + 17
        at = symbols_at + sum(counts)
        symbols = payload[symbols_at:at]
        if place is None or at > size or len(symbols) > MAX_SYMBOLS:
            return None
        if sum(map(mul, counts, _CODE_SPACES)) >= MAX_CODES:
            return None
        if place < _FIRST_AC_PLACE and symbols and max(symbols) > MAX_DC_SYMBOL:
            return None
        places.append(place)
    return places


def _quantization_places(payload: bytes) -> bytes | None:
    """Return the places of the tables in a DQT segment, None if one is not of 8 bits."""
    places = payload[::_QUANTIZATION_BYTES]
    if not places or len(payload) % _QUANTIZATION_BYTES or max(places) >= _QUANTIZATION_TABLES:
        return None
    return places
