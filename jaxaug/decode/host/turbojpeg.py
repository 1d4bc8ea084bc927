"""The JPEGs that the TurboJPEG interface, and so simplejpeg, reads; Pillow reads the others."""

from jaxaug.decode.parse.headers import JPEG, Headers
from jaxaug.decode.parse.jpeg_rules import GRAY, LOSSLESS, RGB, YCBCR

# Samplings of three components that it supports: 4:4:4, 4:2:2, 4:4:0, 4:2:0, 4:1:1, 4:4:1, and
# 4:2:2 and 4:4:0 with doubled factors. Pillow decodes the others, with libjpeg-turbo as well.
_SAMPLINGS = frozenset(
    (0x11111100, 0x21111100, 0x12111100, 0x22111100, 0x41111100, 0x14111100, 0x22121200, 0x22212100)
)


def suits_turbojpeg(header: Headers) -> bool:
    """Return True for a JPEG whose colors the TurboJPEG interface reads as they are stored."""
    if header.coding == LOSSLESS:
        return False
    if header.color in (YCBCR, RGB):
        return int(header.sampling) in _SAMPLINGS
    return header.kind == JPEG and header.color == GRAY
