"""The threads of a Loader: one reads, a pool builds, the consumer takes the batches in order."""

import atexit
import contextlib
import itertools
import math
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from jaxaug.iterators.loader.reader import ReadBatch
from jaxaug.iterators.loader.state import Cursor
from jaxaug.iterators.loader.stats import Readiness
from jaxaug.iterators.sources.storage.threads import abandoned

T = TypeVar("T")

# A thread is woken for a batch that is watched, which takes longer than to launch a small one: at
# most so often, and the others are taken to be as these.
_WATCH_SECONDS = 0.05
_JOIN_SECONDS = 10.0  # that a `close` waits for a source that does not answer

_running: "set[Pipeline]" = set()
_waiting: "set[_Waiter]" = set()
_threads: set[threading.Thread] = set()  # those that have begun, and have not ended when one begins


class PendingBatch(NamedTuple, Generic[T]):
    """One batch in its place among the others, finished or not.

    Attributes:
      epoch: the epoch that it belongs to.
      after: the cursor once it is delivered.
      result: the batch, or the exception.
      launch: makes the next batches whose consumer does it; None where a thread does.
    """

    epoch: int
    after: Cursor
    result: "Future[T]"
    launch: Callable[[], Any] | None = None


class _Launches(Generic[T]):
    """The batches of rows that are kept, or could not be read, made one call after the other.

    Args:
      launch: yields those that one call makes together.
      read: the rows, or why there are none.

    Attributes:
      left: the results that no call has made yet.
    """

    def __init__(self, launch: Callable[[ReadBatch], Iterator[list[T]]], read: ReadBatch):
        self.left: deque[Future[T]] = deque(Future() for _ in read.cursors)
        self._error: BaseException | None = read.error
        try:
            self._batches = iter(()) if read.error is not None else launch(read)
        except Exception as error:
            self._error = error

    def advance(self) -> "list[Future[T]]":
        """Make the next call; return its results, all that are left if it fails."""
        if self._error is None:
            try:
                return [self._finished(batch) for batch in next(self._batches)]
            except Exception as error:
                self._error = error
        return [self._finished(self._error) for _ in range(len(self.left))]

    def _finished(self, made: Any) -> "Future[T]":
        result = self.left.popleft()
        if not result.set_running_or_notify_cancel():  # the consumer has stopped
            return result
        if self._error is None:
            result.set_result(made)
        else:
            result.set_exception(self._error)
        return result


class _Waiter:
    """A thread that waits for arrays in their order.

    Each batch passes here: an executor would take ten times as long for it.
    """

    def __init__(self):
        self._queue: SimpleQueue[Readiness | None] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="jaxaug-device", daemon=True)
        _waiting.add(self)
        _start(self._thread)

    def watch(self, array: Any) -> Readiness:
        """Return what will tell when an array is ready."""
        readiness = Readiness(array)
        self._queue.put(readiness)
        return readiness

    def stop(self) -> None:
        """Tell the thread to wait for no other array."""
        self._stopped = True
        self._queue.put(None)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        while (readiness := self._queue.get()) is not None and not self._stopped:
            # An error of the device is raised where the batch is used.
            with contextlib.suppress(Exception):
                readiness.array.block_until_ready()
            readiness.time = time.perf_counter()
            del readiness  # or the array would stay alive as long as the next one is awaited
        _waiting.discard(self)


class Pipeline(Generic[T]):
    """Reads and builds batches ahead of the consumer.

    One thread iterates `reads` and hands each batch to a pool of `workers` threads that call
    `build`; batches whose rows are kept it launches itself, or the consumer does as it comes near.
    It owns reads and pool: it closes them when the batches end or when it is told to stop. `depth`
    batches are being built or finished at a time, and what one launch makes beyond. Each is built
    to its end, so that a decoder that others use too is never held by a batch that waits for its
    consumer.

    Nothing here refers to the Loader, so a Loader that is dropped can be collected and stop the
    threads.

    Args:
      reads: a generator; an exception that it raises ends the batches and reaches the consumer at
        that place.
      build: makes a batch of the rows that were read; called in the pool.
      launch: yields the batches of rows that are kept, those that one call makes together.
      workers: how many batches are built at a time.
      depth: how many batches are being built or wait for the consumer.
      is_light: runs are launched by the consumer, as that takes less than to pass each on.
    """

    def __init__(
        self,
        reads: Generator[ReadBatch, None, None],
        build: Callable[[ReadBatch], T],
        launch: Callable[[ReadBatch], Iterator[list[T]]],
        workers: int,
        depth: int,
        is_light: bool = False,
    ):
        self._reads = reads
        self._build = build
        self._launch = launch
        self._workers = workers
        self._depth = depth
        self._is_light = is_light
        # Reentrant: the collector may stop a pipeline in a thread that holds the lock already.
        self._changed = threading.Condition(threading.RLock())
        self._pending: deque[PendingBatch[T]] = deque()
        self._stopped = False
        self._end: BaseException | None = None
        self._ended = False
        self._at_end: Callable[[], None] | None = None
        self._waiter: _Waiter | None = None
        self._awaited: Readiness | None = None
        self._watched_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="jaxaug-reader", daemon=True)

    def start(self) -> None:
        """Start the threads; an interrupt may come in between, after which `stop` ends them."""
        _running.add(self)
        _start(self._thread)

    def peek(self) -> PendingBatch[T] | None:
        """Return the next batch without taking it, None at the end.

        Raises:
          CancelledError: the pipeline was stopped.
          BaseException: the exception that ended `reads`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._ended or self._stopped)
            if self._stopped:
                raise CancelledError
            near = list(itertools.islice(self._pending, self._depth + 1))
            if not near and self._end is not None:
                raise self._end
        for each in near:
            if each.launch is not None and not each.result.done():
                each.launch()
        return near[0] if near else None

    def pop(self) -> None:
        """Take the batch that `peek` gave."""
        with self._changed:
            if self._pending:
                self._pending.popleft()
            if len(self._pending) < self._depth:
                self._changed.notify_all()

    def stop(self, at_end: Callable[[], None] | None = None) -> None:
        """Tell the threads to end, without waiting; the last of them calls `at_end`."""
        with self._changed:
            self._stopped = True
            pending = list(self._pending)
            self._pending.clear()
            self._changed.notify_all()
            ended = self._ended
            if not ended:
                self._at_end = at_end

        for each in pending:
            each.result.cancel()
        if self._waiter is not None:
            self._waiter.stop()
        if ended and at_end is not None:
            at_end()

    def join(self) -> None:
        """Wait until the threads have ended; warn if a read keeps one alive."""
        if threading.current_thread() is self._thread:
            return
        if self._thread.is_alive():  # not if an interrupt came before it started
            self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():
            warnings.warn(
                f"a read of the source has not ended after {_JOIN_SECONDS:g} s; its thread ends "
                "once it does.",
                RuntimeWarning,
                stacklevel=4,
            )
        if self._waiter is not None:
            self._waiter.join()

    def when_ready(self, done: Any) -> Readiness | None:
        """Return what tells when the device has `done`; None if it already has it.

        A thread waits for it, unless it has begun to wait for another one a moment ago.
        """
        if done.is_ready():
            return None
        if self._awaited is not None and self._awaited.array is done:  # batches of a run share it
            return self._awaited
        now = time.perf_counter()
        if now - self._watched_at < _WATCH_SECONDS:
            self._awaited = Readiness(done, is_watched=False)
        else:
            self._watched_at = now
            self._waiter = self._waiter or _Waiter()
            self._awaited = self._waiter.watch(done)
        return self._awaited

    def _run(self) -> None:
        # Contexts of threads outlive these: they hold no object with arrays.
        found = weakref.ref(self)
        abandoned.set(lambda: (pipeline := found()) is None or pipeline._stopped)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="jaxaug-build")
        try:
            for read in self._reads:
                if not self._put(read, pool):
                    break
                del read  # or the last batch would stay alive as long as the next one is read
        except BaseException as error:
            self._end = error
        finally:
            with contextlib.suppress(Exception):
                self._reads.close()  # a generator's clean-up runs in the thread that ran it
            pool.shutdown(cancel_futures=self._stopped)
            self._finish()

    def _put(self, read: ReadBatch, pool: ThreadPoolExecutor) -> bool:
        """Start batches as there is room for them; return False when the consumer has stopped."""
        if not read.cursors:  # what lies behind is read once its records are kept
            wait([pool.submit(self._build, read)])
            return not self._stopped
        launches = None
        if read.error is not None or read.is_kept:
            launches = _Launches(self._launch, read)
        cursors = list(read.cursors)
        while cursors:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or len(self._pending) < self._depth)
                if self._stopped:
                    return False
            launch = None
            if launches is None:
                results = [pool.submit(self._build, read)]
            elif read.run and self._is_light:
                launch = launches.advance
                results = list(launches.left)
            else:
                results = launches.advance()
            with self._changed:
                if self._stopped:
                    results[0].cancel()
                    return False
                for after, result in zip(cursors, results):
                    self._pending.append(PendingBatch(read.span.epoch, after, result, launch))
                self._changed.notify_all()
            del cursors[: len(results)]
        return True

    def _finish(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            at_end = self._at_end
        try:
            if at_end is not None:
                at_end()
        finally:
            _running.discard(self)


def _start(thread: threading.Thread) -> None:
    thread.start()
    _threads.difference_update([each for each in list(_threads) if not each.is_alive()])
    _threads.add(thread)


def _stop_all() -> None:
    """Stop all pipelines: no thread may be inside of native code when the interpreter ends.

    Those that have stopped may still drop their arrays.
    """
    running = list(_running)
    for pipeline in running:
        pipeline.stop(pipeline._at_end)
    for pipeline in running:
        pipeline.join()
    for waiter in list(_waiting):
        waiter.stop()
        waiter.join()
    for thread in _threads.difference([pipeline._thread for pipeline in running]):
        thread.join()


atexit.register(_stop_all)
# A fork has none of the threads, and maybe a lock that one of them held.
os.register_at_fork(after_in_child=_running.clear)
os.register_at_fork(after_in_child=_threads.clear)
os.register_at_fork(after_in_child=_waiting.clear)
