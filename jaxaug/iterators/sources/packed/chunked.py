"""What the shards of Streaming and the chunks of LitData share: a table of places, then records.

    uint32      n, how many records, little-endian as everything here
    uint32[n+1] where each record begins in the file, and where the last one ends
    then        the records; before them, whatever lies between the table and the first

A record is the sizes, uint32 each, of those of its fields that have none that is always the same,
and then its fields. Which there are is told by an index.json beside the files.
"""

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators.sources import _items
from jaxaug.iterators.sources.packed.columns import ColumnBuilder, Place
from jaxaug.iterators.sources.packed.source import PackedSource
from jaxaug.iterators.sources.storage.files import (
    Unpack,
    hide_secrets,
    is_remote,
    local_path,
    stat_file,
)
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader
from jaxaug.iterators.sources.storage.unpacked import UNPACK

INDEX = "index.json"


class Field(NamedTuple):
    """A field of every record.

    Attributes:
      name: of the field.
      kind: "bytes", "str", the name of a dtype of numpy, or "" for what is not read.
      size: its bytes; None where each record has its own.
    """

    name: str
    kind: str
    size: int | None


class Chunks(NamedTuple):
    """What an index.json tells.

    Attributes:
      paths: of the files.
      fields: of their records.
      packed: how the files are unpacked, and the most that is in each; None where none is
        compressed.
      hashes: what is told of the unpacked bytes of each file, by the name of the hash.
    """

    paths: list[str]
    fields: list[Field]
    packed: tuple[Unpack, list[int]] | None = None
    hashes: Sequence[Mapping[str, str]] = ()


class Chunked(PackedSource):
    """Records of files with a table of places.

    Args:
      chunks: the files.
      image, mask, label, features: names of fields, as `MDS` says.
      more: of `PackedSource`.
    """

    def __init__(
        self,
        chunks: Chunks,
        *,
        image: str,
        mask: str | None,
        label: str | None,
        features: Sequence[str] | Mapping[str, str] | None,
        **more: Any,
    ):
        self._fields = chunks.fields
        self._hashes = dict(zip(chunks.paths, chunks.hashes))
        self._image = image
        self._mask = mask
        self._label = label
        kinds = {field.name: field.kind for field in chunks.fields}
        for argument, name in (("image", image), ("mask", mask)):
            if name is not None and kinds.get(name) != "bytes":
                found = sorted(field for field, kind in kinds.items() if kind == "bytes")
                what = f"`{argument}`: no field of encoded bytes is called {name!r}"
                raise SourceError(f"{what}; found were {found} among {sorted(kinds)}.")
        numbers = [name for name, kind in kinds.items() if kind not in ("bytes", "str", "")]
        self._names = _items.new_names(numbers if features is None else features)
        if label is not None:
            self._names.pop(label, None)
            self._names[label] = "label"
        missing = sorted(self._names.keys() - set(numbers), key=str)
        if missing:
            what = f"no numbers are called {missing}; found were {sorted(numbers)}"
            raise SourceError(f"`label`, `features`: {what} (label=None for none). {_items.TEXTS}.")
        _items.check_different(self._names)
        options = {"image": image, "mask": mask, "features": self._names, "fields": chunks.fields}
        options = json.loads(json.dumps(options))
        super().__init__(chunks.paths, options, packed=chunks.packed, **more)

    def _scan(
        self, reader: BlockReader, columns: ColumnBuilder, report: Callable[[int], None]
    ) -> dict[str, Any]:
        places = _table(reader)
        digest, wanted = _hash_of(self._hashes.get(reader.file.path, {}))
        digest.update(reader.at(0, int(places[0])))
        for begin, end in zip(places[:-1].tolist(), places[1:].tolist()):
            record = reader.at(begin, end - begin)
            digest.update(record)
            fields = self._split(reader, record, columns.count)
            first, last = fields[self._image]
            mask = None
            if self._mask is not None:
                start, stop = fields[self._mask]
                mask = Place(begin + start, stop - start)
            numbers = {
                new_name: record[slice(*fields[name])].view(self._dtype(name))
                for name, new_name in self._names.items()
            }
            columns.add(record[first:last], begin + first, first, numbers, mask)
            report(end)
        if digest.hexdigest() != wanted:
            raise _damaged(reader, f"has another {digest.name} than its {INDEX} tells")
        return {}

    def _dtype(self, name: str) -> np.dtype:
        kind = next(field.kind for field in self._fields if field.name == name)
        return np.dtype(kind).newbyteorder("<")

    def _split(
        self, reader: BlockReader, record: np.ndarray, number: int
    ) -> dict[str, tuple[int, int]]:
        """Return where the fields of a record begin and end in it."""
        varying = sum(field.size is None for field in self._fields)
        at = 4 * varying
        sizes = iter(record[:at].view("<u4").tolist() if len(record) >= at else [])
        places = {}
        for field in self._fields:
            size = next(sizes, -1) if field.size is None else field.size
            if field.kind not in ("bytes", "str", "") and size != np.dtype(field.kind).itemsize:
                raise _damaged(reader, f"record {number} has {size} bytes in {field.name!r}")
            places[field.name] = (at, at + size)
            at += size
        if at != len(record):
            raise _damaged(reader, f"record {number} has {len(record)} bytes, not the {at} it says")
        return places

    def _texts(
        self, reader: BlockReader, start: int, stop: int, names: Sequence[str]
    ) -> dict[str, Any]:
        record = reader.at(start, stop - start)
        fields = self._split(reader, record, 0)
        texts = {field.name for field in self._fields if field.kind == "str"}
        return {
            name: record[slice(*fields[name])].tobytes() if name in texts else None
            for name in fields
        }

    def _strings(self, reader: BlockReader, start: int) -> dict[str, Any]:
        places = _table(reader)
        end = int(places[np.searchsorted(places, start, side="right")])
        found = self._texts(reader, start, end, [])
        return {name: text.decode("utf-8", "replace") for name, text in found.items() if text}


class _Unhashed:
    """The hash of a file of which none is told, or none that can be computed here."""

    name = ""

    def update(self, data: np.ndarray) -> None:
        """Do nothing."""

    def hexdigest(self) -> str:
        """Return what is wanted of it."""
        return ""


def _hash_of(told: Mapping[str, str]) -> tuple[Any, str]:
    """Return one of the hashes that are told of a file, still of no bytes, and what it must be."""
    for name, wanted in told.items():
        if name in hashlib.algorithms_guaranteed and not name.startswith("shake"):  # of any length
            return hashlib.new(name, usedforsecurity=False), wanted
        if name in ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"):
            with suppress(ImportError):
                return getattr(importlib.import_module("xxhash"), name)(), wanted
    return _Unhashed(), ""


def compressed_chunks(
    stored: list[str], unpacked: list[str], sizes: list[int], fields: list[Field], compression: str
) -> Chunks:
    """Return files that are compressed, or what lies where their library unpacks them to.

    Args:
      stored, unpacked: the paths of each file, and of what is in it.
      sizes: the most bytes that are in each.
      fields: of their records.
      compression: its name, and perhaps a level behind a colon.

    Raises:
      SourceError: a compression that nobody knows.
    """
    with suppress(SourceError):
        stat_file(unpacked[0])
        return Chunks(unpacked, fields)
    kind = compression.partition(":")[0]
    if kind not in UNPACK:
        what = f"is compressed by {compression!r}; known are {sorted(UNPACK)}"
        raise SourceError(f"{hide_secrets(stored[0])!r} {what}.")
    return Chunks(stored, fields, (UNPACK[kind], sizes))


def _table(reader: BlockReader) -> np.ndarray:
    """Return where the records of a file begin, and where the last one ends, int64[n + 1]."""
    size = reader.file.size
    if size < 8:
        raise _damaged(reader, f"has {size} bytes, too few for a table of records")
    count = int(reader.at(0, 4).view("<u4")[0])
    head = 4 * (count + 2)
    if head > size:
        raise _damaged(reader, f"is cut within its table of {count} records")
    places = np.ascontiguousarray(reader.at(4, head - 4)).view("<u4").astype(np.int64)
    if places[0] < head or places[-1] != size or (np.diff(places) < 0).any():
        raise _damaged(reader, f"has {size} bytes, and a table of records until {places[-1]}")
    return places


def _damaged(reader: BlockReader, what: str) -> SourceError:
    return SourceError(f"{reader.file.name!r} {what}: it is cut, damaged or another format.")


def read_listing(
    folder: PathLike, made_by: str, parse: Callable[[str, dict[str, Any]], Chunks]
) -> Chunks:
    """Return what the index.json of a folder, or of its URL, tells.

    Args:
      folder: its path or URL.
      made_by: the library that writes such files.
      parse: takes path or URL of the folder, and the content of its index.json.

    Raises:
      SourceError: there is none, or it is no JSON object, or lacks something.
    """
    name = str(folder).rstrip("/")
    root = name if is_remote(name) else local_path(name)
    path = f"{root}/{INDEX}"
    try:
        file = stat_file(path)
    except SourceError as error:
        hint = f"name the folder that {made_by} has written, with its index.json"
        raise SourceError(f"{error} {hint}.") from error
    text = BlockReader(FileReader(), file).at(0, file.size).tobytes()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SourceError(f"{hide_secrets(path)!r} is no JSON: {error}.") from error
    if not isinstance(found, dict):
        what = f"is a {type(found).__name__}, no index of {made_by}"
        raise SourceError(f"{hide_secrets(path)!r} {what}.")
    try:
        return parse(root, found)
    except (LookupError, TypeError, AttributeError, json.JSONDecodeError) as error:
        what = f"lacks something that {made_by} writes ({type(error).__name__}: {error})"
        raise SourceError(f"{hide_secrets(path)!r} {what}: write it anew.") from error
