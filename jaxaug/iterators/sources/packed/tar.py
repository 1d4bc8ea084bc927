"""The members of a tar file, from its headers: v7, ustar, GNU long names, pax.

Reference: POSIX.1-2017, `pax` utility, "ustar Interchange Format" and "pax Extended Header"; the
GNU tar manual, "Basic Tar Format".
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxaug.errors import SourceError
from jaxaug.iterators.sources._read import BlockReader

BLOCK = 512
_REGULAR = b"0\x007"  # types: a file, a file as v7 writes it, a contiguous file
_LINKS = {b"1": "hard", b"2": "symbolic"}
_LONG_NAME = b"L"
_LONG_LINK = b"K"
_PAX = b"x"
_PAX_GLOBAL = b"g"
_SPARSE = b"S"
_MAX_EXTENSION_BYTES = 1 << 20  # bytes of a long name or a pax header
_CHECKSUM = slice(148, 156)


class Member(NamedTuple):
    """A file in a tar; its first header begins at `start`, and [offset, offset + size) are its
    bytes.

    Where the archive has only a link to a file, `link` says what kind: "hard" or "symbolic".
    """

    name: str
    start: int
    offset: int
    size: int
    link: str = ""


def members(reader: BlockReader, at: int = 0) -> Iterator[Member]:
    """The regular files, and the links, of a tar from a header at byte `at` on.

    Raises:
      SourceError: a damaged or cut tar, one without its end, or one with sparse files.
    """
    start = at
    name = None
    size_given = None
    while True:
        header = reader.at(at, BLOCK)
        if header.size < BLOCK:
            raise _damaged(
                reader, at, "ends without the blocks of zeros that end a tar: it was cut"
            )
        if not header.any():
            return _check_end(reader, at)
        size, kind = _verified(reader, at, header)
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL):
            text = _extension(reader, at, size)
            if kind == _LONG_NAME:
                name = _string(text)
            elif kind == _PAX:
                records = _pax_records(reader, at, text)
                name = records.get("path", name)
                size_given = records.get("size", size_given)
            at += BLOCK + _padded(size)
            continue
        size = size if size_given is None else _pax_size(reader, at, size_given)
        if at + BLOCK + size > reader.file.size:
            raise _damaged(reader, at, f"is cut within the member {name or _name(header)!r}")
        if kind == _SPARSE:
            raise _damaged(
                reader,
                at,
                f"has the sparse member {name or _name(header)!r}, which is not supported",
            )
        if kind in _REGULAR or kind in _LINKS:
            yield Member(name or _name(header), start, at + BLOCK, size, _LINKS.get(kind, ""))
        at += BLOCK + _padded(size)
        start = at
        name = None
        size_given = None


def is_tar(reader: BlockReader) -> bool:
    """Whether a file begins with a tar header."""
    header = reader.at(0, BLOCK)
    try:
        return header.size == BLOCK and bool(header.any()) and bool(_verified(reader, 0, header))
    except SourceError:
        return False


def _verified(reader: BlockReader, at: int, header: np.ndarray) -> tuple[int, bytes]:
    """(size, type) of a header whose checksum holds."""
    blanked = (
        int(header.sum(dtype=np.int64)) - int(header[_CHECKSUM].sum(dtype=np.int64)) + 8 * ord(" ")
    )
    text = header.tobytes()
    if _number(reader, at, text[_CHECKSUM]) != blanked:
        raise _damaged(reader, at, "is damaged: the checksum of a header differs")
    return _number(reader, at, text[124:136]), text[156:157]


def _number(reader: BlockReader, at: int, field: bytes) -> int:
    """An octal number, or the binary one GNU tar writes where octal is too short."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip()
    if digits and not digits.strip(b"01234567"):
        return int(digits, 8)
    if not digits:
        return 0
    raise _damaged(reader, at, f"is damaged: {field!r} is no number")


def _name(header: np.ndarray) -> str:
    """The name in a header, with ustar's prefix."""
    text = header.tobytes()
    prefix = _string(text[345:500]) if text[257:263] == b"ustar\0" else ""
    return f"{prefix}/{_string(text[:100])}" if prefix else _string(text[:100])


def _extension(reader: BlockReader, at: int, size: int) -> bytes:
    """The content of a header that belongs to the next one."""
    text = reader.at(at + BLOCK, size)
    if size > _MAX_EXTENSION_BYTES or text.size < size:
        raise _damaged(reader, at, f"has an extended header of {size} bytes, or is cut within it")
    return text.tobytes()


def _pax_records(reader: BlockReader, at: int, text: bytes) -> dict[str, str]:
    """Records "<length> <key>=<value>\\n", the length counting all of them."""
    records = {}
    while text:
        length, separator, _ = text.partition(b" ")
        count = int(length) if length.isdigit() and separator else 0
        key, equals, value = text[len(length) + 1 : count - 1].partition(b"=")
        if not equals or text[count - 1 : count] != b"\n":
            raise _damaged(reader, at, "is damaged: a pax record is malformed")
        if key.startswith(b"GNU.sparse"):
            raise _damaged(reader, at, "has a sparse member, which is not supported")
        records[_string(key)] = _string(value)
        text = text[count:]
    return records


def _pax_size(reader: BlockReader, at: int, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise _damaged(reader, at, f"is damaged: the size {text!r} is no number")
    return int(text)


def _check_end(reader: BlockReader, at: int) -> None:
    """After the first block of zeros come only zeros: anything else is a second archive or damage."""
    while at < reader.file.size:
        block = reader.at(at, reader.block_size)
        if block.any():
            raise _damaged(reader, at, "has data behind its end")
        at += block.size


def _string(text: bytes) -> str:
    return text.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _damaged(reader: BlockReader, at: int, what: str) -> SourceError:
    hint = "" if at else " Is it a tar at all?"
    return SourceError(f"{reader.file.path!r} {what} (byte {at}).{hint}")
