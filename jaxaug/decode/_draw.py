"""What a decoder may draw on the host: numbers from the keys of its rows."""

import numpy as np

from jaxaug._splitmix import uniform

_MAX_HIGH = 2**53  # a uniform number is a multiple of 2^-53


def draw_uniform(keys: np.ndarray, counter: "int | np.ndarray" = 0) -> np.ndarray:
    """Return numbers uniform in [0, 1), a pure function of key and counter.

    Draws of one key by different counters are independent, as are those of different keys.

    Args:
      keys: uint64[n], those that `ColumnDecoder.decode_rows` is given.
      counter: which draw of a key, at least 0; an array is broadcast against `keys`.

    Returns:
      float64 of the shape of both.

    Example:
      >>> keys = np.array([1, 2, 1], np.uint64)
      >>> draws = draw_uniform(keys)
      >>> bool(draws[0] == draws[2] != draws[1]), draw_uniform(keys[:, None], np.arange(4)).shape
      (True, (3, 4))
    """
    keys = np.asarray(keys)
    if keys.dtype != np.uint64:
        raise TypeError(f"`keys` must be uint64[n], as `decode_rows` gets them, got {keys.dtype}.")
    return uniform(keys, np.asarray(counter).astype(np.uint64))


def draw_integers(
    keys: np.ndarray, counter: "int | np.ndarray" = 0, *, high: "int | np.ndarray"
) -> np.ndarray:
    """Return integers uniform in [0, high), see `draw_uniform`.

    Args:
      keys: uint64[n].
      counter: which draw of a key, at least 0.
      high: 1 to 2^53; an array is broadcast against `keys`.

    Returns:
      int64.

    Raises:
      ValueError: `high` lies outside of [1, 2^53].

    Example:
      >>> draw_integers(np.arange(5, dtype=np.uint64), high=np.array([1, 1, 1, 1, 10])).shape
      (5,)
    """
    high = np.asarray(high)
    if high.size and not (1 <= high.min() and high.max() <= _MAX_HIGH):
        raise ValueError(f"`high` must lie in [1, 2^53], got {high.min()} to {high.max()}.")
    return (draw_uniform(keys, counter) * high).astype(np.int64)
