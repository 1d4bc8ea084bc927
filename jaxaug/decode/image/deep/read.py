"""Deep images: which reader a format has, whether a file is good, and its pixels on a canvas."""

from types import ModuleType

import numpy as np

from jaxaug.decode.image.deep import (
    arrays,
    avif,
    dicom,
    heic,
    jpeg,
    jpeg2000,
    jpegxl,
    netpbm,
    png,
    tiff,
)
from jaxaug.decode.image.deep.convert import nodata_of, to_channels, to_dtype
from jaxaug.decode.image.deep.layout import Layout, contradiction, misfit, too_large
from jaxaug.decode.image.deep.shrink import shrink
from jaxaug.decode.image.form import PixelForm
from jaxaug.decode.image.orientation import TRANSPOSE, upright
from jaxaug.errors import DecodeError

# Each has read_layout(data, page), which raises DecodeError for what is no good file, and
# decode(data, layout), which returns [h, w, samples]. The header of a JPEG is read with all others.
_READERS: dict[str, ModuleType] = {
    "AVIF": avif,
    "DICOM": dicom,
    "HEIC": heic,
    "JPEG": jpeg,
    "JPEG2000": jpeg2000,
    "JPEGXL": jpegxl,
    "NPY": arrays,
    "PNG": png,
    "PPM": netpbm,
    "TIFF": tiff,
}
FORMATS = frozenset(_READERS)
ALONE = frozenset({"DICOM", "HEIC", "JPEGXL", "NPY"})  # which Pillow does not read
MORE_THAN_PILLOW = FORMATS - {"PNG"}


def read_layout(data: memoryview, format: str, form: PixelForm, max_pixels: int) -> Layout:
    """Return the layout of a good image that can have a form.

    Raises:
      DecodeError: it cannot, or it is no good image.
    """
    layout = _open(data, format, form.page)
    check_layout(layout, format, form, max_pixels)
    return layout


def check_layout(layout: Layout, format: str, form: PixelForm, max_pixels: int) -> None:
    """Raise DecodeError for an image that is too large, or cannot have a form."""
    reason = too_large(layout, max_pixels) or misfit(layout, form)
    if reason:
        raise DecodeError(f"{format}: {reason}")


def decode_deep(
    data: memoryview,
    format: str,
    layout: Layout,
    form: PixelForm,
    size: tuple[int, int],
) -> np.ndarray:
    """Return the upright pixels [h, w, channels] of a good image, shrunk to `size`.

    Args:
      layout: from `read_layout`, of the same bytes and form.

    Raises:
      DecodeError: the pixels are damaged.
    """
    return to_form(_decode(data, format, layout), layout, form, size)


def to_form(
    stored: np.ndarray, layout: Layout, form: PixelForm, size: tuple[int, int]
) -> np.ndarray:
    """Return pixels [h, w, samples] as `decode_deep` does.

    Raises:
      DecodeError: float32 does not hold them.
    """
    pixels, bits = to_channels(stored, layout, form)
    height, width = size
    sides = (width, height) if TRANSPOSE[layout.orientation] else size
    dtype = np.dtype(np.float32) if form.dtype == "float32" else pixels.dtype
    nodata = nodata_of(layout, form)
    small = shrink(pixels, sides, dtype, nodata, form.channels == "rgba")
    pixels = to_dtype(small, bits, form.dtype)
    return upright(pixels, layout.orientation)


def decode_stored(data: memoryview, format: str, layout: Layout) -> np.ndarray:
    """Return the upright pixels [h, w, samples] of a good image, in the dtype of the file.

    They are a copy, as others may lie in `data`.

    Raises:
      DecodeError: the pixels are damaged.
    """
    return upright(_decode(data, format, layout), layout.orientation).copy()


def _decode(data: memoryview, format: str, layout: Layout) -> np.ndarray:
    """Return the pixels [h, w, samples] as they are stored."""
    try:
        pixels = _READERS[format].decode(data, layout)
    except DecodeError:
        raise
    except Exception as error:  # the libraries raise nearly every exception
        raise DecodeError(f"{format}: {type(error).__name__}: {error}") from error
    same = pixels.dtype.kind == layout.dtype.kind and pixels.itemsize == layout.dtype.itemsize
    if not same or pixels.shape != (layout.height, layout.width, layout.samples):
        found = f"{pixels.dtype}{list(pixels.shape)}"
        raise DecodeError(f"{format}: its pixels are {found}, which its header denies")
    return pixels


def _open(data: memoryview, format: str, page: int) -> Layout:
    try:
        layout = _READERS[format].read_layout(data, page)
    except DecodeError:
        raise
    except Exception as error:  # of damaged headers
        raise DecodeError(f"{format}: {type(error).__name__}: {error}") from error
    if reason := contradiction(layout):
        raise DecodeError(f"{format}: {reason}")
    return layout
