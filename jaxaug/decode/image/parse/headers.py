"""The headers of images, and which images are good: decided from bytes before any is decoded."""

import re
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded, memory_view
from jaxaug.decode.image import pillow
from jaxaug.decode.image.deep import jpeg, tiff
from jaxaug.decode.image.deep import read as deep
from jaxaug.decode.image.deep.tiff_alike import Alike
from jaxaug.decode.image.form import COLORS, USUAL, PixelForm
from jaxaug.decode.image.orientation import upright_size
from jaxaug.decode.image.parse.jpeg import JpegColumns, check_jpegs, check_usual_jpeg
from jaxaug.decode.image.parse.jpeg_rules import LOSSLESS
from jaxaug.decode.image.parse.memory_windows import read_windows
from jaxaug.decode.image.parse.other_formats import (
    HEAD,
    PNG_BITS_AT,
    SIZES,
    format_of,
    is_like_tga,
    stated_size,
)
from jaxaug.decode.video.container import container_at
from jaxaug.errors import DecodeError

BAD = 0
JPEG = 1
OTHER = 2
DEEP = 3

# 400 MB as RGB. The largest common camera makes 108 million pixels, and a host has more memory.
MAX_PIXELS = 2**27
# Scans of an image of `max_pixels`; even a scan of a few bytes is a pass over the whole image.
_MAX_SCANS = 32
# Up to so many JPEGs are read one by one, which takes less time than numpy's calls for all at once.
_MAX_LOOPED_JPEGS = 16

# The first element of a file meta group, or of a data set: DICOM PS3.5 7.1.2.
_DICOM_GROUP = re.compile(rb"[\x02\x08]\0.\0(UL|OB|UI|CS|DA|[\0-\xff]\0\0\0)", re.DOTALL)
# TIFFs of a batch that others are compared with, where none is alike; each takes two of their time.
_SEARCHES = 4
_NO_REASON = np.array("", object)
_NO_LAYOUT = np.array(None, object)


class Headers(NamedTuple):
    """The headers of n images as numpy columns; only `reason` counts for a bad image.

    Attributes:
      kind: uint8, `BAD`, `JPEG`, `OTHER` (Pillow decodes it) or `DEEP` (a reader of `deep/`).
      height, width: int32, as the file stores them, before EXIF is applied.
      orientation: uint8, the EXIF orientation 1..8.
      coding: uint8, the number of the JPEG's SOF marker: 0 baseline, 1 extended, 2 progressive,
        3 lossless, 9 and 10 extended and progressive with arithmetic coding.
      precision: uint8, bits per sample; of other formats than JPEG those that become 8.
      components: uint8, color components of a JPEG.
      scan_components: uint8, those of its first scan; fewer than `components` means several scans.
      sampling: uint32, one byte per component, the first in the highest byte: horizontal factor
        << 4 | vertical factor.
      color: uint8, the color model of a JPEG: `GRAY`, `YCBCR`, `RGB`, `CMYK`, `YCCK` of
        `jpeg_rules.py`.
      scan_offset: int64, where the entropy-coded data of a JPEG's first scan begins.
      plain: uint8, 0 for a JPEG that decoders other than libjpeg may read differently: bytes
        between its segments, a DNL segment, 16-bit tables, hints at two color models, no end.
      reason: object, the fault of a bad image in one clause; "" for a good one.
      layout: object, of `DEEP` what its reader has found, so that it is not looked for again; None
        for the others.

    Example:
      >>> read_headers(Encoded.from_bytes([b""])).reason.tolist()
      ['empty']
    """

    kind: np.ndarray
    height: np.ndarray
    width: np.ndarray
    orientation: np.ndarray
    coding: np.ndarray
    precision: np.ndarray
    components: np.ndarray
    scan_components: np.ndarray
    sampling: np.ndarray
    color: np.ndarray
    scan_offset: np.ndarray
    plain: np.ndarray
    reason: np.ndarray
    layout: Any

    def row(self, index: int) -> "Headers":
        """Return the header of one image, as scalars."""
        return Headers(*(column[index] for column in self))

    def original_size(self) -> np.ndarray:
        """Return int32[n, 2], (height, width) of the upright images."""
        return upright_size(self.height, self.width, self.orientation)


# A row of `Headers` but for reason and layout, and that of a bad image.
_RECORD = np.dtype(
    [
        ("kind", np.uint8),
        ("height", np.int32),
        ("width", np.int32),
        ("orientation", np.uint8),
        ("coding", np.uint8),
        ("precision", np.uint8),
        ("components", np.uint8),
        ("scan_components", np.uint8),
        ("sampling", np.uint32),
        ("color", np.uint8),
        ("scan_offset", np.int64),
        ("plain", np.uint8),
    ],
    align=True,
)
_NO_HEADER = (BAD, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)


def read_headers(
    encoded: Encoded,
    max_pixels: int = MAX_PIXELS,
    truncated: str = "error",
    form: PixelForm = USUAL[3],
) -> Headers:
    """Check the bytes of n images and read their headers.

    A file is good if it can be decoded to an image: a JPEG with a well-formed header and an end
    (damage inside its entropy-coded data costs pixels, not the image), or a file whose header
    Pillow can read.

    Args:
      encoded: n images in readable host memory; nothing outside of them is read.
      max_pixels: an image of more pixels is bad.
      truncated: a JPEG without its end marker is bad ("error") or good ("accept").
      form: the pixels that are asked for; an image that cannot have it is bad.

    Returns:
      Headers of n rows; bad images raise no error.

    Raises:
      ValueError: `encoded` has not as many lengths as addresses.

    Example:
      >>> headers = read_headers(Encoded.from_bytes([b"hello", b""]))
      >>> headers.reason.tolist()
      ["not an image jaxaug knows (it begins with b'hello')", 'empty']

    Reference: ITU-T T.81 annex B (JPEG), CIPA DC-008 (EXIF).
    """
    encoded = encoded.checked()
    starts = encoded.addresses.astype(np.int64)
    stops = starts + encoded.lengths.astype(np.int64)
    max_scanned = _MAX_SCANS * max(max_pixels, MAX_PIXELS)
    if starts.size <= _MAX_LOOPED_JPEGS:
        headers, rows = _read_usual_jpegs(starts, stops, max_scanned)
    else:
        headers = _as_headers(np.zeros(starts.size, _RECORD))
        headers.orientation[:] = 1
        rows = np.arange(starts.size)
    if rows.size:
        _read_jpegs(headers, starts, stops, rows=rows, max_scanned=max_scanned, truncated=truncated)
    if not form.is_usual:
        _refuse_jpegs(headers, form)

    usual = (headers.kind == JPEG) & (headers.precision == 8)
    if np.count_nonzero(usual) < starts.size:
        for row in ((headers.kind == JPEG) & ~usual).nonzero()[0].tolist():
            _take_deep_jpeg(headers, row, form, max_pixels)
        _read_others(headers, encoded, headers.kind == BAD, max_pixels, form)
    return limit_pixels(headers, max_pixels)


def limit_pixels(headers: Headers, max_pixels: int) -> Headers:
    """Return the headers with every image of more than `max_pixels` bad, in new columns."""
    pixels = np.multiply(headers.height, headers.width, dtype=np.int64)
    too_large = pixels > max_pixels
    if not np.count_nonzero(too_large):
        return headers
    rows = (too_large & (headers.kind != BAD)).nonzero()[0].tolist()
    headers = headers._replace(kind=headers.kind.copy(), reason=headers.reason.copy())
    for row in rows:
        size = (int(headers.height[row]), int(headers.width[row]))
        _refuse_large(headers, row, size, max_pixels)
    return headers


def no_reasons(count: int) -> np.ndarray:
    """Return the column `reason` of good images, read-only: a new one of 2,048 takes 20 us."""
    return np.broadcast_to(_NO_REASON, count)


def no_layouts(count: int) -> np.ndarray:
    """Return the column `layout` where no image is `DEEP`, read-only."""
    return np.broadcast_to(_NO_LAYOUT, count)


def _read_usual_jpegs(
    starts: np.ndarray, stops: np.ndarray, max_scanned: int
) -> tuple[Headers, np.ndarray]:
    """Read the good JPEGs of the usual form, one by one.

    Returns:
      The headers, and the other rows, int64[k].
    """
    records = []
    others = []
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist())):
        data = memory_view(start, stop - start)
        is_jpeg = data[:2] == b"\xff\xd8"
        fields = check_usual_jpeg(data, start, max_scanned) if is_jpeg else None
        if fields is None:
            others.append(row)
        records.append((JPEG, *fields) if fields else _NO_HEADER)
    return _as_headers(np.array(records, _RECORD)), np.array(others, np.int64)


def _read_jpegs(
    headers: Headers,
    starts: np.ndarray,
    stops: np.ndarray,
    *,
    rows: np.ndarray,
    max_scanned: int,
    truncated: str,
) -> None:
    """Read those of the rows that are JPEGs, all at once."""
    rows = rows[stops[rows] - starts[rows] >= 2]
    magic = read_windows(starts[rows], 2, stops[rows]).view(">u2")
    jpegs = rows[magic == 0xFFD8]
    if not jpegs.size:
        return

    columns, failures = check_jpegs(starts[jpegs], stops[jpegs], max_scanned, truncated)
    # A batch of JPEGs only, the usual case, is copied and not scattered.
    target = jpegs if jpegs.size < starts.size else slice(None)
    headers.kind[target] = JPEG
    for name in JpegColumns._fields:
        getattr(headers, name)[target] = getattr(columns, name)

    for row, fault in failures.items():
        _refuse(headers, jpegs[row], fault)
    lossless = (headers.kind[jpegs] == JPEG) & (headers.coding[jpegs] == LOSSLESS)
    lossless &= headers.precision[jpegs] == 8
    if lossless.any() and not pillow.reads_lossless_jpegs():
        for row in jpegs[lossless].tolist():
            reason = "a lossless JPEG: Pillow reads these with libjpeg-turbo 3 or later"
            _refuse(headers, row, reason)


def _as_headers(records: np.ndarray) -> Headers:
    """Return views of `_RECORD`[n] as columns, with neither reasons nor layouts."""
    reason = np.full(records.size, "", object)
    layout = np.empty(records.size, object)  # of None
    columns = {name: records[name] for name in Headers._fields[:-2]}
    return Headers(**columns, reason=reason, layout=layout)


def _refuse(headers: Headers, row: int, reason: str) -> None:
    headers.kind[row] = BAD
    headers.reason[row] = reason


def _refuse_large(headers: Headers, row: int, size: tuple[int, int], max_pixels: int) -> None:
    height, width = size
    _refuse(headers, row, f"{width} x {height} pixels are more than max_pixels={max_pixels}")


def _read_others(
    headers: Headers,
    encoded: Encoded,
    others: np.ndarray,
    max_pixels: int,
    form: PixelForm,
) -> None:
    """Read those of the rows `others` (bool[n]) that are no bad JPEGs."""
    starts = encoded.addresses.astype(np.int64)
    stops = starts + encoded.lengths.astype(np.int64)
    others &= headers.reason == ""
    headers.reason[others & (starts == stops)] = "empty"
    rows = (others & (starts < stops)).nonzero()[0]
    heads = read_windows(starts[rows], HEAD, stops[rows]).tolist()
    searches = _SEARCHES
    for row, head in zip(rows.tolist(), heads):
        if headers.kind[row] == DEEP:  # alike another one
            continue
        data = encoded.view(row)
        format = format_of(data)
        if not form.is_usual and format in deep.FORMATS:
            _open_deep(headers, row, data, format, form, max_pixels)
            if format == "TIFF" and searches and headers.kind[row] == DEEP and not form.page:
                searches -= not _fill_alike(headers, row, rows[rows > row], starts, stops)
            continue
        if form.page and format is not None:
            _refuse(headers, row, f"{format}: {form.misfit(1)}")
            continue
        size = None
        if format in deep.ALONE or (format == "TIFF" and tiff.is_beyond_pillow(data)):
            _open_deep(headers, row, data, format, form, max_pixels)
            continue
        if format in SIZES and pillow.has_codec(format):
            size = SIZES[format](data, head)
        if size and size[0] * size[1] <= max_pixels:
            bits = head[PNG_BITS_AT] if format == "PNG" else 8
            _fill_other(headers, row, size, bits=max(8, bits))
        else:
            _open_other(headers, row, data, format, max_pixels)
            # What Pillow does not read may have colors that a reader of its own does.
            if headers.kind[row] == BAD and format in deep.MORE_THAN_PILLOW:
                _open_deep(headers, row, data, format, form, max_pixels)


def _unknown(data: memoryview) -> str:
    """Return what is wrong with bytes that are no image, and what they may be."""
    start = bytes(data[:8])
    reason = f"not an image jaxaug knows (it begins with {start!r})"
    if len(data) > 18 and is_like_tga(bytes(data[:18])):
        reason += "; a TGA is known by its footer alone, which this has not: save it with one"
    if _DICOM_GROUP.match(data):
        reason += "; a DICOM without its preamble, 128 bytes and DICM: save it with one"
    container = container_at(data) if len(data) > len(start) else None
    if container:
        reason += (
            f"; videos and sounds begin so ({container}): `decode.Video` or `Audio` reads them"
        )
    return reason


def _open_other(
    headers: Headers,
    row: int,
    data: memoryview,
    format: str | None,
    max_pixels: int,
) -> None:
    """Read a file that Pillow must open."""
    if format is None:
        _refuse(headers, row, _unknown(data))
        return
    size = stated_size(data, format) or (0, 0)
    if size[0] * size[1] > max_pixels:
        _refuse_large(headers, row, size, max_pixels)
        return
    try:
        height, width, orientation, bits = pillow.read_header(data, format)
        _fill_other(headers, row, (height, width), orientation=orientation, bits=bits)
    except DecodeError as error:
        _refuse(headers, row, error.reason)


def _open_deep(
    headers: Headers, row: int, data: memoryview, format: str, form: PixelForm, max_pixels: int
) -> None:
    """Read a file that a reader of its own decodes at full depth."""
    headers.reason[row] = ""
    try:
        layout = deep.read_layout(data, format, form, max_pixels)
    except DecodeError as error:
        _refuse(headers, row, error.reason)
        return
    size = (layout.height, layout.width)
    _fill_other(headers, row, size, orientation=layout.orientation, bits=max(8, layout.bits))
    if not layout.by_pillow:
        headers.kind[row] = DEEP
        headers.layout[row] = layout


def _fill_alike(
    headers: Headers,
    row: int,
    others: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
) -> bool:
    """Fill in those of other rows that are like the TIFF of a row; False where none is."""
    start, stop = int(starts[row]), int(stops[row])
    layout = headers.layout[row]
    alike = Alike.as_file(memory_view(start, stop - start), layout) if others.size else None
    if alike is None:
        return False
    found, layouts = alike.find(starts[others], stops[others] - starts[others])
    chosen = others[found]
    for column in headers[:-1]:
        column[chosen] = column[row]
    for other, layout in zip(chosen.tolist(), layouts):
        headers.layout[other] = layout
    return found.size > 0


def _take_deep_jpeg(headers: Headers, row: int, form: PixelForm, max_pixels: int) -> None:
    """Leave a good JPEG of other than 8 bits to its reader, or refuse it."""
    try:
        layout = jpeg.layout(
            height=int(headers.height[row]),
            width=int(headers.width[row]),
            components=int(headers.components[row]),
            bits=int(headers.precision[row]),
            orientation=int(headers.orientation[row]),
        )
        deep.check_layout(layout, "JPEG", form, max_pixels)
    except DecodeError as error:
        _refuse(headers, row, error.reason)
        return
    headers.kind[row] = DEEP
    headers.layout[row] = layout


def _refuse_jpegs(headers: Headers, form: PixelForm) -> None:
    """Refuse good JPEGs that have not as many numbers a pixel as are asked for."""
    if form.channels in COLORS and not form.page:
        return
    for row in (headers.kind == JPEG).nonzero()[0].tolist():
        found = int(headers.components[row])
        reason = form.misfit(found)
        if reason:
            _refuse(headers, row, f"JPEG: {reason}")


def _fill_other(
    headers: Headers, row: int, size: tuple[int, int], *, orientation: int = 1, bits: int
) -> None:
    headers.kind[row] = OTHER
    headers.precision[row] = bits
    headers.height[row], headers.width[row] = size
    headers.orientation[row] = orientation
