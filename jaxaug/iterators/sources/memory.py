"""Images that are in memory already, or that come from an iterable."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError


class InMemory:
    """Encoded images held in memory, with columns of features.

    Args:
      images: the bytes of each image.
      features: arrays with one row an image, such as {"label": int[n]}.

    Raises:
      SourceError: no images.
      ValueError: a feature has not one row an image.

    Example:
      >>> source = InMemory([b"first", b"second"], {"label": np.array([7, 8])})
      >>> encoded, features = source.read(np.array([1]))
      >>> bytes(encoded.view(0)), features["label"].tolist()
      (b'second', [8])
    """

    def __init__(self, images: Sequence[bytes], features: Mapping[str, Any] | None = None):
        if not len(images):
            raise SourceError("`images` must hold at least one image, got none.")
        self._encoded = Encoded.from_bytes(images)
        self._features = {name: np.asarray(column) for name, column in (features or {}).items()}
        for name, column in self._features.items():
            if column.ndim == 0 or len(column) != len(images):
                raise ValueError(
                    f"`features[{name!r}]` must have one row an image, {len(images)} in all, got shape {column.shape}."
                )

    def __len__(self) -> int:
        return len(self._encoded.lengths)

    def __repr__(self) -> str:
        return f"InMemory({len(self)} images, features {sorted(self._features)})"

    @property
    def features(self) -> Features:
        """All columns by name."""
        return dict(self._features)

    def read(self, indices: np.ndarray) -> tuple[Encoded, Features]:
        """Rows of the columns; no bytes are copied."""
        addresses, lengths, owner = self._encoded
        return Encoded(addresses[indices], lengths[indices], owner), {
            name: column[indices] for name, column in self._features.items()
        }

    def describe(self, index: int) -> dict[str, Any]:
        """The record's number."""
        return {"record": index}

    def fingerprint(self) -> str:
        """A hash of the images' lengths and of the features."""
        digest = hashlib.blake2b(self._encoded.lengths.tobytes(), digest_size=8)
        for name, column in sorted(self._features.items()):
            digest.update(name.encode() + column.tobytes())
        return digest.hexdigest()


class FromIterable:
    """A stream of (encoded image, features): for data without random access.

    It is read from the start each epoch and in its own order, so it needs `shuffle=False`; a record's index is its
    ordinal, a resume skips what was delivered, and each of several processes reads all and keeps its rows.

    Args:
      items: a callable that gives a fresh iterator, or an object that can be iterated again and again, of
        (bytes, dict of scalars and arrays of fixed shapes).

    Raises:
      TypeError: neither callable nor iterable, or an iterator, which can be run through only once.

    Example:
      >>> stream = FromIterable(lambda: ((b"image %d" % i, {"label": i}) for i in range(3)))
      >>> [features["label"] for _, features in stream.iterate()]
      [0, 1, 2]
    """

    def __init__(self, items: Callable[[], Iterable] | Iterable):
        if isinstance(items, Iterator):
            raise TypeError(
                "`items` must give a fresh iterator each epoch, got an iterator, which ends after one: "
                "pass the function that makes it."
            )
        if not callable(items) and not isinstance(items, Iterable):
            raise TypeError(f"`items` must be a callable or an iterable, got {type(items).__name__}.")
        self._items = items

    def iterate(self) -> Iterator[tuple[bytes, Features]]:
        """All records once, in order."""
        return iter(self._items() if callable(self._items) else self._items)

    def describe(self, index: int) -> dict[str, Any]:
        """The record's ordinal."""
        return {"record": index}

    def fingerprint(self) -> str:
        """A hash of the first record: all that is known of a stream without running through it."""
        first = next(self.iterate(), (b"", {}))
        return hashlib.blake2b(bytes(first[0]), digest_size=8).hexdigest()
