"""PBM, PGM, PPM, PAM and PFM, of any highest number, as text or as bytes.

Reference: the pages pbm(5), pgm(5), ppm(5), pam(5), pfm(5) of netpbm.sourceforge.net.
"""

import re

import numpy as np

from jaxaug.decode.image.deep.layout import Layout
from jaxaug.errors import DecodeError

_TOKEN = re.compile(rb"(?:\s|#[^\n\r]*[\n\r])*([^\s#]+)")
_TOKENS = {b"P1": 2, b"P2": 3, b"P3": 3, b"P4": 2, b"P5": 3, b"P6": 3, b"PF": 3, b"Pf": 3}
_SAMPLES = {b"P3": 3, b"P6": 3, b"PF": 3}
_COMMENT = re.compile(rb"#[^\n\r]*")
_PAM = re.compile(rb"P7\s+(.*?)ENDHDR[ \t]*\n", re.DOTALL)
_MAX_HEAD = 65536
_ALPHA = "_ALPHA"


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of the first image of a file."""
    if page:
        raise DecodeError(f"PPM: the first image is read, and page={page} was asked for")
    head = bytes(data[:_MAX_HEAD])
    magic = head[:2]
    layout = _pam(head) if magic == b"P7" else _pnm(head, magic)
    if magic not in (b"P1", b"P2", b"P3"):
        need = _bytes(layout, magic)
        if layout.place[1] + need > len(data):
            raise DecodeError(
                f"PPM: truncated, {layout.width} x {layout.height} pixels take {need} bytes"
            )
    return layout


def _pnm(head: bytes, magic: bytes) -> Layout:
    numbers = []
    at = 2
    for _ in range(_TOKENS[magic]):
        found = _TOKEN.match(head, at)
        if found is None:
            raise DecodeError("PPM: truncated, the header is not whole")
        numbers.append(float(found[1]))
        at = found.end()
    width, height = int(numbers[0]), int(numbers[1])
    if magic in (b"PF", b"Pf"):
        order = "<" if numbers[2] < 0 else ">"
        return _layout(
            height, width, _SAMPLES.get(magic, 1), np.dtype(np.float32), 0, (magic, at + 1, order)
        )
    highest = int(numbers[2]) if len(numbers) == 3 else 1
    layout = _integers(height, width, _SAMPLES.get(magic, 1), highest, (magic, at + 1, ">"))
    return layout._replace(inverted=magic in (b"P1", b"P4"))


def _pam(head: bytes) -> Layout:
    found = _PAM.match(head)
    if found is None:
        raise DecodeError("PPM: truncated, the header is not whole")
    fields = dict(line.split(None, 1) for line in found[1].splitlines() if b" " in line.strip())
    names = (b"HEIGHT", b"WIDTH", b"DEPTH", b"MAXVAL")
    height, width, samples, highest = (int(fields[name]) for name in names)
    layout = _integers(height, width, samples, highest, (b"P7", found.end(), ">"))
    kind = fields.get(b"TUPLTYPE", b"").decode("latin-1").strip()
    base = {"GRAYSCALE": "gray", "BLACKANDWHITE": "gray", "RGB": "rgb", "CMYK": "cmyk"}
    colors = base.get(kind.removesuffix(_ALPHA), "" if kind else layout.colors)
    return layout._replace(colors=colors, alpha="straight" if kind.endswith(_ALPHA) else "")


def _integers(height: int, width: int, samples: int, highest: int, place: object) -> Layout:
    if not 1 <= highest <= 65535:
        raise DecodeError(f"PPM: the highest number must be 1 to 65,535, got {highest}")
    dtype = np.dtype(np.uint8 if highest < 256 else np.uint16)
    return _layout(height, width, samples, dtype, highest, place)


def _layout(
    height: int, width: int, samples: int, dtype: np.dtype, highest: int, place: object
) -> Layout:
    return Layout(
        height=height,
        width=width,
        samples=samples,
        dtype=dtype,
        bits=highest.bit_length() or 8 * dtype.itemsize,
        colors={1: "gray", 3: "rgb"}.get(samples, ""),
        highest=highest,
        place=place,
    )


def _bytes(layout: Layout, magic: bytes) -> int:
    if magic == b"P4":
        return layout.height * -(-layout.width // 8)
    return layout.height * layout.width * layout.samples * layout.dtype.itemsize


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return [h, w, samples] in the numbers of the file; 1 of a PBM is black."""
    magic, start, order = layout.place
    shape = (layout.height, layout.width, layout.samples)
    count = layout.height * layout.width * layout.samples
    if magic in (b"P1", b"P2", b"P3"):
        pixels = _text(bytes(data[start - 1 :]), magic, count)
    elif magic == b"P4":
        rows = np.frombuffer(data, np.uint8, _bytes(layout, magic), start)
        bits = np.unpackbits(rows.reshape(layout.height, -1), axis=1)
        pixels = bits[:, : layout.width]
    else:
        dtype = np.dtype(order + layout.dtype.str[1:])
        pixels = np.frombuffer(data, dtype, count, start)
    pixels = pixels.reshape(shape)
    if magic in (b"PF", b"Pf"):
        return pixels[::-1].astype(layout.dtype, copy=False)  # the last row comes first
    ends = int(pixels.min()), int(pixels.max())
    if ends[0] < 0 or ends[1] > layout.highest:
        raise DecodeError(f"PPM: it has numbers {ends[0]} to {ends[1]}, not 0 to {layout.highest}")
    return pixels.astype(layout.dtype, copy=False)


def _text(body: bytes, magic: bytes, count: int) -> np.ndarray:
    body = _COMMENT.sub(b" ", body)
    words = re.findall(rb"[01]", body) if magic == b"P1" else body.split(None, count)[:count]
    if len(words) < count:
        raise DecodeError(f"PPM: truncated, {len(words)} numbers of {count}")
    return np.array(words[:count], np.int64) if magic != b"P1" else np.array(words[:count], "u1")
