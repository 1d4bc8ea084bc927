"""The numbers of records that a source is asked for."""

import numpy as np


def checked_indices(indices: np.ndarray, count: int) -> np.ndarray:
    """Return numbers of records as int64[n].

    Raises:
      IndexError: one outside of [0, count): NumPy would count a negative one from the end.
    """
    indices = np.asarray(indices, np.int64)
    if indices.size and not (0 <= indices.min() and indices.max() < count):
        found = f"{indices.min()} to {indices.max()}"
        raise IndexError(f"`indices` must lie in [0, {count}), got {found}.")
    return indices
