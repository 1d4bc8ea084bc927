"""Headers of NPY files.

Reference: numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
"""

import functools
import io
import re
from typing import IO, NamedTuple

import numpy as np

from jaxaug.errors import DecodeError

MAX_NPY_HEADER = 65536
# As `numpy.save` writes it. NumPy parses with `ast`, which before Python 3.11.8 fails in one of
# two threads at times (github.com/python/cpython/issues/106905).
_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:b1|[iu][1248]|f[248]|c8|c16))', 'fortran_order': (True|False), "
    rb"'shape': \((|N,|N(?:, N)+)\), \} *\n".replace(b"N", rb"(?:0|[1-9]\d{0,17})")
)


class NpyHeader(NamedTuple):
    """What the header of an NPY tells.

    Attributes:
      shape: of the array.
      fortran: the first axis is the fastest.
      dtype: of the numbers in the file.
    """

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype


def read_npy_header(file: "IO[bytes]") -> NpyHeader:
    """Return the header at the place of a file, which is left where the numbers begin.

    Raises:
      DecodeError: it is of fields, whose versions are others.
      ValueError: it is damaged.
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise DecodeError(f"NPY: version {version}, of fields; arrays of numbers have 1 or 2")
    size = file.read(2 * version[0])
    text = file.read(min(int.from_bytes(size, "little"), MAX_NPY_HEADER))
    return _parsed(version[0], size + text)


@functools.lru_cache(256)
def _parsed(version: int, header: bytes) -> NpyHeader:
    """Return what a header tells: the arrays of a data set mostly have one."""
    plain = _HEADER.fullmatch(header, 2 * version)
    if plain:
        dtype, fortran, shape = plain.groups()
        sides = tuple(int(side) for side in shape.split(b",") if side)
        return NpyHeader(sides, fortran == b"True", np.dtype(dtype.decode()))

    parse = np.lib.format.read_array_header_1_0
    if version == 2:
        parse = np.lib.format.read_array_header_2_0
    return NpyHeader(*parse(io.BytesIO(header)))
