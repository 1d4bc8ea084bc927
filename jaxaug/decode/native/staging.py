"""Memory into which a device decodes, and from which the host reads."""

from typing import Any

import numpy as np

from jaxaug.decode.native import cuda


class Staging:
    """Memory of the current device, and as much page-locked memory of the host.

    Args:
      purpose: ends the message where none is left, such as "for TIFF".

    Attributes:
      pointer: of the device's memory.
    """

    def __init__(self, purpose: str):
        self._purpose = purpose
        self.pointer = 0
        self._address = 0
        self._memory = np.zeros(0, np.uint8)

    def reserve(self, size: int) -> None:
        """Have at least `size` bytes.

        Raises:
          MemoryError: the device has not as many left.
          CudaError: any other failure.
        """
        if size <= len(self._memory):
            return
        self.free()
        self.pointer = cuda.allocate(size, self._purpose)
        self._memory, self._address = cuda.pinned_array((size,))

    def to_host(self, size: int, stream: Any) -> np.ndarray:
        """Return the host's uint8[size], to which the stream copies the device's."""
        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyDeviceToHost
        cuda.call("cudaMemcpyAsync", self._address, self.pointer, size, kind, stream)
        return self._memory[:size]

    def free(self) -> None:
        """Free both; arrays of `to_host` must not be read any more."""
        self._memory = np.zeros(0, np.uint8)
        for function, address in (("cudaFree", self.pointer), ("cudaFreeHost", self._address)):
            if address:
                cuda.call(function, address)
        self.pointer = self._address = 0
