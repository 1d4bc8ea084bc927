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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxaug.decode.image.deep.boxes import box
from jaxaug.decode.image.orientation import steps
from jaxaug.decode.image.parse.other_formats import PNG_BITS_AT, stated_size
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

# Palettes of BMPs that Pillow drops, by the mode that it takes instead.
_PALETTES = {"1": bytes((0, 0, 0, 255, 255, 255)), "L": bytes(i for i in range(256) for _ in "RGB")}
_BITS = {"1": 1, "L": 8}  # a pixel, with which it then reads the file
_PALETTE_FORMS = {1: "P;1", 4: "P;4", 8: "P"}

# Tags of TIFF 6.0, and a value.
_BITS_PER_SAMPLE = 258
_PLANAR_CONFIGURATION = 284
_SAMPLE_FORMAT = 339
_SEPARATE = 2

# SOC and SIZ up to the number of components, of each of which three bytes follow: ITU-T T.800 A.5.1
_JPEG2000_SIZE = re.compile(rb"\xff\x4f\xff\x51.{36}(..)", re.DOTALL)


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
        _restore_bits(image, format, data)
        return image
    except Exception as error:  # Pillow's parsers raise nearly every exception
        raise DecodeError(f"{format}: {_said(error)}") from error


def _said(error: Exception) -> str:
    """Return what an exception says, with its name where that is no sentence.

    Example:
      >>> _said(KeyError(320)), _said(MemoryError()), _said(OSError("image file is truncated"))
      ('KeyError: 320', 'MemoryError', 'image file is truncated')
    """
    text = str(error)
    name = type(error.__cause__ or error).__name__  # Pillow makes a SyntaxError of some
    return text if " " in text else f"{name}: {text}".rstrip(": ")


def read_header(data: memoryview, format: str) -> tuple[int, int, int, int]:
    """Return (height, width, orientation, bits), the sides as the file stores them.

    The bits a sample are those that modes RGB and L reduce to 8; of smaller ones 8.

    Raises:
      DecodeError: the header is not one of that format, or has no pixels.
    """
    if format == "JPEG2000" and not has_end(data):
        raise DecodeError(f"{format}: truncated, no end of the codestream (EOC) behind a tile")
    bits = max(jpeg2000_palette(data), default=8) if format == "JPEG2000" else 8
    if bits > 8:
        raise DecodeError(f"{format}: a palette of {bits} bits, and Pillow reads those of 8")

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


def has_end(data: memoryview) -> bool:
    """Return True if the codestream of a JPEG 2000 has an end behind a tile."""
    return _JPEG2000_WHOLE.search(data) is not None


def _bits(image: "Image.Image", data: memoryview, format: str) -> int:
    """Return the bits a sample of an image that is not loaded yet, from 8 on."""
    bits = 8
    if format == "PNG":
        bits = data[PNG_BITS_AT]
    elif format == "PPM":
        deep = _has_16_bits(image, format)  # of 65535 it tells no highest number
        bits = _highest_number(image, format).bit_length() or (16 if deep else 8)
    elif format == "AVIF":
        bits = _avif_bits(data)
    elif format in ("TIFF", "JPEG2000"):
        bits = _stored_bits(image, format, data)
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


def upright_alpha(data: memoryview | bytes, format: str, orientation: int) -> "Image.Image | None":
    """Return the alpha of an image in mode L, None where it has none.

    Raises:
      DecodeError: see `upright_rgb`.
    """
    with _as_decode_error(format):
        image = _upright(open_image(data, format), format, orientation)
        if image.mode in ("1", "P", "L", "RGB") and "transparency" in image.info:
            image = image.convert("RGBA")
        return image.getchannel("A") if "A" in image.getbands() else None


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

        # What Pillow multiplies gray of 2 or 4 bits by, to fill 8.
        levels = {"L;2": 85, "L;4": 17}.get(_rawmode(image), 1)
        highest = _highest_number(image, format)
        image = _upright(image, format, orientation)
        if image.mode == "RGBX":
            image = image.convert("RGB")
        pixels = np.array(image)
        if image.mode == "1":
            return pixels.astype(np.uint8)
        if highest:
            # The numbers 0 to `highest` were spread over all of them, and rounded.
            full = 65535 if image.mode == "I" else 255
            numbers = (pixels.astype(np.int64) * highest + full // 2) // full
            pixels = numbers.astype(pixels.dtype)
        if _has_16_bits(image, format):
            return pixels.astype(np.uint16) >> _low_zeros(format, data)
        return pixels if levels == 1 else pixels // np.uint8(levels)


def _highest_number(image: "Image.Image", format: str) -> int:
    """Return the highest number of a PGM or PPM if Pillow spreads them to fill 8 or 16 bits."""
    if format != "PPM" or not image.tile:  # type: ignore[attr-defined]
        return 0
    arguments = image.tile[0][3]  # type: ignore[attr-defined]
    return arguments[1] if isinstance(arguments, tuple) else 0


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


# ---- files whose pixels Pillow would read with a wrong number of bits, without an error


def _restore_bits(image: "Image.Image", format: str, data: memoryview | bytes) -> None:
    """Have an image, not loaded yet, read with the bits a pixel that its file has.

    Raises:
      ValueError: Pillow cannot.
    """
    if format == "BMP":
        _restore_palette(image, data)
    elif format == "TIFF":
        _refuse_compression(image)
        _restore_planes(image, data)
    elif format == "JPEG2000":
        _refuse_rounding(image, data)


def _restore_palette(image: Any, data: memoryview | bytes) -> None:
    """Keep a palette of gray levels.

    Pillow takes black and white for 1 bit a pixel and levels 0, 1, 2, ... for 8 bits, whatever the
    header says.

    Reference: BITMAPINFOHEADER and BITMAPCOREHEADER, learn.microsoft.com/windows/win32/api/wingdi.
    """
    is_core = int.from_bytes(data[14:18], "little") == 12
    at = 24 if is_core else 28
    bits = int.from_bytes(data[at : at + 2], "little")
    if bits == _BITS.get(image.mode, bits) or bits not in _PALETTE_FORMS:
        return
    from PIL import ImagePalette

    image.palette = ImagePalette.raw("RGB", _PALETTES[image.mode])
    image._mode = "P"
    (tile,) = image.tile
    image.tile = [_with_form(tile, _PALETTE_FORMS[bits])]


def _refuse_compression(image: Any) -> None:
    """Raise ValueError for a TIFF that the libtiff of this Pillow cannot decompress."""
    compression = image.info.get("compression", "")
    if compression in _OPTIONAL_COMPRESSIONS and not _has_compression(compression):
        raise ValueError(f"its compression, {compression}, is not in this Pillow")


@functools.cache
def _has_compression(name: str) -> bool:
    """Return True if the libtiff of this Pillow has a compression; only a file can ask it."""
    from PIL import Image

    try:
        Image.new("RGB", (1, 1)).save(io.BytesIO(), "TIFF", compression=name)
    except OSError:
        return False
    return True


def _restore_planes(image: Any, data: memoryview | bytes) -> None:
    """Read planes of 16 bits as such, and refuse signed numbers of 8 and 16.

    Without compression, Pillow reads all planes with 8, and refuses the one plane of gray. It has
    no codec for planes of CMYK with 16, and so refuses these.
    """
    if 2 in image.tag_v2.get(_SAMPLE_FORMAT, ()) and image.mode != "I":
        raise ValueError("its numbers are signed, which Pillow does not see")
    planes = image.tag_v2.get(_PLANAR_CONFIGURATION) == _SEPARATE
    if not planes or set(image.tag_v2.get(_BITS_PER_SAMPLE, ())) != {16}:
        return

    order = ";16B" if data[:2] == b"MM" else ";16L"
    gray = image.mode if image.mode.startswith("I;16") else None
    image.tile = [
        _with_form(tile, gray or tile[3][0] + order) if tile[0] == "raw" else tile
        for tile in image.tile
    ]


def _refuse_rounding(image: "Image.Image", data: memoryview | bytes) -> None:
    """Raise ValueError for JPEG 2000 of more than 8 bits that Pillow would round to 8.

    That is color, and gray of 9 bits in a JP2. It does not clip: 255.5 levels become 256, of which
    0 is left, so that white is black.
    """
    bits = max(_jpeg2000_depths(data), default=0)
    if bits > 8 and not image.mode.startswith("I"):
        raise ValueError(
            f"{image.mode} of {bits} bits, whose white Pillow makes black: it is read of 8 bits, "
            "and gray also of 9 to 16. Convert it to 8, or give the pixels as a feature, an array"
        )


def _stored_bits(image: Any, format: str, data: memoryview | bytes) -> int:
    """Return the most bits a sample of a TIFF, or of a JPEG 2000 file."""
    if format == "TIFF":
        return max(map(int, image.tag_v2.get(_BITS_PER_SAMPLE, (1,))))
    return max(_jpeg2000_depths(data), default=0)


def _avif_bits(data: memoryview | bytes) -> int:
    """Return the bits a sample of the first AV1 configuration: AV1-ISOBMFF 2.3.3."""
    found = _AV1_CONFIGURATION.search(data)
    if found is None:
        return 8
    flags = found[1][0]
    return 8 + 2 * (flags >> 6 & 1) * (1 + (flags >> 5 & 1))


def _low_zeros(format: str, data: memoryview | bytes) -> int:
    """Return how many zeros Pillow adds behind the bits of JPEG 2000 gray, to fill 16."""
    depths = _jpeg2000_depths(data) if format == "JPEG2000" else []
    return max(0, 16 - depths[0]) if len(depths) == 1 and depths[0] > 8 else 0


def jpeg2000_palette(data: memoryview) -> list[int]:
    """Return the bits of each column of a JP2's palette; [] where there is none."""
    header = box(data, b"jp2h")
    palette = None if header is None else box(header, b"pclr")
    if palette is None:
        return []
    count = int.from_bytes(palette[2:3], "big")
    return [1 + (depth & 127) for depth in palette[3 : 3 + count]]


def _jpeg2000_depths(data: memoryview | bytes) -> list[int]:
    """Return the bits of each component; [] if they are not found."""
    found = _JPEG2000_SIZE.search(data)
    if found is None:
        return []
    count = int.from_bytes(found[1], "big")
    components = bytes(data[found.end() : found.end() + 3 * count])
    return [1 + (depth & 127) for depth in components[::3]]


def _with_form(tile: Any, form: str) -> Any:
    """Return one of the parts that Pillow decodes, with pixels of another form in the file."""
    arguments = (form, *tile[3][1:])
    if hasattr(tile, "_replace"):  # from Pillow 11 on
        return tile._replace(args=arguments)
    return (*tile[:3], arguments)


# ---- the limit on pixels, and the plugins

_ARRAYS_ADVICE = (
    "as uint8, images are read of 8 bits, and of 12 or 16, whose upper 8 are kept. Take "
    "decode.Image(channels='gray', dtype='float32'), or convert it to 8 bits over the range that "
    "you need"
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
_OPTIONAL_COMPRESSIONS = frozenset({"lzma", "webp", "zstd"})  # of libtiff, by Pillow's names
_AV1_CONFIGURATION = re.compile(rb"av1C\x81.(.)", re.DOTALL)
# SOT and EOC, ITU-T T.800 A.2: no two bytes of a packet are like a marker above FF8F.
_JPEG2000_WHOLE = re.compile(rb"\xff\x90.*\xff\xd9", re.DOTALL)
