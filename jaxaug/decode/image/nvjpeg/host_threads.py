"""The host threads of one GPU: they decode what its engines cannot, and help with the rest.

The rows of a batch that both may decode wait in a `RowQueue`.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from jaxaug.decode.image.nvjpeg.dispatch import Batch
from jaxaug.decode.image.nvjpeg.resize_and_orient import Resampler
from jaxaug.decode.image.nvjpeg.upload import Uploader
from jaxaug.decode.native import cuda
from jaxaug.errors import DecodeError

T = TypeVar("T")


class RowQueue:
    """Rows of a batch that helpers take from the start, and the engines from the end, many at once.

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


class HostThreads:
    """Two groups of threads, so that neither group of images waits for the other.

    Args:
      ordinal: number of the CUDA device.
      canvas_shape: (H, W, channels) of each row.
      num_threads: threads for images that the engines cannot decode.
      num_helpers: threads for images that the engines could decode as well, if these are large.
      resampler: the kernels that shrink and turn images; None where they cannot be compiled.
      slots_bytes: device memory at most for images that they shrink and turn.

    Attributes:
      num_helpers: as given.
    """

    def __init__(
        self,
        ordinal: int,
        canvas_shape: tuple[int, int, int],
        num_threads: int,
        num_helpers: int,
        resampler: Resampler | None,
        slots_bytes: int,
    ):
        self._ordinal = ordinal
        self._canvas_shape = canvas_shape
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="jaxaug-decode")
        self.num_helpers = num_helpers
        self._helpers = ThreadPoolExecutor(max(1, num_helpers), thread_name_prefix="jaxaug-help")
        self._stream = cuda.create_stream()
        self._resampler = resampler
        self._max_slot_bytes = slots_bytes // (num_threads + num_helpers)
        self._uploaders: list[Uploader] = []
        self._local = threading.local()

    @property
    def bytes_held(self) -> int:
        """The device memory that the slots of the threads take now."""
        return sum(uploader.bytes_held for uploader in tuple(self._uploaders))

    def start(
        self, batch: Batch, pointers: np.ndarray, assigned: list[int], queue: RowQueue
    ) -> "HostWork":
        """Begin to decode the assigned rows, and the rows of the queue that are for helpers.

        Args:
          batch: n images.
          pointers: uint64[n], the address of each canvas.
          assigned: rows that only these threads decode.
          queue: rows that others take from the end at the same time.
        """
        work = HostWork(batch, pointers, queue, self._uploader)
        rows = iter(assigned)  # shared: each thread takes the next row when it is free
        try:
            for _ in range(min(self._num_threads, len(assigned))):
                work.tasks.append(self._pool.submit(work.decode, rows))
            for _ in range(min(self.num_helpers, queue.left_for_helpers())):
                work.helper_tasks.append(self._helpers.submit(work.decode, queue.pop_first()))
        except BaseException:
            work.finish()
            raise
        return work

    def close(self) -> None:
        """Stop the threads and free their memory; the device is current."""
        for pool in (self._pool, self._helpers):
            pool.shutdown()
        for uploader in self._uploaders:
            uploader.close()
        cuda.call("cudaStreamDestroy", self._stream)

    def _uploader(self) -> Uploader:
        """Return the calling thread's own uploader."""
        if not hasattr(self._local, "uploader"):
            self._local.uploader = Uploader(
                ordinal=self._ordinal,
                canvas_shape=self._canvas_shape,
                stream=self._stream,
                resampler=self._resampler,
                max_slot_bytes=self._max_slot_bytes,
            )
            self._uploaders.append(self._local.uploader)
        return self._local.uploader


class HostWork:
    """The work of the host threads on one batch.

    Args:
      batch: n images.
      pointers: uint64[n], the address of each canvas.
      queue: rows of which the helpers take the first.
      uploader: returns the calling thread's own uploader.

    Attributes:
      tasks: those of the assigned rows; the result of each is the rows that it decoded.
      helper_tasks: those of the queue.
      failures: row -> reason, for rows that could not be decoded.
    """

    def __init__(
        self,
        batch: Batch,
        pointers: np.ndarray,
        queue: RowQueue,
        uploader: Callable[[], Uploader],
    ):
        self._batch = batch
        self._pointers = pointers
        self._queue = queue
        self._uploader = uploader
        self.tasks: list[Future[list[int]]] = []
        self.helper_tasks: list[Future[list[int]]] = []
        self.failures: dict[int, str] = {}

    def decode(self, rows: Iterable[int]) -> list[int]:
        """Decode rows in this thread; return those that succeeded."""
        uploader = self._uploader()
        decoded = []
        try:
            for row in rows:
                data = self._batch.encoded.view(row)
                header = self._batch.headers.row(row)
                size = tuple(self._batch.size[row].tolist())
                try:
                    uploader.decode(data, header, size, int(self._pointers[row]))
                    decoded.append(row)
                except DecodeError as error:
                    self.failures[row] = error.reason
        finally:
            uploader.finish()
        return decoded

    def finish(self) -> list[int]:
        """Empty the queue, wait until no thread writes any more, and return the decoded rows.

        This does not wait for helpers that have not started because they work on another batch.
        """
        self._queue.clear()
        if not self.tasks and not self.helper_tasks:
            return []
        started = [task for task in self.helper_tasks if not task.cancel()]
        decoded = all_results([*self.tasks, *started])
        return [row for rows in decoded for row in rows]


def all_results(futures: Sequence[Future[T]]) -> list[T]:
    """Return all results, or raise the first exception, once all futures have ended."""
    try:
        wait(futures)
    except BaseException:  # Ctrl-C: the threads still write
        wait(futures)
        raise
    return [future.result() for future in futures]
