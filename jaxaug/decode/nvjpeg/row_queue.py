"""The rows of a batch that wait for the engines, and that helpers may take as well."""

import threading
from collections.abc import Iterator

import numpy as np


class RowQueue:
    """Rows that the engines take from the start, many at once, and helpers from the end.

    Several threads may take rows at once; each row is taken once.

    Args:
      rows: int64[n].

    Example:
      >>> queue = RowQueue(np.array([5, 6, 7, 8]))
      >>> next(queue.pop_last()), queue.take_first(2), len(queue)
      (8, slice(0, 2, None), 1)
    """

    def __init__(self, rows: np.ndarray):
        self._rows = rows
        self._start = 0
        self._stop = len(rows)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return self._stop - self._start

    def take_first(self, count: int) -> slice:
        """Take at most `count` rows from the start; return their places among all rows."""
        with self._lock:
            start = self._start
            self._start = min(start + count, self._stop)
            return slice(start, self._start)

    def pop_last(self) -> Iterator[int]:
        """Yield one row after the other from the end, until none is left."""
        while True:
            with self._lock:
                if self._start == self._stop:
                    return
                self._stop -= 1
                row = int(self._rows[self._stop])
            yield row

    def clear(self) -> None:
        """Leave no row to anybody."""
        with self._lock:
            self._start = self._stop
