"""The texts of records, by name."""

import abc
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from jaxaug.errors import SourceError
from jaxaug.iterators.sources._indices import checked_indices


class TextSource(Sized):
    """A source whose records have texts, which batches do not hold."""

    def texts(
        self, indices: np.ndarray, names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return texts of records `indices` by name: a list of one for each record.

        Args:
          indices: int64[n].
          names: as the class's own docstring says.
          missing: stands where a record has none; None for an error.

        Raises:
          IndexError: an index outside [0, len).
          TypeError: `names` is a single name, of which the letters would count.
          SourceError: a record has no such text, or cannot be read.
        """
        if isinstance(names, (str, bytes)):
            raise TypeError(
                f"`names` must be a list of names of texts, got {names!r}: write [{names!r}]."
            )
        indices = checked_indices(indices, len(self))
        texts: dict[str, list[str]] = {name: [] for name in names}
        for row, index in zip(self._rows_of_texts(indices, names), indices.tolist()):
            for name, column in texts.items():
                column.append(_text(row, name, index, missing))
        return texts

    @abc.abstractmethod
    def _rows_of_texts(
        self, indices: np.ndarray, names: Sequence[str]
    ) -> Iterable[Mapping[Any, Any]]:
        """Return what each record has by name, `names` at least.

        What is neither text nor bytes counts as none.
        """


def _text(row: Mapping[Any, Any], name: str, index: int, missing: str | None) -> str:
    value = row.get(name)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        value = missing
    if value is None:
        raise SourceError(
            f"record {index} has no text {name!r}; it has {sorted(row, key=str)}: pass "
            "missing='' for an empty one, or another name."
        )
    return value
