"""JPEGs on the host, with libjpeg-turbo through simplejpeg: decoded, repaired, or checked strictly.

A JPEG that passed the byte check but is damaged further on is decoded from a repaired form: all
that the byte check does not look at is removed.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.image import pillow
from jaxaug.decode.image.parse.headers import JPEG, Headers
from jaxaug.decode.image.parse.jpeg import first_segments
from jaxaug.decode.image.parse.jpeg_rules import CMYK, GRAY, LOSSLESS, RGB, YCBCR, YCCK
from jaxaug.decode.image.parse.jpeg_segments import (
    APP0,
    COM,
    DAC,
    DHT,
    DNL,
    DQT,
    DRI,
    EOI,
    FRAMES,
    SOS,
)
from jaxaug.errors import DecodeError

_T = TypeVar("_T")

# Samplings of three components that the TurboJPEG interface supports: 4:4:4, 4:2:2, 4:4:0, 4:2:0,
# 4:1:1, 4:4:1, and 4:2:2 and 4:4:0 with doubled factors. Pillow decodes the others, with
# libjpeg-turbo as well.
_SAMPLINGS = frozenset(
    (0x11111100, 0x21111100, 0x12111100, 0x22111100, 0x41111100, 0x14111100, 0x22121200, 0x22212100)
)
# What a repaired JPEG keeps of its header: SOF, DHT and DAC are among the first.
_DECODING_MARKERS = frozenset((*range(0xC0, 0xD0), SOS, DQT, DRI))
_TRANSFORM = {CMYK: 0, RGB: 0, YCBCR: 1, YCCK: 2}  # Adobe's flag, libjpeg-turbo's libjpeg.txt
_IMPOSSIBLE_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7\xc4\xcc\xd9-\xdd\xe0-\xef\xfe]")
# Inside of image data FF00 stands for FF, and FFFF is filling: T.81 B.1.1.5, B.1.1.2.
_ANY_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
# What may stand between scans, and behind the last one.
_BETWEEN_SCANS = frozenset((SOS, DHT, DAC, DQT, DNL, DRI, COM, *range(APP0, APP0 + 16)))


def suits_turbojpeg(header: Headers) -> bool:
    """Return True for a JPEG whose colors the TurboJPEG interface reads as they are stored."""
    if header.kind != JPEG or header.coding == LOSSLESS:
        return False
    if header.color in (YCBCR, RGB):
        return int(header.sampling) in _SAMPLINGS
    return header.color == GRAY


def scaled_sides(header: Headers, scale: int) -> tuple[int, int]:
    """Return the (h, w) that `decode_jpeg` gives at scale / 8; libjpeg rounds them up."""
    return -(-int(header.height) * scale // 8), -(-int(header.width) * scale // 8)


def decode_jpeg(
    data: memoryview,
    header: Headers,
    scale: int,
    channels: int,
    buffer: np.ndarray | None = None,
) -> np.ndarray:
    """Return uint8[h, w, channels] at scale / 8 of the stored size, as it is stored.

    The DCT is accurate, the upsampling "fancy". `buffer` receives the pixels if it is given.

    Raises:
      DecodeError: the pixels cannot be read; the buffer may be partly written.
    """
    import simplejpeg

    height, width = scaled_sides(header, scale)
    colors = "RGB" if channels == 3 else "GRAY"
    sides = {"min_height": height, "min_width": width}

    def decode(data: memoryview | bytes) -> np.ndarray:
        with contextlib.suppress(ValueError):
            return simplejpeg.decode_jpeg(data, colors, buffer=buffer, strict=True, **sides)

        # Errors behind a warning are taken for warnings, and end the decode before all is written.
        cleared = np.empty((height, width, channels), np.uint8) if buffer is None else buffer
        cleared[...] = 0
        pixels = decode_despite_warnings(data, cleared)
        if not pixels.any():  # all black, or nothing was written, which leaves white as it is
            white = np.full((height, width, channels), 255, np.uint8)
            if decode_despite_warnings(data, white).all():
                raise DecodeError("libjpeg-turbo: an error before the first row")
        return pixels

    def decode_despite_warnings(data: memoryview | bytes, buffer: np.ndarray) -> np.ndarray:
        try:
            return simplejpeg.decode_jpeg(data, colors, buffer=buffer, strict=False, **sides)
        except ValueError as error:
            raise DecodeError(f"libjpeg-turbo: {error}") from error

    return despite_damage(decode, data, header)


def despite_damage(decode: Callable[[Any], _T], data: memoryview, header: Headers) -> _T:
    """Return the result of `decode` for a good image, or for its repaired forms if that fails."""
    try:
        return decode(data)
    except DecodeError:
        if header.color:
            for repaired in _repaired_jpegs(data, int(header.color)):
                with contextlib.suppress(DecodeError):
                    return decode(repaired)
        raise


def _repaired_jpegs(data: memoryview, color: int) -> Iterator[bytes]:
    """Yield simpler and simpler forms of a JPEG that passed the byte check.

    Other bytes between the segments and all application segments are removed, because simplejpeg
    takes even warnings about them as errors. Damaged image data can look like a marker at which
    libjpeg gives up although it has decoded the image. So the first form is cut at the first marker
    that cannot follow a scan, and the second one at the end of the first scan.

    Args:
      data: the file.
      color: its color model, from the headers; a new Adobe segment states it.

    Yields:
      Two whole JPEG files.
    """
    raw = bytes(data)
    segments = first_segments(Encoded.from_bytes([raw]))

    head = b"\xff\xd8"
    if color in _TRANSFORM:
        head += b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([_TRANSFORM[color]])
    for marker, start, stop in segments:
        if marker in _DECODING_MARKERS:
            head += raw[start - 4 : stop]

    scan_start = segments[-1][2]
    for pattern in (_IMPOSSIBLE_MARKER, _ANY_MARKER):
        found = pattern.search(raw, scan_start)
        scan_stop = found.start() if found else len(raw)
        yield head + raw[scan_start:scan_stop] + b"\xff\xd9"


def check_jpeg_strictly(data: memoryview, header: Headers) -> None:
    """Raise DecodeError for a JPEG that a careful decoder would not take without a word.

    From its image data on it must have nothing but markers that T.81 allows, up to its end marker,
    and libjpeg-turbo must decode it whole without a warning. Of those that the TurboJPEG interface
    does not read (unusual samplings, lossless), Pillow must decode the pixels. Of other than 8 bits
    only the markers are looked at.

    Args:
      data: the bytes of a JPEG.
      header: `Headers.row(i)` of a good image.
    """
    fault = _marker_fault(data, int(header.scan_offset))
    if fault:
        raise DecodeError(fault)
    if header.kind != JPEG:
        return
    if header.color in (CMYK, YCCK):
        _decode_strictly(data, "CMYK")
    elif suits_turbojpeg(header):
        _decode_strictly(data, "GRAY" if header.color == GRAY else "RGB")
    else:
        size = (int(header.height), int(header.width))
        pillow.upright_rgb(data, "JPEG", 1, size)


def _decode_strictly(data: memoryview, colors: str) -> None:
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data, colors, strict=True)
    except ValueError as error:
        raise DecodeError(f"libjpeg-turbo: {error}") from error


def _marker_fault(data: memoryview, at: int) -> str:
    """Return what is wrong with the markers of a JPEG from its image data on, or "".

    Args:
      data: the file.
      at: where the image data of the first scan begins.
    """
    while found := _ANY_MARKER.search(data, at):
        at = found.start()
        marker = found[1][0]
        if marker == EOI:
            return ""
        if marker in FRAMES:
            return f"a second frame header (FF{marker:02X}) at byte {at}"
        if marker not in _BETWEEN_SCANS:
            return f"the marker FF{marker:02X} at byte {at}, inside of the image data"
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        at += 2 + length
        if length < 2 or at > len(data):
            return f"the segment FF{marker:02X} at byte {found.start()} has a wrong length"
    return "no end marker behind the image data"
