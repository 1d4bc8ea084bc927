"""Images that are in memory already, or that come from an iterable."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators._protocol import Pixels

_HASHED_IMAGES = 256  # rows of a pixel array that enter its fingerprint: an array may be huge


class InMemory:
    """Images held in memory, encoded or as pixels, with columns of features.

    Args:
      images: the bytes of each image; or pixels uint8[N, H, W, 3], or gray uint8[N, H, W] or [N, H,
        W, 1], an array or an `np.memmap`, which must not change. Pixels go to the devices as they
        are, through no Decoder; gray ones are repeated to three channels there.
      features: arrays with one row an image, such as {"label": int[N]}.

    Raises:
      SourceError: no images.
      TypeError: `images` is neither a sequence of bytes nor an array of pixels.
      ValueError: an array of another dtype or shape; a feature that has not one row an image.

    Example:
      >>> source = InMemory([b"first", b"second"], {"label": np.array([7, 8])})
      >>> encoded, features = source.read(np.array([1]))
      >>> bytes(encoded.view(0)), features["label"].tolist()
      (b'second', [8])
      >>> InMemory(np.zeros((10, 32, 32, 3), np.uint8))
      InMemory(10 images of 32 x 32 pixels, features [])
    """

    def __init__(
        self, images: "Sequence[bytes] | np.ndarray", features: Mapping[str, Any] | None = None
    ):
        if isinstance(images, np.ndarray) and images.dtype.kind not in "OS":
            _check_pixels(images)
        elif not isinstance(images, (Sequence, np.ndarray)) or isinstance(images, (bytes, str)):
            raise TypeError(
                "`images` must be a sequence of bytes or an array uint8[N, H, W, 3], got "
                f"{type(images).__name__}: make a list of it, or use FromIterable."
            )

        if not len(images):
            raise SourceError("`images` must hold at least one image, got none.")

        self._images: Encoded | np.ndarray
        if isinstance(images, np.ndarray) and images.dtype == np.uint8:
            self._images = images
        else:
            self._images = Encoded.from_bytes(list(images))

        self._count = len(images)
        self._features = {
            name: _feature(name, column, self._count) for name, column in (features or {}).items()
        }

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        sides = ""
        if isinstance(self._images, np.ndarray):
            sides = f" of {self._images.shape[1]} x {self._images.shape[2]} pixels"
        return f"InMemory({len(self)} images{sides}, features {sorted(self._features)})"

    @property
    def features(self) -> Features:
        """All columns by name."""
        return dict(self._features)

    def read(self, indices: np.ndarray) -> tuple[Encoded | Pixels, Features]:
        """Return rows of the images and of the columns; no encoded bytes are copied."""
        columns = {name: column[indices] for name, column in self._features.items()}
        if isinstance(self._images, np.ndarray):
            return Pixels(self._images[indices]), columns

        return self._images.take(indices), columns

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's number."""
        return {"record": index}

    def fingerprint(self) -> str:
        """Return a hash of the features and of the images' lengths, or of up to 256 of the pixel
        images.
        """
        digest = hashlib.blake2b(digest_size=8)
        if isinstance(self._images, np.ndarray):
            chosen = np.linspace(0, self._count - 1, min(self._count, _HASHED_IMAGES)).astype(
                np.int64
            )
            digest.update(repr(self._images.shape).encode() + self._images[chosen].tobytes())
        else:
            digest.update(self._images.lengths.tobytes())

        for name, column in sorted(self._features.items()):
            digest.update(name.encode() + column.tobytes())
        return digest.hexdigest()


def _check_pixels(images: np.ndarray) -> None:
    gray = images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 1)
    if images.dtype != np.uint8 or not (gray or (images.ndim == 4 and images.shape[3] == 3)):
        raise ValueError(
            "`images` must be uint8[N, H, W, 3], or gray uint8[N, H, W] or [N, H, W, 1], got "
            f"{images.dtype}{list(images.shape)}: convert the array, channels last and 0 to 255."
        )
    if len(images) and not images.size:
        raise ValueError(f"`images` must have pixels, got shape {list(images.shape)}.")


def _feature(name: str, column: Any, count: int) -> np.ndarray:
    try:
        column = np.asarray(column)
    except ValueError as error:  # numpy on rows of different lengths
        raise ValueError(
            f"`features[{name!r}]` must have rows of one shape: {error}. Pad them to the longest."
        ) from error
    if column.ndim == 0 or len(column) != count:
        raise ValueError(
            f"`features[{name!r}]` must have one row an image, {count} in all, got shape {column.shape}."
        )
    return column


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
                "`items` must give a fresh iterator each epoch, got an iterator, which ends after one: "
                "pass the function that makes it."
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
        for ordinal, item in enumerate(self._items() if callable(self._items) else self._items):
            good = (
                isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[1], Mapping)
            )
            if not good:
                raise TypeError(
                    "`items` must be pairs (bytes, dict of features), such as (image, {'label': 3}), got "
                    f"{_form(item)} as item {ordinal}."
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
