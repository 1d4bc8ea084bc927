"""Uploads of images that a host thread has decoded, and that the GPU shrinks or turns.

The kernel does this in the time of a copy. On the host, Pillow's resize takes nearly half of the
time of a photograph: 16 threads gave 310 images/s of 4,000 x 3,000 with it and 550 without (16
cores of a machine with an H200).
"""

import math

import numpy as np

from jaxaug.decode._orientation import steps
from jaxaug.decode.host.decode_image import decode_jpeg, jpeg_scale, scaled_sides
from jaxaug.decode.native import cuda
from jaxaug.decode.nvjpeg.dispatch import MIN_ENGINE_WIDTH
from jaxaug.decode.nvjpeg.resample import RECORD, Resampler
from jaxaug.decode.parse.headers import Headers

# Slots are so many times as large as a canvas: libjpeg decodes an image at less than twice the
# sides that it has on the canvas, unless it is more than sixteen times as large.
_CANVASES = 4


class SlotUploader:
    """The slot of one thread, for one image at a time, in page-locked and in device memory.

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
        self._slot = 0
        self._pixels, self._pixels_address = np.zeros(0, np.uint8), 0
        self._records, self._records_address = np.zeros(0, RECORD), 0
        self._busy = False  # a copy or a kernel may still read

    @property
    def bytes_held(self) -> int:
        """The device memory that the slot takes now."""
        return self._size if self._slot else 0

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
        pixels = self._pixels[:count].reshape(shape)
        decode_jpeg(data, header, scale, self._channels, pixels)

        stored = (int(header.height), int(header.width))
        turns = steps(int(header.orientation))
        self._records[0] = (self._slot, pointer, *stored, *size, *turns, scale)
        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        self._busy = True
        copy = (self._slot, self._pixels_address, count, kind, self._stream)
        cuda.call("cudaMemcpyAsync", *copy)
        # The kernel reads the record where it is: the device can read page-locked memory.
        table = self._records_address
        self._resampler.fill_canvases(table, self._records, self._pitch, None, self._stream)
        return True

    def finish(self) -> None:
        """Wait until the image is on its canvas."""
        if self._busy:
            cuda.call("cudaStreamSynchronize", self._stream)
            self._busy = False

    def close(self) -> None:
        """Free the memory; the device is current."""
        for function, address in (
            ("cudaFree", self._slot),
            ("cudaFreeHost", self._pixels_address),
            ("cudaFreeHost", self._records_address),
        ):
            if address:
                cuda.call(function, address)

    def _has_memory(self) -> bool:
        """Take the memory with the first image; return False where the device has none left."""
        if not self._slot and self._size:
            try:
                self._slot = cuda.allocate(self._size, "for images that host threads decode")
            except MemoryError:  # Pillow shrinks the images, too
                self._size = 0
                return False
            self._pixels, self._pixels_address = cuda.pinned_array((self._size,))
            memory, self._records_address = cuda.pinned_array((RECORD.itemsize,))
            self._records = memory.view(RECORD)
        return bool(self._slot)
