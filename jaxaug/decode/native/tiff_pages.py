"""Pages of any TIFFs in LZW as one file, for libraries that decode files alone.

It is a BigTIFF with directories of our own, which say only what numbers there are: what they mean
is nothing to these libraries.

Reference: TIFF 6.0, Adobe 1992; BigTIFF, www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

import functools
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_SHORT, _LONG, _LONG8 = 3, 4, 16  # types of fields
_CODES = {_SHORT: "H", _LONG: "I", _LONG8: "Q"}
_LZW = 5
_BLACK_IS_ZERO = 1
_FORMATS = {"u": 1, "i": 2, "f": 3}  # SampleFormat
_INLINE = 8  # bytes of a value that lies in its entry
_HEADER = 16  # bytes

Field = tuple[int, bytes, bytes]  # tag, the begin of its entry, its value in whole words


class Form(NamedTuple):
    """What pages that are decoded in a call have in common.

    Attributes:
      height, width, samples: of a page.
      stored: the dtype of its numbers, byte order included.
      predictor: of each part.
      planes: 1, or the number of samples where each is a plane of its own.
      part: (height, width) of a strip or a tile.
      tiled: they are tiles.
    """

    height: int
    width: int
    samples: int
    stored: np.dtype
    predictor: int
    planes: int
    part: tuple[int, int]
    tiled: bool

    @property
    def pitch(self) -> int:
        """Bytes of a row of a page."""
        return self.width * self.samples * self.stored.itemsize


class Page(NamedTuple):
    """Where the parts of a page in LZW lie.

    Attributes:
      data: the file.
      offsets, counts: of the parts, plane by plane.
    """

    data: memoryview
    offsets: Sequence[int]
    counts: Sequence[int]


class File(NamedTuple):
    """A file of some pages.

    Attributes:
      pieces: its bytes, to be joined.
      size: the number of these.
      pages: where the parts of each lie in it.
      directories: where that of each begins.
    """

    pieces: list[bytes | memoryview]
    size: int
    pages: list[Page]
    directories: list[int]


def part_sizes(form: Form) -> list[int]:
    """Return the bytes of each part of a page without compression."""
    height, width = form.part
    row = width * form.samples // form.planes * form.stored.itemsize
    down = -(-form.height // height)
    sizes = [height * row] * (form.planes * down * -(-form.width // width))
    if not form.tiled:
        sizes[down - 1 :: down] = [(form.height - (down - 1) * height) * row] * form.planes
    return sizes


def one_file(form: Form, pages: Sequence[Page]) -> File:
    """Return pages of a form as one file."""
    spans = []
    moved = []
    at = _HEADER
    for data, offsets, counts in pages:
        first = min(offsets)
        end = max(map(sum, zip(offsets, counts)))
        moved.append(Page(data, [start + at - first for start in offsets], counts))
        spans.append(data[first:end])
        at += end - first
    pieces: list[bytes | memoryview] = [b"", *spans, bytes(-at % _INLINE)]
    at += -at % _INLINE
    directories = []
    for page in moved:
        directories.append(at)
        pieces.append(_directory(form, page, at, last=page is moved[-1]))
        at += len(pieces[-1])
    order = "MM" if _order(form) == ">" else "II"
    pieces[0] = struct.pack(f"{_order(form)}2sHHHQ", order.encode(), 43, 8, 0, directories[0])
    return File(pieces, at, moved, directories)


def _order(form: Form) -> str:
    return ">" if form.stored.str[0] == ">" else "<"


def _directory(form: Form, page: Page, at: int, *, last: bool) -> bytes:
    """Return the directory of a page, which begins at `at`; the next one follows it."""
    order = _order(form)
    tags = (324, 325) if form.tiled else (273, 279)
    places = [_field(order, tag, _LONG8, numbers) for tag, numbers in zip(tags, page[1:])]
    fields = sorted([*_fields(form), *places])
    pack = struct.Struct(f"{order}Q").pack
    beyond = at + 8 + 20 * len(fields) + 8
    entries = [pack(len(fields))]
    values = []
    for _, head, value in fields:
        if len(value) > _INLINE:
            values.append(value)
            value = pack(beyond)
            beyond += len(values[-1])
        entries += (head, value)
    entries.append(pack(0 if last else beyond))
    return b"".join(entries + values)


def _field(order: str, tag: int, kind: int, numbers: Sequence[int]) -> Field:
    head = struct.pack(f"{order}HHQ", tag, kind, len(numbers))
    value = struct.pack(f"{order}{len(numbers)}{_CODES[kind]}", *numbers)
    return tag, head, value + bytes(-len(value) % _INLINE)


@functools.lru_cache(256)
def _fields(form: Form) -> list[Field]:
    """Return what the directories of all pages of a form have in common."""
    height, width = form.part
    fields = [
        (256, _LONG, [form.width]),
        (257, _LONG, [form.height]),
        (258, _SHORT, [8 * form.stored.itemsize] * form.samples),
        (259, _SHORT, [_LZW]),
        (262, _SHORT, [_BLACK_IS_ZERO]),
        (277, _SHORT, [form.samples]),
        (284, _SHORT, [1 if form.planes == 1 else 2]),
        (317, _SHORT, [form.predictor]),
        (339, _SHORT, [_FORMATS[form.stored.kind]] * form.samples),
    ]
    if form.tiled:
        fields += [(322, _LONG, [width]), (323, _LONG, [height])]
    else:
        fields.append((278, _LONG, [height]))
    if form.samples > 1:  # none but the first is a color
        fields.append((338, _SHORT, [0] * (form.samples - 1)))
    return [_field(_order(form), *field) for field in fields]
