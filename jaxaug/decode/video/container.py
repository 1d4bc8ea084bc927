"""Containers of videos: which one some bytes are, and whether they are all there.

FFmpeg is told the container and does not guess: among what it would guess are playlists, which open
other files and addresses.
"""

import struct

from jaxaug.errors import DecodeError

FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof")
_MAX_BOXES = 100_000  # looked at; a fragmented hour has thousands
EBML = b"\x1aE\xdf\xa3"
_SEGMENT = b"\x18S\x80g"


def find_container(data: memoryview) -> str:
    """Return FFmpeg's name of the container of a file: "mov" for MP4, "matroska" or "avi".

    Raises:
      DecodeError: it is none of them, or is cut.

    Example:
      >>> find_container(memoryview(b"RIFF" + bytes([4, 0, 0, 0]) + b"AVI "))
      'avi'
    """
    head = bytes(data[:12])
    if not head:
        raise DecodeError("the file is empty")
    if head[4:8] in FIRST_BOXES:
        _check_boxes(data)
        return "mov"
    if head[:4] == EBML:
        _check_segment(data)
        return "matroska"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        _check_end(data, 8 + int.from_bytes(head[4:8], "little"))
        return "avi"
    raise DecodeError("it is no video: neither MP4 or MOV, nor Matroska or WebM, nor AVI")


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
        kinds.add(kind)
        if size == 1 and start + 16 <= len(data):  # a size of 64 bits follows
            size = struct.unpack_from(">Q", data, start + 8)[0]
        elif size == 0:  # up to the end of the file
            size = len(data) - start
        if size < 8:
            raise DecodeError(f"its boxes are damaged at byte {start}")
        _check_end(data, start + size)
        start += size
    if b"moov" not in kinds:
        raise DecodeError("it has no 'moov', the table of its frames: it was never finished")


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
