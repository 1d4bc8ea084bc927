"""The strict check of one JPEG: what libjpeg-turbo would warn of is an error."""

import re

from jaxaug.decode import _pillow
from jaxaug.decode.host.turbojpeg import suits_turbojpeg
from jaxaug.decode.parse.headers import Headers
from jaxaug.decode.parse.jpeg_rules import CMYK, GRAY, YCCK
from jaxaug.decode.parse.segments import APP0, COM, DAC, DHT, DNL, DQT, DRI, EOI, FRAMES, SOS
from jaxaug.errors import DecodeError

# Inside of image data FF00 stands for FF, and FFFF is filling: T.81 B.1.1.5, B.1.1.2.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
# What may stand between scans, and behind the last one.
_BETWEEN_SCANS = frozenset((SOS, DHT, DAC, DQT, DNL, DRI, COM, *range(APP0, APP0 + 16)))


def check_jpeg_strictly(data: memoryview, header: Headers) -> None:
    """Raise DecodeError for a JPEG that a careful decoder would not take without a word.

    From its image data on it must have nothing but markers that T.81 allows, up to its end marker,
    and libjpeg-turbo must decode it whole without a warning. Of those that the TurboJPEG interface
    does not read (unusual samplings, lossless), Pillow must decode the pixels.

    Args:
      data: the bytes of a JPEG.
      header: `Headers.row(i)` of a good image.
    """
    fault = _marker_fault(data, int(header.scan_offset))
    if fault:
        raise DecodeError(fault)
    if header.color in (CMYK, YCCK):
        _decode_with_turbojpeg(data, "CMYK")
    elif suits_turbojpeg(header):
        _decode_with_turbojpeg(data, "GRAY" if header.color == GRAY else "RGB")
    else:
        size = (int(header.height), int(header.width))
        _pillow.upright_rgb(data, "JPEG", 1, size)


def _decode_with_turbojpeg(data: memoryview, colors: str) -> None:
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
    while found := _MARKER.search(data, at):
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
