"""Worker processes that run the lanes of a stream, each of them some."""

import contextlib
import os
import pickle
import queue
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxaug.errors import SourceError
from jaxaug.iterators.sources._parts import SKIPPED, Parts
from jaxaug.iterators.sources.storage.threads import abandoned

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_CHUNK = 8  # items sent at a time
_AHEAD = 4  # chunks of a worker that wait to be sent
_LOOK_SECONDS = 1.0  # between two looks at whether anybody waits
_MINUTE = 60.0  # seconds
_MAX_MINUTES = 10  # that a worker may take for the next items
_END_SECONDS = 5.0  # that a worker has to end before it is killed


def items_by_workers(
    parts: Parts, epoch: int, start: int, wanted: np.ndarray, workers: int
) -> Iterator[Any]:
    """Yield what `Parts.items` yields, from worker processes.

    Args:
      parts, epoch, start, wanted: as `Parts.items` says.
      workers: processes; each runs every so-manieth lane.

    Raises:
      Exception: that a part has raised, at its place.
      SourceError: a worker ended, or sent nothing for ten minutes.
    """
    import multiprocessing  # which loads more libraries than an import of jaxaug may

    context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would break
    running: list[_Worker] = []
    try:
        for number in range(workers):
            running.append(_Worker(context, (parts, epoch, start, wanted, number, workers)))
        for (lane, _), use in zip(parts.schedule(epoch, start), parts.uses(wanted)):
            item = running[lane % workers].take() if use else SKIPPED
            if isinstance(item, _Failure):
                if item.error is None:  # a part of unknown length is at its end
                    return
                raise item.error
            yield item
        for each in running:
            end = each.take()
            if end.error is not None:  # the last part of a lane has more items
                raise end.error
    finally:
        for each in running:
            each.end()


class _Worker:
    """A process and what it has sent."""

    def __init__(self, context: Any, arguments: tuple):
        self._connection, theirs = context.Pipe()
        self._received: list[Any] = []
        self._process = context.Process(
            target=_run, args=(theirs, *arguments), name="jaxaug-worker", daemon=True
        )
        self._process.start()
        theirs.close()

    def take(self) -> Any:
        """Return the next item of this worker's lanes, or why there is none."""
        if not self._received:
            try:
                self._wait()
                self._received = pickle.loads(self._connection.recv_bytes())[::-1]
            except (EOFError, ConnectionError):
                self._process.join(_END_SECONDS)
                raise SourceError(
                    f"`workers`: process {self._process.pid} ended with exit code "
                    f"{self._process.exitcode}: if the system killed it, it may have lacked memory."
                ) from None
        return self._received.pop()

    def _wait(self) -> None:
        """Wait until something was sent, and say each minute that nothing was."""
        what = f"`workers`: process {self._process.pid} has sent nothing for"
        for minute in range(1, _MAX_MINUTES + 1):
            until = time.monotonic() + _MINUTE
            while (left := until - time.monotonic()) > 0:
                if self._connection.poll(min(left, _LOOK_SECONDS)):
                    return
                if abandoned.get()():
                    raise SourceError(f"{what} less than {minute} min when the Loader was closed.")
            text = f"{what} {minute} min, at {_MAX_MINUTES} it is ended."
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        raise SourceError(f"{what} {_MAX_MINUTES} min: it hangs, or its items take that long.")

    def end(self) -> None:
        """End the process."""
        self._connection.close()  # which it notices
        self._process.join(_END_SECONDS)  # also while its items hang: another thread notices
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_END_SECONDS)


class _Failure(NamedTuple):
    """Stands where a worker has raised an exception; None for the end of its lanes."""

    error: BaseException | None


def _failed(error: BaseException) -> _Failure:
    """Return what tells of an exception, by its text alone where it cannot be pickled."""
    trace = "".join(traceback.format_exception(error))
    error.add_note(f"In a worker process:\n{trace}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return _Failure(SourceError(f"a worker of `items` failed:\n{trace}"))
    return _Failure(error)


def _run(
    connection: "Connection",
    parts: Parts,
    epoch: int,
    start: int,
    wanted: np.ndarray,
    number: int,
    workers: int,
) -> None:
    """Send the wanted items of this worker's lanes; in another process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    chunks: queue.Queue = queue.Queue(_AHEAD)
    threading.Thread(target=_send, args=(connection, chunks), daemon=True).start()
    chunk: list[Any] = []
    try:
        for item in parts.items(epoch, start, wanted, (number, workers)):
            if item is SKIPPED:
                continue
            chunk.append(item)
            if len(chunk) == _CHUNK:
                chunks.put(_pickled(chunk))
                chunk = []
        chunk.append(_Failure(None))
    except BaseException as error:
        chunk.append(_failed(error))
    chunks.put(_pickled(chunk))
    threading.Event().wait()  # until the parent has all


def _pickled(chunk: list[Any]) -> bytes:
    """Return items as they are sent; at the place of the first that cannot be, why."""
    try:
        return pickle.dumps(chunk, protocol=5)
    except Exception:
        return pickle.dumps([*_sendable(chunk)], protocol=5)


def _sendable(chunk: list[Any]) -> Iterator[Any]:
    """Yield the items before one that cannot be sent, and why it cannot."""
    for item in chunk:
        try:
            pickle.dumps(item, protocol=5)
        except Exception as error:
            what = "`workers`: an item cannot be sent from its process: yield bytes, arrays and"
            yield _Failure(SourceError(f"{what} numbers, or take workers=0: {error}."))
            return
        yield item


def _end_with_parent(connection: "Connection") -> None:
    """End this process when the other end of the connection is closed, also by a kill."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv_bytes()
    os._exit(0)


def _send(connection: "Connection", chunks: queue.Queue) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.send_bytes(chunks.get())
