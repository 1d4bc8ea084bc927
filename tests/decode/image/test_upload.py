"""Uploads from page-locked memory, straight or through a slot that the GPU shrinks and turns."""

import ctypes
import functools
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.image.nvjpeg import canvas_buffers, upload
from jaxaug.decode.image.nvjpeg.resize_and_orient import RECORD
from jaxaug.decode.native import cuda
from tests.decode.fake_gpu import CANVAS, WHOLE, HostResampler, on_canvas
from tests.images import encode, jpegs, picture

LARGE = [
    *WHOLE,
    encode(picture(20, 90, 1200), quality=95),  # more than sixteen times as wide as on its canvas
    encode(picture(21, 190, 130), "png"),
    encode(picture(23, 300, 2), quality=95),  # one pixel wide on its canvas
    encode(picture(22, 190, 130)[..., 0], quality=95),
]


class Late(HostResampler):
    """Kernels that run when the stream is waited for, as the copies do."""

    def __init__(self, channels, started):
        super().__init__(channels)
        self.started = started

    def fill_canvases(self, table, records, pitch, color, stream):
        work = functools.partial(self._fill_canvases, table, len(records), pitch, color)
        self.started.append(work)


@pytest.fixture
def device(monkeypatch):
    """A device whose work is done when the stream is waited for.

    `started` is that work, `free` the bytes that can be allocated, `asked` how often they were.
    """
    device = SimpleNamespace(started=[], free=2**30, asked=0, kept=[])

    def copy_2d(to, to_pitch, source, pitch, width, height, *_):
        for row in range(height):
            ctypes.memmove(int(to) + row * to_pitch, source + row * pitch, width)

    def call(function, *arguments):
        if function == "cudaMemcpy2DAsync":
            device.started.append(functools.partial(copy_2d, *arguments))
        if function == "cudaMemcpyAsync":
            device.started.append(functools.partial(ctypes.memmove, *arguments[:3]))
        if function == "cudaStreamSynchronize":
            for work in device.started:
                work()
            device.started.clear()

    def pinned_array(shape):
        memory = np.empty(shape, np.uint8)
        device.kept.append(memory)
        return memory, memory.ctypes.data

    def allocate(size, purpose):
        device.asked += 1
        device.free -= size
        if device.free < 0:
            raise MemoryError("no device memory")
        return pinned_array((size,))[1]

    kind = SimpleNamespace(cudaMemcpyHostToDevice=1)
    monkeypatch.setattr(cuda, "call", call)
    monkeypatch.setattr(cuda, "set_device", lambda ordinal: None)
    monkeypatch.setattr(cuda, "pinned_array", pinned_array)
    monkeypatch.setattr(cuda, "allocate", allocate)
    monkeypatch.setattr(cuda, "runtime", lambda: SimpleNamespace(cudaMemcpyKind=kind))
    monkeypatch.setattr(upload, "_STAGING_BYTES", 3 * CANVAS[0] * CANVAS[1] * 3)
    return device


def uploaded(uploader, images, channels):
    """Return the canvases, which begin with the sentinel."""
    canvases = np.zeros((len(images), *CANVAS, channels), np.uint8)
    canvases.reshape(len(images), -1)[:, :3] = canvas_buffers.SENTINEL
    encoded = Encoded.from_bytes(images)
    headers = read_headers(encoded)
    sizes = fit_size(headers.original_size(), CANVAS).tolist()
    for row, size in enumerate(sizes):
        address = canvases[row].ctypes.data
        uploader.decode(encoded.view(row), headers.row(row), tuple(size), address)
    uploader.finish()
    return canvases


@pytest.mark.parametrize("channels", [3, 1])
def test_an_upload_may_be_late(device, channels):
    """The staging memory is not written again, and `finish` does not return, before the copies are
    done.
    """
    uploader = upload.Uploader(0, (*CANVAS, channels), 0, None, 0)
    images = [*jpegs(7), encode(picture(7, 5, 1)), encode(picture(8, 1, 2))]
    for canvas, image in zip(uploaded(uploader, images, channels), images):
        expected = decode_image(image, "rgb" if channels == 3 else "gray")
        height, width = expected.shape[:2]
        np.testing.assert_array_equal(canvas[:height, :width].reshape(expected.shape), expected)
        assert not canvas[height:].any() and not canvas[:, width:].any()


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("most, free", [(2**20, 2**30), (5_000, 2**30), (2**20, 0)])
def test_what_is_shrunk_and_turned_is_as_the_host_does_it(device, channels, most, free):
    """Also what does not fit the slot, and where the device has no memory for one."""
    device.free = free
    resampler = Late(channels, device.started)
    uploader = upload.Uploader(0, (*CANVAS, channels), 0, resampler, most)
    for images in ([*LARGE, *jpegs(3, 40, 50), *LARGE], LARGE[:1]):
        for canvas, image in zip(uploaded(uploader, images, channels), images):
            expected = on_canvas(image, channels)
            height, width = expected.shape[:2]
            np.testing.assert_array_equal(canvas[:height, :width], expected)
            assert not canvas[height:].any() and not canvas[:, width:].any()

    held = RECORD.itemsize + min(most, 4 * 64 * 64 * channels)
    assert uploader.bytes_held == (held if free else 0)
    assert device.asked == 1
    uploader.close()
