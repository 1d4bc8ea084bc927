"""Formats other than JPEG: recognized by their first bytes; their sizes, read without Pillow.

Pillow decides which files are good, by opening them (`_pillow.py`). A PNG, WebP, GIF or BMP that
begins as common writers make it opens for certain, and its size and orientation are known without
Pillow. `SIZES` has the functions that return a size only for such files; Pillow must open all
others.
"""

import re
import struct
import zlib
from collections.abc import Callable

Size = tuple[int, int]  # height, width

HEAD = 56  # bytes of a file that these functions get; the last byte of a shorter file repeats

_MAX_SIDE = 2**31 - 1

PNG_BITS_AT = 24  # the place of the bits a sample, ISO/IEC 15948 11.2.2
# Bits a sample and color types of PNG, ISO/IEC 15948 table 11.1.
_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_BITS_AND_COLORS = frozenset(
    bytes((bits, color)) for color, each in _PNG_BITS.items() for bits in each
)
# Chunks before the pixels that neither orient nor animate an image, and their minimal lengths.
_PNG_CHUNKS = {b"gAMA": 4, b"cHRM": 32, b"sRGB": 1, b"pHYs": 9, b"tIME": 7, b"PLTE": 0, b"tRNS": 6}
# Registered keywords of texts, ISO/IEC 15948 11.3.4.2, and ImageMagick's; others may hold EXIF.
_PNG_KEYWORDS = frozenset(
    b"Title,Author,Description,Copyright,Creation Time,Software,Disclaimer,Warning,Source,Comment,"
    b"date:create,date:modify,date:timestamp".split(b",")
)
_MAX_TEXT = 2**20  # bytes of a color profile, or before the pixels, that Pillow always reads
_CHUNK = struct.Struct(">I4s")
_CHECKSUM = struct.Struct(">I")
_AVIF_BRANDS = {b"avif", b"avis"}
_HEIF_BRANDS = {b"mif1", b"mif2", b"msf1"}  # of the container alone
_HEVC_ITEM = b"hvc1"  # the type of an image of HEIC, in the box of items
_ITEMS_END = 4096  # bytes of a file within which that box begins
_HEIC_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"}
_MINI_BRAND = b"mif3"  # ISO/IEC 23008-12, low-overhead images
_TGA_FOOTER = b"TRUEVISION-XFILE.\0"
_MAGIC = tuple(
    (re.compile(pattern, re.DOTALL), name)
    for pattern, name in (
        (rb"\x89PNG\r\n\x1a\n", "PNG"),
        (rb"GIF8[79]a", "GIF"),
        (rb"BM", "BMP"),
        (rb"II[*+]\0|MM\0[*+]", "TIFF"),
        (rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n", "JPEG2000"),
        (rb"P[1-7fF][ \t\r\n\v\f]", "PPM"),
        (rb"\xff\x0a|\0\0\0\x0cJXL \r\n\x87\n", "JPEGXL"),
        (rb"\x93NUMPY|PK\x03\x04", "NPY"),
        (rb"\0\0\x01\0(?!\0\0)", "ICO"),
        (rb"\0\0\x02\0(?!\0\0)", "CUR"),  # a TGA has zeros there
        (rb"8BPS\0\x01", "PSD"),
        (rb"DDS \x7c\0\0\0", "DDS"),
        (rb"qoif", "QOI"),
        (rb"\x0a[\x00\x02\x03\x05][\x00\x01][\x01\x02\x04\x08]", "PCX"),
        (rb"/\* XPM \*/", "XPM"),
        (rb"\n?#define[ \t]", "XBM"),
    )
)


def format_of(data: memoryview | bytes) -> str | None:
    """Return Pillow's name for the format of the first bytes, or None; of a TGA the last ones tell.

    Example:
      >>> format_of(memoryview(b"GIF89a..."))
      'GIF'
    """
    if bytes(data[128:132]) == b"DICM":  # before it, any bytes, those of a TIFF too
        return "DICOM"
    head = bytes(data[:16])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return _heif_format(data)
    known = next((name for magic, name in _MAGIC if magic.match(head)), None)
    if known is None and data[-len(_TGA_FOOTER) :] == _TGA_FOOTER:
        return "TGA"
    return known


def _heif_format(data: memoryview | bytes) -> str | None:
    """Return the format of a file that begins with a box of brands, the first of which counts."""
    size = min(int.from_bytes(bytes(data[:4]), "big"), len(data), 256)
    first = 12 if bytes(data[8:12]) == _MINI_BRAND else 8  # whose version is a brand
    brands = [
        bytes(data[first : first + 4]),
        *(bytes(data[at : at + 4]) for at in range(16, size, 4)),
    ]
    for brand in brands:
        if brand in _AVIF_BRANDS:
            return "AVIF"
        if brand in _HEIC_BRANDS:
            return "HEIC"
    if brands[0] not in _HEIF_BRANDS:
        return None
    return "HEIC" if _HEVC_ITEM in bytes(data[:_ITEMS_END]) else "AVIF"


def is_like_tga(head: bytes) -> bool:
    """Return True for what may be the header of a TGA: only a footer, since 1989, tells for sure.

    Reference: Truevision TGA File Format Specification 2.0.
    """
    return head[1] in (0, 1) and head[2] in (1, 2, 3, 9, 10, 11) and head[16] in (8, 15, 16, 24, 32)


def stated_size(data: memoryview, format: str) -> tuple[int, int] | None:
    """Return (height, width) from the header of a WebP, GIF or ICO file; None for other formats.

    Pillow allocates memory when it opens these three.

    Reference: developers.google.com/speed/webp/docs/riff_container, RFC 6386 and 9649; GIF89a 18.
    """
    if format == "ICO":
        return _largest_icon(data)
    head = bytes(data[:30]).ljust(30, b"\0")
    if format == "GIF":
        return _number(head, 8, 2), _number(head, 6, 2)
    if format != "WEBP":
        return None
    if head[12:16] == b"VP8X":
        return 1 + _number(head, 27, 3), 1 + _number(head, 24, 3)
    if head[12:16] == b"VP8L":
        bits = _number(head, 21, 4)
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
    return _number(head, 28, 2) & 0x3FFF, _number(head, 26, 2) & 0x3FFF


def _largest_icon(data: memoryview) -> tuple[int, int]:
    """Return the sides of the largest image in an ICO, by the headers of these, PNGs or bitmaps.

    A directory of (sides of up to 256, ..., bytes, offset) precedes them; a bitmap is twice as high
    as its icon. Reference: learn.microsoft.com/previous-versions/ms997538(v=msdn.10).
    """
    sides = [(0, 0)]
    for at in range(6, min(6 + 16 * _number(bytes(data[4:6]), 0, 2), len(data) - 15), 16):
        start = _number(bytes(data[at + 12 : at + 16]), 0, 4)
        head = bytes(data[start : start + 24]).ljust(24, b"\0")
        if head[:4] == b"\x89PNG":
            sides.append((int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")))
            continue
        size = 2 if head[0] == 12 else 4  # of a number; BITMAPCOREHEADER
        width, height = (
            abs(int.from_bytes(head[at : at + size], "little", signed=True)) for at in (4, 4 + size)
        )
        sides.append((height // 2, width))
    return max(sides, key=lambda each: each[0] * each[1])


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


# ---- usual files, which Pillow need not open


def png_size(data: memoryview, head: bytes) -> Size | None:
    """Return the size of a usual PNG without an orientation.

    Reference: ISO/IEC 15948 (PNG) 11.2.2 and 5.3.
    """
    if head[8:16] != b"\0\0\0\x0dIHDR" or len(data) < 45:
        return None
    height = int.from_bytes(head[20:24], "big")
    width = int.from_bytes(head[16:20], "big")
    bits_and_color = head[24:26]
    filter_method = head[27:28]
    if bits_and_color not in _PNG_BITS_AND_COLORS or filter_method != b"\0":
        return None
    if not _is_intact(data, 8, 13):
        return None
    if not (1 <= height <= _MAX_SIDE and 1 <= width <= _MAX_SIDE):
        return None
    return (height, width) if _png_has_no_exif(data, 33) else None


def _png_has_no_exif(data: memoryview, at: int) -> bool:
    """Return True if plain chunks lead to the pixels, and no eXIf chunk follows them."""
    size = len(data)
    while at + 8 <= size:
        length, name = _CHUNK.unpack_from(data, at)
        if name == b"IDAT":
            break
        if at + length > _MAX_TEXT or not _is_intact(data, at, length):
            return False
        if not _is_plain_chunk(name, data[at + 8 : at + 8 + length]):
            return False
        at += 12 + length
    else:
        return False
    while at + 12 <= size:  # an eXIf chunk may follow the pixels
        length, name = _CHUNK.unpack_from(data, at)
        if name == b"eXIf":
            return False
        at += 12 + length
    return True


def _is_plain_chunk(name: bytes, payload: memoryview) -> bool:
    """Return True for a well-formed chunk without an orientation."""
    if name == b"tEXt":
        return bytes(payload[:80]).split(b"\0")[0] in _PNG_KEYWORDS
    if name == b"iCCP":
        _, zero, profile = bytes(payload).partition(b"\0")
        return zero == b"\0" == profile[:1] and _inflates(profile[1:])
    return len(payload) >= _PNG_CHUNKS.get(name, len(payload) + 1)


def _inflates(data: bytes) -> bool:
    inflater = zlib.decompressobj()
    try:
        inflater.decompress(data, _MAX_TEXT)
    except zlib.error:
        return False
    return inflater.eof


def _is_intact(data: memoryview, at: int, length: int) -> bool:
    """Return True if the chunk at `at` is complete and its checksum is right."""
    stop = at + 8 + length
    if stop + 4 > len(data):
        return False
    return _CHECKSUM.unpack_from(data, stop)[0] == zlib.crc32(data[at + 4 : stop])


def webp_size(data: memoryview, head: bytes) -> Size | None:
    """Return the size of a WebP without animation, and without metadata but a color profile.

    Reference: developers.google.com/speed/webp/docs/riff_container, RFC 6386 9.1, 9649 3.4.
    """
    end = 8 + int.from_bytes(head[4:8], "little")
    at = 12
    canvas = None
    if end > len(data):
        return None
    if head[12:16] == b"VP8X":
        if head[16:20] != b"\x0a\0\0\0" or head[20] & ~_WEBP_PROFILE_OR_ALPHA:
            return None
        width, height = (1 + int.from_bytes(head[at : at + 3], "little") for at in (24, 27))
        canvas = (height, width)
        at = 30
        for name in (b"ICCP", b"ALPH"):
            if data[at : at + 4] == name:
                at += _riff_length(data, at)
    if at + _riff_length(data, at) != end:
        return None
    size = _webp_frame(bytes(data[at : at + 18]))
    return size if canvas in (None, size) else None


_WEBP_PROFILE_OR_ALPHA = 0x30  # flags of the extended form; the others: EXIF, XMP, animation


def _riff_length(data: memoryview, at: int) -> int:
    """Return the bytes of a chunk, with its head and its padding to an even number."""
    length = int.from_bytes(data[at + 4 : at + 8], "little")
    return 8 + length + length % 2


def _webp_frame(chunk: bytes) -> Size | None:
    """Return the size of a VP8 or VP8L frame.

    Args:
      chunk: its first 18 bytes.
    """
    length = int.from_bytes(chunk[4:8], "little")
    if chunk[:4] == b"VP8L" and length >= 5:
        return _lossless_webp_frame(chunk)
    if chunk[:4] == b"VP8 " and length >= 10:
        return _lossy_webp_frame(chunk, length)
    return None


def _lossless_webp_frame(chunk: bytes) -> Size | None:
    """Return the size of a VP8L frame, RFC 9649 3.4."""
    bits = int.from_bytes(chunk[9:13], "little")
    has_signature = chunk[8] == 0x2F
    version = bits >> 29
    if not has_signature or version:
        return None
    return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)


def _lossy_webp_frame(chunk: bytes, length: int) -> Size | None:
    """Return the size of a VP8 frame, RFC 6386 9.1."""
    if chunk[11:14] != b"\x9d\x01\x2a":
        return None
    tag = int.from_bytes(chunk[8:11], "little")
    is_shown_key_frame = tag & 0x11 == 0x10
    version = tag >> 1 & 7
    partition_length = tag >> 5
    if not is_shown_key_frame or version > 3 or partition_length >= length:
        return None

    height = int.from_bytes(chunk[16:18], "little") & 0x3FFF
    width = int.from_bytes(chunk[14:16], "little") & 0x3FFF
    return (height, width) if height and width else None


def gif_size(data: memoryview, head: bytes) -> Size | None:
    """Return the size of a GIF whose first frame lies inside its screen.

    Reference: GIF89a 18 to 26.
    """
    width, height = struct.unpack_from("<HH", head, 6)
    at = _skip_gif_extensions(data, 13 + _palette_length(head[10]))
    if at is None or data[at : at + 1] != b"," or len(data) < at + 11:
        return None

    left, top, frame_width, frame_height, flags = struct.unpack_from("<4HB", data, at + 1)
    complete = len(data) >= at + 11 + _palette_length(flags)
    # Pillow's screen grows with a frame that exceeds it.
    inside = 0 < top + frame_height <= height and 0 < left + frame_width <= width
    return (height, width) if complete and inside else None


def _skip_gif_extensions(data: memoryview, at: int) -> int | None:
    """Return the offset after the extensions at an offset; None if one of them is unusual."""
    while data[at : at + 1] == b"!":
        label = bytes(data[at + 1 : at + 3])
        looping = data[at : at + 16] == _GIF_LOOP and data[at + 18 : at + 19] == b"\0"
        if not (looping or label == b"\xf9\4" or label[:1] == b"\xfe"):
            return None

        at += 2
        while at < len(data) and data[at]:  # sub-blocks
            at += 1 + data[at]
        at += 1
    return at


# The only application extension that is usual.
_GIF_LOOP = b"!\xff\x0bNETSCAPE2.0\3\1"


def _palette_length(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 128 else 0


def bmp_size(data: memoryview, head: bytes) -> Size | None:
    """Return the size of a BMP of 8, 24 or 32 bits without compression.

    Reference: BITMAPINFOHEADER, learn.microsoft.com/windows/win32/api/wingdi.
    """
    form, width, height, _, bits, compression = struct.unpack_from("<IIiHHI", head, 14)
    colors = int.from_bytes(head[46:50], "little")
    if form not in (40, 108, 124) or compression or len(data) < 14 + form:
        return None
    if bits not in (24, 32) and not (bits == 8 and colors <= 256):
        return None
    height = abs(height)  # negative for rows from the top
    return (height, width) if 1 <= width <= _MAX_SIDE and 1 <= height < 2**24 else None


SIZES: dict[str, Callable[[memoryview, bytes], Size | None]] = {
    "PNG": png_size,
    "WEBP": webp_size,
    "GIF": gif_size,
    "BMP": bmp_size,
}
