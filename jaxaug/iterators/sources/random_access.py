"""Data sets of other libraries with random access: Grain, Hugging Face, torch, lists."""

import contextlib
import hashlib
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources._files import local_path, reason


class RandomAccess:
    """Any object with `__len__` and `__getitem__` (or `__getitems__`, which takes a list) of dicts.

    Grain sources, Hugging Face data sets with undecoded images
    (`cast_column("image", Image(decode=False))`, embedded or as files) and lists will do. Each
    record is a Python object, some tens of microseconds; `TFRecord` and `WebDataset` are the fast
    way.

    The first good item says which features there are, of which shape and dtype. An item that lacks
    one, holds None or text for it, or a number of another shape or kind, is a bad record like one
    without image: the Loader's `on_error` decides, and `describe` says why.

    Args:
      source: the object; its items hold the encoded image as bytes, as {"bytes": bytes}, or as
        {"bytes": None, "path": path} of a local file. Numbers and arrays of fixed shape, numpy's or
        those of other libraries, become features of the dtype they have; all else stays in
        `describe`.
      image: the key of the image.
      label: the key that becomes "label", a number or an array; None for none.
      features: names of further features; None for all numbers.

    Raises:
      SourceError: no items, none of the first 100 has such an image and label, or one of `features`
        is no number in the first that has.

    Example:
      >>> source = RandomAccess([{"image": b"...", "label": 3, "name": "a cat"}])
      >>> source.read(np.array([0]))[1]["label"].tolist(), source.describe(0)["name"]
      ([3], 'a cat')
    """

    def __init__(
        self,
        source: Any,
        *,
        image: str = "image",
        label: str | None = "label",
        features: Sequence[str] | None = None,
    ):
        if not len(source):
            raise SourceError("`source` must hold at least one item, got none.")
        self._source = source
        self._image = image
        self._label = label
        # By the items' names for them; `_first_good` looks at no features yet, there are none.
        self._features: dict[str, np.ndarray] = {}
        first = self._first_good()
        numbers = {name: _number(first.fields[name]) for name in first.fields if name != image}
        found = {name: np.zeros_like(value) for name, value in numbers.items() if value is not None}
        self._features = _chosen(found, label, features)

    def __len__(self) -> int:
        return len(self._source)

    def __repr__(self) -> str:
        return f"RandomAccess({type(self._source).__name__}: {len(self)} images, {self._names()})"

    def read(self, indices: np.ndarray) -> tuple[Encoded, Features]:
        """Return the items' images, and their numbers stacked; a bad record is empty and zero.

        Raises:
          SourceError: `__getitems__` answers more or fewer items than it was asked for.
        """
        blank = _Item({}, b"", self._features)
        items = [blank if isinstance(item, Exception) else item for item in self._items(indices)]
        columns = {}
        for name in self._features:
            column = np.stack([item.numbers[name] for item in items])
            columns[_column_name(name, self._label)] = column
        return Encoded.from_bytes([item.image for item in items]), columns

    def describe(self, index: int) -> dict[str, Any]:
        """Return what of the item is neither image nor number, and "error" if it is a bad one."""
        item = self._items(np.array([index]))[0]
        if isinstance(item, Exception):
            return {"record": index, "error": _reason(item)}
        image = item.fields[self._image]
        found = {"record": index}
        if isinstance(image, Mapping) and image.get("path"):
            found["path"] = image["path"]
        return found | {
            name: _text(value)
            for name, value in item.fields.items()
            if name != self._image and name not in self._features
        }

    def fingerprint(self) -> str:
        """Return a hash of the number of items and of the first, the middle and the last image."""
        chosen = np.array([0, len(self) // 2, len(self) - 1])
        digest = hashlib.blake2b(str(len(self)).encode(), digest_size=8)
        for item in self._items(chosen):
            digest.update(b"" if isinstance(item, Exception) else item.image)
        return digest.hexdigest()

    def _names(self) -> list[str]:
        return sorted(_column_name(name, self._label) for name in self._features)

    def _first_good(self) -> "_Item":
        """Return the first item with an image and a label; raise what is wrong with item 0."""
        wrong = None
        for number in range(min(len(self), _MAX_TRIES)):
            item = self._items(np.array([number]))[0]
            if not isinstance(item, Exception):
                try:
                    self._check_label(item, number)
                    return item
                except SourceError as error:
                    item = error
            wrong = wrong or item
        known = isinstance(wrong, SourceError)
        raise SourceError(str(wrong) if known else f"record 0 cannot be read: {wrong}") from wrong

    def _check_label(self, item: "_Item", number: int) -> None:
        if self._label is None:
            return
        if self._label not in item.fields:
            what = f"items have no {self._label!r} but {sorted(item.fields)}"
            raise SourceError(f"`label`: {what}; pass label=None for none.")
        label = item.fields[self._label]
        if _number(label) is None:
            raise SourceError(
                f"`label`: record {number} has {reprlib.repr(label)} under {self._label!r}, "
                "which is no number: store the class's number, or pass label=None for none."
            )

    def _items(self, indices: np.ndarray) -> "list[_Item | Exception]":
        """Return each item, or why it cannot be had."""
        numbers = np.asarray(indices).tolist()
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
        return [self._checked(item, number) for item, number in zip(items, numbers)]

    def _one(self, number: int) -> Any:
        """Return an item, or the error that its source raises."""
        try:
            if hasattr(self._source, "__getitems__"):
                (item,) = self._source.__getitems__([number])
                return item
            return self._source[number]
        except Exception as error:
            return error

    def _checked(self, item: Any, number: int) -> "_Item | Exception":
        if isinstance(item, Exception):
            return item
        try:
            image = _image_of(item, self._image, number)
            numbers = {}
            for name, like in self._features.items():
                numbers[name] = _fit(name, item.get(name), like, number)
        except SourceError as error:
            return error
        return _Item(item, image, numbers)


def _chosen(
    found: dict[str, np.ndarray],
    label: str | None,
    features: Sequence[str] | None,
) -> dict[str, np.ndarray]:
    """Return the label and the features that are wanted."""
    if features is None:
        return found
    unknown = sorted(set(features) - set(found))
    if unknown:
        what = f"no numbers called {unknown}; found were {sorted(found)}"
        raise SourceError(f"`features`: the first good record has {what}.")
    return {name: value for name, value in found.items() if name == label or name in features}


_MAX_TRIES = 100  # items looked at for the first good one


class _Item(NamedTuple):
    """An item, the bytes of its image, and its features by the item's names."""

    fields: Mapping[str, Any]
    image: bytes
    numbers: Mapping[str, np.ndarray]


def _image_of(item: Any, name: str, index: int) -> bytes:
    image = item.get(name) if isinstance(item, Mapping) else None
    encoded = _encoded(image)
    if encoded is not None:
        return bytes(encoded)
    path = image.get("path") if isinstance(image, Mapping) else None
    if isinstance(path, str):
        return _file(path, index)
    keys = sorted(item) if isinstance(item, Mapping) else type(item).__name__
    hint = "Ask the data set for undecoded images."
    if isinstance(item, Mapping) and name not in item:
        hint = next((f"Pass image={key!r}." for key in item if _encoded(item[key])), hint)
    raise SourceError(
        f"record {index} must hold the encoded image as bytes under {name!r}, "
        f"got {type(image).__name__}; it has {keys}. {hint}"
    )


def _file(path: str, index: int) -> bytes:
    try:
        with open(local_path(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise SourceError(f"record {index}: {path!r} cannot be read: {reason(error)}.") from error


def _encoded(image: Any) -> Any:
    """Return the bytes of what may be an image; None if it is none."""
    image = image.get("bytes") if isinstance(image, Mapping) else image
    return image if isinstance(image, (bytes, bytearray, memoryview)) else None


def _number(value: Any) -> np.ndarray | None:
    """Return a number or an array of numbers, of any library, as numpy's; None for all else."""
    foreign = hasattr(value, "__array__") and hasattr(value, "dtype")  # torch, jax, tensorflow
    if not foreign and not isinstance(value, (int, float)):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # on another device, ragged, with a gradient
        return None
    return array if array.dtype.kind in "biuf" else None


_FITTING = {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}  # kinds by the kind of the column


def _fit(name: str, value: Any, like: np.ndarray, index: int) -> np.ndarray:
    """Return a feature of one record as the first record has it; ints must keep their value."""
    number = _number(value)
    wanted = f"record {index} must have {like.dtype}{list(like.shape)} under {name!r}"
    if number is None:
        raise SourceError(f"{wanted}, got {reprlib.repr(value)}.")
    if number.shape != like.shape:
        hint = "leave it out by naming the `features` that you need"
        raise SourceError(f"{wanted}, got {number.dtype}{list(number.shape)}: {hint}.")
    if number.dtype.kind not in _FITTING[like.dtype.kind]:
        raise SourceError(f"{wanted}, got {number.dtype}{list(number.shape)}.")
    fitted = number.astype(like.dtype, copy=False)
    if like.dtype.kind in "iu" and (fitted != number).any():
        raise SourceError(f"{wanted}, got {number.tolist()}.")
    return fitted


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, SourceError) else f"{type(error).__name__}: {error}"


def _column_name(name: str, label: str | None) -> str:
    return "label" if name == label else name


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
