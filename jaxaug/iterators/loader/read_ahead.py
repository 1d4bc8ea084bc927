"""Reading of far records: many batches in one go, while those before them are taken."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from jaxaug.iterators.sources.storage.threads import Threads

_READS = 1  # under way at a time, beside the one whose batches are taken

T = TypeVar("T")
Batch = TypeVar("Batch")


def batches_together(position: int, batch_size: int, most: int, window: int) -> int:
    """Return how many batches from a position on are read in one go.

    Args:
      position: of the first of them.
      batch_size: positions in each.
      most: batches, as far as memory goes; at least one is read.
      window: positions, counted from the beginning of the epoch, that share requests; a go ends
        where one of them does if that is near enough. 0 for none.

    Example:
      >>> batches_together(256, 256, 20, window=4096), batches_together(4096, 256, 20, 4096)
      (15, 16)
      >>> batches_together(256, 256, 10, window=4096), batches_together(256, 256, 20, 0)
      (10, 20)
    """
    stop = position + most * batch_size
    if window and stop // window > position // window:
        stop = stop // window * window
    return max(1, -(-(stop - position) // batch_size))


def read_ahead(groups: Iterator[T], read: Callable[[T], list[Batch]]) -> Iterator[Batch]:
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
