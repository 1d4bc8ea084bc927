"""From the numbers of a file to the channels and the dtype that are asked for.

Numbers stay as they are wherever the dtype holds them: nothing is scaled. There are two exceptions.
What is asked for as uint8 and has more bits keeps its upper 8, and colors of fewer than 8 bits fill
8.
"""

import numpy as np

from jaxaug.decode.image.deep.layout import COLOR_SAMPLES, Layout
from jaxaug.decode.image.form import COLORS, PixelForm
from jaxaug.errors import DecodeError

# Luma of ITU-R BT.601 in 2^-16, as Pillow has it: 0.299, 0.587, 0.114.
_LUMA = (19595, 38470, 7471)


def to_channels(pixels: np.ndarray, layout: Layout, form: PixelForm) -> tuple[np.ndarray, int]:
    """Return pixels [h, w, samples] as channels [h, w, k], in the file's dtype, and their bits."""
    if form.channels in COLORS:
        return _fill_bits(*_to_colors(pixels, layout, str(form.channels)))
    if form.bands is not None and form.bands != tuple(range(layout.samples)):
        pixels = pixels[..., list(form.bands)]
    return pixels, layout.bits


def is_as_stored(layout: Layout, form: PixelForm, size: tuple[int, int]) -> bool:
    """Return True where the pixels on a canvas are the numbers of the file, all in their places.

    Args:
      layout: of a good image.
      form: of the pixels.
      size: (h, w) of the upright image on the canvas.
    """
    same = layout.dtype.name == form.dtype and (layout.height, layout.width) == size
    if not same or layout.orientation != 1:
        return False
    if form.channels not in COLORS:
        return form.bands in (None, tuple(range(layout.samples)))
    colors = layout.colors == form.channels and layout.samples == COLOR_SAMPLES[layout.colors]
    return colors and not layout.inverted and (layout.dtype.kind != "u" or layout.full >= 255)


def nodata_of(layout: Layout, form: PixelForm) -> float | None:
    """Return the number that stands for no data in what `to_channels` returns, None for none."""
    nodata = layout.nodata
    if nodata is None or form.channels not in COLORS:
        return nodata
    if layout.colors in ("palette", "cmyk") or layout.full < 255:
        return None  # other numbers than those of the file
    if not layout.inverted:
        return nodata
    return -1 - nodata if layout.dtype.kind == "i" else layout.full - nodata


def _to_colors(
    pixels: np.ndarray, layout: Layout, wanted: str
) -> tuple[np.ndarray, int, int | float]:
    """Return colors [h, w, channels] in the file's own dtype, with their bits and full level."""
    count = COLOR_SAMPLES[layout.colors]
    full = layout.full
    bits = layout.bits
    colors = pixels[..., :count]
    if layout.colors == "palette":
        colors = np.asarray(layout.palette)[colors[..., 0]]
        full = 255
        bits = 8
    elif layout.colors == "cmyk":
        colors = _from_cmyk(colors, full)
    elif layout.inverted:
        # Of signed numbers the darkest is -1 - full.
        colors = ~colors if colors.dtype.kind == "i" else (full - colors).astype(colors.dtype)

    alpha = pixels[..., count : count + 1] if layout.alpha else None
    if alpha is not None and layout.alpha == "premultiplied":
        colors = _divided(colors, alpha, full)
    if wanted == "gray":
        return colors if colors.shape[-1] == 1 else _luma(colors), bits, full
    if colors.shape[-1] == 1:
        colors = np.broadcast_to(colors, (*colors.shape[:2], 3))
    if wanted == "rgba":
        opaque = np.broadcast_to(np.array(full, colors.dtype), (*colors.shape[:2], 1))
        colors = np.concatenate([colors, opaque if alpha is None else alpha], axis=-1)
    return colors, bits, full


def _from_cmyk(inks: np.ndarray, full: int | float) -> np.ndarray:
    """Return red, green and blue: (1 - ink) (1 - black)."""
    paper = full - inks.astype(np.float64)
    colors = paper[..., :3] * paper[..., 3:] / full
    return _rounded(colors, inks.dtype)


def _divided(colors: np.ndarray, alpha: np.ndarray, full: int | float) -> np.ndarray:
    """Return colors that were multiplied by their alpha without it, at most `full`."""
    alpha = alpha.astype(np.float64)
    shown = np.where(alpha > 0, alpha, 1)
    straight = colors * (full / shown)
    return _rounded(np.where(alpha > 0, np.minimum(straight, full), 0), colors.dtype)


def _luma(colors: np.ndarray) -> np.ndarray:
    """Return [h, w, 1], the luma of red, green and blue."""
    if colors.dtype.kind == "f":
        weights = np.array(_LUMA, np.float64) / 65536
        return (colors @ weights)[..., None].astype(colors.dtype)
    weighted = colors.astype(np.uint64) * np.array(_LUMA, np.uint64)
    return ((weighted.sum(-1, keepdims=True) + 32768) >> 16).astype(colors.dtype)


def _rounded(colors: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return colors in a dtype, the nearest number of an integer one."""
    return (np.floor(colors + 0.5) if dtype.kind in "ui" else colors).astype(dtype)


def _fill_bits(pixels: np.ndarray, bits: int, full: int | float) -> tuple[np.ndarray, int]:
    """Return integers below 256 spread over 8 bits, and the bits of the result."""
    if pixels.dtype.kind != "u" or full >= 255:
        return pixels, bits
    spread = (pixels.astype(np.uint32) * 510 + int(full)) // (2 * int(full))
    return np.minimum(spread, 255).astype(np.uint8), 8


def to_dtype(pixels: np.ndarray, bits: int, dtype: str) -> np.ndarray:
    """Return numbers in a dtype that holds them, or the upper 8 bits of deeper ones.

    Raises:
      DecodeError: float32 would change a whole number.
    """
    if dtype == "uint8" and bits > 8:
        return (pixels >> (bits - 8)).astype(np.uint8)
    if dtype != "float32" or bits <= 24 or pixels.dtype in (np.float16, np.float32):
        return pixels  # `decode_into` casts them where it places them
    with np.errstate(over="ignore"):
        floats = pixels.astype(np.float32, copy=False)
    if pixels.dtype.kind == "f":
        changed = np.isinf(floats) & np.isfinite(pixels)
    else:
        changed = floats.astype(np.float64) != pixels
    if changed.any():
        raise DecodeError(
            f"float32 would change the number {pixels[changed][0]}: it holds whole numbers up to "
            "2^24 and floats up to 3.4e38. Give such numbers as an array, a feature"
        )
    return floats
