"""HEIC, by libheif in pillow-heif, which turns it upright."""

from typing import Any

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.errors import DecodeError

_MODES = {"L": ("gray", ""), "I": ("gray", ""), "LA": ("gray", "straight"), "RGB": ("rgb", "")}
_MODES |= {"RGBA": ("rgb", "straight"), "RGBa": ("rgb", "premultiplied")}


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of an image: the primary one is page 0, the others follow in order."""
    image, mode, bits = _open(data, page)
    colors, alpha = _MODES[mode]
    width, height = image.size
    return Layout(
        height=height,
        width=width,
        samples=len(mode),
        dtype=np.dtype(np.uint8 if bits == 8 else np.uint16),
        bits=bits,
        colors=colors,
        alpha=alpha,
        place=page,
    )


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return the upright [h, w, samples]."""
    image, _, bits = _open(data, layout.place)
    pixels = np.asarray(image).reshape(layout.height, layout.width, -1)
    return pixels if bits == 8 else pixels >> (16 - bits)  # libheif's wrapper fills 16 bits


def _open(data: memoryview, page: int) -> tuple[Any, str, int]:
    """Return an image that is not decoded, its mode without bits, and its bits."""
    if reason := missing("pillow_heif", "HEIC images", "deep"):
        raise DecodeError(reason)
    file = library("pillow_heif").open_heif(bytes(data), convert_hdr_to_8bit=False)
    if page >= len(file):
        raise DecodeError(f"HEIC: it has {len(file)} images, and page={page} was asked for, from 0")
    first = file.primary_index
    image = file[[first, *range(first), *range(first + 1, len(file))][page]]
    mode, _, deep = image.mode.partition(";")
    return image, mode, int(image.info.get("bit_depth", 8)) if deep else 8
