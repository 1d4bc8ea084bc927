"""The nvJPEG engine: batches on the JPEG engines of GPUs, what they refuse and a balancing share on host threads.

An image goes
- to the engines: baseline JPEGs of 8 bit, 4:4:4, 4:2:2, 4:4:0, 4:2:0 or gray, upright and no larger than the canvas;
- to HYBRID (Huffman decoding on a host thread, the rest on the GPU): such progressive and extended ones, and as many
  of the engines' as make both finish together;
- to libjpeg-turbo or Pillow on a host thread: everything else.
With `deterministic` the engines' share is not divided, so that an image's way depends on its bytes alone.
"""

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug._typing import Device
from jaxaug.decode._engine import Canvases
from jaxaug.decode._header import BAD, JPEG, Headers
from jaxaug.decode._hybrid import HybridWorker
from jaxaug.decode._jpeg import GRAY, YCBCR
from jaxaug.decode._lane import Lane
from jaxaug.decode._types import Encoded
from jaxaug.decode.native import _cuda, _nvjpeg
from jaxaug.errors import DecodeError

_FEW = 8  # images: about as many as there are engines (7 on an H200)

IN_FLIGHT = 3  # batches: one on the engines, one before and one behind them

_ENGINES, _HYBRID, _HOST, _NONE = 0, 1, 2, 3
_SAMPLINGS = np.array([0x11111100, 0x21111100, 0x12111100, 0x22111100], np.uint32)  # 444, 422, 440, 420


def routes(headers: Headers, size: np.ndarray) -> np.ndarray:
    """Which way each image can go: uint8[n] of engines 0, HYBRID 1, host 2, none 3 (a bad image)."""
    same_size = (headers.height == size[:, 0]) & (headers.width == size[:, 1]) & (headers.orientation == 1)
    gray = (headers.color == GRAY) & (headers.components == 1)
    colour = (headers.color == YCBCR) & np.isin(headers.sampling, _SAMPLINGS)
    usual = (headers.kind == JPEG) & same_size & (gray | colour) & (headers.precision == 8)
    one_scan = headers.scan_components == headers.components
    engines = usual & (headers.coding == 0) & one_scan
    hybrid = usual & (headers.coding <= 2)
    way = np.where(engines, _ENGINES, np.where(hybrid, _HYBRID, _HOST))
    return np.where(headers.kind == BAD, _NONE, way).astype(np.uint8)


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
        threads = max(1, num_threads // len(devices) - 2)  # the engines' own call and its caller keep two CPUs busy
        self._gpus = [_Gpu(device, canvas, threads, deterministic) for device in devices]
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
                result.lane.lend(readers)
                gpu.lanes.put(result.lane)

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
    """One GPU: its lanes, its host threads, and the balance between them."""

    def __init__(self, device: Device, canvas: tuple[int, int], num_threads: int, deterministic: bool):
        self._device, self._canvas, self._deterministic = device, canvas, deterministic
        self._ordinal = device.local_hardware_id or 0
        self._num_threads = num_threads
        _cuda.set_device(self._ordinal)
        self._all_lanes = _make_lanes(self._ordinal, canvas)
        self.lanes: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for lane in self._all_lanes:
            self.lanes.put(lane)
        # The engines take one batched call at a time: two at once are a tenth slower (measured on an H200).
        self._engines = threading.Lock()
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="jaxaug-decode")
        self._workers: list[HybridWorker] = []
        self._hybrid_handle: Any = None  # shared: making one takes some tenths of a second
        self._making = threading.Lock()
        self._local = threading.local()
        self._balance = Balance()

    def empty(self) -> jax.Array:
        """A batch of no rows."""
        return jax.device_put(np.zeros((0, *self._canvas, 3), np.uint8), self._device)

    def decode(self, batch: Batch) -> Result:
        """Decode into a free lane, which the caller puts back."""
        _cuda.set_device(self._ordinal)
        lane = self.lanes.get()
        try:
            return self._decode(lane, batch)
        except BaseException:
            self.lanes.put(lane)
            raise

    def _decode(self, lane: Lane, batch: Batch) -> Result:
        pointers = lane.prepare(len(batch.ways))
        if not self._deterministic:
            batch = batch._replace(ways=self._balance.divide(batch.ways, batch.headers.sampling))
        rows = (batch.ways == _ENGINES).nonzero()[0]
        calls = lane.plan(batch.encoded.take(rows), pointers[rows], batch.headers.sampling[rows])
        failures: dict[int, str] = {}
        started = time.perf_counter()
        tasks = self._start_threads(batch, pointers, failures)
        refused = False
        try:
            with self._engines:
                lane.start(calls)
        except _nvjpeg.NvjpegError:
            refused = True  # a batched call has no status an image
        finally:
            lane.finish(calls)
            engines_done = time.perf_counter() - started
            counts = _all_results(tasks)
        skipped = lane.wipe_marks(len(batch.ways))
        redo = rows if refused else rows[skipped[rows]]
        if tasks and calls and not redo.size:
            self._balance.learn(engines_done, max(done for done, _ in counts) - started)
        to_host = np.array([row for row in redo if not lane.decode_one(batch.encoded, row, pointers)], np.int64)
        if to_host.size:
            ways = np.full(len(batch.ways), _NONE)
            ways[to_host] = _HOST
            counts += _all_results(self._start_threads(batch._replace(ways=ways), pointers, failures))
        lane.clear(list(failures))
        hybrid, host = (sum(count[which] for _, count in counts) for which in range(2))
        return Result(lane, failures, {"engines": len(rows) - len(to_host), "hybrid": hybrid, "host": host})

    def _start_threads(self, batch: Batch, pointers: np.ndarray, failures: dict[int, str]) -> list[Future]:
        """Host threads for the HYBRID and host ways; each gives (time when done, (hybrid, host) images)."""
        by_host, by_hybrid = ((batch.ways == way).nonzero()[0].tolist() for way in (_HOST, _HYBRID))
        # Shared by the threads: each takes the next when it is free, the slow ones first.
        rows = iter([(row, False) for row in by_host] + [(row, True) for row in by_hybrid])
        addresses, lengths = batch.encoded.addresses.tolist(), batch.encoded.lengths.tolist()
        targets = pointers.tolist()

        def work() -> tuple[float, tuple[int, int]]:
            worker, hybrid, host = self._worker(), 0, 0
            for row, try_hybrid in rows:
                pointer = targets[row]
                if try_hybrid and worker.decode(addresses[row], lengths[row], pointer):
                    hybrid += 1
                    continue
                try:
                    data, size = batch.encoded.view(row), tuple(batch.size[row].tolist())
                    worker.decode_on_host(data, batch.headers.row(row), size, pointer)
                    host += 1
                except DecodeError as error:
                    failures[row] = error.reason
            worker.wait()
            return time.perf_counter(), (hybrid, host)

        count = min(self._num_threads, len(by_host) + len(by_hybrid))
        return [self._pool.submit(work) for _ in range(count)]

    def _worker(self) -> HybridWorker:
        """This thread's own."""
        if not hasattr(self._local, "worker"):
            with self._making:
                self._hybrid_handle = self._hybrid_handle or _make_hybrid_handle(self._ordinal)
                self._local.worker = HybridWorker(self._ordinal, self._canvas, self._hybrid_handle)
                self._workers.append(self._local.worker)
        return self._local.worker

    def close(self) -> None:
        """Stop the threads and free the buffers."""
        self._pool.shutdown()
        for part in (*self._workers, *self._all_lanes):
            part.close()
        if self._hybrid_handle is not None:
            _nvjpeg.library().nvjpegDestroy(self._hybrid_handle)


class Balance:
    """How large a share of the engines' images the host threads take, so that both finish together.

    After each batch the share moves against the side that finished late, by a step in proportion to how late it was:
    no speed of either side need be known, and a host that gets busy with other work loses its share. A batched call
    on the engines waits until the whole device is idle (measured), so beside a training that fills the GPU they are
    late by whole training steps: the share then grows to all of the images, and the engines are only tried again
    now and then.
    """

    _STEP, _RETRY = 0.2, 64  # of the share for a side that took no time at all; batches between tries

    def __init__(self, share: float = 0.2):
        self._share, self._lock, self._batches = share, threading.Lock(), 0

    def divide(self, ways: np.ndarray, sampling: np.ndarray) -> np.ndarray:
        """`ways` with a share of the engines' rows given to HYBRID: rare samplings first, the rest evenly spread."""
        on_engines = (ways == _ENGINES).nonzero()[0]
        ways = ways.copy()
        kinds, kind, counts = np.unique(sampling[on_engines], return_inverse=True, return_counts=True)
        if len(kinds) > 1:  # a batched call of few images keeps few engines busy
            rare = counts[kind] < _FEW
            ways[on_engines[rare]] = _HYBRID
            on_engines = on_engines[~rare]
        count = int(self._next_share() * len(on_engines) + 0.5)
        if count:
            ways[on_engines[np.linspace(0, len(on_engines) - 1, count).astype(np.int64)]] = _HYBRID
        return ways

    def _next_share(self) -> float:
        with self._lock:
            self._batches += 1
            retry = self._share > 0.9 and self._batches % self._RETRY == 0
            return 0.5 if retry else 1.0 if self._share > 0.9 else self._share

    def learn(self, engines_seconds: float, threads_seconds: float) -> None:
        """Take in how long the two sides of a batch took; both had a part of it."""
        lateness = (engines_seconds - threads_seconds) / max(engines_seconds + threads_seconds, 1e-9)
        with self._lock:
            self._share = min(max(self._share + self._STEP * lateness, 0.01), 1.0)


def _make_lanes(ordinal: int, canvas: tuple[int, int]) -> list[Lane]:
    """Lanes on the engines, or on the GPU's multiprocessors where it has no engines."""
    lanes = [Lane(ordinal, canvas, _nvjpeg.HARDWARE) for _ in range(IN_FLIGHT)]
    try:
        lanes[0].open()
    except _nvjpeg.NvjpegError:
        lanes = [Lane(ordinal, canvas, _nvjpeg.GPU_HYBRID) for _ in range(IN_FLIGHT)]
        lanes[0].open()
    return lanes


def _make_hybrid_handle(ordinal: int) -> Any:
    _cuda.set_device(ordinal)
    return _nvjpeg.create_handle(_nvjpeg.HYBRID)


def _all_results(futures: list[Future]) -> list:
    """The results of all, or, once all have ended, the first exception."""
    errors = [error for future in futures if (error := future.exception())]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
