"""Boxes, of which MP4 and MOV are made: where they are, whether all are there, what they tell.

Reference: ISO/IEC 14496-12.
"""

import itertools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxaug.errors import DecodeError

_MAX_BOXES = 100_000  # looked at; a fragmented hour has thousands
_MAX_INNER_BOXES = 10 * _MAX_BOXES
# Boxes that hold tables of samples, or others that do.
_HOLDERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf")
_FRAGMENTS = {b"moof", b"styp", b"sidx"}
_OF_EACH_SAMPLE = 0xF00  # flags of a "trun" that has numbers of each
_UNIT_EACH = struct.pack(">I", 1)  # one run of times, of a unit: FFmpeg joins such samples of sound
_JOINED = 160  # into entries of so many at least
MOVIE_MATRIX, TRACK_MATRIX = 36, 40  # places in "mvhd" and "tkhd", of times of 32 bits
_TRACK_HEADER = 84  # bytes of a "tkhd" at least
Box = tuple[int, int]  # where its content begins and ends


def end_of_boxes(data: memoryview) -> int:
    """Return where a file ends by its boxes: section 4.2.

    Raises:
      DecodeError: there is no "moov", or something is damaged.
    """
    kinds = set()
    start = 0
    for _ in range(_MAX_BOXES):
        if start + 8 > len(data):
            break
        size, kind = struct.unpack_from(">I4s", data, start)
        if size == 1 and start + 16 <= len(data):  # a size of 64 bits follows
            size = struct.unpack_from(">Q", data, start + 8)[0]
        elif size == 0:  # up to the end of the file
            size = len(data) - start
        if not 8 <= size <= len(data) - start:
            # Players show all frames where those are there, whatever a length claims behind them.
            whole = b"moov" in kinds and not {kind, *kinds} & _FRAGMENTS
            if whole and _samples_end(data) <= len(data):
                break
            if size < 8:
                raise DecodeError(f"its boxes are damaged at byte {start}")
            return start + size
        kinds.add(kind)
        start += size
    if b"moov" not in kinds:
        raise DecodeError("it has no 'moov', the table of its frames: it was never finished")
    _check_claims(data)
    return len(data)


def _samples_end(data: memoryview) -> float:
    """Return where the last sample ends that the tables name; infinity if they are odd."""
    tracks, _ = _tracks(data)
    return max(map(_track_end, tracks[1:]), default=math.inf)


def _tracks(data: memoryview) -> tuple[list[dict[bytes, memoryview]], int]:
    """Return the boxes before the first track and of each, and what fragments claim beside them."""
    tracks: list[dict[bytes, memoryview]] = [{}]
    fragmented = 0
    for kind, content in itertools.islice(_boxes_below(data), _MAX_INNER_BOXES):
        if kind == b"trak":
            tracks.append({})
        elif kind == b"trun" and not int.from_bytes(content[:4], "big") & _OF_EACH_SAMPLE:
            fragmented += int.from_bytes(content[4:8], "big")
        # Of QuickTime's two handlers one has the kind of the track.
        tracks[-1][bytes(content[8:12]) if kind == b"hdlr" else kind] = content
    return tracks, fragmented


def _track_end(tables: dict[bytes, memoryview]) -> float:
    """Return where the samples of a track end: sections 8.7.3 to 8.7.5."""
    nothing = memoryview(bytes(12))
    sizes, runs = (tables.get(kind, nothing) for kind in (b"stsz", b"stsc"))
    number, kind = (">u8", b"co64") if b"co64" in tables else (">u4", b"stco")
    chunks = _rows(tables.get(kind, nothing)[8:], number, 1)[:, 0]
    runs = _rows(runs[8:], ">u4", 3)
    lengths = _rows(sizes[12:], ">u4", 1)[:, 0]
    firsts = np.append(runs[:, 0], len(chunks) + 1)
    if not len(chunks) or any(sizes[4:8]) or firsts[0] != 1 or (np.diff(firsts) < 1).any():
        return math.inf
    behind = np.cumsum(np.repeat(runs[:, 1], np.diff(firsts)))  # the last sample of each chunk
    if behind[-1] > len(lengths) or (chunks < 0).any():  # offsets of 64 bits
        return math.inf
    ends = np.append(0, np.cumsum(lengths))
    return int((chunks + np.diff(ends[behind], prepend=0)).max())


def _rows(content: memoryview, number: str, columns: int) -> np.ndarray:
    """Return the whole rows of a table, int64[n, columns]."""
    size = columns * np.dtype(number).itemsize
    found = np.frombuffer(content[: len(content) // size * size], number)
    return found.reshape(-1, columns).astype(np.int64)


def _check_claims(data: memoryview) -> None:
    """Raise DecodeError where the tables claim more samples than the file has bytes.

    FFmpeg makes an entry for each when it opens a file: 10^7, of which a few bytes tell, take a
    gigabyte and half a minute. A sample is a byte at least.
    """
    tracks, fragmented = _tracks(data)
    claimed = fragmented + sum(map(_claimed, tracks))
    if claimed > len(data):
        raise DecodeError(
            f"its tables claim {claimed:,} samples, more than its {len(data):,} bytes"
        )


def _boxes_below(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the kind and content of each box, and behind it of those inside."""
    opened = [inner_boxes(data, 0, len(data))]
    while opened:
        box = next(opened[-1], None)
        if box is None:
            opened.pop()
            continue
        kind, begin, end = box
        yield kind, data[begin:end]
        if kind in _HOLDERS:
            opened.append(inner_boxes(data, begin, end))


def _claimed(tables: dict[bytes, memoryview]) -> int:
    """Return the entries of FFmpeg's index of a track whose samples share a size.

    Other tracks have a number for each.
    """
    nothing = memoryview(b"")
    sizes, times, runs = (tables.get(kind, nothing) for kind in (b"stsz", b"stts", b"stsc"))
    if not any(sizes[4:8]):
        return 0
    chunked = b"soun" in tables and b"vide" not in tables
    if not chunked or times[4:8] != _UNIT_EACH or times[12:16] != _UNIT_EACH:
        return int.from_bytes(sizes[8:12], "big")
    chunks = len(tables.get(b"stco", nothing)) // 4 + len(tables.get(b"co64", nothing)) // 8
    runs = runs[8 : 8 + (len(runs) - 8) // 12 * 12]
    longest = max((count for _, count, _ in struct.iter_unpack(">3I", runs)), default=0)
    return chunks * longest // _JOINED


def is_encrypted(data: memoryview) -> bool:
    """Return True where the frames of a track are: ISO/IEC 23001-7 section 4.1."""
    boxes = itertools.islice(_boxes_below(data), _MAX_INNER_BOXES)
    return any(kind == b"stsd" and content[12:16] == b"encv" for kind, content in boxes)


def is_mirrored(data: memoryview, track: int) -> bool:
    """Return True where the matrix of a track reflects it."""
    boxes = find_track(data, track)
    matrix = read_matrix(data, boxes[b"tkhd"], TRACK_MATRIX) if boxes else None
    if matrix is None:
        return False
    a, b, c, d = matrix
    return a * d < b * c


def read_matrix(data: memoryview, header: Box, place: int) -> tuple[int, int, int, int] | None:
    """Return (a, b, c, d) of a matrix in 2^-16, section 8.3.2; None where it is cut.

    Args:
      data: the file.
      header: of the movie or of a track.
      place: of its matrix.
    """
    begin, end = header
    place += begin + (12 if data[begin] == 1 else 0)  # longer times
    if place + 20 > end:
        return None
    a, b, _, c, d = struct.unpack_from(">5i", data, place)
    return a, b, c, d


def find_track(data: memoryview, track: int) -> dict[bytes, Box]:
    """Return the boxes of a track; none without it."""
    for kind, begin, end in inner_boxes(data, 0, len(data)):
        if kind != b"moov":
            continue
        for kind, place, stop in inner_boxes(data, begin, end):
            if kind != b"trak":
                continue
            boxes = boxes_in(data, (place, stop))
            place, stop = boxes.get(b"tkhd", (0, 0))
            if stop - place < _TRACK_HEADER:
                continue
            wide = 8 if data[place] == 1 else 0  # its times have 64 bits
            if struct.unpack_from(">I", data, place + 12 + wide)[0] == track:
                return boxes
    return {}


def tables_of(data: memoryview, boxes: Mapping[bytes, Box]) -> Mapping[bytes, Box]:
    """Return the tables of the samples of a track, given its boxes; none where it has none."""
    for name in (b"mdia", b"minf", b"stbl"):
        boxes = boxes_in(data, boxes.get(name, (0, 0)))
    return boxes


def boxes_in(data: memoryview, place: Sequence[int]) -> dict[bytes, Box]:
    """Return the boxes within a place by their kinds, the last one of each."""
    return {kind: (begin, end) for kind, begin, end in inner_boxes(data, *place)}


def inner_boxes(data: memoryview, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind of each box within [start, end), and where its content begins and ends."""
    while start + 8 < end:
        size, kind = struct.unpack_from(">I4s", data, start)
        begin = start + 8
        if size == 1 and begin + 8 <= end:
            size = struct.unpack_from(">Q", data, begin)[0]
            begin += 8
        elif size == 0:
            size = end - start
        if size < 8 or begin >= len(data):
            return
        yield kind, begin, min(start + size, end)
        start += size
