"""TIFF decoded by nvTIFF on a GPU, for a thread of the host.

Names and meanings: https://docs.nvidia.com/cuda/nvtiff/, and nvtiff.h of its wheel. ctypes releases
the GIL during each call.
"""

import ctypes
import functools
import threading
import weakref
from ctypes import POINTER, c_int, c_int32, c_size_t, c_uint16, c_uint32, c_void_p

import numpy as np

from jaxaug.decode.native import cuda, lzw_check
from jaxaug.decode.native.load_library import (
    NotDecodedError,
    check_decoded,
    create,
    declare,
    load_library,
)
from jaxaug.decode.native.staging import Staging


class _Region(ctypes.Structure):
    """nvtiffDecodeRegion_t: a page, and the part of it; sides of 0 are all of it."""

    _fields_ = (
        ("directory", c_size_t),
        ("x", c_int32),
        ("y", c_int32),
        ("width", c_uint32),
        ("height", c_uint32),
    )


class _Info(ctypes.Structure):
    """nvtiffImageInfo_t: what nvTIFF reads of a directory."""

    _fields_ = (
        ("type", c_uint32),
        ("width", c_uint32),
        ("height", c_uint32),
        ("compression", c_int),
        ("photometric", c_int),
        ("planar", c_int),
        ("samples", c_uint16),
        ("bits", c_uint16),  # of a pixel
        ("bits_of_each", c_uint16 * 16),
        ("formats", c_int * 16),
    )


class _Image(ctypes.Structure):
    """nvtiffImage_t: one plane of all samples."""

    _fields_ = (
        ("planes", POINTER(c_void_p)),
        ("pitches", POINTER(c_size_t)),
        ("count", c_uint32),
    )


_OUT = POINTER(c_void_p)
_PROTOTYPES: dict[str, tuple] = {
    "nvtiffDecoderCreateSimple": (_OUT, c_void_p),
    "nvtiffDecodeParamsCreate": (_OUT,),
    "nvtiffDecodeParamsSetRegions": (c_void_p, POINTER(_Region), c_uint32),
    "nvtiffStreamOpen": (c_void_p, c_size_t, _OUT),
    "nvtiffStreamGetImageInfo": (c_void_p, c_size_t, POINTER(_Info)),
    "nvtiffDecode": (c_void_p, c_void_p, c_void_p, POINTER(_Image), c_void_p),
    "nvtiffStreamClose": (c_void_p,),
    "nvtiffDecodeParamsDestroy": (c_void_p,),
    "nvtiffDecoderDestroy": (c_void_p, c_void_p),
}


@functools.cache
def load() -> ctypes.CDLL:
    """Return libnvtiff with its prototypes set; it is loaded once.

    Raises:
      LibraryError: it is not installed, or too old.
    """
    loaded, found_at = load_library(
        names=("libnvtiff.so.0",),
        folders=("nvtiff/lib", "cu13/lib"),
        variable="JAXAUG_NVTIFF",
        advice="pip install nvidia-nvtiff-cu13.",
    )
    update = "Update nvidia-nvtiff-cu13 to 0.8 or later."
    declare(loaded, _PROTOTYPES, check=check_decoded, found_at=found_at, update=update)
    return loaded


_lock = threading.Lock()  # one thread compiles, and imports cuda.core


class TiffDecoder:
    """What one thread needs: a decoder, a stream, memory of the device and of the host.

    Args:
      ordinal: number of the CUDA device.
    """

    def __init__(self, ordinal: int):
        cuda.set_device(ordinal)
        load()
        with _lock:
            self._kernel = lzw_check.compile_check()
        self._stream = cuda.create_stream()
        self._decoder = c_void_p()
        load().nvtiffDecoderCreateSimple(ctypes.byref(self._decoder), self._stream)
        self._params = create(load().nvtiffDecodeParamsCreate)
        self._file = Staging("for TIFF")
        self._pixels = Staging("for TIFF")
        owned = (self._decoder, self._params, self._stream, (self._file, self._pixels))
        weakref.finalize(self, _destroy, *owned).atexit = False  # when its thread ends

    def decode(
        self,
        data: memoryview,
        shape: tuple[int, int, int],
        dtype: np.dtype,
        *,
        start: int,
        parts: np.ndarray,
    ) -> np.ndarray | None:
        """Return the numbers [h, w, samples] of a page in LZW, valid until the next call.

        None is for one that is damaged, or that nvTIFF does not decode, and where CUDA fails: the
        host decodes it, or tells its damage.

        Args:
          data: the file.
          shape: (h, w, samples) that its directory tells.
          dtype: of the numbers, in this machine's byte order.
          start: where the directory begins.
          parts: int64[k, 3]: where each strip or tile begins, its bytes, those it decodes to.
        """
        try:
            table = self._upload(data, parts)
            return self._decode(len(data), table, shape, dtype, start)
        except (NotDecodedError, cuda.CudaError, MemoryError):
            return None

    def _upload(self, data: memoryview, parts: np.ndarray) -> np.ndarray:
        """Return the table of the parts on the host; behind it, and on the device, is the file."""
        size = len(parts) * lzw_check.PART.itemsize
        self._file.reserve(size + len(data))
        table = self._file.memory[:size].view(lzw_check.PART)
        table["at"], table["count"], table["size"] = parts.T
        self._file.memory[size : size + len(data)] = np.frombuffer(data, np.uint8)
        self._file.to_device(size + len(data), self._stream)
        return table

    def _decode(
        self,
        size: int,
        table: np.ndarray,
        shape: tuple[int, int, int],
        dtype: np.dtype,
        start: int,
    ) -> np.ndarray:
        height, width, samples = shape
        pitch = width * samples * dtype.itemsize
        opened = create(load().nvtiffStreamOpen, self._file.address + table.nbytes, size)
        try:
            _check_info(opened, start, shape, dtype)
            self._check_parts(table)
            self._pixels.reserve(height * pitch)
            region = _Region(start, 0, 0, 0, 0)
            load().nvtiffDecodeParamsSetRegions(self._params, ctypes.byref(region), 1)
            planes = (c_void_p * 1)(self._pixels.pointer)
            image = _Image(planes, (c_size_t * 1)(pitch), 1)
            asked = (opened, self._decoder, self._params, ctypes.byref(image), self._stream)
            try:
                load().nvtiffDecode(*asked)
                pixels = self._pixels.to_host(height * pitch, self._stream)
            finally:  # it may have begun before it failed
                cuda.call("cudaStreamSynchronize", self._stream)
        finally:
            load().nvtiffStreamClose(opened)
        return pixels.view(dtype).reshape(shape)

    def _check_parts(self, table: np.ndarray) -> None:
        """Raise NotDecodedError unless all parts are whole, of which nvTIFF tells nothing."""
        lzw_check.check(self._kernel, self._file.pointer, len(table), self._stream)
        self._file.to_host(table.nbytes, self._stream)
        cuda.call("cudaStreamSynchronize", self._stream)
        if not table["whole"].all():
            raise NotDecodedError("damaged LZW")


def _check_info(opened: c_void_p, start: int, shape: tuple[int, int, int], dtype: np.dtype) -> None:
    """Raise NotDecodedError where nvTIFF would write other numbers than there is memory for."""
    info = _Info()
    load().nvtiffStreamGetImageInfo(opened, start, ctypes.byref(info))
    bits = 8 * dtype.itemsize * shape[2]
    if (info.height, info.width, info.samples, info.bits) != (*shape, bits):
        raise NotDecodedError(f"{info.width} x {info.height} pixels of {info.bits} bits")


def _destroy(decoder: c_void_p, params: c_void_p, stream: int, memory: tuple[Staging, ...]) -> None:
    for each in memory:
        each.free()
    load().nvtiffDecodeParamsDestroy(params)
    load().nvtiffDecoderDestroy(decoder, stream)
    cuda.call("cudaStreamDestroy", stream)
