"""Memory of a device beside that of the host, for what goes to one or comes from it."""

from typing import Any

import numpy as np

from jaxaug.decode.native import cuda


class Staging:
    """Memory of the current device, and as much page-locked memory of the host.

    Args:
      purpose: ends the message where none is left, such as "for TIFF".

    Attributes:
      pointer: of the device's memory.
      memory: the host's, uint8.
      address: of that.
    """

    def __init__(self, purpose: str):
        self._purpose = purpose
        self.pointer = 0
        self.address = 0
        self.memory = np.zeros(0, np.uint8)

    def reserve(self, size: int, slack: int = 0) -> None:
        """Have at least `size` bytes; where there are fewer, take `slack` more.

        Raises:
          MemoryError: the device has not as many left.
          CudaError: any other failure.
        """
        if size <= len(self.memory):
            return
        self.free()
        self.pointer = cuda.allocate(size + slack, self._purpose)
        self.memory, self.address = cuda.pinned_array((size + slack,))

    def to_device(self, size: int, stream: Any, start: int = 0) -> None:
        """Have the stream copy `size` bytes, from `start` on, of the host's to the device's."""
        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        places = self.pointer + start, self.address + start
        cuda.call("cudaMemcpyAsync", *places, size, kind, stream)

    def to_host(self, size: int, stream: Any) -> np.ndarray:
        """Return the host's uint8[size], to which the stream copies the device's."""
        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyDeviceToHost
        cuda.call("cudaMemcpyAsync", self.address, self.pointer, size, kind, stream)
        return self.memory[:size]

    def free(self) -> None:
        """Free both; arrays of `to_host` must not be read any more."""
        self.memory = np.zeros(0, np.uint8)
        for function, address in (("cudaFree", self.pointer), ("cudaFreeHost", self.address)):
            if address:
                cuda.call(function, address)
        self.pointer = self.address = 0
