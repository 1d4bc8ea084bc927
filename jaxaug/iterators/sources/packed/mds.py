"""MDS shards, as MosaicML's Streaming writes them."""

from collections.abc import Mapping, Sequence
from typing import Any

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
from jaxaug.iterators.sources.storage.files import hide_secrets

# streaming/base/format/mds/encodings.py: `Field.kind` of what holds an encoded image as it is, and
# of others.
_KINDS = dict.fromkeys(("bytes", "jpeg", "png"), "bytes") | {"str": "str", "int": "int64"}
_KINDS |= {name: name for bits in (8, 16, 32, 64) for name in (f"int{bits}", f"uint{bits}")}
_KINDS |= {name: name for name in ("float16", "float32", "float64")}


class MDS(Chunked):
    """Images in the MDS shards of MosaicML's Streaming, read without it.

    Numbers become features, fields of text are in `texts` and `describe`; arrays, JSON and pickles
    are not read. An index of places and headers is made on first use, as for `TFRecord`. The order
    is jaxaug's own: any record at any time, without a download of its shard. Of a shard that is
    compressed the first record brings all: it is unpacked and kept on disk, in `cache` or else the
    cache folder, within `cache_bytes` (`Blocks` takes records of few shards at a time). Where
    Streaming has left it unpacked beside, that is read. A hash that index.json has of a shard is
    compared when the index is made, if it is one of `hashlib`, or of xxhash where that is there.

    Args:
      folder: the folder of one split, or its URL: it holds index.json and the shards.
      image: the field with the encoded image: bytes, jpeg or png.
      mask: the field with the encoded mask; None for no masks. See `decode.Mask`.
      label: the field with the integer that becomes "label"; None for none.
      features: names of further fields, or {name: new name}; None for all numbers.
      boxes_of, nulls, max_length, index, trust_index, mmap, timeout, retries, cache, cache_bytes:
        as `TFRecord` takes them.

    Raises:
      SourceError: there is no index.json, it names no shard, a file is cut, damaged or missing or
        its compression unknown, or a field is not there or of another kind.

    Example:
      >>> MDS("gs://bucket/imagenet/train", image="image", label="class")  # doctest: +SKIP
      MDS(1281167 images in 2154 files, ['label'])
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
        chunks = read_listing(folder, "Streaming's MDSWriter", _shards)
        super().__init__(chunks, **chosen, **place, **columns, **reading, **kept)


def _shards(root: str, found: dict[str, Any]) -> Chunks:
    """Return the shards and the fields that an index.json names."""
    shown = hide_secrets(root)
    shards = found.get("shards")
    if not shards or not isinstance(shards, list):
        raise SourceError(f"{shown!r}: its index.json names no shards.")
    for shard in shards:
        if shard.get("format") != "mds":
            raise SourceError(
                f"{shown!r}: a shard has the format {shard.get('format')!r}, not 'mds'."
            )
        name = shard["raw_data"]["basename"]
        if _fields(shard) != _fields(shards[0]):
            raise SourceError(f"{name!r} of {shown!r} has other columns than the first shard.")
    paths = [f"{root}/{shard['raw_data']['basename']}" for shard in shards]
    compression = shards[0].get("compression")
    hashes = [shard["raw_data"].get("hashes") or {} for shard in shards]
    if not compression:
        return Chunks(paths, _fields(shards[0]), hashes=hashes)
    stored = [f"{root}/{shard['zip_data']['basename']}" for shard in shards]
    sizes = [int(shard["raw_data"]["bytes"]) for shard in shards]
    chunks = compressed_chunks(stored, paths, sizes, _fields(shards[0]), compression)
    return chunks._replace(hashes=hashes)


def _fields(shard: dict[str, Any]) -> list[Field]:
    columns = zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"])
    return [Field(name, _KINDS.get(encoding, ""), size) for name, encoding, size in columns]
