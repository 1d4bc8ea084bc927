"""PNG of 16 bits a sample, by libpng in imagecodecs; of fewer bits Pillow decodes.

Reference: ISO/IEC 15948 (PNG).
"""

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode.image import pillow
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.decode.image.parse.other_formats import HEAD, PNG_BITS_AT, png_size
from jaxaug.errors import DecodeError

_PALETTE = 3
# Color type -> samples a pixel, what they are, and whether one is alpha: table 11.1.
_COLORS = {
    0: (1, "gray", ""),
    2: (3, "rgb", ""),
    3: (1, "palette", ""),
    4: (2, "gray", "straight"),
    6: (4, "rgb", "straight"),
}


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of a PNG."""
    if page:
        raise DecodeError(f"PNG: it has one image, and page={page} was asked for")
    size = png_size(data, bytes(data[:HEAD]).ljust(HEAD, b"\0"))
    orientation = 1
    if size is None:
        *size, orientation, _ = pillow.read_header(data, "PNG")
    bits, color = data[PNG_BITS_AT], data[PNG_BITS_AT + 1]
    samples, colors, alpha = _COLORS[color]
    deep = bits == 16
    if deep and not alpha and _has_transparent_color(data):
        samples, alpha = samples + 1, "straight"  # as libpng gives them
    if deep and (reason := missing("imagecodecs", "PNG images of 16 bits", "deep")):
        raise DecodeError(reason)
    return Layout(
        height=size[0],
        width=size[1],
        samples=samples,
        dtype=np.dtype(np.uint16 if deep else np.uint8),
        bits=bits,
        colors=colors,
        alpha=alpha,
        orientation=orientation,
        by_pillow=not deep,
    )


def _has_transparent_color(data: memoryview) -> bool:
    """Return True if a tRNS chunk precedes the pixels."""
    at = 8
    while at + 8 <= len(data):
        name = bytes(data[at + 4 : at + 8])
        if name in (b"tRNS", b"IDAT"):
            return name == b"tRNS"
        at += 12 + int.from_bytes(data[at : at + 4], "big")
    return False


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return uint16[h, w, samples] of a PNG of 16 bits."""
    pixels = library("imagecodecs").png_decode(data)
    return pixels.reshape(layout.height, layout.width, -1)
