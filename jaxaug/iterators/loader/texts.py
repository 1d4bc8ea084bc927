"""The texts of a batch, from its source."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxaug.iterators.loader.reader import PADDING
from jaxaug.sharding._assemble import local_array


def texts_of_batch(
    source: Any, batch: Mapping[str, Any], names: Sequence[str], missing: str | None
) -> dict[str, list[str]]:
    """Return the texts of the rows of a batch that this process holds, see `Loader.texts`."""
    read = getattr(source, "texts", None)
    if read is None:
        raise TypeError(
            f"`source` must have a method `texts(indices, names, missing)`, got "
            f"{type(source).__name__}, which has none: take them from `source.describe(index)`."
        )
    indices = record_numbers(batch["index"])
    known = indices != PADDING
    found = read(indices[known], names, missing)
    places = np.where(known, np.cumsum(known) - 1, -1).tolist()
    texts = {}
    for name, column in found.items():
        texts[name] = [column[place] if place >= 0 else "" for place in places]
    return texts


def record_numbers(index: Any) -> np.ndarray:
    """Return the entry "index" of a batch as int64[n], -1 for padding."""
    numbers = local_array(index) if isinstance(index, jax.Array) else np.asarray(index)
    if numbers.ndim == 1:
        return numbers.astype(np.int64)
    high, low = numbers.astype(np.uint64).T
    return (high << np.uint64(32) | low).astype(np.int64)
