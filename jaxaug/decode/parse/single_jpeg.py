"""The checks of one JPEG file without numpy, whose calls take longer than one file's bytes.

Only the walk differs from `jpeg_checks.py`: sizes, masks and tables are the same, and the same
rules are applied to the result. Files of an unusual form are left to the general walk.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from jaxaug.decode.parse.exif import first_orientation
from jaxaug.decode.parse.jpeg_checks import (
    CHECKS_STRUCT,
    FRAME_MASK,
    HUFFMAN_PLACE,
    HUFFMAN_SIZE,
    MAX_DC_SYMBOL,
    QUANTIZATION_SIZE,
    SCAN_MASK,
    SIDE_FAULT,
    fits_huffman,
)
from jaxaug.decode.parse.segments import (
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
    HEAD,
    MAX_SEGMENTS,
    SOS,
)

_FRAME_MASKS = [int.from_bytes(mask, "big") for mask in FRAME_MASK.tolist()]
_SCAN_MASKS = [int.from_bytes(mask, "big") for mask in SCAN_MASK.tolist()]
_SIDE_FAULTS = SIDE_FAULT.tobytes()
_QUANTIZATION_SIZES: list[int] = QUANTIZATION_SIZE.tolist()
_HUFFMAN_SIZES: list[int] = HUFFMAN_SIZE.tolist()
_HUFFMAN_PLACES: list[int] = HUFFMAN_PLACE.tolist()
_CODE_AND_LENGTH = struct.Struct(">HH")
_HEIGHT_AND_WIDTH = struct.Struct(">HH")


class SingleJpeg(NamedTuple):
    """The checks and facts of one file.

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


def read_jpeg(data: memoryview) -> SingleJpeg | None:
    """Return the checks of one file, or None for one that `read_checks` must read.

    These are files whose header does not lead to an SOS segment by segment, or holds a DNL or DAC
    segment.
    """
    collector = _Collector()
    at = 2
    size = len(data)
    for _ in range(MAX_SEGMENTS):
        if at + 4 > size:
            return None
        code, length = _CODE_AND_LENGTH.unpack_from(data, at)
        after = at + 2 + length
        if code not in CODES or length < 2 or after > size:
            return None
        marker = code & 0xFF
        if marker in _LEFT_TO_READ_CHECKS:
            return None
        reader = _READERS.get(marker)
        if reader:
            reader(collector, data, at, after)
        if marker == SOS:
            return collector.result(after)
        at = after
    return None


class _Collector:
    """The fields of `Checks` and the facts of a file while they are collected."""

    __slots__ = (
        "adobe",
        "bad_huffman",
        "bad_quantization",
        "bad_restart",
        "frame",
        "frames",
        "jfif",
        "orientation",
        "scan",
        "size",
        "tables",
        "unusual",
    )

    def __init__(self):
        self.frame = bytes(22)
        self.scan = bytes(14)
        self.tables = bytearray(12)
        self.size = (0, 0)
        self.frames = 0
        self.jfif = 0
        self.adobe = 0
        self.unusual = 0
        self.orientation = 0
        self.bad_quantization = 0
        self.bad_huffman = 0
        self.bad_restart = 0

    def result(self, scan_start: int) -> SingleJpeg:
        """Return the result for a file whose image data begins at an offset."""
        height, width = self.size
        sides = (_SIDE_FAULTS[height], _SIDE_FAULTS[width]) if self.frames else (0, 0)
        bad_conditioning = 0
        checks = CHECKS_STRUCT.pack(
            self.frame,
            self.scan,
            bytes(sides),
            bytes(self.tables),
            self.frames,
            self.bad_quantization,
            self.bad_huffman,
            self.bad_restart,
            bad_conditioning,
            self.jfif,
            self.adobe,
            self.unusual,
        )
        return SingleJpeg(checks, height, width, self.orientation or 1, scan_start)


def _head(data: memoryview, at: int) -> bytes:
    """Return the first bytes of a segment from its marker on; the file's last byte repeats."""
    head = data[at : at + HEAD].tobytes()
    return head + head[-1:] * (HEAD - len(head))


def _read_frame(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    head = _head(data, at)
    collector.size = _HEIGHT_AND_WIDTH.unpack_from(head, 5)
    bits = int.from_bytes(head, "big") & _FRAME_MASKS[head[9]]
    collector.frame = bits.to_bytes(22, "big")
    collector.frames = min(collector.frames + 1, 2)


def _read_scan(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    head = _head(data, at)
    bits = int.from_bytes(head[2:16], "big") & _SCAN_MASKS[head[4]]
    collector.scan = bits.to_bytes(14, "big")


def _read_quantization(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    at += 4
    while at < after:
        first = data[at]
        at += _QUANTIZATION_SIZES[first]
        collector.tables[first & 3] = 1
        collector.bad_quantization |= at > after
        collector.unusual |= first > 15


def _read_huffman(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    places, good = _huffman_tables(data[at + 4 : after].tobytes())
    for place in places:
        collector.tables[place] = 1
    collector.bad_huffman |= not good


@lru_cache(2**9)  # most files have the tables of T.81 annex K
def _huffman_tables(payload: bytes) -> tuple[tuple[int, ...], bool]:
    """Return the places of the tables in a DHT segment, and True if all are well formed."""
    places = []
    at = 0
    while at < len(payload):
        first = payload[at]
        counts = payload[at + 1 : at + 17]
        symbols_at = at + 17
        places.append(_HUFFMAN_PLACES[first])

        symbols = sum(counts)
        space = sum(count << 15 - length for length, count in enumerate(counts))
        at += _HUFFMAN_SIZES[first] + symbols
        if not fits_huffman(at, len(payload), symbols, space):
            return tuple(places), False
        if first < 16 and symbols and max(payload[symbols_at:at]) > MAX_DC_SYMBOL:
            return tuple(places), False
    return tuple(places), True


def _read_restart(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    collector.bad_restart |= after - at != 6


def _read_jfif(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    collector.jfif |= _is_tagged(data, at, after, b"JFIF\0", 14)


def _read_adobe(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    if _is_tagged(data, at, after, b"Adobe", 12):
        collector.adobe = 1 + (data[at + 15] > 0)


def _read_exif(collector: _Collector, data: memoryview, at: int, after: int) -> None:
    if not collector.orientation and _is_tagged(data, at, after, b"Exif\0", 14):
        collector.orientation = first_orientation(data[at + 10 : after])


def _is_tagged(data: memoryview, at: int, after: int, tag: bytes, min_length: int) -> bool:
    return after - at - 4 >= min_length and data[at + 4 : at + 9] == tag


_LEFT_TO_READ_CHECKS = frozenset((DNL, DAC))
_Reader = Callable[[_Collector, memoryview, int, int], None]
_READERS: dict[int, _Reader] = dict.fromkeys(FRAMES, _read_frame) | {
    APP0: _read_jfif,
    APP1: _read_exif,
    APP14: _read_adobe,
    DHT: _read_huffman,
    DQT: _read_quantization,
    DRI: _read_restart,
    SOS: _read_scan,
}
