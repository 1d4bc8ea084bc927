"""A part of a source, itself a source."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._checks import checked_indices
from jaxaug._typing import Features, Values
from jaxaug.decode import ColumnDecoder
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.protocol import Far, Indexed, Partial, Parts, Source
from jaxaug.iterators.sources.stamps import stamps_of


class Subset:
    """Chosen records of a source, renumbered from 0; `records` has their numbers in the source.

    `features`, `labels`, `classes` and `path` are those of the source, where it has them.

    Args:
      source: any random access source.
      records: bool[len(source)], a mask; or the numbers of the records, each in [0, len(source)),
        as a `range`, which costs no memory, or as ints [n].

    Raises:
      SourceError: no records.
      ValueError: a record outside the source, a mask of another length or of ints, or neither ints
        nor bools.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> labels = np.array([2, 7, 2])
      >>> source = Subset(InMemory([b"a", b"b", b"c"], {"label": labels}), labels == 2)
      >>> encoded = source.read(np.array([1]))["image"]
      >>> len(source), bytes(encoded.view(0))
      (2, b'c')
    """

    def __init__(self, source: Source, records: "range | np.ndarray | Sequence[int]"):
        self.source = source
        self._records = _record_numbers(records, len(source))

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"Subset({self.source!r}, {len(self)} records)"

    @property
    def records(self) -> np.ndarray:
        """The numbers of the records in the source, int64[n]: `records[i]` is record i of this."""
        return np.asarray(self._original(np.arange(len(self))), np.int64)

    @property
    def features(self) -> Features:
        """The chosen rows of the source's columns.

        Raises:
          AttributeError: the source has no columns.
        """
        hint = ": it knows no features without reading its records, use `read`"
        columns: Features = self._of_source("features", hint)
        chosen = self.records
        return {name: column[chosen] for name, column in columns.items()}

    @property
    def labels(self) -> np.ndarray | None:
        """The chosen rows of the source's labels; None if it is without labels.

        Raises:
          AttributeError: the source has no such attribute.
        """
        labels: np.ndarray | None = self._of_source("labels")
        return None if labels is None else np.asarray(labels)[self.records]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """All classes of the source, those without a chosen record too: labels stay what they are.

        Raises:
          AttributeError: the source has no such attribute.
        """
        return self._of_source("classes")

    def path(self, index: int) -> str:
        """Return the path of record `index`.

        Raises:
          AttributeError: the source has no such method.
        """
        return self._of_source("path")(self._one(index))

    def read(self, indices: np.ndarray) -> Mapping[str, Values]:
        """Read the source's records behind `indices`."""
        return self.source.read(self._original(indices))

    def read_parts(self, indices: np.ndarray, parts: Mapping[str, Parts]) -> Mapping[str, Values]:
        """Read parts of the source's records behind `indices`, see `Partial`."""
        original = self._original(indices)
        if isinstance(self.source, Partial):
            return self.source.read_parts(original, parts)
        return self.source.read(original)

    def texts(
        self, indices: np.ndarray, names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return the source's texts behind `indices`, see `Loader.texts`.

        Raises:
          AttributeError: the source has no such method.
        """
        return self._of_source("texts")(self._original(indices), names, missing)

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return the source's stamps of the records behind `indices`, see `Stamped`."""
        return stamps_of(self.source, self._original(indices))

    @property
    def decoders(self) -> Mapping[str, ColumnDecoder]:
        """How the source declares that its columns are decoded."""
        return getattr(self.source, "decoders", {})

    @property
    def records_ahead(self) -> int:
        """What the source says."""
        return self.source.records_ahead if isinstance(self.source, Far) else 0

    def hold(self, indices: np.ndarray, keeper: object) -> None:
        """Have the source hold the records behind `indices`, where it can; see `Far`."""
        hold = getattr(self.source, "hold", None)
        if hold is not None:
            hold(self._original(indices), keeper)

    @property
    def traffic(self) -> dict[str, int]:
        """What the source says."""
        return getattr(self.source, "traffic", {})

    def headers(self, indices: np.ndarray) -> Mapping[str, Any]:
        """Return what the source's index knows of its columns."""
        original = self._original(indices)
        return self.source.headers(original) if isinstance(self.source, Indexed) else {}

    def describe(self, index: int) -> dict[str, Any]:
        """Return the source's description of the record."""
        return self.source.describe(self._one(index))

    def fingerprint(self) -> str:
        """Return a hash of the source's fingerprint and of which records there are."""
        records = self._records
        chosen = repr(records).encode() if isinstance(records, range) else records.tobytes()
        return hashlib.blake2b(
            self.source.fingerprint().encode() + chosen, digest_size=8
        ).hexdigest()

    def _of_source(self, name: str, hint: str = "") -> Any:
        try:
            return getattr(self.source, name)
        except AttributeError as error:
            raise AttributeError(f"{self.source!r} has no `{name}`{hint}.") from error

    def _one(self, index: int) -> int:
        return int(self._original(np.array([index]))[0])

    def _original(self, indices: np.ndarray) -> np.ndarray:
        indices = checked_indices(indices, len(self))
        if isinstance(self._records, range):
            return self._records.start + indices * self._records.step
        return self._records[indices]


def _record_numbers(records: Any, count: int) -> "range | np.ndarray":
    """Return the records as a range or int64[n], each in [0, count)."""
    numbers = records if isinstance(records, range) else _int_vector(records, count)
    if not len(numbers):
        raise SourceError("`records` must hold at least one record, got none.")
    if isinstance(numbers, range):
        low, high = sorted((numbers[0], numbers[-1]))
    else:
        low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= count:
        raise ValueError(f"`records` must lie in [0, {count}), got {low} to {high}.")
    return numbers if isinstance(numbers, range) else numbers.astype(np.int64)


def _int_vector(records: Any, count: int) -> np.ndarray:
    """Return the records as ints [n]; a mask becomes the numbers of its True entries."""
    wanted = f"`records` must be ints [n] in [0, {count}), or a mask of {count} bools"
    try:
        array = np.asarray(records)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{wanted}, got {type(records).__name__}: {error}.") from error
    if array.shape == (0,):
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        got = f"{array.dtype}{list(array.shape)}" if array.ndim else repr(records)
        raise ValueError(f"{wanted}, got {got}.")
    if array.dtype.kind != "b":
        # A mask of zeros and ones: as numbers it would be two records alone.
        if array.size == count > 2 and (array.min(), array.max()) == (0, 1):
            raise ValueError(
                f"`records` holds 0 and 1 alone, {count} times, one for each record of the source: "
                "a mask must be bools, write `records != 0`."
            )
        return array
    if array.size != count:
        raise ValueError(f"{wanted}, got {array.size} bools.")
    return np.flatnonzero(array)
