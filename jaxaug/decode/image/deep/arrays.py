"""NPY, and the arrays of an NPZ, as images [h, w] or [h, w, n]."""

import io
import zipfile
from typing import IO, NamedTuple

import numpy as np

from jaxaug.decode._npy import MAX_NPY_HEADER, read_npy_header
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.errors import DecodeError

_COLORS = {1: ("gray", ""), 3: ("rgb", ""), 4: ("rgb", "straight")}


class _Place(NamedTuple):
    """Where the numbers of an array lie.

    Attributes:
      name: of the member of an NPZ; "" of an NPY.
      start: bytes before them.
      stored: their dtype in the file.
      fortran: the first axis is the fastest.
    """

    name: str
    start: int
    stored: np.dtype
    fortran: bool


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of an NPY, or of an array of an NPZ, counted from 0."""
    if bytes(data[:2]) != b"PK":
        if page:
            raise DecodeError(f"NPY: it has one array, and page={page} was asked for")
        layout = _header(io.BytesIO(data[:MAX_NPY_HEADER]), "")
        need = layout.place.start + _bytes(layout)
        if need > len(data):
            raise DecodeError(f"NPY: truncated, {len(data)} bytes of {need}")
        return layout
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        names = [name for name in file.namelist() if name.endswith(".npy")]
        if page >= len(names):
            raise DecodeError(
                f"NPZ: it has {len(names)} arrays, and page={page} was asked for, from 0"
            )
        with file.open(names[page]) as member:
            return _header(member, names[page])


def _header(file: "IO[bytes]", name: str) -> Layout:
    shape, fortran, stored = read_npy_header(file)
    if len(shape) not in (2, 3) or 0 in shape or stored.kind not in "buifc":
        raise DecodeError(f"NPY: images are numbers [h, w] or [h, w, n], got {stored}{list(shape)}")
    samples = shape[2] if len(shape) == 3 else 1
    colors, alpha = _COLORS.get(samples, ("", ""))
    is_bool = stored.kind == "b"
    return Layout(
        height=shape[0],
        width=shape[1],
        samples=samples,
        dtype=np.dtype(np.uint8) if is_bool else stored.newbyteorder("="),
        bits=1 if is_bool else 8 * stored.itemsize,
        colors=colors,
        alpha=alpha,
        place=_Place(name, file.tell(), np.dtype(np.uint8) if is_bool else stored, fortran),
    )


def _bytes(layout: Layout) -> int:
    return layout.height * layout.width * layout.samples * layout.dtype.itemsize


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return [h, w, samples]; those of an NPY where they lie in the file."""
    place = layout.place
    raw: memoryview | bytes = data
    start = place.start
    if place.name:
        with zipfile.ZipFile(io.BytesIO(data)) as file, file.open(place.name) as member:
            member.read(start)
            raw = member.read(_bytes(layout))
        start = 0
    count = layout.height * layout.width * layout.samples
    pixels = np.frombuffer(raw, place.stored, count, start)
    shape = (layout.height, layout.width, layout.samples)
    return pixels.reshape(shape[::-1]).T if place.fortran else pixels.reshape(shape)
