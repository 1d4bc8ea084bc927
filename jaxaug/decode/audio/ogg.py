"""Ogg: pages with their checksums, packets, and the page before a place of the sound.

References: RFC 3533 section 6; Xiph.Org, "Vorbis I specification" section 4.3.9 (channels).
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from jaxaug.errors import DecodeError

_HEADER = struct.Struct("<4s2xq4sI4sB")  # name, position, stream, number, checksum, segments
_CONTINUED, _LAST = 1, 4  # of the bits of a page
_MOST = 65_307  # bytes of a page
_NEAR = 1 << 14  # bytes that are walked page by page
_PROBES = 8  # places of a file where its pages must be those of one stream
# Of each number of channels, the places in Vorbis' order of those in that of WAV: front left and
# right, center, low frequencies, back, side.
_IN_WAV = {
    3: (0, 2, 1),
    5: (0, 2, 1, 3, 4),
    6: (0, 2, 1, 5, 3, 4),
    7: (0, 2, 1, 6, 5, 3, 4),
    8: (0, 2, 1, 7, 5, 6, 3, 4),
}
_MIRRORED = bytes(int(f"{number:08b}"[::-1], 2) for number in range(256))


class Page(NamedTuple):
    """A page.

    Attributes:
      start, end: its bytes in the file.
      stream: the number of its stream, 4 bytes.
      number: of the page in its stream.
      position: of the last sample of the packets that end in it, -1 where none does.
      last: True for the last one of its stream.
      continued: True if its first part is the rest of a packet.
      parts: the packets, or parts of packets.
      open: True if the last part goes on in the next page.
    """

    start: int
    end: int
    stream: bytes
    number: int
    position: int
    last: bool
    continued: bool
    parts: list[bytes]
    open: bool


def channel_order(channels: int) -> tuple[int, ...]:
    """Return where the channels lie, in the order of WAV, among those of Vorbis and of Opus.

    All other formats, and Vorbis and Opus in Matroska and MP4 as FFmpeg reads them, have that of
    WAV, so that a column of mixed files has the same channels in each.

    Example:
      >>> channel_order(6)
      (0, 2, 1, 5, 3, 4)
    """
    return _IN_WAV.get(channels, tuple(range(channels)))


def read_page(data: memoryview, start: int) -> Page:
    """Return the page at a place.

    Raises:
      DecodeError: there is none, it is cut off, or it has another checksum.
    """
    if start + _HEADER.size > len(data):
        raise DecodeError(f"it is cut off: its page of Ogg at byte {start} is not whole")
    name, position, stream, number, told, count = _HEADER.unpack_from(data, start)
    if name != b"OggS":
        raise DecodeError(f"it is damaged: there is no page of Ogg at byte {start}")
    segments = bytes(data[start + _HEADER.size : start + _HEADER.size + count])
    page = bytes(data[start : start + _HEADER.size + count + sum(segments)])
    if len(segments) < count or len(page) < _HEADER.size + count + sum(segments):
        raise DecodeError(f"it is cut off: its page of Ogg at byte {start} is not whole")
    if _checksum(page) != told:
        raise DecodeError(f"it is damaged: its page of Ogg at byte {start} has another checksum")
    bits = page[5]
    return Page(
        start,
        start + len(page),
        stream,
        number,
        position,
        bool(bits & _LAST),
        bool(bits & _CONTINUED),
        _parts(page[_HEADER.size + count :], segments),
        segments.endswith(b"\xff"),
    )


def _parts(body: bytes, segments: bytes) -> list[bytes]:
    """Return the packets of a page, and what its last one has there."""
    parts = []
    begin = end = 0
    for segment in segments:
        end += segment
        if segment < 255:
            parts.append(body[begin:end])
            begin = end
    if begin < end:
        parts.append(body[begin:])
    return parts


def _checksum(page: bytes) -> bytes:
    """Return the checksum of a page: zlib's of mirrored bytes without its inversions, mirrored."""
    mirrored = (page[:22] + bytes(4) + page[26:]).translate(_MIRRORED)
    found = zlib.crc32(mirrored, 0xFFFFFFFF) ^ 0xFFFFFFFF
    return found.to_bytes(4, "big").translate(_MIRRORED)


def pages(data: memoryview, start: int) -> Iterator[Page]:
    """Yield the pages from a place on, which must be those of one stream, without a gap.

    Raises:
      DecodeError: they are not, or one is damaged.
    """
    before = None
    while start < len(data):
        page = read_page(data, start)
        if before is not None and (page.stream != before.stream or before.last):
            raise several_streams()
        if before is not None and page.number != (before.number + 1) & 0xFFFFFFFF:
            raise DecodeError(
                f"it is damaged: page {page.number} of Ogg follows page {before.number}"
            )
        yield page
        before, start = page, page.end


def packets(data: memoryview, start: int, *, whole: bool) -> Iterator[tuple[Page, list[bytes]]]:
    """Yield pages from one on, and the packets that end in each.

    Args:
      data: the file.
      start: of the first page.
      whole: with the packets of the first page, else from the first one that ends behind it.

    Raises:
      DecodeError: a page is damaged, or missing, or of another stream.
    """
    kept = b""
    for page in pages(data, start):
        parts = page.parts
        skipped = page.start == start and not whole
        if page.continued != bool(kept) and not skipped:
            raise DecodeError(
                f"it is damaged: its page of Ogg at byte {page.start} is out of order"
            )
        if kept and parts:
            parts = [kept + parts[0], *parts[1:]]
        kept = parts[-1] if page.open else b""
        yield page, [] if skipped else parts[: len(parts) - page.open]


def page_at_or_before(data: memoryview, first: Page, position: int) -> Page:
    """Return the last page whose packets end at or before a position of the sound, else the first.

    Args:
      data: the file.
      first: the first page of sound.
      position: in samples of the stream.
    """
    found, end = first, len(data)
    while end - found.end > _NEAR:
        middle = (found.end + end) // 2
        page = _page_behind(data, middle, end, first.stream)
        if page is not None and page.position <= position:
            found = page
        else:
            end = middle
    for page in pages(data, found.end):
        if page.position > position:
            break
        if page.position >= 0:
            found = page
    return found


def _page_behind(data: memoryview, start: int, end: int, stream: bytes) -> Page | None:
    """Return the first page of a stream that begins between two places and ends a packet."""
    while start < end:
        part = bytes(data[start : start + 2 * _MOST])
        place = part.find(b"OggS")
        if place < 0:
            return None
        try:
            page = read_page(data, start + place)
        except DecodeError:  # its name inside of a packet, or damage
            start += place + 4
            continue
        if page.position >= 0 and page.stream == stream:
            return page
        start = page.end
    return None


def last_position(data: memoryview, stream: bytes) -> int:
    """Return the position of the last sample of a stream, which must be the only one.

    Raises:
      DecodeError: other streams follow it.
    """
    found = []
    for part in range(1, _PROBES + 1):
        _, other, position = _page_before(data, len(data) * part // _PROBES)
        if other:
            found.append(position)
        if other not in (stream, b"") or found != sorted(found):
            raise several_streams()
    return found[-1] if found else 0


def begin_of_last_page(data: memoryview) -> int:
    """Return the position at which the last page of a file begins, 0 where none is before it."""
    last, _, _ = _page_before(data, len(data))
    _, _, position = _page_before(data, last)
    return position


def _page_before(data: memoryview, place: int) -> tuple[int, bytes, int]:
    """Return the place, the stream, and the position of the last sample, of a page that begins
    before a place.

    The stream is empty, and the rest 0, where there is no such page with a position nearby.
    """
    start = max(0, place - 2 * _MOST)  # which holds a whole one
    part = bytes(data[start:place])
    found = part.rfind(b"OggS\0")
    while found >= 0:
        if found + 18 <= len(part):
            position = struct.unpack_from("<q", part, found + 6)[0]
            if position >= 0:
                return start + found, part[found + 14 : found + 18], position
        found = part.rfind(b"OggS\0", 0, found)
    return 0, b"", 0


def several_streams() -> DecodeError:
    """Return the error of a file with streams one after the other, or beside each other."""
    return DecodeError("its Ogg holds several streams one after the other: split it")
