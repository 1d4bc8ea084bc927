"""The texts of records, by name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug.errors import SourceError


def columns_of_texts(
    rows: Iterable[Mapping[Any, Any]],
    indices: np.ndarray,
    names: Sequence[str],
    missing: str | None,
) -> dict[str, list[str]]:
    """Return the texts of records by name.

    Args:
      rows: what each of the records has by name; what is neither text nor bytes is none.
      indices: int64[n], the records, for messages.
      names: of the texts.
      missing: stands where a record has none; None for an error.

    Raises:
      SourceError: a record has none, and `missing` is None.
    """
    check_text_names(names)
    texts: dict[str, list[str]] = {name: [] for name in names}
    for row, index in zip(rows, indices.tolist()):
        for name, column in texts.items():
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
            column.append(value)
    return texts


def check_text_names(names: Sequence[str]) -> None:
    """Raise TypeError for a single name, of which the letters would count."""
    if isinstance(names, (str, bytes)):
        raise TypeError(
            f"`names` must be a list of names of texts, got {names!r}: write [{names!r}]."
        )
