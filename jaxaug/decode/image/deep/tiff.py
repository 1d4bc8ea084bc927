"""TIFF, BigTIFF and GeoTIFF: any number of bands, integers and floats, one page of several.

Pixels without compression are read where they lie, and common compressions by imagecodecs; tifffile
reads all others.

Reference: TIFF 6.0, Adobe 1992; TIFF Technical Note 3 (floats); GDAL's GTiff driver (nodata).
"""

import functools
import io
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode.image.deep.embedded import check_embedded
from jaxaug.decode.image.deep.gpu import decoder_of
from jaxaug.decode.image.deep.layout import COLOR_SAMPLES, Layout
from jaxaug.decode.image.deep.tiff_tags import Tags, Told, read_tags, tags_at
from jaxaug.decode.native.tiff_pages import Form, Page, one_file, part_sizes
from jaxaug.errors import DecodeError

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_FILL_ORDER, _STRIP_OFFSETS, _ORIENTATION, _SAMPLES = 266, 273, 274, 277
_ROWS_PER_STRIP, _STRIP_COUNTS, _PLANAR, _PREDICTOR, _PALETTE = 278, 279, 284, 317, 320
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS = 322, 323, 324, 325
_EXTRA_SAMPLES, _SAMPLE_FORMAT, _DEPTH, _NODATA = 338, 339, 32997, 42113

# All that a layout is told by, but for where the parts lie.
READ = frozenset((_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _ORIENTATION))
READ |= {_SAMPLES, _ROWS_PER_STRIP, _PLANAR, _PREDICTOR, _PALETTE, _TILE_WIDTH, _TILE_HEIGHT}
READ |= {_EXTRA_SAMPLES, _SAMPLE_FORMAT, _DEPTH, _NODATA}
_MAX_KEPT = 2**14  # bytes of these, of a layout that is kept for files with the same

_UNCOMPRESSED = 1
# Of imagecodecs; libdeflate is a third faster than zlib.
LZW = 5
_CODECS = {LZW: "lzw_decode", 8: "deflate_decode", 32946: "deflate_decode"}
_CODECS |= {32773: "packbits_decode", 50000: "zstd_decode"}
# What nvTIFF decodes, by what 0.8 refuses; smaller images the host decodes in the same time.
_DTYPES_ON_GPU = frozenset({"u1", "i1", "u2", "i2", "u4", "i4", "f4"})
_MAX_SAMPLES_ON_GPU = 16
_MAX_PREDICTED_ON_GPU = 5  # in a pixel with a predictor: it takes 5 and refuses 13
_LEAST_ON_GPU = 2**20  # bytes
_JPEG = 7
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE_COLOR, _MASK, _CMYK, _YCBCR = range(7)
_CIELAB = 8
_COLORS = {_WHITE_IS_ZERO: "gray", _BLACK_IS_ZERO: "gray", _RGB: "rgb", _CMYK: "cmyk"}
_COLORS |= {_PALETTE_COLOR: "palette", _MASK: "gray"}
_ALPHA = {1: "premultiplied", 2: "straight"}
_KINDS = {1: "u", 2: "i", 3: "f", 4: "u", 5: "c", 6: "c"}  # SampleFormat
_MAX_BITS = 64
_MAX_SAMPLES = 65535
_MAX_PILLOW_SAMPLES = 6  # of TiffImagePlugin
_MAX_SIDE = 2**31 - 1
_MAX_TALLER = 4  # times its image a strip may be high, or a tile large
_MAX_PADDING = 2**28  # bytes of a tile beyond that


class Directory(NamedTuple):
    """Where the pixels of a page lie.

    Attributes:
      stored: the dtype in the file, byte order included; None where only tifffile reads it.
      compression, predictor: of each part.
      planes: 1, or the number of samples where each is a plane of its own.
      part: (height, width) of a strip or a tile.
      tiled: parts at the right and bottom are whole, too.
      form: what a file of its own says of it, for pages in LZW and without compression.
      on_gpu: nvTIFF decodes it in less time than host threads.
      start: where its directory begins.
      offsets, counts: of the parts, plane by plane; those never written are at 0.
    """

    stored: np.dtype | None
    compression: int
    predictor: int
    planes: int
    part: tuple[int, int]
    tiled: bool
    form: Form | None = None
    on_gpu: bool = False
    start: int = 0
    offsets: Sequence[int] = ()
    counts: Sequence[int] = ()


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of a page.

    Raises:
      DecodeError: its directory is damaged, or its pixels lie beyond the end of the file.
    """
    return _checked(read_tags(data, page))


def is_beyond_pillow(data: memoryview) -> bool:
    """Return True for more samples a pixel than Pillow takes, which it logs as errors."""
    try:
        return read_tags(data, 0).number(_SAMPLES, 1) > _MAX_PILLOW_SAMPLES
    except (DecodeError, ValueError, OverflowError):  # no number, or a float that is none
        return False


def layout_at(data: memoryview, start: int) -> Layout:
    """Return the layout of the page whose directory begins at `start`; see `read_layout`."""
    return _checked(tags_at(data, start))


def _checked(tags: Tags) -> Layout:
    """Return the layout of a page whose parts lie inside of the file."""
    told = tags.told(READ)
    small = len(told.values) <= _MAX_KEPT
    layout = (_layout if small else _layout.__wrapped__)(told, tags.order)
    return layout._replace(place=_placed(tags, layout))


@functools.lru_cache(256)  # many files have the same tags
def _layout(told: Told, order: str) -> Layout:
    """Return the layout that tags tell, without a place for the parts."""
    tags = Tags.of(told, order)
    height, width = tags.number(_HEIGHT, 0), tags.number(_WIDTH, 0)
    samples = tags.number(_SAMPLES, 1)
    if not (1 <= height <= _MAX_SIDE and 1 <= width <= _MAX_SIDE and 1 <= samples <= _MAX_SAMPLES):
        raise DecodeError(f"TIFF: {width} x {height} pixels of {samples} numbers")
    if tags.number(_DEPTH, 1) != 1:
        raise DecodeError("TIFF: it is a volume (ImageDepth), no image")
    dtype, bits = _dtype(tags, samples)
    photometric = tags.number(_PHOTOMETRIC, _BLACK_IS_ZERO)
    compression = tags.number(_COMPRESSION, _UNCOMPRESSED)
    colors, alpha = _colors(tags, photometric, compression, samples)
    place = _directory(tags, (height, width), samples, dtype, bits)
    palette = _palette(tags, bits)
    if colors == "palette" and palette is None:
        raise DecodeError("TIFF: there is no palette (tag 320) for its colors")
    orientation = tags.number(_ORIENTATION, 1)
    layout = Layout(
        height=height,
        width=width,
        samples=samples,
        dtype=dtype,
        bits=bits,
        colors=colors,
        alpha=alpha,
        orientation=orientation if 1 <= orientation <= 8 else 1,
        inverted=photometric == _WHITE_IS_ZERO,
        nodata=_nodata(tags, dtype),
        palette=palette,
        by_pillow=_is_for_pillow(photometric, compression, bits),
        place=place,
    )
    if compression not in (_UNCOMPRESSED, LZW) or place.stored is None:
        return layout
    form = _form(layout, place.stored)
    on_gpu = compression == LZW and place.predictor in (1, 2) and _is_for_gpu(form)
    return layout._replace(place=place._replace(form=form, on_gpu=on_gpu))


def _dtype(tags: Tags, samples: int) -> tuple[np.dtype, int]:
    """Return the dtype of the numbers in this machine, and the bits of the file."""
    bits = set(tags.numbers(_BITS, [1])[:samples])
    formats = set(tags.numbers(_SAMPLE_FORMAT, [1])[:samples])
    if len(bits) != 1 or len(formats) != 1:
        raise DecodeError(f"TIFF: its samples differ, they have {sorted(bits)} bits")
    (count,), (code,) = bits, formats
    kind = _KINDS.get(code, "")
    sizes = {"u": (8, 16, 32, 64), "i": (8, 16, 32, 64), "f": (16, 32, 64), "c": (64, 128)}
    size = next((size for size in sizes.get(kind, ()) if count <= size), 0)
    if count < 1 or not size:
        raise DecodeError(f"TIFF: samples of {count} bits and format {code} are not read")
    if kind != "u" and count not in (size, 24):
        raise DecodeError(f"TIFF: {count} bits are no number of format {code}")
    return np.dtype(f"{kind}{size // 8}"), count


def _colors(tags: Tags, photometric: int, compression: int, samples: int) -> tuple[str, str]:
    """Return what the samples of a pixel are, and what the one behind the colors is."""
    colors = _COLORS.get(photometric, "")
    if photometric in (_YCBCR, _CIELAB):
        colors = "rgb"  # what they are decoded to
    count = COLOR_SAMPLES[colors] or samples
    extra = tags.numbers(_EXTRA_SAMPLES, [])
    alpha = _ALPHA.get(extra[0], "") if extra and samples > count else ""
    if count > samples or (colors == "gray" and samples > 2):
        return "", ""  # bands: nothing says which of them are colors
    return colors, alpha


def _nodata(tags: Tags, dtype: np.dtype) -> float | None:
    """Return what GDAL has written of pixels without data, None where no pixel can be that."""
    try:
        number = float(tags.text(_NODATA))
    except ValueError:
        return None
    if dtype.kind in "ui":
        limits = np.iinfo(dtype)
        return number if limits.min <= number <= limits.max else None
    return float(dtype.type(number)) if dtype.kind == "f" else None


def _directory(
    tags: Tags,
    size: tuple[int, int],
    samples: int,
    dtype: np.dtype,
    bits: int,
) -> Directory:
    tiled = _TILE_WIDTH in tags.entries
    height, width = size
    # A strip in a codec of its own, such as JPEG, may be taller than what is left for it.
    part = (min(tags.number(_ROWS_PER_STRIP, height), _MAX_TALLER * height), width)
    if tiled:
        part = (tags.number(_TILE_HEIGHT, 0), tags.number(_TILE_WIDTH, 0))
    planes = samples if tags.number(_PLANAR, 1) == 2 else 1
    pixel = samples // planes * dtype.itemsize
    beyond = part[0] * part[1] - _MAX_TALLER * height * width
    if min(part) < 1 or beyond * pixel > _MAX_PADDING:
        raise DecodeError(f"TIFF: parts of {part[1]} x {part[0]} pixels")
    whole = dtype.itemsize * 8 == bits and tags.number(_FILL_ORDER, 1) == 1
    return Directory(
        stored=np.dtype(tags.order + dtype.str[1:]) if whole else None,
        compression=tags.number(_COMPRESSION, _UNCOMPRESSED),
        predictor=tags.number(_PREDICTOR, 1),
        planes=planes,
        part=part,
        tiled=tiled,
    )


def _is_for_pillow(photometric: int, compression: int, bits: int) -> bool:
    """Return True for colors of 8 bits that Pillow converts: CIELab, YCbCr without JPEG."""
    if photometric == _YCBCR:
        return compression != _JPEG
    return photometric == _CIELAB and bits == 8


def _palette(tags: Tags, bits: int) -> np.ndarray | None:
    """Return the colors of a palette, uint8[k, 3].

    Its numbers have 16 bits; some writers fill only the lower 8.
    """
    numbers = tags.array(_PALETTE)
    if numbers is None or len(numbers) != 3 * 2**bits:
        return None
    colors = numbers.reshape(3, -1).T
    if colors.max() < 256:
        return colors.astype(np.uint8)
    return (colors >> 8).astype(np.uint8)


def part_tags(tags: Tags) -> tuple[int, int]:
    """Return the tags that say where the parts begin, and how many bytes they have."""
    if _TILE_OFFSETS in tags.entries:  # some writers of tiles have those of strips, too
        return _TILE_OFFSETS, _TILE_COUNTS
    return _STRIP_OFFSETS, _STRIP_COUNTS


def fixed_counts(place: Directory) -> list[int]:
    """Return the bytes of each part that was written, where its pixels tell them; else []."""
    if place.compression != _UNCOMPRESSED or place.form is None:
        return []
    return part_sizes(place.form)


def _placed(tags: Tags, layout: Layout) -> Directory:
    """Return where the parts of a page lie; DecodeError unless all are inside of the file."""
    place = layout.place
    down, across = -(-layout.height // place.part[0]), -(-layout.width // place.part[1])
    wanted = place.planes * across * down
    offsets, counts = (tags.numbers(tag, (), wanted) for tag in part_tags(tags))
    if not offsets:
        raise DecodeError("TIFF: nothing says where its pixels lie")
    if len(offsets) < wanted:
        raise DecodeError(f"TIFF: {len(offsets)} parts of {wanted}")
    if sizes := fixed_counts(place):
        counts = [size if start else 0 for start, size in zip(offsets, sizes)]
    if len(counts) < wanted:
        raise DecodeError(f"TIFF: the bytes of {len(counts)} parts of {wanted} are known")
    size = len(tags.data)
    for part, (start, count) in enumerate(zip(offsets, counts)):
        if start < 0 or count < 0 or start + count > size:
            end = start + count
            raise DecodeError(f"TIFF: truncated, part {part} ends at byte {end} of {size}")
    return place._replace(start=tags.start, offsets=offsets, counts=counts)


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return [h, w, samples] of a page, in its own numbers; those of fewer bits from 0 on.

    Raises:
      DecodeError: a part is damaged, or a library is missing.
    """
    place = layout.place
    if place.stored is None or not is_common(place):
        return _by_tifffile(data, layout)
    lying = view(data, layout)
    if lying is not None:
        return lying
    if place.compression == _UNCOMPRESSED:
        return _read_parts(data, layout)
    page = page_alone(data, place)
    pixels = None if page is None else _by_nvtiff(place, page)
    if pixels is not None:
        return pixels
    try:
        return _read_parts(data, layout) if page is None else by_libtiff(place.form, [page])[0]
    except Exception:  # tifffile forgives more, and says more
        return _by_tifffile(data, layout)


def is_common(place: Directory) -> bool:
    """Return True for parts that need a codec and the predictor of integers at most."""
    if place.compression == _UNCOMPRESSED:
        return place.predictor == 1
    return place.compression in _CODECS and place.predictor in (1, 2)


def page_alone(data: memoryview, place: Directory) -> Page | None:
    """Return a page in LZW for a file of its own; None where it has holes, or lies far apart."""
    offsets, counts = place.offsets, place.counts
    if place.form is None or place.compression != LZW or not all(offsets) or not all(counts):
        return None  # of no LZW, or a part was never written
    span = max(map(operator.add, offsets, counts)) - min(offsets)
    return Page(data, offsets, counts) if span <= 2 * sum(counts) else None


def _by_nvtiff(place: Directory, page: Page) -> np.ndarray | None:
    """Return the pixels of a large page by nvTIFF, None where the host must decode them."""
    decoder = decoder_of("TIFF")
    if decoder is None or not place.on_gpu:
        return None
    return decoder.decode_to_host(place.form, page)


def by_libtiff(form: Form, pages: Sequence[Page]) -> np.ndarray:
    """Return [k, h, w, samples] of k pages by libtiff, which takes half the time of `lzw_decode`.

    Raises:
      Exception: one of them is damaged.
    """
    file = b"".join(one_file(form, pages).pieces)
    pixels = library("imagecodecs").tiff_decode(file, index=None)
    if form.planes > 1:
        pixels = np.moveaxis(pixels.reshape(len(pages), form.planes, *form[:2]), 1, -1)
    return pixels.reshape(len(pages), *form[:3])


def _form(layout: Layout, stored: np.dtype) -> Form:
    """Return what a file of a page alone says of it."""
    place = layout.place
    return Form(
        height=layout.height,
        width=layout.width,
        samples=layout.samples,
        stored=stored,
        predictor=place.predictor,
        planes=place.planes,
        part=place.part if place.tiled else (min(place.part[0], layout.height), layout.width),
        tiled=place.tiled,
    )


def _is_for_gpu(form: Form) -> bool:
    """Return True for what nvTIFF decodes in less time than host threads."""
    chunky = form.samples if form.planes == 1 else 1
    most = _MAX_PREDICTED_ON_GPU if form.predictor == 2 else _MAX_SAMPLES_ON_GPU
    known = form.stored.str[1:] in _DTYPES_ON_GPU and form.samples <= _MAX_SAMPLES_ON_GPU
    return known and chunky <= most and form.height * form.pitch >= _LEAST_ON_GPU


def view(data: memoryview, layout: Layout) -> np.ndarray | None:
    """Return the pixels where they lie, None unless they follow each other in the file."""
    place = layout.place
    if place.compression != _UNCOMPRESSED or place.tiled or place.planes > 1:
        return None
    first = place.offsets[0]
    ends = map(operator.add, place.offsets, place.counts)
    if not first or any(end != start for end, start in zip(ends, place.offsets[1:])):
        return None
    count = layout.height * layout.width * layout.samples
    pixels = np.frombuffer(data, place.stored, count, first)
    return pixels.reshape(layout.height, layout.width, layout.samples)


def _read_parts(data: memoryview, layout: Layout) -> np.ndarray:
    """Return the pixels of all strips or tiles."""
    place = layout.place
    each = layout.samples // place.planes
    pixels = np.empty((layout.height, layout.width, layout.samples), layout.dtype)
    rows, columns = place.part
    part = 0
    for plane in range(place.planes):
        for top in range(0, layout.height, rows):
            for left in range(0, layout.width, columns):
                target = pixels[top : top + rows, left : left + columns, plane : plane + each]
                _fill_part(data, layout, part, target)
                part += 1
    return pixels


def _fill_part(data: memoryview, layout: Layout, part: int, target: np.ndarray) -> None:
    """Write the pixels of a part to their place [h, w, k] in the image."""
    place = layout.place
    start = place.offsets[part]
    if start == 0:  # GDAL: a part that was never written
        target[:] = 0 if layout.nodata is None else layout.nodata
        return
    height, width, each = target.shape
    shape = (place.part[0] if place.tiled else height, place.part[1], each)
    raw: memoryview | bytes | np.ndarray = data[start:]
    if place.compression != _UNCOMPRESSED:
        stop = start + place.counts[part]
        codec = getattr(library("imagecodecs"), _CODECS[place.compression])
        raw = codec(data[start:stop], out=math.prod(shape) * layout.dtype.itemsize)
    pixels = np.frombuffer(raw, place.stored, math.prod(shape)).reshape(shape)
    if place.predictor == 2:
        native = pixels.astype(layout.dtype)
        pixels = library("imagecodecs").delta_decode(native, axis=-2, out=native)
    target[:] = pixels[:height, :width]


def _by_tifffile(data: memoryview, layout: Layout) -> np.ndarray:
    """Return the pixels of any page that tifffile reads."""
    for name in ("tifffile", "imagecodecs"):
        if reason := missing(name, "TIFF images with compression, or of unusual bits", "deep"):
            raise DecodeError(reason)
    place = layout.place
    if place.compression not in _CODECS and place.compression != _UNCOMPRESSED:
        for start, count in zip(place.offsets, place.counts):
            check_embedded(data[start : start + count], place.part, "TIFF")
    tifffile = library("tifffile")
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        file.filehandle.seek(place.start)  # `file.pages[k]` walks over k directories
        page = tifffile.TiffPage(file, 0)
        pixels = page.asarray(maxworkers=1)
        axes = page.axes
    if axes.startswith("S"):  # planes
        pixels = np.moveaxis(pixels, 0, -1)
    pixels = pixels.reshape(layout.height, layout.width, layout.samples)
    return pixels.view(np.uint8) if pixels.dtype == np.bool_ else pixels
