"""The functions of nvJPEG that jaxaug calls, with status codes as exceptions.

Names and meanings: https://docs.nvidia.com/cuda/nvjpeg/. ctypes releases the GIL during each call.
"""

import ctypes
import functools
from ctypes import POINTER, c_int, c_uint, c_void_p
from typing import Any

import numpy as np

from jaxaug._install import install_gpu_command
from jaxaug.decode.native.load_library import declare, load_library

# nvjpegBackend_t
GPU_HYBRID = 2
HARDWARE = 3
# nvjpegOutputFormat_t by the number of channels: NVJPEG_OUTPUT_Y and NVJPEG_OUTPUT_RGBI
OUTPUTS = {1: 2, 3: 5}
# Memory pools save an allocation per batch; interpolation is libjpeg-turbo's "fancy" upsampling.
_ENABLE_MEMORY_POOLS = 1 << 1  # NVJPEG_FLAGS_ENABLE_MEMORY_POOLS
_INTERPOLATE_CHROMA = 1 << 5  # NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION
_FLAGS = _ENABLE_MEMORY_POOLS | _INTERPOLATE_CHROMA

_STATUS = (
    "SUCCESS",
    "NOT_INITIALIZED",
    "INVALID_PARAMETER",
    "BAD_JPEG",
    "JPEG_NOT_SUPPORTED",
    "ALLOCATOR_FAILURE",
    "EXECUTION_FAILED",
    "ARCH_MISMATCH",
    "INTERNAL_ERROR",
    "IMPLEMENTATION_NOT_SUPPORTED",
    "INCOMPLETE_BITSTREAM",
)

ALLOCATOR_FAILURE = _STATUS.index("ALLOCATOR_FAILURE")

_HANDLE = c_void_p  # an opaque pointer
_OUT = POINTER(c_void_p)  # receives a new one
_PROTOTYPES: dict[str, tuple] = {
    "nvjpegGetProperty": (c_int, POINTER(c_int)),
    "nvjpegCreateEx": (c_int, c_void_p, c_void_p, c_uint, _OUT),
    "nvjpegDestroy": (_HANDLE,),
    "nvjpegGetHardwareDecoderInfo": (_HANDLE, POINTER(c_uint), POINTER(c_uint)),
    "nvjpegJpegStateCreate": (_HANDLE, _OUT),
    "nvjpegJpegStateDestroy": (_HANDLE,),
    "nvjpegDecodeBatchedInitialize": (_HANDLE, _HANDLE, c_int, c_int, c_int),
    "nvjpegDecodeBatched": (_HANDLE, _HANDLE, c_void_p, c_void_p, c_void_p, c_void_p),
}
_UPDATE = (
    "Update nvidia-nvjpeg (CUDA 13) or nvidia-nvjpeg-cu12 (CUDA 12), or set JAXAUG_NVJPEG to the "
    "path of a newer one."
)


class NvjpegError(RuntimeError):
    """An nvJPEG function did not succeed; `status` is its nvjpegStatus_t."""

    def __init__(self, function: str, status: int):
        self.status = status
        name = _STATUS[status] if 0 <= status < len(_STATUS) else "unknown status"
        super().__init__(f"{function}: {name} ({status})")


@functools.cache
def _find() -> tuple[ctypes.CDLL, str]:
    return load_library(
        names=("libnvjpeg.so.13", "libnvjpeg.so.12"),
        folders=("cu13/lib", "nvjpeg/lib"),
        variable="JAXAUG_NVJPEG",
        advice=f"{install_gpu_command()}; or set JAXAUG_NVJPEG to the library's path.",
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Return libnvjpeg with its prototypes set; it is loaded once.

    Raises:
      LibraryError: it is not installed, or too old.
    """
    loaded, found_at = _find()
    declare(loaded, _PROTOTYPES, check=_check, found_at=found_at, update=_UPDATE)
    return loaded


def path() -> str:
    """Return the path of the loaded library."""
    return _find()[1]


def version() -> str:
    """Return nvJPEG's version, as in "13.3.2"."""
    parts = []
    for number in range(3):  # libraryPropertyType: major, minor, patch
        value = c_int()
        load().nvjpegGetProperty(number, ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)


def create(function: str, *arguments: Any) -> c_void_p:
    """Call a function whose last argument receives a new object; return the object."""
    made = c_void_p()
    getattr(load(), function)(*arguments, ctypes.byref(made))
    return made


def destroy(function: str, made: c_void_p) -> None:
    """Call the function that destroys an object of `create`."""
    getattr(load(), function)(made)


def create_handle(backend: int) -> c_void_p:
    """Return a library handle on the current device."""
    return create("nvjpegCreateEx", backend, None, None, _FLAGS)


def engine_count(handle: c_void_p) -> int:
    """Return the number of JPEG engines of the handle's device."""
    engines = c_uint()
    cores = c_uint()
    load().nvjpegGetHardwareDecoderInfo(handle, ctypes.byref(engines), ctypes.byref(cores))
    return engines.value


def destinations(pointers: np.ndarray, pitches: np.ndarray) -> np.ndarray:
    """Return nvjpegImage_t for interleaved output, uint64[n, 8].

    Each row has the pointers and then the pitches of four channels; only the first is used.

    Args:
      pointers: uint64[n].
      pitches: uint64[n], bytes from one row of an image to the next.
    """
    images = np.zeros((len(pointers), 8), np.uint64)
    images[:, 0] = pointers
    images[:, 4] = pitches
    return images


def decode_batched(
    handle: c_void_p,
    state: c_void_p,
    addresses: np.ndarray,
    lengths: np.ndarray,
    images: np.ndarray,
    stream: int,
    channels: int,
) -> None:
    """Decode a batch of any size on `stream`; the arrays are C contiguous uint64.

    With three channels the pixels are RGB, with one they are the Y channel of the file.

    Initialization for the size of each batch takes microseconds (measured, 13.3), so sizes may vary
    freely.
    """
    library = load()
    library.nvjpegDecodeBatchedInitialize(handle, state, len(addresses), 1, OUTPUTS[channels])
    pointers = (addresses.ctypes.data, lengths.ctypes.data, images.ctypes.data)
    library.nvjpegDecodeBatched(handle, state, *pointers, stream)


def _check(status: int, function: Any, arguments: tuple) -> int:
    if status:
        raise NvjpegError(function.__name__, status)
    return status
