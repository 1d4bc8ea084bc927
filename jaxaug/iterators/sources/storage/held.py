"""Ranges of files in memory that were read before they are wanted, each for one taker."""

import mmap
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

_MAX_BYTES = 3 << 30  # of ranges that nobody has taken; the oldest go first


class Ranges(NamedTuple):
    """Places of bytes, all int64[k]: counted through all files, and in memory.

    Attributes:
      at, length: of each range in the files.
      address: of its bytes.
      number: of the memory that it lies in.
    """

    at: np.ndarray
    length: np.ndarray
    address: np.ndarray
    number: np.ndarray

    def take(self, rows: np.ndarray) -> "Ranges":
        """Return some of the ranges."""
        return Ranges(*(column[rows] for column in self))


_NONE = Ranges(*(np.zeros(0, np.int64) for _ in range(4)))


class Memory(NamedTuple):
    """Memory of its own: the pages of a range go back to the system when they are used up.

    Attributes:
      data: uint8[n].
      pages: what `data` lies in; None where its pages cannot be given back.
    """

    data: np.ndarray
    pages: mmap.mmap | None

    @classmethod
    def of(cls, size: int) -> "Memory":
        """Return fresh memory."""
        pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return cls(np.frombuffer(pages, np.uint8)[:size], pages)


class Held:
    """Ranges that wait to be taken, each once: its bytes live as long as the owner is referred to.

    Only pages that lie wholly in one range go back before all ranges of their memory are taken.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._ranges = _NONE  # by `at`
        self._memories: dict[int, Memory] = {}
        self._added = 0

    def add(self, at: np.ndarray, length: np.ndarray, places: np.ndarray, memory: Memory) -> None:
        """Hold ranges, int64[k] each, at their places in some memory, which nobody else uses."""
        with self._lock:
            number = np.full(len(at), self._added)
            self._memories[self._added] = memory
            self._added += 1
            new = Ranges(at, length, memory.data.ctypes.data + places, number)
            joined = Ranges(*(np.concatenate(pair) for pair in zip(self._ranges, new)))
            kept = joined.take(np.lexsort((-joined.number, joined.at)))
            # Bytes of two ranges would go with the first that is used up.
            apart = np.ones(len(kept.at), bool)
            apart[1:] = kept.at[1:] >= np.maximum.accumulate(kept.at + kept.length)[:-1]
            self._ranges = kept.take(apart)
            self._drop_oldest()

    def take(self, at: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return the address of each range, 0 where it is not held, and the owner of those bytes.

        Args:
          at, length: int64[k]; a range must be one of those that were added.
        """
        with self._lock:
            held = self._ranges
            if not held.at.size:
                return np.zeros(len(at), np.int64), None
            row = np.minimum(np.searchsorted(held.at, at), held.at.size - 1)
            found = (held.at[row] == at) & (held.length[row] == length)
            taken = held.take(np.unique(row[found]))
            left = np.ones(held.at.size, bool)
            left[row[found]] = False
            self._ranges = held.take(left)
            owner = _Owner(taken, self._memories)
            self._forget_used()
        return np.where(found, held.address[row], 0), owner

    def _drop_oldest(self) -> None:
        held = self._ranges
        size = np.zeros(self._added, np.int64)
        np.add.at(size, held.number, held.length)
        newer = np.cumsum(size[::-1])[::-1]  # the bytes of each memory and of those after it
        self._ranges = held.take(newer[held.number] <= _MAX_BYTES)
        self._forget_used()

    def _forget_used(self) -> None:
        used = set(np.unique(self._ranges.number).tolist())
        self._memories = {number: self._memories[number] for number in used}


def errors_at(known: dict[int, str], numbers: np.ndarray, wanted: np.ndarray) -> dict[int, str]:
    """Return the known errors by row of the numbers that they are of, where bool[n] wants them."""
    rows = np.flatnonzero(wanted & np.isin(numbers, list(known))) if known else []
    return {int(row): known[int(numbers[row])] for row in rows}


class _Owner:
    """Keeps the bytes of ranges that were taken."""

    def __init__(self, taken: Ranges, memories: dict[int, Memory]):
        self.memories = [memories[number] for number in np.unique(taken.number).tolist()]
        for number in np.unique(taken.number).tolist():
            pages = memories[number].pages
            if pages is not None:
                mine = taken.take(taken.number == number)
                first = mine.address - memories[number].data.ctypes.data
                weakref.finalize(self, _give_back, pages, first, mine.length).atexit = False


def _give_back(pages: mmap.mmap, first: np.ndarray, length: np.ndarray) -> None:
    """Give the whole pages of ranges back to the system."""
    begin = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (first + length) // mmap.PAGESIZE * mmap.PAGESIZE - begin
    some = size > 0
    for start, count in zip(begin[some].tolist(), size[some].tolist()):
        pages.madvise(mmap.MADV_DONTNEED, start, count)
