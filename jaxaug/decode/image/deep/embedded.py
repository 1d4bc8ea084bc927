"""Images inside of other files: tiles of a TIFF, frames of a DICOM. What their own headers promise.

Their codecs allocate by these headers, which may promise more than the file around them told.

Reference: ITU-T T.81 B.2.2 and T.87 C.2.2 (frame headers of JPEG and JPEG-LS), ITU-T T.800 A.5.1.
"""

import re

from jaxaug.decode.image.deep import jpeg2000, jpegxl
from jaxaug.decode.image.parse.other_formats import stated_size
from jaxaug.errors import DecodeError

Size = tuple[int, int]  # height, width

# Start of frame of JPEG, but DHT, JPG and DAC, which have numbers among them; and of JPEG-LS.
_FRAMES = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a segment
_SCAN = 0xDA
_MARKER = re.compile(rb"\xff+([^\xff\0])", re.DOTALL)


def check_embedded(data: memoryview, most: Size, format: str) -> None:
    """Raise DecodeError for an image whose header promises more than `most`, (height, width).

    Example:
      >>> frame = bytes([255, 216, 255, 192, 0, 17, 8, 255, 255, 255, 255])
      >>> check_embedded(memoryview(frame), (16, 16), "TIFF")
      Traceback (most recent call last):
      jaxaug.errors.DecodeError: ... 65535 x 65535 pixels, where 16 x 16 are left for it
    """
    found = _promised(data)
    if found is not None and (found[0] > most[0] or found[1] > most[1]):
        raise DecodeError(
            f"{format}: an image inside of it has {found[1]} x {found[0]} pixels, where "
            f"{most[1]} x {most[0]} are left for it"
        )


def _promised(data: memoryview) -> Size | None:
    """Return the (height, width) of a header, None for one that is not known."""
    head = bytes(data[:12])
    if head[:2] == b"\xff\xd8":
        return _jpeg_size(data)
    if head[:4] == b"\xff\x4f\xff\x51" or head[4:8] == b"jP  ":
        return jpeg2000.stated_size(data)
    if head[:2] == b"\xff\x0a" or head[4:8] == b"JXL ":
        return jpegxl.stated_size(data)
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return stated_size(data, "WEBP")
    return None


def _jpeg_size(data: memoryview) -> Size | None:
    """Return the size in the first frame header, None where a scan or the end precedes it."""
    at = 2
    while found := _MARKER.search(data, at):
        code = found[1][0]
        at = found.end()
        if code in _ALONE:
            continue
        if code in _FRAMES:
            height, width = bytes(data[at + 3 : at + 5]), bytes(data[at + 5 : at + 7])
            return int.from_bytes(height, "big"), int.from_bytes(width, "big")
        if code == _SCAN:
            return None
        at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return None
