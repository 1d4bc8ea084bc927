"""A damaged JPEG cut down to what the byte check looked at, for the decoders that stumble over the
rest.
"""

import re
from collections.abc import Iterator

from jaxaug.decode._types import Encoded
from jaxaug.decode.parse.jpeg import first_segments
from jaxaug.decode.parse.jpeg_rules import CMYK, GRAY, RGB, YCBCR, YCCK

_DECODING_MARKERS = frozenset(
    (*range(0xC0, 0xD0), 0xDA, 0xDB, 0xDD)
)  # SOF, DHT, DAC, SOS, DQT, DRI
_TRANSFORM = {CMYK: 0, RGB: 0, YCBCR: 1, YCCK: 2}  # Adobe's flag, libjpeg-turbo's libjpeg.txt
_IMPOSSIBLE_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7\xc4\xcc\xd9-\xdd\xe0-\xef\xfe]")
_ANY_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def repaired_jpegs(data: memoryview, color: int) -> Iterator[bytes]:
    """Yield simpler and simpler forms of a JPEG that passed the byte check.

    Rubbish between the segments and all application segments go, as even warnings about them count
    as errors with simplejpeg. Damaged image data can look like a marker at which libjpeg gives up,
    having decoded the
    image: so the file is cut at the first marker that cannot stand behind a scan, then behind its
      first scan.

    Args:
      data: the file.
      color: its color model, from the headers; told by an Adobe segment of our own.

    Yields:
      Two whole JPEG files.
    """
    raw = bytes(data)
    segments = first_segments(Encoded.from_bytes([raw]))
    adobe = color in (RGB, YCBCR) or any(
        raw[start : start + 5] == b"Adobe" for _, start, _ in segments
    )
    head = b"\xff\xd8"
    if color != GRAY and adobe:  # Pillow inverts CMYK if there is such a segment
        head += b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([_TRANSFORM[color]])
    for marker, start, stop in segments:
        if marker in _DECODING_MARKERS:
            head += raw[start - 4 : stop]
    scan = segments[-1][2]
    for pattern in (_IMPOSSIBLE_MARKER, _ANY_MARKER):
        found = pattern.search(raw, scan)
        yield head + raw[scan : found.start() if found else len(raw)] + b"\xff\xd9"
