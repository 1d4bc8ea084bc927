"""The checks of JPEG headers, done with numpy for many files at once.

What differs from file to file (lengths, contents of tables, the sides) is checked here. What is
left becomes one short record for each file, its `Checks`. A data set has few different ones, so
`jpeg_rules.py` applies its rules to each of them only once. For example, all files of one camera
have equal checks: the same components and tables, no malformed segment.
"""

import struct
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode._types import memory_view
from jaxaug.decode.image.parse.jpeg_segments import (
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
    make_table,
)
from jaxaug.decode.image.parse.memory_windows import as_bytes, read_windows

MAX_SIDE = 65500  # libjpeg's JPEG_MAX_DIMENSION
MAX_SYMBOLS = 256  # of a Huffman table
MAX_CODES = 2**16  # of 16 bits; a table never uses all, as none is of ones alone (T.81 C.2)
MAX_DC_SYMBOL = 15  # a bit count, T.81 F.1.2.1; one more in lossless files, H.1.2.2

# Values of `Checks.sides`; 0 is a good one.
SIDE_ZERO = 1
SIDE_TOO_LARGE = 2
# Values of `Checks.bad_huffman`; 0 is a good one.
HUFFMAN_LOSSLESS = 1  # good in a lossless file
HUFFMAN_MALFORMED = 2

IS_FRAME = make_table(dict.fromkeys(FRAMES, 1), 0).astype(bool)
_IS_RARE = make_table(dict.fromkeys((DRI, DNL, DAC), 1), 0).astype(bool)

# T.81 B.2.4. Indexed by the first byte of a quantization table: its size. Indexed by the first byte
# of a Huffman table (class << 4 | number): its size without its symbols, and its place in
# `Checks.tables`.
HUFFMAN_PLACES = {
    group << 4 | number: 4 + 4 * group + number for group in (0, 1) for number in range(4)
}
_QUANTIZATION_SIZE = make_table(
    {number: 65 for number in range(4)} | {16 + number: 129 for number in range(4)}, NOWHERE
)
_HUFFMAN_SIZE = make_table(dict.fromkeys(HUFFMAN_PLACES, 17), NOWHERE)
_HUFFMAN_PLACE = make_table(HUFFMAN_PLACES, 0)

# Multiplied by the 16 code counts: the number of symbols, and the codes out of 2^16 that they
# use. float32 is exact up to 2^24.
_CODE_SUMS = np.stack([np.ones(16), 2.0 ** np.arange(15, -1, -1)], 1).astype(np.float32)


def _masks(width: int, used: list[int], byte: int = 0xFF) -> np.ndarray:
    """Return V{width}[k]: used[i] times the byte, then zeros."""
    covered = np.arange(width) < np.array(used)[:, None]
    return np.where(covered, np.uint8(byte), np.uint8(0)).view(f"V{width}")[:, 0]


# Indexed by the number of components: the bytes of a SOF and of an SOS that are kept.
_FRAME_MASK = _masks(22, [10 + 3 * min(count, 4) for count in range(256)])
as_bytes(_FRAME_MASK)[:, 5:9] = 0  # height and width
_SCAN_MASK = _masks(14, [3 + (2 * count + 3) * (count <= 4) for count in range(256)])

# Indexed by a side: its fault.
_TOO_LARGE = dict.fromkeys(range(MAX_SIDE + 1, 2**16), SIDE_TOO_LARGE)
_SIDE_FAULT = make_table({0: SIDE_ZERO} | _TOO_LARGE, 0, 2**16).astype(np.uint8)

# Indexed by a number of symbols: the bits of them that are zero in a DC table.
_DC_MASK = _masks(16, [*range(17)], 0xF0)

# A record of `Checks`, as numpy and as `struct` see it.
CHECKS = np.dtype(
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
CHECKS_STRUCT = struct.Struct("22s14s2s12s8B")


class Component(NamedTuple):
    """A component of a frame header."""

    identity: int
    factors: int  # horizontal << 4 | vertical
    table: int

    @property
    def horizontal(self) -> int:
        return self.factors >> 4

    @property
    def vertical(self) -> int:
        return self.factors & 15


class Checks(NamedTuple):
    """All that decides about a header; bytes that do not matter are zero.

    Attributes:
      frame: the last SOF up to its first four components, without height and width.
      scan: the first SOS, from its length on.
      sides: of height and width, 0, `SIDE_ZERO` or `SIDE_TOO_LARGE`.
      tables: 1 for each one defined: four quantization tables, four Huffman tables of DC
        coefficients, four of AC coefficients.
      frames: number of SOF segments, at most 2.
      bad_quantization, bad_restart, bad_conditioning: 1 if such a segment is malformed.
      bad_huffman: the same of Huffman tables, 0, `HUFFMAN_LOSSLESS` or `HUFFMAN_MALFORMED`.
      jfif: 1 with a JFIF segment.
      adobe: 0 without an Adobe segment, 1 with transform 0, 2 with another transform.
      unusual: 1 if the header holds bytes between its segments, a DNL or DAC segment, or a
        quantization table of 16 bits.
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

    @property
    def frame_length(self) -> int:
        return int.from_bytes(self.frame[2:4], "big")

    @property
    def precision(self) -> int:
        return self.frame[4]

    @property
    def component_count(self) -> int:
        return self.frame[9]

    def components(self) -> list[Component]:
        """Return the first four components."""
        stop = 10 + 3 * min(self.component_count, 4)
        return [Component(*self.frame[at : at + 3]) for at in range(10, stop, 3)]

    @property
    def scan_length(self) -> int:
        return int.from_bytes(self.scan[:2], "big")

    @property
    def scan_count(self) -> int:
        """The number of components in the first scan."""
        return self.scan[2]

    @property
    def scan_identities(self) -> bytes:
        """The components of the first scan."""
        return self.scan[3 : 3 + 2 * self.scan_count : 2]

    @property
    def scan_tables(self) -> bytes:
        """DC << 4 | AC, the numbers of the Huffman tables of each component in the first scan."""
        return self.scan[4 : 4 + 2 * self.scan_count : 2]

    @property
    def scan_parameters(self) -> bytes:
        """The last three bytes of the first scan's header: Ss, Se, Ah << 4 | Al."""
        start = 3 + 2 * self.scan_count
        return self.scan[start : start + 3]


class FoundChecks(NamedTuple):
    """The checks of k files, and what of their headers does not decide about them.

    Attributes:
      checks: `CHECKS`[k].
      size: int32[k, 2], height and width.
      scan_start: int64[k], where the entropy-coded data begins; the end of a file without a scan.
    """

    checks: np.ndarray
    size: np.ndarray
    scan_start: np.ndarray


def read_checks(segments: Segments, stops: np.ndarray) -> FoundChecks:
    """Return the checks of files.

    Args:
      segments: of the k files.
      stops: int64[k], the address after the end of each file.
    """
    checks = np.zeros(stops.size, CHECKS)
    size = _read_frames(segments, checks)
    scan_start = _read_scans(segments, checks, stops)
    _read_quantization(segments, checks)
    _read_huffman(segments, checks, stops)
    _read_color(segments, checks)
    if np.count_nonzero(_IS_RARE.take(segments.marker)):
        _read_rare(segments, checks)
    checks["unusual"][segments.resumed] = 1
    return FoundChecks(checks=checks, size=size, scan_start=scan_start)


def _read_frames(segments: Segments, checks: np.ndarray) -> np.ndarray:
    """Fill in the frames; return int32[k, 2], height and width."""
    chosen = IS_FRAME.take(segments.marker).nonzero()[0]
    row = segments.row[chosen]
    head = segments.heads(chosen)

    sides = head[:, 5:9].view(">u2")
    size = np.zeros((checks.size, 2), np.int32)
    size[row] = sides

    checks["sides"][row] = _SIDE_FAULT[sides].view("V2")[:, 0]
    checks["frame"][row] = (head & as_bytes(_FRAME_MASK[head[:, 9]])).view("V22")[:, 0]
    checks["frames"] = np.minimum(np.bincount(row, minlength=checks.size), 2)
    return size


def _read_scans(segments: Segments, checks: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Fill in the scans; return int64[k], where the entropy-coded data begins."""
    chosen = (segments.marker == SOS).nonzero()[0]
    row = segments.row[chosen]
    head = segments.heads(chosen)
    checks["scan"][row] = (head[:, 2:16] & as_bytes(_SCAN_MASK[head[:, 4]])).view("V14")[:, 0]

    start = stops.copy()
    start[row] = segments.stop[chosen]
    return start


def _read_quantization(segments: Segments, checks: np.ndarray) -> None:
    """Fill in the quantization tables, T.81 B.2.4.1."""
    row, position, stop = segments.pick(DQT)
    while (inside := (position < stop).nonzero()[0]).size:  # a segment may hold several tables
        row = row[inside]
        position = position[inside]
        stop = stop[inside]

        first = read_windows(position, 1, stop).view(np.uint8)
        position = position + _QUANTIZATION_SIZE[first]
        checks["tables"][row, first & 3] = 1
        checks["bad_quantization"][row[position > stop]] = 1
        checks["unusual"][row[first > 15]] = 1


def _read_huffman(segments: Segments, checks: np.ndarray, stops: np.ndarray) -> None:
    """Fill in the Huffman tables, T.81 B.2.4.2."""
    row, position, stop = segments.pick(DHT)
    while (inside := (position < stop).nonzero()[0]).size:
        row = row[inside]
        position = position[inside]
        stop = stop[inside]

        table = as_bytes(read_windows(position, 33, stops[row]))  # with the first 16 symbols
        first = table[:, 0]
        sums = table[:, 1:17].astype(np.float32) @ _CODE_SUMS
        symbols = sums[:, 0].astype(np.int64)
        symbols_at = position + 17
        position = position + _HUFFMAN_SIZE[first] + symbols

        fits = _fits_huffman(position, stop, symbols=symbols, space=sums[:, 1])
        fault = np.where(fits, 0, HUFFMAN_MALFORMED).astype(np.uint8)
        dc = (fits & (first < 16)).nonzero()[0]
        fault[dc] = _dc_faults(table[dc][:, 17:], symbols[dc], symbols_at[dc])
        checks["tables"][row, _HUFFMAN_PLACE[first]] = 1
        np.maximum.at(checks["bad_huffman"], row, fault)
        # What follows a malformed table is not looked at.
        position[fault == HUFFMAN_MALFORMED] = NOWHERE


def _dc_faults(first_symbols: np.ndarray, counts: np.ndarray, addresses: np.ndarray) -> np.ndarray:
    """Return uint8[k], the faults of DC tables, whose symbols must be bit counts.

    Args:
      first_symbols: uint8[k, 16], the first bytes at the addresses.
      counts: int64[k], how many symbols each table has.
      addresses: int64[k], where the symbols begin.
    """
    excess = first_symbols & as_bytes(_DC_MASK[np.minimum(counts, 16)])
    excess = excess.view(np.uint64)  # 16 bytes as two numbers
    doubtful = (counts > 16) | ((excess[:, 0] | excess[:, 1]) > 0)

    faults = np.zeros(len(counts), np.uint8)
    for table in doubtful.nonzero()[0].tolist():
        symbols = memory_view(int(addresses[table]), int(counts[table]))
        faults[table] = _dc_fault(max(symbols))
    return faults


def _dc_fault(largest: int) -> int:
    """Return the fault of a DC table by its largest symbol."""
    return min(max(largest - MAX_DC_SYMBOL, 0), HUFFMAN_MALFORMED)


def _fits_huffman(position: Any, stop: Any, *, symbols: Any, space: Any) -> Any:
    """Return True for a Huffman table that is well formed but for the values of its symbols.

    Args:
      position, stop: where the table and its segment end.
      symbols: how many it has.
      space: the codes out of 2^16 that they use.
    """
    return (position <= stop) & (symbols <= MAX_SYMBOLS) & (space < MAX_CODES)


def _read_rare(segments: Segments, checks: np.ndarray) -> None:
    """Fill in restart intervals, and what other parsers may read differently."""
    row, start, stop = segments.pick(DRI)
    checks["bad_restart"][row[stop - start != 2]] = 1
    _read_conditioning(segments, checks)
    for marker in (DNL, DAC):
        checks["unusual"][segments.pick(marker)[0]] = 1


def _read_conditioning(segments: Segments, checks: np.ndarray) -> None:
    """Check arithmetic conditioning, T.81 B.2.4.3."""
    for row, start, stop in zip(*(column.tolist() for column in segments.pick(DAC))):
        data = np.frombuffer(memory_view(start, stop - start), np.uint8)
        table = data[: data.size & ~1 : 2]
        value = data[1::2]
        good_dc = (table < 16) & (value & 15 <= value >> 4)
        good_ac = (table >= 16) & (table < 32)
        checks["bad_conditioning"][row] |= data.size % 2 or not (good_dc | good_ac).all()


def _read_color(segments: Segments, checks: np.ndarray) -> None:
    """Fill in the segments that name the color model."""
    jfif = segments.find_tagged(APP0, b"JFIF", 14)
    checks["jfif"][segments.row[jfif]] = 1

    adobe = segments.find_tagged(APP14, b"Adobe", 12)
    if adobe.size:
        transform = segments.heads(adobe)[:, 15]
        checks["adobe"][segments.row[adobe]] = 1 + (transform > 0)
