"""Uploads from staging memory."""

import ctypes
from types import SimpleNamespace

import numpy as np

from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.decode.native import cuda
from jaxaug.decode.nvjpeg import upload
from tests.decode.fake_gpu import CANVAS
from tests.images import jpegs


def test_an_upload_may_be_late(monkeypatch):
    """The staging memory is not written again, and `finish` does not return, before the copies are
    done.
    """
    copies = []
    canvases = np.zeros((7, *CANVAS, 3), np.uint8)

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
    uploader = upload.Uploader(0, CANVAS, 0)
    images = jpegs(7)
    encoded = Encoded.from_bytes(images)
    headers = read_headers(encoded)
    for row in range(7):
        size = (int(headers.height[row]), int(headers.width[row]))
        uploader.decode(encoded.view(row), headers.row(row), size, canvases[row].ctypes.data)
    uploader.finish()
    for canvas, image in zip(canvases, images):
        expected = decode_image(image)
        np.testing.assert_array_equal(canvas[: expected.shape[0], : expected.shape[1]], expected)
