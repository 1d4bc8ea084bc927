"""The protocols of sources: the methods that a Loader calls."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded, Headers


class Pixels(NamedTuple):
    """Images that need no decoding; a source may return them instead of `Encoded`.

    Attributes:
      array: uint8[n, H, W, 3], or gray uint8[n, H, W] or [n, H, W, 1], memory that nobody writes
        to.

    Example:
      >>> Pixels(np.zeros((2, 8, 9, 3), np.uint8)).array.shape
      (2, 8, 9, 3)
    """

    array: np.ndarray


class Masked(NamedTuple):
    """Encoded images with a mask each; a source may return them instead of `Encoded`.

    The Loader decodes a mask without a change of its numbers, to uint8, or to int32 if those of the
    first record have more than 8 bits, and turns and shrinks it with its image: "mask" [B, H, W].

    Attributes:
      images: n encoded images.
      masks: n encoded masks of one channel: gray, or numbers of a palette.

    Example:
      >>> from jaxaug.decode import Encoded
      >>> Masked(Encoded.from_bytes([b"jpeg"]), Encoded.from_bytes([b"png"])).masks.lengths.tolist()
      [3]
    """

    images: Encoded
    masks: Encoded


@runtime_checkable
class Source(Protocol):
    """Records with random access: encoded images and their features.

    A source is random access and stateless: `read` may be called from any thread, for any rows in
    any order, and answers the same each time. The Loader owns order, epochs and sharding.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> isinstance(InMemory([b"..."]), Source)
      True
    """

    def __len__(self) -> int:
        """Return the number of records."""
        ...

    def read(self, indices: np.ndarray) -> tuple[Encoded | Masked | Pixels, Features]:
        """Return the images of records `indices` (int64[n]), and a dict of arrays [n, ...].

        The dtypes, and the shapes after the first axis, are the same in every call. "label" is
        int[n].

        A record that cannot be read (deleted, no permission) has length 0, and
        `describe(index)["error"]` says why; the Loader's `on_error` then applies.
        """
        ...

    def describe(self, index: int) -> dict[str, Any]:
        """Return the place and the names of record `index`: "path", "record", strings."""
        ...

    def fingerprint(self) -> str:
        """Return a short hash of the data, which differs between data sets."""
        ...


@runtime_checkable
class Indexed(Source, Protocol):
    """A source that may know its images' headers without reading them.

    Example:
      >>> from jaxaug.iterators import InMemory, Subset
      >>> isinstance(Subset(InMemory([b"..."]), [0]), Indexed)
      True
    """

    def headers(self, indices: np.ndarray) -> Headers | None:
        """Return the header facts of images `indices` (int64[n]); None if they are not known."""
        ...


@runtime_checkable
class Stream(Protocol):
    """Records one after another, from the start each time, without random access.

    Example:
      >>> from jaxaug.iterators import FromIterable
      >>> isinstance(FromIterable(lambda: [b"..."]), Stream)
      True
    """

    def iterate(self) -> Iterator[tuple[bytes, Features]]:
        """Yield each record once: its encoded image, and a dict of scalars and arrays.

        Bytes under "mask" are the encoded mask of the image, see `Masked`.
        """
        ...

    def describe(self, index: int) -> dict[str, Any]:
        """Return the names of the record with ordinal `index`."""
        ...

    def fingerprint(self) -> str:
        """Return a short hash of the facts known about the stream."""
        ...
