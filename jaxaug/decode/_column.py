"""What a Loader knows of a medium: a decoder of one column of a source.

A column holds one value for each record: encoded bytes, an array, or arrays of different lengths.
Its decoder is a frozen description with two halves. The host half, `decode_rows`, turns a batch of
values into arrays of static shapes; the device half, `place`, is a pure function of one record,
part of the Loader's one compiled call.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jax import Array

from jaxaug._typing import Device, Values
from jaxaug.decode._types import Span
from jaxaug.errors import DecodeError

WHOLE = np.iinfo(np.int64).max  # an end behind that of all values


def release_nothing(readers: Any) -> None:
    """Do nothing: the arrays keep their own memory."""


class Decoded(NamedTuple):
    """A column of n records as its decoder's host half returns it.

    Attributes:
      arrays: by name [n, ...], in the shapes and dtypes of `ColumnDecoder.forms`: of NumPy, or for
        those named in `on_device` a list of one `jax.Array` for each device, in their order. They
        may view memory of the decoder, so compute from them and never hand them out.
      valid: bool[n], False where the record could not be decoded.
      failures: row -> reason, for rows that were wanted and are not valid.
      warnings: row -> what is worth a warning of a row that is valid, without its name.
      counts: what this batch adds to `Loader.stats`, by the names of `ColumnDecoder.counted`.
      release: must be called once, with arrays whose computation reads `arrays`. The decoder waits
        for them before it writes to that memory again, so they must not be donated or deleted.
      wait_seconds: seconds that decoding waited for the device.
    """

    arrays: dict[str, Any]
    valid: np.ndarray
    failures: dict[int, str]
    warnings: Mapping[int, Warning] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})
    release: Callable[[Any], None] = release_nothing
    wait_seconds: float = 0.0


class Column(abc.ABC):
    """What a decoder may ask of its column before the first batch.

    Attributes:
      name: of the column.
      example: the values of one record.
    """

    name: str
    example: Values

    @abc.abstractmethod
    def first(self, count: int) -> Iterator[Values]:
        """Yield the values of the first `count` records, one at a time."""

    @abc.abstractmethod
    def sample(
        self, count: int, known: Callable[[Any], np.ndarray] | None = None
    ) -> Iterator[Values]:
        """Yield the values of about `count` records, some at a time, the same on every process.

        Args:
          count: of records.
          known: is given what an index has stored of some of them, and returns bool[n], True for
            those that need not be read.
        """

    @abc.abstractmethod
    def stored(self) -> "Sequence[Any] | None":
        """Return what an index has stored of all records, in parts; None if it does not."""

    def summary(self) -> Any:
        """Return what an index tells of all records at once, such as `Sides`; None for nothing."""
        return None

    def error(self, number: int, reason: str) -> DecodeError:
        """Return the error of a record that cannot be decoded, with its files where known."""
        return DecodeError(reason, index=number)


@dataclasses.dataclass(frozen=True)
class ColumnDecoder:
    """Turns a column of a source into entries of a sample.

    A decoder is a frozen dataclass. The Loader calls `fit` once, which settles what depends on the
    data, then `open`, which starts threads and takes memory where there are any, in another thread
    while it compiles its transform. Most decoders need neither, and have `forms`, `decode_rows` and
    maybe `place` alone.

    Attributes:
      on_device: names of `forms` whose arrays are on the devices already.
      reads_parts: `needed_bytes` may ask for less than all bytes of a value.
      in_flight: how many calls of `decode_rows` at once keep it busy; more would wait.
      counted: names that `Decoded.counts` has.
    """

    on_device: ClassVar[tuple[str, ...]] = ()
    reads_parts: ClassVar[bool] = False
    in_flight: ClassVar[int] = 2
    counted: ClassVar[tuple[str, ...]] = ()

    @property
    def draws(self) -> bool:
        """True if what `decode_rows` returns depends on `keys`: no record of it can be kept."""
        return False

    @property
    def reads(self) -> str | None:
        """The column whose bytes this one decodes once more; None for its own.

        So the sound of a video is an entry beside its frames, without a column in the source.
        """
        return None

    def follows(self) -> str | None:
        """Return the column that this one follows, as a mask does its image: its attribute `of`.

        That column is decoded first, and its arrays are given to `decode_rows` and `place`.
        """
        return getattr(self, "of", None)

    def fit(self, column: Column, siblings: Mapping[str, "ColumnDecoder"]) -> "ColumnDecoder":
        """Return a decoder for this column, whose `forms` are known.

        Args:
          column: the column.
          siblings: the decoders of other columns, already fitted; that of the one that this follows
            is among them.

        Raises:
          ValueError, TypeError: the column holds what cannot be decoded.
        """
        return self

    def within(self, bound: float) -> "ColumnDecoder":
        """Return the fitted decoder of a bucket, none of whose records is longer than `bound`.

        Its host half is that of this one: the Loader takes the first parts of the arrays that are
        not `on_device`, in the shapes of the new `forms`, and `place` gives the first parts of the
        entries. A decoder without lengths stays as it is. See `iterators.Buckets`.
        """
        return self

    def exceeds(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """Return bool[n], where a record of `decode_rows` is longer than the bound allows."""
        return np.zeros(len(next(iter(arrays.values()))), bool)

    def extents(self, arrays: Mapping[str, Any]) -> "Mapping[str, Any]":
        """Return how far arrays are used, int[n, k] of their first k sides; beyond they are zeros.

        `Loader(keep=)` keeps no more of them. Arrays that are not named are used in full.

        Args:
          arrays: those of `decode_rows` that are not named here, of NumPy or JAX.
        """
        return {}

    def expected_extents(self, column: Column) -> Mapping[str, np.ndarray]:
        """Return the `extents` of all records, or of a sample, before any is decoded."""
        return {}

    def made_by(self, platform: str) -> Mapping[str, str]:
        """Return the versions of the libraries that decode on the devices of a platform, by name.

        With other ones the arrays may differ: `Loader(keep="disk:DIR")` then decodes anew, as it
        does with another version of jaxaug.
        """
        return {}

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shape and dtype of each of one record's arrays, after `decode_rows`."""
        raise NotImplementedError(
            f"{type(self).__name__} must have `forms`, or what it is fitted to."
        )

    def open(self, devices: Sequence[Device], deterministic: bool) -> Any:
        """Return an object with `check_rows`, `decode_rows`, `close` and `in_flight` of this class.

        `Loader.decoders` shows it, or what it has as `running`.

        Args:
          devices: they share the rows of a batch equally, in order.
          deterministic: several processes decode the same records and need the same values.
        """
        return self

    def needed_bytes(self, stored: Any, span: "Span | None", keys: np.ndarray) -> np.ndarray:
        """Return the bytes [begin, end) of n values that `decode_rows` will need, int64[n, 2].

        Args:
          stored: what an index has stored of them.
          span: the part of each that the record is.
          keys: as `decode_rows` will be given them.
        """
        return np.tile([0, WHOLE], (len(keys), 1))

    def check_rows(self, values: Values, stored: Any) -> tuple[Any, dict[int, str]]:
        """Return what the bytes tell before they are decoded, and row -> reason for bad ones.

        It is cheap: rows that it refuses may be replaced before anything is decoded.

        Args:
          values: of n records.
          stored: what an index has stored of them; None for nothing.

        Returns:
          What `decode_rows` is given: None, a list of n, or a NamedTuple of columns [n, ...], so
          that rows may be replaced. And the bad ones.
        """
        return None, {}

    def decode_rows(
        self,
        values: Values,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the decoded values of n records; one call for each batch.

        It may be called from several threads at once. A record that cannot be decoded is a failure
        with a reason, not an exception.

        Args:
          values: of n records.
          checked: what `check_rows` told of them.
          siblings: the decoded columns that come before this one, by name.
          wanted: bool[n], False for rows that fill up a batch or have failed in another column;
            what they hold is not used.
          keys: uint64[n], what `draw_uniform` and `draw_integers` draw from: a hash of seed, epoch
            and record, and of the position where an epoch may hold a record twice. So a row draws
            the same for any batch size, any number of devices and hosts, and after any resume. All
            columns of a record have the same key.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have `decode_rows`, or what it opens."
        )

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        """Return the entries of a sample, on the device: the arrays, the first of them as `name`.

        Args:
          name: of the column.
          row: one record's arrays.
          siblings: those of the columns that come before this one, by name.
          valid: bool, False for a row without a record.
        """
        return {entry: row[key] for entry, key in zip(self.entries(name), self.forms())}

    def entries(self, name: str) -> tuple[str, ...]:
        """Return the names of the entries that `place` gives."""
        keys = list(self.forms())
        return (name, *(f"{name}_{key}" for key in keys[1:]))

    def blanks(self, name: str) -> Mapping[str, "int | None"]:
        """Return what integer entries hold in rows that are not valid; None leaves one as it is.

        Entries that are not named, and those of other dtypes, are 0.
        """
        return {}

    def original(self, values: Values) -> "np.ndarray | None":
        """Return the whole value of one record, to look at; None where there is none to show."""
        return None

    def notes(
        self, name: str, spec: Mapping[str, Any], ignores: Callable[[str, str], bool]
    ) -> list[str]:
        """Return warnings about the batches.

        Args:
          name: of the column.
          spec: the entries of a batch.
          ignores: ignores(output, entry) is True where a function of the user's returns an `output`
            that does not depend on `entry` of the sample.
        """
        return []

    def check_transform(self, name: str, transform: Any) -> None:
        """Raise ValueError where a transform contradicts this decoder."""

    def close(self) -> None:
        """End what `open` started."""


def decode_each(
    threads: Executor, decode: Callable[[int], None], wanted: np.ndarray
) -> dict[int, str]:
    """Decode the wanted rows, bool[n], by some threads; return row -> reason of those that failed.

    Args:
      threads: each decodes one row after the other.
      decode: of one row; raises a DecodeError where it fails.
    """

    def reason(row: int) -> str | None:
        try:
            decode(row)
        except DecodeError as error:
            return error.reason

    rows = np.flatnonzero(wanted).tolist()
    reasons = zip(rows, threads.map(reason, rows))
    return {row: found for row, found in reasons if found is not None}


def valid_rows(failures: Mapping[int, str], wanted: np.ndarray) -> np.ndarray:
    """Return bool[n], the wanted rows that have not failed."""
    valid = wanted.copy()
    valid[list(failures)] = False
    return valid


class RowError(ValueError):
    """A row's value that is wrong by itself, and no damage; the Loader names the record.

    Args:
      row: of the batch.
      reason: what follows the column's name; "{index}" is the record's number.
    """

    def __init__(self, row: int, reason: str):
        super().__init__(row, reason)
        self.row = row
        self.reason = reason
