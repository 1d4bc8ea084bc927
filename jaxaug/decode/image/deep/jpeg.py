"""JPEG of 12 bits, and lossless JPEG of 2 to 16, by libjpeg-turbo in imagecodecs.

Of 8 bits other readers decode. The rules of `parse/jpeg_rules.py` have checked all of them.
"""

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.errors import DecodeError

_COLORS = {1: "gray", 3: "rgb"}  # of four components nothing tells which of them are inverted


def layout(*, height: int, width: int, components: int, bits: int, orientation: int) -> Layout:
    """Return the layout of a JPEG from its checked header."""
    if reason := missing("imagecodecs", f"JPEGs of {bits} bits", "deep"):
        raise DecodeError(reason)
    return Layout(
        height=height,
        width=width,
        samples=components,
        dtype=np.dtype(np.uint8 if bits <= 8 else np.uint16),
        bits=bits,
        colors=_COLORS.get(components, ""),
        orientation=orientation,
    )


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return [h, w, samples]; YCbCr becomes RGB, YCCK CMYK."""
    pixels = library("imagecodecs").jpeg8_decode(data)
    return pixels.reshape(layout.height, layout.width, -1)
