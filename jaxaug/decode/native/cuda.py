"""CUDA memory, streams and events through cuda-bindings, with its status codes as exceptions."""

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxaug._install import install_gpu_command
from jaxaug._nvrtc import is_available
from jaxaug.decode.native.load_library import LibraryError

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


class CudaError(RuntimeError):
    """A CUDA runtime function did not succeed; `status` is its cudaError_t."""

    def __init__(self, function: str, status: Any):
        self.status = int(status)
        super().__init__(f"{function}: {status.name}")


@functools.cache
def runtime() -> Any:
    """Return the module cuda.bindings.runtime.

    Raises:
      LibraryError: cuda-bindings is not installed.
    """
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise LibraryError(
            f"cuda-bindings is missing ({error}): {install_gpu_command()}."
        ) from error
    return runtime


def call(function: str, *arguments: Any) -> Any:
    """Call a function of the runtime; return None, its result, or a tuple of its results.

    Raises:
      CudaError: it did not succeed.
    """
    status, *results = getattr(runtime(), function)(*arguments)
    if int(status):
        raise CudaError(function, status)
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


def set_device(ordinal: int) -> None:
    """Make device `ordinal` current in this thread."""
    call("cudaSetDevice", ordinal)


@contextlib.contextmanager
def on_device(ordinal: int) -> Iterator[None]:
    """Make device `ordinal` current in this thread inside of a `with` block."""
    before = int(call("cudaGetDevice"))
    set_device(ordinal)
    try:
        yield
    finally:
        set_device(before)


def create_stream() -> int:
    """Return a stream of the highest priority that does not wait for the legacy default stream.

    With a lower priority, the few small kernels of a decode would be queued after whole training
    steps.
    """
    non_blocking = 1
    _, greatest = call("cudaDeviceGetStreamPriorityRange")
    return int(call("cudaStreamCreateWithPriority", non_blocking, greatest))


def allocate(size: int, purpose: str = "for the canvases of a batch") -> int:
    """Return device memory outside of XLA's pool.

    Raises:
      MemoryError: none is left; the message says how XLA can leave more.
      CudaError: any other failure.
    """
    try:
        return int(call("cudaMalloc", size))
    except CudaError as error:
        if error.status != _OUT_OF_MEMORY:
            raise
        raise memory_error(f"of {size / 2**20:.0f} MiB {purpose}", error) from error


def memory_error(purpose: str, cause: Exception) -> MemoryError:
    """Return an error that names the memory's purpose and how XLA can leave more."""
    try:
        free, total = call("cudaMemGetInfo")
        left = f"; {free / 2**20:.0f} of {total / 2**20:.0f} MiB are free"
    except CudaError as error:
        left = f"; {error}"
    return MemoryError(
        f"no device memory {purpose} ({cause}{left}): JAX reserves three quarters of the device "
        "for itself; set XLA_CLIENT_MEM_FRACTION=0.7 or lower, or take a smaller batch or canvas."
    )


def pinned_array(shape: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """Return a page-locked uint8 array and its address, for `cudaFreeHost`."""
    size = int(np.prod(shape))
    address = int(call("cudaMallocHost", size))
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.ctypeslib.as_array(memory).reshape(shape), address


@functools.cache
def core() -> tuple[Any, Any]:
    """Return cuda.core's Buffer and StridedMemoryView.

    The first call must not run in two threads at once, because of the import.

    Raises:
      LibraryError: cuda-core is not installed.
    """
    is_available()  # imports cuda-bindings first, as a thread that compiles may at the same time
    try:
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView
    except ImportError as error:
        raise LibraryError(f"cuda-core is missing ({error}): {install_gpu_command()}.") from error
    return Buffer, StridedMemoryView


def import_buffer(pointer: int, shape: tuple[int, ...], dtype: str = "uint8") -> jax.Array:
    """Return a jax.Array of a shape that views device memory, which must outlive it."""
    buffer_class, view_class = core()
    of = np.dtype(dtype)
    buffer = buffer_class.from_handle(pointer, int(np.prod(shape)) * of.itemsize)
    return jax.dlpack.from_dlpack(view_class.from_buffer(buffer, shape, dtype=of))
