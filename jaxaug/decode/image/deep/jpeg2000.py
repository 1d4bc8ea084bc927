"""JPEG 2000 of any bits and number of components, by OpenJPEG in imagecodecs or on a GPU.

Reference: ITU-T T.800 A.5.1 (SIZ), I.5.3 (the header of a JP2).
"""

import re
import struct

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode.image import pillow
from jaxaug.decode.image.deep.boxes import box, boxes
from jaxaug.decode.image.deep.gpu import decoder_of
from jaxaug.decode.image.deep.layout import COLOR_SAMPLES, Layout
from jaxaug.errors import DecodeError

_CODESTREAM = re.compile(rb"\xff\x4f\xff\x51")
_SIZ = struct.Struct(">HHIIIIIIIIH")
# Samples -> what they are, where nothing says more.
_USUAL = {1: ("gray", ""), 2: ("gray", "straight"), 3: ("rgb", ""), 4: ("rgb", "straight")}
_PROFILE, _UNKNOWN_METHOD = 2, 4  # METH of a colour specification box; readers pass over others
_CMYK, _SYCC = 12, 18  # EnumCS of a colour specification box
_ALPHA = {1: "straight", 2: "premultiplied"}  # Typ of a channel definition
_PALETTE = "palette"  # of a layout: its codestream has numbers of it


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of a codestream, or of that of a JP2."""
    if page:
        raise DecodeError(f"JPEG2000: it has one image, and page={page} was asked for")
    if reason := missing("imagecodecs", "JPEG 2000 images of more than 8 bits", "deep"):
        raise DecodeError(reason)
    if not pillow.has_end(data):
        raise DecodeError("JPEG2000: truncated, no end of the codestream (EOC) behind a tile")
    (height, width), components, samples = _codestream(data)
    palette = pillow.jpeg2000_palette(data)
    if max(palette, default=0) > 8:
        return _of_palette(palette, height, width)
    depths = {depth for depth in components[::3]}
    sampled = set(components[1::3]) | set(components[2::3])
    if len(components) != 3 * samples or not samples or min(height, width) < 1:
        raise DecodeError(f"JPEG2000: {width} x {height} pixels of {samples} components")
    if len(depths) > 1 or sampled != {1}:
        by_pillow = max(depth & 127 for depth in depths) < 8 and samples <= 4
        if not by_pillow:
            raise DecodeError("JPEG2000: its components differ in bits or in size")
    bits = 1 + (max(depths) & 127)
    kind = "i" if max(depths) & 128 else "u"
    size = 1 if bits <= 8 else 2 if bits <= 16 else 4
    header = box(data, b"jp2h")
    colors, alpha, special = _colors(header, samples)
    return Layout(
        height=height,
        width=width,
        samples=samples,
        dtype=np.dtype(f"{kind}{size}"),
        bits=bits,
        colors=colors,
        alpha=alpha,
        by_pillow=special or len(depths) > 1 or sampled != {1},
    )


def _of_palette(bits: list[int], height: int, width: int) -> Layout:
    """Return the layout of the colors of a palette, which OpenJPEG makes of its numbers."""
    if len(set(bits)) > 1 or bits[0] > 16:
        raise DecodeError(f"JPEG2000: a palette of {sorted(set(bits))} bits")
    colors, alpha = _USUAL.get(len(bits), ("", ""))
    return Layout(
        height=height,
        width=width,
        samples=len(bits),
        dtype=np.dtype(np.uint16),
        bits=bits[0],
        colors=colors,
        alpha=alpha,
        place=_PALETTE,
    )


def stated_size(data: memoryview) -> tuple[int, int]:
    """Return (height, width) of a codestream, or of that of a JP2."""
    return _codestream(data)[0]


def _codestream(data: memoryview) -> tuple[tuple[int, int], bytes, int]:
    """Return (height, width), three bytes for each component, and how many of these there are."""
    codestream = box(data, b"jp2c") or data  # boxes before it may hold others
    found = _CODESTREAM.search(codestream)
    if found is None:
        raise DecodeError("JPEG2000: no codestream (SOC, SIZ)")
    _, _, right, bottom, left, top, *_, samples = _SIZ.unpack_from(codestream, found.end())
    at = found.end() + _SIZ.size
    return (bottom - top, right - left), bytes(codestream[at : at + 3 * samples]), samples


def _colors(header: memoryview | None, samples: int) -> tuple[str, str, bool]:
    """Return what the samples are, which alpha they have, and if Pillow must convert them."""
    colors, alpha = _USUAL.get(samples, ("", ""))
    if header is None:
        return colors, alpha, False
    special = False
    for name, content in boxes(header):
        if name == b"pclr" or (name == b"colr" and content[0] == _PROFILE and samples == 1):
            special = True  # OpenJPEG makes colors of these
        if name == b"colr" and content[0] == 1:
            model = int.from_bytes(content[3:7], "big")
            special |= model == _SYCC
            if model == _CMYK:
                colors, alpha = "cmyk", ""
        if name == b"cdef":
            alpha = _defined_alpha(content, colors)
    return colors, alpha, special


def _defined_alpha(content: memoryview, colors: str) -> str:
    """Return the alpha that a channel definition says of the sample behind the colors."""
    behind = COLOR_SAMPLES[colors]
    count = int.from_bytes(content[:2], "big")
    for at in range(2, min(2 + 6 * count, len(content) - 5), 6):
        channel, kind, _ = struct.unpack_from(">HHH", content, at)
        if channel == behind:
            return _ALPHA.get(kind, "")
    return ""


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return [h, w, samples] of a codestream."""
    decoder = decoder_of("JPEG2000")
    if decoder is not None and not layout.place and layout.dtype.str[1:] in ("u1", "u2"):
        shape = (layout.height, layout.width, layout.samples)
        pixels = decoder.decode(data, shape, layout.dtype)
        if pixels is not None:
            return pixels
    pixels = library("imagecodecs").jpeg2k_decode(_unprofiled(data), numthreads=1)
    return pixels.reshape(layout.height, layout.width, -1)


def _unprofiled(data: memoryview) -> memoryview:
    """Return a file whose numbers imagecodecs gives as they are stored: it applies ICC profiles."""
    header = box(data, b"jp2h")
    if header is None or not any(map(_is_profile, boxes(header))):
        return data
    copy = memoryview(bytearray(data))
    for _, content in filter(_is_profile, boxes(box(copy, b"jp2h") or header)):
        content[0] = _UNKNOWN_METHOD
    return copy


def _is_profile(found: tuple[bytes, memoryview]) -> bool:
    name, content = found
    return name == b"colr" and content[:1] == bytes([_PROFILE])
