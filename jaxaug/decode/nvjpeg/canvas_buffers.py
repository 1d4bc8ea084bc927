"""Lanes: the canvas buffers of the batches in flight on one GPU, and the rule that keeps them safe.

The JPEG engines do not wait for device events: batched calls on Hopper write at once, whatever
still stands in the stream (pytorch/torchcodec#1634, pytorch/vision#9606). So before a buffer is
written again the HOST waits for all that read it.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxaug.decode.native import cuda

# Written to the first pixel of each canvas before the engines are asked: where it is still there
# afterwards, the engines skipped the image although they reported success. No camera makes it; if
# one did, the host decodes again.
MARK = np.array([3, 250, 7], np.uint8)


# lanes of a GPU: they outlast some steps of a training that the readers of their batches stand
# behind
_MOST = 8


def buffer_budget(total: int) -> int:
    """Return the bytes that jaxaug's buffers may take of a device's `total`: a tenth, 2 GB at
    least.

    Example:
      >>> buffer_budget(24 * 10**9)
      2400000000
    """
    return max(total // 10, 2 * 2**30)


class Lanes:
    """The lanes of one GPU: as many as are written or read at the same time, and memory allows.

    Args:
      ordinal: the CUDA device.
      canvas: (H, W) of each row.
      budget: bytes that all lanes together may take, if it is enough for one.
    """

    def __init__(self, ordinal: int, canvas: tuple[int, int], budget: int):
        self._ordinal = ordinal
        self._canvas = canvas
        self._most = _MOST
        self._budget = budget
        self._all: list[Lane] = []
        self._free: list[Lane] = []  # the longest free first
        self._closed = False
        self._changed = threading.Condition()

    @property
    def bytes_held(self) -> int:
        """The device memory that the lanes take by now."""
        with self._changed:
            return sum(lane.bytes_held for lane in self._all)

    def take(self, rows: int) -> "tuple[Lane, np.ndarray]":
        """A lane that is prepared for `rows`, and where its canvases begin; see `Lane.prepare`.

        Raises:
          MemoryError: there is none even for one lane.
        """
        while True:
            lane = self._take(rows)
            try:
                return lane, lane.prepare(rows)
            except MemoryError:
                if not self._drop(lane):
                    raise
            except BaseException:  # Ctrl-C, while it is still read
                self.put(lane, lane.readers)
                raise

    def put(self, lane: "Lane", readers: Any = ()) -> None:
        """Give a lane back; `readers` are arrays whose computation reads it."""
        lane.readers = readers
        with self._changed:
            if not self._closed:
                self._free.append(lane)
                self._changed.notify()
                return
        with cuda.on_device(self._ordinal):
            lane.close()

    def close(self) -> None:
        """Free all, once their readers are done; those that are taken, once they are put back."""
        with self._changed:
            self._closed = True
            free = self._free
            self._free = []
        for lane in free:
            lane.close()

    def _take(self, rows: int) -> "Lane":
        affordable = self._budget // max(1, rows * self._canvas[0] * self._canvas[1] * 3)
        with self._changed:
            most = min(self._most, max(1, affordable))
            self._changed.wait_for(lambda: self._free or len(self._all) < most)
            ready = [lane for lane in self._free if lane.ready()]
            if not ready and len(self._all) < most:
                lane = Lane(self._canvas)
                self._all.append(lane)
                return lane
            lane = ready[0] if ready else self._free[0]
            self._free.remove(lane)
            return lane

    def _drop(self, lane: "Lane") -> bool:
        """Do without this lane from now on; False if there is no other."""
        lane.close()
        with self._changed:
            self._all.remove(lane)
            self._most = max(len(self._all), 1)
            self._changed.notify()
            return bool(self._all)


class Lane:
    """The canvases of one batch, on the device that is current in the threads that use it.

    Args:
      canvas: (H, W) of each row.
    """

    def __init__(self, canvas: tuple[int, int]):
        self._canvas = canvas
        self._row_bytes = canvas[0] * canvas[1] * 3
        self._rows = 0
        self._pointer = 0
        self._pixels_address = 0
        # arrays whose computation reads the canvases; `prepare` waits for them
        self.readers: Any = ()
        self._view: jax.Array | None = None
        self._stream = cuda.create_stream()

    @property
    def bytes_held(self) -> int:
        """The device memory that the canvases take."""
        return self._rows * self._row_bytes

    def prepare(self, rows: int) -> np.ndarray:
        """Make the buffer ready: not read any more, large enough, zero but for the marks.

        Returns uint64[rows], where each canvas begins.
        """
        self._wait_for_readers()
        if rows > self._rows:
            self._resize(rows)
        cuda.call("cudaMemsetAsync", self._pointer, 0, rows * self._row_bytes, self._stream)
        self._write_marks(self._pointer, rows)
        self._synchronize()  # the engines do not wait for the stream
        return np.arange(rows, dtype=np.uint64) * np.uint64(self._row_bytes) + np.uint64(
            self._pointer
        )

    def mark(self, rows: Sequence[int]) -> None:
        """Write the marks of some canvases again."""
        for row in rows:
            self._write_marks(self._pointer + row * self._row_bytes, 1)
        self._synchronize()

    def wipe_marks(self, asked: np.ndarray) -> np.ndarray:
        """bool[n]: where the mark was still there, so that nothing was written; it is zero now.

        Args:
          asked: bool[n], which rows to look at; what host threads have written may be of the mark's
            colour.
        """
        rows = len(asked)
        self._copy_pixels(
            self._pixels_address, 3, self._pointer, self._row_bytes, rows, "DeviceToHost"
        )
        self._synchronize()
        marked = (self._pixels[:rows] == MARK).all(axis=1) & asked
        for row in marked.nonzero()[0].tolist():
            cuda.call("cudaMemsetAsync", self._pointer + row * self._row_bytes, 0, 3, self._stream)
        if marked.any():
            self._synchronize()
        return marked

    def clear(self, rows: Sequence[int]) -> None:
        """Zero the canvases of `rows`."""
        for row in rows:
            pointer = self._pointer + row * self._row_bytes
            cuda.call("cudaMemsetAsync", pointer, 0, self._row_bytes, self._stream)
        if rows:
            self._synchronize()

    def view(self, rows: int) -> jax.Array:
        """uint8[rows, H, W, 3] on the buffer itself: nobody may hold it beyond `readers`."""
        if (
            self._view is None or self._view.shape[0] != rows
        ):  # importing takes as long as decoding five images
            self._view = cuda.import_buffer(self._pointer, (rows, *self._canvas, 3))
        return self._view

    def ready(self) -> bool:
        """Whether nothing reads the canvases any more."""
        return all(
            array.is_deleted() or array.is_ready() for array in jax.tree.leaves(self.readers)
        )

    def close(self) -> None:
        """Free everything, once the readers are done; the device is current."""
        self._wait_for_readers()
        cuda.call("cudaStreamDestroy", self._stream)
        self._free()

    def _wait_for_readers(self) -> None:
        for array in jax.tree.leaves(self.readers):
            with contextlib.suppress(
                Exception
            ):  # what has failed reads no more, and tells whoever uses it
                array.block_until_ready()
        self.readers = ()

    def _resize(self, rows: int) -> None:
        self._free()
        self._pointer = cuda.allocate(rows * self._row_bytes)
        # Page-locked: a copy from or to pageable memory would make the host wait for everything on
        # the device.
        self._pixels, self._pixels_address = cuda.pinned_array((rows, 3))
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

    def _write_marks(self, pointer: int, rows: int) -> None:
        self._pixels[:rows] = MARK
        self._copy_pixels(pointer, self._row_bytes, self._pixels_address, 3, rows, "HostToDevice")

    def _copy_pixels(
        self, to: int, to_pitch: int, source: int, pitch: int, rows: int, direction: str
    ) -> None:
        kind = getattr(cuda.runtime().cudaMemcpyKind, f"cudaMemcpy{direction}")
        cuda.call("cudaMemcpy2DAsync", to, to_pitch, source, pitch, 3, rows, kind, self._stream)

    def _synchronize(self) -> None:
        cuda.call("cudaStreamSynchronize", self._stream)
