"""What the parameters of a sequence of H.264 tell: ITU-T H.264 section 7.3.2.1.1, annex E."""

import functools
from typing import NamedTuple

from jaxaug.decode.video.nal import Bits

_MAX_CYCLE = 255  # of the orders of pictures, section 7.4.2.1.1
# Profiles whose sequences tell the form of chroma, section 7.3.2.1.1.
_HIGH = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
_EXTENDED = 255  # an aspect ratio that is told behind
_MAX_CODERS = 32  # cpb_cnt_minus1 + 1, section E.2.2


class Parameters(NamedTuple):
    """What a sequence parameter set tells.

    Attributes:
      frame_bits: of the number of a frame.
      fields: pictures may be fields.
      separate: color planes are coded apart.
      chroma: chroma_format_idc, 1 for 4:2:0.
      depths: bits of luma and chroma.
      height, width: in pixels, cropped.
      space, full_range: the matrix of colors and their range; None where it is not told.
      chroma_location: FFmpeg's AVChromaLocation, 0 where it is not told.
      whole: all of it was there.
    """

    frame_bits: int
    fields: bool
    separate: bool
    chroma: int
    depths: tuple[int, int]
    height: int
    width: int
    space: int | None
    full_range: bool | None
    chroma_location: int
    whole: bool


@functools.lru_cache(256)  # the videos of a data set have few different ones
def read_sequence(data: bytes) -> tuple[int, Parameters]:
    """Return the number of a sequence parameter set and what it tells.

    Args:
      data: see `Bits`.
    """
    bits = Bits(data)
    profile = bits.take(8)
    bits.take(16)  # constraints, level
    number = bits.code()
    chroma, separate, depths = _read_form(bits) if profile in _HIGH else (1, False, (8, 8))
    frame_bits = 4 + bits.code()
    order = bits.code()
    if order == 0:
        bits.code()
    elif order == 1:
        bits.take(1)
        bits.skip(2)
        bits.skip(min(bits.code(), _MAX_CYCLE))
    bits.skip(1)  # references
    bits.take(1)  # gaps
    width, height = 16 * (bits.code() + 1), 16 * (bits.code() + 1)
    fields = not bits.take(1)
    bits.take(1 + fields)  # fields of macroblocks, direct predictions
    columns, rows = (2 if chroma in (1, 2) else 1), (2 if chroma == 1 else 1) << fields
    left, right, top, bottom = (bits.code() for _ in range(4)) if bits.take(1) else (0, 0, 0, 0)
    space, full_range, location = _read_usability(bits) if bits.take(1) else (None, None, 0)
    return number, Parameters(
        frame_bits=frame_bits,
        fields=fields,
        separate=separate,
        chroma=chroma,
        depths=depths,
        height=(height << fields) - rows * (top + bottom),
        width=width - columns * (left + right),
        space=space,
        full_range=full_range,
        chroma_location=location,
        whole=bits.whole,
    )


def _read_form(bits: Bits) -> tuple[int, bool, tuple[int, int]]:
    """Return the form of chroma, whether its planes are coded apart, and the depths."""
    chroma = bits.code()
    separate = chroma == 3 and bool(bits.take(1))
    depths = 8 + bits.code(), 8 + bits.code()
    bits.take(1)  # without loss
    if bits.take(1):
        for place in range(12 if chroma == 3 else 8):
            if bits.take(1):
                _skip_scaling(bits, 16 if place < 6 else 64)
    return chroma, separate, depths


def _skip_scaling(bits: Bits, size: int) -> None:
    """Pass over a list of scales, section 7.3.2.1.1.1."""
    last = following = 8
    for _ in range(size):
        if following:
            code = bits.code()
            delta = (code + 1) // 2 if code % 2 else -(code // 2)
            following = (last + delta) % 256
        last = following or last


def _read_usability(bits: Bits) -> tuple[int | None, bool | None, int]:
    """Return the matrix and the range of a sequence's colors, and where chroma lies: E.1.1."""
    space = full_range = None
    location = 0
    if bits.take(1) and bits.take(8) == _EXTENDED:
        bits.take(32)
    if bits.take(1):
        bits.take(1)  # overscan
    if bits.take(1):
        bits.take(3)  # the kind of signal
        full_range = bool(bits.take(1))
        if bits.take(1):
            bits.take(16)  # primaries, curve
            space = bits.take(8)
    if bits.take(1):
        location = 1 + bits.code()
        bits.skip(1)  # of the second field
    if bits.take(1):
        bits.take(65)  # the clock
    coders = 0
    for _ in range(2):
        if bits.take(1):
            _skip_coder(bits)
            coders += 1
    bits.take(1 + (coders > 0))  # low delay, structure
    if bits.take(1):
        bits.take(1)
        bits.skip(6)  # limits of motion, bytes and delays
    return space, full_range, location


def _skip_coder(bits: Bits) -> None:
    """Pass over the parameters of a buffer of a decoder: section E.1.2."""
    count = min(bits.code() + 1, _MAX_CODERS)
    bits.take(8)
    for _ in range(count):
        bits.skip(2)
        bits.take(1)
    bits.take(20)
