"""The sizes of PNG, WebP, GIF and BMP files, from their fixed places.

Which files are good Pillow decides by opening them. A file whose first bytes are as the format's
usual writers put them opens for certain, and its size and orientation are known without: only for
such files these functions return a size. All others are Pillow's to open.
"""

import struct
import zlib
from collections.abc import Callable

Size = tuple[int, int]  # height, width

HEAD = 56  # bytes of a file that these functions are given; the last one of a shorter file repeats

_LARGEST_SIDE = 2**31 - 1

# Bits a sample and color types of PNG, ISO/IEC 15948 table 11.1.
_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_KINDS = frozenset(bytes((bits, color)) for color, each in _PNG_BITS.items() for bits in each)
# Chunks before the pixels that neither turn nor animate an image, and how long they are at least.
_PNG_CHUNKS = {b"gAMA": 4, b"cHRM": 32, b"sRGB": 1, b"pHYs": 9, b"tIME": 7, b"PLTE": 0, b"tRNS": 6}
# Registered keywords of texts, ISO/IEC 15948 11.3.4.2, and ImageMagick's; others may hold EXIF.
_PNG_KEYWORDS = frozenset(
    b"Title,Author,Description,Copyright,Creation Time,Software,Disclaimer,Warning,Source,Comment,"
    b"date:create,date:modify,date:timestamp".split(b",")
)
_MOST_TEXT = 2**20  # bytes of a color profile, or before the pixels, that Pillow reads in any case
_CHUNK = struct.Struct(">I4s")
_CHECKSUM = struct.Struct(">I")


def png_size(data: memoryview, head: bytes) -> Size | None:
    """Return the size of a usual PNG that nothing turns.

    Reference: ISO/IEC 15948 (PNG) 11.2.2 and 5.3.
    """
    if head[8:16] != b"\0\0\0\x0dIHDR" or len(data) < 45:
        return None
    height = int.from_bytes(head[20:24], "big")
    width = int.from_bytes(head[16:20], "big")
    kind = head[24:26]
    rest = head[27:28]
    if kind not in _PNG_KINDS or rest != b"\0" or not _is_checked(data, 8, 13):
        return None
    if not (1 <= height <= _LARGEST_SIDE and 1 <= width <= _LARGEST_SIDE):
        return None
    return (height, width) if _png_has_no_exif(data, 33) else None


def _png_has_no_exif(data: memoryview, at: int) -> bool:
    """Return True if plain chunks lead to the pixels, and none behind them holds an orientation."""
    size = len(data)
    while at + 8 <= size:
        length, name = _CHUNK.unpack_from(data, at)
        if name == b"IDAT":
            break
        if at + length > _MOST_TEXT or not _is_checked(data, at, length):
            return False
        if not _is_plain_chunk(name, data[at + 8 : at + 8 + length]):
            return False
        at += 12 + length
    else:
        return False
    while at + 12 <= size:  # an eXIf chunk may stand behind the pixels
        length, name = _CHUNK.unpack_from(data, at)
        if name == b"eXIf":
            return False
        at += 12 + length
    return True


def _is_plain_chunk(name: bytes, payload: memoryview) -> bool:
    """Return True for a well-formed chunk that tells nothing of an orientation."""
    if name == b"tEXt":
        return bytes(payload[:80]).split(b"\0")[0] in _PNG_KEYWORDS
    if name == b"iCCP":
        _, zero, profile = bytes(payload).partition(b"\0")
        return zero == b"\0" == profile[:1] and _inflates(profile[1:])
    return len(payload) >= _PNG_CHUNKS.get(name, len(payload) + 1)


def _inflates(data: bytes) -> bool:
    inflater = zlib.decompressobj()
    try:
        inflater.decompress(data, _MOST_TEXT)
    except zlib.error:
        return False
    return inflater.eof


def _is_checked(data: memoryview, at: int, length: int) -> bool:
    """Return True if the chunk at `at` is all there, and its checksum is right."""
    stop = at + 8 + length
    if stop + 4 > len(data):
        return False
    return _CHECKSUM.unpack_from(data, stop)[0] == zlib.crc32(data[at + 4 : stop])


def webp_size(data: memoryview, head: bytes) -> Size | None:
    """Return the size of a WebP that is not animated and has no metadata but a color profile.

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
    """Return the size of a VP8 or VP8L frame, of which the first bytes are given."""
    length = int.from_bytes(chunk[4:8], "little")
    if chunk[:4] == b"VP8L" and length >= 5:
        bits = int.from_bytes(chunk[9:13], "little")
        usual = chunk[8] == 0x2F and not bits >> 29
        return (1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)) if usual else None
    if chunk[:4] != b"VP8 " or length < 10 or chunk[11:14] != b"\x9d\x01\x2a":
        return None
    tag = int.from_bytes(chunk[8:11], "little")  # of a key frame: 0, version, 1 for shown, length
    height, width = (int.from_bytes(chunk[at : at + 2], "little") & 0x3FFF for at in (16, 14))
    usual = tag & 0x11 == 0x10 and tag >> 1 & 7 <= 3 and tag >> 5 < length
    return (height, width) if usual and height and width else None


def gif_size(data: memoryview, head: bytes) -> Size | None:
    """Return the size of a GIF whose first frame lies inside its screen.

    Reference: GIF89a 18 to 26.
    """
    width, height = struct.unpack_from("<HH", head, 6)
    at = 13 + _palette_length(head[10])
    while data[at : at + 1] == b"!":  # extensions: of applications, only that of loops
        kind = bytes(data[at + 1 : at + 3])
        looping = data[at : at + 16] == _GIF_LOOP and data[at + 18 : at + 19] == b"\0"
        if not (looping or kind == b"\xf9\4" or kind[:1] == b"\xfe"):
            return None
        at += 2
        while at < len(data) and data[at]:  # sub-blocks
            at += 1 + data[at]
        at += 1
    if data[at : at + 1] != b"," or len(data) < at + 11:
        return None
    left, top, wide, high, flags = struct.unpack_from("<4HB", data, at + 1)
    whole = len(data) >= at + 11 + _palette_length(flags)
    # Pillow's screen grows with a frame that exceeds it.
    inside = 0 < top + high <= height and 0 < left + wide <= width
    return (height, width) if whole and inside else None


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
    return (height, width) if 1 <= width <= _LARGEST_SIDE and 1 <= height < 2**24 else None


SIZES: dict[str, Callable[[memoryview, bytes], Size | None]] = {
    "PNG": png_size,
    "WEBP": webp_size,
    "GIF": gif_size,
    "BMP": bmp_size,
}
