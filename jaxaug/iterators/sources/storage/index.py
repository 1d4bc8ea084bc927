"""The index of a set of container files: of each file one of its own, and all of them joined.

Beside a file lies `<file>.<hash>.jaxidx` with its records, which any number of processes make side
by side. They are joined to one `jaxaug-<hash>.index`, which a source maps into memory. Either is
used only if its checksums hold and every data file has the size and the stamp (time of
modification, ETag) that it had when it was read; a file that changed is read again, the others are
not. Both lie beside the data or, where that is not possible, in the cache folder
($XDG_CACHE_HOME/jaxaug or ~/.cache/jaxaug); or where they are asked for, which may be in a store.
"""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.image.canvas import join_sides
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.columns import (
    FORM,
    PLACES,
    ColumnBuilder,
    FileColumns,
    feature_widths,
    from_named,
    join,
)
from jaxaug.iterators.sources.packed.facts import Facts
from jaxaug.iterators.sources.storage.byte_progress import byte_progress
from jaxaug.iterators.sources.storage.files import (
    INDEX_PREFIX,
    INDEX_SUFFIX,
    PART_SUFFIX,
    DataFile,
    cache_folder,
    cause_of,
    common_folder,
    hide_secrets,
    is_remote,
    is_web,
    read_whole,
    reason,
    write_to_first,
)
from jaxaug.iterators.sources.storage.index_file import (
    Index,
    IndexDamaged,
    is_other_file,
    parse_index,
    read_header,
    read_index,
    sides_from,
    write_index,
)
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader, read_fully
from jaxaug.iterators.sources.storage.unpacked import open_blocks

_VERSION = 8
_MAX_CHECKED_RECORDS = 1 << 16  # records whose places are checked in one go
_THREADS = 8  # files run through at a time

# (reader of a file, columns to fill, call with the offset reached now and then) -> what else the
# format keeps
Scan = Callable[[BlockReader, ColumnBuilder, Callable[[int], None]], dict[str, Any]]


class Format(NamedTuple):
    """What an index is of, beside the files.

    Attributes:
      kind: the format, such as "tfrecord".
      options: what else the index depends on; JSON values.
      scan: reads one file.
      facts: what is kept of the encoded values.
    """

    kind: str
    options: dict[str, Any]
    scan: Scan
    facts: Facts

    def subject(self, files: list[list[Any]]) -> dict[str, Any]:
        """Return what the header of an index of `files` says: [name, size, stamp] of each."""
        known = {"version": _VERSION, "kind": self.kind, "options": self.options}
        return known | {"facts": self.facts.names, "files": files}

    def of_one_file(self) -> "Format":
        """Return the format of the index of one file: lists are cut where all are joined."""
        options = {name: self.options[name] for name in self.options if name != "max_length"}
        return self._replace(options=options)


class Part(NamedTuple):
    """The index of one file."""

    columns: FileColumns
    extra: dict[str, Any]
    fingerprint: str


def open_index(
    files: list[DataFile], format: Format, place: str | None = None, *, made: bool = True
) -> Index:
    """Return the index of `files`: a stored one that still fits, or a new one.

    Args:
      files: the data files.
      format: what the index is of.
      place: the file of the index, or the folder for it, or the URL of either; None for beside the
        data or, if need be, the cache folder.
      made: a new one is made where none fits.

    Raises:
      SourceError: a data file is damaged, there are no records, or the index can be written
        nowhere, or must be there and is not.
    """
    names, places = _places(files, format, place)
    subject = format.subject([[name, file.size, file.stamp] for name, file in zip(names, files)])
    found = _find(places, subject, files)
    if found is not None:
        return found
    if not made:
        raise SourceError(
            f"`index` {_shown(place)} is damaged, or of other options or another version of "
            "jaxaug: open the source as `trust_index` shall, but without it, which makes the index "
            "anew."
        )
    if is_web(places[0]):
        raise SourceError(
            f"`index` {_shown(places[0])} is not there, or not of these files and options, and web "
            "servers take no files: make it by `python -m jaxaug index --out`, and copy it there."
        )
    with _one_builder(places):
        # Another process may have built it meanwhile.
        found = _find(places, subject, files)
        if found is not None:
            return found
        header, columns = _build(files, names, subject, format, places)
        return _store(places, header, columns, subject)


def trusted_files(paths: list[str], place: str | None) -> list[DataFile]:
    """Return files as an index knows them, without a look at them.

    Args:
      paths: those of the index, in its order, in whatever folder they lie by now.
      place: the file of the index.

    Raises:
      SourceError: there is no such index, or it is of other files.
    """
    if place is None or not (is_remote(place) or os.path.isfile(place)):
        raise SourceError("`trust_index` needs `index`, the file of an index that is there.")
    try:
        known = read_header(place)["files"]
    except Exception as error:  # each protocol has its own
        what = f"`index` {_shown(place)} cannot be used: {reason(error)}."
        raise SourceError(what) from cause_of(error, place)
    files = [DataFile(path, size, stamp) for path, (_, size, stamp) in zip(paths, known)]
    _, names = common_folder([file.identity for file in files])
    if len(paths) != len(known) or names != [name for name, _, _ in known]:
        raise SourceError(
            f"`index` {_shown(place)} is of {len(known)} files, the first of which is "
            f"{known[0][0]!r}; `paths` names {len(paths)} files, the first of which is "
            f"{hide_secrets(paths[0])!r}."
        )
    return files


def index_files(
    files: list[DataFile], format: Format, place: str | None, part: int, parts: int
) -> tuple[int, int]:
    """Make the indexes of every `parts`-th file from number `part` on, and join nothing.

    Args:
      files, format, place: as `open_index` takes them.
      part, parts: the share of this process.

    Returns:
      The number of files of this share, and of those that had an index.

    Raises:
      SourceError: a data file is damaged, or an index can be written nowhere.
    """
    names, places = _places(files, format, place)
    found = [0]
    share = slice(part, None, parts)
    for _ in _parts(files[share], names[share], format, places, found, required=True):
        pass
    return len(files[share]), found[0]


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
    columns: Callable[[], Iterator[tuple[str, np.ndarray]]],
    subject: dict[str, Any],
) -> Index:
    """Write an index to the first place that takes it, and open it there."""

    def write(place: str) -> Index:
        write_index(place, header, columns())
        return read_index(place, subject)

    return write_to_first(places, "index", write, ", or name a file or a folder by `index`")


def _shown(place: str | None) -> str:
    """Return a path or a URL for a message."""
    return repr(place and hide_secrets(place))


@contextmanager
def _one_builder(places: list[str]) -> Iterator[None]:
    """Hold the lock of an index: of several processes that need one, one builds it, others wait.

    Where no lock can be had, as on some network disks and in stores, each builds it.
    """
    import fcntl  # POSIX only, as is `resource` elsewhere

    path = ""
    descriptor = None
    for place in [each for each in places if not is_remote(each)]:
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
    """Return the index if every record lies within its file; else raise `IndexDamaged`."""
    sizes = np.array([file.size for file in files], np.uint64)
    if len(index.row_starts) != len(files) + 1:
        raise IndexDamaged("it is of another number of files")
    if not index.checked:  # too many: each read checks its own
        return index
    for start in range(0, int(index.row_starts[-1]), _MAX_CHECKED_RECORDS):
        rows = slice(start, start + _MAX_CHECKED_RECORDS)
        columns = {name: column[rows] for name, column in index.columns.items()}
        counts = np.diff(np.clip(index.row_starts, start, start + _MAX_CHECKED_RECORDS))
        size = np.repeat(sizes, counts)
        outside = columns["lead"] > columns["offset"]
        outside |= ends_behind(size, columns["offset"], columns["length"])
        if "mask_offset" in columns:
            outside |= ends_behind(size, columns["mask_offset"], columns["mask_length"])
        if outside.any():
            raise IndexDamaged("a record lies outside its file")
        if FORM in columns and (columns[FORM] >= len(index.forms)).any():
            raise IndexDamaged("a record has facts that are missing")
    return index


def ends_behind(size: np.ndarray, offset: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return True for ranges that are not within the first `size` bytes; no sum may overflow."""
    return (offset > size) | (length > size - offset)


def _build(
    files: list[DataFile],
    names: list[str],
    subject: dict[str, Any],
    format: Format,
    places: list[str],
) -> tuple[dict[str, Any], Callable[[], Iterator[tuple[str, np.ndarray]]]]:
    """Join the indexes of all files, those that are missing made: the header, and the columns."""
    parts = [*_parts(files, names, format, places)]
    counts = [part.columns.rows for part in parts]
    if not sum(counts):
        raise SourceError(
            f"no records in {len(files)} file(s), the first of which is {files[0].name!r}."
        )
    extra = {}
    for part in parts:
        extra |= part.extra
    sizes = [file.size for file in files]
    max_length = format.options.get("max_length")
    columns = [part.columns for part in parts]
    widths = feature_widths(columns, max_length)
    known = [format.kind, names, sizes, widths, [part.fingerprint for part in parts]]
    header = {"counts": counts, "extra": extra, "fingerprint": _short_hash(known)}
    forms, _ = join(columns, max_length)
    sides = join_sides([part.sides for part in columns])
    header |= subject | {"forms": forms.tolist(), "sides": [side.tolist() for side in sides]}
    return header, lambda: join(columns, max_length)[1]


def _parts(
    files: list[DataFile],
    names: list[str],
    format: Format,
    places: list[str],
    found: list[int] | None = None,
    *,
    required: bool = False,
) -> Iterator[Part]:
    """Yield the index of each file in order: a stored one that still fits, or a new one, stored.

    Args:
      files, names, format, places: see `open_index`.
      found: counts those that were stored.
      required: each must be stored, also that of a single file.
    """
    read = FileReader()
    stopped = threading.Event()
    keeps = required or len(files) > 1
    folders = [os.path.dirname(place) for place in places] if keeps else []
    format = format.of_one_file()
    first = _First(read, files[0])

    def make(file: DataFile, name: str) -> Part:
        subject = format.subject([[os.path.basename(name), file.size, file.stamp]])
        options = _short_hash([format.kind, format.options])[:8]
        paths = [os.path.join(folder, f"{name}.{options}{PART_SUFFIX}") for folder in folders]
        part = _find_part(paths, subject)
        if part is not None:
            if found is not None:
                found[0] += 1
            advance(file.size)
            return part
        first.check()
        part = _scan_file(read, file, format, stopped, advance)
        _store_part(paths, subject, part, required)
        return part

    with byte_progress(sum(file.size for file in files), "index") as advance:
        yield from _in_threads(lambda pair: make(*pair), [*zip(files, names)], stopped)


def _find_part(paths: list[str], subject: dict[str, Any]) -> Part | None:
    """Return the stored index of one file; None if it is missing, damaged or older than it."""
    for path in paths:
        try:
            header, columns = parse_index(read_whole(path), subject)
            (rows,) = header["counts"]
            forms = np.array(header["forms"], np.int64)
            found = from_named(rows, columns, forms, sides_from(header["sides"]))
            return Part(found, header["extra"], header["fingerprint"])
        except (IndexDamaged, OSError, KeyError, ValueError):
            continue
    return None


def _store_part(paths: list[str], subject: dict[str, Any], part: Part, required: bool) -> None:
    header = subject | {
        "counts": [part.columns.rows],
        "forms": part.columns.forms.tolist(),
        "sides": [side.tolist() for side in part.columns.sides],
        "extra": part.extra,
        "fingerprint": part.fingerprint,
    }
    columns = part.columns.named()
    write = partial(write_index, header=header, columns=columns.items(), sync=False)
    with suppress(*() if required else (SourceError,)):
        write_to_first(paths, "index", write, ", or name one by --out")


def _scan_file(
    read: FileReader,
    file: DataFile,
    format: Format,
    stopped: threading.Event,
    advance: Callable[[int], None],
) -> Part:
    """Run through a file."""
    builder = ColumnBuilder(format.facts)
    reached = [0]

    def report(offset: int) -> None:
        if stopped.is_set():
            raise SourceError("indexing was stopped")
        advance(offset - reached[0])
        reached[0] = offset

    reader = open_blocks(read, file)
    try:
        extra = format.scan(reader, builder, report)
    except SourceError as error:
        compressed = _compressed(reader)
        if compressed is None:
            raise
        raise compressed from error
    if file.unpack is None:
        read.check(file)  # it may have changed in the meantime
    report(file.size)
    columns = builder.finish()
    return Part(columns, extra, _fingerprint(columns))


class _First:
    """A look at the first file before all are run through: a server must send ranges of it."""

    def __init__(self, read: FileReader, file: DataFile):
        self._read = read
        self._file = file
        self._lock = threading.Lock()
        self._error: SourceError | None = None
        self._done = not is_remote(file.path) or file.size < 2 or file.unpack is not None

    def check(self) -> None:
        """Raise SourceError if the server sends the whole file where a byte of it is asked for."""
        with self._lock:
            if not self._done:
                self._done = True
                try:
                    end = memoryview(bytearray(1))
                    read_fully(self._read, self._file, self._file.size - 1, end)
                except SourceError as error:
                    self._error = error
        if self._error is not None:
            raise self._error


# The first bytes of compressed files, and what unpacks them.
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),  # RFC 1952
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),  # RFC 8878
    **{bytes([0x78, level]): ("zlib", "zlib.decompress") for level in (1, 0x5E, 0x9C, 0xDA)},
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


def _fingerprint(columns: FileColumns) -> str:
    """Hash places and features; header facts may be more in another version of jaxaug."""
    digest = hashlib.blake2b(digest_size=8)
    named = columns.named()
    places = {name for name in PLACES if name != "lead"} & columns.columns.keys()
    for name in sorted(places | (named.keys() - columns.columns.keys())):
        column = np.ascontiguousarray(named[name])
        digest.update(f"{name} {column.dtype.str} {column.shape}".encode())
        digest.update(column.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _places(
    files: list[DataFile], format: Format, place: str | None
) -> tuple[list[str], list[str]]:
    """Return the names of files below the folder of all, and where their index may lie.

    The best place comes first: the one that was asked for, or a local folder that holds all files.
    """
    folder, names = common_folder([file.identity for file in files])
    what = [format.kind, format.options, names]
    name = f"{INDEX_PREFIX}{_short_hash(what)}{INDEX_SUFFIX}"
    if place is not None:
        is_folder = place.endswith("/") if is_remote(place) else os.path.isdir(place)
        if not is_remote(place) and os.path.isfile(place) and is_other_file(place):
            raise SourceError(f"`index` {place!r} is a file, and no index: name another one.")
        return names, [os.path.join(place, name) if is_folder else place]
    remote = any(is_remote(file.path) for file in files)
    beside = [os.path.join(folder, name)] if folder and not remote else []
    cached = os.path.join(cache_folder(), _short_hash([folder, *what]) + INDEX_SUFFIX)
    return names, [*beside, cached]


def _short_hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()
