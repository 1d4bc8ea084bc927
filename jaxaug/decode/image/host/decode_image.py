"""Decoding one image on the host, with libjpeg-turbo through simplejpeg, or with Pillow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from jaxaug._checks import check_choice, check_positive_int
from jaxaug._warn import precision_warning, warn_user
from jaxaug.decode._types import Encoded
from jaxaug.decode.image import pillow
from jaxaug.decode.image.deep.convert import to_dtype
from jaxaug.decode.image.deep.read import decode_deep, decode_stored
from jaxaug.decode.image.deep.shrink import shrink
from jaxaug.decode.image.form import AS_STORED, COLORS, USUAL, PixelForm, pixel_form
from jaxaug.decode.image.host.turbojpeg import (
    check_jpeg_strictly,
    decode_jpeg,
    despite_damage,
    suits_turbojpeg,
)
from jaxaug.decode.image.orientation import TRANSPOSE, upright
from jaxaug.decode.image.parse.headers import BAD, DEEP, JPEG, MAX_PIXELS, Headers, read_headers
from jaxaug.decode.image.parse.jpeg_rules import GRAY, YCBCR
from jaxaug.decode.image.parse.other_formats import format_of
from jaxaug.errors import DecodeError


def decode_image(
    data: "bytes | bytearray | memoryview | np.ndarray",
    mode: str = "rgb",
    max_pixels: int = MAX_PIXELS,
    *,
    strict: bool = False,
    truncated: str = "error",
    dtype: DTypeLike | None = None,
    channels: str | int | None = None,
    bands: Sequence[int] | None = None,
    page: int = 0,
) -> np.ndarray:
    """Decode one image of any supported format on the host.

    Args:
      data: the encoded bytes: JPEG, PNG, WebP, BMP, GIF (first frame), TIFF, PPM, PGM or PBM, ICO
        (largest image), CUR, DDS, PCX, PSD, QOI, TGA with its footer, XBM or XPM, where this Pillow
        has the codecs, JPEG 2000 and AVIF, and what `Decoder` reads with the extra `deep`.
      mode: "rgb" for colors, "gray" for luma, "unchanged" for what the file stores, as class
        numbers and depth maps need it.
      max_pixels: an image whose header promises more pixels is refused before anything is
        allocated.
      strict: refuse what libjpeg warns of, such as damage inside of the image data of a JPEG, which
        costs pixels and not the image otherwise; takes twice the time. Of JPEGs of other than 8
        bits only the markers are looked at: imagecodecs tells nothing of the rest.
      truncated: a JPEG without its end marker is refused ("error") or decoded as far as it goes
        ("accept").
      dtype: "uint8", "uint16" or "float32" for the numbers of the file as `Decoder(dtype=)` gives
        them, of "unchanged" those that are stored; None for what `mode` says below.
      channels, bands, page: as `Decoder` takes them, in place of `mode`: the n numbers of a pixel,
        or "as stored" for all of them, some of them, and those of a later image of the file.
        Without `dtype` they are uint8.

    Returns:
      The upright image (all eight EXIF orientations applied).

      "rgb": uint8[h, w, 3]; gray is repeated to three channels, CMYK converted, alpha dropped, the
      upper 8 of 12 or 16 bits kept, with an `errors.PrecisionWarning`.

      "gray": uint8[h, w]; the Y channel of a JPEG, else 0.299 R + 0.587 G + 0.114 B of "rgb".

      "unchanged": uint8[h, w] of gray and of palettes, whose numbers stay, also those of 1, 2 and 4
      bits, and of a PGM or PPM whose highest number is not 255; uint16[h, w] of gray with 16 bit;
      uint8[h, w, 2] of gray with alpha; uint8[h, w, 3] of RGB; uint8[h, w, 4] of RGB with alpha,
      and of CMYK with 255 for full ink; int32 and float32[h, w] of such TIFF files; of formats that
      Pillow does not read, such as JPEG XL or DICOM, [h, w] or [h, w, n] in the file's own dtype,
      where these are colors of unsigned integers: `Decoder(dtype="float32")` reads other numbers.

    Raises:
      DecodeError: the bytes are no such image, or a truncated one, or one of too many pixels. With
        "unchanged" also PNG, TIFF and PPM color of 16 bits, of which Pillow reads only 8.
        AVIF color of more than 8 bits is reduced to 8, JPEG 2000 color of more is refused.
      TypeError: `data` is not bytes-like.
      ValueError: an argument is wrong.

    Example:
      >>> import io, numpy as np
      >>> from PIL import Image
      >>> file = io.BytesIO()
      >>> Image.fromarray(np.zeros((2, 3), np.uint8)).save(file, "png")
      >>> decode_image(file.getvalue()).shape, decode_image(file.getvalue(), "gray").shape
      ((2, 3, 3), (2, 3))

    Differs from PIL in that the image is upright, and a JPEG without its end is refused.
    Differs from torchvision's `decode_image` in that channels come last and one alone has no axis,
    "rgb" is the default, EXIF always counts, and "unchanged" keeps the numbers of a palette.
    """
    check_choice("mode", mode, ("rgb", "gray", "unchanged"))
    check_positive_int("max_pixels", max_pixels)
    check_choice("strict", strict, (False, True))
    check_choice("truncated", truncated, ("error", "accept"))
    encoded = Encoded.from_bytes([data])
    if dtype is not None or channels is not None or bands is not None or page:
        if channels is None and bands is None:
            channels = AS_STORED if mode == "unchanged" else mode
        form = pixel_form(channels, "uint8" if dtype is None else dtype, bands, page)
        return _decode_deep(encoded, form, max_pixels, strict=strict, truncated=truncated)
    headers = read_headers(encoded, max_pixels, truncated)
    if headers.kind[0] == BAD:
        raise DecodeError(headers.reason[0], byte_count=len(data))
    header = headers.row(0)
    height, width = headers.original_size()[0].tolist()
    try:
        if strict:
            _check_strictly(encoded.view(0), header)
        if mode == "unchanged":
            return decode_unchanged(encoded.view(0), header)
        row = np.zeros((height, width, 1 if mode == "gray" else 3), np.uint8)
        decode_into(encoded.view(0), header, (height, width), row)
    except DecodeError as error:
        raise DecodeError(error.reason, byte_count=len(data)) from error
    _warn_of_precision(header)
    return row[..., 0] if mode == "gray" else row


def _warn_of_precision(header: Headers) -> None:
    """Warn of an image whose upper 8 bits alone are kept."""
    if header.precision > 8:
        warning = precision_warning(int(header.precision))
        warn_user(f"the image {warning}", type(warning))


def _decode_deep(
    encoded: Encoded, form: PixelForm, max_pixels: int, *, strict: bool, truncated: str
) -> np.ndarray:
    """Return one image in a form, [h, w] of one channel, else [h, w, channels]."""
    byte_count = int(encoded.lengths[0])
    try:
        header = _good_header(encoded, form, max_pixels, truncated)
        if strict:
            _check_strictly(encoded.view(0), header)
        pixels = _decode_whole(encoded.view(0), header, form)
    except DecodeError as error:
        raise DecodeError(error.reason, byte_count=byte_count) from error
    if form.dtype == "uint8":
        _warn_of_precision(header)
    return pixels[..., 0] if pixels.shape[2] == 1 else pixels


def decode_as(encoded: Encoded, form: PixelForm, max_pixels: int, truncated: str) -> np.ndarray:
    """Return the first of some images whole and upright, [h, w, channels] in a form.

    Raises:
      DecodeError: it is bad, or cannot have that form.
    """
    header = _good_header(encoded, form, max_pixels, truncated)
    return _decode_whole(encoded.view(0), header, form)


def _good_header(encoded: Encoded, form: PixelForm, max_pixels: int, truncated: str) -> Headers:
    """Return the header of the first of some images; raise DecodeError where it is bad."""
    headers = read_headers(encoded.take(slice(0, 1)), max_pixels, truncated, form)
    if headers.kind[0] == BAD:
        raise DecodeError(headers.reason[0])
    return headers.row(0)


def _decode_whole(data: memoryview, header: Headers, form: PixelForm) -> np.ndarray:
    """Return an upright image of its full size, [h, w, channels] in a form."""
    height, width = header.original_size().tolist()
    pixels = _decode_form(data, header, (height, width), form)
    return pixels.astype(form.dtype)  # always a copy: they may lie in the file, which nobody holds


def _check_strictly(data: memoryview, header: Headers) -> None:
    """Raise DecodeError for a JPEG that libjpeg warns of; other formats' libraries raise."""
    from PIL import ImageFile

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ValueError(
            "`strict` must be False while PIL.ImageFile.LOAD_TRUNCATED_IMAGES is True, with which "
            "Pillow fills up what is missing: set it to False."
        )
    if header.color:
        check_jpeg_strictly(data, header)


def decode_unchanged(data: memoryview, header: Headers) -> np.ndarray:
    """Return the upright image as the file stores it, see mode "unchanged" of `decode_image`.

    Args:
      data: the bytes of one image.
      header: `Headers.row(i)` of a good image.

    Raises:
      DecodeError: the pixels cannot be read, or Pillow would change them.
    """
    if suits_turbojpeg(header):
        height, width = header.original_size().tolist()
        gray = header.color == GRAY
        row = np.zeros((height, width, 1 if gray else 3), np.uint8)
        decode_into(data, header, (height, width), row)
        return row[..., 0] if gray else row

    format = format_of(data) or "JPEG"
    orientation = int(header.orientation)

    def decode(data: memoryview | bytes) -> np.ndarray:
        if header.kind != DEEP:
            return pillow.upright_unchanged(data, format, orientation)
        pixels = decode_stored(memoryview(data), format, header.layout)
        return pixels[..., 0] if pixels.shape[2] == 1 else pixels

    return despite_damage(decode, data, header)


def decode_into(
    data: memoryview,
    header: Headers,
    size: tuple[int, int],
    row: np.ndarray,
    form: PixelForm | None = None,
) -> None:
    """Decode one image to the top-left of its canvas; the rest of the canvas is not touched.

    Args:
      data: the bytes of one image.
      header: `Headers.row(i)` of a good image.
      size: (h, w) of the upright image on the canvas, from `fit_size`.
      row: [H, W, channels] in the dtype of the form, C contiguous.
      form: of the pixels; None for uint8, RGB of three channels or luma of one.

    Raises:
      DecodeError: the pixels cannot be read; the canvas may be partly written.
    """
    if header.kind == DEEP or form is not None:
        height, width = size
        row[:height, :width] = _decode_form(data, header, size, form or USUAL[row.shape[2]])
        return
    if suits_turbojpeg(header):
        _decode_with_turbojpeg(data, header, size, row)
        return

    height, width = size
    channels = row.shape[2]
    image = despite_damage(lambda data: _open_upright(data, header, channels), data, header)
    row[:height, :width] = _shrink(image, size, image.size)


def _decode_form(
    data: memoryview, header: Headers, size: tuple[int, int], form: PixelForm
) -> np.ndarray:
    """Return the upright pixels [h, w, channels] of an image in any form, shrunk to `size`."""
    if header.kind == DEEP:
        format = format_of(data) or "JPEG"

        def decode(data: memoryview | bytes) -> np.ndarray:
            return decode_deep(memoryview(data), format, header.layout, form, size)

        return despite_damage(decode, data, header)
    if form.channels in COLORS:
        return _decode_colors(data, header, size, str(form.channels))

    numbers = decode_unchanged(data, header)
    numbers = numbers.reshape(*numbers.shape[:2], -1)
    reason = form.misfit(numbers.shape[2])
    if reason:
        raise DecodeError(f"{format_of(data) or 'JPEG'}: {reason}")
    if form.bands is not None:
        numbers = numbers[..., list(form.bands)]
    pixels = shrink(numbers, size, numbers.dtype, None)
    return to_dtype(pixels, int(header.precision), form.dtype)


def _decode_colors(
    data: memoryview, header: Headers, size: tuple[int, int], channels: str
) -> np.ndarray:
    """Return uint8[h, w, channels], the colors of an image of 8 bits."""
    alpha = None
    if channels == "rgba" and header.kind != JPEG:
        format = format_of(data) or ""
        alpha = pillow.upright_alpha(data, format, int(header.orientation))
    if alpha is None:
        pixels = np.empty((*size, COLORS[channels]), np.uint8)
        if channels != "rgba":
            decode_into(data, header, size, pixels)
            return pixels
        colors = np.empty((*size, 3), np.uint8)
        decode_into(data, header, size, colors)
        pixels[..., :3] = colors
        pixels[..., 3] = 255
        return pixels

    height, width = header.original_size().tolist()
    colors = np.empty((height, width, 3), np.uint8)
    decode_into(data, header, (height, width), colors)
    pixels = np.dstack([colors, np.asarray(alpha)])
    return shrink(pixels, size, pixels.dtype, None, alpha=True)


def jpeg_scale(header: Headers, size: tuple[int, int]) -> int | None:
    """Return at how many eighths `decode_jpeg` gives an image before it is shrunk and turned.

    None for an image that is neither, and for one that Pillow decodes.

    Args:
      header: `Headers.row(i)` of a good image.
      size: (h, w) of the upright image on the canvas.
    """
    if not suits_turbojpeg(header):
        return None
    stored, wanted = _stored_sides(header, size)
    if wanted == stored and header.orientation == 1:
        return None
    return _dct_scale(stored, wanted)


def _stored_sides(
    header: Headers, size: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the (h, w) that is stored, and the one on the canvas as it would be stored."""
    height, width = size
    wanted = (width, height) if TRANSPOSE[header.orientation] else size
    return (int(header.height), int(header.width)), wanted


def _decode_with_turbojpeg(
    data: memoryview, header: Headers, size: tuple[int, int], row: np.ndarray
) -> None:
    height, width = size
    channels = row.shape[2]
    orientation = int(header.orientation)
    stored, wanted = _stored_sides(header, size)

    if wanted == stored and orientation == 1 and width == row.shape[1]:
        # The rows follow each other on the canvas as well: no copy.
        decode_jpeg(data, header, 8, channels, row)
        return

    scale = _dct_scale(stored, wanted)
    pixels = decode_jpeg(data, header, scale, channels)
    if wanted != stored:
        from PIL import Image

        # libjpeg rounds its size up to whole pixels.
        extent = (stored[1] * scale / 8, stored[0] * scale / 8)
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        pixels = _shrink(image, wanted, extent)

    # Items of a whole pixel: numpy would copy each byte of a transposed view alone.
    pixel = f"V{channels}"
    target = row.view(pixel)[:height, :width, 0]
    target[:] = upright(np.ascontiguousarray(pixels).view(pixel)[..., 0], orientation)


def _open_upright(data: memoryview | bytes, header: Headers, channels: int) -> Any:
    """Return a Pillow image of mode RGB or L."""
    format = format_of(data) or "JPEG"
    orientation = int(header.orientation)
    stored_size = (int(header.height), int(header.width))
    if channels == 3:
        return pillow.upright_rgb(data, format, orientation, stored_size)
    ycbcr = header.kind == JPEG and header.color == YCBCR
    return pillow.upright_gray(data, format, orientation, stored_size, ycbcr=ycbcr)


def _shrink(image: Any, size: tuple[int, int], extent: tuple[float, float]) -> np.ndarray:
    """Return uint8[h, w, channels], the top-left `extent` of an image, antialiased.

    Args:
      image: of Pillow.
      size: (h, w) of the result.
      extent: (w, h) of the part of the image.
    """
    from PIL import Image

    if image.size != size[::-1]:
        image = image.resize(size[::-1], Image.Resampling.BILINEAR, box=(0, 0, *extent))
    return np.asarray(image).reshape(*size, -1)


def _dct_scale(stored: tuple[int, int], wanted: tuple[int, int]) -> int:
    """Return the smallest s for which the image at s / 8 covers the wanted size; never 6 or 7.

    libjpeg-turbo has no vector code for these two: they take longer than the whole image.
    """
    scale = max(1, *(-(-8 * want // have) for have, want in zip(stored, wanted)))
    return scale if scale < 6 else 8
