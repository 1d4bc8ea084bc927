"""What only Pillow reads: PNG, WebP, BMP, GIF and TIFF files, and JPEGs of unusual colour or sampling.

The plugins are called directly, by the format that the bytes tell: `PIL.Image.open` would try every codec it
knows and apply a pixel limit of its own, where `max_pixels` is the one limit here.
"""

import io
from typing import TYPE_CHECKING

import numpy as np

from jaxaug.errors import DecodeError

if TYPE_CHECKING:
    from PIL import Image

_ORIENTATION = 0x0112  # the EXIF and TIFF tag
_TURNS = {  # EXIF orientation -> Pillow's name of the way back
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_LARGEST_SIDE = 2**31 - 1


def format_of(data: memoryview) -> str | None:
    """The format the first bytes tell, as Pillow names it, or None.

    Example:
      >>> format_of(memoryview(b"GIF89a..."))
      'GIF'
    """
    head = bytes(data[:16])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


def open_image(data: memoryview | bytes, format: str) -> "Image.Image":
    """A lazily decoded Pillow image: size and mode are read, pixels are not.

    Raises:
      DecodeError: the header is not one of that format.
    """
    from PIL import (
        BmpImagePlugin,
        GifImagePlugin,
        JpegImagePlugin,
        PngImagePlugin,
        TiffImagePlugin,
        WebPImagePlugin,
    )

    plugin = {
        "BMP": BmpImagePlugin.BmpImageFile,
        "GIF": GifImagePlugin.GifImageFile,
        "JPEG": JpegImagePlugin.JpegImageFile,
        "PNG": PngImagePlugin.PngImageFile,
        "TIFF": TiffImagePlugin.TiffImageFile,
        "WEBP": WebPImagePlugin.WebPImageFile,
    }[format]
    try:
        return plugin(io.BytesIO(data))
    except Exception as error:  # Pillow's parsers let nearly every exception out of a damaged file
        raise DecodeError(f"{format}: {error}") from error


def read_facts(data: memoryview, format: str) -> tuple[int, int, int]:
    """(height, width, orientation) as the file stores them, before any turning.

    Raises:
      DecodeError: the header is not one of that format, or tells of no pixels.
    """
    image = open_image(data, format)
    width, height = image.size
    try:
        orientation = _read_orientation(image, data)
        if format == "TIFF":  # Pillow reports the size of the turned image
            width, height = int(image.tag_v2[256]), int(image.tag_v2[257])  # type: ignore[attr-defined]
    except Exception as error:
        raise DecodeError(f"{format}: {error}") from error
    if min(height, width) < 1 or max(height, width) > _LARGEST_SIDE:
        raise DecodeError(f"{format}: {width} x {height} pixels")
    return height, width, orientation if orientation in range(1, 9) else 1


def upright_rgb(data: memoryview | bytes, format: str, orientation: int) -> "Image.Image":
    """The decoded image in mode RGB, turned as EXIF orientation 1..8 asks.

    Alpha is dropped; 16 bit keep their upper 8, as Pillow does for RGB by itself.

    Raises:
      DecodeError: the pixels are damaged, or of a kind without an agreed way to 8 bits.
    """
    from PIL import Image, ImageOps

    image = open_image(data, format)
    try:
        image.load()
        if format == "TIFF":  # recent versions of Pillow have turned it by now, and taken the tag away
            image = ImageOps.exif_transpose(image)
        elif orientation > 1:
            image = image.transpose(Image.Transpose[_TURNS[orientation]])
        image.info.pop("transparency", None)
        return _to_rgb(image, format)
    except DecodeError:
        raise
    except Exception as error:
        raise DecodeError(f"{format}: {error}") from error


def _read_orientation(image: "Image.Image", data: memoryview) -> int:
    """The orientation tag, found without decoding: the getexif of Pillow's PNG plugin decodes the image."""
    from PIL import Image

    if image.format == "PNG" and "exif" not in image.info:
        image.info["exif"] = _exif_behind_pixels(data)
    return Image.Image.getexif(image).get(_ORIENTATION, 1)


def _exif_behind_pixels(data: memoryview) -> bytes:
    """What the eXIf chunk of a PNG holds, wherever it stands; b"" without one."""
    position = 8
    while position + 12 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        if data[position + 4 : position + 8] == b"eXIf":
            return b"Exif\0\0" + data[position + 8 : position + 8 + length]
        position += 12 + length
    return b""


def _to_rgb(image: "Image.Image", format: str) -> "Image.Image":
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and format == "PNG"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DecodeError(f"{format} pixels of mode {image.mode} have no agreed range")
    return image.convert("RGB")


_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
)
