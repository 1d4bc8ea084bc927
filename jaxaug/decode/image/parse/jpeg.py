"""The byte check of JPEG files: markers, lengths, tables and the end, for many files at once.

A file passes exactly when a decoder can start on it: everything that the frame and the first scan
refer to is there and well formed, and the file has its end. Damage inside the entropy-coded data is
not searched for, as it costs pixels and not the image.

The steps: `jpeg_segments.py` finds the segments, `jpeg_checks.py` reads and checks them,
`jpeg_rules.py` applies the rules, and this file looks at what follows the first scan header: the
number of scans and the end. Where there are few files, `usual_jpeg.py` does the first two steps for
one after the other.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded, memory_view
from jaxaug.decode.image.parse.exif import read_orientation
from jaxaug.decode.image.parse.jpeg_checks import CHECKS, read_checks
from jaxaug.decode.image.parse.jpeg_rules import LOSSLESS, JpegLayout, validate
from jaxaug.decode.image.parse.jpeg_segments import DRI, EOI, SOS, Segments, walk
from jaxaug.decode.image.parse.memory_windows import as_bytes, read_windows
from jaxaug.decode.image.parse.usual_jpeg import read_usual_jpeg

MIN_JPEG = 64  # bytes; one quantization table alone has more
_MAX_SCANS = 500  # each costs a pass over the image, however few bytes it has
# Bytes of a file's end that are read for all files at once: few have more behind the end marker.
# `read_windows` takes fewer than 64 bytes at once.
_TAIL = 48
_END = bytes((0xFF, EOI))
# Faults of the end; a file without its end marker may be taken all the same, one without data not.
_NO_END = (
    "a truncated JPEG: no end marker behind its image data (truncated='accept' of decode_image and "
    "of the Decoder takes what is there)"
)
_NO_DATA = "a truncated JPEG: no image data"
_MIN_DATA = 3  # bytes behind the scan header, an end marker included


class JpegColumns(NamedTuple):
    """The columns of `Headers` that `check_jpegs` fills in, with one row per file."""

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
    truncated: str,
) -> tuple[JpegColumns, dict[int, str]]:
    """Check k JPEG files that begin with FF D8.

    Args:
      starts, stops: int64[k], the memory [start, stop) of each file, at least two bytes.
      max_scanned: bound on scans times pixels of a file with several scans.
      truncated: "error", or "accept" for files without an end marker, which are not `plain` then.

    Returns:
      The columns, and row -> reason for the files that are not good.
    """
    failures: dict[int, str] = {}
    long_enough = stops - starts >= MIN_JPEG
    for row in (~long_enough).nonzero()[0].tolist():
        failures[row] = f"a JPEG header of only {stops[row] - starts[row]} bytes"

    segments = walk(starts, stops, long_enough.nonzero()[0], failures)
    checks, size, scan_start = read_checks(segments, stops)
    *layout, several_scans = _validate_all(checks, failures).T
    columns = JpegColumns(
        height=size[:, 0],
        width=size[:, 1],
        orientation=read_orientation(segments, starts.size),
        scan_offset=scan_start - starts,
        **dict(zip(JpegLayout._fields, layout)),
    )

    if np.count_nonzero(columns.coding == LOSSLESS):
        _check_lossless_restarts(segments, columns, failures)
    for row, fault in _check_end(scan_start, stops, failures).items():
        if fault == _NO_END and truncated == "accept":
            columns.plain[row] = 0
        else:
            failures.setdefault(row, fault)
    pixels = np.where(several_scans, size[:, 0].astype(np.int64) * size[:, 1], 0)
    _check_scans(scan_start, stops, pixels=pixels, max_scanned=max_scanned, failures=failures)
    return columns, failures


def check_usual_jpeg(data: memoryview, start: int, max_scanned: int) -> tuple[int, ...] | None:
    """Return the fields of `JpegColumns` of a good file of the usual form, in a tenth of the time.

    Args:
      data: a file that begins with FF D8.
      start: its address.
      max_scanned: see `check_jpegs`.

    Returns:
      None for any other file, which `check_jpegs` must check.
    """
    found = read_usual_jpeg(data) if len(data) >= MIN_JPEG else None
    layout = validate(found.checks) if found else ""
    if found is None or isinstance(layout, str) or layout.coding == LOSSLESS:
        return None

    scan_start = start + found.scan_start
    stop = start + len(data)
    if _find_end_fault(data[found.scan_start :], scan_start):
        return None
    pixels = found.height * found.width
    if layout.several_scans and _find_scans_fault(
        scan_start, stop, pixels=pixels, max_scanned=max_scanned
    ):
        return None
    size = (found.height, found.width)
    return (*size, found.orientation, *layout[:6], found.scan_start, layout.plain)


def jpeg_fault(data: bytes) -> str:
    """Return why a JPEG inside of another file is not good, or ""."""
    encoded = Encoded.from_bytes([data])
    starts = encoded.addresses.astype(np.int64)
    stops = starts + encoded.lengths.astype(np.int64)
    _, failures = check_jpegs(starts, stops, max_scanned=2**32, truncated="error")
    return failures.get(0, "")


def first_segments(encoded: Encoded) -> list[tuple[int, int, int]]:
    """Return (marker, start, stop) of the payload of each segment up to the first SOS.

    Args:
      encoded: one good JPEG; the offsets count from its beginning.
    """
    starts = encoded.addresses.astype(np.int64)
    stops = starts + encoded.lengths.astype(np.int64)
    segments = walk(starts, stops, np.zeros(1, np.int64), {})
    payload_starts = (segments.start - starts[0]).tolist()
    payload_stops = (segments.stop - starts[0]).tolist()
    return list(zip(segments.marker.tolist(), payload_starts, payload_stops))


def _validate_all(checks: np.ndarray, failures: dict[int, str]) -> np.ndarray:
    """Return int64[k, 8], a `JpegLayout` for each file; zeros for a file that is not good."""
    numbers: defaultdict[bytes, int] = defaultdict(lambda: len(numbers))
    keys = checks.view(f"V{CHECKS.itemsize}").tolist()
    number = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))

    layouts = np.zeros((len(numbers), len(JpegLayout._fields)), np.int64)
    for each, packed in enumerate(numbers):
        valid = validate(packed)
        if isinstance(valid, JpegLayout):
            layouts[each] = valid
            continue
        for row in (number == each).nonzero()[0].tolist():
            failures.setdefault(row, valid)
    return layouts[number]


def _check_lossless_restarts(
    segments: Segments,
    columns: JpegColumns,
    failures: dict[int, str],
) -> None:
    """Check that the restart interval of a lossless file is a number of whole lines, T.81 H.1.1."""
    intervals: dict[int, int] = {}
    for row, start, stop in zip(*(column.tolist() for column in segments.pick(DRI))):
        if columns.coding[row] == LOSSLESS:
            intervals[row] = int.from_bytes(memory_view(start, stop - start), "big")

    for row, interval in intervals.items():
        sampling = int(columns.sampling[row])
        max_factor = max(sampling >> 8 * each + 4 & 15 for each in range(4))
        unit_width = max_factor if columns.components[row] > 1 else 1  # pixels
        units_per_line = -(-int(columns.width[row]) // unit_width)
        if interval % units_per_line:
            failures.setdefault(row, "a lossless JPEG whose restart interval is no whole lines")


# ---- the image data: its end, and the number of scans


def _check_end(
    scan_start: np.ndarray, stops: np.ndarray, failures: dict[int, str]
) -> dict[int, str]:
    """Return row -> reason for the files without image data, or without an end marker.

    Any bytes may follow the end marker: zeros, a second picture.

    Args:
      scan_start: int64[k], where the image data begins.
      stops: int64[k], the address after the end of each file.
      failures: rows that are not looked at in full.
    """
    faults = {}
    ended = read_windows(stops - 2, 2, stops).view(">u2") == (0xFF00 | EOI)
    rows = (~ended).nonzero()[0]
    if rows.size:  # most trailers are short: all files at once
        first = np.maximum(stops[rows] - _TAIL, np.minimum(scan_start[rows] + 1, stops[rows] - 1))
        tails = as_bytes(read_windows(first, _TAIL, stops[rows]))
        found = ((tails[:, :-1] == 0xFF) & (tails[:, 1:] == EOI)).any(axis=1)
        rows = rows[~found]
    for row in rows.tolist():
        if row not in failures and not _has_end(int(scan_start[row]) + 1, int(stops[row])):
            faults[row] = _NO_END
    empty = read_windows(scan_start, 2, stops).view(">u2") == (0xFF00 | EOI)
    empty |= stops - scan_start < _MIN_DATA
    return faults | dict.fromkeys(empty.nonzero()[0].tolist(), _NO_DATA)


def _find_end_fault(data: memoryview, start: int) -> str:
    """Return what `_check_end` finds wrong with one file, or "".

    Args:
      data: the file from its image data on.
      start: address of the data.
    """
    if data[:2] == _END or len(data) < _MIN_DATA:
        return _NO_DATA
    ended = data[-2:] == _END or _has_end(start + 1, start + len(data))
    return "" if ended else _NO_END


def _has_end(start: int, stop: int) -> bool:
    """Return True if an end marker lies in the memory [start, stop); search backwards."""
    size = 4096
    while start < stop:
        first = max(start, stop - size)
        if _count(EOI, first, stop):
            return True
        stop = first + 1 if first > start else start  # a marker may lie across the border
        size = min(8 * size, 2**18)
    return False


def _check_scans(
    scan_start: np.ndarray,
    stops: np.ndarray,
    pixels: np.ndarray,
    max_scanned: int,
    failures: dict[int, str],
) -> None:
    """Check the number of scans of the files that may have several.

    Args:
      scan_start: int64[k], where the image data begins.
      stops: int64[k], the address after the end of each file.
      pixels: int64[k], of each image; 0 for a file of one scan.
      max_scanned: bound on scans times pixels.
      failures: receives row -> reason.
    """
    for row in pixels.nonzero()[0].tolist():
        if row in failures:
            continue
        fault = _find_scans_fault(
            int(scan_start[row]),
            int(stops[row]),
            pixels=int(pixels[row]),
            max_scanned=max_scanned,
        )
        if fault:
            failures[row] = fault


def _find_scans_fault(scan_start: int, stop: int, *, pixels: int, max_scanned: int) -> str:
    """Return what is wrong with the number of scans of one file that may have several, or ""."""
    scans = 1 + _count(SOS, scan_start, stop)
    if scans > _MAX_SCANS:
        return f"a JPEG of more than {_MAX_SCANS} scans"
    if scans * pixels > max_scanned:
        return f"a JPEG of {scans} scans of {pixels} pixels, more than {max_scanned} in all"
    return ""


def _count(marker: int, start: int, stop: int) -> int:
    """Return the number of markers in the memory [start, stop); mostly without the GIL."""
    data = np.frombuffer(memory_view(start, stop - start), np.uint8)
    code = np.uint16(0xFF | marker << 8)
    pairs = (data[shift : shift + (data.size - shift & ~1)].view("<u2") for shift in (0, 1))
    return sum(int(np.count_nonzero(each == code)) for each in pairs)
