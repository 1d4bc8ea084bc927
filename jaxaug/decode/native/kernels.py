"""CUDA C++ compiled at run time, and started through cuda.core."""

import functools
from typing import Any

import numpy as np

from jaxaug._install import install_gpu_command
from jaxaug._nvrtc import compile_to_cubin
from jaxaug.decode.native import cuda
from jaxaug.decode.native.load_library import LibraryError


class Kernel:
    """A compiled kernel; it runs on the device that is current in the launching thread."""

    def __init__(self, compiled: Any):
        self._compiled = compiled

    def launch(
        self,
        stream: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *arguments: np.generic,
    ) -> None:
        """Start the kernel on `stream`.

        Args:
          stream: of the device.
          grid, block: numbers of blocks and of threads per block.
          arguments: numpy scalars, each of the size of its parameter.
        """
        core = _core()
        config = core.LaunchConfig(grid=grid, block=block)
        core.launch(core.Stream.from_handle(stream), config, self._compiled, *arguments)


def compile_kernels(source: str, names: tuple[str, ...]) -> dict[str, Kernel]:
    """Compile CUDA C++ for the current device, once in a process for each architecture.

    Args:
      source: the program; its kernels are `extern "C"`.
      names: of the kernels.

    Raises:
      LibraryError: cuda-core or NVRTC is not installed, or cannot compile it.
    """
    attribute = cuda.runtime().cudaDeviceAttr
    device = int(cuda.call("cudaGetDevice"))
    major_number = attribute.cudaDevAttrComputeCapabilityMajor
    minor_number = attribute.cudaDevAttrComputeCapabilityMinor
    major = int(cuda.call("cudaDeviceGetAttribute", major_number, device))
    minor = int(cuda.call("cudaDeviceGetAttribute", minor_number, device))
    return _load(source, names, 10 * major + minor)


@functools.cache
def _load(source: str, names: tuple[str, ...], architecture: int) -> dict[str, Kernel]:
    core = _core()
    try:
        code = core.ObjectCode.from_cubin(compile_to_cubin(source, architecture))
        return {name: Kernel(code.get_kernel(name)) for name in names}
    except Exception as error:  # of many classes: cuda.core's own, NVRTC's loader's
        raise LibraryError(
            f"NVRTC cannot compile jaxaug's CUDA kernels for sm_{architecture} ({error}):"
            f" {install_gpu_command()}."
        ) from error


@functools.cache
def _core() -> Any:
    try:
        import cuda.core as core
    except ImportError as error:
        raise LibraryError(f"cuda-core is missing ({error}): {install_gpu_command()}.") from error
    return core
