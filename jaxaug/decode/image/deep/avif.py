"""AVIF of 8 to 12 bits: Pillow opens it and knows its size, libavif in imagecodecs decodes it.

Reference: AV1-ISOBMFF 2.3 (av1C); ISO/IEC 23008-12 (HEIF) 6.5.6 (pixi).
"""

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode.image import pillow
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.errors import DecodeError


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of the first image."""
    if page:
        raise DecodeError(f"AVIF: the first image is read, and page={page} was asked for")
    height, width, orientation, bits = pillow.read_header(data, "AVIF")
    image = pillow.open_image(data, "AVIF")
    mode = image.mode
    deep = bits > 8
    if deep and getattr(image, "n_frames", 1) > 1:
        raise DecodeError("AVIF: it is an animation of more than 8 bits, no image")
    if deep and (reason := missing("imagecodecs", "AVIF images of 10 and 12 bits", "deep")):
        raise DecodeError(reason)
    return Layout(
        height=height,
        width=width,
        samples=len(mode),
        dtype=np.dtype(np.uint16 if deep else np.uint8),
        bits=bits,
        colors="gray" if mode[0] == "L" else "rgb",
        alpha="straight" if mode[-1] == "A" else "",
        orientation=orientation,
        by_pillow=not deep,
    )


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return [h, w, samples] as it is stored."""
    pixels = library("imagecodecs").avif_decode(data, numthreads=1)
    return pixels.reshape(layout.height, layout.width, -1)
