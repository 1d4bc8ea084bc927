"""Reading of far records: many batches in one go, while those before them are taken."""

from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias, TypeVar

import numpy as np

from jaxaug.iterators.sources.storage.threads import Threads

_READS = 1  # under way at a time, beside the one whose batches are taken

T = TypeVar("T")
Batch = TypeVar("Batch")
Runs: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Keeper:
    """What a source holds records for: a reader has one, with whose end they go."""


def rest_of_runs(
    runs: Runs, positions: np.ndarray, lanes: int, most: int, *, since: int
) -> np.ndarray:
    """Return the positions that share requests with some, and that no earlier call has given.

    Args:
      runs: of the sampler: how many records of its run are before each position, and from it on.
      positions: int64[k, r], of the rows of k batches, one after the other; negative for none.
      lanes: positions from a record to the next one of its run.
      most: records of a run that may come together; a longer one comes in equal parts.
      since: the first position of those that were ever asked about.

    Returns:
      int64[n], those of a run one after the other.
    """
    positions = positions[positions >= 0]
    before, left = runs(positions)
    run = before + left
    part = -(-run // -(-run // most))  # equal ones, rounded up
    begins = (before % part == 0) | (positions - lanes < since)
    starts = positions[begins]
    counts = np.minimum(left, part - before % part)[begins]
    step = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + lanes * step


def read_ahead(
    groups: Iterator[T], read: Callable[[T], list[Batch]]
) -> Generator[Batch, None, None]:
    """Yield what `read` returns for each group, in order, with the next groups under way.

    Args:
      groups: asked for in the thread of the caller.
      read: called in other threads.
    """
    threads = Threads(_READS, "jaxaug-ahead")
    waiting = []
    try:
        for group in groups:
            waiting.append(threads.submit(read, group))
            if len(waiting) > _READS:
                yield from _emptied(waiting.pop(0).result())
        while waiting:
            yield from _emptied(waiting.pop(0).result())
    finally:
        for future in waiting:
            future.cancel()
        threads.close()


def _emptied(batches: list[Batch]) -> Iterator[Batch]:
    """Yield the items of a list, none of which stays alive in it."""
    batches.reverse()
    while batches:
        yield batches.pop()
