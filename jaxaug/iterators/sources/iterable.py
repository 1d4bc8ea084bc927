"""Images that come one after another from an iterable."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jaxaug._typing import Features


class FromIterable:
    """A stream of (encoded image, features): for data without random access.

    It is read from the start each epoch and in its own order, so it needs `shuffle=False`; a
    record's index is its ordinal, a resume skips what was delivered, and each of several processes
    reads all and keeps its rows.

    Args:
      items: a callable that gives a fresh iterator, or an object that can be iterated again and
        again, of (bytes, dict of scalars and arrays of fixed shapes).

    Raises:
      TypeError: neither callable nor iterable; an iterator, which can be run through only once, or
        a callable that gives the same iterator again.

    Example:
      >>> stream = FromIterable(lambda: ((b"image %d" % i, {"label": i}) for i in range(3)))
      >>> [features["label"] for _, features in stream.iterate()]
      [0, 1, 2]
    """

    def __init__(self, items: Callable[[], Iterable] | Iterable):
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

    def __repr__(self) -> str:
        name = getattr(self._items, "__name__", type(self._items).__name__)
        return f"FromIterable({name})"

    def iterate(self) -> Iterator[tuple[bytes, Features]]:
        """Yield all records once, in order.

        Raises:
          TypeError: an item is no pair of bytes and a dict.
        """
        items = self._items() if callable(self._items) else self._items
        for ordinal, item in enumerate(items):
            pair = isinstance(item, (tuple, list)) and len(item) == 2
            if not pair or not isinstance(item[1], Mapping):
                raise TypeError(
                    "`items` must be pairs (bytes, dict of features), such as "
                    f"(image, {{'label': 3}}), got {_form(item)} as item {ordinal}."
                )
            yield item[0], item[1]

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's ordinal."""
        return {"record": index}

    def fingerprint(self) -> str:
        """Return a hash of the first record: all that is known of a stream without running through
        it.
        """
        first = next(self.iterate(), (b"", {}))
        return hashlib.blake2b(bytes(first[0]), digest_size=8).hexdigest()


def _form(item: Any) -> str:
    if isinstance(item, Mapping):
        return f"a dict with {sorted(map(str, item))}"
    if isinstance(item, (tuple, list)):
        return f"({', '.join(type(part).__name__ for part in item)})"
    return type(item).__name__
