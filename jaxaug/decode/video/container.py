"""Containers of videos: which one some bytes are, and whether they are all there.

FFmpeg is told the container and does not guess: among what it would guess are playlists, which open
other files and addresses.
"""

import itertools
import math
import struct
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from jaxaug.errors import DecodeError

_FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof")
_MAX_BOXES = 100_000  # looked at; a fragmented hour has thousands
_MAX_INNER_BOXES = 10 * _MAX_BOXES
# Boxes that hold tables of samples, or others that do.
_HOLDERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf")
_FRAGMENTS = {b"moof", b"styp", b"sidx"}
_OF_EACH_SAMPLE = 0xF00  # flags of a "trun" that has numbers of each
_UNIT_EACH = struct.pack(">I", 1)  # one run of times, of a unit: FFmpeg joins such samples of sound
_JOINED = 160  # into entries of so many at least
_TRACK_HEADER = 84  # bytes of a "tkhd" at least
_EBML = b"\x1aE\xdf\xa3"
_SEGMENT = b"\x18S\x80g"
_ASF = bytes.fromhex("3026b2758e66cf11a6d900aa")
# Bytes of a packet of MPEG-TS, and of a file before its first byte: ISO 13818-1; on Blu-ray discs a
# time stands before each; in broadcasts a code that corrects errors behind it.
_TRANSPORT = ((188, 0), (192, 4), (204, 0))
_SYNC = 0x47
_PROBED = 5  # packets of MPEG-TS


def container_at(data: memoryview) -> str | None:
    """Return FFmpeg's name of the container that begins a file, as "mov" for MP4; None for none.

    Example:
      >>> container_at(memoryview(b"RIFF" + bytes([4, 0, 0, 0]) + b"AVI "))
      'avi'
    """
    head = bytes(data[:12])
    if head[4:8] in _FIRST_BOXES:
        return "mov"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if _transport_size(data):
        return "mpegts"
    for begin, name in _BEGINNINGS.items():
        if head and head.startswith(begin[: len(head)]):
            return name
    return None


def find_container(data: memoryview) -> str:
    """Return FFmpeg's name of the container of a whole file.

    Raises:
      DecodeError: it is none of them, or is cut.
    """
    if not len(data):
        raise DecodeError("the file is empty")
    kind = container_at(data)
    if kind is None:
        raise DecodeError(
            "it is no video: neither MP4 or MOV, Matroska or WebM, AVI, MPEG-TS or PS, FLV, Ogg,"
            " ASF or WMV, nor IVF"
        )
    _CHECKS[kind](data)
    return kind


def _check_end(data: memoryview, end: int) -> None:
    """Raise DecodeError where the file should be longer."""
    if end > len(data):
        raise DecodeError(f"the file is cut: it has {len(data)} of {end} bytes")


def _check_boxes(data: memoryview) -> None:
    """Check the boxes of MP4, ISO 14496-12 section 4.2: their ends, and that there is a "moov"."""
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
            _check_end(data, start + size)
        kinds.add(kind)
        start += size
    if b"moov" not in kinds:
        raise DecodeError("it has no 'moov', the table of its frames: it was never finished")
    _check_claims(data)


def _samples_end(data: memoryview) -> float:
    """Return where the last sample ends that the tables of MP4 name; infinity if they are odd."""
    tracks: list[dict[bytes, memoryview]] = [{}]
    for kind, content in itertools.islice(_boxes_below(data), _MAX_INNER_BOXES):
        if kind == b"trak":
            tracks.append({})
        tracks[-1][kind] = content
    return max(map(_track_end, tracks[1:]), default=math.inf)


def _track_end(tables: dict[bytes, memoryview]) -> float:
    """Return where the samples of a track end: ISO 14496-12 sections 8.7.3 to 8.7.5."""
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
    """Raise DecodeError where the tables of MP4 claim more samples than the file has bytes.

    FFmpeg makes an entry for each when it opens a file: 10^7, of which a few bytes tell, take a
    gigabyte and half a minute. A sample is a byte at least.
    """
    tracks: list[dict[bytes, memoryview]] = [{}]
    claimed = 0
    for kind, content in itertools.islice(_boxes_below(data), _MAX_INNER_BOXES):
        if kind == b"trak":
            tracks.append({})
        elif kind == b"trun" and not int.from_bytes(content[:4], "big") & _OF_EACH_SAMPLE:
            claimed += int.from_bytes(content[4:8], "big")
        # Of QuickTime's two handlers one has the kind of the track.
        tracks[-1][bytes(content[8:12]) if kind == b"hdlr" else kind] = content
    claimed += sum(map(_claimed, tracks))
    if claimed > len(data):
        raise DecodeError(
            f"its tables claim {claimed:,} samples, more than its {len(data):,} bytes"
        )


def _boxes_below(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the kind and content of each box of MP4, and behind it of those inside."""
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
    """Return True where the frames of a track of MP4 are: ISO/IEC 23001-7 section 4.1."""
    boxes = itertools.islice(_boxes_below(data), _MAX_INNER_BOXES)
    return any(kind == b"stsd" and content[12:16] == b"encv" for kind, content in boxes)


def is_mirrored(data: memoryview, track: int) -> bool:
    """Return True where the matrix of a track of MP4 reflects it: ISO 14496-12 section 8.3.2."""
    boxes = find_track(data, track)
    if not boxes:
        return False
    place, _ = boxes[b"tkhd"]
    a, b, _, c, d = struct.unpack_from(">5i", data, place + 40 + (12 if data[place] == 1 else 0))
    return a * d < b * c


def find_track(data: memoryview, track: int) -> dict[bytes, tuple[int, int]]:
    """Return where the content of each box of a track of MP4 begins and ends; none without it."""
    for kind, begin, end in inner_boxes(data, 0, len(data)):
        if kind != b"moov":
            continue
        for kind, place, stop in inner_boxes(data, begin, end):
            if kind != b"trak":
                continue
            boxes = {kind: (first, last) for kind, first, last in inner_boxes(data, place, stop)}
            place, stop = boxes.get(b"tkhd", (0, 0))
            if stop - place < _TRACK_HEADER:
                continue
            wide = 8 if data[place] == 1 else 0  # its times have 64 bits
            if struct.unpack_from(">I", data, place + 12 + wide)[0] == track:
                return boxes
    return {}


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


def _check_segment(data: memoryview) -> None:
    """Check the length of Matroska's segment, RFC 8794 section 4, where it is known."""
    size, start = _read_size(data, 4)
    start += size or 0
    if bytes(data[start : start + 4]) != _SEGMENT:
        raise DecodeError("the file is cut, or its header is damaged")
    size, start = _read_size(data, start + 4)
    if size is not None:
        _check_end(data, start + size)


def _read_size(data: memoryview, start: int) -> tuple[int | None, int]:
    """Return a number of variable length, None for "unknown", and where it ends."""
    if start >= len(data) or not data[start]:
        raise DecodeError("the file is cut, or its header is damaged")
    length = 9 - data[start].bit_length()
    mask = (1 << 7 * length) - 1
    size = int.from_bytes(data[start : start + length], "big") & mask
    return (None if size == mask else size), start + length


def _transport_size(data: memoryview) -> int:
    """Return the bytes of a packet of MPEG-TS, each of which begins with one byte; 0 for others."""
    for size, before in _TRANSPORT:
        begins = range(before, len(data), size)[:_PROBED]
        if len(begins) > 1 and all(data[begin] == _SYNC for begin in begins):
            return size
    return 0


def _check_packets(data: memoryview) -> None:
    """Raise DecodeError where the last packet of MPEG-TS is cut."""
    size = _transport_size(data)
    _check_end(data, -(-len(data) // size) * size)


def _check_list(data: memoryview) -> None:
    """Check the length of an AVI."""
    _check_end(data, 8 + int.from_bytes(data[4:8], "little"))


def _check_parts(
    data: memoryview, first: int, size_at: Callable[[memoryview, int], int | None]
) -> None:
    """Check that a file consists of whole parts.

    Args:
      data: the file.
      first: the place of the first part.
      size_at: returns the bytes of the part at a place, None where the last one is behind it.
    """
    start = first
    while start < len(data):
        try:
            size = size_at(data, start)
        except (struct.error, IndexError):
            raise DecodeError(f"the file is cut within a header at byte {start}") from None
        if size is None:
            break
        _check_end(data, start + size)
        start += size


def _tag_size(data: memoryview, start: int) -> int | None:
    """Return the bytes of a tag of FLV, and of the size of the one before it."""
    if start + 4 == len(data):
        return None
    return 15 + (data[start + 5] << 16) + struct.unpack_from(">H", data, start + 6)[0]


def _page_size(data: memoryview, start: int) -> int:
    """Return the bytes of a page of Ogg, RFC 3533 section 6."""
    _check_name(data, start, b"OggS")
    count = data[start + 26]
    return 27 + count + sum(data[start + 27 : start + 27 + count])


def _pack_size(data: memoryview, start: int) -> int | None:
    """Return the bytes of a pack's header or a packet of MPEG-PS, ISO 13818-1 section 2.5.3."""
    _check_name(data, start, b"\0\0\1")
    kind = data[start + 3]
    if kind == 0xB9:  # the end
        return None
    if kind == 0xBA:
        return 14 + (data[start + 13] & 7) if data[start + 4] >> 6 == 1 else 12
    return 6 + struct.unpack_from(">H", data, start + 4)[0]


def _object_size(data: memoryview, start: int) -> int:
    """Return the bytes of an object of ASF, with its name and size."""
    size = struct.unpack_from("<Q", data, start + 16)[0]
    if size < 24:
        raise DecodeError(f"its objects are damaged at byte {start}")
    return size


def _frame_size(data: memoryview, start: int) -> int:
    """Return the bytes of a frame of IVF, with its header."""
    return 12 + struct.unpack_from("<I", data, start)[0]


def _check_name(data: memoryview, start: int, name: bytes) -> None:
    """Raise DecodeError where a part does not begin as all of them do."""
    _check_end(data, start + len(name))
    if bytes(data[start : start + len(name)]) != name:
        raise DecodeError(f"its parts are damaged at byte {start}")


_BEGINNINGS = {
    _EBML: "matroska",
    b"FLV\1": "flv",
    b"OggS": "ogg",
    b"\0\0\1\xba": "mpeg",
    _ASF: "asf",
    b"DKIF\0\0\x20\0": "ivf",
}
_CHECKS: dict[str, Callable[[memoryview], None]] = {
    "mov": _check_boxes,
    "matroska": _check_segment,
    "avi": _check_list,
    "mpegts": _check_packets,
    "flv": partial(_check_parts, first=9, size_at=_tag_size),
    "ogg": partial(_check_parts, first=0, size_at=_page_size),
    "mpeg": partial(_check_parts, first=0, size_at=_pack_size),
    "asf": partial(_check_parts, first=0, size_at=_object_size),
    "ivf": partial(_check_parts, first=32, size_at=_frame_size),
}
