"""Threads for reads that may never end."""

import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import Any, TypeAlias

from jaxaug.errors import SourceError

_Task: TypeAlias = "tuple[Future, Callable[..., Any], tuple] | None"


LOOK_SECONDS = 0.1  # between two looks at whether anybody waits

# Returns True once nobody waits any more for what this thread reads.
abandoned: ContextVar[Callable[[], bool]] = ContextVar("abandoned", default=lambda: False)


def check_awaited() -> None:
    """Raise SourceError if nobody waits any more for what this thread reads."""
    if abandoned.get()():
        raise SourceError("the Loader was closed before its source had answered")


def pause(seconds: float) -> None:
    """Sleep, as long as anybody waits for what this thread reads.

    Raises:
      SourceError: nobody does any more.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check_awaited()
        time.sleep(min(left, LOOK_SECONDS))


class Threads:
    """Threads that do tasks in turn, and for which no process waits at its end.

    For those of a `ThreadPoolExecutor` it waits: a read that hangs would hold it for ever. These
    end when they have no task and nothing refers to this object any more.

    Args:
      count: how many; they start at once.
      name: of the threads, for debuggers.
    """

    def __init__(self, count: int, name: str):
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._end = weakref.finalize(self, _end, self._tasks, count)
        for _ in range(count):
            threading.Thread(target=_work, args=(self._tasks,), name=name, daemon=True).start()

    def submit(self, act: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call, which sees the context of its caller."""
        future: Future = Future()
        self._tasks.put((future, copy_context().run, (act, *arguments)))
        return future

    def close(self) -> None:
        """Have the threads end after the tasks that wait; wait for none."""
        self._end()


def _work(tasks: "queue.SimpleQueue[_Task]") -> None:
    while _do(tasks.get()):  # nothing of a task stays alive while the next one is awaited
        pass


def _do(task: _Task) -> bool:
    """Do a task; return False if there is none any more."""
    if task is None:
        return False
    future, act, arguments = task
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(act(*arguments))
        except BaseException as error:
            future.set_exception(error)
    return True


def _end(tasks: "queue.SimpleQueue[_Task]", count: int) -> None:
    for _ in range(count):
        tasks.put(None)
