"""Chunks of LitData, as its `optimize` writes them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.chunked import (
    Chunked,
    Chunks,
    Field,
    check_unpacked,
    read_listing,
)
from jaxaug.iterators.sources.packed.columns import MaxLength
from jaxaug.iterators.sources.storage.files import hide_secrets

# litdata/streaming/serializers.py: what holds an encoded image as it is, and numbers.
_BYTES = ("bytes", "jpeg", "tifffile")
_NUMBERS = {"int": "int64", "float": "float64", "bool": "bool"}


class LitData(Chunked):
    """Images in the chunks of LitData, read without it.

    Items are dicts, lists or tuples: entries inside of others are called "outer/inner", those of
    lists and tuples "0", "1", and so on. Numbers become features, texts are in `texts` and
    `describe`; pixels ("pil"), tensors and pickles are not read. Chunks that are compressed are
    read where they lie unpacked beside. An index of places and headers is made on first use, as for
    `TFRecord`. The order is jaxaug's own: any record at any time, without a download of its chunk.

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
      SourceError: there is no index.json, it names no chunk, a file is compressed and not unpacked,
        cut or missing, or encrypted, or a field is not there or of another kind.

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
    fields = [Field(name, _kind(each), None) for name, each in zip(names, formats)]
    stored = [chunk["filename"] for chunk in chunks]
    compression = config.get("compression")
    if not compression:
        return Chunks([f"{root}/{name}" for name in stored], fields)
    # litdata/streaming/config.py: the names that its reader unpacks chunks to.
    paths = [f"{root}/{name.replace(f'.{compression}', '')}" for name in stored]
    check_unpacked(f"{root}/{stored[0]}", paths[0], compression)
    return Chunks(paths, fields)


def _names(spec: dict[str, Any], before: str = "") -> list[str]:
    """Return the names of the leaves of an item, by the JSON that torch writes of its structure."""
    if spec["type"] is None:
        return [before]
    children = spec["children_spec"]
    keys = json.loads(spec["context"]) if "dict" in spec["type"].lower() else range(len(children))
    under = f"{before}/" if before else ""
    return [name for key, child in zip(keys, children) for name in _names(child, f"{under}{key}")]


def _kind(form: str) -> str:
    if form in _BYTES:
        return "bytes"
    return "str" if form == "str" else _NUMBERS.get(form, "")
