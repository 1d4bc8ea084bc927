"""Decoding on a host thread with libjpeg-turbo or Pillow, and the upload to a canvas on the GPU.

nvJPEG's own host-and-GPU decoder (HYBRID) is a quarter faster than libjpeg-turbo, but its kernels
slow the engines down by as much, and during a training they wait for the multiprocessors; a copy
does neither (measured on an H200).
"""

from jaxaug.decode.host.decode_image import decode_into
from jaxaug.decode.native import cuda
from jaxaug.decode.parse.headers import Headers

# Bytes of a thread's staging memory. Each call into CUDA releases the GIL and waits to get it back,
# so a thread waits once for several copies.
_STAGING_BYTES = 2**22


class Uploader:
    """The staging memory of one thread, which calls `finish` after its last image.

    Args:
      ordinal: number of the CUDA device.
      canvas: (H, W) of each row.
      stream: the copies run on it. All threads of a GPU use the same one, as a GPU has few
        hardware queues (see `jaxaug/__init__.py`).
    """

    def __init__(self, ordinal: int, canvas: tuple[int, int], stream: int):
        cuda.set_device(ordinal)
        size = canvas[0] * canvas[1] * 3
        self._pitch = canvas[1] * 3
        self._stream = stream
        self._staging, self._address = cuda.pinned_array((max(1, _STAGING_BYTES // size), size))
        self._used = 0  # rows of the staging memory that copies still read

    def decode(
        self, data: memoryview, header: Headers, size: tuple[int, int], pointer: int
    ) -> None:
        """Decode any good image and start its copy to the canvas at `pointer`.

        Raises:
          DecodeError: the pixels cannot be read; the canvas is not touched.
        """
        if self._used == len(self._staging):
            self.finish()

        height, width = size
        pixels = self._staging[self._used, : height * width * 3].reshape(height, width, 3)
        decode_into(data, header, size, pixels)

        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        address = self._address + self._used * self._staging.shape[1]
        row_bytes = width * 3
        copy = (pointer, self._pitch, address, row_bytes, row_bytes, height, kind, self._stream)
        cuda.call("cudaMemcpy2DAsync", *copy)
        self._used += 1

    def finish(self) -> None:
        """Wait until all images are on their canvases."""
        if self._used:
            cuda.call("cudaStreamSynchronize", self._stream)
            self._used = 0

    def close(self) -> None:
        """Free the staging memory."""
        cuda.call("cudaFreeHost", self._address)
