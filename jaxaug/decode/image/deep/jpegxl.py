"""JPEG XL of 8 to 16 bits and floats, by libjxl in imagecodecs; libjxl turns it upright.

Reference: ISO/IEC 18181-1 (codestream headers), 18181-2 (boxes).
"""

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode.image.deep.boxes import boxes
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.errors import DecodeError

_CONTAINER = b"\0\0\0\x0cJXL "
_RATIOS = (None, (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
_SIDE = ((1, 9), (1, 13), (1, 18), (1, 30))  # (offset, bits) of each of the four codes
_BITS = ((8, 0), (10, 0), (12, 0), (1, 6))
_FLOAT_BITS = ((32, 0), (16, 0), (24, 0), (1, 6))
_EXTRAS = ((0, 0), (1, 0), (2, 4), (1, 12))
_ENUM = ((0, 0), (1, 0), (2, 4), (18, 6))
_SHIFT = ((0, 0), (3, 0), (4, 0), (1, 3))
_NAME = ((0, 0), (0, 4), (16, 5), (48, 10))
_PREVIEW_SMALL = ((16, 0), (32, 0), (1, 5), (33, 9))
_PREVIEW = ((1, 6), (65, 8), (321, 10), (1345, 12))
_CFA = ((1, 0), (0, 2), (3, 4), (19, 8))
_ALPHA, _SPOT, _BLACK, _FILTER = 0, 2, 4, 5
_GRAY = 1


class _Bits:
    """Reads numbers of any bits, the lowest first."""

    def __init__(self, data: bytes):
        self._number = int.from_bytes(data, "little")
        self._left = 8 * len(data)

    def read(self, count: int) -> int:
        if count > self._left:
            raise DecodeError("JPEGXL: truncated, the header is not whole")
        value = self._number & ((1 << count) - 1)
        self._number >>= count
        self._left -= count
        return value

    def choose(self, codes: tuple[tuple[int, int], ...]) -> int:
        """Return a number of four codes: an offset and so many bits more."""
        offset, count = codes[self.read(2)]
        return offset + self.read(count)


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of an image; that of an animation is refused."""
    if page:
        raise DecodeError(f"JPEGXL: it has one image, and page={page} was asked for")
    if reason := missing("imagecodecs", "JPEG XL images", "deep"):
        raise DecodeError(reason)
    bits = _Bits(_codestream(data)[2 : 2 + 4096])
    height, width = _size(bits)
    return _metadata(bits, height, width)


def stated_size(data: memoryview) -> tuple[int, int]:
    """Return the (height, width) of an image before it is turned."""
    return _size(_Bits(_codestream(data)[2:32]))


def _codestream(data: memoryview) -> bytes:
    """Return the codestream, or its beginning."""
    if bytes(data[:8]) != _CONTAINER:
        return bytes(data[:4200])
    parts = b""
    for name, content in boxes(data):
        if name == b"jxlc":
            return bytes(content[:4200])
        if name == b"jxlp" and len(parts) < 4200:
            parts += bytes(content[4:4204])
    if parts[:2] != b"\xff\x0a":
        raise DecodeError("JPEGXL: no codestream in its boxes")
    return parts


def _size(bits: _Bits) -> tuple[int, int]:
    small = bits.read(1)
    height = 8 * (bits.read(5) + 1) if small else bits.choose(_SIDE)
    ratio = _RATIOS[bits.read(3)]
    if ratio is not None:
        return height, height * ratio[0] // ratio[1]
    return height, 8 * (bits.read(5) + 1) if small else bits.choose(_SIDE)


def _metadata(bits: _Bits, height: int, width: int) -> Layout:
    if bits.read(1):  # all default
        return _layout(height, width, depth=(8, False), extras=[], gray=False)
    if bits.read(1):  # extra fields
        if bits.read(3) + 1 > 4:
            height, width = width, height
        if bits.read(1):
            _size(bits)
        if bits.read(1):
            # The size of a preview, of which nothing is wanted.
            codes = _PREVIEW_SMALL if bits.read(1) else _PREVIEW
            bits.choose(codes)
            if bits.read(3) == 0:
                bits.choose(codes)
        if bits.read(1):
            raise DecodeError("JPEGXL: it is an animation, no image")
    depth = _depth(bits)
    bits.read(1)  # 16-bit buffers suffice
    extras = [_extra(bits) for _ in range(bits.choose(_EXTRAS))]
    extras = [kind for kind in extras if kind != "spot"]  # libjxl prints those into the colors
    bits.read(1)  # XYB
    gray = False
    if not bits.read(1):  # other colors than sRGB
        bits.read(1)  # an ICC profile
        gray = bits.choose(_ENUM) == _GRAY
    return _layout(height, width, depth=depth, extras=extras, gray=gray)


def _depth(bits: _Bits) -> tuple[int, bool]:
    """Return the bits of a sample, and if it is a float."""
    if not bits.read(1):
        return bits.choose(_BITS), False
    count = bits.choose(_FLOAT_BITS)
    bits.read(4)
    return count, True


def _extra(bits: _Bits) -> str:
    """Return the alpha that one more channel is, "spot" for an ink, "" for another one."""
    if bits.read(1):
        return "straight"
    kind = bits.choose(_ENUM)
    _depth(bits)
    bits.choose(_SHIFT)
    bits.read(8 * bits.choose(_NAME))
    if kind == _ALPHA:
        return "premultiplied" if bits.read(1) else "straight"
    if kind == _BLACK:
        raise DecodeError("JPEGXL: its colors are inks (CMYK), of which imagecodecs gives no black")
    if kind == _SPOT:
        bits.read(64)
        return "spot"
    if kind == _FILTER:
        bits.choose(_CFA)
    return ""


def _layout(
    height: int, width: int, *, depth: tuple[int, bool], extras: list[str], gray: bool
) -> Layout:
    count, is_float = depth
    dtype = np.dtype(np.uint8 if count <= 8 else np.uint16)
    if is_float:
        dtype = np.dtype(np.float16 if count <= 16 else np.float32)
    elif count > 16:
        raise DecodeError(f"JPEGXL: integers of {count} bits, which libjxl does not give")
    return Layout(
        height=height,
        width=width,
        samples=(1 if gray else 3) + len(extras),
        dtype=dtype,
        bits=count,
        colors="gray" if gray else "rgb",
        alpha=extras[0] if extras else "",
    )


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return the upright [h, w, samples]."""
    pixels = library("imagecodecs").jpegxl_decode(data, numthreads=1)
    return pixels.reshape(layout.height, layout.width, -1)
