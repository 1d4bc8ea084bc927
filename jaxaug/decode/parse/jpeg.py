"""The byte check of JPEG files: markers, lengths, tables and end, for many files in one marker
walk.

A file passes exactly when a decoder can start on it: what the frame and the first scan refer to is
there and well formed, and the file has its end. Damage inside the entropy-coded data is not looked
for: it costs pixels, not the image. The rules are those of ITU-T T.81 as libjpeg-turbo enforces
them.

What differs from file to file (lengths, table contents, the sides) is checked with numpy, all files
at once. The rest becomes one short record a file, its evidence; a data set has few different ones,
and plain Python judges each of them once.
"""

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded, memory_view
from jaxaug.decode.parse.exif import read_orientation
from jaxaug.decode.parse.image_data import check_end, check_scans, end_fault, scans_fault
from jaxaug.decode.parse.jpeg_checks import (
    EVIDENCE,
    LARGEST_SIDE,
    PARTS,
    Component,
    Evidence,
    read_evidence,
)
from jaxaug.decode.parse.segments import DRI, Segments, walk
from jaxaug.decode.parse.single_jpeg import read_jpeg

# Color models as the file stores them.
GRAY = 1
YCBCR = 2
RGB = 3
CMYK = 4
YCCK = 5

_SHORTEST = 64  # bytes; one quantization table alone has more
_MOST_BLOCKS = 10  # blocks in one interleaved MCU, T.81 B.2.3

LOSSLESS = 3  # SOF number
# Baseline, extended, progressive, lossless; the arithmetic ones.
_DECODABLE = (0, 1, 2, LOSSLESS, 9, 10)
_PROGRESSIVE = (2, 10)


class JpegColumns(NamedTuple):
    """Columns that `check_jpegs` found, one row a file; the fields are those of `Headers`."""

    height: np.ndarray
    width: np.ndarray
    orientation: np.ndarray
    coding: np.ndarray
    precision: np.ndarray
    components: np.ndarray
    scan_components: np.ndarray
    sampling: np.ndarray
    color: np.ndarray
    scan_offset: np.ndarray
    plain: np.ndarray


def check_jpegs(
    starts: np.ndarray,
    stops: np.ndarray,
    max_scanned: int,
) -> tuple[JpegColumns, dict[int, str]]:
    """Check k JPEG files that begin with FF D8.

    Args:
      starts, stops: int64[k], the memory [start, stop) of each file, at least two bytes.
      max_scanned: the number of scans times the number of pixels of a file with several scans.

    Returns:
      The columns, and what is wrong with the files that are not good, row -> clause.
    """
    failures: dict[int, str] = {}
    long_enough = stops - starts >= _SHORTEST
    for row in (~long_enough).nonzero()[0].tolist():
        failures[row] = f"a JPEG header of only {stops[row] - starts[row]} bytes"
    segments = walk(starts, stops, long_enough.nonzero()[0], failures)
    evidence, size, scan_start = read_evidence(segments, stops)
    *layout, several_scans = _judge_all(evidence, failures).T
    columns = JpegColumns(
        height=size[:, 0],
        width=size[:, 1],
        orientation=read_orientation(segments, starts.size),
        scan_offset=scan_start - starts,
        **dict(zip(_Layout._fields, layout)),
    )
    _check_lossless_restarts(segments, columns, failures)
    check_end(scan_start, stops, failures)
    pixels = np.where(several_scans, size[:, 0].astype(np.int64) * size[:, 1], 0)
    check_scans(scan_start, stops, pixels, max_scanned, failures)
    return columns, failures


def check_jpeg(
    data: memoryview,
    start: int,
    max_scanned: int,
) -> tuple[tuple[int, ...], str] | None:
    """Check one file as `check_jpegs` does, in a tenth of the time.

    Args:
      data: the file, at least two bytes.
      start: its address.
      max_scanned: see `check_jpegs`.

    Returns:
      The fields of `JpegColumns`, and what is wrong with the file or ""; None for a file of an
      unusual form, which `check_jpegs` must check.
    """
    found = read_jpeg(data) if len(data) >= _SHORTEST else None
    if found is None:
        return None
    verdict = _judge(found.evidence)
    layout, fault = (_Layout(), verdict) if isinstance(verdict, str) else (verdict, "")
    if layout.coding == LOSSLESS:
        return None
    image = start + found.scan_start
    stop = start + len(data)
    if not fault:
        fault = end_fault(data[found.scan_start :], image)
    if not fault and layout.several_scans:
        fault = scans_fault(image, stop, found.height * found.width, max_scanned)
    size = found.height, found.width
    return (*size, found.orientation, *layout[:6], found.scan_start, layout.plain), fault


def first_segments(encoded: Encoded) -> list[tuple[int, int, int]]:
    """Return (marker, start, stop) of the payloads of a good JPEG up to its first SOS."""
    starts = encoded.addresses.astype(np.int64)
    segments = walk(starts, starts + encoded.lengths.astype(np.int64), np.zeros(1, np.int64), {})
    offsets = (segments.start - starts[0]).tolist(), (segments.stop - starts[0]).tolist()
    return list(zip(segments.marker.tolist(), *offsets))


# ---- the verdict


class _Layout(NamedTuple):
    """Facts of a good file by its evidence; all but the last are columns of `Headers`."""

    coding: int = 0
    precision: int = 0
    components: int = 0
    scan_components: int = 0
    sampling: int = 0
    color: int = 0
    plain: int = 0
    several_scans: int = 0


def _judge_all(evidence: np.ndarray, failures: dict[int, str]) -> np.ndarray:
    """Return int64[k, 8]: a `_Layout` each, zeros for a file that is not good."""
    numbers: defaultdict[bytes, int] = defaultdict(lambda: len(numbers))
    keys = evidence.view(f"V{EVIDENCE.itemsize}").tolist()
    number = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))
    layouts = np.zeros((len(numbers), len(_Layout._fields)), np.int64)
    for each, found in enumerate(map(_judge, numbers)):
        if isinstance(found, _Layout):
            layouts[each] = found
            continue
        for row in (number == each).nonzero()[0].tolist():
            failures.setdefault(row, found)
    return layouts[number]


@lru_cache(2**12)
def _judge(evidence: bytes) -> _Layout | str:
    """Return the layout of a good file, or what a decoder would first stumble over."""
    facts = Evidence(*PARTS.unpack(evidence))
    components = facts.components()
    clause = (
        _fault_of_form(facts)
        or _fault_of_frame(facts, components)
        or _fault_of_scan(facts, components)
    )
    if clause:
        return clause
    sampling = sum(each.factors << 24 - 8 * i for i, each in enumerate(components))
    count = len(components)
    used = facts.scan[2]
    several = facts.coding in _PROGRESSIVE or used < count
    color = _color(facts, components)
    plain = _is_plain(facts, components, color)
    return _Layout(facts.coding, facts.frame[4], count, used, sampling, color, plain, several)


def _fault_of_form(facts: Evidence) -> str | None:
    """Check that frame and scan are there, of the right lengths, and name the same components, and
    that the tables are well formed."""
    if not facts.frames:
        return "no JPEG frame header (SOF)"
    if facts.frames > 1:
        return "more than one JPEG frame header (SOF)"
    if int.from_bytes(facts.frame[2:4], "big") != 8 + 3 * facts.frame[9]:
        return "a JPEG frame header of the wrong length"
    length = int.from_bytes(facts.scan[:2], "big")
    used = facts.scan[2]
    if not length:
        return "no JPEG scan (SOS)"
    if length != 6 + 2 * used or not 1 <= used <= 4:
        return "a JPEG scan header of the wrong length"
    known = [each.identity for each in facts.components()]
    scanned = facts.scan[3 : 3 + 2 * used : 2]
    if len(set(scanned)) < used or any(known.count(each) != 1 for each in scanned):
        return "a JPEG scan whose components are not those of the frame"
    if list(scanned) != [each for each in known if each in scanned]:  # T.81 B.2.3
        return "a JPEG scan whose components are not in the order of the frame"
    if facts.bad_quantization:
        return "a malformed JPEG quantization table"
    if facts.bad_huffman:
        return "a malformed JPEG Huffman table"


def _fault_of_frame(facts: Evidence, components: list[Component]) -> str | None:
    coding = facts.coding
    precision = facts.frame[4]
    count = facts.frame[9]
    if coding not in _DECODABLE:
        sort = "an arithmetic lossless" if coding == 11 else "a hierarchical"
        return f"{sort} JPEG (SOF{coding})"
    if precision != 8:
        return f"a JPEG of {precision} bits a sample, not 8"
    if 1 in facts.sides:
        return "a JPEG without height or width"
    if 2 in facts.sides:
        return f"a JPEG side above {LARGEST_SIDE} pixels"
    if count not in (1, 3, 4):
        return "a JPEG whose components are not 1, 3 or 4"
    for factors in zip(*((each.factors >> 4, each.factors & 15) for each in components)):
        if not all(1 <= each <= 4 and max(factors) % each == 0 for each in factors):
            return "JPEG sampling factors that do not fit"
    if coding == LOSSLESS and _color(facts, components) in (YCBCR, YCCK):
        # libjpeg-turbo converts no colors of a lossless file.
        return "a lossless JPEG whose colors are not RGB, CMYK or gray"


def _fault_of_scan(facts: Evidence, components: list[Component]) -> str | None:
    """Check that what the first scan needs is defined."""
    used = facts.scan[2]
    progressive = facts.coding in _PROGRESSIVE
    lossless = facts.coding == LOSSLESS
    known = {each.identity: each for each in components}
    coded = [known[each] for each in facts.scan[3 : 3 + 2 * used : 2]]
    if used > 1 and sum((each.factors >> 4) * (each.factors & 15) for each in coded) > _MOST_BLOCKS:
        return "JPEG sampling factors too large for an interleaved scan"
    if not lossless and not all(each.table < 4 and facts.tables[each.table] for each in coded):
        return "a JPEG component without its quantization table"
    first, last, bits = facts.scan[3 + 2 * used : 6 + 2 * used]
    if progressive:
        band = first <= last <= 63 and used == 1 if first else last == 0
        if not (band and bits >> 4 in (0, (bits & 15) + 1) and bits & 15 <= 13):
            return "a progressive JPEG scan with wrong parameters"
    # Predictor and point transform, T.81 H.1.2.
    if lossless and not (1 <= first <= 7 and last == 0 and bits < 8):
        return "a lossless JPEG scan with wrong parameters"
    if lossless and used < len(components):  # libjpeg-turbo 3 does not decode all of these
        return "a lossless JPEG of several scans"
    if facts.coding < 8:  # by Huffman; a progressive scan codes either DC or AC coefficients
        named = facts.scan[4 : 4 + 2 * used : 2]
        slots = [] if progressive and first else [(each >> 4, 4) for each in named]
        only_dc = lossless or (progressive and not first)
        slots += [] if only_dc else [(each & 15, 8) for each in named]
        if not all(slot < 4 and facts.tables[base + slot] for slot, base in slots):
            return "a JPEG scan without its Huffman table"
    if facts.bad_restart:
        return "a JPEG restart interval of the wrong length"
    if facts.bad_conditioning:
        return "a malformed JPEG arithmetic conditioning table"


def _color(facts: Evidence, components: list[Component]) -> int:
    """Return the color model, guessed as by libjpeg from JFIF, Adobe's flag and component ids."""
    if len(components) == 1:
        return GRAY
    if len(components) == 4:
        return YCCK if facts.adobe == 2 else CMYK
    lettered = bytes(each.identity for each in components) == b"RGB" or facts.coding == LOSSLESS
    rgb = not facts.jfif and (facts.adobe == 1 or (not facts.adobe and lettered))
    return RGB if rgb else YCBCR


def _is_plain(facts: Evidence, components: list[Component], color: int) -> bool:
    """Return False where a parser other than libjpeg's may read the header in another way."""
    used = facts.scan[2]
    lettered = bytes(each.identity for each in components) == b"RGB"
    unclear = color == YCBCR and (lettered or facts.adobe == 1)
    tables = facts.scan[4 : 4 + 2 * used : 2]
    # T.81 B.2.3 for sequential scans, and its table B.5 for two Huffman tables of each class.
    whole = facts.scan[3 + 2 * used : 6 + 2 * used] == b"\0\x3f\0"
    usual = whole and {*tables} <= {0, 1, 0x10, 0x11}
    return usual and not unclear and not facts.unusual


def _check_lossless_restarts(
    segments: Segments,
    columns: JpegColumns,
    failures: dict[int, str],
) -> None:
    """Check that a restart interval of a lossless file is whole lines, T.81 H.1.1."""
    intervals: dict[int, int] = {}
    for row, start, stop in zip(*(column.tolist() for column in segments.pick(DRI))):
        if columns.coding[row] == LOSSLESS:
            intervals[row] = int.from_bytes(memory_view(start, stop - start), "big")
    for row, interval in intervals.items():
        sampling = int(columns.sampling[row])
        widest = max(sampling >> 8 * each + 4 & 15 for each in range(4))
        together = widest if columns.components[row] > 1 else 1  # pixels of a line
        if interval % -(-int(columns.width[row]) // together):
            failures.setdefault(row, "a lossless JPEG whose restart interval is no whole lines")
