"""A lane: one batch in flight on one GPU, with the canvas buffer that it fills and the rule that keeps it safe.

Nothing promises that the JPEG engines wait for device events: batched calls on Hopper were seen to write at once,
whatever still stood in the stream (pytorch/torchcodec#1634, pytorch/vision#9606), and with nvJPEG 12.4 and 13.3 to
wait for the whole device (measured on an H200). So before a buffer is written again the HOST waits for all that read
it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.native import _cuda, _nvjpeg

# Written to the first pixel of each canvas before the engines are asked: where it is still there afterwards, the
# engines skipped the image although they reported success. No camera makes it; if one did, the host decodes again.
_MARK = np.array([3, 250, 7], np.uint8)


class Call(NamedTuple):
    """A batched call: images of one group."""

    state: Any
    stream: int
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray]  # addresses, lengths, destinations
    owner: Any  # keeps the encoded bytes alive


class Lane:
    """One batch in flight: a canvas buffer, an nvJPEG handle, its states and streams.

    Args:
      ordinal: the CUDA device, current in the calling thread.
      canvas: (H, W) of each row.
      backend: `_nvjpeg.HARDWARE`, or `GPU_HYBRID` where there are no engines.
    """

    def __init__(self, ordinal: int, canvas: tuple[int, int], backend: int):
        self._ordinal, self._canvas, self._row_bytes = ordinal, canvas, canvas[0] * canvas[1] * 3
        self._rows, self._pointer, self._pixels_address = 0, 0, 0
        self._readers: Any = ()
        self._backend, self._handle, self._stream = backend, None, 0
        self._calls: dict[int, tuple[Any, int]] = {}  # group -> (state, stream), made when first met

    def open(self) -> None:
        """Make the nvJPEG handle and the stream, which takes some tenths of a second the first time.

        Raises:
          NvjpegError: the device has no such backend.
        """
        if self._handle is None:
            self._handle = _nvjpeg.create_handle(self._backend)
            self._stream = _cuda.create_stream()

    def prepare(self, rows: int) -> np.ndarray:
        """Make the buffer ready: not read any more, large enough, zero but for the marks.

        Returns uint64[rows], where each canvas begins.
        """
        self._wait_for_readers()
        self.open()
        if rows > self._rows:
            self._resize(rows)
        _cuda.call("cudaMemsetAsync", self._pointer, 0, rows * self._row_bytes, self._stream)
        self._write_marks(self._pointer, rows)
        self._synchronize()  # the engines do not wait for the stream
        return np.arange(rows, dtype=np.uint64) * np.uint64(self._row_bytes) + np.uint64(self._pointer)

    def plan(self, batch: Encoded, pointers: np.ndarray, groups: np.ndarray) -> "list[Call]":
        """The batched calls that decode images, each to the canvas at its pointer.

        Args:
          batch: the images.
          pointers: uint64[n].
          groups: n numbers; images of one group share a batched call. Grouped by their chroma sampling, images are
            decoded three times as fast as mixed (measured on an H200, with interpolated chroma).
        """
        images = _nvjpeg.destinations(pointers, self._canvas[1] * 3)
        calls = []
        for group in np.unique(groups).tolist():
            rows = groups == group
            arrays = batch.addresses[rows], batch.lengths[rows], images[rows]
            calls.append(Call(*self._group(group), arrays, batch.owner))
        return calls

    def start(self, calls: "list[Call]") -> None:
        """Hand the calls to the engines; `finish` before anything else, also after an exception.

        Raises:
          NvjpegError: some image was refused; none is to be trusted.
        """
        for call in calls:
            assert self._handle is not None  # `prepare` has opened the lane
            _nvjpeg.decode_batched(self._handle, call.state, *call.arrays, call.stream)

    def finish(self, calls: "list[Call]") -> None:
        """Wait until the calls are done; until then their arrays and the encoded bytes are read."""
        for call in calls:
            _cuda.call("cudaStreamSynchronize", call.stream)

    def decode_one(self, batch: Encoded, row: int, pointers: np.ndarray) -> bool:
        """Decode one image of a batch alone; False if the engines refuse or skip it."""
        self._write_marks(int(pointers[row]), 1)
        self._synchronize()
        calls = self.plan(batch.take(np.array([row])), pointers[[row]], np.zeros(1, np.int64))
        try:
            self.start(calls)
        except _nvjpeg.NvjpegError:
            return False
        finally:
            self.finish(calls)
        return not self._marked(int(pointers[row]), 1)[0]

    def wipe_marks(self, rows: int) -> np.ndarray:
        """bool[rows]: where the mark was still there, so that nothing was written; it is zero now."""
        marked = self._marked(self._pointer, rows)
        for row in marked.nonzero()[0].tolist():
            _cuda.call("cudaMemsetAsync", self._pointer + row * self._row_bytes, 0, 3, self._stream)
        self._synchronize()
        return marked

    def clear(self, rows: Sequence[int]) -> None:
        """Zero the canvases of `rows`."""
        for row in rows:
            pointer = self._pointer + row * self._row_bytes
            _cuda.call("cudaMemsetAsync", pointer, 0, self._row_bytes, self._stream)
        self._synchronize()

    def view(self, rows: int) -> jax.Array:
        """uint8[rows, H, W, 3] on the buffer itself: nobody may hold it beyond `lend`'s readers."""
        return _cuda.import_buffer(self._pointer, (rows, *self._canvas, 3), owner=self)

    def lend(self, readers: Any) -> None:
        """`readers` are arrays whose computation reads the buffer; the next `prepare` waits for them."""
        self._readers = readers

    def close(self) -> None:
        """Free everything, once the readers are done."""
        _cuda.set_device(self._ordinal)
        self._wait_for_readers()
        if self._handle is None:
            return
        for state, stream in self._calls.values():
            _nvjpeg.library().nvjpegJpegStateDestroy(state)
            _cuda.call("cudaStreamDestroy", stream)
        _nvjpeg.library().nvjpegDestroy(self._handle)
        _cuda.call("cudaStreamDestroy", self._stream)
        self._free()

    def _group(self, group: int) -> tuple[Any, int]:
        if group not in self._calls:
            state = _nvjpeg.create("nvjpegJpegStateCreate", self._handle)
            self._calls[group] = state, _cuda.create_stream()
        return self._calls[group]

    def _wait_for_readers(self) -> None:
        jax.block_until_ready(self._readers)
        self._readers = ()

    def _resize(self, rows: int) -> None:
        self._free()
        self._pointer = _cuda.allocate(rows * self._row_bytes)
        # Page-locked: a copy from or to pageable memory would make the host wait for everything on the device.
        self._pixels, self._pixels_address = _cuda.pinned_array((rows, 3))
        self._rows = rows

    def _free(self) -> None:
        if self._rows:
            _cuda.call("cudaFree", self._pointer)
            _cuda.call("cudaFreeHost", self._pixels_address)
        self._rows, self._pointer, self._pixels_address = 0, 0, 0

    def _write_marks(self, pointer: int, rows: int) -> None:
        self._pixels[:rows] = _MARK
        self._copy_pixels(pointer, self._row_bytes, self._pixels_address, 3, rows, "HostToDevice")

    def _marked(self, pointer: int, rows: int) -> np.ndarray:
        self._copy_pixels(self._pixels_address, 3, pointer, self._row_bytes, rows, "DeviceToHost")
        self._synchronize()
        return (self._pixels[:rows] == _MARK).all(axis=1)

    def _copy_pixels(self, to: int, to_pitch: int, source: int, pitch: int, rows: int, direction: str) -> None:
        kind = getattr(_cuda.runtime().cudaMemcpyKind, f"cudaMemcpy{direction}")
        _cuda.call("cudaMemcpy2DAsync", to, to_pitch, source, pitch, 3, rows, kind, self._stream)

    def _synchronize(self) -> None:
        _cuda.call("cudaStreamSynchronize", self._stream)
