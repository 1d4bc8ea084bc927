"""The rows of a batch that wait for the engines, and that helpers may take as well."""

import threading
from collections.abc import Iterator

import numpy as np


class RowQueue:
    """Rows that helpers take from the start, and the engines from the end, many at once.

    Several threads may take rows at once; each row is taken once.

    Args:
      rows: int64[n].
      for_helpers: how many of the first rows helpers may take.

    Example:
      >>> queue = RowQueue(np.array([5, 6, 7, 8]), for_helpers=2)
      >>> next(queue.pop_first()), queue.take_last(2), len(queue)
      (5, slice(2, 4, None), 1)
    """

    def __init__(self, rows: np.ndarray, for_helpers: int):
        self._rows = rows
        self._for_helpers = for_helpers
        self._start = 0
        self._stop = len(rows)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return self._stop - self._start

    def left_for_helpers(self) -> int:
        """Return how many rows helpers may still take."""
        with self._lock:
            return max(0, min(self._for_helpers, self._stop) - self._start)

    def take_last(self, count: int) -> slice:
        """Take at most `count` rows from the end; return their places among all rows."""
        with self._lock:
            stop = self._stop
            self._stop = max(stop - count, self._start)
            return slice(self._stop, stop)

    def pop_first(self) -> Iterator[int]:
        """Yield one row for a helper after the other, until none is left."""
        while True:
            with self._lock:
                if self._start >= min(self._for_helpers, self._stop):
                    return
                row = int(self._rows[self._start])
                self._start += 1
            yield row

    def clear(self) -> None:
        """Leave no row to anybody."""
        with self._lock:
            self._start = self._stop
