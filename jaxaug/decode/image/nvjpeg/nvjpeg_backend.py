"""The nvJPEG backend: the JPEG engines of GPUs, together with host threads.

The engines decode baseline JPEGs of 8 bits, 4:4:4, 4:2:2, 4:4:0, 4:2:0 or gray, whose header all
parsers read alike and whose sides are 16 pixels or more if their chroma is subsampled. Images that
are upright and no larger than the canvas are decoded onto it; the others are decoded whole into
slots, and a kernel shrinks and orients them. Host threads decode everything else with libjpeg-turbo
or Pillow; the same kernel shrinks and orients what libjpeg-turbo gives.

With one GPU, host threads also help with batches of large images, and with all where Python has no
GIL. The images of a batch wait in a queue, the largest in front: the helpers take one by one from
its start, the engines most of it at a time from its end, so both finish together, however fast they
are. With `deterministic` there are no helpers, because the pixels of an image may depend on its
bytes alone. That needs engines: on GPUs without, a batched call decodes up to 50 images differently
from more (nvjpeg.h). Nor are there helpers with several GPUs: they would all wait for one GIL, and
the GPUs for them (four H200: 112,000 images/s without, 50,000 with helpers).

Terms:
  queue: the rows of a batch that the engines decode and the helpers may take.
  assigned: the rows of a batch that only the host threads decode.
  buffer: device memory for the canvases of one batch (`canvas_buffers.py`).
  slot: device memory for one whole image (`image_slots.py`).
  sentinel: a color in the first pixel of a canvas or slot, which a decoded image overwrites.
  permit: allows a thread one batched call (`batched_decoder.py`).
  refused: of a batched call that fails, or of an image that the engines do not decode at all.
  skipped: of an image that is not written by a batched call that succeeds.
"""

import contextlib
import functools
import os
import time
import warnings
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug._hardware_queues import warn_if_late
from jaxaug._typing import Device
from jaxaug.decode._column import release_nothing
from jaxaug.decode._cpus import has_gil
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.backend import Backend, DecodedPixels, warn_of_host
from jaxaug.decode.image.nvjpeg.batched_decoder import MAX_RUNNING_CALLS, BatchedDecoder
from jaxaug.decode.image.nvjpeg.canvas_buffers import BufferPool, CanvasBuffer, buffer_budget
from jaxaug.decode.image.nvjpeg.dispatch import (
    HOST,
    USUAL_SAMPLINGS,
    Batch,
    assign_backends,
    images_for_engines,
    leave_rare_samplings,
)
from jaxaug.decode.image.nvjpeg.host_threads import HostThreads, RowQueue, all_results
from jaxaug.decode.image.nvjpeg.image_slots import RegionPool
from jaxaug.decode.image.nvjpeg.resize_and_orient import Resampler, compile_resampler
from jaxaug.decode.image.parse.headers import Headers
from jaxaug.decode.native import cuda, libnvjpeg
from jaxaug.decode.native.load_library import LibraryError

_REGIONS = MAX_RUNNING_CALLS + 1  # one for images that are resampled while others are decoded
_REGION_FRACTION = 1 / 8  # of the device budget, for each region of slots
_MAX_REGION = 512 * 2**20  # bytes: 14 images of 12 megapixels

# Images of a batched call, if there are as many; fewer keep the engines less busy.
_MIN_CALL = 64
# Pixels from which an image is worth the help of a thread, which waits for the GIL some five times.
# Help pays where most images are large. On an H200 with 16 cores a Loader delivers 11,200
# photographs/s of a megapixel, the largest of which 8 threads take, and 9,300 if they take the
# smallest. Of unselected ImageNet, 4 per cent of which are large, it delivers 17,100 instead of
# 18,900 if the threads take those; without the GIL, if they take any, 22,100 to 26,100 for 20,900.
_MIN_LARGE_IMAGE = 400_000
# Fraction of many large images that the engines leave to the helpers at first: with the engines of
# an H200, 12 decode a tenth to a quarter.
_HELP_FRACTION = 1 / 4

_NO_ROWS = RowQueue(np.zeros(0, np.int64), 0)
# Batches: two on the engines, and one before or after them. A fourth takes 350 MB for nothing: on
# an H200 unselected images come at 21,300/s instead of 22,400, photographs at 10,000 instead of
# 9,700. Where the memory suffices for fewer buffers, a call waits for one (`BufferPool.take`).
MAX_IN_FLIGHT = 3

_TakenBuffer = tuple[CanvasBuffer, np.ndarray]  # with the addresses of its canvases


class GpuResult(NamedTuple):
    """The outcome of the rows of one GPU.

    Attributes:
      failures: row of the batch -> reason.
      counts: how many images each backend decoded, see `NvjpegBackend.counted`.
    """

    failures: dict[int, str]
    counts: dict[str, int]


class Gpu:
    """One GPU with its canvas buffers, its batched decoder and its host threads.

    Args:
      device: of CUDA.
      handle: of nvJPEG on that device.
      canvas_shape: (H, W, channels).
      num_threads: host threads for images that the engines cannot decode.
      num_helpers: host threads that take some of the other images if these are large.
    """

    def __init__(
        self,
        device: Device,
        handle: Any,
        canvas_shape: tuple[int, int, int],
        num_threads: int,
        num_helpers: int,
    ):
        self._device = device
        self._handle = handle
        self._canvas_shape = canvas_shape
        self._ordinal = device.local_hardware_id or 0
        cuda.set_device(self._ordinal)
        resampler = _make_resampler(canvas_shape[2])
        _, total = cuda.call("cudaMemGetInfo")
        budget = buffer_budget(int(total))
        region_bytes = min(int(budget * _REGION_FRACTION), _MAX_REGION)
        self._threads = HostThreads(
            ordinal=self._ordinal,
            canvas_shape=canvas_shape,
            num_threads=num_threads,
            num_helpers=num_helpers,
            resampler=resampler,
            slots_bytes=region_bytes,
        )
        self._batched = BatchedDecoder(handle, canvas_shape[2])
        with contextlib.suppress(libnvjpeg.NvjpegError):  # the first batch will tell
            for sampling in USUAL_SAMPLINGS:
                self._batched.make_states(sampling)
        self._regions = None
        if resampler is not None:
            self._regions = RegionPool(resampler, _REGIONS, region_bytes, canvas_shape)
            budget -= (_REGIONS + 1) * region_bytes  # one for the slots of the host threads
        self.buffers = BufferPool(self._ordinal, canvas_shape, budget)

    @property
    def max_slot_bytes(self) -> int:
        """Bytes of the largest image that can be decoded whole; 0 if none can."""
        return 0 if self._regions is None else self._regions.region_bytes

    @property
    def bytes_held(self) -> int:
        """The device memory that canvases and slots take now."""
        regions = 0 if self._regions is None else self._regions.bytes_held
        return self.buffers.bytes_held + regions + self._threads.bytes_held

    def empty(self) -> jax.Array:
        """Return the pixels of a batch of no rows."""
        return jax.device_put(np.zeros((0, *self._canvas_shape), np.uint8), self._device)

    def take_buffer(self, rows: int) -> tuple[CanvasBuffer, np.ndarray]:
        """Return a buffer, which the caller gives back, and the addresses of its canvases."""
        cuda.set_device(self._ordinal)
        return self.buffers.take(rows)

    def decode(
        self,
        batch: Batch,
        rows: range,
        images: np.ndarray,
        buffer: CanvasBuffer,
        pointers: np.ndarray,
    ) -> GpuResult:
        """Decode some rows of a batch into a buffer.

        Args:
          batch: n images.
          rows: those whose canvases are in the buffer, in its order.
          images: those of the rows that are for the engines, from `images_for_engines`.
          buffer: from `take_buffer`.
          pointers: uint64[n], the address of each canvas.
        """
        cuda.set_device(self._ordinal)
        queue = RowQueue(images["row"], self._count_for_helpers(batch, images))
        assigned = (batch.backends[rows.start : rows.stop] == HOST).nonzero()[0] + rows.start
        work = self._threads.start(batch, pointers, assigned.tolist(), queue)

        decoded: list[np.ndarray] = []
        refused: list[np.ndarray] = []
        try:
            while queue:
                part, succeeded = self._decode_next(images, queue)
                (decoded if succeeded else refused).append(part)
        finally:  # until then the threads write to the buffer
            host_rows = work.finish()

        kept = [row - rows.start for row in host_rows]
        unwritten = buffer.take_unwritten_rows(len(rows), kept) + rows.start
        skipped: list[np.ndarray] = []
        if unwritten.size:
            skipped = [part[np.isin(part["row"], unwritten)] for part in decoded]
        given_up = self._decode_again(buffer, rows, refused, skipped)

        failures = work.failures
        if given_up:
            last_work = self._threads.start(batch, pointers, given_up, _NO_ROWS)
            host_rows += last_work.finish()
            failures |= last_work.failures
        buffer.clear([row - rows.start for row in failures])
        counts = {
            "engines": sum(map(len, decoded + refused)) - len(given_up),
            "host": len(host_rows),
            "refused": len(given_up),
        }
        return GpuResult(failures, counts)

    def close(self) -> None:
        """Stop the threads and free the buffers."""
        # The garbage collector may call this in a thread that uses another device.
        with cuda.on_device(self._ordinal):
            for resource in (self._threads, self.buffers, self._batched, self._regions):
                if resource is not None:
                    resource.close()
            libnvjpeg.destroy("nvjpegDestroy", self._handle)

    def _count_for_helpers(self, batch: Batch, images: np.ndarray) -> int:
        """Return how many of the images, from the first on, helpers may take.

        Args:
          batch: n images.
          images: `IMAGE`[k], from `images_for_engines`.
        """
        if not self._threads.num_helpers:
            return 0
        if len(images) < 2 * _MIN_CALL and self._batched.has_free_permit():
            return 0
        if not has_gil():
            return len(images)
        rows = images["row"]
        pixels = batch.headers.height[rows].astype(np.int64) * batch.headers.width[rows]
        large = int(np.count_nonzero(pixels > _MIN_LARGE_IMAGE))
        return large if 2 * large > len(images) else 0

    def _decode_next(self, images: np.ndarray, queue: RowQueue) -> tuple[np.ndarray, bool]:
        """Decode the next images of the queue on the engines.

        Args:
          images: `IMAGE`[k].
          queue: their rows, of which helpers may take some as well.

        Returns:
          The images, and False if the engines refused some of them: a batched call has no status
          per image.
        """
        with contextlib.ExitStack() as permit:
            permit.enter_context(self._batched.permits)
            count = len(queue)
            if (large := queue.left_for_helpers()) >= 2 * _MIN_CALL:
                count -= int(large * _HELP_FRACTION)
            part = images[queue.take_last(count)]
            # Helpers may have taken the last rows while this thread waited for its permit.
            return part, not part.size or self._decode_images(part, permit)

    def _decode_images(self, images: np.ndarray, permit: contextlib.ExitStack) -> bool:
        """Decode images on the engines; return False if they refuse one.

        Args:
          images: `IMAGE`[k], at least one.
          permit: of the caller, given back as soon as the engines are not needed any more.
        """
        try:
            if images["slot_bytes"][0]:
                self._decode_through_slots(images, permit)
            else:
                self._call_engines(images, images["record"]["canvas"])
        except libnvjpeg.NvjpegError as error:
            if error.status == libnvjpeg.ALLOCATOR_FAILURE:
                raise cuda.memory_error("for the buffers of nvJPEG", error) from error
            return False
        return True

    def _decode_through_slots(self, images: np.ndarray, permit: contextlib.ExitStack) -> None:
        """Decode images of which some need a slot; the last call decodes the others, too.

        Args:
          images: `IMAGE`[k].
          permit: of the caller, given back before the last images are resampled. Before that, a
            thread that waits for a permit could have the region for which one with a permit waits.
        """
        assert self._regions is not None
        with self._regions.borrow() as region:
            parts = region.split_to_fit(images["slot_bytes"])
            for part in parts:
                some = images[part]
                self._call_engines(some, region.prepare(some))
                if part is parts[-1]:
                    permit.close()
                region.resample()

    def _call_engines(self, images: np.ndarray, pointers: np.ndarray) -> None:
        """Decode images to addresses uint64[k]; the caller of `decode` holds their bytes."""
        encoded = Encoded(images["address"], images["length"], None)
        self._batched.decode(encoded, images["sampling"], pointers, images["pitch"])

    def _decode_again(
        self,
        buffer: CanvasBuffer,
        rows: range,
        refused: list[np.ndarray],
        skipped: list[np.ndarray],
    ) -> list[int]:
        """Decode images again that the engines refused or skipped.

        A refused call is halved until the bad image stands alone: for 256 images after 16 calls.

        Args:
          buffer: of the canvases.
          rows: of the batch, those of the canvases.
          refused: the images of each refused call.
          skipped: the images of each other call that were not written.

        Returns:
          The rows of the images that the engines still do not decode.
        """
        pending = [images for images in skipped if images.size]
        given_up: list[int] = []
        for images in refused:
            _halve(images, pending, given_up)

        while pending:
            images = pending.pop()
            canvases = (images["row"] - rows.start).tolist()
            buffer.write_sentinels(canvases)
            with contextlib.ExitStack() as permit:
                permit.enter_context(self._batched.permits)
                decoded = self._decode_images(images, permit)
            others = set(range(len(rows))).difference(canvases)
            unwritten = buffer.take_unwritten_rows(len(rows), sorted(others)) + rows.start
            if decoded:
                given_up += unwritten.tolist()
            else:
                _halve(images, pending, given_up)
        return given_up


def _halve(images: np.ndarray, pending: list[np.ndarray], given_up: list[int]) -> None:
    """Add both halves of a refused call to `pending`, or its only row to `given_up`."""
    if images.size == 1:
        given_up.append(int(images["row"][0]))
        return
    middle = images.size // 2
    pending.extend((images[:middle], images[middle:]))


def _make_handle(deterministic: bool) -> Any:
    """Return a handle for the engines, or for the GPU's multiprocessors if it has no engines.

    Raises:
      LibraryError: it has none, but the pixels must be deterministic.
      MemoryError: the device has no memory left, which says nothing about engines.
    """
    try:
        return libnvjpeg.create_handle(libnvjpeg.HARDWARE)
    except libnvjpeg.NvjpegError as error:
        if error.status == libnvjpeg.ALLOCATOR_FAILURE:
            raise cuda.memory_error("for nvJPEG", error) from error
        if deterministic:
            raise LibraryError(
                f"this GPU has no JPEG engines ({error}), and on its multiprocessors the pixels of "
                "an image depend on its batch, which `deterministic` forbids: take backend='auto' "
                "or 'host'."
            ) from error
        return libnvjpeg.create_handle(libnvjpeg.GPU_HYBRID)


def _make_resampler(channels: int) -> Resampler | None:
    """Return the kernels for the current device, or None, with a warning, without NVRTC."""
    try:
        return compile_resampler(channels)
    except LibraryError as error:
        warnings.warn(
            f"images larger than the canvas, or turned by EXIF, are decoded on the host: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


class NvjpegBackend:
    """Decodes batches on GPUs, on each an equal number of rows; see the text of the module.

    Args:
      devices: CUDA devices of this process.
      canvas_shape: (H, W, channels); 3 channels for RGB, 1 for luma.
      num_threads: host threads for all GPUs together.
      deterministic: see the text of the module.
      instead: decodes all batches where CUDA fails while the GPUs start, which it closes, too; None
        for an error of each batch.

    Raises:
      LibraryError, NvjpegError, CudaError: nvJPEG or CUDA cannot be used here.
    """

    in_flight = MAX_IN_FLIGHT
    # "refused" counts those images of "host" that the engines failed to decode.
    counted: tuple[str, ...] = ("engines", "host", "refused")

    def __init__(
        self,
        devices: Sequence[Device],
        canvas_shape: tuple[int, int, int],
        num_threads: int,
        deterministic: bool,
        instead: Backend | None = None,
    ):
        warn_if_late()
        self._instead = instead
        cuda.runtime()  # before other threads import cuda-bindings, too
        threads_per_gpu = max(1, num_threads // (2 * len(devices)))  # others are for the callers
        # Of 16 threads on 16 cores; photographs of 4,000 x 3,000 on an H200 come at 1,517/s with 8,
        # 1,600 with 12, 1,623 with 15. The Loader's own threads and the training need a core, too.
        num_helpers = num_threads * 3 // 4 if len(devices) == 1 and not deterministic else 0

        self._has_helpers = num_helpers > 0
        self._canvas_shape = canvas_shape
        self._starts: list[Future[Gpu]] = []
        self._pool = ThreadPoolExecutor(
            len(devices) * MAX_IN_FLIGHT, thread_name_prefix="jaxaug-gpu"
        )
        # Runs at `close`, when the last reference goes (a borrowed batch has one), and if one of
        # the GPUs cannot be used.
        self._finalizer = weakref.finalize(self, _close, self._starts, self._pool, os.getpid())
        self._finalizer.atexit = False

        self._first_ordinal = devices[0].local_hardware_id or 0
        imported = self._pool.submit(cuda.core)  # beside the handles: 0.2 s, and 0.5 for each
        with cuda.on_device(self._first_ordinal):
            for device in devices:
                cuda.set_device(device.local_hardware_id or 0)
                handle = _make_handle(deterministic)
                # Beside what the caller does until the first batch: a Loader compiles.
                start = functools.partial(
                    _start, imported, device, handle, canvas_shape, threads_per_gpu, num_helpers
                )
                self._starts.append(self._pool.submit(start))
        imported.result()

    @functools.cached_property
    def _gpus(self) -> list[Gpu]:
        """The GPUs, once all have started."""
        return [start.result() for start in self._starts]

    @functools.cached_property
    def _can_decode(self) -> bool:
        """True once all GPUs have started, False if they cannot and there is another backend."""
        try:
            return bool(self._gpus)
        except cuda.CudaError as error:
            if self._instead is None:
                raise
            warn_of_host(error)
            return False

    @functools.cached_property
    def _max_slot_bytes(self) -> int:
        return min(gpu.max_slot_bytes for gpu in self._gpus)  # memory may differ

    @property
    def bytes_held(self) -> int:
        """The memory that canvases and slots take now on all GPUs."""
        return sum(gpu.bytes_held for gpu in self._gpus) if self._can_decode else 0

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedPixels:
        """Decode the good rows; see `Backend`. Up to `in_flight` calls run at once."""
        if self._instead is not None and not self._can_decode:
            return self._instead.decode(encoded, headers, size)
        with cuda.on_device(self._first_ordinal):  # the caller's device is current afterwards
            rows_per_gpu = len(headers.kind) // len(self._gpus)
            if not rows_per_gpu:
                return self._empty_batch()
            return self._decode(encoded, headers, size, rows_per_gpu)

    def _empty_batch(self) -> DecodedPixels:
        return DecodedPixels(
            pixels=[gpu.empty() for gpu in self._gpus],
            failures={},
            counts={},
            release=release_nothing,
        )

    def _decode(
        self, encoded: Encoded, headers: Headers, size: np.ndarray, rows_per_gpu: int
    ) -> DecodedPixels:
        backends = assign_backends(headers, size, self._max_slot_bytes, self._canvas_shape[2])
        if self._has_helpers:
            backends = leave_rare_samplings(backends, headers.sampling)
        batch = Batch(encoded=encoded, headers=headers, size=size, backends=backends)
        taken: list[_TakenBuffer] = []
        started = time.perf_counter()
        try:
            # In the order of the GPUs, so that no two callers wait for each other's buffers.
            for gpu in self._gpus:
                taken.append(gpu.take_buffer(rows_per_gpu))
            wait_seconds = time.perf_counter() - started
            results = self._decode_on_gpus(batch, taken, rows_per_gpu)
            pixels = [buffer.view(rows_per_gpu) for buffer, _ in taken]
        except BaseException:
            self._give_back(taken, ())
            raise

        failures: dict[int, str] = {}
        for result in results:
            failures |= result.failures
        return DecodedPixels(
            pixels=pixels,
            failures=failures,
            counts={name: sum(each.counts[name] for each in results) for name in results[0].counts},
            release=functools.partial(self._give_back, taken),
            wait_seconds=wait_seconds,
        )

    def _decode_on_gpus(
        self, batch: Batch, taken: list[_TakenBuffer], rows_per_gpu: int
    ) -> list[GpuResult]:
        """Decode on all GPUs at once; nothing writes any more when this returns or raises."""
        pointers = np.concatenate([canvases for _, canvases in taken])
        images = images_for_engines(batch, pointers, len(taken), self._canvas_shape)
        calls = []
        for number, (gpu, (buffer, _)) in enumerate(zip(self._gpus, taken)):
            rows = range(number * rows_per_gpu, (number + 1) * rows_per_gpu)
            call = functools.partial(
                gpu.decode,
                batch,
                rows,
                images=images[number],
                buffer=buffer,
                pointers=pointers,
            )
            calls.append(call)

        tasks: list[Future[GpuResult]] = []
        try:
            for call in calls[1:]:
                tasks.append(self._pool.submit(call))
            first = calls[0]()  # in the caller's thread
        finally:
            others = all_results(tasks) if tasks else []
        return [first, *others]

    def _give_back(self, taken: list[_TakenBuffer], readers: Any) -> None:
        """Give the buffers of a batch back; `readers` are arrays whose computation reads them."""
        for gpu, (buffer, _) in zip(self._gpus, taken):
            gpu.buffers.give_back(buffer, readers)

    def close(self) -> None:
        """Stop the threads and free the buffers."""
        self._finalizer()
        if self._instead is not None:
            self._instead.close()


def _start(imported: Future[Any], device: Device, handle: Any, *arguments: Any) -> Gpu:
    """Return a GPU, which has the handle then; without it the handle is freed."""
    try:
        imported.result()
        return Gpu(device, handle, *arguments)
    except BaseException:
        with cuda.on_device(device.local_hardware_id or 0):
            libnvjpeg.destroy("nvjpegDestroy", handle)
        raise


def _close(starts: list[Future[Gpu]], pool: ThreadPoolExecutor, process: int) -> None:
    if os.getpid() != process:  # a forked child has neither the threads nor the device
        return
    pool.shutdown()
    for start in starts:
        if start.exception() is None:
            start.result().close()
