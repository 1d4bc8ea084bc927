"""CUDA C++ that is compiled when it is needed, by NVRTC through cuda.core."""

import functools
from typing import Any

import numpy as np

from jaxaug.decode.native import cuda
from jaxaug.decode.native.load_library import LibraryError


class Kernel:
    """A compiled kernel; it runs on whatever device is current in the thread that launches it."""

    def __init__(self, compiled: Any):
        self._compiled = compiled

    def launch(
        self,
        stream: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *arguments: np.generic,
    ) -> None:
        """Start the kernel on `stream`; the arguments are numpy scalars of the parameters' sizes."""
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
    version = [
        int(cuda.call("cudaDeviceGetAttribute", kind, device))
        for kind in (
            attribute.cudaDevAttrComputeCapabilityMajor,
            attribute.cudaDevAttrComputeCapabilityMinor,
        )
    ]
    return _compile(source, names, f"sm_{version[0]}{version[1]}")


@functools.cache
def _compile(source: str, names: tuple[str, ...], architecture: str) -> dict[str, Kernel]:
    core = _core()
    options = core.ProgramOptions(arch=architecture)
    try:
        compiled = core.Program(source, "c++", options).compile("cubin")
        return {name: Kernel(compiled.get_kernel(name)) for name in names}
    except Exception as error:  # cuda.core raises its own of many kinds, NVRTC's loader others
        raise LibraryError(
            f"NVRTC cannot compile jaxaug's CUDA kernels for {architecture} ({error}): install "
            "jaxaug[cuda13] or jaxaug[cuda12]."
        ) from error


@functools.cache
def _core() -> Any:
    try:
        import cuda.core as core
    except ImportError as error:
        raise LibraryError(
            f"cuda-core is missing ({error}): install jaxaug[cuda13] or jaxaug[cuda12]."
        ) from error
    return core
