"""The marker segments of JPEG files, found for many files in one walk."""

import re
import struct
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import memory_view
from jaxaug.decode.image.parse.memory_windows import as_bytes, read_inside, read_windows

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

# A size beyond the end of every file, for segments and tables that have no defined size.
NOWHERE = 2**60

# Bytes of a segment that are read at once, marker and length included: a whole SOF or SOS, any tag.
HEAD = 22
_CODE_AND_LENGTH_BYTES = 4
# Bound on the walk over hostile files: 255 parts of an ICC profile and 16 MB of XMP stay below it.
MAX_SEGMENTS = 1000
# Up to so many files, a loop in Python over all their segments takes less time than numpy's calls.
_MAX_LOOPED_FILES = 8
_NEXT_MARKER = re.compile(rb"\xff([^\x00\xff])")  # linear also over long filling


def make_table(values: dict[int, int], default: int, size: int = 256) -> np.ndarray:
    """Return int64[size], with the values at their keys and the default elsewhere."""
    table = np.full(size, default)
    table[list(values)] = list(values.values())
    return table


_WITH_LENGTH = {*FRAMES, SOS, DHT, DAC, DQT, DNL, DRI, COM, *range(APP0, APP0 + 16)}
# Markers, with FF, that are followed by a length.
CODES = frozenset(0xFF00 | marker for marker in _WITH_LENGTH)
_SOS_CODE = 0xFF00 | SOS
# Indexed by the code and added to the length: the bytes of a segment.
_CODE_BYTES = make_table(dict.fromkeys(CODES, 2), NOWHERE, 2**16)
_CODE_AND_LENGTH = struct.Struct(">HH")


class Segments(NamedTuple):
    """The m marker segments of k files, up to the first SOS of each.

    Attributes:
      row: int64[m], the file of each segment.
      marker: uint8[m].
      start, stop: int64[m], the memory [start, stop) of each payload.
      file_stops: int64[k], the address after the end of each file.
      resumed: rows of files with other bytes between their segments: rubbish, filling or TEM.
    """

    row: np.ndarray
    marker: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    file_stops: np.ndarray
    resumed: list[int]

    def pick(self, marker: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return row, start and stop of the segments of one marker."""
        chosen = (self.marker == marker).nonzero()[0]
        return self.row[chosen], self.start[chosen], self.stop[chosen]

    def head_windows(self, chosen: np.ndarray) -> np.ndarray:
        """Return V22[c], the first bytes of some segments; the payload begins at 4.

        Args:
          chosen: int64[c], the numbers of the segments.
        """
        stops = self.file_stops[self.row[chosen]]
        return read_windows(self.start[chosen] - 4, HEAD, stops)

    def heads(self, chosen: np.ndarray) -> np.ndarray:
        """Return the same as uint8[c, 22]."""
        return as_bytes(self.head_windows(chosen))

    def find_tagged(self, marker: int, tag: bytes, min_length: int) -> np.ndarray:
        """Return the numbers of the segments that begin with a tag and a zero.

        Args:
          marker: of the segments.
          tag: up to five bytes.
          min_length: bytes of the payload; shorter segments do not count.
        """
        chosen = (self.marker == marker).nonzero()[0]
        if not chosen.size:
            return chosen
        tags = self.heads(chosen)[:, 4 : 4 + 5].view("S5")[:, 0]
        long_enough = self.stop[chosen] - self.start[chosen] >= min_length
        return chosen[(tags == tag) & long_enough]


def walk(
    starts: np.ndarray, stops: np.ndarray, row: np.ndarray, failures: dict[int, str]
) -> Segments:
    """Return all marker segments up to the first SOS.

    Args:
      starts, stops: int64[k], the memory [start, stop) of each file.
      row: int64[m], the files to walk over, of six bytes or more.
      failures: receives row -> reason for the files whose segments do not lead to an SOS.
    """
    files = _Walk(row, starts[row] + 2, stops, failures)
    steps = 0
    while files.row.size > _MAX_LOOPED_FILES and steps < MAX_SEGMENTS:
        files.step()
        steps += 1
    files.finish_one_by_one(MAX_SEGMENTS - steps)
    return files.segments()


class _Walk:
    """A walk over many files; each step goes over one segment of every unfinished file.

    Args:
      row: int64[m], the files.
      position: int64[m], the address of the first segment of each.
      file_stops: int64[k], the address after the end of each of all k files.
      failures: receives row -> reason.

    Attributes:
      row, position, stop: of the unfinished files.
    """

    def __init__(
        self,
        row: np.ndarray,
        position: np.ndarray,
        file_stops: np.ndarray,
        failures: dict[int, str],
    ):
        self.row = row
        self.position = position
        self.stop = file_stops[row]
        self._file_stops = file_stops
        self._failures = failures
        self._resumed: list[int] = []
        # Row, code, position and end of the segments found.
        self._found: list[tuple[np.ndarray, ...]] = []

    def step(self) -> None:
        """Go over one segment of each unfinished file."""
        # Where fewer bytes than these are left, any others will do: a segment that begins there
        # ends beyond the file, as a length counts its own two bytes.
        last = self.stop - _CODE_AND_LENGTH_BYTES
        words = read_inside(np.minimum(self.position, last), _CODE_AND_LENGTH_BYTES)
        word = words.view(">u4").astype(np.int64)
        code = word >> 16
        length = word & 0xFFFF
        after = self.position + length
        after += _CODE_BYTES[code]
        good = (length >= 2) & (after <= self.stop)
        unfinished = code != _SOS_CODE

        columns = (self.row, code, self.position, after)
        if np.count_nonzero(good) < self.row.size:
            self._found.append(tuple(column[good] for column in columns))
            unfinished &= good
            self._skip_other_bytes((~good).nonzero()[0].tolist(), after, unfinished)
        else:
            self._found.append(columns)

        self.position = after
        if np.count_nonzero(unfinished) < self.row.size:
            kept = unfinished.nonzero()[0]
            self.row = self.row[kept]
            self.position = self.position[kept]
            self.stop = self.stop[kept]

    def _skip_other_bytes(
        self, numbers: list[int], after: np.ndarray, unfinished: np.ndarray
    ) -> None:
        """Move `after` to the next segment of some files, or note why there is none."""
        for number in numbers:
            row = int(self.row[number])
            resumed = _resume(int(self.position[number]), int(self.stop[number]))
            if isinstance(resumed, str):
                self._failures[row] = resumed
                continue
            after[number] = resumed
            unfinished[number] = True
            self._resumed.append(row)

    def finish_one_by_one(self, max_steps: int) -> None:
        """Go over the last files in a loop, with at most `max_steps` segments each."""
        found: list[tuple[int, int, int, int]] = []
        for row, position, stop in zip(
            self.row.tolist(), self.position.tolist(), self.stop.tolist()
        ):
            fault = _walk_alone(
                row,
                position,
                stop,
                max_steps=max_steps,
                found=found,
                resumed_rows=self._resumed,
            )
            if fault:
                self._failures[row] = fault

        self._found.append(tuple(np.array(found, np.int64).reshape(-1, 4).T))

    def segments(self) -> Segments:
        """Return all segments that were found."""
        row, code, position, end = (np.concatenate(column) for column in zip(*self._found))
        return Segments(
            row=row,
            marker=code.astype(np.uint8),  # without FF
            start=position + 4,
            stop=end,
            file_stops=self._file_stops,
            resumed=self._resumed,
        )


def _walk_alone(
    row: int,
    position: int,
    stop: int,
    max_steps: int,
    found: list[tuple[int, int, int, int]],
    resumed_rows: list[int],
) -> str | None:
    """Walk over one file; return the fault that ends the walk, or None at an SOS.

    Args:
      row: of the file.
      position: address of its next segment.
      stop: address after its end.
      max_steps: bound on the number of segments.
      found: receives (row, code, position, end) of each segment.
      resumed_rows: receives the row if there are other bytes between the segments.
    """
    data = memory_view(position, stop - position)
    at = 0
    for _ in range(max_steps):
        code, length = _CODE_AND_LENGTH.unpack_from(data, at) if at + 4 <= len(data) else (0, 0)
        after = at + 2 + length
        if code in CODES and length >= 2 and after <= len(data):
            found.append((row, code, position + at, position + after))
            if code == _SOS_CODE:
                return None
            at = after
            continue

        resumed = _resume(position + at, stop)
        if isinstance(resumed, str):
            return resumed
        at = resumed - position
        resumed_rows.append(row)
    return f"more than {MAX_SEGMENTS} segments before the image data"


def _resume(position: int, stop: int) -> int | str:
    """Return the address of the next segment after other bytes, or the fault."""
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
