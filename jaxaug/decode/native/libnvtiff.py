"""TIFF in LZW decoded by nvTIFF on a GPU, for a thread of the host: many pages in a call.

nvTIFF decodes several pages of one file at once, so that pages of any files are written to one.

Names and meanings: https://docs.nvidia.com/cuda/nvtiff/, and nvtiff.h of its wheel. ctypes releases
the GIL during each call.
"""

import ctypes
import functools
import threading
import weakref
from collections.abc import Sequence
from ctypes import POINTER, c_int32, c_size_t, c_uint32, c_void_p

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
from jaxaug.decode.native.tiff_pages import Form, Page, one_file, part_sizes

_SLACK = 4  # a quarter more of memory is taken than is needed, as the next files may be larger


class _Region(ctypes.Structure):
    """nvtiffDecodeRegion_t: a page, and the part of it; sides of 0 are all of it."""

    _fields_ = (
        ("directory", c_size_t),
        ("x", c_int32),
        ("y", c_int32),
        ("width", c_uint32),
        ("height", c_uint32),
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
        self, form: Form, pages: Sequence[Page], pointers: Sequence[int], pitch: int
    ) -> np.ndarray:
        """Decode pages to memory of the device; return bool[k], True for those that are there.

        False is for one that is damaged, or that nvTIFF does not decode, and where CUDA fails: the
        host decodes it, or tells its damage.

        Args:
          form: of all pages.
          pages: k of them.
          pointers: where the first number of each page goes.
          pitch: bytes from a row to the next there.
        """
        whole = np.zeros(len(pages), np.bool_)
        try:
            table, directories, size = self._upload(form, pages)
            parts = self._find_whole(table).reshape(len(pages), -1)
            rows = np.flatnonzero(parts.all(axis=1)).tolist()
            if rows:
                regions = (_Region * len(rows))(*((directories[row],) for row in rows))
                images = (_Image * len(rows))(*(_image(pointers[row], pitch) for row in rows))
                self._decode(table.nbytes, size, regions, images)
            whole[rows] = True
        except (NotDecodedError, cuda.CudaError, MemoryError):
            pass
        return whole

    def decode_to_host(self, form: Form, page: Page) -> np.ndarray | None:
        """Return the numbers [h, w, samples] of a page in this machine's byte order.

        They are valid until the next call. None is for one that the host must decode.
        """
        size = form.height * form.pitch
        try:
            self._pixels.reserve(size)
            if not self.decode(form, [page], [self._pixels.pointer], form.pitch)[0]:
                return None
            pixels = self._pixels.to_host(size, self._stream)
            cuda.call("cudaStreamSynchronize", self._stream)
        except (cuda.CudaError, MemoryError):
            return None
        return pixels.view(form.stored.newbyteorder("=")).reshape(form[:3])

    def _upload(self, form: Form, pages: Sequence[Page]) -> tuple[np.ndarray, list[int], int]:
        """Write a file of the pages behind a table of their parts; copy both to the device.

        Returns:
          The table on the host, where the directories begin in the file, and its bytes.
        """
        file = one_file(form, pages)
        count = sum(len(page.offsets) for page in file.pages)
        head = count * lzw_check.PART.itemsize
        self._file.reserve(head + file.size, slack=(head + file.size) // _SLACK)
        table = self._file.memory[:head].view(lzw_check.PART)
        table["at"] = np.concatenate([page.offsets for page in file.pages])
        table["count"] = np.concatenate([page.counts for page in file.pages])
        table["size"] = np.tile(part_sizes(form), len(pages))
        at = head
        for piece in file.pieces:
            self._file.memory[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        self._file.to_device(at, self._stream)
        return table, file.directories, file.size

    def _find_whole(self, table: np.ndarray) -> np.ndarray:
        """Return bool[n], True for parts that are whole, of which nvTIFF tells nothing."""
        lzw_check.check(self._kernel, self._file.pointer, len(table), self._stream)
        self._file.to_host(table.nbytes, self._stream)
        cuda.call("cudaStreamSynchronize", self._stream)
        return table["whole"] != 0

    def _decode(self, head: int, size: int, regions: ctypes.Array, images: ctypes.Array) -> None:
        opened = create(load().nvtiffStreamOpen, self._file.address + head, size)
        try:
            load().nvtiffDecodeParamsSetRegions(self._params, regions, len(regions))
            asked = (opened, self._decoder, self._params, images, self._stream)
            try:
                load().nvtiffDecode(*asked)
            finally:  # it may have begun before it failed
                cuda.call("cudaStreamSynchronize", self._stream)
        finally:
            load().nvtiffStreamClose(opened)


def _image(pointer: int, pitch: int) -> _Image:
    return _Image((c_void_p * 1)(pointer), (c_size_t * 1)(pitch), 1)


def _destroy(decoder: c_void_p, params: c_void_p, stream: int, memory: tuple[Staging, ...]) -> None:
    for each in memory:
        each.free()
    load().nvtiffDecodeParamsDestroy(params)
    load().nvtiffDecoderDestroy(decoder, stream)
    cuda.call("cudaStreamDestroy", stream)
