"""Uploads from staging memory."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.decode.native import cuda
from jaxaug.decode.nvjpeg import canvas_buffers, upload
from tests.decode.fake_gpu import CANVAS
from tests.images import encode, jpegs, picture


@pytest.mark.parametrize("channels", [3, 1])
def test_an_upload_may_be_late(monkeypatch, channels):
    """The staging memory is not written again, and `finish` does not return, before the copies are
    done.
    """
    copies = []
    canvases = np.zeros((9, *CANVAS, channels), np.uint8)
    canvases.reshape(9, -1)[:, :3] = canvas_buffers.SENTINEL

    def call(function, *arguments):
        if function == "cudaMemcpy2DAsync":
            copies.append(arguments)
        if function == "cudaStreamSynchronize":
            for to, to_pitch, source, pitch, width, height, *_ in copies:
                for row in range(height):
                    ctypes.memmove(int(to) + row * to_pitch, source + row * pitch, width)
            copies.clear()

    def pinned_array(shape):
        memory = np.empty(shape, np.uint8)
        return memory, memory.ctypes.data

    kind = SimpleNamespace(cudaMemcpyHostToDevice=1)
    monkeypatch.setattr(cuda, "call", call)
    monkeypatch.setattr(cuda, "set_device", lambda ordinal: None)
    monkeypatch.setattr(cuda, "pinned_array", pinned_array)
    monkeypatch.setattr(cuda, "runtime", lambda: SimpleNamespace(cudaMemcpyKind=kind))
    monkeypatch.setattr(upload, "_STAGING_BYTES", 3 * canvases[0].nbytes)
    uploader = upload.Uploader(0, (*CANVAS, channels), 0)
    images = [*jpegs(7), encode(picture(7, 5, 1)), encode(picture(8, 1, 2))]
    encoded = Encoded.from_bytes(images)
    headers = read_headers(encoded)
    for row in range(9):
        size = (int(headers.height[row]), int(headers.width[row]))
        uploader.decode(encoded.view(row), headers.row(row), size, canvases[row].ctypes.data)
    uploader.finish()
    for canvas, image in zip(canvases, images):
        expected = decode_image(image, "rgb" if channels == 3 else "gray")
        height, width = expected.shape[:2]
        np.testing.assert_array_equal(canvas[:height, :width].reshape(expected.shape), expected)
        assert not canvas[height:].any() and not canvas[:, width:].any()
