"""The nvTIFF backend: TIFF in LZW on GPUs, pages of a batch at once, all else by host threads.

Pages whose canvases hold their numbers as they are stored are decoded there; those that are shrunk,
turned or converted go through the host threads, as do those that nvTIFF does not decode.
"""

import collections
import functools
import os
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug._hardware_queues import warn_if_late
from jaxaug._typing import Device
from jaxaug.decode._column import release_nothing
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.backend import Backend, DecodedPixels
from jaxaug.decode.image.deep.convert import is_as_stored
from jaxaug.decode.image.deep.tiff import Directory, page_alone
from jaxaug.decode.image.form import PixelForm
from jaxaug.decode.image.nvjpeg.canvas_buffers import BufferPool, CanvasBuffer, buffer_budget
from jaxaug.decode.image.nvjpeg.host_threads import all_results
from jaxaug.decode.image.parse.headers import BAD, DEEP, Headers
from jaxaug.decode.native import cuda
from jaxaug.decode.native.libnvtiff import TiffDecoder
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.decode.native.tiff_pages import Form, Page

_CALLS = 4  # that run on a GPU at once
_MAX_PAGES = 16  # of a call

_Taken = list[tuple[CanvasBuffer, np.ndarray]]  # with the addresses of its canvases


class Gpu:
    """One GPU with its canvas buffers and its decoders.

    Args:
      device: of CUDA.
      canvas_shape: (H, W, channels).
      dtype: of the pixels.
    """

    def __init__(self, device: Device, canvas_shape: tuple[int, ...], dtype: str):
        self.device = device
        self.ordinal = device.local_hardware_id or 0
        with cuda.on_device(self.ordinal):
            _, total = cuda.call("cudaMemGetInfo")
            decoders = [TiffDecoder(self.ordinal) for _ in range(_CALLS)]
        self.buffers = BufferPool(self.ordinal, canvas_shape, buffer_budget(int(total)), dtype)
        self._free = queue.SimpleQueue[TiffDecoder]()
        for decoder in decoders:
            self._free.put(decoder)

    def take(self, rows: int) -> tuple[CanvasBuffer, np.ndarray]:
        """Return a buffer, which the caller gives back, and the addresses of its canvases."""
        cuda.set_device(self.ordinal)
        return self.buffers.take(rows)

    def decode(self, form: Form, pages: list[Page], pointers: list[int], pitch: int) -> np.ndarray:
        """Decode some pages, see `TiffDecoder`; in any thread."""
        cuda.set_device(self.ordinal)
        decoder = self._free.get()
        try:
            return decoder.decode(form, pages, pointers, pitch)
        finally:
            self._free.put(decoder)

    def close(self) -> None:
        """Free the memory."""
        with cuda.on_device(self.ordinal):
            self.buffers.close()
            while not self._free.empty():
                self._free.get()


class NvtiffBackend:
    """Decodes batches on GPUs, on each an equal number of rows; see the text of the module.

    Nothing is taken of the GPUs until a batch has pages for them.

    Args:
      devices: CUDA devices of this process.
      canvas: (H, W).
      form: of the pixels.
      host: decodes what nvTIFF does not; it is closed with this one.
    """

    in_flight = 2  # of one the files are copied while the other is decoded
    counted: tuple[str, ...] = ("host", "nvtiff")

    def __init__(
        self,
        devices: Sequence[Device],
        canvas: tuple[int, int],
        form: PixelForm,
        host: Backend,
    ):
        warn_if_late()
        self._devices = devices
        self._shape = (*canvas, form.count)
        self._form = form
        self._host = host
        self._gpus: list[Gpu] | None = None
        self._opening = threading.Lock()
        self._pool = ThreadPoolExecutor(len(devices) * _CALLS, "jaxaug-nvtiff")

    @property
    def bytes_held(self) -> int:
        """The memory that canvases take now on all GPUs."""
        return sum(gpu.buffers.bytes_held for gpu in self._gpus or [])

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedPixels:
        """Decode the good rows; see `Backend`."""
        pages = self._pages(encoded, headers, size)
        gpus = self._open() if pages else []
        if not gpus:
            return self._host.decode(encoded, headers, size)
        started = time.perf_counter()
        with cuda.on_device(gpus[0].ordinal):  # the caller's device is current afterwards
            taken = self._take(gpus, len(headers.kind) // len(gpus))
            if taken is None:
                return self._host.decode(encoded, headers, size)
            wait_seconds = time.perf_counter() - started
            try:
                on_gpu = self._decode_pages(pages, gpus, taken, len(headers.kind))
                left = np.where(on_gpu, np.uint8(BAD), headers.kind)
                if (left != BAD).any():
                    others = self._host.decode(encoded, headers._replace(kind=left), size)
                    found = self._merge(taken, on_gpu, others)
                else:
                    found = self._alone(gpus, taken, on_gpu)
            except BaseException:
                self._give_back(taken, ())
                raise
        return found._replace(wait_seconds=wait_seconds)

    def _take(self, gpus: list[Gpu], rows: int) -> _Taken | None:
        """Return a buffer of each GPU; None where JAX has left one of them no memory for it."""
        taken: _Taken = []
        try:
            # In the order of the GPUs, so that no two callers wait for each other's buffers.
            for gpu in gpus:
                taken.append(gpu.take(rows))
        except BaseException as error:
            self._give_back(taken, ())
            if isinstance(error, MemoryError):
                return None
            raise
        return taken

    def _pages(
        self, encoded: Encoded, headers: Headers, size: np.ndarray
    ) -> dict[int, tuple[Form, Page]]:
        """Return the rows that nvTIFF decodes to their canvases."""
        pages = {}
        for row in (headers.kind == DEEP).nonzero()[0].tolist():
            layout = headers.layout[row]
            place = layout.place
            if not isinstance(place, Directory) or not place.on_gpu:
                continue
            if is_as_stored(layout, self._form, tuple(size[row].tolist())):
                page = page_alone(encoded.view(row), place)
                if page is not None:
                    pages[row] = (place.form, page)
        return pages

    def _open(self) -> list[Gpu]:
        """Return the GPUs, none where nvTIFF cannot be used."""
        with self._opening:
            if self._gpus is None:
                self._gpus = []
                try:
                    cuda.core()
                    dtype = self._form.dtype
                    self._gpus += [Gpu(device, self._shape, dtype) for device in self._devices]
                except (LibraryError, cuda.CudaError, RuntimeError):
                    return self._gpus
                close = weakref.finalize(self, _close, self._gpus, os.getpid())
                close.atexit = False
            return self._gpus

    def _decode_pages(
        self,
        pages: dict[int, tuple[Form, Page]],
        gpus: list[Gpu],
        taken: _Taken,
        count: int,
    ) -> np.ndarray:
        """Return bool[count], True for the pages that are on their canvases."""
        pointers = np.concatenate([canvases for _, canvases in taken])
        rows_per_gpu = count // len(taken)
        pitch = self._shape[1] * self._shape[2] * np.dtype(self._form.dtype).itemsize
        alike = collections.defaultdict[tuple[int, Form], list[int]](list)
        for row, (form, _) in pages.items():
            alike[row // rows_per_gpu, form].append(row)
        calls: list[list[int]] = []
        tasks = []
        for (number, form), rows in alike.items():
            length = min(_MAX_PAGES, -(-len(rows) // _CALLS))
            for first in range(0, len(rows), length):
                call = rows[first : first + length]
                calls.append(call)
                asked = (form, [pages[row][1] for row in call], pointers[call].tolist(), pitch)
                tasks.append(self._pool.submit(gpus[number].decode, *asked))
        on_gpu = np.zeros(count, np.bool_)
        for call, whole in zip(calls, all_results(tasks)):
            on_gpu[call] = whole
        return on_gpu

    def _alone(self, gpus: list[Gpu], taken: _Taken, on_gpu: np.ndarray) -> DecodedPixels:
        """Return the canvases in the buffers; those of other rows are cleared."""
        rows = len(on_gpu) // len(taken)
        for number, (gpu, (buffer, _)) in enumerate(zip(gpus, taken)):
            cuda.set_device(gpu.ordinal)
            buffer.clear((~on_gpu[number * rows :][:rows]).nonzero()[0].tolist())
        return DecodedPixels(
            pixels=[buffer.view(rows) for buffer, _ in taken],
            failures={},
            counts={"nvtiff": int(on_gpu.sum())},
            release=functools.partial(self._give_back, taken),
        )

    def _merge(self, taken: _Taken, on_gpu: np.ndarray, others: DecodedPixels) -> DecodedPixels:
        """Return the canvases in the buffers, and for the other rows those of `others`."""
        rows = len(on_gpu) // len(taken)
        pixels = []
        readers = []
        for number, (buffer, _) in enumerate(taken):
            chosen = on_gpu[number * rows :][:rows]
            chosen = jax.device_put(chosen, self._devices[number])
            merged, done = _chosen(chosen, buffer.view(rows), others.pixels[number])
            pixels.append(merged)
            readers.append(done)
        self._give_back(taken, readers)
        counts = {"nvtiff": int(on_gpu.sum()), **others.counts}
        return others._replace(pixels=pixels, counts=counts, release=release_nothing)

    def _give_back(self, taken: _Taken, readers: Any) -> None:
        """Give the buffers of a batch back; `readers` are arrays whose computation reads them."""
        for gpu, (buffer, _) in zip(self._gpus or [], taken):
            gpu.buffers.give_back(buffer, readers)

    def close(self) -> None:
        """Stop the threads and free the memory."""
        self._host.close()
        self._pool.shutdown()
        with self._opening:
            _close(self._gpus or [], os.getpid())


@jax.jit
def _chosen(chosen: jax.Array, some: jax.Array, others: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the chosen rows of `some` and the other rows, and an array that is ready with them."""
    return jnp.where(chosen[:, None, None, None], some, others), jnp.zeros((), jnp.uint8)


def _close(gpus: list[Gpu], process: int) -> None:
    if os.getpid() != process:  # a forked child has not the device
        return
    for gpu in gpus:
        gpu.close()
