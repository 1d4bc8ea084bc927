"""The protocols of sources: the methods that a Loader calls."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxaug._typing import Values
from jaxaug.decode import Span

Parts = Callable[[Any, Span | None], np.ndarray]  # of one column, see `Partial`


@runtime_checkable
class Source(Protocol):
    """Records with random access: columns of encoded bytes, arrays, and arrays of varying lengths.

    A source may have an attribute `decoders`, a dict of column -> `decode.ColumnDecoder`, which
    says how its columns are decoded unless the Loader's `decode` says otherwise. Without either the
    names of the columns decide, see `decode.default_decoder`.

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

    def read(self, indices: np.ndarray) -> Mapping[str, Values]:
        """Return the columns of records `indices` (int64[n]), by name.

        A column is an array [n, ...] of NumPy, `Encoded` bytes, or `Ragged` arrays. Names, dtypes,
        and the shapes after the first axis, are the same in every call. "image" is the image,
        "label" int[n].

        A record that cannot be read (deleted, no permission) has bytes of length 0, and
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
    """A source that may know the headers of encoded columns without reading them.

    Example:
      >>> from jaxaug.iterators import InMemory, Subset
      >>> isinstance(Subset(InMemory([b"..."]), [0]), Indexed)
      True
    """

    def headers(self, indices: np.ndarray) -> Mapping[str, Any]:
        """Return by column what is known of records `indices` (int64[n]), such as `Headers`."""
        ...


@runtime_checkable
class Summarized(Source, Protocol):
    """A source that knows something of all records of an encoded column at once.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> isinstance(InMemory([b"..."]), Summarized)
      False
    """

    def summary(self) -> Mapping[str, Any]:
        """Return by column what is known of all records, such as `Sides` of images."""
        ...


@runtime_checkable
class Partial(Indexed, Protocol):
    """A source that can read parts of encoded values, such as the clips of a video.

    Example:
      >>> from jaxaug.iterators import InMemory, Subset
      >>> isinstance(Subset(InMemory([b"..."]), [0]), Partial)
      True
    """

    def read_parts(self, indices: np.ndarray, parts: Mapping[str, Parts]) -> Mapping[str, Values]:
        """Return records as `read` does; of the columns in `parts` maybe not more than needed.

        Args:
          indices: int64[n].
          parts: by column, a function of what `headers` tells of it and of its `Encoded.span`,
            which gives the bytes [begin, end) of each value, int64[n, 2]. What is cut has `begins`.
        """
        ...


@runtime_checkable
class Far(Source, Protocol):
    """A source whose records take long to come, and come faster many at a time.

    Attributes:
      records_ahead: how many a Loader may ask for in one `read`, ahead of their batches; 0 for no
        more than a batch.

    It may have `hold(indices, keeper)`, called before their `read` for records that lie beside each
    other and of which each will be read once, so that they come in one request: they wait as long
    as `keeper` lives, an object of the reader that asks; and `traffic`, a dict of
    counts that `Loader.stats` shows: "wanted_bytes" of records,
    "requests", their "bytes", how many of them "failed", or were given up as "slow" ones, and the
    "hits" and "misses" of a cache, in blocks.

    Example:
      >>> from jaxaug.iterators import InMemory, Subset
      >>> Subset(InMemory([b"..."]), [0]).records_ahead
      0
    """

    @property
    def records_ahead(self) -> int:
        """The records of one read."""
        ...


@runtime_checkable
class Stamped(Source, Protocol):
    """A source that knows whether a record is still what it was.

    `Loader(keep="disk:DIR")` decodes a record again where its stamp is another one than that of the
    run which has kept it.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> first, second = (InMemory([b"..."] * 2 + [last]) for last in (b"old", b"new"))
      >>> rows = np.arange(3)
      >>> (first.stamps(rows) == second.stamps(rows)).tolist()
      [True, True, False]
    """

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return a number for each of the records `indices` (int64[n]), uint32[n].

        It is a hash of what tells that a record has changed, and takes less time than to read and
        decode it: of size and time of a file, of all bytes of what is in memory.
        """
        ...


@runtime_checkable
class Stream(Protocol):
    """Records one after another, from the start each time, without random access.

    Example:
      >>> from jaxaug.iterators import FromIterable
      >>> isinstance(FromIterable(lambda: [b"..."]), Stream)
      True
    """

    def iterate(self) -> Iterator[Mapping[str, Any]]:
        """Yield each record once: a dict of encoded bytes, scalars and arrays by column."""
        ...

    def describe(self, index: int) -> dict[str, Any]:
        """Return the names of the record with ordinal `index`."""
        ...

    def fingerprint(self) -> str:
        """Return a short hash of the facts known about the stream."""
        ...


@runtime_checkable
class Parted(Stream, Protocol):
    """A stream that can leave out what another process reads, and whose order differs by epoch.

    Example:
      >>> from jaxaug.iterators import FromIterable
      >>> isinstance(FromIterable(lambda: [b"..."]), Parted)
      True
    """

    def iterate_from(
        self, epoch: int, start: int, wanted: np.ndarray
    ) -> Iterator[Mapping[str, Any] | None]:
        """Yield the records of an epoch from position `start` on.

        None may come where `wanted` (bool[k]) is False at i % k, for position start + i.
        """
        ...
