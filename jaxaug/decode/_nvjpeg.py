"""The nvJPEG engine: batches on the JPEG engines of GPUs, what they refuse and a balancing share on host threads.

An image goes
- to the engines: baseline JPEGs of 8 bit, 4:4:4, 4:2:2, 4:4:0, 4:2:0 or gray, upright and no larger than the canvas;
- to libjpeg-turbo or Pillow on a host thread: everything else and, of one GPU, a share of those.

The share balances itself: a batch's images wait in a line, the engines take most of it at a time from one end, the
threads one by one from the other, so that both have done when the line is empty, however fast they are. With
`deterministic` there is no share, so that an image's way depends on its bytes alone. Nor is there one with several
GPUs: their host threads would all wait for one GIL, and the GPUs for them (of four H200, 112,000 images/s without,
50,000 with a share).
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug._typing import Device
from jaxaug.decode._batched import BatchedDecoder
from jaxaug.decode._engine import Canvases
from jaxaug.decode._header import Headers
from jaxaug.decode._lane import Lane, Lanes
from jaxaug.decode._routes import ENGINES, HOST, commonest_first, routes
from jaxaug.decode._types import Encoded
from jaxaug.decode._upload import Uploader
from jaxaug.decode.native import _cuda, _nvjpeg
from jaxaug.errors import DecodeError

IN_FLIGHT = 3  # batches: two on the engines, one before or behind them
_LEAST = 64  # images of a batched call, if there are as many: fewer keep the engines less busy
_MOST = 3 / 4  # of a line go to the engines at once: beside an H200's, 4 or 8 host threads decode a fifth
_SHARING = 2  # one in so many threads: more of them keep the GIL from a Loader for longer than they help
_RARE = 32  # one image in more than these, alone with its chroma sampling, costs the engines a call of its own


class NvjpegEngine:
    """Decodes batches on GPUs, each an equal share of the rows; see the module's text.

    Args:
      devices: CUDA devices of this process.
      canvas: (H, W).
      num_threads: host threads in all.
      deterministic: see the module's text.

    Raises:
      LibraryError, NvjpegError, CudaError: nvJPEG or CUDA cannot be used here.
    """

    in_flight = IN_FLIGHT

    def __init__(self, devices: Sequence[Device], canvas: tuple[int, int], num_threads: int, deterministic: bool):
        _cuda.core()
        threads = max(1, num_threads // (2 * len(devices)))  # the other CPUs are for the callers
        share = len(devices) == 1 and not deterministic
        self._gpus = [_Gpu(device, canvas, threads, share) for device in devices]
        self._pool = ThreadPoolExecutor(len(devices) * IN_FLIGHT, thread_name_prefix="jaxaug-gpu")

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> Canvases:
        """Decode the good rows; see `Engine`. Up to `IN_FLIGHT` calls run at once."""
        count = len(headers.kind) // len(self._gpus)
        if not count:
            return Canvases([gpu.empty() for gpu in self._gpus], {}, {}, lambda readers: None, lent=False)
        batch = Batch(encoded, headers, size, routes(headers, size))
        parts = [batch.part(slice(n * count, (n + 1) * count)) for n in range(len(self._gpus))]
        if len(parts) == 1:  # in the caller's thread
            results = [self._gpus[0].decode(parts[0])]
        else:
            results = _all_results([self._pool.submit(gpu.decode, part) for gpu, part in zip(self._gpus, parts)])
        failures = {n * count + row: why for n, result in enumerate(results) for row, why in result.failures.items()}
        decoded = {name: sum(result.decoded[name] for result in results) for name in results[0].decoded}

        def release(readers: Any) -> None:
            for gpu, result in zip(self._gpus, results):
                gpu.lanes.put(result.lane, readers)

        return Canvases([result.lane.view(count) for result in results], failures, decoded, release, lent=True)

    def close(self) -> None:
        """Stop the threads and free the buffers."""
        self._pool.shutdown()
        for gpu in self._gpus:
            gpu.close()


class Batch(NamedTuple):
    """The rows of a batch that one GPU decodes."""

    encoded: Encoded
    headers: Headers
    size: np.ndarray
    ways: np.ndarray  # uint8[n], see `routes`

    def part(self, rows: slice) -> "Batch":
        """Some of the rows."""
        addresses, lengths, owner = self.encoded
        headers = Headers(*(column[rows] for column in self.headers))
        return Batch(Encoded(addresses[rows], lengths[rows], owner), headers, self.size[rows], self.ways[rows])


class Result(NamedTuple):
    """The lane that a GPU decoded its rows to."""

    lane: Lane
    failures: dict[int, str]
    decoded: dict[str, int]


class _Gpu:
    """One GPU: its lanes, its batched decoder, its host threads, and the balance between them."""

    def __init__(self, device: Device, canvas: tuple[int, int], num_threads: int, share: bool):
        self._device, self._canvas, self._share = device, canvas, share
        self._ordinal = device.local_hardware_id or 0
        _cuda.set_device(self._ordinal)
        self._handle = _make_handle()
        self._batched = BatchedDecoder(self._ordinal, self._handle, canvas[1] * 3)
        self.lanes = Lanes(self._ordinal, canvas)
        self._num_threads, self._num_sharing, self._uploaders = num_threads, max(1, num_threads // _SHARING), []
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="jaxaug-decode")
        self._sharing = ThreadPoolExecutor(self._num_sharing, thread_name_prefix="jaxaug-share")
        self._uploads = _cuda.create_stream()
        self._local = threading.local()

    def empty(self) -> jax.Array:
        """A batch of no rows."""
        return jax.device_put(np.zeros((0, *self._canvas, 3), np.uint8), self._device)

    def decode(self, batch: Batch) -> Result:
        """Decode into a free lane, which the caller puts back."""
        _cuda.set_device(self._ordinal)
        lane, pointers = self.lanes.take(len(batch.ways))
        try:
            return self._decode(lane, pointers, batch)
        except BaseException:
            self.lanes.put(lane)
            raise

    def _decode(self, lane: Lane, pointers: np.ndarray, batch: Batch) -> Result:
        rows, alike = commonest_first((batch.ways == ENGINES).nonzero()[0], batch.headers.sampling)
        rare = (alike * _RARE < len(rows)) & self._share
        line, chosen = deque(rows[~rare].tolist()), [*rows[rare].tolist(), *(batch.ways == HOST).nonzero()[0].tolist()]
        failures: dict[int, str] = {}
        tasks = self._start_threads(batch, chosen, line, pointers, failures)
        taken, refused = [], []
        try:
            while line:
                rows, decoded = self._take_and_decode(batch, line, pointers)
                taken += rows
                refused += [] if decoded else rows
        finally:  # until then the threads write to the lane
            by_host = sum(_all_results(tasks))
        skipped = lane.wipe_marks(len(batch.ways))
        again = {*refused, *(row for row in taken if skipped[row])}
        to_host = [row for row in again if not self._decode_alone(lane, batch, row, pointers)]
        by_host += sum(_all_results(self._start_threads(batch, to_host, deque(), pointers, failures)))
        lane.clear(list(failures))
        return Result(lane, failures, {"engines": len(taken) - len(to_host), "host": by_host})

    def _take_and_decode(self, batch: Batch, line: deque[int], pointers: np.ndarray) -> tuple[list[int], bool]:
        """Decode the first part of the line on the engines: (its rows, False if some image was refused).

        A batched call has no status an image.
        """
        with self._batched.turns:
            all_of_it = not self._share or len(line) < 2 * _LEAST
            taken = _take(line, len(line) if all_of_it else int(len(line) * _MOST))
            rows = np.array(taken, np.int64)
            try:
                self._batched.decode(batch.encoded.take(rows), batch.headers.sampling[rows], pointers[rows])
            except _nvjpeg.NvjpegError:
                return taken, False
        return taken, True

    def _decode_alone(self, lane: Lane, batch: Batch, row: int, pointers: np.ndarray) -> bool:
        """Decode one image on the engines; False if they refuse or skip it."""
        lane.mark(row)
        _, decoded = self._take_and_decode(batch, deque([row]), pointers)
        return not lane.wipe_marks(len(batch.ways))[row] and decoded

    def _start_threads(
        self, batch: Batch, chosen: list[int], line: deque[int], pointers: np.ndarray, failures: dict[int, str]
    ) -> list[Future]:
        """Host threads that decode the chosen rows, and others for the end of the line; each gives how many."""
        targets = pointers.tolist()

        def work(rows: Iterable[int]) -> int:
            uploader, count = self._uploader(), 0
            try:
                for row in rows:
                    data, size = batch.encoded.view(row), tuple(batch.size[row].tolist())
                    try:
                        uploader.decode(data, batch.headers.row(row), size, targets[row])
                        count += 1
                    except DecodeError as error:
                        failures[row] = error.reason
            finally:  # until then the lane is written to
                uploader.finish()
            return count

        rows = iter(chosen)  # shared: each thread takes the next when it is free
        tasks = [self._pool.submit(work, rows) for _ in range(min(self._num_threads, len(chosen)))]
        if self._share and line and (len(line) >= 2 * _LEAST or not self._batched.idle()):  # idle engines do few sooner
            sharing = min(self._num_sharing, len(line))
            tasks += [self._sharing.submit(work, _last(line)) for _ in range(sharing)]
        return tasks

    def _uploader(self) -> Uploader:
        """This thread's own."""
        if not hasattr(self._local, "uploader"):
            self._local.uploader = Uploader(self._ordinal, self._canvas, self._uploads)
            self._uploaders.append(self._local.uploader)
        return self._local.uploader

    def close(self) -> None:
        """Stop the threads and free the buffers."""
        self._pool.shutdown()
        self._sharing.shutdown()
        for part in (*self._uploaders, self.lanes, self._batched):
            part.close()
        _cuda.call("cudaStreamDestroy", self._uploads)
        _nvjpeg.destroy("nvjpegDestroy", self._handle)


def _make_handle() -> Any:
    """For the engines, or for the GPU's multiprocessors where it has no engines."""
    try:
        return _nvjpeg.create_handle(_nvjpeg.HARDWARE)
    except _nvjpeg.NvjpegError:
        return _nvjpeg.create_handle(_nvjpeg.GPU_HYBRID)


def _take(line: deque[int], count: int, last: bool = False) -> list[int]:
    """At most `count` items from the left end, or the right one, while other threads take some, too."""
    taken = []
    with contextlib.suppress(IndexError):
        while len(taken) < count:
            taken.append(line.pop() if last else line.popleft())
    return taken


def _last(line: deque[int]) -> Iterator[int]:
    """The last items one by one, until other threads have taken the rest."""
    while line:
        yield from _take(line, 1, last=True)


def _all_results(futures: list[Future]) -> list:
    """The results of all, or, once all have ended, the first exception."""
    errors = [error for future in futures if (error := future.exception())]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
