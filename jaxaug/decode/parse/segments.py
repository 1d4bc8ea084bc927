"""The marker segments of JPEG files, found for many files in one walk."""

import re
import struct
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import memory_view
from jaxaug.decode.parse.memory_windows import as_bytes, read_windows

# Marker codes, ITU-T T.81 table B.1.
EOI = 0xD9
SOS = 0xDA
DHT = 0xC4
DAC = 0xCC
DQT = 0xDB
DNL = 0xDC
DRI = 0xDD
APP0 = 0xE0
APP1 = 0xE1
APP14 = 0xEE
COM = 0xFE
FRAMES = (0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)

NOWHERE = 2**60  # beyond the stop of every file: what has no defined size does not fit

HEAD = (
    22  # bytes of a segment read at once, marker and length included: a whole SOF or SOS, any tag
)
_WORDS = np.dtype({"names": ["code", "length"], "formats": [">u2", ">u2"], "itemsize": HEAD})
MOST_SEGMENTS = (
    1000  # 255 ICC parts and 16 MB of XMP stay below it; it bounds the walk over hostile files
)
_FEW = 8  # files: a loop in Python over so many segments takes less time than numpy's calls
_NEXT_MARKER = re.compile(rb"\xff([^\x00\xff])")  # linear also over long filling


def lookup(values: dict[int, int], default: int, size: int = 256) -> np.ndarray:
    """Return int64[size]: the values at their keys, the default elsewhere."""
    table = np.full(size, default)
    table[list(values)] = list(values.values())
    return table


_WITH_LENGTH = {*FRAMES, SOS, DHT, DAC, DQT, DNL, DRI, COM, *range(APP0, APP0 + 16)}
CODES = frozenset(0xFF00 | marker for marker in _WITH_LENGTH)  # markers whose length follows
_SIZE = lookup(dict.fromkeys(CODES, 2), NOWHERE, 2**16)  # of the marker; its length follows
_CODE_AND_LENGTH = struct.Struct(">HH")


class Segments(NamedTuple):
    """Marker segments of many files; the payload of each is the memory [start, stop)."""

    row: np.ndarray
    marker: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    head: np.ndarray  # V22, from the marker on; the payload begins at 4
    resumed: list[int]  # rows of files with rubbish, fillings or TEM between them

    def pick(self, marker: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return row, start and stop of the segments of one marker."""
        chosen = (self.marker == marker).nonzero()[0]
        return self.row[chosen], self.start[chosen], self.stop[chosen]

    def tagged(self, marker: int, tag: bytes, least: int) -> np.ndarray:
        """Return which segments of one marker have `least` bytes or more, tag and a zero first."""
        chosen = (self.marker == marker).nonzero()[0]
        if not chosen.size:
            return chosen
        match = as_bytes(self.head[chosen])[:, 4 : 4 + 5].view("S5")[:, 0] == tag
        return chosen[match & (self.stop[chosen] - self.start[chosen] >= least)]


def walk(
    starts: np.ndarray, stops: np.ndarray, row: np.ndarray, failures: dict[int, str]
) -> Segments:
    """Return all marker segments up to the first SOS.

    Every step advances each unfinished file by one segment; the last few files go on alone.

    Args:
      starts, stops: int64[k], the memory [start, stop) of each file.
      row: int64[m], the files to walk over.
      failures: takes what is wrong with a file whose walk does not end at an SOS.
    """
    position = starts[row] + 2
    stop = stops[row]
    parts: list[tuple[np.ndarray, ...]] = [
        (row[:0], position[:0], position[:0], np.zeros(0, f"V{HEAD}"))
    ]
    resumed_rows: list[int] = []
    steps = 0
    while row.size > _FEW and steps < MOST_SEGMENTS:
        steps += 1
        head = read_windows(position, HEAD, stop)
        words = head.view(_WORDS)
        code = words["code"].astype(np.int64)
        length = words["length"].astype(np.int64)
        after = position + _SIZE[code] + length
        good = (after <= stop) & (length >= 2)
        going = good & (code != (0xFF00 | SOS))
        step = row, position, after, head
        if np.count_nonzero(good) < row.size:
            parts.append(tuple(column[good] for column in step))
            for odd in (
                (~good).nonzero()[0].tolist()
            ):  # filling, rubbish between segments, or an error
                resumed = _resume(int(position[odd]), int(stop[odd]))
                if isinstance(resumed, str):
                    failures[int(row[odd])] = resumed
                else:
                    after[odd] = resumed
                    going[odd] = True
                    resumed_rows.append(int(row[odd]))
        else:
            parts.append(step)
        position = after
        if np.count_nonzero(going) < row.size:
            kept = going.nonzero()[0]
            row = row[kept]
            position = position[kept]
            stop = stop[kept]
    alone: list[tuple[int, int, int, int]] = []
    for file in zip(row.tolist(), position.tolist(), stop.tolist()):
        if failure := _walk_alone(*file, MOST_SEGMENTS - steps, alone, resumed_rows):
            failures[file[0]] = failure
    row, position, after, stop = np.array(alone, np.int64).reshape(-1, 4).T
    parts.append((row, position, after, read_windows(position, HEAD, stop)))
    rows, positions, ends, heads = (np.concatenate(column) for column in zip(*parts))
    markers = as_bytes(heads)[:, 1].copy()
    return Segments(rows, markers, positions + 4, ends, heads, resumed_rows)


def _walk_alone(
    row: int,
    position: int,
    stop: int,
    steps: int,
    found: list[tuple[int, int, int, int]],
    resumed_rows: list[int],
) -> str | None:
    """Add a file's (row, position, after, stop) of each segment from `position` on, and its row to
    `resumed_rows` if it holds anything else; return what is wrong, if anything."""
    data = memory_view(position, stop - position)
    at = 0
    for _ in range(steps):
        code, length = _CODE_AND_LENGTH.unpack_from(data, at) if at + 4 <= len(data) else (0, 0)
        after = at + 2 + length
        if code in CODES and length >= 2 and after <= len(data):
            found.append((row, position + at, position + after, stop))
            if code == 0xFF00 | SOS:
                return None
            at = after
            continue
        resumed = _resume(position + at, stop)
        if isinstance(resumed, str):
            return resumed
        at = resumed - position
        resumed_rows.append(row)
    return f"more than {MOST_SEGMENTS} segments before the image data"


def _resume(position: int, stop: int) -> int | str:
    """Return where a file goes on behind what is no well-formed segment, or what is wrong."""
    data = memory_view(position, max(stop - position, 0))
    found = _NEXT_MARKER.search(data)
    if not found:
        return "the JPEG ends inside its header"
    marker = found[1][0]
    at = found.end() - 2
    if marker == 0x01 or 0xD0 <= marker <= 0xD7:  # TEM and RST have no segment
        return position + found.end()
    if marker == EOI:
        return "the JPEG ends before any image data"
    if marker not in _WITH_LENGTH:
        return f"a marker FF{marker:02X} in the JPEG header"
    if at > 0:
        return position + at
    return f"the JPEG segment FF{marker:02X} is cut or has a wrong length"
