"""The planes of a frame: luma and chroma of 8 bits, upright, on canvases in host memory."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.video.color import doubled_in_fields, whole_chroma
from jaxaug.decode.video.table import Codec
from jaxaug.errors import DecodeError

# FFmpeg's formats of separate planes whose chroma has half or all of the size of luma: their bits.
BITS = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10, "yuv420p12le": 12}
BITS |= {"yuv444p": 8, "yuvj444p": 8, "yuv444p10le": 10, "yuv444p12le": 12}
# Codecs of which FFmpeg calls each field a frame, whose rows are of that field alone.
_FIELDS_APART = ("hevc", "vvc")
_FULL_RANGE = ("yuvj420p", "yuvj422p", "yuvj440p", "yuvj444p")
# FFmpeg's AVColorSpace and AVColorRange, which are ISO/IEC 23091-2 table 4.
_BT709 = (1, 7)
_BT2020 = 9
_WIDE = 2  # the range 0 to 255
BT601, BT709, BT2020 = 0, 1, 2
_UNREAD = {
    8: "YCgCo",
    10: "BT.2020 with constant luminance",  # which is no matrix: gamma stands between
    11: "YDzDx",
    12: "derived from primaries",
    13: "derived from primaries",
    14: "ICtCp",
}
ORIENTATIONS = (1, 8, 3, 6)  # of EXIF 2.3, by counter-clockwise quarter turns
_MIRRORED = (4, 7, 2, 5)  # the same behind a reflection of top to bottom
Size = tuple[int, int]  # (height, width)


class Color(NamedTuple):
    """How the planes of a frame become RGB.

    Attributes:
      matrix: 0 for BT.601, 1 for BT.709, 2 for BT.2020.
      full_range: 1 for values 0 to 255, 0 for 16 to 235.
      rows, columns: where chroma of half the size lies, see `whole_chroma`.
    """

    matrix: int
    full_range: int
    rows: int
    columns: int


class Planes(NamedTuple):
    """A frame, upright.

    Attributes:
      luma: uint8[h, w].
      chroma: uint8[2, ceil(h / 2), ceil(w / 2)] or, of 4:4:4, uint8[2, h, w], (Cb, Cr).
      color: what they mean.
      orientation: the EXIF orientation that turned it.
      interlaced: its rows are of two fields in turn, also those of its chroma of half the size.
    """

    luma: np.ndarray
    chroma: np.ndarray
    color: Color
    orientation: int = 1
    interlaced: bool = False


def planes_of(frame: Any, codec: Codec) -> Planes:
    """Return the planes of a frame of PyAV; other formats than 4:2:0 and 4:4:4 become 4:4:4.

    Of more than 8 bits the upper ones are kept, rounded. Where the stream does not tell its matrix
    it is BT.601, and the range limited, as FFmpeg's own conversion has it.

    Args:
      frame: of PyAV.
      codec: of its stream.

    Raises:
      DecodeError: it is turned by another angle than quarter turns, or has colors of another kind.
    """
    codec = completed(codec, frame)
    turns = quarter_turns(codec.rotation or 0)
    name = codec.pixels
    if codec.palette and name == "pal8":
        frame = _looked_up(frame, codec.palette)
    elif any(part.bits < 8 for part in frame.format.components):
        frame = frame.reformat(format="rgb24")  # stretched, as FFmpeg does not where it makes 4:4:4
    if not _kept(codec):
        name = "yuvj444p" if color_of(codec).full_range else "yuv444p"
        frame = frame.reformat(format=name)
        codec = dataclasses.replace(codec, pixels=name)
    luma, cb, cr = (_plane(plane, BITS[name], codec) for plane in frame.planes[:3])
    chroma = np.empty((2, *cb.shape), np.uint8)
    chroma[0], chroma[1] = cb, cr
    orientation = (_MIRRORED if codec.mirrored else ORIENTATIONS)[turns]
    interlaced = codec.interlaced and 1 < len(cb) < len(luma)
    return Planes(luma, chroma, color_of(codec), orientation, interlaced)


def plane_sizes(codec: Codec) -> tuple[Size, Size]:
    """Return the sizes of luma and chroma that `planes_of` gives, by a `completed` codec."""
    height, width = codec.height, codec.width
    if quarter_turns(codec.rotation or 0) % 2:
        height, width = width, height
    whole = "444" in codec.pixels or not _kept(codec)
    return (height, width), (height, width) if whole else (-(-height // 2), -(-width // 2))


def _kept(codec: Codec) -> bool:
    """Return True if a frame's own planes are taken; others become 4:4:4."""
    # Turned, the pixel that has chroma for itself at an odd end would be the first, and rows of
    # fields columns.
    turned = codec.mirrored or quarter_turns(codec.rotation or 0)
    unlike = codec.interlaced or codec.height % 2 or codec.width % 2
    return codec.pixels in BITS and not (turned and unlike)


def _looked_up(frame: Any, palette: bytes) -> Any:
    """Return a frame whose pixels are places of a container's palette as one in RGB.

    The container gives the palette with its first packet alone, where decoding seldom begins.
    """
    places = np.frombuffer(frame.planes[0], np.uint8).reshape(frame.height, -1)
    colors = np.frombuffer(palette, np.uint8).reshape(-1, 4)[:, 2::-1]
    pixels = np.ascontiguousarray(colors[places[:, : frame.width]])
    return type(frame).from_ndarray(pixels, format="rgb24")


def completed(codec: Codec, frame: Any) -> Codec:
    """Return a codec with what a frame of PyAV tells, and its container may not."""
    return dataclasses.replace(
        codec,
        height=frame.height,
        width=frame.width,
        rotation=frame.rotation if codec.rotation is None else codec.rotation,
        pixels=frame.format.name,
        space=int(frame.colorspace),
        range=int(frame.color_range),
        interlaced=frame.interlaced_frame and codec.name not in _FIELDS_APART,
    )


def quarter_turns(rotation: int) -> int:
    """Return counter-clockwise degrees as quarter turns, 0 to 3.

    Raises:
      DecodeError: they are others.
    """
    turns, rest = divmod(rotation, 90)
    if rest:
        raise DecodeError(f"it is turned by {rotation} degrees, not by quarter turns")
    return turns % 4


def color_of(codec: Codec) -> Color:
    """Return what the planes of a codec mean, once they are upright."""
    halved = codec.pixels.startswith(("yuv420", "yuvj420"))
    siting = (codec.chroma_row, -1 if codec.chroma_left else 0) if halved else (0, 0)
    for _ in range(quarter_turns(codec.rotation or 0)):
        siting = (-siting[1], siting[0])
    full_range = codec.pixels in _FULL_RANGE or codec.range == _WIDE
    space = codec.space
    if space in _UNREAD:
        raise DecodeError(f"the matrix of its colors is {_UNREAD[space]}, which is not read")
    matrix = BT709 if space in _BT709 else BT2020 if space == _BT2020 else BT601
    return Color(matrix, int(full_range), *siting)


def _plane(plane: Any, bits: int, codec: Codec) -> np.ndarray:
    """Return a plane as uint8[h, w], upright: of FFmpeg's memory, or rounded of more bits."""
    stored = np.uint8 if bits == 8 else np.dtype("<u2")
    values = np.frombuffer(plane, stored).reshape(plane.height, -1)[:, : plane.width]
    if bits > 8:
        rounded = (values + np.uint16(1 << bits - 9)) >> np.uint16(bits - 8)
        values = np.minimum(rounded, 255).astype(np.uint8)
    turns = quarter_turns(codec.rotation or 0)
    values = values[::-1] if codec.mirrored else values
    return np.rot90(values, turns) if turns else values


def fit_planes(planes: Planes, size: Size, whole: bool) -> Planes:
    """Return a frame at a size (h, w), shrunk antialiased if it is larger.

    What is shrunk has rows of both fields: their chroma is interpolated before.

    Args:
      planes: of the frame.
      size: of the result.
      whole: chroma of the size of luma is asked for, else of half of it.
    """
    luma, chroma, color, orientation, interlaced = planes
    if whole and chroma.shape[1:] != luma.shape:
        large = whole_chroma(chroma, luma.shape, (color.rows, color.columns), interlaced)
        chroma = ((large + 32) >> 6).astype(np.uint8)
        interlaced = False
    elif interlaced and luma.shape != size:
        tall = doubled_in_fields(chroma.astype(np.uint16), len(luma), color.rows)
        chroma = ((tall + 4) >> 3).astype(np.uint8)
        interlaced = False
    used = size if whole else (-(-size[0] // 2), -(-size[1] // 2))
    if chroma.shape[1:] != used:
        chroma = np.stack([_shrunk(plane, used) for plane in chroma])
        color = color._replace(rows=0, columns=0)
    return Planes(_shrunk(luma, size), chroma, color, orientation, interlaced)


def write_planes(planes: Planes, luma: np.ndarray, chroma: np.ndarray) -> None:
    """Write a frame to the top left of canvases.

    The chroma beside and below it repeats its edge once, that of each field if there are two, from
    which the pixels of the edge are interpolated.

    Args:
      planes: of the frame.
      luma: uint8[H, W], the canvas.
      chroma: uint8[2, ceil(H / 2), ceil(W / 2)] or uint8[2, H, W].
    """
    height, width = planes.luma.shape
    luma[:height, :width] = planes.luma
    height, width = planes.chroma.shape[1:]
    chroma[:, :height, :width] = planes.chroma
    chroma[:, :height, width : width + 1] = chroma[:, :height, width - 1 : width]
    fields = 2 if planes.interlaced else 1
    below = chroma[:, height : height + fields, : width + 1]
    below[:] = chroma[:, height - fields : height, : width + 1][:, : below.shape[1]]


def _shrunk(plane: np.ndarray, size: Size) -> np.ndarray:
    """Return uint8[h, w] at a size, antialiased as images are."""
    if plane.shape == size:
        return plane
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(plane))
    return np.asarray(image.resize((size[1], size[0]), Image.Resampling.BILINEAR))
