"""Images that come one after another from an iterable."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxaug._checks import check_choice
from jaxaug.decode import ColumnDecoder
from jaxaug.errors import SourceError
from jaxaug.iterators.sources import _items
from jaxaug.iterators.sources._boxes_of import BOXES_OF, annotated_on
from jaxaug.iterators.sources._items import Item, Key, Wanted

_MAX_TRIES = 100  # items looked at for the first good one
_MAX_REASONS = 1000  # bad records that are remembered


class FromIterable:
    """A stream of items: for data without random access.

    Items are dicts, such as those of a streaming Hugging Face data set, tuples with `image=0,
    label=1`, or pairs of encoded bytes and a dict of features, which are taken as they are. The
    first good item says which features there are; later ones that differ are bad records, as
    `RandomAccess` says.

    It is read from the start each epoch and in its own order, so it needs `shuffle=False`; a
    record's index is its ordinal, a resume skips what was delivered, and each of several processes
    reads all and keeps its rows.

    Args:
      items: a callable that gives a fresh iterator, or an object that can be iterated again and
        again.
      image: the key of the image, or its place in tuples; in all forms that `RandomAccess` takes.
      mask: the key or place of the mask, in all forms that `RandomAccess` takes; None for no masks.
        Pairs have its bytes among their features, under "mask".
      label: the key or place that becomes "label"; None for none.
      features: keys of further features, or {key: new name}; None for all numbers.
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.

    Raises:
      TypeError: neither callable nor iterable; an iterator, which can be run through only once, or
        a callable that gives the same iterator again.

    Example:
      >>> stream = FromIterable(lambda: ({"image": b"...", "label": i} for i in range(3)))
      >>> [int(record["label"]) for record in stream.iterate()]
      [0, 1, 2]
    """

    def __init__(
        self,
        items: Callable[[], Iterable] | Iterable,
        *,
        image: Key = "image",
        mask: Key | None = None,
        label: Key | None = "label",
        features: Wanted = None,
        boxes_of: str = "stored",
    ):
        check_choice("boxes_of", boxes_of, BOXES_OF)
        self._boxes_of = boxes_of
        if not callable(items) and not isinstance(items, Iterable):
            raise TypeError(
                f"`items` must be a callable or an iterable, got {type(items).__name__}."
            )

        once = isinstance(items, Iterator)
        if callable(items) and not once:
            first = items()
            once = isinstance(first, Iterator) and first is items()
        if once:
            raise TypeError(
                "`items` must give a fresh iterator each epoch, got an iterator, which ends after "
                "one: pass the function that makes it."
            )
        self._items = items
        self._image = image
        self._mask = mask
        self._label = label
        self._wanted = features
        # The columns' names, and blank values, by the items' keys; known from the first good item.
        self._names: dict[Any, str] | None = None
        self._blanks: dict[Any, np.ndarray] = {}
        self._reasons: dict[int, str] = {}

    def __repr__(self) -> str:
        name = getattr(self._items, "__name__", type(self._items).__name__)
        return f"FromIterable({name})"

    @property
    def decoders(self) -> dict[str, ColumnDecoder]:
        """How boxes and keypoints are decoded."""
        return annotated_on(self._boxes_of)

    def iterate(self) -> Iterator[dict[str, Any]]:
        """Yield all records once, in order; a bad one is empty and its features are zeros.

        Raises:
          SourceError: none of the first 100 items has an image and a label.
        """
        for ordinal, item in enumerate(self._fresh()):
            if _is_pair(item):
                yield {"image": item[0], **item[1]}
                continue
            names = self._names
            if names is None:
                names = self._learn()
            try:
                found = _items.read_item(item, self._image, self._blanks, ordinal, self._mask)
            except SourceError as error:
                self._remember(ordinal, str(error))
                found = Item({}, b"", self._blanks)
            record: dict[str, Any] = {"image": found.image}
            if self._mask is not None:
                record["mask"] = found.mask
            yield record | {name: found.numbers[key] for key, name in names.items()}

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's ordinal, and "error" if it was a bad one."""
        reason = self._reasons.get(index)
        return {"record": index} if reason is None else {"record": index, "error": reason}

    def fingerprint(self) -> str:
        """Return a hash of the first record, all that is known without running through it."""
        first = next(self.iterate(), {"image": b""})
        return hashlib.blake2b(bytes(first["image"]), digest_size=8).hexdigest()

    def _fresh(self) -> Iterable:
        return self._items() if callable(self._items) else self._items

    def _learn(self) -> dict[Any, str]:
        """Find the first good item, and with it the names and forms of the features."""
        wrong = None
        for ordinal, item in enumerate(self._fresh()):
            if ordinal == _MAX_TRIES:
                break
            try:
                first = _items.read_item(item, self._image, {}, ordinal, self._mask)
                _items.check_label(first, self._label, ordinal)
            except SourceError as error:
                wrong = wrong or error
                continue
            names = _items.choose_features(
                first, self._image, self._label, self._wanted, self._mask
            )
            self._blanks = _items.blank_numbers(first, names)
            self._names = names
            return names
        assert wrong is not None
        raise wrong

    def _remember(self, ordinal: int, reason: str) -> None:
        self._reasons[ordinal] = reason
        if len(self._reasons) > _MAX_REASONS:
            self._reasons.pop(next(iter(self._reasons)))


def _is_pair(item: Any) -> bool:
    """Return True for encoded bytes and a dict of features."""
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not isinstance(item[1], Mapping):
        return False
    return isinstance(item[0], (bytes, bytearray, memoryview))
