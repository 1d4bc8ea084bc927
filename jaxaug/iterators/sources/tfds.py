"""Random access data sets of other libraries: TFDS, Grain, Hugging Face."""

import contextlib
import hashlib
import importlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import Features, PathLike
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError


class RandomAccess:
    """Any object with `__len__` and `__getitem__` (or `__getitems__`, which takes a list) whose items are dicts.

    Grain sources, Hugging Face data sets with undecoded images (`cast_column("image", Image(decode=False))`) and
    lists will do. Each record is a Python object, some tens of microseconds; `TFRecord` and `WebDataset` are the
    fast way.

    Args:
      source: the object; its items hold the encoded image as bytes, or as {"bytes": bytes}. Numbers and arrays of
        fixed shape become features; all else stays in `describe`.
      image: the key of the image.
      label: the key that becomes "label"; None for none.

    Raises:
      SourceError: no items, or an item without such an image.

    Example:
      >>> source = RandomAccess([{"image": b"...", "label": 3, "name": "a cat"}])
      >>> source.read(np.array([0]))[1]["label"].tolist(), source.describe(0)["name"]
      ([3], 'a cat')
    """

    def __init__(self, source: Any, *, image: str = "image", label: str | None = "label"):
        if not len(source):
            raise SourceError("`source` must hold at least one item, got none.")
        self._source, self._image, self._label = source, image, label
        first = self._items(np.zeros(1, np.int64))[0]
        if isinstance(first, Exception):
            what = str(first) if isinstance(first, SourceError) else f"record 0 cannot be read: {first}"
            raise SourceError(what) from first
        fields = first.fields
        if label is not None and label not in fields:
            raise SourceError(f"`label`: items have no {label!r} but {sorted(fields)}; pass label=None for none.")
        self._numbers = {name: _column_name(name, label) for name in fields if _is_number(fields[name])}
        self._blank = _Item({name: np.zeros_like(fields[name]) for name in self._numbers}, b"")

    def __len__(self) -> int:
        return len(self._source)

    def __repr__(self) -> str:
        return f"RandomAccess({type(self._source).__name__}: {len(self)} images, {sorted(self._numbers.values())})"

    def read(self, indices: np.ndarray) -> tuple[Encoded, Features]:
        """The items' images, and their numbers stacked; an item that cannot be had is empty and zero."""
        items = [self._blank if isinstance(item, Exception) else item for item in self._items(indices)]
        columns = {
            new: np.stack([np.asarray(item.fields[name]) for item in items]) for name, new in self._numbers.items()
        }
        return Encoded.from_bytes([item.image for item in items]), {
            name: column.astype(np.int32) if name == "label" else column for name, column in columns.items()
        }

    def describe(self, index: int) -> dict[str, Any]:
        """The record's number, what of the item is neither image nor number, and "error" if it cannot be had."""
        item = self._items(np.array([index]))[0]
        if isinstance(item, Exception):
            return {"record": index, "error": f"{type(item).__name__}: {item}"}
        image = item.fields[self._image]
        found = {"record": index}
        if isinstance(image, Mapping) and image.get("path"):
            found["path"] = image["path"]
        return found | {
            name: _text(value)
            for name, value in item.fields.items()
            if name != self._image and name not in self._numbers
        }

    def fingerprint(self) -> str:
        """A hash of the number of items and of the first, the middle and the last image."""
        chosen = np.array([0, len(self) // 2, len(self) - 1])
        digest = hashlib.blake2b(str(len(self)).encode(), digest_size=8)
        for item in self._items(chosen):
            digest.update(b"" if isinstance(item, Exception) else item.image)
        return digest.hexdigest()

    def _items(self, indices: np.ndarray) -> "list[_Item | Exception]":
        """Each item, or why it cannot be had."""
        numbers = np.asarray(indices).tolist()
        if numbers and hasattr(self._source, "__getitems__"):
            with contextlib.suppress(Exception):  # then one by one, which shows the culprit
                items = self._source.__getitems__(numbers)
                return [_Item(item, _image_of(item, self._image, number)) for item, number in zip(items, numbers)]
        return [self._item(number) for number in numbers]

    def _item(self, number: int) -> "_Item | Exception":
        alone = getattr(self._source, "__getitems__", lambda numbers: [self._source[numbers[0]]])
        try:
            (item,) = alone([number])
            return _Item(item, _image_of(item, self._image, number))
        except Exception as error:
            return error


class _Item(NamedTuple):
    """An item, and the bytes of its image."""

    fields: Mapping[str, Any]
    image: bytes


class TFDS(RandomAccess):
    """A tensorflow_datasets split, images undecoded; no tensorflow needed.

    The data set must be stored as ArrayRecord or Parquet, which `tfds.data_source` reads; TFDS's default of
    TFRecord is read by `TFRecord(".../*.tfrecord*", image="image", label="label")` at full speed instead.

    Args:
      name: a name such as "imagenette/160px-v2", or the folder of a prepared data set (with dataset_info.json).
      split: a TFDS split, such as "train" or "train[:90%]".
      data_dir: where named data sets lie; TFDS's default when None. They are not downloaded or prepared.
      image, label: the features' names.

    Attributes:
      classes: the label's class names, or None.

    Raises:
      SourceError: tensorflow_datasets is missing, or the data set is not there.

    Example:
      >>> TFDS("imagenette/160px-v2", split="train")  # doctest: +SKIP
      TFDS('imagenette/160px-v2', 'train': 9469 images, ['label'])
    """

    def __init__(
        self,
        name: PathLike,
        *,
        split: str,
        data_dir: PathLike | None = None,
        image: str = "image",
        label: str | None = "label",
    ):
        builder = _builder(os.fspath(name), data_dir)
        undecoded = {image: importlib.import_module("tensorflow_datasets").decode.SkipDecoding()}
        try:
            source = builder.as_data_source(split, decoders=undecoded)
        except Exception as error:  # TFDS raises its own of many kinds; each says what is missing
            raise SourceError(f"{os.fspath(name)!r}, split {split!r}, cannot be opened: {error}") from error
        self._what = f"{builder.info.full_name}:{split}"
        features = builder.info.features
        names = getattr(features[label], "names", None) if label in features else None
        self.classes: tuple[str, ...] | None = tuple(names) if names else None
        super().__init__(source, image=image, label=label)

    def __repr__(self) -> str:
        return f"TFDS({self._what!r}: {len(self)} images, {sorted(self._numbers.values())})"

    def fingerprint(self) -> str:
        """A hash of the data set's full name, its split, and of three images."""
        return hashlib.blake2b((self._what + super().fingerprint()).encode(), digest_size=8).hexdigest()


def _builder(name: str, data_dir: PathLike | None) -> Any:
    try:
        tfds = importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise SourceError('TFDS needs tensorflow_datasets: pip install "jaxaug[tfds]".') from error
    try:
        if os.path.exists(os.path.join(name, "dataset_info.json")):
            return tfds.builder_from_directory(name)
        builder = tfds.builder(name, data_dir=data_dir)
    except Exception as error:
        raise SourceError(f"{name!r} is no data set that TFDS knows: {error}") from error
    if not os.path.isdir(builder.data_dir):
        raise SourceError(
            f"{name!r} is not prepared: there is no {str(builder.data_dir)!r}; give the `data_dir` where it lies, or "
            'prepare it by TFDS\'s `download_and_prepare(file_format="array_record")`.'
        )
    return builder


def _image_of(item: Any, name: str, index: int) -> bytes:
    image = item.get(name) if isinstance(item, Mapping) else None
    if isinstance(image, Mapping):
        image = image.get("bytes")
    if not isinstance(image, (bytes, bytearray, memoryview)):
        keys = sorted(item) if isinstance(item, Mapping) else type(item).__name__
        raise SourceError(
            f"record {index} must hold the encoded image as bytes under {name!r}, got {type(image).__name__}; "
            f"it has {keys}. Ask the data set for undecoded images."
        )
    return bytes(image)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.ndarray, np.generic)) and np.asarray(value).dtype.kind in "biuf"


def _column_name(name: str, label: str | None) -> str:
    return "label" if name == label else name


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
