"""A host thread's way to a canvas on the GPU: libjpeg-turbo or Pillow, then an upload.

nvJPEG's own host-and-GPU decoder (HYBRID) is a quarter faster than libjpeg-turbo, but its kernels
slow the engines down by as much, and beside a training they wait for the multiprocessors; a copy
does neither (measured on an H200).
"""

from jaxaug.decode.host.decode_image import decode_into
from jaxaug.decode.native import cuda
from jaxaug.decode.parse.headers import Headers

# Each call into CUDA gives the GIL away and waits to have it back: so a thread waits for several
# copies at once.
_STAGING_BYTES = 2**22


class Uploader:
    """What one thread needs; after its last image it calls `finish`.

    Args:
      ordinal: the CUDA device.
      canvas: (H, W) of each row.
      stream: for the copies; the threads of a GPU share one, as its streams are few (see
        `jaxaug/__init__.py`).
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
          DecodeError: the pixels cannot be read; the canvas is untouched.
        """
        if self._used == len(self._staging):
            self.finish()
        height, width = size
        decode_into(
            data,
            header,
            size,
            self._staging[self._used, : height * width * 3].reshape(height, width, 3),
        )
        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        address = self._address + self._used * self._staging.shape[1]
        copy = pointer, self._pitch, address, width * 3, width * 3, height, kind, self._stream
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
