"""Images that come one after another from an iterable."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxaug._checks import check_count, check_positive_int, is_int
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import join_columns
from jaxaug.iterators.samplers.sampler import check_seed
from jaxaug.iterators.sources._base import Annotated, check_boxes_of
from jaxaug.iterators.sources._items import (
    Item,
    Key,
    Wanted,
    blank_numbers,
    check_label,
    choose_features,
    read_item,
)
from jaxaug.iterators.sources._parts import SKIPPED, Parts
from jaxaug.iterators.sources._workers import items_by_workers

_MAX_TRIES = 100  # items looked at for the first good one
_MAX_REASONS = 1000  # bad records that are remembered
_ALL = np.ones(1, bool)  # positions are wanted


class FromIterable(Annotated):
    """A stream of items: for data without random access.

    Items are dicts, such as those of a streaming Hugging Face data set, tuples with `image=0,
    label=1`, or pairs of encoded bytes and a dict of features, which are taken as they are. The
    first good item says which features there are; later ones that differ are bad records, as
    `RandomAccess` says.

    It has an order of its own, so it needs `Loader(shuffle=False)`; a record's index is its place
    there. An iterable with a method `set_epoch`, as Hugging Face's with a `shuffle`, is told the
    epoch before it is read, so that its order differs by epoch and a resume finds it again. Other
    shuffles must be by a seed, the same in each run and process: records come twice or never behind
    a resume if they are not. One iterable is read from the start each epoch, also by a resume,
    which skips what was delivered, and by each of several processes, which keeps its rows. Data in
    several parts, of known `lengths`, are read by `lanes` parts at a time, in turn: a resume skips
    parts that were delivered, and a process opens those alone that its rows are in. With as many
    lanes as the batch has rows, or a multiple, each part is read by one process.

    Args:
      items: a callable that gives a fresh iterator, or an object that can be iterated again and
        again. With `lengths`, a sequence of them, one a part. They may write into the arrays of an
        item once the next one is asked for, unless a `buffer` holds items.
      lengths: the number of items of each part; None for one part whose length is unknown.
      lanes: parts that are read at a time.
      buffer: items that each is drawn from, for a shuffle that differs by epoch: of the items of a
        part, after a shuffle of the parts; 0 for the order as it is.
      seed: of the shuffle.
      workers: processes that run the iterators, for those that take long in Python; at most one a
        lane. Parts must be picklable, and the script guarded by `if __name__ == "__main__":`. They
        end with this process.
      image: the key of the image, or its place in tuples; in all forms that `RandomAccess` takes.
      mask: the key or place of the mask, in all forms that `RandomAccess` takes; None for no masks.
        Pairs have its bytes among their features, under "mask".
      column: the name of the column that the image becomes, such as "audio" or "video".
      label: the key or place that becomes "label"; None for none.
      features: keys of further features, or {key: new name}; None for all numbers.
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.

    Raises:
      TypeError: neither callable nor iterable; an iterator, which can be run through only once, or
        a callable that gives the same iterator again.
      ValueError: not one length for each part, or a count that is none.

    Example:
      >>> stream = FromIterable(lambda: ({"image": b"...", "label": i} for i in range(3)))
      >>> [int(record["label"]) for record in stream.iterate()]
      [0, 1, 2]
    """

    def __init__(
        self,
        items: Callable[[], Iterable] | Iterable,
        *,
        lengths: Sequence[int] | None = None,
        lanes: int = 16,
        buffer: int = 0,
        seed: int = 0,
        workers: int = 0,
        image: Key = "image",
        mask: Key | None = None,
        column: str = "image",
        label: Key | None = "label",
        features: Wanted = None,
        boxes_of: str = "stored",
    ):
        check_boxes_of(boxes_of)
        self._boxes_of = boxes_of
        check_positive_int("lanes", lanes)
        check_count("buffer", buffer)
        check_count("workers", workers)
        check_seed(seed)
        self._items = items
        given: list[Any] = [items] if lengths is None else _parts_of(items, lengths)
        for part in given:
            _check_fresh(part)
        opened: list[Any] = [each if callable(each) else partial(_itself, each) for each in given]
        self._parts = Parts(opened, lengths, lanes, buffer, seed)
        self._workers = min(workers, lanes, len(opened))
        self._image = image
        self._mask = mask
        self._column = column
        self._label = label
        self._wanted = features
        # The columns' names, and blank values, by the items' keys; known from the first good item.
        self._names: dict[Any, str] | None = None
        self._blanks: dict[Any, np.ndarray] = {}
        self._reasons: dict[int, str] = {}

    def __repr__(self) -> str:
        name = getattr(self._items, "__name__", type(self._items).__name__)
        return f"FromIterable({name})"

    def iterate(self) -> Iterator[dict[str, Any]]:
        """Yield all records of the first epoch, in order.

        Raises:
          SourceError: none of the first 100 items has an image and a label.
        """
        for ordinal, item in enumerate(self._parts.items(0, 0, _ALL)):
            yield self._record(ordinal, item)

    def iterate_from(
        self, epoch: int, start: int, wanted: np.ndarray
    ) -> Iterator[dict[str, Any] | None]:
        """Yield the records of an epoch from a position on; a bad one is empty, its features zeros.

        Args:
          epoch: of the order.
          start: the first position.
          wanted: bool[k], whether position start + i is, by i % k; None comes for others.
        """
        if self._workers:
            items = items_by_workers(self._parts, epoch, start, wanted, self._workers)
        else:
            items = self._parts.items(epoch, start, wanted)
        for ordinal, item in enumerate(items, start):
            yield None if item is SKIPPED else self._record(ordinal, item)

    def _record(self, ordinal: int, item: Any) -> dict[str, Any]:
        if _is_pair(item):
            return join_columns({self._column: item[0]}, item[1])
        names = self._names
        if names is None:
            names = self._learn()
        try:
            found = read_item(item, self._image, self._blanks, ordinal, self._mask)
        except SourceError as error:
            self._remember(ordinal, str(error))
            found = Item({}, b"", self._blanks)
        encoded: dict[str, Any] = {self._column: found.image}
        if self._mask is not None:
            encoded["mask"] = found.mask
        return join_columns(encoded, {name: found.numbers[key] for key, name in names.items()})

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's ordinal, and "error" if it was a bad one."""
        reason = self._reasons.get(index)
        return {"record": index} if reason is None else {"record": index, "error": reason}

    def fingerprint(self) -> str:
        """Return a hash of the first record, all that is known without running through it."""
        first = next(self.iterate(), {self._column: b""})
        parts = self._parts
        order = () if parts.lengths is None else (tuple(parts.lengths), parts.lanes)
        order += (parts.buffer, parts.seed) if parts.buffer else ()
        known = bytes(first[self._column]) + (repr(order).encode() if order else b"")
        return hashlib.blake2b(known, digest_size=8).hexdigest()

    def _learn(self) -> dict[Any, str]:
        """Find the first good item, and with it the names and forms of the features."""
        wrong = None
        for ordinal, item in enumerate(self._parts.items(0, 0, _ALL)):
            if ordinal == _MAX_TRIES:
                break
            try:
                first = read_item(item, self._image, {}, ordinal, self._mask)
                check_label(first, self._label, ordinal)
            except SourceError as error:
                wrong = wrong or error
                continue
            names = choose_features(first, self._image, self._label, self._wanted, self._mask)
            self._blanks = blank_numbers(first, names)
            self._names = names
            return names
        assert wrong is not None
        raise wrong

    def _remember(self, ordinal: int, reason: str) -> None:
        self._reasons[ordinal] = reason
        if len(self._reasons) > _MAX_REASONS:
            self._reasons.pop(next(iter(self._reasons)))


def _itself(items: Iterable) -> Iterable:
    return items


def _parts_of(items: Any, lengths: Sequence[int]) -> list[Any]:
    """Return the parts of a stream, one for each length.

    Raises:
      ValueError: there are not as many, or one is no length.
    """
    parts = [] if callable(items) else list(items)
    if not parts or len(parts) != len(lengths) or any(not is_int(n) or n < 0 for n in lengths):
        raise ValueError(
            "`lengths` must have the number of items, an int of at least 0, of each part that "
            f"`items` lists, got {len(lengths)} lengths for {len(parts)} parts."
        )
    return parts


def _check_fresh(part: Any) -> None:
    """Raise TypeError unless a part can be run through again and again."""
    if not callable(part) and not isinstance(part, Iterable):
        raise TypeError(f"`items` must be a callable or an iterable, got {type(part).__name__}.")
    once = isinstance(part, Iterator)
    if callable(part) and not once:
        first = part()
        once = isinstance(first, Iterator) and first is part()
    if once:
        raise TypeError(
            "`items` must give a fresh iterator each epoch, got an iterator, which ends after "
            "one: pass the function that makes it."
        )


def _is_pair(item: Any) -> bool:
    """Return True for encoded bytes and a dict of features."""
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not isinstance(item[1], Mapping):
        return False
    return isinstance(item[0], (bytes, bytearray, memoryview))
