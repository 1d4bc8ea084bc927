"""What the Loader asks of a source of records."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded, Headers


class Pixels(NamedTuple):
    """Images that need no decoding, as a source may hand them over in the place of `Encoded`.

    Attributes:
      array: uint8[n, H, W, 3], or gray uint8[n, H, W] or [n, H, W, 1], memory that nobody writes
        to.
    """

    array: np.ndarray


@runtime_checkable
class Source(Protocol):
    """Records by number: encoded images and their features.

    A source is random access and stateless: `read` may be called from any thread, for any rows in
    any order, and answers the same each time. The Loader owns order, epochs and sharding.
    """

    def __len__(self) -> int:
        """How many records there are."""
        ...

    def read(self, indices: np.ndarray) -> tuple[Encoded | Pixels, Features]:
        """Return records `indices` (int64[n]): their images, and a dict of arrays with first axis
        n.

        The dtypes and the shapes behind the first axis are the same in every call. "label" is
        int[n].

        A record that cannot be read (deleted, no permission) is handed over with length 0, and
        `describe(index)["error"]` says why; the Loader's `on_error` then decides.
        """
        ...

    def describe(self, index: int) -> dict[str, Any]:
        """Where record `index` lies and what names it: "path", "record", strings."""
        ...

    def fingerprint(self) -> str:
        """A short hash of what the source holds: another data set has another one."""
        ...


@runtime_checkable
class Indexed(Source, Protocol):
    """A source that may know its images' headers without reading them."""

    def headers(self, indices: np.ndarray) -> Headers | None:
        """The header facts of images `indices` (int64[n]); None if they are not known."""
        ...


@runtime_checkable
class Stream(Protocol):
    """Records one after another, from the start each time: for data that has no random access."""

    def iterate(self) -> Iterator[tuple[bytes, Features]]:
        """All records once: the encoded image, and a dict of scalars and arrays of fixed shapes."""
        ...

    def describe(self, index: int) -> dict[str, Any]:
        """What names the record with ordinal `index`."""
        ...

    def fingerprint(self) -> str:
        """A short hash of what is known of the stream."""
        ...
