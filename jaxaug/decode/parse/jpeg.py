"""The byte check of JPEG files: markers, lengths, tables and the end, for many files at once.

A file passes exactly when a decoder can start on it: everything that the frame and the first scan
refer to is there and well formed, and the file has its end. Damage inside the entropy-coded data is
not searched for, as it costs pixels and not the image.

The steps: `segments.py` finds the segments, `jpeg_checks.py` reads and checks them, `jpeg_rules.py`
applies the rules, `image_data.py` looks at what follows the first scan header.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded, memory_view
from jaxaug.decode.parse.exif import read_orientation
from jaxaug.decode.parse.image_data import (
    NO_END,
    check_end,
    check_scans,
    find_end_fault,
    find_scans_fault,
)
from jaxaug.decode.parse.jpeg_checks import CHECKS, read_checks
from jaxaug.decode.parse.jpeg_rules import LOSSLESS, JpegLayout, validate
from jaxaug.decode.parse.segments import DRI, Segments, walk
from jaxaug.decode.parse.single_jpeg import read_jpeg

_MIN_LENGTH = 64  # bytes; one quantization table alone has more


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
    long_enough = stops - starts >= _MIN_LENGTH
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

    _check_lossless_restarts(segments, columns, failures)
    for row, fault in check_end(scan_start, stops, failures).items():
        if fault == NO_END and truncated == "accept":
            columns.plain[row] = 0
        else:
            failures.setdefault(row, fault)
    pixels = np.where(several_scans, size[:, 0].astype(np.int64) * size[:, 1], 0)
    check_scans(scan_start, stops, pixels, max_scanned, failures)
    return columns, failures


def check_jpeg(
    data: memoryview,
    start: int,
    max_scanned: int,
    truncated: str,
) -> tuple[tuple[int, ...], str] | None:
    """Check one file as `check_jpegs` does, in a tenth of the time.

    Args:
      data: the file, at least two bytes.
      start: its address.
      max_scanned, truncated: see `check_jpegs`.

    Returns:
      The fields of `JpegColumns`, and the reason why the file is not good or ""; None for a file
      of an unusual form, which `check_jpegs` must check.
    """
    found = read_jpeg(data) if len(data) >= _MIN_LENGTH else None
    if found is None:
        return None

    valid = validate(found.checks)
    layout = JpegLayout() if isinstance(valid, str) else valid
    fault = valid if isinstance(valid, str) else ""
    if layout.coding == LOSSLESS:
        return None

    scan_start = start + found.scan_start
    plain = layout.plain
    if not fault:
        fault = find_end_fault(data[found.scan_start :], scan_start)
    if fault == NO_END and truncated == "accept":
        fault = ""
        plain = 0
    if not fault and layout.several_scans:
        pixels = found.height * found.width
        fault = find_scans_fault(scan_start, start + len(data), pixels, max_scanned)

    size = (found.height, found.width)
    return (*size, found.orientation, *layout[:6], found.scan_start, plain), fault


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
