"""The members of a tar file, from its headers: v7, ustar, GNU long names, pax.

Reference: POSIX.1-2017, `pax` utility, "ustar Interchange Format" and "pax Extended Header"; the
GNU tar manual, "Basic Tar Format".
"""

from collections.abc import Iterator
from typing import NamedTuple

from jaxaug.errors import SourceError
from jaxaug.iterators.sources.storage.read import BlockReader

BLOCK = 512
_REGULAR = b"0\x007"  # types: a file, a file as v7 writes it, a contiguous file
_LINKS = {b"1": "hard", b"2": "symbolic"}
_LONG_NAME = b"L"
_LONG_LINK = b"K"
_PAX = b"x"
_PAX_GLOBAL = b"g"
_EXTENSIONS = (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL)
_SPARSE = b"S"
_MAX_EXTENSION_BYTES = 1 << 20  # bytes of a long name or a pax header
_CHECKSUM = slice(148, 156)


class Member(NamedTuple):
    """A file in a tar.

    Attributes:
      start: where its first header begins.
      offset, size: its bytes are [offset, offset + size).
      link: "hard" or "symbolic" where the archive holds only a link to a file.
    """

    name: str
    start: int
    offset: int
    size: int
    link: str = ""


class _Header(NamedTuple):
    """A header whose checksum holds."""

    name: str
    size: int
    kind: bytes


class _Extension(NamedTuple):
    """Name and size that extended headers give the next member; None where its own hold."""

    name: str | None = None
    size: str | None = None


def members(reader: BlockReader, at: int = 0, stop: int | None = None) -> Iterator[Member]:
    """Yield the regular files, and the links, of a tar from a header at byte `at` on.

    Args:
      reader: of the file.
      at: where a first header begins.
      stop: headers from there on are not looked at; None for the end of the tar, which is checked.

    Raises:
      SourceError: a damaged or cut tar, one without its end, or one with sparse files.
    """
    start = at
    extension = _Extension()
    while (stop is None or at < stop) and (header := _header(reader, at)) is not None:
        content = at + BLOCK
        if header.kind in _EXTENSIONS:
            extension = _extend(extension, reader, at, header)
            at = content + _padded(header.size)
            continue

        member = _member(reader, at, start, header, extension)
        if header.kind in _REGULAR or header.kind in _LINKS:
            yield member
        at = content + _padded(member.size)
        start = at
        extension = _Extension()
    while stop is None and at < reader.file.size:  # zeros alone may follow, no second archive
        block = reader.at(at, reader.block_size)
        if block.any():
            raise _damaged(reader, at, "has data behind its end")
        at += block.size


def is_tar(reader: BlockReader) -> bool:
    """Return True if a file begins with a tar header."""
    try:
        return _header(reader, 0) is not None
    except SourceError:
        return False


def _header(reader: BlockReader, at: int) -> _Header | None:
    """Return the verified header at byte `at`; None for the block of zeros that ends a tar."""
    block = reader.at(at, BLOCK)
    if block.size < BLOCK:
        what = "ends without the blocks of zeros that end a tar: it was cut"
        raise _damaged(reader, at, what)
    total = int(block.sum())
    if not total:
        return None

    text = block.tobytes()
    # The checksum counts its own field as blanks.
    blanked = total - sum(text[_CHECKSUM]) + 8 * ord(" ")
    if _number(reader, at, text[_CHECKSUM]) != blanked:
        raise _damaged(reader, at, "is damaged: the checksum of a header differs")
    # The name in a header, with ustar's prefix.
    name = _string(text[:100])
    prefix = _string(text[345:500]) if text[257:263] == b"ustar\0" else ""
    return _Header(
        f"{prefix}/{name}" if prefix else name, _number(reader, at, text[124:136]), text[156:157]
    )


def _extend(
    extension: _Extension,
    reader: BlockReader,
    at: int,
    header: _Header,
) -> _Extension:
    """Return the extension with what the extended header at byte `at` adds."""
    text = _extended_text(reader, at, header.size)
    if header.kind == _LONG_NAME:
        return extension._replace(name=_string(text))
    if header.kind != _PAX:
        return extension
    records = _pax_records(reader, at, text)
    name = records.get("path", extension.name)
    size = records.get("size", extension.size)
    return _Extension(name, size)


def _member(
    reader: BlockReader,
    at: int,
    start: int,
    header: _Header,
    extension: _Extension,
) -> Member:
    """Return the member whose last header is at byte `at` and whose first is at `start`."""
    name = extension.name or header.name
    size = header.size
    if extension.size is not None:
        if not extension.size.isascii() or not extension.size.isdigit():
            raise _damaged(reader, at, f"is damaged: the size {extension.size!r} is no number")
        size = int(extension.size)
    if at + BLOCK + size > reader.file.size:
        raise _damaged(reader, at, f"is cut within the member {name!r}")
    if header.kind == _SPARSE:
        what = f"has the sparse member {name!r}, which is not supported"
        raise _damaged(reader, at, what)
    return Member(name, start, at + BLOCK, size, _LINKS.get(header.kind, ""))


def _number(reader: BlockReader, at: int, field: bytes) -> int:
    """Return an octal number, or the binary one GNU tar writes where octal is too short."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip()
    if digits and not digits.strip(b"01234567"):
        return int(digits, 8)
    if not digits:
        return 0
    raise _damaged(reader, at, f"is damaged: {field!r} is no number")


def _extended_text(reader: BlockReader, at: int, size: int) -> bytes:
    """Return the content of a header that belongs to the next one."""
    text = reader.at(at + BLOCK, size)
    if size > _MAX_EXTENSION_BYTES or text.size < size:
        what = f"has an extended header of {size} bytes, or is cut within it"
        raise _damaged(reader, at, what)
    return text.tobytes()


def _pax_records(reader: BlockReader, at: int, text: bytes) -> dict[str, str]:
    """Return the values by key of records "<length> <key>=<value>\\n".

    The length counts all bytes of a record, its own too.
    """
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


def _string(text: bytes) -> str:
    return text.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _damaged(reader: BlockReader, at: int, what: str) -> SourceError:
    hint = "" if at else " Is it a tar at all?"
    return SourceError(f"{reader.file.name!r} {what} (byte {at}).{hint}")
