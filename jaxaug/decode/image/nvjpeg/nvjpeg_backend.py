"""The nvJPEG backend: the JPEG engines of GPUs, together with host threads.

The engines decode baseline JPEGs of 8 bits, 4:4:4, 4:2:2, 4:4:0, 4:2:0 or gray, whose header all
parsers read alike and whose sides are 16 pixels or more if their chroma is subsampled. Images that
are upright and no larger than the canvas are decoded onto it; the others are decoded whole into
slots, and a kernel shrinks and orients them. Host threads decode everything else with libjpeg-turbo
or Pillow; the same kernel shrinks and orients what libjpeg-turbo gives.

With one GPU, host threads also help with batches of large images. The images of a batch wait in a
queue, the largest in front: the helpers take one by one from its start, the engines most of it at a
time from its end, so both finish together, however fast they are. With `deterministic` there are no
helpers, because the pixels of an image may depend on its bytes alone. That needs engines: on GPUs
without, a batched call decodes up to 50 images differently from more (nvjpeg.h). Nor are there
helpers with several GPUs: they would all wait for one GIL, and the GPUs for them (four H200:
112,000 images/s without, 50,000 with helpers).

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

import functools
import os
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxaug._hardware_queues import warn_if_late
from jaxaug._typing import Device
from jaxaug.decode._column import release_nothing
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.backend import DecodedPixels
from jaxaug.decode.image.nvjpeg.canvas_buffers import CanvasBuffer
from jaxaug.decode.image.nvjpeg.dispatch import (
    Batch,
    assign_backends,
    images_for_engines,
    leave_rare_samplings,
)
from jaxaug.decode.image.nvjpeg.gpu import Gpu, GpuResult
from jaxaug.decode.image.nvjpeg.host_threads import all_results
from jaxaug.decode.image.parse.headers import Headers
from jaxaug.decode.native import cuda

# Batches: two on the engines, and one before or after them. A fourth takes 350 MB for nothing: on
# an H200 unselected images come at 21,300/s instead of 22,400, photographs at 10,000 instead of
# 9,700. Where the memory suffices for fewer buffers, a call waits for one (`BufferPool.take`).
MAX_IN_FLIGHT = 3

_TakenBuffer = tuple[CanvasBuffer, np.ndarray]  # with the addresses of its canvases


class NvjpegBackend:
    """Decodes batches on GPUs, on each an equal number of rows; see the text of the module.

    Args:
      devices: CUDA devices of this process.
      canvas_shape: (H, W, channels); 3 channels for RGB, 1 for luma.
      num_threads: host threads for all GPUs together.
      deterministic: see the text of the module.

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
    ):
        warn_if_late()
        cuda.core()
        threads_per_gpu = max(1, num_threads // (2 * len(devices)))  # others are for the callers
        # Of 16 threads on 16 cores; photographs of 4,000 x 3,000 on an H200 come at 1,517/s with 8,
        # 1,600 with 12, 1,623 with 15. The Loader's own threads and the training need a core, too.
        num_helpers = num_threads * 3 // 4 if len(devices) == 1 and not deterministic else 0

        self._has_helpers = num_helpers > 0
        self._canvas_shape = canvas_shape
        self._gpus: list[Gpu] = []
        self._pool = ThreadPoolExecutor(
            len(devices) * MAX_IN_FLIGHT, thread_name_prefix="jaxaug-gpu"
        )
        # Runs at `close`, when the last reference goes (a borrowed batch has one), and if one of
        # the GPUs cannot be used.
        self._finalizer = weakref.finalize(self, _close, self._gpus, self._pool, os.getpid())
        self._finalizer.atexit = False

        self._first_ordinal = devices[0].local_hardware_id or 0
        with cuda.on_device(self._first_ordinal):
            for device in devices:
                gpu = Gpu(
                    device,
                    canvas_shape,
                    num_threads=threads_per_gpu,
                    num_helpers=num_helpers,
                    deterministic=deterministic,
                )
                self._gpus.append(gpu)
        self._max_slot_bytes = min(gpu.max_slot_bytes for gpu in self._gpus)  # memory may differ

    @property
    def bytes_held(self) -> int:
        """The memory that canvases and slots take now on all GPUs."""
        return sum(gpu.bytes_held for gpu in self._gpus)

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedPixels:
        """Decode the good rows; see `Backend`. Up to `in_flight` calls run at once."""
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


def _close(gpus: list[Gpu], pool: ThreadPoolExecutor, process: int) -> None:
    if os.getpid() != process:  # a forked child has neither the threads nor the device
        return
    pool.shutdown()
    for gpu in gpus:
        gpu.close()
