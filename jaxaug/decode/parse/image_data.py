"""Checks of the image data of JPEG files: the end marker, and the number of scans."""

import numpy as np

from jaxaug.decode._types import memory_view
from jaxaug.decode.parse.memory_windows import as_bytes, read_windows
from jaxaug.decode.parse.segments import EOI, SOS

_MAX_SCANS = 500  # each costs a pass over the image, however few bytes it has
# Bytes of a file's end that are read for all files at once: few have more behind the end marker.
# `read_windows` takes fewer than 64 bytes at once.
_TAIL = 48
_END = bytes((0xFF, EOI))
# Faults of the end; a file without its end marker may be taken all the same, one without data not.
NO_END = (
    "a truncated JPEG: no end marker behind its image data (truncated='accept' of decode_image and "
    "of the Decoder takes what is there)"
)
_NO_DATA = "a truncated JPEG: no image data"
_MIN_DATA = 3  # bytes behind the scan header, an end marker included


def check_end(
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
            faults[row] = NO_END
    empty = read_windows(scan_start, 2, stops).view(">u2") == (0xFF00 | EOI)
    empty |= stops - scan_start < _MIN_DATA
    return faults | dict.fromkeys(empty.nonzero()[0].tolist(), _NO_DATA)


def find_end_fault(data: memoryview, start: int) -> str:
    """Return what `check_end` finds wrong with one file, or "".

    Args:
      data: the file from its image data on.
      start: address of the data.
    """
    if data[:2] == _END or len(data) < _MIN_DATA:
        return _NO_DATA
    ended = data[-2:] == _END or _has_end(start + 1, start + len(data))
    return "" if ended else NO_END


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


def check_scans(
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
        fault = find_scans_fault(
            int(scan_start[row]), int(stops[row]), int(pixels[row]), max_scanned
        )
        if fault:
            failures[row] = fault


def find_scans_fault(scan_start: int, stop: int, pixels: int, max_scanned: int) -> str:
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
