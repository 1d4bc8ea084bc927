"""Repair of damaged JPEGs: all that the byte check does not look at is removed."""

import re
from collections.abc import Iterator

from jaxaug.decode._types import Encoded
from jaxaug.decode.parse.jpeg import first_segments
from jaxaug.decode.parse.jpeg_rules import CMYK, RGB, YCBCR, YCCK

# SOF, DHT, DAC, SOS, DQT, DRI
_DECODING_MARKERS = frozenset((*range(0xC0, 0xD0), 0xDA, 0xDB, 0xDD))
_TRANSFORM = {CMYK: 0, RGB: 0, YCBCR: 1, YCCK: 2}  # Adobe's flag, libjpeg-turbo's libjpeg.txt
_IMPOSSIBLE_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7\xc4\xcc\xd9-\xdd\xe0-\xef\xfe]")
_ANY_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def repaired_jpegs(data: memoryview, color: int) -> Iterator[bytes]:
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
