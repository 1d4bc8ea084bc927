"""Parquet and Arrow files as groups of rows, and their columns of numbers."""

import importlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxaug._install import install_command
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.columns import (
    ABSENT,
    FEATURE,
    LENGTH,
    MaxLength,
    check_length_name,
    feature_columns,
    length_of,
    with_absent,
)
from jaxaug.iterators.sources.storage.files import (
    DataFile,
    cause_of,
    file_system_of,
    is_remote,
    reason,
)

_PARQUET = b"PAR1"
_ARROW = b"ARROW1"


class Images(NamedTuple):
    """The encoded images of a group of rows.

    Attributes:
      addresses, lengths: uint64[n], the places of the bytes in memory; length 0 where there are
        none.
      paths: an Arrow array of paths of files, or None.
      owner: keeps the memory alive.
      bytes_held: memory that goes when the owner does; 0 for mapped files.
      counts: int64[rows], how many images each row has; None where it is one.
    """

    addresses: np.ndarray
    lengths: np.ndarray
    paths: Any
    owner: Any
    bytes_held: int
    counts: np.ndarray | None = None


class ArrowFile(NamedTuple):
    """An open file.

    Attributes:
      schema: the columns and their types.
      rows: int64[groups], the rows of each group.
      read: (number of a group, names of columns) -> an Arrow table. One thread at a time.
      mapped: the bytes of a group lie in a mapped file, so that reading one costs nothing.
    """

    schema: Any
    rows: np.ndarray
    read: Callable[[int, list[str]], Any]
    mapped: bool


def import_pyarrow(name: str) -> Any:
    """Import a module of pyarrow.

    Raises:
      SourceError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SourceError(f"Parquet needs pyarrow: {install_command('parquet')}.") from error


def open_arrow(file: DataFile, local: bool) -> ArrowFile:
    """Open a Parquet file, an Arrow IPC file or an Arrow stream; its content tells which.

    Args:
      local: the file lies on a disk of this machine, so that it may be mapped.

    Raises:
      SourceError: it is none of them, or cannot be read.
    """
    pyarrow = import_pyarrow("pyarrow")
    try:
        if is_remote(file.path):
            begin, handle = _open_remote(file)
        else:
            handle = pyarrow.memory_map(file.path) if local else pyarrow.OSFile(file.path)
            begin = handle.read(8)
            handle.seek(0)
        if begin.startswith(_PARQUET):
            opened = _open_parquet(handle)
        elif begin.startswith(_ARROW):
            opened = _open_ipc_file(pyarrow, handle, local)
        else:
            opened = _open_ipc_stream(pyarrow, handle, local)
        list(opened.schema.names)  # an error where one is no text
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        what = f"{file.name!r} cannot be read as Parquet or Arrow: {reason(error)}"
        raise SourceError(f"{what}.") from cause_of(error, file.path)
    return opened


def _open_remote(file: DataFile) -> tuple[bytes, Any]:
    """Return the first bytes of a remote file, and the file opened.

    Of Parquet what is asked for is read and no more: the footer, then columns of groups. fsspec
    would read megabytes ahead.
    """
    system, name = file_system_of(file.path)
    begin = system.cat_file(name, start=0, end=min(8, file.size))
    options = {"cache_type": "none"} if begin.startswith(_PARQUET) else {}
    return begin, system.open(name, "rb", **options)


def _open_parquet(handle: Any) -> ArrowFile:
    parquet = import_pyarrow("pyarrow.parquet")
    # A request for each range of neighboring columns, not for each page.
    opened = parquet.ParquetFile(handle, pre_buffer=True)
    groups = range(opened.metadata.num_row_groups)
    rows = np.array([opened.metadata.row_group(group).num_rows for group in groups], np.int64)
    lock = threading.Lock()

    def read(group: int, columns: list[str]) -> Any:
        with lock:
            return opened.read_row_group(group, columns=columns)

    return ArrowFile(opened.schema_arrow, rows, read, False)


def _open_ipc_file(pyarrow: Any, handle: Any, local: bool) -> ArrowFile:
    reader = pyarrow.ipc.open_file(handle)
    lock = threading.Lock()

    def read(group: int, columns: list[str]) -> Any:
        with lock:
            batch = reader.get_batch(group)
        return pyarrow.Table.from_batches([batch.select(columns)])

    rows = []
    mapped = local
    whole = None
    if local:
        handle.seek(0)
        whole = handle.read_buffer()
    for group in range(reader.num_record_batches):
        batch = reader.get_batch(group)
        rows.append(batch.num_rows)
        mapped = mapped and _lies_in(batch, whole)
    return ArrowFile(reader.schema, np.array(rows, np.int64), read, mapped)


def _open_ipc_stream(pyarrow: Any, handle: Any, local: bool) -> ArrowFile:
    batches = list(pyarrow.ipc.open_stream(handle))
    handle.seek(0)
    schema = pyarrow.ipc.open_stream(handle).schema

    def read(group: int, columns: list[str]) -> Any:
        return pyarrow.Table.from_batches([batches[group].select(columns)])

    # What is not mapped lies in memory already.
    rows = np.array([batch.num_rows for batch in batches], np.int64)
    return ArrowFile(schema, rows, read, True)


def _lies_in(batch: Any, whole: Any) -> bool:
    """Return True unless a buffer was decompressed into memory of its own."""
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                if not whole.address <= buffer.address < whole.address + whole.size:
                    return False
    return True


def images_of(column: Any, mapped: bool) -> Images:
    """Return the places of the images in a column of a table: bytes, or a struct with "bytes".

    Of lists of them, those of all rows, one after the other.

    Raises:
      SourceError: a column of another type.
    """
    pyarrow = import_pyarrow("pyarrow")
    if is_image_list(column.type):
        compute = import_pyarrow("pyarrow.compute")
        counts = compute.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
        return images_of(compute.list_flatten(column), mapped)._replace(counts=counts, paths=None)
    paths = None
    data = column
    if pyarrow.types.is_struct(column.type):
        names = [field.name for field in column.type]
        compute = import_pyarrow("pyarrow.compute")
        paths = compute.struct_field(column, "path") if "path" in names else None
        data = compute.struct_field(column, "bytes")
    if pyarrow.types.is_binary_view(data.type):  # as polars writes
        data, mapped = data.cast(pyarrow.large_binary()), False
    # Chunk by chunk: to combine them would copy, and fails beyond 2 GiB.
    places = [_places(pyarrow, chunk) for chunk in data.chunks]
    places = places or [(np.zeros(0, np.uint64), np.zeros(0, np.uint64))]
    addresses, lengths = (np.concatenate(parts) for parts in zip(*places))
    held = 0 if mapped else data.nbytes
    return Images(addresses, lengths, paths, data, held)


def is_image_type(type: Any) -> bool:
    """Return True for a type that `images_of` takes."""
    types = import_pyarrow("pyarrow").types
    if types.is_struct(type):
        found = [field.type for field in type if field.name == "bytes"]
        return bool(found) and is_image_type(found[0])
    return types.is_binary(type) or types.is_large_binary(type) or types.is_binary_view(type)


def is_image_list(type: Any) -> bool:
    """Return True for lists of what `images_of` takes."""
    return _is_list(type) and is_image_type(type.value_type)


def is_text(type: Any) -> bool:
    """Return True for strings."""
    types = import_pyarrow("pyarrow").types
    if types.is_dictionary(type):
        return is_text(type.value_type)
    return types.is_string(type) or types.is_large_string(type) or types.is_string_view(type)


def _places(pyarrow: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return addresses and lengths of the values of a binary array; length 0 for null."""
    large = pyarrow.types.is_large_binary(data.type)
    _, offsets_buffer, values = data.buffers()
    dtype = np.int64 if large else np.int32
    offsets = np.frombuffer(offsets_buffer, dtype)[data.offset : data.offset + len(data) + 1]
    base = values.address if values is not None else 0
    addresses = (offsets[:-1].astype(np.int64) + base).astype(np.uint64)
    lengths = np.diff(offsets).astype(np.uint64)
    if data.null_count:
        lengths[np.asarray(data.is_null())] = 0
    return addresses, lengths


def numeric_names(schema: Any, image: str) -> list[str]:
    """Return the names of the columns that can be features."""
    return [field.name for field in schema if field.name != image and _is_numeric(field.type)]


def _is_numeric(type: Any) -> bool:
    types = import_pyarrow("pyarrow").types
    if _is_list(type) or types.is_fixed_size_list(type):
        return _is_number(type.value_type)
    return types.is_fixed_size_binary(type) or _is_number(type)


def _is_number(type: Any) -> bool:
    types = import_pyarrow("pyarrow").types
    return types.is_integer(type) or types.is_floating(type) or types.is_boolean(type)


def number_columns(
    columns: Mapping[str, Any], max_length: MaxLength = None
) -> dict[str, np.ndarray]:
    """Return columns of features by prefixed name, from Arrow's columns of numbers by name.

    Numbers become [n], lists of one length [n, k], others zero-padded [n, most] with
    "<name>_length"; null is a list without numbers, and anything else is absent. Bools stay bools,
    but for labels. Bytes of a fixed length become uint8[n, k].
    """
    found = {}
    for name, column in columns.items():
        values, counts = _values_and_counts(column)
        if name == "label" and values.dtype == np.bool_:
            values = values.astype(np.int8)  # class 0 or 1
        if values.dtype == np.uint64 and values.size and values.max() > np.iinfo(np.int64).max:
            raise SourceError(f"column {name!r} holds {values.max()}, which int64 does not.")
        keep = values.dtype.type if values.dtype.kind == "f" or values.dtype == np.uint8 else None
        length = length_of(name, max_length, counts) if _is_list(column.type) else None
        made = feature_columns(name, values, counts, -1 if name == "label" else 0, keep, length)
        if not _is_list(column.type):
            made = with_absent(name, made)
        if name == "label":
            _note_labels(made)
        check_length_name(name, made, columns.keys())
        found |= made
    return found


def _is_list(type: Any) -> bool:
    """Return True for lists of any length."""
    types = import_pyarrow("pyarrow").types
    return types.is_list(type) or types.is_large_list(type)


def _note_labels(columns: dict[str, np.ndarray]) -> None:
    """Note the rows without a single label; rows of several need no count, as -1 ends them."""
    counts = columns.pop(LENGTH + "label", None)
    if counts is not None and columns[FEATURE + "label"].ndim == 1:
        columns[ABSENT + "label"] = counts == 0


def _values_and_counts(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return all numbers of a column, and the number of them in each row."""
    pyarrow = import_pyarrow("pyarrow")
    types = pyarrow.types
    kind = column.type
    if types.is_fixed_size_binary(kind):
        valid = np.asarray(column.is_valid())
        present = b"".join(column.drop_null().to_pylist())
        return np.frombuffer(present, np.uint8), valid * kind.byte_width
    if _is_list(kind) or types.is_fixed_size_list(kind):
        compute = import_pyarrow("pyarrow.compute")
        lengths = compute.list_value_length(column).fill_null(0)
        values = compute.list_flatten(column)
        if values.null_count:
            raise SourceError(f"a list of numbers of type {kind} holds null: leave it out.")
        return _numbers(pyarrow, values), np.asarray(lengths, np.int64)
    valid = np.asarray(column.is_valid())
    return _numbers(pyarrow, column.drop_null()), valid.astype(np.int64)


def _numbers(pyarrow: Any, values: Any) -> np.ndarray:
    if pyarrow.types.is_boolean(values.type):
        return values.cast("int8").to_numpy().astype(np.bool_)  # Arrow has them as bits
    return np.asarray(values.to_numpy())
