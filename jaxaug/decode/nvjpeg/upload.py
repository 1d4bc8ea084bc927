"""Decoding on a host thread with libjpeg-turbo or Pillow, and the upload to a canvas on the GPU.

What libjpeg-turbo decodes and what must be shrunk or turned then goes through `slot_upload.py`.

nvJPEG's own host-and-GPU decoder (HYBRID) is a quarter faster than libjpeg-turbo, but its kernels
slow the engines down by as much, and during a training they wait for the multiprocessors; a copy
does neither (measured on an H200).
"""

import math

from jaxaug.decode.host.decode_image import decode_into
from jaxaug.decode.native import cuda
from jaxaug.decode.nvjpeg.dispatch import MIN_ENGINE_WIDTH
from jaxaug.decode.nvjpeg.resample import Resampler
from jaxaug.decode.nvjpeg.slot_upload import SlotUploader
from jaxaug.decode.parse.headers import Headers

# Bytes of a thread's staging memory. Each call into CUDA releases the GIL and waits to get it back,
# so a thread waits once for several copies.
_STAGING_BYTES = 2**22


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
            self._slot = SlotUploader(canvas_shape, stream, resampler, max_slot_bytes)

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
