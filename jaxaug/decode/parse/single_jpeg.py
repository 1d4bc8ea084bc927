"""The evidence of one JPEG file, read without numpy, whose calls take longer than one file's bytes.

It differs from `evidence.py` in the walk alone: sizes, masks and slots are those of its tables, and
the same verdict is given over both. Files of an unusual form are left to the general way.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from jaxaug.decode.parse.exif import first_orientation
from jaxaug.decode.parse.jpeg_checks import (
    FRAME_MASK,
    HUFFMAN_SIZE,
    HUFFMAN_SLOT,
    LARGEST_DC_SYMBOL,
    PARTS,
    QUANTIZATION_SIZE,
    SCAN_MASK,
    SIDE,
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
    MOST_SEGMENTS,
    SOS,
)

_FRAME_MASKS = [int.from_bytes(mask, "big") for mask in FRAME_MASK.tolist()]
_SCAN_MASKS = [int.from_bytes(mask, "big") for mask in SCAN_MASK.tolist()]
_SIDES = SIDE.tobytes()
_QUANTIZATION_SIZES: list[int] = QUANTIZATION_SIZE.tolist()
_HUFFMAN_SIZES: list[int] = HUFFMAN_SIZE.tolist()
_HUFFMAN_SLOTS: list[int] = HUFFMAN_SLOT.tolist()
_CODE_AND_LENGTH = struct.Struct(">HH")
_HEIGHT_AND_WIDTH = struct.Struct(">HH")


class OneJpeg(NamedTuple):
    """What `read_evidence` finds, for one file."""

    evidence: bytes
    height: int
    width: int
    orientation: int
    scan_start: int  # from the file's beginning


def read_jpeg(data: memoryview) -> OneJpeg | None:
    """Read one file; return None for one that `read_evidence` must read.

    These are files whose header does not reach an SOS segment by segment, or holds a DNL or DAC
    segment.
    """
    facts = _Facts()
    at = 2
    size = len(data)
    for _ in range(MOST_SEGMENTS):
        if at + 4 > size:
            return None
        code, length = _CODE_AND_LENGTH.unpack_from(data, at)
        after = at + 2 + length
        if code not in CODES or length < 2 or after > size:
            return None
        marker = code & 0xFF
        if marker in _NOT_HERE:
            return None
        if reader := _READERS.get(marker):
            reader(facts, data, at, after)
        if marker == SOS:
            return facts.found(after)
        at = after
    return None


class _Facts:
    """The fields of `Evidence` while they are collected, and what stands beside it."""

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
        self.frames = self.jfif = self.adobe = self.unusual = self.orientation = 0
        self.bad_quantization = self.bad_huffman = self.bad_restart = 0

    def found(self, scan_start: int) -> OneJpeg:
        height, width = self.size
        sides = bytes((_SIDES[height], _SIDES[width])) if self.frames else b"\0\0"
        bad = (self.bad_quantization, self.bad_huffman, self.bad_restart, 0)
        colors = (self.jfif, self.adobe, self.unusual)
        tables = bytes(self.tables)
        evidence = PARTS.pack(self.frame, self.scan, sides, tables, self.frames, *bad, *colors)
        return OneJpeg(evidence, height, width, self.orientation or 1, scan_start)


def _head(data: memoryview, at: int) -> bytes:
    """Return the first bytes of a segment from its marker on; the file's last byte repeats."""
    head = data[at : at + HEAD].tobytes()
    return head + head[-1:] * (HEAD - len(head))


def _read_frame(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    head = _head(data, at)
    facts.size = _HEIGHT_AND_WIDTH.unpack_from(head, 5)
    bits = int.from_bytes(head, "big") & _FRAME_MASKS[head[9]]
    facts.frame = bits.to_bytes(22, "big")
    facts.frames = min(facts.frames + 1, 2)


def _read_scan(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    head = _head(data, at)
    bits = int.from_bytes(head[2:16], "big") & _SCAN_MASKS[head[4]]
    facts.scan = bits.to_bytes(14, "big")


def _read_quantization(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    at += 4
    while at < after:
        first = data[at]
        at += _QUANTIZATION_SIZES[first]
        facts.tables[first & 3] = 1
        facts.bad_quantization |= at > after
        facts.unusual |= first > 15


def _read_huffman(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    slots, good = _huffman_tables(data[at + 4 : after].tobytes())
    for slot in slots:
        facts.tables[slot] = 1
    facts.bad_huffman |= not good


@lru_cache(2**9)  # most files have the tables of T.81 annex K
def _huffman_tables(payload: bytes) -> tuple[tuple[int, ...], bool]:
    """Return the slots of the tables in a DHT segment, and True if all are well formed."""
    slots = []
    at = 0
    while at < len(payload):
        first = payload[at]
        counts = payload[at + 1 : at + 17]
        symbols_at = at + 17
        slots.append(_HUFFMAN_SLOTS[first])
        symbols = sum(counts)
        space = sum(count << 15 - length for length, count in enumerate(counts))
        at += _HUFFMAN_SIZES[first] + symbols
        if not fits_huffman(at, len(payload), symbols, space):
            return tuple(slots), False
        if first < 16 and symbols and max(payload[symbols_at:at]) > LARGEST_DC_SYMBOL:
            return tuple(slots), False
    return tuple(slots), True


def _read_restart(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    facts.bad_restart |= after - at != 6


def _read_jfif(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    facts.jfif |= _is_tagged(data, at, after, b"JFIF\0", 14)


def _read_adobe(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    if _is_tagged(data, at, after, b"Adobe", 12):
        facts.adobe = 1 + (data[at + 15] > 0)


def _read_exif(facts: _Facts, data: memoryview, at: int, after: int) -> None:
    if not facts.orientation and _is_tagged(data, at, after, b"Exif\0", 14):
        facts.orientation = first_orientation(data[at + 10 : after])


def _is_tagged(data: memoryview, at: int, after: int, tag: bytes, least: int) -> bool:
    return after - at - 4 >= least and data[at + 4 : at + 9] == tag


_NOT_HERE = frozenset((DNL, DAC))
_Reader = Callable[[_Facts, memoryview, int, int], None]
_READERS: dict[int, _Reader] = dict.fromkeys(FRAMES, _read_frame) | {
    APP0: _read_jfif,
    APP1: _read_exif,
    APP14: _read_adobe,
    DHT: _read_huffman,
    DQT: _read_quantization,
    DRI: _read_restart,
    SOS: _read_scan,
}
