"""Decoding with Pillow: all formats but JPEG, and JPEGs of unusual color or sampling.

The plugins are called directly, for the format of the first bytes: `PIL.Image.open` would try every
codec it has and apply its own limit on pixels, but `max_pixels` is the only limit here.
"""

import contextlib
import functools
import importlib
import io
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxaug.decode._orientation import steps
from jaxaug.decode._pixel_bits import low_zeros, refused_samples, restore_bits, stored_bits
from jaxaug.errors import DecodeError

if TYPE_CHECKING:
    from PIL import Image

_ORIENTATION = 0x0112  # the EXIF and TIFF tag
_PHOTOMETRIC = 0x0106  # TIFF's PhotometricInterpretation
_WHITE_IS_ZERO = 0
# (transpose, flip_x, flip_y) -> Pillow's name for these steps at once.
_TRANSPOSES = {
    (False, True, False): "FLIP_LEFT_RIGHT",
    (False, True, True): "ROTATE_180",
    (False, False, True): "FLIP_TOP_BOTTOM",
    (True, False, False): "TRANSPOSE",
    (True, True, False): "ROTATE_270",
    (True, True, True): "TRANSVERSE",
    (True, False, True): "ROTATE_90",
}
_MAX_SIDE = 2**31 - 1
_MAX_BITS = 64
PNG_BITS_AT = 24  # the place of the bits a sample, ISO/IEC 15948 11.2.2


def format_of(data: memoryview | bytes) -> str | None:
    """Return Pillow's name for the format of the first bytes, or None; of a TGA the last ones tell.

    Example:
      >>> format_of(memoryview(b"GIF89a..."))
      'GIF'
    """
    head = bytes(data[:16])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp" and head[8:12] in _AVIF_BRANDS:
        return "AVIF"
    known = next((name for magic, name in _MAGIC if magic.match(head)), None)
    if known is None and data[-len(_TGA_FOOTER) :] == _TGA_FOOTER:
        return "TGA"
    return known


def is_like_tga(head: bytes) -> bool:
    """Return True for what may be the header of a TGA: only a footer, since 1989, tells for sure.

    Reference: Truevision TGA File Format Specification 2.0.
    """
    return head[1] in (0, 1) and head[2] in (1, 2, 3, 9, 10, 11) and head[16] in (8, 15, 16, 24, 32)


def stated_size(data: memoryview, format: str) -> tuple[int, int] | None:
    """Return (height, width) from the header of a WebP, GIF or ICO file; None for other formats.

    Pillow allocates memory when it opens these three.

    Reference: developers.google.com/speed/webp/docs/riff_container, RFC 6386 and 9649; GIF89a 18.
    """
    if format == "ICO":
        return _largest_icon(data)
    head = bytes(data[:30]).ljust(30, b"\0")
    if format == "GIF":
        return _number(head, 8, 2), _number(head, 6, 2)
    if format != "WEBP":
        return None
    if head[12:16] == b"VP8X":
        return 1 + _number(head, 27, 3), 1 + _number(head, 24, 3)
    if head[12:16] == b"VP8L":
        bits = _number(head, 21, 4)
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
    return _number(head, 28, 2) & 0x3FFF, _number(head, 26, 2) & 0x3FFF


def _largest_icon(data: memoryview) -> tuple[int, int]:
    """Return the sides of the largest image in an ICO, by the headers of these, PNGs or bitmaps.

    A directory of (sides of up to 256, ..., bytes, offset) precedes them; a bitmap is twice as high
    as its icon. Reference: learn.microsoft.com/previous-versions/ms997538(v=msdn.10).
    """
    sides = [(0, 0)]
    for at in range(6, min(6 + 16 * _number(bytes(data[4:6]), 0, 2), len(data) - 15), 16):
        start = _number(bytes(data[at + 12 : at + 16]), 0, 4)
        head = bytes(data[start : start + 24]).ljust(24, b"\0")
        if head[:4] == b"\x89PNG":
            sides.append((int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")))
            continue
        size = 2 if head[0] == 12 else 4  # of a number; BITMAPCOREHEADER
        width, height = (
            abs(int.from_bytes(head[at : at + size], "little", signed=True)) for at in (4, 4 + size)
        )
        sides.append((height // 2, width))
    return max(sides, key=lambda each: each[0] * each[1])


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def open_image(data: memoryview | bytes, format: str) -> "Image.Image":
    """Return a Pillow image with its size and mode read, but not its pixels.

    Raises:
      DecodeError: the header is not one of that format, or this Pillow has no codec for it.
    """
    plugin = _plugin(format)
    if plugin is None:
        import PIL

        raise DecodeError(
            f"{format}: Pillow {PIL.__version__} has no codec for it here: install one that has"
        )

    try:
        with _PIXEL_LIMIT.lifted(stated_size(memoryview(data), format) or (1, 1)):
            image = plugin(io.BytesIO(data))
        restore_bits(image, format, data)
        return image
    except Exception as error:  # Pillow's parsers raise nearly every exception
        said = _said(error)
        if format == "TIFF":
            said += refused_samples(data)
        raise DecodeError(f"{format}: {said}") from error


def _said(error: Exception) -> str:
    """Return what an exception says, with its name where that is no sentence.

    Example:
      >>> _said(KeyError(320)), _said(MemoryError()), _said(OSError("image file is truncated"))
      ('KeyError: 320', 'MemoryError', 'image file is truncated')
    """
    text = str(error)
    name = type(error.__cause__ or error).__name__  # Pillow makes a SyntaxError of some
    return text if " " in text else f"{name}: {text}".rstrip(": ")


def read_facts(data: memoryview, format: str) -> tuple[int, int, int, int]:
    """Return (height, width, orientation, bits), the sides as the file stores them.

    The bits a sample are those that modes RGB and L reduce to 8; of smaller ones 8.

    Raises:
      DecodeError: the header is not one of that format, or has no pixels.
    """
    if format == "JPEG2000" and not _JPEG2000_WHOLE.search(data):
        raise DecodeError(f"{format}: truncated, no end of the codestream (EOC) behind a tile")

    image = open_image(data, format)
    width, height = image.size
    try:
        orientation = _read_orientation(image, data)
        if format == "TIFF":  # Pillow reports the size of the upright image
            tags = image.tag_v2  # type: ignore[attr-defined]
            width = int(tags[256])
            height = int(tags[257])
        bits = _bits(image, data, format)
    except Exception as error:
        raise DecodeError(f"{format}: {_said(error)}") from error

    if min(height, width) < 1 or max(height, width) > _MAX_SIDE:
        raise DecodeError(f"{format}: {width} x {height} pixels")
    return height, width, orientation if orientation in range(1, 9) else 1, bits


def _bits(image: "Image.Image", data: memoryview, format: str) -> int:
    """Return the bits a sample of an image that is not loaded yet, from 8 on."""
    bits = 8
    if format == "PNG":
        bits = data[PNG_BITS_AT]
    elif format == "PPM":
        deep = _has_16_bits(image, format)  # of 65535 it tells no highest number
        bits = _highest_number(image, format).bit_length() or (16 if deep else 8)
    elif format in ("TIFF", "JPEG2000"):
        bits = stored_bits(image, format, data)
    return min(max(8, bits), _MAX_BITS)


def upright_rgb(
    data: memoryview | bytes,
    format: str,
    orientation: int,
    stored_size: tuple[int, int],
) -> "Image.Image":
    """Return the upright image in mode RGB.

    Alpha is dropped; of 12 or 16 bits the upper 8 are kept, as Pillow does for RGB.

    Raises:
      DecodeError: the pixels are damaged, or of a mode without an agreed conversion to 8 bits; the
        sides are not those of `stored_size`, (height, width).
    """
    with _as_decode_error(format):
        image = _open_of_size(data, format, stored_size)
        deep = _deep_gray(image, format)
        return _to_rgb(_upright(image, format, orientation), format, deep)


def upright_gray(
    data: memoryview | bytes,
    format: str,
    orientation: int,
    stored_size: tuple[int, int],
    ycbcr: bool,
) -> "Image.Image":
    """Return the image in mode L: Y of a JPEG whose colors are YCbCr, else luma of `upright_rgb`.

    Raises:
      DecodeError: see `upright_rgb`.
    """
    with _as_decode_error(format):
        image = _open_of_size(data, format, stored_size)
        if ycbcr:
            image.draft("L", None)  # type: ignore[arg-type]
        deep = _deep_gray(image, format)
        image = _upright(image, format, orientation)
        return image if image.mode == "L" else _to_rgb(image, format, deep).convert("L")


def upright_unchanged(data: memoryview | bytes, format: str, orientation: int) -> np.ndarray:
    """Return the upright pixels with the file's own values; see `decode_image`.

    The shape is [h, w] or [h, w, channels].

    Raises:
      DecodeError: the pixels are damaged, or Pillow would change them.
    """
    with _as_decode_error(format):
        image = open_image(data, format)
        if _loses_bits(image, format):
            advice = "Pillow reads 8 of them, take mode='rgb' or 'gray'"
            raise DecodeError(f"{format} color of 16 bits: {advice}")

        levels = _level_distance(image)
        highest = _highest_number(image, format)
        image = _upright(image, format, orientation)
        if image.mode == "RGBX":
            image = image.convert("RGB")
        pixels = np.array(image)
        if image.mode == "1":
            return pixels.astype(np.uint8)
        if highest:
            pixels = _despread(pixels, highest, 65535 if image.mode == "I" else 255)
        if _has_16_bits(image, format):
            return pixels.astype(np.uint16) >> low_zeros(format, data)
        return pixels if levels == 1 else pixels // np.uint8(levels)


def _level_distance(image: "Image.Image") -> int:
    """Return what Pillow multiplies gray of 2 or 4 bits by, to fill 8; else 1."""
    return {"L;2": 85, "L;4": 17}.get(_rawmode(image), 1)


def _highest_number(image: "Image.Image", format: str) -> int:
    """Return the highest number of a PGM or PPM if Pillow spreads them to fill 8 or 16 bits."""
    if format != "PPM" or not image.tile:  # type: ignore[attr-defined]
        return 0
    arguments = image.tile[0][3]  # type: ignore[attr-defined]
    return arguments[1] if isinstance(arguments, tuple) else 0


def _despread(pixels: np.ndarray, highest: int, full: int) -> np.ndarray:
    """Return the numbers 0 to `highest` that were spread over 0 to `full` and rounded."""
    numbers = (pixels.astype(np.int64) * highest + full // 2) // full
    return numbers.astype(pixels.dtype)


class _DeepGray(NamedTuple):
    """The form of gray of 12 or 16 bits.

    Attributes:
      low_bits: that do not fit into 8.
      inverted: 0 is white; Pillow turns only 8 bits around.
    """

    low_bits: int
    inverted: bool


def _deep_gray(image: "Image.Image", format: str) -> _DeepGray:
    low_bits = 4 if _rawmode(image) == "I;12" else 8
    tags = image.tag_v2 if format == "TIFF" else {}  # type: ignore[attr-defined]
    return _DeepGray(low_bits, inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)


def _rawmode(image: "Image.Image") -> str:
    """Return the form of the pixels in the file, before they are loaded; "" if it is not known."""
    if not image.tile:  # type: ignore[attr-defined]
        return ""
    arguments = image.tile[0][3]  # type: ignore[attr-defined]
    rawmode = arguments[0] if isinstance(arguments, tuple) else arguments
    return rawmode if isinstance(rawmode, str) else ""


def _has_16_bits(image: "Image.Image", format: str) -> bool:
    """Return True for gray of 16 bits, which Pillow may hold in 32."""
    return image.mode.startswith("I;16") or (image.mode == "I" and format in ("PNG", "PPM"))


def _loses_bits(image: "Image.Image", format: str) -> bool:
    """Return True for color of 16 bits, of which Pillow reads 8."""
    if image.getbands() == ("I",) or not image.tile:  # type: ignore[attr-defined]
        return False
    if format == "PPM":
        arguments = image.tile[0][3]  # type: ignore[attr-defined]
        return isinstance(arguments, tuple) and arguments[-1] > 255
    return format in ("PNG", "TIFF") and ";16" in _rawmode(image)


def _open_of_size(
    data: memoryview | bytes, format: str, stored_size: tuple[int, int]
) -> "Image.Image":
    """Return the image, not loaded: an index may promise few pixels for a file of many."""
    image = open_image(data, format)
    if sorted(image.size) != sorted(stored_size):  # Pillow reports a turned TIFF as upright
        height, width = stored_size
        raise DecodeError(f"{format}: {image.size[0]} x {image.size[1]}, not {width} x {height}")
    return image


def _upright(image: "Image.Image", format: str, orientation: int) -> "Image.Image":
    """Return the image loaded and upright."""
    from PIL import Image, ImageOps

    with _PIXEL_LIMIT.lifted(image.size):
        image.load()
    if format == "TIFF":  # recent versions of Pillow have applied and removed the tag by now
        return ImageOps.exif_transpose(image)
    name = _TRANSPOSES.get(steps(orientation))
    return image.transpose(Image.Transpose[name]) if name else image


@contextlib.contextmanager
def _as_decode_error(format: str) -> Iterator[None]:
    try:
        yield
    except DecodeError:
        raise
    except Exception as error:
        raise DecodeError(f"{format}: {_said(error)}") from error


def _read_orientation(image: "Image.Image", data: memoryview) -> int:
    """Return the orientation tag without decoding, as the getexif of Pillow's PNG plugin would."""
    from PIL import Image

    if image.format == "PNG" and "exif" not in image.info:
        exif = _exif_behind_pixels(data)
        if exif:
            image.info["exif"] = exif
    try:
        return Image.Image.getexif(image).get(_ORIENTATION, 1)
    except Exception:  # damaged metadata cost no image, as in a JPEG
        return 1


def _exif_behind_pixels(data: memoryview) -> bytes:
    """Return the content of the first eXIf chunk of a PNG; b"" without one."""
    position = 8
    while position + 12 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        if data[position + 4 : position + 8] == b"eXIf":
            return b"Exif\0\0" + data[position + 8 : position + 8 + length]
        position += 12 + length
    return b""


def _to_rgb(image: "Image.Image", format: str, deep: _DeepGray) -> "Image.Image":
    from PIL import Image

    image.info.pop("transparency", None)
    if _has_16_bits(image, format):
        levels = (np.asarray(image) >> deep.low_bits).astype(np.uint8)
        image = Image.fromarray(~levels if deep.inverted else levels)
    if image.mode in ("I", "F"):
        numbers = "32-bit integers" if image.mode == "I" else "floats"
        raise DecodeError(f"{format} pixels of {numbers} have no agreed range: {_ARRAYS_ADVICE}")
    return image.convert("RGB")


def has_codec(format: str) -> bool:
    """Return True if this Pillow reads a format."""
    return _plugin(format) is not None


@functools.cache
def _plugin(format: str) -> "Callable[[io.BytesIO], Image.Image] | None":
    """Return Pillow's class for a format, or None if this Pillow lacks its codec."""
    from PIL import features

    module, name, codec = _PLUGINS[format]
    if codec and codec not in features.get_supported():
        return None
    return getattr(importlib.import_module(f"PIL.{module}"), name)


@functools.cache
def reads_lossless_jpegs() -> bool:
    """Return True if this Pillow has been built with libjpeg-turbo 3 or later."""
    from PIL import features

    version = features.version("libjpeg_turbo") or "0"
    return int(version.split(".")[0]) >= 3


_ARRAYS_ADVICE = (
    "images are read of 8 bits, and of 12 or 16, whose upper 8 are kept. Convert it to 8 bits over "
    "the range that you need, or give the pixels as a feature, an array that decode_image(data, "
    '"unchanged") reads'
)


class _PixelLimit:
    """Pillow's global limit on pixels, lifted while an image that exceeds it is decoded."""

    def __init__(self):
        self._lock = threading.Lock()
        self._lifted = 0
        self._limit = None

    @contextlib.contextmanager
    def lifted(self, size: tuple[int, int]) -> Iterator[None]:
        """Lift the limit if an image of this size exceeds it."""
        from PIL import Image

        with self._lock:
            if not self._lifted:
                self._limit = Image.MAX_IMAGE_PIXELS
            exceeds = self._limit is not None and size[0] * size[1] > self._limit
            if exceeds:
                Image.MAX_IMAGE_PIXELS = None
                self._lifted += 1
        try:
            yield
        finally:
            if exceeds:
                with self._lock:
                    self._lifted -= 1
                    if not self._lifted:
                        Image.MAX_IMAGE_PIXELS = self._limit


_PIXEL_LIMIT = _PixelLimit()

# Module and class of Pillow, and the name of the codec in `PIL.features` if it is optional.
_PLUGINS: dict[str, tuple[str, str, str | None]] = {
    "AVIF": ("AvifImagePlugin", "AvifImageFile", "avif"),
    "BMP": ("BmpImagePlugin", "BmpImageFile", None),
    "CUR": ("CurImagePlugin", "CurImageFile", None),
    "DDS": ("DdsImagePlugin", "DdsImageFile", None),
    "GIF": ("GifImagePlugin", "GifImageFile", None),
    "ICO": ("IcoImagePlugin", "IcoImageFile", "zlib"),
    "JPEG": ("JpegImagePlugin", "JpegImageFile", "jpg"),
    "JPEG2000": ("Jpeg2KImagePlugin", "Jpeg2KImageFile", "jpg_2000"),
    "PCX": ("PcxImagePlugin", "PcxImageFile", None),
    "PNG": ("PngImagePlugin", "PngImageFile", "zlib"),
    "PPM": ("PpmImagePlugin", "PpmImageFile", None),
    "PSD": ("PsdImagePlugin", "PsdImageFile", None),
    "QOI": ("QoiImagePlugin", "QoiImageFile", None),
    "TGA": ("TgaImagePlugin", "TgaImageFile", None),
    "TIFF": ("TiffImagePlugin", "TiffImageFile", None),
    "WEBP": ("WebPImagePlugin", "WebPImageFile", "webp"),
    "XBM": ("XbmImagePlugin", "XbmImageFile", None),
    "XPM": ("XpmImagePlugin", "XpmImageFile", None),
}
_AVIF_BRANDS = (b"avif", b"avis", b"mif1", b"msf1")  # the last two are of HEIF containers, too
_TGA_FOOTER = b"TRUEVISION-XFILE.\0"
# SOT and EOC, ITU-T T.800 A.2: no two bytes of a packet are like a marker above FF8F.
_JPEG2000_WHOLE = re.compile(rb"\xff\x90.*\xff\xd9", re.DOTALL)
_MAGIC = tuple(
    (re.compile(pattern, re.DOTALL), name)
    for pattern, name in (
        (rb"\x89PNG\r\n\x1a\n", "PNG"),
        (rb"GIF8[79]a", "GIF"),
        (rb"BM", "BMP"),
        (rb"II[*+]\0|MM\0[*+]", "TIFF"),
        (rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n", "JPEG2000"),
        (rb"P[1-6][ \t\r\n\v\f]", "PPM"),
        (rb"\0\0\x01\0(?!\0\0)", "ICO"),
        (rb"\0\0\x02\0(?!\0\0)", "CUR"),  # a TGA has zeros there
        (rb"8BPS\0\x01", "PSD"),
        (rb"DDS \x7c\0\0\0", "DDS"),
        (rb"qoif", "QOI"),
        (rb"\x0a[\x00\x02\x03\x05][\x00\x01][\x01\x02\x04\x08]", "PCX"),
        (rb"/\* XPM \*/", "XPM"),
        (rb"\n?#define[ \t]", "XBM"),
    )
)
