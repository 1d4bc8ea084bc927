"""Device memory for the canvases of the batches in flight on one GPU.

The JPEG engines do not wait for device events: a batched call on Hopper writes at once, whatever is
still queued on its stream (pytorch/torchcodec#1634, pytorch/vision#9606). So before a buffer is
written again, the HOST waits for every array whose computation reads it.
"""

import contextlib
import math
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxaug.decode.native import cuda

# Written to the first bytes of each canvas before the engines are called: one pixel of RGB, three
# of luma. Where it is still there afterwards, the engines skipped the image although they reported
# success. No camera produces it; if one did, the image would only be decoded again by the host.
SENTINEL = np.array([3, 250, 7], np.uint8)

_PITCH = 4  # bytes of a sentinel on the host: one integer, with zeros behind the sentinel

# Buffers of one GPU. A batch may be read only after several training steps that were queued before.
MAX_BUFFERS = 8

# Bytes that the buffers of a GPU may take in any case.
_MIN_BUDGET = 2 * 2**30


def buffer_budget(total: int) -> int:
    """Return the bytes that jaxaug's buffers may take of a device that has `total` bytes.

    This is a tenth of the device, and 2 GB at least.

    Example:
      >>> buffer_budget(24 * 10**9)
      2400000000
    """
    return max(total // 10, _MIN_BUDGET)


class BufferPool:
    """The canvas buffers of one GPU: as many as are in use at once, as far as memory allows.

    Args:
      ordinal: number of the CUDA device.
      canvas_shape: of each row, such as (H, W, channels).
      budget: bytes that all buffers together may take; one buffer is made even if it takes more.
      dtype: of the pixels.
      max_count: buffers that there may be; None for MAX_BUFFERS.
    """

    def __init__(
        self,
        ordinal: int,
        canvas_shape: tuple[int, ...],
        budget: int,
        dtype: str = "uint8",
        max_count: int | None = None,
    ):
        self._ordinal = ordinal
        self._canvas_shape = canvas_shape
        self._dtype = dtype
        self._row_bytes = math.prod(canvas_shape) * np.dtype(dtype).itemsize
        self._max_count = max_count or MAX_BUFFERS
        self._budget = budget
        self._buffers: list[CanvasBuffer] = []
        self._free: list[CanvasBuffer] = []  # in the order in which they were given back
        self._closed = False
        self._changed = threading.Condition()

    @property
    def bytes_held(self) -> int:
        """The device memory that the buffers take now."""
        with self._changed:
            return sum(buffer.bytes_held for buffer in self._buffers)

    def take(self, rows: int) -> "tuple[CanvasBuffer, np.ndarray]":
        """Return a prepared buffer and the addresses of its canvases; see `CanvasBuffer.prepare`.

        Waits while all buffers are taken and no further one is allowed.

        Raises:
          MemoryError: the device has no memory even for one buffer.
        """
        while True:
            buffer = self._take(rows)
            try:
                growth = rows * self._row_bytes - buffer.bytes_held
                if growth > 0:
                    self._make_room(growth)
                return buffer, buffer.prepare(rows)
            except MemoryError:
                if not self._remove(buffer):
                    raise
            except BaseException:  # Ctrl-C while the buffer is still read
                self.give_back(buffer, buffer.readers)
                raise

    def give_back(self, buffer: "CanvasBuffer", readers: Any = ()) -> None:
        """Give a buffer back to the pool.

        Args:
          buffer: from `take`.
          readers: arrays whose computation reads the buffer.
        """
        buffer.readers = readers
        with self._changed:
            if not self._closed:
                self._free.append(buffer)
                self._changed.notify()
                return

        with cuda.on_device(self._ordinal):
            buffer.close()

    def close(self) -> None:
        """Free the buffers once their readers are done, and taken ones once they are given back."""
        with self._changed:
            self._closed = True
            free = self._free
            self._free = []

        for buffer in free:
            buffer.close()

    def _take(self, rows: int) -> "CanvasBuffer":
        """Return an idle buffer if there is one, else a new one, else the one given back first."""
        batch_bytes = max(1, rows * self._row_bytes)
        affordable = self._budget // batch_bytes

        with self._changed:
            max_count = min(self._max_count, max(1, affordable))
            self._changed.wait_for(lambda: self._free or len(self._buffers) < max_count)

            idle = [buffer for buffer in self._free if buffer.is_idle()]
            if not idle and len(self._buffers) < max_count:
                buffer = CanvasBuffer(self._canvas_shape, self._dtype)
                self._buffers.append(buffer)
                return buffer

            buffer = max(idle, key=lambda each: each.bytes_held) if idle else self._free[0]
            self._free.remove(buffer)
            return buffer

    def _make_room(self, growth: int) -> None:
        """Free idle buffers, of smaller batches, if the budget leaves no room for so many bytes.

        By turns, all buffers would grow to the largest batch.
        """
        others = []
        with self._changed:
            held = sum(each.bytes_held for each in self._buffers)
            while self._free and held + growth > self._budget:
                others.append(self._free.pop(0))
                self._buffers.remove(others[-1])
                held -= others[-1].bytes_held
        for other in others:
            other.close()

    def _remove(self, buffer: "CanvasBuffer") -> bool:
        """Free a buffer for good and allow no more than are left; return False if none is left."""
        buffer.close()
        with self._changed:
            self._buffers.remove(buffer)
            self._max_count = max(len(self._buffers), 1)
            self._changed.notify()
            return bool(self._buffers)


class CanvasBuffer:
    """The canvases of one batch, on the device that is current in the threads that use it.

    Args:
      canvas_shape: of each row, such as (H, W, channels).
      dtype: of the pixels.

    Attributes:
      readers: arrays whose computation reads the canvases; `prepare` waits for them.
    """

    def __init__(self, canvas_shape: tuple[int, ...], dtype: str = "uint8"):
        self.readers: Any = ()
        self._canvas_shape = canvas_shape
        self._dtype = dtype
        self._row_bytes = math.prod(canvas_shape) * np.dtype(dtype).itemsize
        self._sentinel_bytes = min(SENTINEL.size, self._row_bytes)
        padded = SENTINEL[: self._sentinel_bytes].tobytes().ljust(_PITCH, b"\0")
        self._sentinel_pixel = np.frombuffer(padded, np.uint32)[0]
        self._rows = 0
        self._pointer = 0
        self._pixels_address = 0
        self._view: jax.Array | None = None
        self._stream = cuda.create_stream()

    @property
    def bytes_held(self) -> int:
        """The device memory that the canvases take."""
        return self._rows * self._row_bytes

    def prepare(self, rows: int) -> np.ndarray:
        """Wait for the readers, then make canvases of zeros, each with the sentinel.

        Returns:
          uint64[rows], the address of each canvas.

        Raises:
          MemoryError: the device has no memory left.
        """
        self._wait_for_readers()
        if rows > self._rows:
            self._resize(rows)

        cuda.call("cudaMemsetAsync", self._pointer, 0, rows * self._row_bytes, self._stream)
        self._write_sentinels(self._pointer, rows)
        self._synchronize()  # the engines do not wait for the stream
        return self._addresses[:rows]

    def write_sentinels(self, rows: Sequence[int]) -> None:
        """Write the sentinel to some canvases again."""
        for row in rows:
            self._write_sentinels(self._pointer + row * self._row_bytes, 1)
        self._synchronize()

    def take_unwritten_rows(self, rows: int, kept: Sequence[int]) -> np.ndarray:
        """Return the rows where the sentinel was still there, int64[k], and replace it by zeros.

        Args:
          rows: of the batch, so many.
          kept: those not to look at. An image that a host thread has written may have the
            sentinel's color.
        """
        self._copy_sentinels(
            to=self._pixels_address,
            to_pitch=_PITCH,
            source=self._pointer,
            pitch=self._row_bytes,
            rows=rows,
            kind=cuda.runtime().cudaMemcpyKind.cudaMemcpyDeviceToHost,
        )
        self._synchronize()

        found = self._pixels[:rows] == self._sentinel_pixel
        if kept:
            found[kept] = False
        unwritten = found.nonzero()[0]
        for row in unwritten.tolist():
            pointer = self._pointer + row * self._row_bytes
            cuda.call("cudaMemsetAsync", pointer, 0, self._sentinel_bytes, self._stream)
        if unwritten.size:
            self._synchronize()
        return unwritten

    def clear(self, rows: Sequence[int]) -> None:
        """Fill the canvases of `rows` with zeros."""
        for row in rows:
            pointer = self._pointer + row * self._row_bytes
            cuda.call("cudaMemsetAsync", pointer, 0, self._row_bytes, self._stream)
        if rows:
            self._synchronize()

    def view(self, rows: int) -> jax.Array:
        """Return [rows, H, W, channels] in the buffer; nobody may hold it beyond `readers`."""
        # The import takes as long as decoding five images.
        if self._view is None or self._view.shape[0] != rows:
            shape = (rows, *self._canvas_shape)
            self._view = cuda.import_buffer(self._pointer, shape, self._dtype)
        return self._view

    def is_idle(self) -> bool:
        """Return True if nothing reads the canvases any more."""
        readers = jax.tree.leaves(self.readers)
        return all(array.is_deleted() or array.is_ready() for array in readers)

    def close(self) -> None:
        """Free everything once the readers are done; the device is current."""
        self._wait_for_readers()
        cuda.call("cudaStreamDestroy", self._stream)
        self._free()

    def _wait_for_readers(self) -> None:
        for array in jax.tree.leaves(self.readers):
            # A failed computation reads no more; its error is raised where its result is used.
            with contextlib.suppress(Exception):
                array.block_until_ready()
        self.readers = ()

    def _resize(self, rows: int) -> None:
        self._free()
        self._pointer = cuda.allocate(rows * self._row_bytes)
        # Page-locked: with pageable memory, a copy would make the host wait for all work of the
        # device.
        memory, self._pixels_address = cuda.pinned_array((rows * _PITCH,))
        self._pixels = memory.view(np.uint32)
        offsets = np.arange(rows, dtype=np.uint64) * np.uint64(self._row_bytes)
        self._addresses = offsets + np.uint64(self._pointer)
        self._rows = rows

    def _free(self) -> None:
        self._view = None
        if self._pointer:
            cuda.call("cudaFree", self._pointer)
        if self._pixels_address:
            cuda.call("cudaFreeHost", self._pixels_address)
        self._rows = 0
        self._pointer = 0
        self._pixels_address = 0

    def _write_sentinels(self, pointer: int, rows: int) -> None:
        self._pixels[:rows] = self._sentinel_pixel
        self._copy_sentinels(
            to=pointer,
            to_pitch=self._row_bytes,
            source=self._pixels_address,
            pitch=_PITCH,
            rows=rows,
            kind=cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice,
        )

    def _copy_sentinels(
        self, to: int, to_pitch: int, source: int, pitch: int, rows: int, kind: Any
    ) -> None:
        """Start copying the first bytes of each row, from one pitch to another."""
        copy = (to, to_pitch, source, pitch, self._sentinel_bytes, rows, kind, self._stream)
        cuda.call("cudaMemcpy2DAsync", *copy)

    def _synchronize(self) -> None:
        cuda.call("cudaStreamSynchronize", self._stream)
