"""Containers of videos: which one some bytes are, and whether they are all there.

FFmpeg is told the container and does not guess: among what it would guess are playlists, which open
other files and addresses.
"""

import struct
from collections.abc import Callable
from functools import partial

from jaxaug.decode.video.mp4_boxes import end_of_boxes
from jaxaug.errors import DecodeError

_FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof")
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
    _check_end(data, _ENDS[kind](data))
    return kind


def _check_end(data: memoryview, end: int) -> None:
    """Raise DecodeError where the file should be longer."""
    if end > len(data):
        raise DecodeError(f"the file is cut: it has {len(data)} of {end} bytes")


def _end_of_segment(data: memoryview) -> int:
    """Return where Matroska's segment ends, RFC 8794 section 4; 0 where that is not known."""
    size, start = _read_size(data, 4)
    start += size or 0
    if bytes(data[start : start + 4]) != _SEGMENT:
        raise DecodeError("the file is cut, or its header is damaged")
    size, start = _read_size(data, start + 4)
    return 0 if size is None else start + size


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


def _end_of_packets(data: memoryview) -> int:
    """Return where the last packet of MPEG-TS ends."""
    size = _transport_size(data)
    return -(-len(data) // size) * size


def _end_of_list(data: memoryview) -> int:
    """Return where an AVI ends."""
    return 8 + int.from_bytes(data[4:8], "little")


def _end_of_parts(
    data: memoryview, first: int, size_at: Callable[[memoryview, int], int | None]
) -> int:
    """Return where the last part of a file that consists of parts ends.

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
        start += size
    return start


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
_ENDS: dict[str, Callable[[memoryview], int]] = {
    "mov": end_of_boxes,
    "matroska": _end_of_segment,
    "avi": _end_of_list,
    "mpegts": _end_of_packets,
    "flv": partial(_end_of_parts, first=9, size_at=_tag_size),
    "ogg": partial(_end_of_parts, first=0, size_at=_page_size),
    "mpeg": partial(_end_of_parts, first=0, size_at=_pack_size),
    "asf": partial(_end_of_parts, first=0, size_at=_object_size),
    "ivf": partial(_end_of_parts, first=32, size_at=_frame_size),
}
