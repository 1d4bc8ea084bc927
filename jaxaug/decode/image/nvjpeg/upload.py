"""Decoding on a host thread with libjpeg-turbo or Pillow, and the upload to a canvas on the GPU.

What libjpeg-turbo decodes and what must be shrunk or turned then goes through a slot: a kernel does
this in the time of a copy. On the host, Pillow's resize takes nearly half of the time of a
photograph: 16 threads gave 310 images/s of 4,000 x 3,000 with it and 550 without (16 cores of a
machine with an H200).

nvJPEG's own host-and-GPU decoder (HYBRID) is a quarter faster than libjpeg-turbo, but its kernels
slow the engines down by as much, and during a training they wait for the multiprocessors; a copy
does neither (measured on an H200).
"""

import math

import numpy as np

from jaxaug.decode.image.host.decode_image import decode_into, jpeg_scale
from jaxaug.decode.image.host.turbojpeg import decode_jpeg, scaled_sides
from jaxaug.decode.image.nvjpeg.dispatch import MIN_ENGINE_WIDTH
from jaxaug.decode.image.nvjpeg.resize_and_orient import RECORD, Resampler
from jaxaug.decode.image.orientation import steps
from jaxaug.decode.image.parse.headers import Headers
from jaxaug.decode.native import cuda
from jaxaug.decode.native.staging import Staging

# Bytes of a thread's staging memory. Each call into CUDA releases the GIL and waits to get it back,
# so a thread waits once for several copies.
_STAGING_BYTES = 2**22
# Slots are so many times as large as a canvas: libjpeg decodes an image at less than twice the
# sides that it has on the canvas, unless it is more than sixteen times as large.
_CANVASES = 4


class Uploader:
    """The staging memory of one thread, which calls `finish` after its last image.

    Args:
      ordinal: number of the CUDA device.
      canvas_shape: (H, W, channels) of each row.
      stream: the copies run on it. All threads of a GPU use the same one, as a GPU has few
        hardware queues (see `jaxaug/__init__.py`).
      resampler: the kernels; None where they cannot be compiled.
      max_slot_bytes: of the thread's slot on the device.
    """

    def __init__(
        self,
        ordinal: int,
        canvas_shape: tuple[int, int, int],
        stream: int,
        resampler: Resampler | None,
        max_slot_bytes: int,
    ):
        cuda.set_device(ordinal)
        size = math.prod(canvas_shape)
        self._canvas_shape = canvas_shape
        self._stream = stream
        self._staging, self._address = cuda.pinned_array((max(1, _STAGING_BYTES // size), size))
        self._used = 0  # rows of the staging memory that copies still read
        self._slot = None
        if resampler is not None:
            self._slot = _Slot(canvas_shape, stream, resampler, max_slot_bytes)

    @property
    def bytes_held(self) -> int:
        """The device memory that its slot takes now."""
        return self._slot.bytes_held if self._slot else 0

    def decode(
        self, data: memoryview, header: Headers, size: tuple[int, int], pointer: int
    ) -> None:
        """Decode any good image and start its copy to the canvas at `pointer`.

        Raises:
          DecodeError: the pixels cannot be read; the canvas is not touched.
        """
        if self._slot and self._slot.decode(data, header, size, pointer):
            return
        if self._used == len(self._staging):
            self.finish()

        canvas_height, canvas_width, channels = self._canvas_shape
        height, width = size
        narrow = width < MIN_ENGINE_WIDTH[channels]
        if narrow:  # it alone would leave a part of the sentinel
            height, width = canvas_height, canvas_width
        row_bytes = width * channels
        memory = self._staging[self._used, : height * row_bytes]
        if narrow:
            memory[:] = 0
        decode_into(data, header, size, memory.reshape(height, width, channels))

        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        address = self._address + self._used * self._staging.shape[1]
        pitch = canvas_width * channels
        copy = (pointer, pitch, address, row_bytes, row_bytes, height, kind, self._stream)
        cuda.call("cudaMemcpy2DAsync", *copy)
        self._used += 1

    def finish(self) -> None:
        """Wait until all images are on their canvases."""
        if self._slot:
            self._slot.finish()
        if self._used:
            cuda.call("cudaStreamSynchronize", self._stream)
            self._used = 0

    def close(self) -> None:
        """Free the staging memory and the slot."""
        if self._slot:
            self._slot.close()
        cuda.call("cudaFreeHost", self._address)


class _Slot:
    """The slot of a thread: its record and the pixels of one image that is shrunk or turned.

    Args:
      canvas_shape: (H, W, channels) of each canvas.
      stream: the copies and the kernel run on it.
      resampler: the kernels.
      max_bytes: of the slot.
    """

    def __init__(
        self,
        canvas_shape: tuple[int, int, int],
        stream: int,
        resampler: Resampler,
        max_bytes: int,
    ):
        self._pitch = canvas_shape[1] * canvas_shape[2]  # bytes of a row of a canvas
        self._channels = canvas_shape[2]
        self._stream = stream
        self._resampler = resampler
        self._size = min(_CANVASES * math.prod(canvas_shape), max_bytes)
        # The device has the record, too: each block would read that of the host across the bus.
        self._memory = Staging("for images that host threads decode")
        self._busy = False  # a copy or a kernel may still read

    @property
    def bytes_held(self) -> int:
        """The device memory that the slot takes now."""
        return len(self._memory.memory)

    def decode(
        self, data: memoryview, header: Headers, size: tuple[int, int], pointer: int
    ) -> bool:
        """Decode an image that is shrunk or turned, and start its way to the canvas at `pointer`.

        Args:
          data: the bytes of the image.
          header: `Headers.row(i)` of a good image.
          size: (h, w) of the upright image on its canvas.

        Returns:
          False, with nothing done, for other images, and for one that does not fit the slot.

        Raises:
          DecodeError: the pixels cannot be read; the canvas is not touched.
        """
        scale = jpeg_scale(header, size)
        if scale is None or size[1] < MIN_ENGINE_WIDTH[self._channels]:
            return False
        shape = (*scaled_sides(header, scale), self._channels)
        count = math.prod(shape)
        if count > self._size or not self._has_memory():
            return False

        self.finish()
        record, pixels = np.split(self._memory.memory, [RECORD.itemsize])
        decode_jpeg(data, header, scale, self._channels, pixels[:count].reshape(shape))

        stored = (int(header.height), int(header.width))
        turns = steps(int(header.orientation))
        table = self._memory.pointer
        records = record.view(RECORD)
        records[0] = (table + RECORD.itemsize, pointer, *stored, *size, *turns, scale)
        self._busy = True
        self._memory.to_device(RECORD.itemsize + count, self._stream)
        self._resampler.fill_canvases(table, records, self._pitch, None, self._stream)
        return True

    def finish(self) -> None:
        """Wait until the image is on its canvas."""
        if self._busy:
            cuda.call("cudaStreamSynchronize", self._stream)
            self._busy = False

    def close(self) -> None:
        """Free the memory; the device is current."""
        self._memory.free()

    def _has_memory(self) -> bool:
        """Take the memory with the first image; return False where the device has none left."""
        try:
            self._memory.reserve(RECORD.itemsize + self._size)
        except MemoryError:  # Pillow shrinks the images, too
            self._size = 0
        return self._size > 0
