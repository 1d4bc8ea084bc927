"""WebDataset shards: tar files whose neighboring members of one name make a record."""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from jaxaug._checks import checked_indices
from jaxaug._typing import PathLike, Values
from jaxaug.decode import Ragged
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import join_columns
from jaxaug.iterators.sources import _items
from jaxaug.iterators.sources.packed.columns import (
    ColumnBuilder,
    MaxLength,
    Numbers,
    Place,
    take_features,
)
from jaxaug.iterators.sources.packed.source import PackedSource
from jaxaug.iterators.sources.packed.tar import Member, members
from jaxaug.iterators.sources.protocol import Parts
from jaxaug.iterators.sources.storage.read import BlockReader

# A member with a JSON list of class names; WebDataset tools skip names like this.
CLASSES = "__classes__"
_ARRAYS = ("npy", "npz")
_LISTS = "image_places"  # the feature of an index with (offset, bytes) of all images of a record
_TEXTS = ("txt", "text", "json", "cls")


class WebDataset(PackedSource):
    """Images in tar shards as WebDataset lays them out: `key.jpg`, `key.cls`, `key.json`, `key.txt`
    together.

    Members that follow each other and have the same key, the name up to the first dot of its last
    part, are one record; hidden ones (`._a.jpg`), those without extension (`README`) and meta data
    (`__meta__.json`) are skipped, as the webdataset library does. `cls` is an integer, the "label".
    The numbers at the top of `json` become features. A list of integers for a label makes labels
    int32[n, k], padded with -1 as those of `FileList`; other lists of numbers become features where
    `features` names them. Text is in `texts` and `describe`. The index is made on first use and
    kept beside the files or, where that cannot be, in $XDG_CACHE_HOME/jaxaug (`index_path` tells;
    `python -m jaxaug index` makes it beforehand); from then on a batch is numpy indexing.
    A tar has checksums of its headers only: damage inside an image is for the decoder to find.

    Names of `texts` are extensions, such as "txt", or names in `json`.

    Args:
      paths: files, glob patterns, brace ranges ("train-{00000..00146}.tar"), or URLs.
      image: extensions of the image, in either case; of several in one record the first listed
        counts. With a star, such as "*.jpg", all members that fit (`key.0.jpg`, `key.1.jpg`) are
        the images of a record, in the order of their numbers: the column is `Ragged` then, with
        "image_length" in a batch, and each record has at least one. A number for `max_length` holds
        for them, too.
      mask: extensions of the mask, such as "seg.png" for `key.seg.png` beside `key.jpg`; every
        record must have one. None for no masks. See `decode.Mask`.
      video: extensions of a video in place of the image, such as ("mp4", "webm"); the column is
        "video" then.
      label: "cls" for the member of that name or, without one, "label" in `json`; "kind.cls" for
        `key.kind.cls`; another name in `json`; None for none.
      features: names of further numbers in `json`, or {name: new name}; None for all numbers. Also
        arrays in members, which become columns [n, ...] of the index: "tokens.npy" for
        `key.tokens.npy`, "text.npz/ids" for the array "ids" in `key.text.npz`. Those that differ in
        their first axis are padded with 0, and counted in "<name>_length".
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.
      nulls: what a record has that lacks its number in a column of single ones: "error"; "nan" for
        NaN in floats; "count" for 0, with a column "<name>_count" that is 0 there and else 1.
      max_length: the length of columns of lists, by column; or a number for all those whose lists
        differ in length. Shorter lists are padded, longer ones cut, and "<name>_length" is how
        many numbers are there; in `features` how many there were.
      index: the file of the index, or a folder (made if it ends with "/") for it and those of the
        single files, read and written there alone; or the URL of either, of a folder with "/" at
        its end: such an index is read once, and kept in memory. None for beside the files or
        $XDG_CACHE_HOME/jaxaug.
      trust_index: open nothing but `index`, which must be there: no file is listed or asked for. A
        remote one that changed is an error when it is read, where its server gives ETags.
      mmap: map files on disks of this machine into memory, fast and without a copy; a disk that
        fails or a file that is cut while a batch is decoded then ends the process. False: read them
        with retries; what lies on network disks and at URLs always is.
      timeout: seconds without an answer after which a read of records counts as failed; not for
        mapped files. A read of a URL is tried again until then, each time after a quarter of it.
      retries: tries of a read of a file after the first, 0.1, 0.2, 0.4, ... seconds apart; not for
        mapped files.
      cache: a folder in which what was read of URLs is kept, by blocks of 1 MiB; processes may
        share it. None keeps nothing.
      cache_bytes: about how much of it; blocks that were not used for longest make room.

    Attributes:
      classes: the class names that `python -m jaxaug pack` stored, or None.

    Raises:
      ValueError: `timeout` or `retries` are no such numbers, or images and masks have the same
        extension.
      SourceError: a missing, damaged or cut file, a record without image or with a link for a
        member, a label that is no integer.

    Example:
      >>> import io, os, tarfile, tempfile
      >>> import numpy as np
      >>> path = os.path.join(tempfile.mkdtemp(), "shard.tar")
      >>> files = {"a.jpg": b"first", "a.cls": b"3", "b.jpg": b"second", "b.cls": b"1"}
      >>> with tarfile.open(path, "w") as tar:
      ...     for name, data in files.items():
      ...         member = tarfile.TarInfo(name)
      ...         member.size = len(data)
      ...         tar.addfile(member, io.BytesIO(data))
      >>> columns = WebDataset(path).read(np.array([1]))
      >>> bytes(columns["image"].view(0)), columns["label"].tolist()
      (b'second', [1])
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        image: str | Sequence[str] = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"),
        mask: str | Sequence[str] | None = None,
        video: str | Sequence[str] | None = None,
        label: str | None = "cls",
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
        self._mask = [] if mask is None else _extensions(mask)
        if video is not None:
            self._main = "video"
            image = video
        self._image = [name for name in _extensions(image) if name not in self._mask]
        if not self._image:
            raise ValueError(
                f"`image` must have an extension that `mask` has not, got {image!r} and {mask!r}: "
                "two members of one record have two extensions, such as 'png' and 'seg.png'."
            )
        self._several = any("*" in name for name in self._image)
        if self._several and (self._mask or video is not None):
            raise ValueError(
                f"`image` must name single images beside `mask` and `video`, got {image!r}: leave "
                "these out."
            )
        self._label = label
        self._names = None if features is None else _items.new_names(features)
        self._named = {
            name: new for name, new in (self._names or {}).items() if name != _json_name(label)
        }
        labelled = {} if label is None else {label: "label"}
        _items.check_different(self._named | labelled)
        options = {"image": self._image, "label": label, "features": self._names}
        if self._mask:
            options["mask"] = self._mask
        if video is not None:
            options["column"] = self._main
        reading = {"mmap": mmap, "timeout": timeout, "retries": retries}
        kept = {"cache": cache, "cache_bytes": cache_bytes}
        columns = {"boxes_of": boxes_of, "nulls": nulls, "max_length": max_length}
        self.classes: tuple[str, ...] | None = None
        place = {"index": index, "trust_index": trust_index}
        super().__init__(paths, options, **place, **columns, **reading, **kept)

    def _open(self) -> None:
        super()._open()
        if self._several:
            self._take_lists()
        self._check_found(self._named, self._label)
        classes = self._index.extra.get("classes")
        self.classes = None if classes is None else tuple(classes)

    def _take_lists(self) -> None:
        """Take the places of the images of each record, which the index has as a feature."""
        places = self._features.pop(_LISTS)
        most = places.shape[1]  # fewer than a record has, with `max_length`
        lengths = self._features.pop(f"{_LISTS}_length", np.full(len(self), most))
        self._list_lengths = np.minimum(lengths, most).astype(np.int64)
        self._list_places = places
        self._ragged = tuple(name for name in self._ragged if name != _LISTS)

    def read_parts(self, indices: np.ndarray, parts: Mapping[str, Parts]) -> dict[str, Values]:
        """Read the images, all of a list, and their features; see `PackedSource`."""
        if not self._several:
            return super().read_parts(indices, parts)
        indices = checked_indices(indices, len(self))
        lengths = self._list_lengths[indices]
        most = self._list_places.shape[1]
        places = self._list_places[indices][np.arange(most) < lengths[:, None]]
        records = np.repeat(np.arange(len(indices)), lengths)
        encoded = self._read_encoded(indices, records, places[:, 0], places[:, 1])
        columns = take_features(self._features, self._ragged, indices)
        return join_columns({"image": Ragged(encoded, lengths, most)}, columns)

    def _encoded_at(self, indices: np.ndarray) -> np.ndarray:
        """Return the places of all images of each record, of length 0 where there are fewer."""
        if not self._several:
            return super()._encoded_at(indices)
        there = np.arange(self._list_places.shape[1]) < self._list_lengths[indices][:, None]
        return np.where(there[..., None], self._list_places[indices], 0)

    def headers(self, indices: np.ndarray) -> dict[str, Any]:
        """Return what the index knows of the images; nothing of lists of them."""
        return {} if self._several else super().headers(indices)

    def _scan(
        self, reader: BlockReader, columns: ColumnBuilder, report: Callable[[int], None]
    ) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        for key, group in _records(reader):
            if key.removeprefix("./") == CLASSES:
                extra["classes"] = _json(reader, next(group))
                continue
            parts = _parts(reader, key, group)
            listed = _listed(parts, self._image) if self._several else []
            extension = next((name for name in listed or self._image if name in parts), None)
            if extension is None:
                hint = (
                    "members of one record must follow each other, and other extensions be named, "
                    "by `image` or `video`"
                )
                if any(name.rpartition(".")[2] in self._image for name in parts):
                    hint = "a name's key ends at its first dot"
                    if self._main == "image":
                        hint += "; image='*.jpg' takes all JPEGs of a record as a list"
                what = f"has no {self._main} {self._image}; it has {sorted(parts)}: {hint}"
                raise _wrong(reader, key, what)
            image = parts[extension]
            start = min(member.start for member in parts.values())
            data = reader.at(image.offset, image.size)
            mask = self._mask_of(reader, key, parts)
            numbers = self._numbers(reader, parts)
            if listed:
                members_of = [parts[name] for name in listed]
                found = [(member.offset, member.size) for member in members_of]
                numbers |= {_LISTS: np.array(found, np.int64)}
            columns.add(data, image.offset, image.offset - start, numbers, mask)
            report(image.offset)
        return extra

    def _mask_of(self, reader: BlockReader, key: str, parts: dict[str, Member]) -> Place | None:
        """Return the place of a record's mask; None if masks are not wanted."""
        if not self._mask:
            return None
        extension = next((name for name in self._mask if name in parts), None)
        if extension is None:
            raise _wrong(reader, key, f"has no mask {self._mask}; it has {sorted(parts)}")
        return Place(parts[extension].offset, parts[extension].size)

    def _numbers(self, reader: BlockReader, parts: dict[str, Member]) -> dict[str, Numbers]:
        """Return the label, the numbers at the top of the JSON object, and the wanted arrays."""
        member = parts.get("json")
        found = {} if member is None else _json(reader, member)
        if not isinstance(found, dict):
            found = {}
        label = self._label_of(reader, parts, found)
        numbers = self._json_features(reader, member, found)
        for name, new_name in (self._names or {}).items():
            extension, _, array = name.partition("/")
            if extension in parts and extension.rpartition(".")[2] in _ARRAYS:
                numbers[new_name] = _array(reader, parts[extension], array)
        return numbers if label is None else numbers | {"label": label}

    def _label_of(
        self,
        reader: BlockReader,
        parts: dict[str, Member],
        found: dict[str, Any],
    ) -> list | None:
        """Return the label, or the labels, of a record."""
        if self._label is None:
            return None
        if self._label.rpartition(".")[2] == "cls" and self._label in parts:
            return [_class_number(reader, parts[self._label])]
        label = found.get(str(_json_name(self._label)))
        if _is_number(label):
            return [label]
        if _are_integers(label):
            return label
        if label == []:
            return None
        member = parts.get("json") or next(iter(parts.values()))
        if label is not None:
            what = f"has the label {label!r:.80}, which is no class number and no list of them"
            raise _wrong(reader, member.name, f"{what}: pass label=None for none; {_items.TEXTS}")
        if self._label == "cls":
            others = [extension for extension in parts if extension.endswith(".cls")]
            if others:
                what = (
                    f"has no 'cls' but {others}: pass label={others[0]!r}, or label=None for none"
                )
                raise _wrong(reader, parts[others[0]].name, what)
            return None
        what = f"has no label {self._label!r}; its names are {sorted(found)}"
        raise _wrong(reader, member.name, what)

    def _json_features(
        self,
        reader: BlockReader,
        member: Member | None,
        found: dict[str, Any],
    ) -> dict[str, Numbers]:
        """Return the wanted numbers in JSON by their new names."""
        label = _json_name(self._label)
        names = {name: name for name in found} if self._names is None else self._names
        numbers: dict[str, Numbers] = {}
        for name, value in found.items():
            if name == label or name not in names:
                continue
            if names[name] == "label" and label is not None and member is not None:
                what = f"has {name!r} and the label {label!r}, which would both be called 'label'"
                raise _wrong(reader, member.name, f"{what}: name the `features` that you need")
            if _is_number(value):
                numbers[names[name]] = [value]
            elif self._names is not None and _are_numbers(value):
                numbers[names[name]] = value
            elif self._names is not None and value is not None and member is not None:
                what = f"has {value!r:.80} under {name!r}, which is no number"
                raise _wrong(reader, member.name, f"{what} and no list of numbers: {_items.TEXTS}")
        return numbers

    def _texts(
        self, reader: BlockReader, start: int, stop: int, names: Sequence[str]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        key, group = next(_records(reader, start, stop))
        parts = _parts(reader, key, group)
        encoded = [*_listed(parts, self._image), *self._mask]
        for name in names:
            if name in parts and name not in encoded:
                found[name] = _content(reader, parts[name])
        if "json" in parts and len(found) < len(names):
            inside = _json(reader, parts["json"])
            found = (inside if isinstance(inside, dict) else {}) | found
        return dict.fromkeys(parts) | found

    def _strings(self, reader: BlockReader, start: int) -> dict[str, Any]:
        key, group = next(_records(reader, start))
        found: dict[str, Any] = {"key": key}
        for extension, member in _parts(reader, key, group).items():
            if extension == "json":
                found |= {"json": _json(reader, member)}
            elif extension.rpartition(".")[2] in _TEXTS:
                found[extension] = _content(reader, member).decode("utf-8", "replace")
        return found


def _listed(parts: Mapping[str, Member], patterns: Sequence[str]) -> list[str]:
    """Return the extensions that fit one of some patterns, in the order of their numbers."""
    found = [name for name in parts if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return sorted(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def _extensions(names: str | Sequence[str]) -> list[str]:
    listed = [names] if isinstance(names, str) else names
    return [name.lower().lstrip(".") for name in listed]


def _split(name: str) -> tuple[str, str]:
    """Return (key, extension): the last part of a path is cut at its first dot."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return folder + slash + stem, extension.lower()


def _is_meta(key: str) -> bool:
    """Return True if a key is "__like__" at the top, or in such a folder."""
    return re.match(r"(\./)?__[^/]*__($|/)", key) is not None


def _records(
    reader: BlockReader, at: int = 0, stop: int | None = None
) -> Iterator[tuple[str, Iterator[Member]]]:
    """Yield neighboring members by key: those of records, and the one with the class names."""
    counting = filter(partial(_counts, reader), members(reader, at, stop))
    return groupby(counting, lambda member: _split(member.name)[0])


def _counts(reader: BlockReader, member: Member) -> bool:
    """Return True if a member belongs to a record or holds the class names.

    What systems and tools leave behind does not, as in the webdataset library: a name that is
    hidden or without extension, and meta data.
    """
    key, extension = _split(member.name)
    base = key.rpartition("/")[2]
    if not (key.removeprefix("./") == CLASSES or (base and extension and not _is_meta(key))):
        return False
    if member.link:
        how = "the tar has no bytes under this name: write it with --dereference --hard-dereference"
        raise _wrong(reader, member.name, f"is a {member.link} link; {how}")
    return True


def _parts(reader: BlockReader, key: str, group: Iterator[Member]) -> dict[str, Member]:
    """Return the members of a record by extension."""
    parts: dict[str, Member] = {}
    for member in group:
        extension = _split(member.name)[1]
        if extension in parts:
            raise _wrong(reader, key, f"has two members with the extension {extension!r}")
        parts[extension] = member
    return parts


def _json_name(label: str | None) -> str | None:
    """Return the name of the label in JSON."""
    return "label" if label == "cls" else label


def _class_number(reader: BlockReader, member: Member) -> int:
    """Return the integer in a `cls` member."""
    text = _content(reader, member)
    try:
        return int(text)
    except ValueError:
        raise _wrong(reader, member.name, f"is no integer but {text[:20]!r}") from None


def _are_integers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(entry) is int for entry in value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)


def _json(reader: BlockReader, member: Member) -> Any:
    try:
        return json.loads(_content(reader, member))
    except ValueError as error:
        raise _wrong(reader, member.name, f"is no JSON: {error}") from error


def _array(reader: BlockReader, member: Member, name: str) -> np.ndarray:
    """Return the numbers [k, ...] of a `npy` member, or those called `name` in a `npz`."""
    try:
        found = np.load(io.BytesIO(_content(reader, member)), allow_pickle=False)
        array = found if isinstance(found, np.ndarray) else _array_of(found, name)
    except SourceError as error:
        raise _wrong(reader, member.name, str(error)) from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _wrong(reader, member.name, f"is no array of numpy: {error}") from error
    if array.dtype.kind not in "biuf":
        raise _wrong(reader, member.name, f"holds {array.dtype}, no numbers")
    return np.atleast_1d(array)


def _array_of(found: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if not name:
        example = f"{next(iter(found))}"
        raise SourceError(f"has several arrays: name one, such as 'x.npz/{example}'")
    if name not in found:
        raise SourceError(f"has no array {name!r} but {sorted(found)}")
    return found[name]


def _content(reader: BlockReader, member: Member) -> bytes:
    return reader.at(member.offset, member.size).tobytes()


def _wrong(reader: BlockReader, name: str, what: str) -> SourceError:
    return SourceError(f"{reader.file.name!r}: {name!r} {what}.")
