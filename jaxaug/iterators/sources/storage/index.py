"""The index of a set of container files: one file of columns with a checksum each, mapped into
memory.

    bytes 0-7    b"jaxaugIX"
    bytes 8-15   length of the header, uint64, little-endian as everything here
    bytes 16-19  CRC-32 of the header, uint32
    bytes 20-    the header, JSON: version, what the index is of, and of each column dtype, shape,
                 offset and CRC-32
    then         the columns, raw, each on a multiple of 64 bytes

An index is used only if all checksums hold and every data file has the size and the time of
modification that it had when it was read; else it is built anew. It is written beside the data or,
where that is not possible, in the cache folder ($XDG_CACHE_HOME/jaxaug or ~/.cache/jaxaug).
"""

import hashlib
import json
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.columns import (
    ABSENT,
    FACTS,
    FEATURE,
    LENGTH,
    ColumnBuilder,
    FileColumns,
    join,
)
from jaxaug.iterators.sources.storage.byte_progress import byte_progress
from jaxaug.iterators.sources.storage.files import (
    INDEX_PREFIX,
    INDEX_SUFFIX,
    DataFile,
    common_folder,
    is_remote,
    reason,
)
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader, read_fully

_MAGIC = b"jaxaugIX"
_PREFIX = struct.Struct("<8sQI")
_VERSION = 6
_ALIGNMENT = 64
_BLOCK_BYTES = 4 << 20  # bytes read at a time for checksums
_MAX_CHECKED_RECORDS = 1 << 16  # records whose places are checked in one go
_THREADS = 8  # files run through at a time


class Index(NamedTuple):
    """The places of all records, and the facts known of them.

    Attributes:
      columns: arrays with one row a record, in the order of the files: "offset", "length", "lead"
        (bytes from the record's beginning to its image), "mask_offset" and "mask_length" where it
        has masks, "header/..." facts of the image, "feature/..." numbers, and "absent/..." for the
        records that lack one.
      row_starts: int64[files + 1], the number of the first record of each file, and of all.
      extra: what else the format keeps, such as class names.
      fingerprint: a hash of names, sizes and places, the same wherever the files lie.
      path: the file that holds all this.
    """

    columns: dict[str, np.ndarray]
    row_starts: np.ndarray
    extra: dict[str, Any]
    fingerprint: str
    path: str


class IndexDamaged(Exception):
    """An index file cannot be used; the message says why."""


# (reader of a file, columns to fill, call with the offset reached now and then) -> what else the
# format keeps
Scan = Callable[[BlockReader, ColumnBuilder, Callable[[int], None]], dict[str, Any]]


def open_index(
    files: list[DataFile],
    kind: str,
    options: dict[str, Any],
    scan: Scan,
    place: str | None = None,
) -> Index:
    """Return the index of `files`: a stored one that still fits, or a new one.

    Args:
      files: the data files.
      kind: the format, such as "tfrecord".
      options: what else the index depends on; JSON values.
      scan: reads one file.
      place: the file of the index; None for beside the data or, if need be, the cache folder.

    Raises:
      SourceError: a data file is damaged, there are no records, or the index can be written
        nowhere.
    """
    folder, names = common_folder([file.identity for file in files])
    remote = any(is_remote(file.path) for file in files)
    subject = {
        "version": _VERSION,
        "kind": kind,
        "options": options,
        "facts": FACTS,
        "files": [[name, file.size, file.stamp] for name, file in zip(names, files)],
    }
    places = [place] if place else _places(folder, remote, [kind, options, names])
    found = _find(places, subject, files)
    if found is not None:
        return found
    with _one_builder(places):
        # Another process may have built it meanwhile.
        found = _find(places, subject, files)
        if found is not None:
            return found
        header, columns = _build(files, names, subject, scan)
        return _store(places, header, columns, subject)


def _find(places: list[str], subject: dict[str, Any], files: list[DataFile]) -> Index | None:
    """Return the stored index; None if it is missing, damaged or older than the data."""
    for place in places:
        try:
            return _within(read_index(place, subject), files)
        except (IndexDamaged, OSError):
            continue
    return None


def _store(
    places: list[str],
    header: dict[str, Any],
    columns: dict[str, np.ndarray],
    subject: dict[str, Any],
) -> Index:
    """Write an index to the first place that takes it, and open it there."""
    refused = []
    for place in places:
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            write_index(place, header, columns)
            return read_index(place, subject)
        except OSError as error:
            refused.append(f"{place!r} ({reason(error)})")
    raise SourceError(
        f"no index can be written to {' or '.join(refused)}: set XDG_CACHE_HOME to a folder that "
        "can be written, or name a file by `index`."
    )


@contextmanager
def _one_builder(places: list[str]) -> Iterator[None]:
    """Hold the lock of an index: of several processes that need one, one builds it, others wait.

    Where no lock can be had, as on some network disks, each builds it.
    """
    import fcntl  # POSIX only, as is `resource` elsewhere

    path = ""
    descriptor = None
    for place in places:
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            path = f"{place}.lock"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            break
        except OSError:
            continue
    if descriptor is None:
        yield
        return

    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Whoever waits for the file that goes here finds the index when its turn comes.
        with suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def _within(index: Index, files: list[DataFile]) -> Index:
    """Return the index if every record lies within its file; else it is damaged."""
    sizes = np.array([file.size for file in files], np.uint64)
    if len(index.row_starts) != len(files) + 1:
        raise IndexDamaged("it is of another number of files")
    for start in range(0, int(index.row_starts[-1]), _MAX_CHECKED_RECORDS):
        rows = slice(start, start + _MAX_CHECKED_RECORDS)
        columns = {name: column[rows] for name, column in index.columns.items()}
        counts = np.diff(np.clip(index.row_starts, start, start + _MAX_CHECKED_RECORDS))
        size = np.repeat(sizes, counts)
        outside = columns["lead"] > columns["offset"]
        outside |= _ends_behind(size, columns["offset"], columns["length"])
        if "mask_offset" in columns:
            outside |= _ends_behind(size, columns["mask_offset"], columns["mask_length"])
        if outside.any():
            raise IndexDamaged("a record lies outside its file")
    return index


def _ends_behind(size: np.ndarray, offset: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return True for ranges that are not within the first `size` bytes; no sum may overflow."""
    return (offset > size) | (length > size - offset)


def write_index(path: str, header: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    """Write an index so that a reader sees all of it or none.

    Args:
      path: the file; replaced if it exists.
      header: JSON values; gets the places and checksums of the columns.
      columns: little-endian numbers.
    """
    layout = {}
    offset = 0
    for name, column in columns.items():
        column = columns[name] = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
        layout[name] = [column.dtype.str, column.shape, offset, zlib.crc32(_bytes(column))]
        offset = _aligned(offset + column.nbytes)
    text = json.dumps(header | {"columns": layout}).encode()
    partial = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(partial, "xb") as file:
            file.write(_PREFIX.pack(_MAGIC, len(text), zlib.crc32(text)) + text)
            for column in columns.values():
                file.write(bytes(_aligned(file.tell()) - file.tell()))
                file.write(_bytes(column))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def write_extra(path: str, name: str, value: Any) -> None:
    """Change one of the `extra` entries of an index; what has it open keeps what it was.

    Raises:
      SourceError: the index is damaged, or cannot be written.
    """
    try:
        columns = dict(read_index(path).columns)
        with open(path, "rb") as file:
            header, _ = _read_header(file, os.fstat(file.fileno()).st_size)
        write_index(path, header | {"extra": header["extra"] | {name: value}}, columns)
    except (IndexDamaged, OSError) as error:
        raise SourceError(f"the index {path!r} cannot be changed: {reason(error)}.") from error


def read_index(path: str, subject: dict[str, Any] | None = None) -> Index:
    """Map an index, all checksums verified.

    Args:
      path: the file.
      subject: what its header must say: another version, format, option or state of the files is
        refused.

    Raises:
      IndexDamaged: the file is not such an index, or not as it was written.
      OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _read_header(file, size)
        if subject is not None and any(header.get(key) != value for key, value in subject.items()):
            raise IndexDamaged("it is of other files, or of an earlier state of them")
        try:
            end = start
            for dtype, shape, offset, checksum in header["columns"].values():
                length = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
                end = start + offset + length
                if _checksum(file, start + offset, length) != checksum:
                    raise IndexDamaged("the checksum of a column differs")
            if size != end:
                raise IndexDamaged("it has another length than its header says")
            memory = np.memmap(file, np.uint8, "r").view(np.ndarray)
            columns = {}
            for name, (dtype, shape, offset, _) in header["columns"].items():
                columns[name] = np.ndarray(shape, dtype, memory, start + offset)
            row_starts = np.cumsum([0, *header["counts"]], dtype=np.int64)
            fingerprint = header["fingerprint"]
            place = os.fspath(path)
            return Index(columns, row_starts, header["extra"], fingerprint, place)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise IndexDamaged(f"its header is incomplete: {error}") from error


def _read_header(file, size: int) -> tuple[dict[str, Any], int]:
    """Return the header and the place at which the columns begin."""
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise IndexDamaged("it is cut")
    magic, length, checksum = _PREFIX.unpack(prefix)
    if magic != _MAGIC or length > size:
        raise IndexDamaged("it is no index")
    text = file.read(length)
    if zlib.crc32(text) != checksum:
        raise IndexDamaged("the checksum of the header differs")
    return json.loads(text), _aligned(_PREFIX.size + length)


def _checksum(file, start: int, length: int) -> int:
    """Return the CRC-32 of a range, read as a mapping would count as memory of this process."""
    file.seek(start)
    checksum = 0
    buffer = memoryview(bytearray(min(length, _BLOCK_BYTES)))
    while length:
        count = file.readinto(buffer[:length])
        if not count:
            raise IndexDamaged("it is cut")
        checksum = zlib.crc32(buffer[:count], checksum)
        length -= count
    return checksum


def _build(files: list[DataFile], names: list[str], subject: dict[str, Any], scan: Scan):
    """Run through all files: the header and columns of their index."""
    read = FileReader()
    stopped = threading.Event()
    parts = []
    extra = {}
    _check_ranges(read, files[0])

    def run(file: DataFile) -> tuple[FileColumns, dict[str, Any]]:
        builder = ColumnBuilder()
        reached = [0]

        def report(offset: int) -> None:
            if stopped.is_set():
                raise SourceError("indexing was stopped")
            advance(offset - reached[0])
            reached[0] = offset

        reader = BlockReader(read, file)
        try:
            found = scan(reader, builder, report)
        except SourceError as error:
            compressed = _compressed(reader)
            if compressed is None:
                raise
            raise compressed from error
        report(file.size)
        return builder.finish(), found

    with byte_progress(sum(file.size for file in files), "index") as advance:
        for part, found in _in_threads(run, files, stopped):
            parts.append(part)
            extra |= found
    counts = [part.rows for part in parts]
    if not sum(counts):
        raise SourceError(
            f"no records in {len(files)} file(s), the first of which is {files[0].name!r}."
        )
    columns = join(parts, subject["options"].get("max_length"))
    fingerprint = _fingerprint(subject, names, files, columns)
    return subject | {"counts": counts, "extra": extra, "fingerprint": fingerprint}, columns


def _check_ranges(read: FileReader, file: DataFile) -> None:
    """Raise SourceError if a server sends the whole file where a byte of it is asked for.

    Without ranges no record could be read: this should show before all files are run through.
    """
    if is_remote(file.path) and file.size > 1:
        read_fully(read, file, file.size - 1, memoryview(bytearray(1)))


# The first bytes of compressed files, and what unpacks them.
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),  # RFC 1952
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),  # RFC 8878
}


def _compressed(reader: BlockReader) -> SourceError | None:
    """Return what to raise for a file that is compressed as a whole; None if it is not."""
    begin = reader.at(0, 8).tobytes()
    for magic, (name, tool) in _COMPRESSED.items():
        if begin.startswith(magic):
            path = reader.file.name
            what = f"is {name}: unpack it ({tool}), as records inside cannot be reached one by one"
            return SourceError(f"{path!r} {what}.")
    return None


def _in_threads(run: Callable, items: Sequence, stopped: threading.Event) -> Iterator:
    """Map in a few threads; an error or an interrupt stops those that run and drops the others."""
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="jaxaug-index") as pool:
        futures = [pool.submit(run, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _fingerprint(
    subject: dict, names: list[str], files: list[DataFile], columns: dict[str, np.ndarray]
) -> str:
    """Hash places and features; header facts may be more in another version of jaxaug."""
    sizes = [file.size for file in files]
    digest = hashlib.blake2b(json.dumps([subject["kind"], names, sizes]).encode(), digest_size=8)
    features = sorted(name for name in columns if name.startswith((FEATURE, LENGTH, ABSENT)))
    masks = [name for name in ("mask_offset", "mask_length") if name in columns]
    for name in ("offset", "length", *masks, *features):
        digest.update(name.encode())
        digest.update(_bytes(np.ascontiguousarray(columns[name])))
    return digest.hexdigest()


def _places(folder: str, remote: bool, what: list) -> list[str]:
    """Return where the index may lie, the best place first: a local folder that holds all data."""
    cache = os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "jaxaug"
    )
    name = f"{INDEX_PREFIX}{_short_hash(what)}{INDEX_SUFFIX}"
    beside = [os.path.join(folder, name)] if folder and not remote else []
    return [*beside, os.path.join(cache, f"{_short_hash([folder, *what])}.index")]


def _short_hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def _bytes(column: np.ndarray) -> memoryview:
    return column.reshape(-1).view(np.uint8).data


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
