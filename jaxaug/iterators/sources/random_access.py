"""Data sets of other libraries with random access: Hugging Face, torch, Grain, lists."""

import contextlib
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._checks import check_positive_int, checked_indices
from jaxaug._typing import Values
from jaxaug.decode import Encoded, Ragged
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import blank_value, hash_features, join_columns
from jaxaug.iterators.sources._base import Annotated, TextSource, check_boxes_of
from jaxaug.iterators.sources._items import (
    Item,
    Key,
    Wanted,
    blank_numbers,
    check_label,
    choose_features,
    fields_of,
    is_empty_list,
    read_item,
)

_MAX_TRIES = 100  # items looked at for the first good one
_MAX_PARTS = 10  # of parts
# By the identity of a data set, as long as a source of it lives.
_locks: "weakref.WeakValueDictionary[int, threading.RLock]" = weakref.WeakValueDictionary()


class RandomAccess(Annotated, TextSource):
    """Any object with `__len__` and `__getitem__` (or `__getitems__`, which takes a list).

    Hugging Face data sets, torch Datasets, Grain sources and lists will do; their items are dicts,
    or tuples with `image=0, label=1`. Each record is a Python object, some tens of microseconds;
    `TFRecord`, `WebDataset` and `Parquet` are the fast way. Of a Hugging Face data set, ask for
    undecoded images (`cast_column("image", Image(decode=False))`): they are decoded in batches
    here, on the GPU where there is one. One thread at a time asks for items, as data sets with an
    open file need it, also where two RandomAccess have one object, or parts of it that have it as
    their `dataset`, as those of torch's `random_split` do.

    The first good item says which features there are, of which shape and dtype. An item that lacks
    one, holds None or text for it, or a number of another shape or kind, is a bad record like one
    without image: the Loader's `on_error` decides, and `describe` says why. A Pillow image is
    turned by its EXIF with what belongs to its pixels, boxes and masks, as an encoded one is.

    Args:
      source: the object. An image is the encoded bytes, also as uint8[n] or a string of TensorFlow,
        {"bytes": bytes}, {"path": path} of a local file, a Pillow image, or pixels uint8[h, w, 3]
        or [h, w]. Numbers and arrays of fixed shape, numpy's or those of other libraries, become
        features of the dtype they have, lists of numbers of one length where `features` names them,
        and those of any length where `max_length` does; all else stays in `describe`.
      image: the key of the image, or its place in tuples.
      mask: the key or place of the mask, in the forms of an image; a Pillow image of a palette
        keeps its indices, an array is integers [h, w], at most 65,535. None for no masks. See
        `decode.Mask`.
      label: the key or place that becomes "label", a number or an array; None for none.
      features: keys of further features, or {key: new name}; None for all numbers.
      max_length: the most rows of features whose number differs by record, by key, such as
        {"boxes": 100, "box_labels": 100}: arrays [n, ...] or lists, n from 0 on. Shorter ones are
        padded in batches, with zeros, or -1 in labels, longer ones cut, and "<name>_length" is how
        long. None for no such features.
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.
      parse: a function from what the object gives to such a dict or tuple, for records in formats
        of their own; None where they are such already.

    Raises:
      SourceError: no items, none of the first 100 has such an image and label, one of `features` is
        no number in the first that has, or two features would get one name; one of `max_length` is
        no list there, or an empty Python list in all of the first 100.

    Example:
      >>> source = RandomAccess([{"image": b"...", "label": 3, "name": "a cat"}])
      >>> source.read(np.array([0]))["label"].tolist(), source.describe(0)["name"]
      ([3], 'a cat')
      >>> RandomAccess([(b"...", 3)], image=0, label=1)
      RandomAccess(list: 1 images, ['label'])
    """

    def __init__(
        self,
        source: Any,
        *,
        image: Key = "image",
        mask: Key | None = None,
        label: Key | None = "label",
        features: Wanted = None,
        max_length: Mapping[Key, int] | None = None,
        boxes_of: str = "stored",
        parse: Callable[[Any], Any] | None = None,
    ):
        check_boxes_of(boxes_of)
        if max_length is not None and not isinstance(max_length, Mapping):
            raise TypeError(
                "`max_length` must be a dict of the most rows by key, such as {'boxes': 100}, got "
                f"{max_length!r}."
            )
        for key, length in (max_length or {}).items():
            check_positive_int(f"max_length[{key!r}]", length)
        if isinstance(source, (str, bytes, os.PathLike)):
            raise SourceError(
                f"`source` must be an object with items, got {source!r}: files are read by "
                "Parquet, ArrayRecord, TFRecord, WebDataset and ImageFolder."
            )
        if not len(source):
            raise SourceError("`source` must hold at least one item, got none.")
        self._source = source
        self._one_at_a_time = _lock_of(source)
        self._image = image
        self._mask = mask
        self._label = label
        self._boxes_of = boxes_of
        self._max_length = dict(max_length or {})
        self._parse = parse
        # By the items' keys. `_first_good` looks at no features yet: there are none.
        self._blanks: dict[Any, np.ndarray] = {}
        first = self._first_good()
        lists = self._max_length
        self._names = choose_features(first, image, label, features, mask, lists)
        self._blanks = blank_numbers(self._with_rows(first), self._names, lists)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_one_at_a_time"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._one_at_a_time = _lock_of(self._source)

    def __len__(self) -> int:
        return len(self._source)

    def __repr__(self) -> str:
        found = f"{len(self)} images, {sorted(self._names.values())}"
        return f"RandomAccess({type(self._source).__name__}: {found})"

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Return the items' images, and their numbers stacked; a bad record is empty and zero.

        Lists of `max_length` are `Ragged`.

        Raises:
          SourceError: `__getitems__` answers more or fewer items than it was asked for.
        """
        blank = Item({}, b"", self._blanks)
        items = [blank if isinstance(item, Exception) else item for item in self._items(indices)]
        columns: dict[str, Values] = {}
        for key, name in self._names.items():
            numbers = [item.numbers[key] for item in items]
            if key in self._max_length:
                lengths = np.array([len(each) for each in numbers], np.int64)
                values = np.concatenate([self._blanks[key], *numbers])
                fill = blank_value(name, values.dtype)
                columns[name] = Ragged(values, lengths, self._max_length[key], fill)
            else:
                columns[name] = np.stack(numbers) if numbers else self._blanks[key][None][:0]
        encoded = {"image": Encoded.from_bytes([item.image for item in items])}
        if self._mask is not None:
            encoded["mask"] = Encoded.from_bytes([item.mask for item in items])
        return join_columns(encoded, columns)

    def describe(self, index: int) -> dict[str, Any]:
        """Return what of the item is neither image nor number, and "error" if it is a bad one."""
        item = self._items(np.array([index]))[0]
        if isinstance(item, Exception):
            return {"record": index, "error": _reason(item)}
        image = item.fields[self._image]
        found: dict[str, Any] = {"record": index}
        if isinstance(image, Mapping) and image.get("path"):
            found["path"] = str(image["path"])
        for key, value in item.fields.items():
            if key not in (self._image, self._mask) and key not in self._names:
                is_text = isinstance(value, bytes)
                found[str(key)] = value.decode("utf-8", "replace") if is_text else value
        return found

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> Iterator[Mapping]:
        for number, item in zip(indices.tolist(), self._ask(indices.tolist())):
            fields = None if isinstance(item, Exception) else fields_of(item)
            if fields is None:
                why = _reason(item) if isinstance(item, Exception) else "it has no fields"
                raise SourceError(f"record {number} cannot be read: {why}")
            yield fields

    def fingerprint(self) -> str:
        """Return a hash of the number of items and of the first, the middle and the last one."""
        chosen = np.array([0, len(self) // 2, len(self) - 1])
        digest = hashlib.blake2b(str(len(self)).encode(), digest_size=8)
        for item in self._items(chosen):
            if isinstance(item, Exception):
                continue
            digest.update(item.image + item.mask)
            hash_features(digest, {name: item.numbers[key] for key, name in self._names.items()})
        return digest.hexdigest()

    def _first_good(self) -> Item:
        """Return the first item with an image and a label; raise what is wrong with item 0."""
        wrong = None
        for number in range(min(len(self), _MAX_TRIES)):
            item = self._items(np.array([number]))[0]
            if not isinstance(item, Exception):
                try:
                    check_label(item, self._label, number)
                    return item
                except SourceError as error:
                    item = error
            wrong = wrong or item
        assert wrong is not None
        known = isinstance(wrong, SourceError)
        what = _reason(wrong)
        raise SourceError(what if known else f"record 0 cannot be read: {what}") from wrong

    def _with_rows(self, first: Item) -> Item:
        """Return an item with lists of later ones in place of empty ones, whose form is unknown."""
        fields = dict(first.fields)
        empty = [key for key in self._max_length if is_empty_list(fields[key])]
        for number in range(min(len(self), _MAX_TRIES)):
            if not empty:
                break
            item = self._items(np.array([number]))[0]
            if not isinstance(item, Exception):
                fields |= {key: item.fields[key] for key in empty if key in item.fields}
                empty = [key for key in empty if is_empty_list(fields[key])]
        return first._replace(fields=fields)

    def _items(self, indices: np.ndarray) -> list[Item | Exception]:
        """Return each item, or why it cannot be had."""
        numbers = checked_indices(indices, len(self)).tolist()
        return [self._checked(item, number) for item, number in zip(self._ask(numbers), numbers)]

    def _ask(self, numbers: list[int]) -> list[Any]:
        """Return each item as `parse` gives it, or why it cannot be had.

        Data sets of other libraries expect one thread: many move the position of an open file.
        """
        with self._one_at_a_time:
            return [self._parsed(item) for item in self._take(numbers)]

    def _parsed(self, item: Any) -> Any:
        if self._parse is None or isinstance(item, Exception):
            return item
        try:
            return self._parse(item)
        except Exception as error:  # of the user's function
            return error

    def _take(self, numbers: list[int]) -> list[Any]:
        items: list[Any] | None = None
        together = getattr(self._source, "__getitems__", None)
        if together is not None and numbers:
            with contextlib.suppress(Exception):  # then one by one, which shows the culprit
                items = list(together(numbers))
            if items is not None and len(items) != len(numbers):
                kind = type(self._source).__name__
                raise SourceError(
                    f"`source`: {kind}.__getitems__ must answer {len(numbers)} items for "
                    f"{len(numbers)} numbers, got {len(items)}."
                )
        if items is None:
            items = [self._one(number) for number in numbers]
        return items

    def _one(self, number: int) -> Any:
        """Return an item, or the error that its source raises."""
        try:
            if hasattr(self._source, "__getitems__"):
                (item,) = self._source.__getitems__([number])
                return item
            return self._source[number]
        except Exception as error:
            return error

    def _checked(self, item: Any, number: int) -> Item | Exception:
        if isinstance(item, Exception):
            return item
        try:
            blanks, lists = self._blanks, self._max_length
            return read_item(item, self._image, blanks, number, self._mask, lists)
        except SourceError as error:
            return error


def _lock_of(source: Any) -> threading.RLock:
    """Return the lock of an object, which is that of what it is a part of.

    An item may ask another RandomAccess of it, such as for the image of a pair.
    """
    for _ in range(_MAX_PARTS):
        source = getattr(source, "dataset", source)
    return _locks.setdefault(id(source), threading.RLock())


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}"
