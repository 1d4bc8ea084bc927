"""A GPU made of host memory, for the tests of the nvJPEG backend."""

import contextlib
import ctypes
import io
import math
import threading
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug.decode import Decoder, Encoded, read_headers
from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.image.host.decode_image import decode_into
from jaxaug.decode.image.nvjpeg import canvas_buffers, host_threads, nvjpeg_backend
from jaxaug.decode.image.nvjpeg.resize_and_orient import RECORD
from jaxaug.decode.native import cuda
from jaxaug.decode.native.libnvjpeg import NvjpegError
from tests.decode.current_device import CurrentDevice
from tests.images import encode, picture

CANVAS = (64, 64)
GUARD = 2**20  # bytes, more than the largest image of these tests
CURRENT = CurrentDevice()


class HostBuffer:
    """A `CanvasBuffer` in host memory."""

    bytes_held = 0

    def __init__(self, canvas_shape, dtype="uint8"):
        self.shape = canvas_shape
        self.pixels = np.empty((0, *canvas_shape), dtype)
        self.readers = ()
        self.device = CURRENT.ordinal

    @property
    def starts(self):
        """The first three bytes of each canvas."""
        return self.pixels.reshape(len(self.pixels), -1).view(np.uint8)[:, :3]

    def prepare(self, rows):
        CURRENT.check(self.device)
        memory = MEMORY.guarded(rows * math.prod(self.shape) * self.pixels.itemsize)
        self.pixels = memory.view(self.pixels.dtype).reshape(rows, *self.shape)
        self.pixels[:] = 0
        self.starts[:] = canvas_buffers.SENTINEL
        return self.pixels.ctypes.data + np.arange(rows, dtype=np.uint64) * np.uint64(
            self.pixels[0].nbytes
        )

    def write_sentinels(self, rows):
        CURRENT.check(self.device)
        self.starts[rows] = canvas_buffers.SENTINEL

    def take_unwritten_rows(self, rows, kept):
        CURRENT.check(self.device)
        unwritten = (self.starts == canvas_buffers.SENTINEL).all(1)
        unwritten[kept] = False
        self.starts[unwritten] = 0
        return unwritten.nonzero()[0]

    def clear(self, rows):
        CURRENT.check(self.device)
        self.pixels[rows] = 0

    def view(self, rows):
        return jax.numpy.array(self.pixels)

    def is_idle(self) -> bool:
        return True

    def close(self):
        CURRENT.check(self.device)


def write(pixels, pointer, pitch=None):
    """Lay pixels down at an address; on a canvas if no pitch is given."""
    pitch = CANVAS[1] * pixels.shape[2] if pitch is None else pitch
    for number, row in enumerate(pixels):
        ctypes.memmove(int(pointer) + number * int(pitch), row.tobytes(), row.nbytes)


def on_canvas(image, channels=3):
    """The image as the host lays it on the canvas."""
    headers = read_headers(Encoded.from_bytes([image]))
    size = tuple(fit_size(headers.original_size(), CANVAS)[0].tolist())
    pixels = np.zeros((*CANVAS, channels), np.uint8)
    decode_into(memoryview(image), headers.row(0), size, pixels)
    return pixels[: size[0], : size[1]]


def as_stored(image, channels=3):
    """The whole image, not turned."""
    opened = Image.open(io.BytesIO(image))
    if channels == 3:
        return np.asarray(opened.convert("RGB"))
    opened.draft("L", None)  # Y, as libjpeg has it
    return np.asarray(opened)[..., None]


class HostMemory:
    """Allocations of a device in host memory, between guard bytes.

    What runs on a stream is done as late as it may be: when somebody synchronizes.
    """

    def __init__(self):
        self.kept = []
        self._later = []
        self._lock = threading.Lock()

    def guarded(self, size):
        whole = np.empty(size + 2 * GUARD, np.uint8)
        whole[:GUARD] = whole[-GUARD:] = 0xA5
        self.kept.append(whole)
        return whole[GUARD:-GUARD]

    def check_guards(self):
        """Raise if a byte outside of an allocation was written."""
        for whole in self.kept:
            guards = np.concatenate([whole[:GUARD], whole[-GUARD:]])
            assert (guards == 0xA5).all(), "written outside of an allocation"

    def pinned_array(self, shape):
        memory = self.guarded(int(np.prod(shape))).reshape(shape)
        return memory, memory.ctypes.data

    def allocate(self, size, purpose=""):
        return self.guarded(size).ctypes.data

    def do_later(self, work, *given):
        with self._lock:
            self._later.append((work, given))

    def call(self, name, *given):
        if name == "cudaMemcpyAsync":
            CURRENT.check_stream(given[-1])
            self.do_later(ctypes.memmove, *given[:3])
        if name == "cudaStreamSynchronize":
            CURRENT.check_stream(given[0])
            with self._lock:
                for work, arguments in self._later:
                    work(*arguments)
                self._later.clear()
        return (2**35, 2**35) if name == "cudaMemGetInfo" else CURRENT.call(name, *given)


MEMORY = HostMemory()


class HostResampler:
    """The kernels in numpy and Pillow."""

    def __init__(self, channels):
        self.channels = channels

    @staticmethod
    def _records(table, count):
        return np.frombuffer(ctypes.string_at(table, count * RECORD.itemsize), RECORD)

    def write_sentinels(self, table, count, color, stream):
        CURRENT.check_stream(stream)
        MEMORY.do_later(self._write_sentinels, table, count, color)

    def _write_sentinels(self, table, count, color):
        for record in self._records(table, count):
            ctypes.memmove(int(record["slot"]), color.tobytes(), 3)

    def fill_canvases(self, table, records, pitch, color, stream):
        CURRENT.check_stream(stream)
        MEMORY.do_later(self._fill_canvases, table, len(records), pitch, color)

    def _fill_canvases(self, table, count, pitch, color):
        for each in self._records(table, count):
            extent = tuple(
                int(each[side]) * int(each["eighths"]) / 8 for side in ("width", "height")
            )
            width, height = map(math.ceil, extent)
            transpose, flip_x, flip_y = (
                bool(each[name]) for name in ("transpose", "flip_x", "flip_y")
            )
            data = ctypes.string_at(int(each["slot"]), height * width * self.channels)
            if color is not None and data[:3] == color.tobytes():
                continue
            wanted = (int(each["out_height"]), int(each["out_width"]))
            stored = wanted[::-1] if transpose else wanted
            whole = Image.frombytes("RGB" if self.channels == 3 else "L", (width, height), data)
            box = (0, 0, *extent)
            shrunk = np.asarray(whole.resize(stored[::-1], Image.Resampling.BILINEAR, box))
            shrunk = shrunk.reshape(*stored, self.channels)
            upright = shrunk.swapaxes(0, 1) if transpose else shrunk
            upright = upright[::-1] if flip_y else upright
            upright = upright[:, ::-1] if flip_x else upright
            write(upright, each["canvas"], pitch)


def engines_of(gpu):
    """Return a `BatchedDecoder` that does as `gpu` says."""

    class Engines:
        def __init__(self, handle, channels):
            self.channels = channels
            self.device = CURRENT.chosen()
            self.permits = threading.BoundedSemaphore(2)

        def make_states(self, sampling):
            CURRENT.check(self.device)
            gpu.samplings.append(sampling)

        def has_free_permit(self):
            return free_permits(self) > 0

        def decode(self, encoded, sampling, pointers, pitches):
            CURRENT.check(self.device)
            images = [bytes(encoded.view(row)) for row in range(len(pointers))]
            assert images, "a call without images"
            gpu.calls.append(len(images))
            time.sleep(gpu.seconds(len(images)))
            if any(image in gpu.refused for image in images):
                raise NvjpegError("nvjpegDecodeBatched", 4)
            for image, pointer, pitch in zip(images, pointers, pitches):
                if image not in gpu.skipped:
                    write(as_stored(image, self.channels), pointer, pitch)

        def close(self):
            CURRENT.check(self.device)

    return Engines


def free_permits(engines):
    """Return how many calls could start now."""
    with contextlib.ExitStack() as held:
        count = 0
        while engines.permits.acquire(blocking=False):
            held.callback(engines.permits.release)
            count += 1
        return count


def uploader_of(gpu):
    """Return an `Uploader` that writes late, in `finish`."""

    class Threads:
        def __init__(self, ordinal, canvas_shape, stream, resampler, max_slot_bytes):
            cuda.set_device(ordinal)
            CURRENT.check_stream(stream)
            self.device = ordinal
            self.bytes_held = gpu.thread_slot(max_slot_bytes)
            self.shape = canvas_shape
            self.started = []

        def decode(self, data, header, size, pointer):
            CURRENT.check(self.device)
            gpu.in_thread(bytes(data))
            self.started.append((on_canvas(bytes(data), self.shape[2]), pointer))

        def finish(self):
            while self.started:
                pixels, pointer = self.started.pop()
                if pixels[0].size < 3:  # with the whole canvas, or bytes of the sentinel stay
                    canvas = np.zeros(self.shape, np.uint8)
                    canvas[: pixels.shape[0], : pixels.shape[1]] = pixels
                    pixels = canvas
                write(pixels, pointer)

        def close(self):
            CURRENT.check(self.device)

    return Threads


@pytest.fixture
def gpu(monkeypatch):
    """A GPU to be configured by a test.

    `calls` are the sizes of the batched calls; a thread calls `in_thread` before each image, and
    `thread_slot` gives the bytes of its slot, of those that it may take at most.
    """
    gpu = SimpleNamespace(
        calls=[],
        samplings=[],
        seconds=lambda images: 0.0,
        in_thread=lambda image: None,
        thread_slot=lambda most: 0,
        refused=set(),
        skipped=set(),
        memory=MEMORY,
    )

    monkeypatch.setattr(canvas_buffers, "CanvasBuffer", HostBuffer)
    monkeypatch.setattr(nvjpeg_backend, "BatchedDecoder", engines_of(gpu))
    monkeypatch.setattr(host_threads, "Uploader", uploader_of(gpu))
    monkeypatch.setattr(nvjpeg_backend, "_make_handle", lambda deterministic: CURRENT.chosen())
    monkeypatch.setattr(nvjpeg_backend.libnvjpeg, "destroy", destroy)

    monkeypatch.setattr(cuda, "core", lambda: None)

    MEMORY.kept.clear()
    for name in ("call", "allocate", "pinned_array"):
        monkeypatch.setattr(cuda, name, getattr(MEMORY, name))
    kinds = SimpleNamespace(cudaMemcpyKind=SimpleNamespace(cudaMemcpyHostToDevice=1))
    monkeypatch.setattr(cuda, "runtime", lambda: kinds)
    monkeypatch.setattr(nvjpeg_backend, "compile_resampler", HostResampler)

    monkeypatch.setattr("jaxaug.decode.image.decoder._make_backend", make_backend)
    return gpu


def destroy(function, made):
    """Take the place of nvJPEG's functions; a handle is the number of its device."""
    if function == "nvjpegDestroy":
        CURRENT.check(made)


def make_backend(backend, devices, canvas, form, num_threads, deterministic):
    canvas_shape = (*canvas, form.count)
    return "nvjpeg", nvjpeg_backend.NvjpegBackend(devices, canvas_shape, num_threads, deterministic)


def decoder(gpus=1, **options):
    return Decoder(
        CANVAS, devices=jax.devices("cpu")[:gpus], num_threads=12, on_error="mask", **options
    )


def check(decoder, images):
    """Decode; every image must be on its canvas."""
    pixels = np.asarray(decoder.decode(images).pixels)
    if isinstance(images, Encoded):
        images = [bytes(images.view(row)) for row in range(len(images.lengths))]
    for row, image in enumerate(images):
        expected = on_canvas(image, decoder.form.count)
        np.testing.assert_array_equal(
            pixels[row, : expected.shape[0], : expected.shape[1]], expected
        )


def turned(seed, height, width, orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return encode(picture(seed, height, width), quality=95, exif=tags.tobytes())


def check_fitted(decoder, images, *, levels=1.5):
    """Decode; every canvas must be near that of the host, which shrinks images differently."""
    batch = decoder.decode(images)
    pixels = np.asarray(batch.pixels).astype(int)
    assert batch.valid.all()
    for row, image in enumerate(images):
        expected = on_canvas(image, decoder.form.count)
        height, width = expected.shape[:2]
        assert np.abs(pixels[row, :height, :width] - expected).mean() < levels, row
        assert not pixels[row, height:].any() and not pixels[row, :, width:].any()


WHOLE = [
    *(encode(picture(i, 90 + 7 * i, 130 - 5 * i), quality=95) for i in range(6)),
    *(turned(i, 40, 60, i + 1) for i in range(8)),
    *(turned(i, 140, 90, i + 1) for i in range(8)),
]
