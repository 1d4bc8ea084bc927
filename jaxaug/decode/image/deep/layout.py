"""How a file stores its pixels, and whether they can become the pixels that are asked for."""

from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.image.form import COLORS, PixelForm

# Of colors -> the numbers a pixel that they take.
COLOR_SAMPLES = {"": 0, "gray": 1, "palette": 1, "rgb": 3, "cmyk": 4}
_MAX_BYTES_PER_PIXEL = 32  # of an image of `max_pixels`: 4 GiB by default


class Layout(NamedTuple):
    """What the header of an image tells of its pixels.

    Attributes:
      height, width: as the file stores them, before the orientation is applied.
      samples: numbers a pixel.
      dtype: of these, in the byte order of this machine.
      bits: of these that count.
      colors: what the first of them are: "gray", "rgb", "palette", "cmyk", or "" for no colors.
      alpha: "straight" or "premultiplied" where the sample behind the colors is one, else "".
      orientation: 1 to 8, of EXIF.
      inverted: of "gray", 0 is white.
      highest: the number of full brightness; 0 for that of all `bits`.
      nodata: the number that stands for no data, as NaN always does; None for none.
      palette: uint8[k, 3], the colors of the numbers of a palette.
      by_pillow: Pillow decodes it, as its 8 bits.
      place: what the reader of the format needs to find the pixels.
    """

    height: int
    width: int
    samples: int
    dtype: np.dtype
    bits: int
    colors: str
    alpha: str = ""
    orientation: int = 1
    inverted: bool = False
    highest: int = 0
    nodata: float | None = None
    palette: np.ndarray | None = None
    by_pillow: bool = False
    place: Any = None

    @property
    def full(self) -> float:
        """The number of full brightness, and of what is opaque."""
        if self.dtype.kind == "f":
            return 1.0
        bits = self.bits - 1 if self.dtype.kind == "i" else self.bits
        return self.highest or 2**bits - 1


def contradiction(layout: Layout) -> str:
    """Return what no image has, but its damaged header tells; "" for nothing."""
    if min(layout.height, layout.width, layout.samples) < 1:
        return f"{layout.width} x {layout.height} pixels of {layout.samples} numbers"
    if layout.bits > 8 * layout.dtype.itemsize:
        return f"{layout.bits} bits in each {layout.dtype.name}"
    taken = COLOR_SAMPLES[layout.colors] + bool(layout.alpha)
    if taken > layout.samples and not layout.by_pillow:
        alpha = " with alpha" if layout.alpha else ""
        return f"{layout.samples} numbers a pixel, where {layout.colors}{alpha} takes {taken}"
    return ""


def misfit(layout: Layout, form: PixelForm) -> str:
    """Return why an image cannot have a form, or ""; decided from its header."""
    return (
        _channel_misfit(layout, form)
        or _dtype_misfit(layout, form.dtype)
        or _pillow_misfit(layout, form)
    )


def _channel_misfit(layout: Layout, form: PixelForm) -> str:
    if form.channels not in COLORS or layout.colors:
        return form.misfit(layout.samples, images=form.page + 1)
    return (
        f"its {layout.samples} numbers a pixel are no colors: take decode.Image(bands=(0, 1, ...)) "
        "or channels='as stored'"
    )


def _dtype_misfit(layout: Layout, dtype: str) -> str:
    stored = layout.dtype
    if stored.kind not in "uif" or stored.itemsize > 8:
        return f"its pixels are {stored.name}, which no dtype of images holds"
    limit = 16 if dtype in ("uint8", "uint16") else 64
    if dtype == "float32" or (stored.kind == "u" and layout.bits <= limit):
        return ""
    return f"its pixels are {stored.name}, which {dtype} does not hold: take dtype='float32'"


def _pillow_misfit(layout: Layout, form: PixelForm) -> str:
    deep = layout.bits > 8 and form.dtype != "uint8"
    if not (deep and layout.by_pillow and form.channels in COLORS):
        return ""
    return (
        f"Pillow converts its colors, to 8 bits of {layout.bits}: take dtype='uint8', or its "
        "numbers by channels='as stored'"
    )


def too_large(layout: Layout, max_pixels: int) -> str:
    """Return why an image takes too much memory, or ""."""
    pixels = layout.height * layout.width
    size = f"{layout.width} x {layout.height} pixels"
    if pixels > max_pixels:
        return f"{size} are more than max_pixels={max_pixels}"
    taken = pixels * layout.samples * layout.dtype.itemsize
    if taken > _MAX_BYTES_PER_PIXEL * max_pixels:
        return (
            f"{size} of {layout.samples} {layout.dtype.name} take more than "
            f"{_MAX_BYTES_PER_PIXEL} x max_pixels={max_pixels} bytes"
        )
    return ""
