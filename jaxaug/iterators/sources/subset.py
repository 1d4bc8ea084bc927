"""Part of a source, as a source."""

import hashlib
import re
from fractions import Fraction
from typing import Any

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded, Headers
from jaxaug.errors import SourceError
from jaxaug.iterators._protocol import Indexed, Source


class Subset:
    """Chosen records of a source, numbered anew from 0.

    Args:
      source: any random access source.
      records: a `range`, which costs no memory, or int64[n]; each in [0, len(source)).

    Raises:
      SourceError: no records.
      ValueError: a record outside the source.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> source = Subset(InMemory([b"a", b"b", b"c"]), np.array([2, 0]))
      >>> encoded, _ = source.read(np.array([0]))
      >>> len(source), bytes(encoded.view(0))
      (2, b'c')
    """

    def __init__(self, source: Source, records: "range | np.ndarray"):
        self.source = source
        self._records = records if isinstance(records, range) else np.asarray(records, np.int64)
        if not len(self._records):
            raise SourceError("`records` must hold at least one record, got none.")
        low, high = int(min(records[0], records[-1])), int(max(records[0], records[-1]))
        if isinstance(self._records, np.ndarray):
            low, high = int(self._records.min()), int(self._records.max())
        if low < 0 or high >= len(source):
            raise ValueError(f"`records` must lie in [0, {len(source)}), got {low} to {high}.")

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"Subset({self.source!r}, {len(self)} records)"

    @property
    def features(self) -> Features:
        """The chosen rows of the source's columns.

        Raises:
          AttributeError: the source has no columns.
        """
        columns: Features | None = getattr(self.source, "features", None)
        if columns is None:
            raise AttributeError(f"{self.source!r} knows no features without reading its records: use `read`.")
        chosen = self._original(np.arange(len(self)))
        return {name: column[chosen] for name, column in columns.items()}

    def read(self, indices: np.ndarray) -> tuple[Encoded, Features]:
        """The source's records behind `indices`."""
        return self.source.read(self._original(np.asarray(indices, np.int64)))

    def headers(self, indices: np.ndarray) -> Headers | None:
        """What the source's index knows of images; None if it has none."""
        original = self._original(np.asarray(indices, np.int64))
        return self.source.headers(original) if isinstance(self.source, Indexed) else None

    def describe(self, index: int) -> dict[str, Any]:
        """What the source says of the record."""
        return self.source.describe(int(self._original(np.array([index]))[0]))

    def fingerprint(self) -> str:
        """A hash of the source's fingerprint and of which records there are."""
        chosen = repr(self._records).encode() if isinstance(self._records, range) else self._records.tobytes()
        return hashlib.blake2b(self.source.fingerprint().encode() + chosen, digest_size=8).hexdigest()

    def _original(self, indices: np.ndarray) -> np.ndarray:
        if indices.size and not (0 <= indices.min() and indices.max() < len(self)):
            raise IndexError(f"`indices` must lie in [0, {len(self)}), got {indices.min()} to {indices.max()}.")
        if isinstance(self._records, range):
            return self._records.start + indices * self._records.step
        return self._records[indices]


def split(source: Source, part: str) -> Subset:
    """A contiguous part of a source: "[:90%]" and "[90%:]", "[100:2000]", "[-10%:]".

    A bound in per cent is that share of the records, rounded half up to a whole one; so parts that share a bound
    leave no record out and share none. Negative bounds count from the end.

    Args:
      source: any random access source.
      part: "[start:stop]", either may be missing; a number of records, or per cent with a "%".

    Raises:
      ValueError: `part` is not of that form.
      SourceError: it holds no records.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> source = InMemory([b"a", b"b", b"c"])
      >>> len(split(source, "[:50%]")), len(split(source, "[50%:]"))
      (2, 1)
    """
    match = re.fullmatch(rf"\s*\[\s*({_BOUND})?\s*:\s*({_BOUND})?\s*\]\s*", part)
    if match is None:
        raise ValueError(f'`part` must be "[start:stop]" with numbers or per cent, such as "[:90%]", got {part!r}.')
    start, stop = (_bound(text, len(source)) for text in match.groups())
    chosen = range(len(source))[start:stop]
    if not chosen:
        raise SourceError(f"`part` {part!r} of {len(source)} records holds none.")
    return Subset(source, chosen)


_BOUND = r"-?\d+(?:\.\d+)?%|-?\d+"


def _bound(text: str | None, length: int) -> int | None:
    if text is None or not text.endswith("%"):
        return None if text is None else int(text)
    share = Fraction(text[:-1]) / 100
    records = int(abs(share) * length + Fraction(1, 2))
    return records if share >= 0 else max(0, length - records)
