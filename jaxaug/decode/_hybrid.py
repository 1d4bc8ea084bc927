"""One host thread's way to a canvas on the GPU: nvJPEG's decoupled HYBRID decoder, and libjpeg-turbo with an upload.

HYBRID does the Huffman decoding on the calling thread and the rest on the GPU; measured on an H200 host it is a
quarter faster than libjpeg-turbo alone, and its pixels need no upload.
"""

from typing import Any

import numpy as np

from jaxaug.decode._header import Headers
from jaxaug.decode._host import decode_into
from jaxaug.decode.native import _cuda, _nvjpeg


class HybridWorker:
    """What one thread needs to decode single images to canvases of one GPU.

    Two states take turns, so that the thread decodes the next image while the GPU finishes the last.

    Args:
      ordinal: the CUDA device.
      canvas: (H, W) of each row.
      handle: an nvJPEG handle for HYBRID, which the threads of a GPU share.
    """

    def __init__(self, ordinal: int, canvas: tuple[int, int], handle: Any):
        _cuda.set_device(ordinal)
        self._ordinal, self._canvas, self._handle = ordinal, canvas, handle
        self._decoder = _nvjpeg.create("nvjpegDecoderCreate", self._handle, _nvjpeg.HYBRID)
        self._device_buffer = _nvjpeg.create("nvjpegBufferDeviceCreate", self._handle, None)
        self._pinned_buffers = [_nvjpeg.create("nvjpegBufferPinnedCreate", self._handle, None) for _ in range(2)]
        self._states = [self._make_state(pinned) for pinned in self._pinned_buffers]
        self._parsed = [_nvjpeg.create("nvjpegJpegStreamCreate", self._handle) for _ in range(2)]
        self._parameters = _nvjpeg.create("nvjpegDecodeParamsCreate", self._handle)
        _nvjpeg.library().nvjpegDecodeParamsSetOutputFormat(self._parameters, _nvjpeg.RGB_INTERLEAVED)
        self._stream = _cuda.create_stream()
        self._image = _nvjpeg.destinations(np.zeros(1, np.uint64), canvas[1] * 3)
        self._image_address = self._image.ctypes.data
        self._row, self._row_address = _cuda.pinned_array((*canvas, 3))
        self._turn = 0

    def decode(self, address: int, length: int, pointer: int) -> bool:
        """Decode the JPEG at `address` to the canvas at `pointer`; `wait` before its pixels are read.

        False if nvJPEG refuses the image; then nothing more is written to the canvas.
        """
        try:
            self._decode(address, length, pointer)
        except _nvjpeg.NvjpegError:
            self.wait()
            return False
        return True

    def _decode(self, address: int, length: int, pointer: int) -> None:
        nvjpeg, turn = _nvjpeg.library(), self._turn
        self._turn = 1 - turn
        state, parsed = self._states[turn], self._parsed[turn]
        nvjpeg.nvjpegJpegStreamParse(self._handle, address, length, 0, 0, parsed)
        self._image[0, 0] = pointer
        nvjpeg.nvjpegDecodeJpeg(
            self._handle, self._decoder, state, parsed, self._image_address, self._parameters, self._stream
        )

    def decode_on_host(self, data: memoryview, header: Headers, size: tuple[int, int], pointer: int) -> None:
        """Decode any image with the host's libraries, and upload its canvas.

        Raises:
          DecodeError: the pixels cannot be read; the canvas on the GPU is untouched.
        """
        height = size[0]
        self._row[:height] = 0
        decode_into(data, header, size, self._row)
        kind = _cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        size_bytes = height * self._canvas[1] * 3
        _cuda.call("cudaMemcpyAsync", pointer, self._row_address, size_bytes, kind, self._stream)
        self.wait()  # the staging row is used again at once

    def wait(self) -> None:
        """Until all images are on their canvases."""
        _cuda.call("cudaStreamSynchronize", self._stream)

    def close(self) -> None:
        """Free everything."""
        nvjpeg = _nvjpeg.library()
        _cuda.set_device(self._ordinal)
        self.wait()
        for state, parsed in zip(self._states, self._parsed):
            nvjpeg.nvjpegJpegStateDestroy(state)
            nvjpeg.nvjpegJpegStreamDestroy(parsed)
        for pinned in self._pinned_buffers:
            nvjpeg.nvjpegBufferPinnedDestroy(pinned)
        nvjpeg.nvjpegBufferDeviceDestroy(self._device_buffer)
        nvjpeg.nvjpegDecodeParamsDestroy(self._parameters)
        nvjpeg.nvjpegDecoderDestroy(self._decoder)
        _cuda.call("cudaStreamDestroy", self._stream)
        _cuda.call("cudaFreeHost", self._row_address)

    def _make_state(self, pinned: object) -> object:
        state = _nvjpeg.create("nvjpegDecoderStateCreate", self._handle, self._decoder)
        _nvjpeg.library().nvjpegStateAttachPinnedBuffer(state, pinned)
        _nvjpeg.library().nvjpegStateAttachDeviceBuffer(state, self._device_buffer)
        return state
