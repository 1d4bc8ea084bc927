"""BMPs of gray palettes, whose pixels Pillow would read with a wrong number of bits."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

# Palettes that Pillow drops, by the mode that it takes instead.
_PALETTES = {"1": bytes((0, 0, 0, 255, 255, 255)), "L": bytes(i for i in range(256) for _ in "RGB")}
_BITS = {"1": 1, "L": 8}  # a pixel, with which it then reads the file
_RAWMODES = {1: "P;1", 4: "P;4", 8: "P"}


def restore_palette(image: "Image.Image", data: memoryview | bytes) -> None:
    """Have an image, not loaded yet, read with the bits a pixel that its file has.

    Pillow takes a palette of black and white for 1 bit and one of gray levels 0, 1, 2, ... for 8
    bits, whatever the header says.

    Reference: BITMAPINFOHEADER and BITMAPCOREHEADER, learn.microsoft.com/windows/win32/api/wingdi.
    """
    is_core = int.from_bytes(data[14:18], "little") == 12
    at = 24 if is_core else 28
    bits = int.from_bytes(data[at : at + 2], "little")
    if bits == _BITS.get(image.mode, bits) or bits not in _RAWMODES:
        return
    from PIL import ImagePalette

    palette = _PALETTES[image.mode]
    image.palette = ImagePalette.raw("RGB", palette)
    image._mode = "P"  # type: ignore[attr-defined]
    codec, extent, offset, arguments = image.tile[0]  # type: ignore[attr-defined]
    image.tile = [(codec, extent, offset, (_RAWMODES[bits], *arguments[1:]))]  # type: ignore
