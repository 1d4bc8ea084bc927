"""The nvJPEG engine: batches on the JPEG engines of GPUs, what they refuse and a balancing share on
host threads.

An image goes
- to the engines: baseline JPEGs of 8 bit, 4:4:4, 4:2:2, 4:4:0, 4:2:0 or gray, with a header that
  all parsers read alike, and with sides of 16 pixels or more if their chroma is subsampled. Those
  that are upright and no larger than the canvas are decoded onto it; the others whole into slots,
  from where a kernel shrinks and turns them;
- to libjpeg-turbo or Pillow on a host thread: everything else and, of one GPU, a share of those.

The share balances itself: a batch's images wait in a line, the engines take most of it at a time
from one end, the threads one by one from the other, so that both have done when the line is empty,
however fast they are. With `deterministic` there is no share, so that an image's way depends on its
bytes alone. It needs engines: on GPUs without, a batched call decodes up to 50 images in another
way than more (nvjpeg.h). Nor is
there a share with several GPUs: their host threads would all wait for one GIL, and the GPUs for
them (of four H200, 112,000 images/s without, 50,000 with a share).
"""

import contextlib
import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug._typing import Device
from jaxaug.decode._backend import DecodedBatch, make_batch
from jaxaug.decode._types import Encoded
from jaxaug.decode.native import cuda, libnvjpeg
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.decode.nvjpeg.batched_decoder import TURNS, BatchedDecoder
from jaxaug.decode.nvjpeg.canvas_buffers import Lane, Lanes, buffer_budget
from jaxaug.decode.nvjpeg.dispatch import (
    ENGINES,
    HOST,
    SLOT,
    Batch,
    commonest_first,
    routes,
    slot_bytes,
)
from jaxaug.decode.nvjpeg.host_threads import HostThreads, all_results
from jaxaug.decode.nvjpeg.image_slots import Slots
from jaxaug.decode.nvjpeg.resample import compile_resampler
from jaxaug.decode.parse.headers import Headers

_REGION_SHARE = 1 / 8  # of the device budget, for each of the regions of slots
_MAX_REGION = 512 * 2**20  # bytes: 14 images of 12 megapixels
IN_FLIGHT = 3  # batches: two on the engines, one before or behind them
_LEAST = 64  # images of a batched call, if there are as many: fewer keep the engines less busy
_MOST = (
    3 / 4
)  # of a line go to the engines at once: beside an H200's, 4 or 8 host threads decode a fifth
# a chroma sampling that fewer than one in so many have would cost the engines a call for a few
# images
_RARE = 64


class NvjpegBackend:
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
    # "refused": images of "host" that the engines were asked for in vain
    counted: tuple[str, ...] = ("engines", "host", "refused")

    def __init__(
        self,
        devices: Sequence[Device],
        canvas: tuple[int, int],
        num_threads: int,
        deterministic: bool,
    ):
        cuda.core()
        self._canvas = canvas
        threads = max(1, num_threads // (2 * len(devices)))  # the other CPUs are for the callers
        # With more, a Loader waits for the GIL longer than they help it.
        sharing = num_threads // 4 if len(devices) == 1 and not deterministic else 0
        self._gpus: list[_Gpu] = []
        self._pool = ThreadPoolExecutor(len(devices) * IN_FLIGHT, thread_name_prefix="jaxaug-gpu")
        # Runs at `close`, when the last reference goes (a lent batch has one), and if one of the
        # GPUs cannot be used.
        self._finalizer = weakref.finalize(self, _close, self._gpus, self._pool, os.getpid())
        self._finalizer.atexit = False
        self._first = devices[0].local_hardware_id or 0
        with cuda.on_device(self._first):
            for device in devices:
                self._gpus.append(_Gpu(device, canvas, threads, sharing, deterministic))

    @property
    def bytes_held(self) -> int:
        """The memory that canvases and slots take by now on all GPUs."""
        return sum(gpu.bytes_held for gpu in self._gpus)

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedBatch:
        """Decode the good rows; see `Backend`. Up to `IN_FLIGHT` calls run at once."""
        with cuda.on_device(self._first):  # afterwards the caller's is current again
            return self._decode(encoded, headers, size)

    def _decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedBatch:
        count = len(headers.kind) // len(self._gpus)
        if not count:
            return make_batch(
                headers,
                size,
                self._canvas,
                pixels=[gpu.empty() for gpu in self._gpus],
                failures={},
                counts={},
                release=lambda readers: None,
                borrowed=False,
            )
        batch = Batch(encoded, headers, size, routes(headers, size, self._gpus[0].largest_slot))
        taken: list[tuple[Lane, np.ndarray]] = []

        def release(readers: Any) -> None:
            for gpu, (lane, _) in zip(self._gpus, taken):
                gpu.lanes.put(lane, readers)

        started = time.perf_counter()
        try:
            for gpu in (
                self._gpus
            ):  # in this order: callers that hold a lane and wait for another never wait in a ring
                taken.append(gpu.take(count))
            wait_seconds = time.perf_counter() - started
            results = self._decode_parts(batch, taken)
            pixels = [lane.view(count) for lane, _ in taken]
        except BaseException:
            release(())
            raise
        failures = {
            n * count + row: why
            for n, result in enumerate(results)
            for row, why in result.failures.items()
        }
        decoded = {
            name: sum(result.decoded[name] for result in results) for name in results[0].decoded
        }
        return make_batch(
            headers,
            size,
            self._canvas,
            pixels=pixels,
            failures=failures,
            counts=decoded,
            release=release,
            borrowed=True,
            wait_seconds=wait_seconds,
        )

    def _decode_parts(self, batch: Batch, taken: list[tuple[Lane, np.ndarray]]) -> "list[Result]":
        """As many rows as a lane has pointers on each GPU, all at the same time; once it returns or
        raises, nothing is
        written any more."""
        if len(taken) == 1:  # in the caller's thread
            return [self._gpus[0].decode(batch, *taken[0])]
        count = len(taken[0][1])
        parts = [batch.part(slice(n * count, (n + 1) * count)) for n in range(len(taken))]
        works = zip(self._gpus, parts, taken)
        return all_results(
            [self._pool.submit(gpu.decode, part, *lane) for gpu, part, lane in works]
        )

    def close(self) -> None:
        """Stop the threads and free the buffers."""
        self._finalizer()


class Result(NamedTuple):
    """Why rows of a GPU failed, and how many images each backend decoded."""

    failures: dict[int, str]
    decoded: dict[str, int]


class _Gpu:
    """One GPU: its lanes, its batched decoder, its host threads, and the balance between them.

    Args:
      device: of CUDA.
      canvas: (H, W).
      num_threads: for what the engines refuse.
      num_sharing: threads that take a share of the rest.
      deterministic: see the module's text.
    """

    def __init__(
        self,
        device: Device,
        canvas: tuple[int, int],
        num_threads: int,
        num_sharing: int,
        deterministic: bool,
    ):
        self._device = device
        self._canvas = canvas
        self._share = num_sharing > 0
        self._ordinal = device.local_hardware_id or 0
        cuda.set_device(self._ordinal)
        self._threads = HostThreads(self._ordinal, canvas, num_threads, num_sharing)
        try:
            self._handle = _make_handle(deterministic)
        except BaseException:
            self._threads.close()
            raise
        self._batched = BatchedDecoder(self._handle)
        self._slots = _make_slots(canvas)
        slots = 0 if self._slots is None else TURNS * self._slots.region_bytes
        self.lanes = Lanes(self._ordinal, canvas, _device_budget() - slots)

    @property
    def largest_slot(self) -> int:
        """Bytes of the largest image that can be decoded whole; 0 where none can."""
        return 0 if self._slots is None else self._slots.region_bytes

    @property
    def bytes_held(self) -> int:
        """The device memory that canvases and slots take by now."""
        return self.lanes.bytes_held + (0 if self._slots is None else self._slots.bytes_held)

    def empty(self) -> jax.Array:
        """A batch of no rows."""
        return jax.device_put(np.zeros((0, *self._canvas, 3), np.uint8), self._device)

    def take(self, rows: int) -> tuple[Lane, np.ndarray]:
        """A free lane, which the caller puts back, and where its canvases begin."""
        cuda.set_device(self._ordinal)
        return self.lanes.take(rows)

    def decode(self, batch: Batch, lane: Lane, pointers: np.ndarray) -> Result:
        """Decode into a lane."""
        cuda.set_device(self._ordinal)
        by_engines, alike = commonest_first(
            np.isin(batch.ways, (ENGINES, SLOT)).nonzero()[0], batch.headers.sampling
        )
        rare = (alike * _RARE < len(by_engines)) & self._share
        line = deque(by_engines[~rare].tolist())
        chosen = [*by_engines[rare].tolist(), *(batch.ways == HOST).nonzero()[0].tolist()]
        worth_sharing = self._share and (len(line) >= 2 * _LEAST or not self._batched.idle())
        work = self._threads.start(batch, pointers, chosen, line if worth_sharing else deque())
        taken: list[int] = []
        refused: list[list[int]] = []
        try:
            while line:
                rows, decoded = self._take_and_decode(batch, line, pointers)
                taken += rows
                refused += [] if decoded else [rows]
        finally:  # until then the threads write to the lane
            by_host = work.finish()
        skipped = lane.wipe_marks(~_chosen(by_host, len(pointers)))
        skipped[[row for rows in refused for row in rows]] = False
        again = [row for row in taken if skipped[row]]
        to_host = self._decode_again(lane, batch, pointers, refused, again)
        more = self._threads.start(batch, pointers, to_host, deque())
        by_host += more.finish()
        failures = work.failures | more.failures
        lane.clear(list(failures))
        counts = (len(taken) - len(to_host), len(by_host), len(to_host))
        return Result(failures, dict(zip(NvjpegBackend.counted, counts)))

    def _take_and_decode(
        self, batch: Batch, line: deque[int], pointers: np.ndarray
    ) -> tuple[list[int], bool]:
        """Decode the first part of the line on the engines: (its rows, False if some image was
        refused).

        A batched call has no status an image.
        """
        with self._batched.turns:
            all_of_it = not self._share or len(line) < 2 * _LEAST
            taken = _take(line, len(line) if all_of_it else int(len(line) * _MOST))
            return taken, self._decode_rows(batch, taken, pointers)

    def _decode_rows(self, batch: Batch, chosen: list[int], pointers: np.ndarray) -> bool:
        """Decode rows on the engines, with the caller's turn; return False if they refuse one."""
        rows = np.array(chosen, np.int64)
        whole = batch.ways[rows] == SLOT
        try:
            if whole.any():
                self._decode_through_slots(batch, rows[~whole], rows[whole], pointers)
            else:
                self._decode_to(batch, rows, pointers[rows], self._pitches(len(rows)))
        except libnvjpeg.NvjpegError as error:
            if error.status == libnvjpeg.ALLOCATOR_FAILURE:
                raise cuda.memory_error("for the buffers of nvJPEG", error) from error
            return False
        return True

    def _decode_through_slots(
        self, batch: Batch, direct: np.ndarray, whole: np.ndarray, pointers: np.ndarray
    ) -> None:
        """Decode some rows onto their canvases, and others into slots and from there; the first
        group together.
        """
        assert self._slots is not None
        widths = batch.headers.width[whole].astype(np.uint64)
        sizes = slot_bytes(batch.headers.height[whole], batch.headers.width[whole])
        with self._slots.lend() as region:
            for group in region.groups(sizes):
                rows = whole[group]
                slots = region.prepare(batch, rows, pointers[rows])
                self._decode_to(
                    batch,
                    np.concatenate([direct, rows]),
                    np.concatenate([pointers[direct], slots]),
                    np.concatenate([self._pitches(len(direct)), 3 * widths[group]]),
                )
                region.resample()
                direct = direct[:0]

    def _decode_to(
        self, batch: Batch, rows: np.ndarray, pointers: np.ndarray, pitches: np.ndarray
    ) -> None:
        sampling = batch.headers.sampling[rows]
        self._batched.decode(batch.encoded.take(rows), sampling, pointers, pitches)

    def _pitches(self, count: int) -> np.ndarray:
        """Return uint64[count], the bytes of a canvas row."""
        return np.full(count, self._canvas[1] * 3, np.uint64)

    def _decode_again(
        self,
        lane: Lane,
        batch: Batch,
        pointers: np.ndarray,
        refused: list[list[int]],
        skipped: list[int],
    ) -> list[int]:
        """Decode what the engines have refused or skipped; return the rows that they do again.

        A refused call is halved until the image that it is refused for stands alone: of 256 images
        that is after 16 calls.

        Args:
          refused: the rows of each refused call.
          skipped: rows that were not written.
        """
        parts = [skipped] if skipped else []
        to_host = list[int]()

        def split(rows: list[int]) -> None:
            if len(rows) == 1:
                to_host.extend(rows)
            else:
                parts.extend((rows[: len(rows) // 2], rows[len(rows) // 2 :]))

        for rows in refused:
            split(rows)
        while parts:
            rows = parts.pop()
            lane.mark(rows)
            with self._batched.turns:
                decoded = self._decode_rows(batch, rows, pointers)
            missing = lane.wipe_marks(_chosen(rows, len(pointers)))
            if decoded:
                to_host += [row for row in rows if missing[row]]
            else:
                split(rows)
        return to_host

    def close(self) -> None:
        """Stop the threads and free the buffers."""
        with cuda.on_device(
            self._ordinal
        ):  # the garbage collector's thread may be at work on another one
            for part in (self._threads, self.lanes, self._batched, self._slots):
                if part is not None:
                    part.close()
            libnvjpeg.destroy("nvjpegDestroy", self._handle)


def _close(gpus: list[_Gpu], pool: ThreadPoolExecutor, process: int) -> None:
    if os.getpid() != process:  # a forked child has neither the threads nor the device
        return
    pool.shutdown()
    for gpu in gpus:
        gpu.close()


def _make_handle(deterministic: bool) -> Any:
    """Return a handle for the engines, or for the GPU's multiprocessors where it has no engines.

    Raises:
      LibraryError: it has none, and the pixels are to be deterministic.
    """
    try:
        return libnvjpeg.create_handle(libnvjpeg.HARDWARE)
    except libnvjpeg.NvjpegError as error:
        if deterministic:
            raise LibraryError(
                f"this GPU has no JPEG engines ({error}), and on its multiprocessors the pixels of "
                "an image depend on its batch, which `deterministic` forbids: take backend='auto' or "
                "'host'."
            ) from error
        return libnvjpeg.create_handle(libnvjpeg.GPU_HYBRID)


def _make_slots(canvas: tuple[int, int]) -> Slots | None:
    """Return the slots of the current device; None, with a warning, where their kernel cannot be
    compiled.
    """
    try:
        resampler = compile_resampler()
    except LibraryError as error:
        warnings.warn(
            f"images larger than the canvas, or turned by EXIF, are decoded on the host: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    size = min(int(_device_budget() * _REGION_SHARE), _MAX_REGION)
    return Slots(resampler, TURNS, size, canvas[1] * 3)


def _device_budget() -> int:
    """Return the bytes that canvases and slots may take of the current device."""
    _, total = cuda.call("cudaMemGetInfo")
    return buffer_budget(int(total))


def _take(line: deque[int], count: int) -> list[int]:
    """At most `count` items from the beginning, while other threads take some from the end."""
    taken = []
    with contextlib.suppress(IndexError):
        while len(taken) < count:
            taken.append(line.popleft())
    return taken


def _chosen(rows: list[int], count: int) -> np.ndarray:
    """bool[count], true at `rows`."""
    chosen = np.zeros(count, bool)
    chosen[rows] = True
    return chosen
