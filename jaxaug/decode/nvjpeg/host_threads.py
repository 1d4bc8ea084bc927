"""The host threads of one GPU: they decode what its engines refuse, and a share of the rest."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from jaxaug.decode.native import cuda
from jaxaug.decode.nvjpeg.dispatch import Batch
from jaxaug.decode.nvjpeg.upload import Uploader
from jaxaug.errors import DecodeError

# Bytes an image has in the mean of a batch; above, twice as many threads share. A thread needs the
# GIL so many times an image, and a large one takes longer. Beside an H200: of 101 kB more than 4 of
# 16 threads decode no more and hold up a Loader, of 257 kB 8 threads decode 7 per cent more than 4,
# with a Loader and without.
_LARGE = 180_000

T = TypeVar("T")


class HostThreads:
    """Two groups of threads, so that neither kind of image waits for the other.

    Args:
      ordinal: the CUDA device.
      canvas: (H, W) of each row.
      num_threads: for images that the engines refuse.
      num_sharing: for images that they could decode as well, if those are small; twice as many for
        large ones.
    """

    def __init__(self, ordinal: int, canvas: tuple[int, int], num_threads: int, num_sharing: int):
        self._ordinal = ordinal
        self._canvas = canvas
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="jaxaug-decode")
        self._sharing = [  # for batches of small images, of large ones
            (count, ThreadPoolExecutor(max(1, count), thread_name_prefix="jaxaug-share"))
            for count in (num_sharing, 2 * num_sharing)
        ]
        self._stream = cuda.create_stream()
        self._uploaders = []
        self._local = threading.local()

    def start(
        self, batch: Batch, pointers: np.ndarray, chosen: list[int], line: deque[int]
    ) -> "HostWork":
        """Begin to decode the chosen rows and, from its end on, the line, from which others take
        rows as well.

        Args:
          batch: the images.
          pointers: uint64[n], where each canvas begins.
        """
        work = HostWork(batch, pointers, line, self._uploader)
        rows = iter(chosen)  # shared: each thread takes the next when it is free
        try:
            for _ in range(min(self._num_threads, len(chosen))):
                work.tasks.append(self._pool.submit(work.decode, rows))
            count, pool = self._sharing[bool(line and batch.encoded.lengths.mean() > _LARGE)]
            for _ in range(min(count, len(line))):
                work.shares.append(pool.submit(work.decode, _from_the_end(line)))
        except BaseException:
            work.finish()
            raise
        return work

    def close(self) -> None:
        """Stop the threads and free their memory; the device is current."""
        for pool in (self._pool, *(pool for _, pool in self._sharing)):
            pool.shutdown()
        for uploader in self._uploaders:
            uploader.close()
        cuda.call("cudaStreamDestroy", self._stream)

    def _uploader(self) -> Uploader:
        """The calling thread's own."""
        if not hasattr(self._local, "uploader"):
            self._local.uploader = Uploader(self._ordinal, self._canvas, self._stream)
            self._uploaders.append(self._local.uploader)
        return self._local.uploader


class HostWork:
    """What the host threads do for one batch.

    Attributes:
      failures: row -> why it could not be decoded.
    """

    def __init__(
        self, batch: Batch, pointers: np.ndarray, line: deque[int], uploader: Callable[[], Uploader]
    ):
        self._batch = batch
        self._pointers = pointers
        self._line = line
        self._uploader = uploader
        self.tasks: list[Future[list[int]]] = []
        self.shares: list[Future[list[int]]] = []
        self.failures: dict[int, str] = {}

    def decode(self, rows: Iterable[int]) -> list[int]:
        """Decode rows in this thread: those that succeeded."""
        uploader = self._uploader()
        decoded = []
        try:
            for row in rows:
                data = self._batch.encoded.view(row)
                size = tuple(self._batch.size[row].tolist())
                try:
                    uploader.decode(
                        data, self._batch.headers.row(row), size, int(self._pointers[row])
                    )
                    decoded.append(row)
                except DecodeError as error:
                    self.failures[row] = error.reason
        finally:
            uploader.finish()
        return decoded

    def finish(self) -> list[int]:
        """Take no more from the line and wait until nothing is written any more: the rows that were
        decoded.

        Threads that still work on another batch's line are not waited for.
        """
        self._line.clear()
        decoded = all_results(
            [*self.tasks, *(share for share in self.shares if not share.cancel())]
        )
        return [row for rows in decoded for row in rows]


def all_results(futures: Sequence[Future[T]]) -> list[T]:
    """The results of all, or, once all have ended, the first exception."""
    try:
        wait(futures)
    except BaseException:  # Ctrl-C: they still write
        wait(futures)
        raise
    return [future.result() for future in futures]


def _from_the_end(line: deque[int]) -> Iterator[int]:
    with contextlib.suppress(IndexError):
        while True:
            yield line.pop()
