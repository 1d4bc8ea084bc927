"""Records of any source written into shards, tars or ArrayRecord files, by many workers."""

import glob
import importlib
import io
import json
import math
import os
import struct
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxaug._checks import check_count, check_positive_int
from jaxaug._install import install_command
from jaxaug._pack import add_file, partial_folder
from jaxaug._typing import PathLike
from jaxaug.decode import Encoded, Ragged, decode_image
from jaxaug.decode.image.parse.other_formats import format_of
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators.sources.packed.webdataset import CLASSES
from jaxaug.iterators.sources.protocol import Source
from jaxaug.iterators.sources.storage.files import local_path, reason

_SAMPLED_RECORDS = 512
_NPY_HEADER = 128  # bytes
_READ_RECORDS = 64  # in one call of the source
_EXTENSIONS = {"JPEG": "jpg", "TIFF": "tif", "JPEG2000": "jp2", "JPEGXL": "jxl", "PPM": "ppm"}


class Record(NamedTuple):
    """A record as it is written.

    Attributes:
      key: its number in the source, in digits.
      files: encoded bytes by column.
      numbers: arrays by column.
    """

    key: str
    files: dict[str, bytes]
    numbers: dict[str, np.ndarray]


def pack_shards(
    source: Source,
    out: PathLike,
    shards: int,
    part: int = 0,
    parts: int = 1,
    *,
    resize: int | None = None,
) -> tuple[int, int]:
    """Write the records of a source, in their order, into shards of nearly equally many.

    Shard k of n is `<name>-<k>-of-<n>.<extension>`, the extension that of `out`: a tar as
    `WebDataset` reads it (single numbers in `.json`, the label in `.cls`, arrays in `.npy`, masks
    in `.seg`), or "arrayrecord", of tf.Examples as `ArrayRecord` reads them (floats of 32 bits). A
    shard gets its name when it is whole, so that a run that was stopped goes on where it was, and
    any number of processes write side by side. Bytes are those of the source, but for images that
    are resized; texts stay there.

    Args:
      source: what to read.
      out: the name of the shards, such as "folder/train.tar".
      shards: how many.
      part, parts: write every `parts`-th shard from number `part` on.
      resize: pixels of the shorter side of "image"; larger ones are shrunk to it, antialiased, and
        stored upright as JPEGs of quality 95. Sources with masks, boxes or keypoints, which would
        not follow, are refused. None for the bytes as they are.

    Returns:
      How many shards this part has, and how many of them were there.

    Raises:
      SourceError: a record that cannot be read, or that is a part of a file or several files,
        shards of another source, or `out` cannot be written.
      ValueError: the numbers do not fit each other.
    """
    check_positive_int("shards", shards)
    check_positive_int("parts", parts)
    check_count("part", part)
    if part >= parts or shards > len(source):
        what = f"`part` {part} of {parts}, `shards` {shards} of {len(source)} records"
        raise ValueError(f"`part` must be below `parts`, and each shard have a record, got {what}.")
    path = local_path(out)
    stem, extension = os.path.splitext(path)
    write = _WRITERS.get(extension)
    if write is None:
        raise SourceError(f"`out` {os.fspath(out)!r} must end in {' or '.join(_WRITERS)}.")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _check_begun(stem, shards, source, resize)
        known = 0
        numbers = range(part, shards, parts)
        for number in numbers:
            name = f"{stem}-{number:05d}-of-{shards:05d}{extension}"
            if os.path.exists(name):
                known += 1
                continue
            first = len(source) * number // shards
            rows = range(first, len(source) * (number + 1) // shards)
            records = _records(source, rows, resize)
            _write_whole(name, write, records, getattr(source, "classes", None))
        return len(numbers), known
    except OSError as error:
        what = f"`out` {os.fspath(out)!r} cannot be written: {reason(error)}."
        raise SourceError(what) from error


def shards_of_bytes(source: Source, size: float, resize: int | None = None) -> int:
    """Return how many shards of a source have about `size` bytes each, and rarely more.

    By the mean of up to 512 records, which are the same in every process, and a tenth more.
    """
    rows = np.unique(np.linspace(0, len(source) - 1, _SAMPLED_RECORDS).astype(np.int64))
    total = 0
    for row in rows.tolist():
        (record,) = _records(source, range(row, row + 1), resize)
        arrays = [np.asarray(value) for value in record.numbers.values()]
        sizes = [len(data) for data in record.files.values()]
        sizes += [array.nbytes + _NPY_HEADER for array in arrays if array.ndim]
        total += sum(-(-size // 512) * 512 + 512 for size in sizes) + 1024
    wanted = 1.1 * total / rows.size * len(source) / size
    return min(len(source), max(1, math.ceil(wanted)))


def _check_begun(stem: str, shards: int, source: Source, resize: int | None) -> None:
    """Raise SourceError where shards were begun from another source; else keep what this is.

    A source that has changed may well give another number of shards of some size.
    """
    known = {"records": len(source), "fingerprint": source.fingerprint()}
    known |= {} if resize is None else {"resize": resize}
    for path in glob.glob(f"{glob.escape(stem)}-of-[0-9]*.json"):
        try:
            with open(path) as file:
                found = json.load(file)
        except ValueError as error:
            raise SourceError(f"{path!r} is damaged: {error}: remove it.") from error
        if found != known:
            raise SourceError(
                f"{path!r} says that these shards were begun from another source ({found}, not "
                f"{known}): name other shards, or remove these."
            )
    path = f"{stem}-of-{shards:05d}.json"
    if os.path.exists(path):
        return
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w") as file:
        json.dump(known, file)
    os.replace(partial, path)


def _write_whole(name: str, write: Any, records: Iterator[Record], classes: Any) -> None:
    """Write a shard elsewhere, and give it its name when it is on the disk."""
    folder, base = os.path.split(name)
    with partial_folder(folder, base) as partial:
        path = os.path.join(partial, base)
        write(path, records, classes)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        os.replace(path, name)


def _records(source: Source, indices: range, resize: int | None) -> Iterator[Record]:
    digits = len(str(len(source) - 1))
    for start in range(indices.start, indices.stop, _READ_RECORDS):
        rows = np.arange(start, min(start + _READ_RECORDS, indices.stop))
        columns = source.read(rows)
        lists = {name: _rows(name, column) for name, column in columns.items()}
        lower = [name.lower() for name in lists]
        same = sorted(name for name in lists if lower.count(name.lower()) > 1)
        if same:
            raise SourceError(f"columns {same} differ in case alone, which tars do not tell.")
        for row, index in enumerate(rows.tolist()):
            values = {name: found[row] for name, found in lists.items()}
            files = {name: value for name, value in values.items() if isinstance(value, bytes)}
            empty = sorted(name for name in files if not files[name])
            if empty:
                said = source.describe(index).get("error", "it has no bytes")
                raise SourceError(f"record {index}, {empty}: {said}: leave it out by a Subset.")
            numbers = {name: values[name] for name in values if name not in files}
            if resize is not None:
                _check_alone(values)
                files["image"] = _resized(files["image"], resize, index)
            yield Record(f"{index:0{digits}d}", files, numbers)


def _check_alone(values: Mapping[str, Any]) -> None:
    """Raise SourceError where an image has annotations of its pixels."""
    found = sorted({"mask", "boxes", "keypoints"} & values.keys())
    if found or "image" not in values:
        what = f"{found} would not follow" if found else "there is no column of that name"
        raise SourceError(f"`resize` is for the column 'image' alone: {what}.")


def _resized(data: bytes, side: int, index: int) -> bytes:
    """Return an image whose shorter side has at most `side` pixels; others as they are."""
    from PIL import Image

    try:
        image = Image.fromarray(decode_image(data, strict=True))
    except DecodeError as error:
        raise SourceError(f"record {index}: {error}") from error
    share = side / min(image.size)
    if share >= 1:
        return data
    size = (max(1, round(share * image.width)), max(1, round(share * image.height)))
    buffer = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def _rows(name: str, column: Any) -> list[Any]:
    """Return the values of each row: bytes, or arrays."""
    lists = isinstance(column, Ragged) and isinstance(column.values, Encoded)
    if lists or (isinstance(column, Encoded) and column.span is not None):
        what = "several files a record" if lists else "parts of files"
        raise SourceError(f"column {name!r} has {what}, and a shard whole files, one a record.")
    if isinstance(column, Encoded):
        return [bytes(column.view(row)) for row in range(len(column.lengths))]
    if isinstance(column, Ragged):
        return [row[:length] for row, length in zip(column.padded(), column.lengths)]
    return list(column)


def _write_tar(path: str, records: Iterator[Record], classes: Any) -> None:
    with tarfile.open(path, "w") as tar:
        if classes is not None:
            add_file(tar, CLASSES, json.dumps(list(classes)).encode())
        for record in records:
            for name, data in record.files.items():
                middle = {"image": "", "mask": "seg."}.get(name, f"{name}.")
                add_file(tar, f"{record.key}.{middle}{_extension(data)}", data)
            _add_numbers(tar, record)


def _add_numbers(tar: tarfile.TarFile, record: Record) -> None:
    single = {}
    for name, value in record.numbers.items():
        array = np.asarray(value)
        if name == "label" and array.ndim == 0 and array.dtype.kind in "iu":
            add_file(tar, f"{record.key}.cls", str(int(array)).encode())
        elif array.ndim == 0 or (name == "label" and array.ndim == 1):
            single[name] = array.tolist()
        else:
            buffer = io.BytesIO()
            np.save(buffer, array)
            add_file(tar, f"{record.key}.{name.lower()}.npy", buffer.getvalue())
    if single:
        add_file(tar, f"{record.key}.json", json.dumps(single).encode())


def _extension(data: bytes) -> str:
    if data[:2] == b"\xff\xd8":
        return "jpg"
    name = format_of(data) or "bin"
    return _EXTENSIONS.get(name, name.lower())


def _write_array_record(path: str, records: Iterator[Record], classes: Any) -> None:
    try:
        module = importlib.import_module("array_record.python.array_record_module")
    except ImportError as error:
        raise SourceError(f"ArrayRecord needs array_record: {install_command('tfds')}.") from error
    writer = module.ArrayRecordWriter(path, "group_size:1")
    try:
        for record in records:
            writer.write(_example(record.files | record.numbers))
    finally:
        writer.close()


_WRITERS = {".tar": _write_tar, ".arrayrecord": _write_array_record}


def _example(values: Mapping[str, Any]) -> bytes:
    """Return a tf.Example: tensorflow/core/example/feature.proto."""
    entries = []
    for name, value in values.items():
        entry = _field(1, name.encode()) + _field(2, _feature(name, value))
        entries.append(_field(1, entry))
    return _field(1, b"".join(entries))


def _feature(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return _field(1, _field(1, value))
    array = np.asarray(value)
    if array.ndim > 1:
        what = f"column {name!r} has arrays of {array.ndim} axes, tf.Examples lists of numbers"
        raise SourceError(f"{what}: write tars.")
    if array.dtype.kind == "f":
        return _field(2, _field(1, array.astype("<f4").tobytes()))
    numbers = np.atleast_1d(array).astype(np.int64).tolist()
    return _field(3, _field(1, b"".join(_varint(number % 2**64) for number in numbers)))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + struct.pack("B", value)
