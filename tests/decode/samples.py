"""Image files of every sort for the decoder's tests."""

import base64
import io
import re
import struct

import numpy as np
import simplejpeg
from PIL import Image

from tests.images import encode, picture

# ---- JPEGs that neither Pillow nor simplejpeg writes, made by libjpeg-turbo 2.1.5's `cjpeg` from
# SOURCE

_X, _Y = np.meshgrid(np.arange(24), np.arange(16))
SOURCE = np.stack([40 + 6 * _X, 200 - 8 * _Y, 60 + 3 * _X + 4 * _Y], -1).astype(np.uint8)

# -arithmetic -quality 90
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsL"
    "EBYQERMUFRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU"
    "FBQUFBQUFBQUFBQUFBQUFBQUFBT/yQARCAAQABgDASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIRAxEAPwDBgygc"
    "lPl8cmf5V+UmjbelGv8A5RhB6T9kshExmfMpr37vwkorEwNw8EM70dYhK2FcSB0ljxp7eVKXUWeA/9k="
)
# -optimize -sample 4x2,1x1,1x1 -quality 90
SPARSE_CHROMA = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsL"
    "EBYQERMUFRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU"
    "FBQUFBQUFBQUFBQUFBQUFBQUFBT/wAARCAAQABgDAUIAAhEBAxEB/8QAFwABAQEBAAAAAAAAAAAAAAAABgACCP/EABkQ"
    "AAIDAQAAAAAAAAAAAAAAAAAFBiIxof/EABUBAQEAAAAAAAAAAAAAAAAAAAIF/8QAHBEAAQMFAAAAAAAAAAAAAAAAAAQF"
    "BiEjMTJB/9oADAMBAAIRAxEAPwDSyT5cXK5Pl+i1ZJ8uRyUrk+X6LVkny4uVyfL9ICeK01J0VY7WOH//2Q=="
)
# -optimize -quality 90 -scans FILE, with the lines 0; 1; 2;
SEVERAL_SCANS = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsL"
    "EBYQERMUFRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU"
    "FBQUFBQUFBQUFBQUFBQUFBQUFBT/wAARCAAQABgDASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAABgII/8QAGRAA"
    "AgMBAAAAAAAAAAAAAAAAAAUGIjGh/9oACAEBAAA/AKWSfLi5XJ8v0WrJPlzJSuT5fotWSfLi5XJ8v0//xAAVAQEBAAAA"
    "AAAAAAAAAAAAAAAEBf/EABoRAAICAwAAAAAAAAAAAAAAAAAGAgMhMmL/2gAIAQIRAD8AHWq8lKKrjU//xAAUAQEAAAAA"
    "AAAAAAAAAAAAAAAH/8QAGhEAAgIDAAAAAAAAAAAAAAAAAAUBIQQjMf/aAAgBAxEAPwA7TI+UM2Gj1RR//9k="
)

# ---- the rest

PICTURE = picture(0, 37, 50)


def save(image: Image.Image, kind: str = "JPEG", **options) -> bytes:
    """A Pillow image of any mode as a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


JPEGS = {
    "4:4:4": encode(PICTURE, subsampling=0),
    "4:2:2": encode(PICTURE, subsampling=1),
    "4:2:0": encode(PICTURE, subsampling=2),
    "4:4:0": simplejpeg.encode_jpeg(PICTURE, colorsubsampling="440"),
    "4:1:1": simplejpeg.encode_jpeg(PICTURE, colorsubsampling="411"),
    "gray": encode(PICTURE[:, :, 0]),
    "progressive": encode(PICTURE, progressive=True),
    "restart markers": encode(PICTURE, restart_marker_blocks=2),
    "RGB": encode(PICTURE, keep_rgb=True),
    "CMYK": save(Image.fromarray(PICTURE).convert("CMYK")),
    "YCCK": simplejpeg.encode_jpeg(
        np.array(Image.fromarray(PICTURE).convert("CMYK")), colorspace="CMYK"
    ),
    "ICC profile of two segments": encode(PICTURE, icc_profile=bytes(70000)),
    "markers in a comment": encode(PICTURE, comment=b"\xff\xd9 \xff\xda"),
    "one pixel": encode(PICTURE[:1, :1]),
    "arithmetic": ARITHMETIC,
    "sparse chroma": SPARSE_CHROMA,
    "several scans": SEVERAL_SCANS,
}


def patch_sof(file: bytes, offset: int, new: bytes) -> bytes:
    """A JPEG with bytes of its SOF segment replaced: its precision is at offset 4, height at 5,
    width at 7.
    """
    at = re.search(rb"\xff[\xc0-\xc2\xc9]\x00[\x0b\x11\x14]\x08", file).start() + offset
    return file[:at] + new + file[at + len(new) :]


def twelve_bits(file: bytes) -> bytes:
    """A JPEG of 8 bits whose frame says 12: the levels are those of before, but 128 is 2048."""
    frame = re.search(rb"\xff[\xc0-\xc2\xc9\xca]\0[\x0b\x11\x14]\x08", file)
    file = patch_sof(file, 4, b"\x0c")
    return file[: frame.start() + 1] + bytes([max(0xC1, frame[0][1])]) + file[frame.start() + 2 :]


def insert(file: bytes, segment: bytes, at: int = 2) -> bytes:
    return file[:at] + segment + file[at:]


def segment(marker: int, payload: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(payload) + 2) + payload


def exif_segment(orientation: int, order: str, long: bool = False, before: int = 0) -> bytes:
    """An APP1 whose TIFF directory has `before` other entries and then the orientation; order "<"
    or ">".
    """
    entries = [struct.pack(order + "HHII", 0x0100 + i, 4, 1, 7) for i in range(before)]
    value = (
        struct.pack(order + "I", orientation) if long else struct.pack(order + "HH", orientation, 0)
    )
    entries.append(struct.pack(order + "HHI", 0x0112, 4 if long else 3, 1) + value)
    directory = struct.pack(order + "H", len(entries)) + b"".join(entries) + bytes(4)
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return segment(0xE1, b"Exif\0\0" + magic + struct.pack(order + "I", 8) + directory)


# ---- formats that Pillow reads and few write


def qoi(pixels: np.ndarray) -> bytes:
    """uint8[h, w, 3] as QOI (qoiformat.org/qoi-specification.pdf), a QOI_OP_RGB for each pixel."""
    height, width, _ = pixels.shape
    chunks = np.insert(pixels.reshape(-1, 3), 0, 0xFE, axis=1).tobytes()
    return b"qoif" + struct.pack(">IIBB", width, height, 3, 0) + chunks + bytes(7) + b"\1"


def psd(pixels: np.ndarray) -> bytes:
    """uint8[h, w, 3] as PSD (Adobe Photoshop File Formats Specification), planes as they are."""
    height, width, _ = pixels.shape
    head = b"8BPS" + struct.pack(">H6xHIIHH", 1, 3, height, width, 8, 3)
    return head + bytes(12) + bytes(2) + pixels.transpose(2, 0, 1).tobytes()


def xpm(numbers: np.ndarray) -> bytes:
    """Numbers [h, w] below 26 as XPM, with (9 n, 9 n, 9 n) for n."""
    height, width = numbers.shape
    colors = [f'"{chr(97 + n)} c #{9 * n:02x}{9 * n:02x}{9 * n:02x}",' for n in range(26)]
    rows = ['"' + "".join(chr(97 + n) for n in row) + '",' for row in numbers]
    head = ["/* XPM */", "static char *x[] = {", f'"{width} {height} 26 1",']
    return "\n".join([*head, *colors, "/* pixels */", *rows, "};\n"]).encode()


def cur(pixels: np.ndarray) -> bytes:
    """uint8[h, w, 3] as a cursor: a bitmap of 24 bits, twice as high for its mask."""
    height, width, _ = pixels.shape
    form = struct.pack("<IiiHHIIiiII", 40, width, 2 * height, 1, 24, 0, 0, 0, 0, 0, 0)
    gap = -3 * width % 4
    rows = b"".join(row.tobytes() + bytes(gap) for row in pixels[::-1, :, ::-1])
    body = form + rows + bytes(height * (-(-width // 32) * 4))
    head = struct.pack("<HHHBBBBHHII", 0, 2, 1, width, height, 0, 0, 0, 0, len(body), 22)
    return head + body


_NUMBERS = PICTURE[..., 0] // 10
RARE = {  # with the pixels that they hold
    "CUR": (cur(PICTURE), PICTURE),
    "DDS": (save(Image.fromarray(PICTURE), "DDS"), PICTURE),
    "ICO of a PNG": (save(Image.fromarray(PICTURE), "ICO", sizes=[(50, 37)]), PICTURE),
    "ICO of a bitmap": (
        save(Image.fromarray(PICTURE), "ICO", sizes=[(50, 37)], bitmap_format="bmp"),
        PICTURE,
    ),
    "PCX": (save(Image.fromarray(PICTURE), "PCX"), PICTURE),
    "PSD": (psd(PICTURE), PICTURE),
    "QOI": (qoi(PICTURE), PICTURE),
    "TGA": (save(Image.fromarray(PICTURE), "TGA"), PICTURE),
    "TGA of runs": (save(Image.fromarray(PICTURE), "TGA", compression="tga_rle"), PICTURE),
    "XBM": (
        save(Image.fromarray(PICTURE[..., 0] > 127), "XBM"),
        np.where(PICTURE[..., :1] > 127, 255, 0).repeat(3, -1).astype(np.uint8),
    ),
    "XPM": (xpm(_NUMBERS), (9 * _NUMBERS[..., None]).repeat(3, -1)),
}

# ---- lossless JPEG, which no library here writes


def lossless(
    pixels: np.ndarray, predictor: int = 1, extra: bytes = b"", table: int = 0, bits: int = 8
) -> bytes:
    """[h, w] or [h, w, 3] of so many bits as a lossless JPEG (SOF3, ITU-T T.81 annex H); `extra`
    segments first.
    """
    samples = pixels.reshape(*pixels.shape[:2], -1).astype(int)
    height, width, count = samples.shape
    codes = min(bits + 2, 17)  # categories, each with its number as code
    length = codes.bit_length()
    text = ""
    for y, x, each in np.ndindex(samples.shape):
        difference = samples[y, x, each] - _predicted(samples[:, :, each], y, x, predictor, bits)
        difference = int(difference + 2**15) % 2**16 - 2**15
        size = abs(difference).bit_length()
        text += format(size, f"0{length}b")
        if 0 < size < 16:
            text += format(difference % (1 << size) - (difference < 0), f"0{size}b")
    text += "1" * (-len(text) % 8)
    data = int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")
    frame = struct.pack(">BHHB", bits, height, width, count)
    frame += b"".join(bytes([each + 1, 0x11, 0]) for each in range(count))
    counts = [codes * (each == length) for each in range(1, 17)]
    huffman = bytes([table, *counts, *range(codes)])
    scan = bytes(
        [count, *sum(((each + 1, table << 4) for each in range(count)), ()), predictor, 0, 0]
    )
    segments = segment(0xC3, frame) + segment(0xC4, huffman) + segment(0xDA, scan)
    return b"\xff\xd8" + extra + segments + data + b"\xff\xd9"


def _predicted(plane: np.ndarray, y: int, x: int, predictor: int, bits: int) -> int:
    """T.81 table H.1; along the first line and column from the left and from above."""
    if not y:
        return plane[0, x - 1] if x else 1 << bits - 1
    if not x:
        return plane[y - 1, 0]
    a = plane[y, x - 1]
    b = plane[y - 1, x]
    c = plane[y - 1, x - 1]
    return (a, b, c, a + b - c, a + (b - c >> 1), b + (a - c >> 1), a + b >> 1)[predictor - 1]


JPEGS["lossless"] = lossless(PICTURE)
JPEGS["lossless gray"] = lossless(PICTURE[:, :, 0], predictor=4)
