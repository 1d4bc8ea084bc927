"""Headers that an index has stored, compared with the files as they are now.

The tables, the end and the format of a file were checked when the index was made, and are not
checked again. The engines, however, write by the frame header of the file itself. So every JPEG is
walked over, and only headers that agree with its frame are used.
"""

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.image import pillow
from jaxaug.decode.image.form import USUAL, PixelForm
from jaxaug.decode.image.parse.headers import (
    JPEG,
    MAX_PIXELS,
    OTHER,
    Headers,
    limit_pixels,
    no_layouts,
    no_reasons,
    read_headers,
)
from jaxaug.decode.image.parse.jpeg import MIN_JPEG
from jaxaug.decode.image.parse.jpeg_checks import IS_FRAME
from jaxaug.decode.image.parse.jpeg_segments import DAC, DNL, SOS, Segments, walk
from jaxaug.decode.image.parse.memory_windows import as_bytes, read_inside, read_windows
from jaxaug.decode.image.parse.other_formats import format_of

_MAGIC_BYTES = 16  # that `format_of` looks at
# Up to so many files, reading all headers takes no longer than comparing them.
_MAX_READ_ANEW = 16
# Of a SOF segment, marker included: the bytes with sampling factors of up to four components, and
# by the number of components the bits of them that count.
_FACTORS = slice(11, 21, 3)
_FACTOR_MASK = np.array([0, 0xFF << 24, 0xFFFF << 16, 0xFFFFFF << 8, *[2**32 - 1] * 252], np.uint32)


def confirm_headers(
    encoded: Encoded,
    stored: Headers,
    max_pixels: int = MAX_PIXELS,
    truncated: str = "error",
    form: PixelForm = USUAL[3],
) -> Headers:
    """Return the headers of n images, read anew where the stored ones are not those of the file.

    Args:
      encoded: n images.
      stored: of the same images, from an earlier `read_headers`; `reason` is not used.
      max_pixels, truncated, form: see `read_headers`. Those stored are of the usual form.

    Returns:
      Headers of n rows. For a JPEG, coding, precision, sides, components and sampling are those of
      its frame header, and `scan_offset` is where its own segments end.

    Example:
      >>> from jaxaug.decode import Encoded, read_headers
      >>> images = Encoded.from_bytes([b"hello"] * 20)
      >>> confirm_headers(images, read_headers(images)).reason[0]
      "not an image jaxaug knows (it begins with b'hello')"
    """
    count = len(encoded.lengths)
    if count <= _MAX_READ_ANEW or not form.is_usual:
        return read_headers(encoded, max_pixels, truncated, form)

    starts = encoded.addresses.astype(np.int64)
    stops = starts + encoded.lengths.astype(np.int64)
    usable = (stops - starts >= MIN_JPEG) & (stored.orientation >= 1) & (stored.orientation <= 8)
    usable &= np.minimum(stored.height, stored.width) >= 1
    rows = usable.nonzero()[0]
    is_jpeg = read_inside(starts[rows], 2).view(">u2") == 0xFFD8
    kind = stored.kind[rows]

    agrees = _frames_agree(starts, stops, rows[is_jpeg & (kind == JPEG)], stored)
    others = rows[~is_jpeg & (kind == OTHER)]
    # Of a format that Pillow opens; the sides are compared when the file is decoded.
    heads = read_windows(starts[others], _MAGIC_BYTES, stops[others]).tolist()
    formats = [format_of(head) for head in heads]
    agrees[others] = [format is not None and pillow.has_codec(format) for format in formats]
    return _read_rows(encoded, (~agrees).nonzero()[0], stored, max_pixels, truncated)


def _frames_agree(
    starts: np.ndarray, stops: np.ndarray, rows: np.ndarray, stored: Headers
) -> np.ndarray:
    """Return bool[n], True for the JPEGs among `rows` whose segments are as stored."""
    failures: dict[int, str] = {}
    segments = walk(starts, stops, rows, failures)
    agrees = _frames_are(segments, stored) & _scans_are(segments, starts, stored)
    agrees[list(failures)] = False
    agrees[segments.resumed] = False  # other parsers may find another frame
    agrees[segments.row[(segments.marker == DNL) | (segments.marker == DAC)]] = False
    return agrees


def _frames_are(segments: Segments, stored: Headers) -> np.ndarray:
    """Return bool[n], True for the files with one SOF segment that is as stored."""
    frames = IS_FRAME.take(segments.marker).nonzero()[0]
    row = segments.row[frames]
    head = as_bytes(_by_file(segments.head_windows(frames), row, len(stored.kind)))
    length = head[:, 2:4].view(">u2")[:, 0]
    sides = head[:, 5:9].view(">u2")
    components = head[:, 9]
    factors = np.ascontiguousarray(head[:, _FACTORS]).view(">u4")[:, 0] & _FACTOR_MASK[components]

    agrees = np.bincount(row, minlength=len(head)) == 1
    agrees &= head[:, 1] & 15 == stored.coding
    agrees &= length == 8 + 3 * components.astype(np.uint16)
    agrees &= head[:, 4] == stored.precision
    agrees &= sides[:, 0] == stored.height
    agrees &= sides[:, 1] == stored.width
    agrees &= components == stored.components
    agrees &= factors == stored.sampling
    return agrees


def _scans_are(segments: Segments, starts: np.ndarray, stored: Headers) -> np.ndarray:
    """Return bool[n], True for the files whose SOS segment is as stored."""
    scans = (segments.marker == SOS).nonzero()[0]
    row = segments.row[scans]
    head = as_bytes(_by_file(segments.head_windows(scans), row, len(starts)))
    data_starts = _by_file(segments.stop[scans], row, len(starts))
    return (head[:, 4] == stored.scan_components) & (data_starts - starts == stored.scan_offset)


def _by_file(values: np.ndarray, row: np.ndarray, count: int) -> np.ndarray:
    """Return the values at their rows among `count` files, zeros elsewhere."""
    column = np.zeros(count, values.dtype)
    column[row] = values
    return column


def _read_rows(
    encoded: Encoded, rows: np.ndarray, stored: Headers, max_pixels: int, truncated: str
) -> Headers:
    """Return the stored headers, held to `max_pixels`, with some rows read anew."""
    count = len(stored.kind)
    known = stored._replace(reason=no_reasons(count), layout=no_layouts(count))
    headers = limit_pixels(known, max_pixels)
    if not rows.size:
        return headers

    columns = [column.copy() for column in headers]
    read_anew = read_headers(encoded.take(rows), max_pixels, truncated)
    for column, read in zip(columns, read_anew):
        column[rows] = read
    return Headers(*columns)
