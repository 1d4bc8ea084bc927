"""Parquet and Arrow files with a column of images."""

import hashlib
import json
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._checks import check_choice, check_positive_int, checked_indices
from jaxaug._typing import PathLike, Values
from jaxaug.decode import Encoded, Ragged
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import hash_features, join_columns
from jaxaug.iterators.sources import _arrow, _items
from jaxaug.iterators.sources._base import OpenedSource, check_boxes_of, note_failures
from jaxaug.iterators.sources.packed.columns import (
    NULLS,
    MaxLength,
    check_lengths_used,
    check_max_length,
    fill_absent,
    ragged_names,
    take_features,
)
from jaxaug.iterators.sources.stamps import data_stamps
from jaxaug.iterators.sources.storage.files import (
    DataFile,
    changed,
    common_folder,
    is_remote,
    list_files,
    pause,
    reason,
    stat_file,
)
from jaxaug.iterators.sources.storage.local_disks import all_local
from jaxaug.iterators.sources.storage.loose import read_files
from jaxaug.iterators.sources.storage.storage import mappable_bytes

_REMOTE_TRIES = 4  # 0.1, 0.2 and 0.4 seconds apart


class Parquet(OpenedSource):
    """Images in a column of Parquet or Arrow files, as Hugging Face and pyarrow write them.

    The image column holds bytes, or a struct of "bytes" and "path". An uncompressed Arrow file on a
    disk of this machine (`data-00000-of-00001.arrow` of Hugging Face's cache) is mapped: no byte is
    copied, and any record is reached at once. Of a Parquet file whole row groups are decompressed,
    and up to `memory` bytes of them kept: a shuffle over more than that decompresses a group for
    almost every record, so keep it large, or convert the files once. Columns of numbers become
    features: numbers [n], lists of one length [n, k], other lists zero-padded [n, most] with
    "<name>_length", bytes of a fixed length uint8[n, k]. A null list counts as one without numbers,
    for other nulls see `nulls`. Bools stay bools, but for labels. Strings are in `texts`, and all
    else in `describe`.

    A read of a URL that fails is tried three times more. Files that change while they are open give
    bad records; one that is cut while a batch of it is decoded, or a disk that fails, ends the
    process where the file is mapped.

    Args:
      paths: files, glob patterns, brace ranges, or URLs; the content tells which format a file has.
      image: the column of images.
      mask: the column of masks, of the same types; None for no masks. See `decode.Mask`.
      max_images: the most images of a record, where the image column holds lists of them: the
        column is `Ragged` then, with "image_length" in a batch, and further images are left out.
        None for a column of single ones.
      label: the column that becomes "label"; None for none.
      features: names of further columns, or {name: new name}; None for all numbers.
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.
      nulls: what a record has that lacks its number in a column of single ones: "error"; "nan" for
        NaN in floats; "count" for 0, with a column "<name>_count" that is 0 there and else 1.
      max_length: the length of columns of lists, by column; or a number for all those whose lists
        differ in length. Shorter lists are padded, longer ones cut, and "<name>_length" is how
        many numbers are there; in `features` how many there were.
      memory: bytes of decompressed images to keep.

    Raises:
      SourceError: pyarrow is missing, a file is missing or damaged, a column is not there, of
        another type or without a number, the files have different columns, or there are no records.

    Example:
      >>> Parquet("train-*.parquet", image="image", label="label")  # doctest: +SKIP
      Parquet(50000 images in 1 files, ['label'])
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        image: str = "image",
        mask: str | None = None,
        max_images: int | None = None,
        label: str | None = "label",
        features: Sequence[str] | Mapping[str, str] | None = None,
        boxes_of: str = "stored",
        nulls: str = "error",
        max_length: MaxLength = None,
        memory: int = 4 << 30,
    ):
        check_boxes_of(boxes_of)
        check_choice("nulls", nulls, NULLS)
        check_max_length(max_length)
        check_positive_int("memory", memory)
        if max_images is not None:
            check_positive_int("max_images", max_images)
        self._max_images = max_images
        self._files = list_files(paths)
        self._image = image
        self._mask = mask
        self._label = label
        self._wanted = features
        self._boxes_of = boxes_of
        self._nulls = nulls
        self._max_length = max_length
        self._memory = memory
        self._open_as_given()

    def _open(self) -> None:
        size = sum(file.size for file in self._files)
        local = all_local([file.path for file in self._files])
        self._mapped = local and size <= mappable_bytes()
        self._opened = [_arrow.open_arrow(file, self._mapped) for file in self._files]
        for name in self._image_columns:
            lists = name == self._image and self._max_images is not None
            _check_schemas(self._files, self._opened, name, lists)
        groups = []
        for number, opened in enumerate(self._opened):
            groups += [(number, group) for group in range(len(opened.rows))]
        self._groups = groups
        rows = np.concatenate([opened.rows for opened in self._opened])
        self._starts = np.concatenate([[0], np.cumsum(rows)])
        if not len(self):
            raise SourceError(f"no records in {len(self._files)} file(s).")

        self._names = _column_names(self._opened[0].schema, self._image, self._label, self._wanted)
        self._features = self._read_features()
        self._cache = _Cache(self._memory)
        self._failures: dict[int, str] = {}
        self._refused = set[int]()  # files that had changed when they were last asked for

    @property
    def _image_columns(self) -> list[str]:
        """The columns of images and of masks."""
        return [self._image] if self._mask is None else [self._image, self._mask]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        found = f"{len(self)} images in {len(self._files)} files, {sorted(self._features)}"
        return f"Parquet({found})"

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read the images, their masks, and their features; what cannot be read has length 0.

        Raises:
          IndexError: an index outside [0, len).
        """
        indices = checked_indices(indices, len(self))
        numbers = self._groups_of(indices)
        refused = self._changed_files(numbers)
        columns = take_features(self._features, self._ragged, indices)
        failed: dict[int, str] = {}
        places = indices - self._starts[numbers]
        encoded = [
            self._read_lists(places, numbers, refused, failed, self._max_images)
            if name == self._image and self._max_images is not None
            else self._read_images(name, places, numbers, refused, failed)
            for name in self._image_columns
        ]
        note_failures(self._failures, indices, failed)
        return join_columns(dict(zip(("image", "mask"), encoded)), columns)

    def _read_images(
        self,
        column: str,
        all_places: np.ndarray,
        numbers: np.ndarray,
        refused: dict[int, str],
        failed: dict[int, str],
    ) -> Encoded:
        """Return images of a column.

        Args:
          column: of images or of masks.
          all_places: int64[n], the records within their groups.
          numbers: int64[n], their groups.
          refused: the errors of files, by number.
          failed: receives row -> reason.
        """
        addresses = np.zeros(numbers.size, np.uint64)
        lengths = np.zeros(numbers.size, np.uint64)
        owners: list[Any] = []
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            places = all_places[rows]
            images = self._images(column, number, refused)
            if isinstance(images, str):
                failed.update(dict.fromkeys(rows.tolist(), images))
                continue
            addresses[rows] = images.addresses[places]
            lengths[rows] = images.lengths[places]
            owners.append(images.owner)
            owners.append(self._read_paths(images, rows, places, addresses, lengths, failed))
        return Encoded(addresses, lengths, owners)

    def _read_lists(
        self,
        all_places: np.ndarray,
        numbers: np.ndarray,
        refused: dict[int, str],
        failed: dict[int, str],
        most: int,
    ) -> Ragged:
        """Return the lists of images of records; what cannot be read is one of length 0."""
        parts = []
        for row, (place, number) in enumerate(zip(all_places.tolist(), numbers.tolist())):
            images = self._images(self._image, number, refused)
            if isinstance(images, str):
                failed[row] = images
                parts.append(Encoded.from_bytes([b""]))
                continue
            assert images.counts is not None
            start = int(images.counts[:place].sum())
            chosen = slice(start, start + int(images.counts[place]))
            parts.append(Encoded(images.addresses[chosen], images.lengths[chosen], images.owner))
        lengths = np.array([len(part.lengths) for part in parts], np.int64)
        nothing = Encoded.from_bytes([])
        return Ragged(Encoded.join([nothing, *parts]), lengths, most)

    def describe(self, index: int) -> dict[str, Any]:
        """Return the file, the row in it, its texts, and "error" if its image cannot be read."""
        number = int(self._groups_of(np.array(index)))
        file_number, group = self._groups[number]
        opened = self._opened[file_number]
        place = index - int(self._starts[number])
        found: dict[str, Any] = {"record": index} | self._in_file(index)
        failure = self._failures.get(index)
        if failure is not None:
            return found | {"error": failure}
        numbers = {*_arrow.numeric_names(opened.schema, self._image), *self._image_columns}
        texts = [name for name in opened.schema.names if name not in numbers]
        if texts:
            try:
                row = opened.read(group, texts).slice(place, 1)
                row.validate(full=True)
                found |= row.to_pylist()[0]
            except Exception as error:  # each format has its own
                found["error"] = reason(error)
        return found

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
        numbers = self._groups_of(indices)
        places = indices - self._starts[numbers]
        rows: list[dict[str, Any]] = [{} for _ in range(len(indices))]
        texts = [field.name for field in self._opened[0].schema if _arrow.is_text(field.type)]
        for name in names:
            if name not in texts:
                raise SourceError(
                    f"`names`: there is no column of texts called {name!r}; found were {texts}."
                )
            for number in np.unique(numbers).tolist():
                chosen = np.flatnonzero(numbers == number)
                found = self._text_column(name, number).take(places[chosen]).to_pylist()
                for row, text in zip(chosen.tolist(), found):
                    rows[row][name] = text
        return rows

    def _text_column(self, name: str, number: int) -> Any:
        """Return a column of texts in a group, an Arrow array."""
        known = self._cache.get((name, number))
        if known is not None:
            return known
        table = self._read_group(number, [name])
        if isinstance(table, str):
            raise SourceError(f"{table}.")
        mapped = self._opened[self._groups[number][0]].mapped
        column = table[name]
        self._cache.put((name, number), column, 0 if mapped else column.nbytes)
        return column

    def _groups_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the numbers of the groups of records, in the shape of `indices`."""
        return np.searchsorted(self._starts, indices, side="right") - 1

    def _in_file(self, index: int) -> dict[str, Any]:
        """Return the file of a record and the row in it."""
        number = int(self._groups_of(np.array(index)))
        file_number, group = self._groups[number]
        before = int(self._opened[file_number].rows[:group].sum())
        row = before + index - int(self._starts[number])
        return {"path": self._files[file_number].name, "row": row}

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return stamps of sizes and times of the records' files as they were opened."""
        numbers = self._groups_of(indices)
        files = np.array([file for file, _ in self._groups])
        return data_stamps(self._files)[files[numbers]]

    def fingerprint(self) -> str:
        """Return a hash of the files' names and sizes, of their rows, and of the features."""
        _, names = common_folder([file.identity for file in self._files])
        sizes = [file.size for file in self._files]
        known = json.dumps([names, sizes, *self._image_columns, self._starts.tolist()])
        digest = hashlib.blake2b(known.encode(), digest_size=8)
        hash_features(digest, self._features)
        return digest.hexdigest()

    def _read_features(self) -> dict[str, np.ndarray]:
        """Read the columns of all wanted numbers."""
        self._ragged: tuple[str, ...] = ()
        if not self._names:
            return {}
        pyarrow = _arrow.import_pyarrow("pyarrow")
        wanted = list(self._names)
        tables = []
        for number in range(len(self._groups)):
            table = self._read_group(number, wanted)
            if isinstance(table, str):
                raise SourceError(f"{table}.")
            tables.append(table)
        table = pyarrow.concat_tables(tables)
        renamed = {self._names[name]: table[name] for name in wanted}
        columns = _arrow.number_columns(renamed, self._max_length)
        found = fill_absent(columns, self._nulls, self._place)
        self._ragged = ragged_names(columns)
        check_lengths_used(self._max_length, found)
        self._check_found(found)
        return found

    def _place(self, index: int) -> str:
        found = self._in_file(index)
        return f"row {found['row']} of {found['path']!r}"

    def _check_found(self, found: Mapping[str, np.ndarray]) -> None:
        """Raise SourceError where a column that was asked for holds nothing but null."""
        asked = {*(self._wanted or ()), self._label} - {None}
        empty = sorted(name for name in asked if self._names[name] not in found)
        if empty:
            raise SourceError(
                f"no record has a number in {empty}: leave these columns out of `features`, and "
                "pass label=None for no label."
            )

    def _images(self, column: str, number: int, refused: dict[int, str]) -> "_arrow.Images | str":
        """Return the images of a column in a group, or the reason why it cannot be read."""
        file_number, _ = self._groups[number]
        if file_number in refused:
            return refused[file_number]
        images = self._cache.get((column, number))
        if images is not None:
            return images
        table = self._read_group(number, [column])
        if isinstance(table, str):
            return table
        images = _arrow.images_of(table[column], self._opened[file_number].mapped)
        self._cache.put((column, number), images, images.bytes_held)
        return images

    def _read_group(self, number: int, columns: list[str]) -> Any:
        """Return columns of a group, or the reason why it cannot be read.

        Arrow does not look at what it reads: damaged offsets would lead anywhere in memory.
        """
        file_number, group = self._groups[number]
        file = self._files[file_number]
        opened = self._opened[file_number]
        tries = _REMOTE_TRIES if is_remote(file.path) else 1
        said = ""
        for retry in range(tries):
            if retry:
                pause(retry - 1)
            try:
                table = opened.read(group, columns)
                table.validate(full=True)
                if len(table) != opened.rows[group]:
                    raise ValueError(f"it has {len(table)} rows instead of {opened.rows[group]}")
                return table
            except Exception as error:  # each format and each protocol has its own
                said = reason(error)
        return f"{file.name!r}, group {group}, cannot be read: {said}"

    def _changed_files(self, numbers: np.ndarray) -> dict[int, str]:
        """Return the errors of files that are not as they were, by number."""
        touched = {self._groups[number][0] for number in np.unique(numbers).tolist()}
        refused = {}
        for number in touched:
            file = self._files[number]
            try:
                if stat_file(file.path) != file:
                    raise changed(file)
                if number in self._refused:  # what is open may hold other bytes by now
                    self._opened[number] = _arrow.open_arrow(file, self._mapped)
                    self._cache = _Cache(self._memory)
                    self._refused.discard(number)
            except SourceError as error:
                refused[number] = str(error)
                self._refused.add(number)
        return refused

    def _read_paths(
        self,
        images: _arrow.Images,
        rows: np.ndarray,
        places: np.ndarray,
        addresses: np.ndarray,
        lengths: np.ndarray,
        failed: dict[int, str],
    ) -> Encoded | None:
        """Read the images that are files of their own into the rows that have no bytes."""
        if images.paths is None:
            return None
        empty = rows[lengths[rows] == 0]
        paths = [images.paths[int(place)].as_py() for place in places[lengths[rows] == 0]]
        if not any(paths):
            return None
        files = read_files([path or "" for path in paths])
        addresses[empty] = files.addresses
        lengths[empty] = files.lengths
        for row, path in zip(empty.tolist(), paths):
            if path and not lengths[row]:
                failed[row] = f"its file {path!r} {_unreadable(path)}"
        return files


def _unreadable(path: str) -> str:
    """Return why no bytes of a file were read."""
    try:
        with open(path, "rb"):
            return "is empty"
    except OSError as error:
        return f"cannot be read: {reason(error)}"


class _Cache:
    """Columns of groups in memory, the longest unused first; mapped ones stay for nothing."""

    def __init__(self, memory: int):
        self._memory = memory
        self._held = 0
        # By name and number of a group: what is held, and its bytes.
        self._columns: OrderedDict[tuple[str, int], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._warned = False

    def get(self, key: tuple[str, int]) -> Any:
        """Return the column of a name in a group, None where it is not held."""
        with self._lock:
            if key in self._columns:
                self._columns.move_to_end(key)
            return self._columns.get(key, (None, 0))[0]

    def put(self, key: tuple[str, int], column: Any, size: int) -> None:
        """Hold a column of so many bytes, and drop the longest unused ones where it is too much."""
        with self._lock:
            # Another thread may have read it at the same time.
            self._held += size - self._columns.pop(key, (None, 0))[1]
            self._columns[key] = column, size
            if self._held <= self._memory:
                return
            self._warn()
            while self._held > self._memory and len(self._columns) > 1:
                _, (_, dropped) = self._columns.popitem(last=False)
                self._held -= dropped

    def _warn(self) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"the decompressed images take more than `memory`={self._memory} bytes: row groups are "
            "decompressed again and again. Give more, or convert the files once to Arrow: "
            "pyarrow.feather.write_feather(table, path, compression='uncompressed').",
            stacklevel=4,
        )


def _check_schemas(
    files: list[DataFile], opened: list[_arrow.ArrowFile], image: str, lists: bool
) -> None:
    """Raise SourceError unless all files have the same columns, with one of images."""
    first = opened[0].schema
    if image not in first.names:
        images = [f"image={field.name!r}" for field in first if _arrow.is_image_type(field.type)]
        images += [
            f"image={field.name!r} and max_images=, the most of one record"
            for field in first
            if _arrow.is_image_list(field.type)
        ]
        hint = f": pass {images[0]}" if images else ""
        raise SourceError(f"{files[0].name!r} has no column {image!r} but {first.names}{hint}.")
    kind = first.field(image).type
    if lists and not _arrow.is_image_list(kind):
        raise SourceError(
            f"column {image!r} must hold lists of images, as `max_images` says, got {kind}: leave "
            "it out for single ones."
        )
    if not lists and _arrow.is_image_list(kind):
        raise SourceError(
            f"column {image!r} holds lists of images, {kind}: give `max_images`, the most of one "
            "record."
        )
    if not lists and not _arrow.is_image_type(kind):
        raise SourceError(f"column {image!r} must hold the bytes of images, got {kind}.")
    for file, other in zip(files, opened):
        if not other.schema.equals(first, check_metadata=False):
            raise SourceError(
                f"{file.name!r} has other columns than {files[0].name!r}: open them as two sources "
                "and join these by Concat."
            )


def _column_names(
    schema: Any,
    image: str,
    label: str | None,
    wanted: Sequence[str] | Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the names of the features, by column."""
    found = _arrow.numeric_names(schema, image)
    names = {name: name for name in found}
    if wanted is not None:
        unknown = sorted(set(wanted) - set(found))
        if unknown:
            what = f"no columns of numbers called {unknown}; found were {sorted(found)}"
            raise SourceError(f"`features`: there are {what}; {_items.TEXTS}.")
        chosen = _items.new_names(wanted)
        names = {name: chosen[name] for name in found if name in chosen}
    if label is not None:
        if label not in found:
            what = f"no column of numbers {label!r}; found were {sorted(found)}"
            raise SourceError(f"`label`: there is {what}; pass label=None for none.")
        names[label] = "label"
    _items.check_different(names)
    return names
