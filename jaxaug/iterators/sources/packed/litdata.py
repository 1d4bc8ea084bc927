"""Chunks of LitData, as its `optimize` writes them."""

import importlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.chunked import (
    Chunked,
    Chunks,
    Field,
    compressed_chunks,
    read_listing,
)
from jaxaug.iterators.sources.packed.columns import MaxLength
from jaxaug.iterators.sources.storage.files import hide_secrets, stat_file
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader
from jaxaug.iterators.sources.storage.unpacked import unpack_stream

# litdata/streaming/serializers.py: `Field.kind` of what holds an encoded image as it is, and of
# others.
_KINDS = dict.fromkeys(("bytes", "jpeg", "tifffile"), "bytes")
_KINDS |= {"str": "str", "int": "int64", "float": "float64", "bool": "bool"}
_ROWS = b"LDARW01\0"  # the end of a chunk whose items are rows of Arrow
_BATCHES = np.dtype(
    [("magic", "S8"), ("version", "<u4"), ("items", "<u4"), ("of", "<u4"), ("batches", "<u4")]
)
_BATCH = np.dtype(
    [("first", "<u4"), ("count", "<u4"), ("start", "<u8"), ("length", "<u4"), ("whole", "<u4")]
)
_ASKED = 64  # files whose heads are read at a time


class LitData(Chunked):
    """Images in the chunks of LitData, read without it.

    Items are dicts, lists or tuples: entries inside of others are called "outer/inner", those of
    lists and tuples "0", "1", and so on. Numbers become features, texts are in `texts` and
    `describe`; pixels ("pil"), tensors and pickles are not read. An index of places and headers is
    made on first use, as for `TFRecord`. The order is jaxaug's own: any record at any time, without
    a download of its chunk. Chunks that are compressed are unpacked and kept as the shards of `MDS`
    are.

    Args:
      folder: the folder that `litdata.optimize` has written, or its URL: it holds index.json and
        the chunks.
      image: the field with the encoded image: bytes or JPEG.
      mask: the field with the encoded mask; None for no masks. See `decode.Mask`.
      label: the field with the integer that becomes "label"; None for none.
      features: names of further fields, or {name: new name}; None for all numbers.
      boxes_of, nulls, max_length, index, trust_index, mmap, timeout, retries, cache, cache_bytes:
        as `TFRecord` takes them.

    Raises:
      SourceError: there is no index.json, it names no chunk, a file is cut, missing or encrypted or
        its compression unknown, or a field is not there or of another kind.

    Example:
      >>> LitData("s3://bucket/imagenet", image="image", label="class")  # doctest: +SKIP
      LitData(1281167 images in 2154 files, ['label'])
    """

    def __init__(
        self,
        folder: PathLike,
        *,
        image: str = "image",
        mask: str | None = None,
        label: str | None = "label",
        features: Sequence[str] | Mapping[str, str] | None = None,
        boxes_of: str = "stored",
        nulls: str = "error",
        max_length: MaxLength = None,
        index: PathLike | None = None,
        trust_index: bool = False,
        mmap: bool = True,
        timeout: float = 60.0,
        retries: int = 3,
        cache: PathLike | None = None,
        cache_bytes: float = 100e9,
    ):
        reading = {"mmap": mmap, "timeout": timeout, "retries": retries}
        kept = {"cache": cache, "cache_bytes": cache_bytes}
        columns = {"boxes_of": boxes_of, "nulls": nulls, "max_length": max_length}
        place = {"index": index, "trust_index": trust_index}
        chosen = {"image": image, "mask": mask, "label": label, "features": features}
        chunks = read_listing(folder, "litdata.optimize", _chunks)
        super().__init__(chunks, **chosen, **place, **columns, **reading, **kept)


def _chunks(root: str, found: dict[str, Any]) -> Chunks:
    """Return the chunks and the fields that an index.json names."""
    shown = hide_secrets(root)
    chunks = found.get("chunks")
    config = found.get("config") or {}
    if not chunks or not isinstance(chunks, list):
        raise SourceError(f"{shown!r}: its index.json names no chunks.")
    if config.get("encryption"):
        raise SourceError(
            f"{shown!r} has chunks with encryption ({config['encryption']}): write them without."
        )
    if not config.get("data_format") or not config.get("data_spec"):
        raise SourceError(f"{shown!r}: its index.json does not tell the fields of an item.")
    names = _names(json.loads(config["data_spec"])[1])
    formats = config["data_format"]
    if len(names) != len(formats):
        raise SourceError(
            f"{shown!r}: its index.json has {len(names)} fields, {len(formats)} formats."
        )
    fields = [Field(name, _KINDS.get(each, ""), None) for name, each in zip(names, formats)]
    if config.get("ipc_compression") or config.get("compression_level") == "sample":
        raise SourceError(
            f"{shown!r} has items that are compressed one by one, or as rows of Arrow: write them "
            "with compression=None, or open it by litdata.StreamingDataset in a RandomAccess."
        )
    stored = [f"{root}/{chunk['filename']}" for chunk in chunks]
    compression = config.get("compression")
    counts = [int(chunk["chunk_size"]) for chunk in chunks]
    # Older releases of LitData leave the table out of `chunk_bytes`.
    sizes = [chunk["chunk_bytes"] + 4 * (n + 2) for chunk, n in zip(chunks, counts)]
    if config.get("compression_level") == "batch":
        with ThreadPoolExecutor(_ASKED) as pool:
            sizes = [*pool.map(_size_of_batches, stored, counts)]
        return Chunks(stored, fields, (_from_batches, sizes))
    if compression:
        # litdata/streaming/config.py: the names that its reader unpacks chunks to.
        names = [chunk["filename"].replace(f".{compression}", "") for chunk in chunks]
        return compressed_chunks(
            stored, [f"{root}/{name}" for name in names], sizes, fields, compression
        )
    first = stat_file(stored[0])
    if BlockReader(FileReader(), first, 8).at(max(first.size - 8, 0), 8).tobytes() != _ROWS:
        return Chunks(stored, fields)
    # Arrow has no sizes of fields, and eight booleans in a byte.
    sizes = [size + 5 * len(fields) * n for size, n in zip(sizes, counts)]
    return Chunks(stored, fields, (partial(_from_rows, fields=fields), sizes))


def _size_of_batches(path: str, count: int) -> int:
    """Return how many bytes `_from_batches` gives for a file of so many items."""
    reader = BlockReader(FileReader(), stat_file(path), 4)
    return 4 * (count + 2) + int.from_bytes(reader.at(_BATCHES.itemsize + 4 * count, 4), "little")


def _from_batches(data: np.ndarray, size: int) -> np.ndarray:
    """Return the chunk whose items were compressed several at a time (framed_zstd.py)."""
    head = data[: _BATCHES.itemsize].view(_BATCHES)[0]
    if head["magic"] != b"LDFZ01":
        raise ValueError("it has no batches of items")
    places, data = np.split(data[_BATCHES.itemsize :], [4 * (int(head["items"]) + 1)])
    begin = _BATCHES.itemsize + len(places)
    batches = data[: head["batches"] * _BATCH.itemsize].view(_BATCH)
    items = [
        unpack_stream(data[start - begin : start - begin + length], whole, "zstd")
        for start, length, whole in batches[["start", "length", "whole"]].tolist()
    ]
    table = places.view("<u4") + np.uint32(4 + len(places))
    found = np.concatenate([head["items"].reshape(1).view(np.uint8), table.view(np.uint8), *items])
    if len(found) != size:
        raise ValueError(f"it has {len(found)} bytes where {size} are told")
    return found


def _from_rows(data: np.ndarray, size: int, fields: list[Field]) -> np.ndarray:
    """Return the chunk whose items are rows of Arrow behind an empty table (item_loader.py)."""
    arrow = importlib.import_module("pyarrow")
    length = int.from_bytes(data[-12:-8], "little")
    table = arrow.ipc.open_file(arrow.BufferReader(data[-12 - length : -12])).read_all()
    columns = [_stored(table.column(field.name).to_pylist(), field.kind) for field in fields]
    items = [
        np.array([*map(len, values)], "<u4").tobytes() + b"".join(values)
        for values in zip(*columns)
    ]
    head = 4 * (len(items) + 2)
    places = np.cumsum([head, *map(len, items)]).astype("<u4")
    return np.frombuffer(
        len(items).to_bytes(4, "little") + places.tobytes() + b"".join(items), np.uint8
    )


def _stored(values: list[Any], kind: str) -> list[bytes]:
    """Return the values of a field as they lie in an item."""
    if kind == "bytes":
        return values
    if kind == "str":
        return [value.encode() for value in values]
    return [np.array(value, kind).tobytes() if kind else b"" for value in values]


def _names(spec: dict[str, Any], before: str = "") -> list[str]:
    """Return the names of the leaves of an item, by the JSON that torch writes of its structure."""
    if spec["type"] is None:
        return [before]
    children = spec["children_spec"]
    keys = json.loads(spec["context"]) if "dict" in spec["type"].lower() else range(len(children))
    under = f"{before}/" if before else ""
    return [name for key, child in zip(keys, children) for name in _names(child, f"{under}{key}")]
