"""Work on all records of a source, by pieces, in several processes; it goes on after a kill."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context, parent_process
from typing import Any

import numpy as np

from jaxaug.decode import Encoded, Ragged
from jaxaug.errors import SourceError

PIECE = 64  # records that a process takes at a time


class Journal:
    """What was done so far, a line of JSON for each piece of the source, for after a kill.

    Args:
      path: the file; nothing is kept where it cannot be written.
      head: what the results depend on, in JSON; those of another one do not count.
    """

    def __init__(self, path: str, head: list[Any]):
        self._path = path
        self._head = [*head, PIECE]

    def resume(self) -> dict[int, Any]:
        """Return the results of earlier runs, by the first record of each piece."""
        results: dict[int, Any] = {}
        # The last line may be cut.
        with suppress(OSError, ValueError), open(self._path, encoding="utf-8") as file:
            if json.loads(next(file, "null")) == self._head:
                for line in file:
                    start, result = json.loads(line)
                    results[start] = result
        with suppress(OSError):
            self._rewrite(results)
        return results

    def _rewrite(self, results: dict[int, Any]) -> None:
        """Begin the file anew, without what was cut."""
        partial = f"{self._path}.part"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(json.dumps(self._head) + "\n")
            for start, result in sorted(results.items()):
                file.write(json.dumps([start, result]) + "\n")
        os.replace(partial, self._path)

    def add(self, start: int, result: Any) -> None:
        """Keep the result of one piece."""
        with suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([start, result]) + "\n")

    def remove(self) -> None:
        """Remove the file: all is done."""
        with suppress(OSError):
            os.unlink(self._path)


def write_json(path: str, found: Any) -> None:
    """Write what was found of a source to a file, whose folder is made where it is missing."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


def run_pieces(
    work: Callable[[Any, int], Any], source: Any, starts: list[int], piece: int, processes: int
) -> Iterator[tuple[int, Any]]:
    """Yield (start, work(source, start)) of each piece, in order.

    Args:
      work: done in other processes.
      source: the records.
      starts: the first record of each piece.
      piece: how many records one has.
      processes: how many work at most.

    Raises:
      SourceError: a process died.
    """
    if not starts:
        return
    count = min(processes, len(starts))
    pool = ProcessPoolExecutor(count, get_context("spawn"), _initialize, (work, source))
    start = starts[0]
    try:
        for start, result in zip(starts, pool.map(_do, starts)):
            yield start, result
    except BrokenProcessPool as error:
        raise SourceError(
            f"a process died within some {piece * (count + 1)} records from {start} on, without "
            "memory or in a fault of a codec. The same command goes on from there."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def images_of(column: Any) -> tuple[Encoded, np.ndarray]:
    """Return all images of a column one after the other, and the row of each: a row may be a list.

    Raises:
      SourceError: the column holds arrays.
    """
    if isinstance(column, Encoded):
        return column, np.arange(len(column.lengths))
    if isinstance(column, Ragged) and isinstance(column.values, Encoded):
        return column.values, np.repeat(np.arange(len(column.lengths)), column.lengths)
    raise SourceError(
        "`source` must have a column 'image' of encoded bytes: the statistics of arrays are `mean` "
        "and `std` of NumPy."
    )


# ---- in the processes

_work: Callable[[Any, int], Any]
_source: Any


def _initialize(work: Callable[[Any, int], Any], source: Any) -> None:
    global _work, _source
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = work
    _source = source


def _end_with_parent() -> None:
    """End this process when its parent is gone: it would wait for more work for ever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(start: int) -> Any:
    return _work(_source, start)
