"""Files whose pixels Pillow would read with a wrong number of bits, without an error."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

# Palettes of BMPs that Pillow drops, by the mode that it takes instead.
_PALETTES = {"1": bytes((0, 0, 0, 255, 255, 255)), "L": bytes(i for i in range(256) for _ in "RGB")}
_BITS = {"1": 1, "L": 8}  # a pixel, with which it then reads the file
_PALETTE_FORMS = {1: "P;1", 4: "P;4", 8: "P"}

# Tags of TIFF 6.0, and a value.
_BITS_PER_SAMPLE = 258
_SAMPLES_PER_PIXEL = 277
_PLANAR_CONFIGURATION = 284
_SEPARATE = 2
_MAX_SAMPLES = 4

# SOC and SIZ up to the number of components, of each of which three bytes follow: ITU-T T.800 A.5.1
_JPEG2000_SIZE = re.compile(rb"\xff\x4f\xff\x51.{36}(..)", re.DOTALL)


def restore_bits(image: "Image.Image", format: str, data: memoryview | bytes) -> None:
    """Have an image, not loaded yet, read with the bits a pixel that its file has.

    Raises:
      ValueError: Pillow cannot.
    """
    if format == "BMP":
        _restore_palette(image, data)
    elif format == "TIFF":
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


def _restore_planes(image: Any, data: memoryview | bytes) -> None:
    """Read planes of 16 bits as such.

    Without compression, Pillow reads all planes with 8, and refuses the one plane of gray. It has
    no codec for planes of CMYK with 16, and so refuses these.
    """
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


def stored_bits(image: Any, format: str, data: memoryview | bytes) -> int:
    """Return the most bits a sample of a TIFF, or of a JPEG 2000 file."""
    if format == "TIFF":
        return max(map(int, image.tag_v2.get(_BITS_PER_SAMPLE, (1,))))
    return max(_jpeg2000_depths(data), default=0)


def refused_samples(data: memoryview | bytes) -> str:
    """Return what to add to Pillow's words about a TIFF that it does not open; "" if it is damaged.

    The first directory of the file tells the number of samples a pixel.
    """
    order = "big" if data[:2] == b"MM" else "little"
    start = int.from_bytes(data[4:8], order)
    entries = int.from_bytes(data[start : start + 2], order)
    found = {}
    for at in range(start + 2, min(start + 2 + 12 * entries, len(data) - 11), 12):
        tag = int.from_bytes(data[at : at + 2], order)
        found[tag] = int.from_bytes(data[at + 8 : at + 10], order)
    samples = found.get(_SAMPLES_PER_PIXEL, 1)
    if samples <= _MAX_SAMPLES:
        return ""
    return (
        f" ({samples} samples a pixel; read are gray, palettes, RGB, RGBA, CMYK of 8 or 16 bits: "
        "give other bands as a feature, an array, beside an image of three of them)"
    )


def low_zeros(format: str, data: memoryview | bytes) -> int:
    """Return how many zeros Pillow adds behind the bits of JPEG 2000 gray, to fill 16."""
    depths = _jpeg2000_depths(data) if format == "JPEG2000" else []
    return max(0, 16 - depths[0]) if len(depths) == 1 and depths[0] > 8 else 0


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
