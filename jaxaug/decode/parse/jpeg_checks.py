"""What decides about JPEG files besides their end, read from their segments for many files at once."""

import struct
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode._types import memory_view
from jaxaug.decode.parse.memory_windows import as_bytes, read_windows
from jaxaug.decode.parse.segments import (
    APP0,
    APP14,
    DAC,
    DHT,
    DNL,
    DQT,
    DRI,
    FRAMES,
    NOWHERE,
    SOS,
    Segments,
    lookup,
)

LARGEST_SIDE = 65500  # libjpeg's JPEG_MAX_DIMENSION
LARGEST_DC_SYMBOL = 15  # a bit count, T.81 F.1.2.1

_IS_FRAME = lookup(dict.fromkeys(FRAMES, 1), 0).astype(bool)
# By the first byte of a quantization table its size; by that of a Huffman table its size, less its
# symbols, and its number. T.81 B.2.4.
_BITS_8 = {slot: 65 for slot in range(4)}
_BITS_16 = {16 + slot: 129 for slot in range(4)}
QUANTIZATION_SIZE = lookup(_BITS_8 | _BITS_16, NOWHERE)
HUFFMAN_SIZE = lookup({kind << 4 | slot: 17 for kind in (0, 1) for slot in range(4)}, NOWHERE)
HUFFMAN_SLOT = lookup(
    {kind << 4 | slot: 4 + 4 * kind + slot for kind in (0, 1) for slot in range(4)}, 0
)
# From the 16 code counts: how many symbols, and what their codes take of 2^16. float32 is exact up
# to 2^24.
_CODE_SUMS = np.stack([np.ones(16), 2.0 ** np.arange(15, -1, -1)], 1).astype(np.float32)


def _masks(width: int, used: list[int], byte: int = 0xFF) -> np.ndarray:
    """Return V{width}[k]: used[i] times the byte, then zeros."""
    covered = np.arange(width) < np.array(used)[:, None]
    return np.where(covered, np.uint8(byte), np.uint8(0)).view(f"V{width}")[:, 0]


FRAME_MASK = _masks(22, [10 + 3 * min(parts, 4) for parts in range(256)])
as_bytes(FRAME_MASK)[:, 5:9] = 0  # height and width
SIDE = lookup({0: 1} | dict.fromkeys(range(LARGEST_SIDE + 1, 2**16), 2), 0, 2**16).astype(np.uint8)
SCAN_MASK = _masks(14, [3 + (2 * parts + 3) * (parts <= 4) for parts in range(256)])
_DC_MASK = _masks(16, [*range(17)], 0xF0)  # a DC symbol is a bit count of 4 bits, T.81 F.1.2.1


# What decides about a file besides its table contents and its end; bytes that say nothing are zero.
EVIDENCE = np.dtype(
    [
        ("frame", "V22"),
        ("scan", "V14"),
        ("sides", "V2"),
        ("tables", "u1", (12,)),
        ("frames", "u1"),
        ("bad_quantization", "u1"),
        ("bad_huffman", "u1"),
        ("bad_restart", "u1"),
        ("bad_conditioning", "u1"),
        ("jfif", "u1"),
        ("adobe", "u1"),
        ("unusual", "u1"),
    ]
)
PARTS = struct.Struct("22s14s2s12s8B")


class Component(NamedTuple):
    identity: int
    factors: int  # horizontal << 4 | vertical
    table: int


class Evidence(NamedTuple):
    """One item of `EVIDENCE`.

    Attributes:
      frame: the last SOF up to its first four components, height and width left out.
      scan: the first SOS, from its length on.
      sides: of height and width: 0 fine, 1 zero, 2 too large.
      tables: which are defined: four quantization tables, four Huffman tables of DC coefficients,
        four of AC coefficients.
      frames: how many SOF, at most 2.
      bad_...: 1 where such a segment is malformed.
      jfif: 1 with a JFIF segment.
      adobe: 0 without an Adobe segment, 1 with transform 0, 2 with another transform.
      unusual: 1 where the header holds more than segments, a DNL or DAC segment, or a quantization
        table of 16 bits.
    """

    frame: bytes
    scan: bytes
    sides: bytes
    tables: bytes
    frames: int
    bad_quantization: int
    bad_huffman: int
    bad_restart: int
    bad_conditioning: int
    jfif: int
    adobe: int
    unusual: int

    @property
    def coding(self) -> int:
        return self.frame[1] & 15

    def components(self) -> list[Component]:
        return [
            Component(*self.frame[at : at + 3])
            for at in range(10, 10 + 3 * min(self.frame[9], 4), 3)
        ]


class Found(NamedTuple):
    """The evidence of k files, and what stands beside it."""

    evidence: np.ndarray
    size: np.ndarray  # int32[k, 2]: height and width
    scan_start: (
        np.ndarray
    )  # int64[k]: where the entropy-coded data begins; without a scan the file's end


def read_evidence(segments: Segments, stops: np.ndarray) -> Found:
    """Read the evidence of the files that end at `stops` (int64[k]) from their segments."""
    evidence = np.zeros(stops.size, EVIDENCE)
    size = _read_frames(segments, evidence)
    scan_start = _read_scans(segments, evidence, stops)
    _read_quantization(segments, evidence)
    _read_huffman(segments, evidence, stops)
    _read_others(segments, evidence)
    return Found(evidence, size, scan_start)


def _read_frames(segments: Segments, evidence: np.ndarray) -> np.ndarray:
    """Return int32[k, 2], height and width; the rest goes into the evidence."""
    chosen = _IS_FRAME[segments.marker].nonzero()[0]
    row = segments.row[chosen]
    head = as_bytes(segments.head[chosen])
    sides = head[:, 5:9].view(">u2")
    size = np.zeros((evidence.size, 2), np.int32)
    size[row] = sides
    evidence["sides"][row] = SIDE[sides].view("V2")[:, 0]
    evidence["frame"][row] = (head & as_bytes(FRAME_MASK[head[:, 9]])).view("V22")[:, 0]
    evidence["frames"] = np.minimum(np.bincount(row, minlength=evidence.size), 2)
    return size


def _read_scans(segments: Segments, evidence: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return int64[k]: where the entropy-coded data begins, the file's end without a scan."""
    chosen = (segments.marker == SOS).nonzero()[0]
    row = segments.row[chosen]
    head = as_bytes(segments.head[chosen])
    evidence["scan"][row] = (head[:, 2:16] & as_bytes(SCAN_MASK[head[:, 4]])).view("V14")[:, 0]
    start = stops.copy()
    start[row] = segments.stop[chosen]
    return start


def _read_quantization(segments: Segments, evidence: np.ndarray) -> None:
    """Read which quantization tables each file defines, T.81 B.2.4.1."""
    row, position, stop = segments.pick(DQT)
    while (inside := (position < stop).nonzero()[0]).size:  # a segment may hold several tables
        row = row[inside]
        position = position[inside]
        stop = stop[inside]
        first = read_windows(position, 1, stop).view(np.uint8)
        position = position + QUANTIZATION_SIZE[first]
        evidence["tables"][row, first & 3] = 1
        evidence["bad_quantization"][row[position > stop]] = 1
        evidence["unusual"][row[first > 15]] = 1


def _read_huffman(segments: Segments, evidence: np.ndarray, stops: np.ndarray) -> None:
    """Read which Huffman tables each file defines, T.81 B.2.4.2."""
    row, position, stop = segments.pick(DHT)
    while (inside := (position < stop).nonzero()[0]).size:
        row = row[inside]
        position = position[inside]
        stop = stop[inside]
        table = read_windows(position, 33, stops[row])  # with the first 16 symbols
        first = as_bytes(table)[:, 0]
        sums = as_bytes(table)[:, 1:17].astype(np.float32) @ _CODE_SUMS
        symbols = sums[:, 0].astype(np.int64)
        values = position + 17
        position = position + HUFFMAN_SIZE[first] + symbols
        good = fits_huffman(position, stop, symbols, sums[:, 1])
        direct = (good & (first < 16)).nonzero()[0]
        many = symbols[direct] > 16
        large = as_bytes(table[direct])[:, 17:] & as_bytes(
            _DC_MASK[np.minimum(symbols[direct], 16)]
        )
        large = large.view(np.uint64)  # 16 bytes as two numbers
        for each in direct[many | ((large[:, 0] | large[:, 1]) > 0)].tolist():
            good[each] = (
                max(memory_view(int(values[each]), int(symbols[each]))) <= LARGEST_DC_SYMBOL
            )
        evidence["tables"][row, HUFFMAN_SLOT[first]] = 1
        evidence["bad_huffman"][row[~good]] = 1
        position[~good] = NOWHERE  # what follows a malformed table is not looked at


def fits_huffman(position: Any, stop: Any, symbols: Any, space: Any) -> Any:
    """Return True where a Huffman table that ends at `position` is well formed but for its symbols.

    Args:
      position, stop: where the table and its segment end.
      symbols: how many it has.
      space: what their codes take of 2^16. A code of all ones is not allowed (T.81 C.2), so they
        never take all.
    """
    return (position <= stop) & (symbols <= 256) & (space < 2**16)


def _read_others(segments: Segments, evidence: np.ndarray) -> None:
    """Read the form of restart intervals and of arithmetic conditioning, what tells the colors, and
    what other parsers may read in another way."""
    row, start, stop = segments.pick(DRI)
    evidence["bad_restart"][row[stop - start != 2]] = 1
    for row, start, stop in zip(*(column.tolist() for column in segments.pick(DAC))):
        data = np.frombuffer(memory_view(start, stop - start), np.uint8)
        slot = data[: data.size & ~1 : 2]
        value = data[1::2]
        good = (slot < 16) & (value & 15 <= value >> 4) | (slot >= 16) & (slot < 32)  # T.81 B.2.4.3
        evidence["bad_conditioning"][row] |= data.size % 2 or not good.all()
    evidence["jfif"][segments.row[segments.tagged(APP0, b"JFIF", 14)]] = 1
    adobe = segments.tagged(APP14, b"Adobe", 12)
    evidence["adobe"][segments.row[adobe]] = 1 + (as_bytes(segments.head[adobe])[:, 15] > 0)
    evidence["unusual"][segments.resumed] = 1
    for marker in (DNL, DAC):
        evidence["unusual"][segments.pick(marker)[0]] = 1
