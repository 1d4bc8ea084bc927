"""How a batch is divided between the engines and the host threads, on a GPU made of host memory."""

import contextlib
import ctypes
import gc
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug.decode import Decoder, Encoded, _decoder, decode_image, read_headers
from jaxaug.decode._fit import fit_size
from jaxaug.decode.host.decode_image import decode_into
from jaxaug.decode.native import cuda
from jaxaug.decode.native.libnvjpeg import NvjpegError
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.decode.nvjpeg import (
    canvas_buffers,
    dispatch,
    host_threads,
    nvjpeg_backend,
    upload,
)
from jaxaug.decode.nvjpeg import (
    gpu as gpu_module,
)
from jaxaug.decode.nvjpeg.resample import RECORD
from tests.images import encode, jpegs, picture

CANVAS = (64, 64)


class HostBuffer:
    """A `CanvasBuffer` in host memory."""

    bytes_held = 0

    def __init__(self, canvas):
        self.canvas = canvas
        self.pixels = np.empty((0, *canvas, 3), np.uint8)
        self.readers = ()

    def prepare(self, rows):
        self.pixels = np.zeros((rows, *self.canvas, 3), np.uint8)
        self.pixels[:, 0, 0] = canvas_buffers.SENTINEL
        return self.pixels.ctypes.data + np.arange(rows, dtype=np.uint64) * np.uint64(
            self.pixels[0].nbytes
        )

    def write_sentinels(self, rows):
        self.pixels[rows, 0, 0] = canvas_buffers.SENTINEL

    def take_unwritten_rows(self, candidates):
        unwritten = (self.pixels[:, 0, 0] == canvas_buffers.SENTINEL).all(1) & candidates
        self.pixels[unwritten, 0, 0] = 0
        return unwritten

    def clear(self, rows):
        self.pixels[rows] = 0

    def view(self, rows):
        return jax.numpy.array(self.pixels)

    def is_idle(self) -> bool:
        return True

    def close(self):
        pass


def write(pixels, pointer, pitch=CANVAS[1] * 3):
    """Lay pixels down at an address."""
    for number, row in enumerate(pixels):
        ctypes.memmove(int(pointer) + number * int(pitch), row.tobytes(), row.nbytes)


def on_canvas(image):
    """The image as the host lays it on the canvas."""
    headers = read_headers(Encoded.from_bytes([image]))
    size = tuple(fit_size(headers.original_size(), CANVAS)[0].tolist())
    pixels = np.zeros((*CANVAS, 3), np.uint8)
    decode_into(memoryview(image), headers.row(0), size, pixels)
    return pixels[: size[0], : size[1]]


def as_stored(image):
    """The whole image, not turned."""
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))


class HostMemory:
    """Allocations of a device in host memory."""

    def __init__(self):
        self.kept = []

    def pinned_array(self, shape):
        self.kept.append(np.empty(shape, np.uint8))
        return self.kept[-1], self.kept[-1].ctypes.data

    def allocate(self, size, purpose=""):
        return self.pinned_array((size,))[1]

    @staticmethod
    def call(name, *given):
        if name == "cudaMemcpyAsync":
            ctypes.memmove(*given[:3])
        return (2**35, 2**35) if name == "cudaMemGetInfo" else 0


class HostResampler:
    """The kernels in numpy and Pillow."""

    @staticmethod
    def _records(table, count):
        return np.frombuffer(ctypes.string_at(table, count * RECORD.itemsize), RECORD)

    def write_sentinels(self, table, count, color, stream):
        for record in self._records(table, count):
            ctypes.memmove(int(record["slot"]), color.tobytes(), 3)

    def fill_canvases(self, table, records, pitch, color, stream):
        for each in self._records(table, len(records)):
            height = int(each["height"])
            width = int(each["width"])
            transpose, flip_x, flip_y = (
                bool(each[name]) for name in ("transpose", "flip_x", "flip_y")
            )
            data = ctypes.string_at(int(each["slot"]), height * width * 3)
            if data[:3] == color.tobytes():
                continue
            wanted = (int(each["out_height"]), int(each["out_width"]))
            stored = wanted[::-1] if transpose else wanted
            whole = Image.frombytes("RGB", (width, height), data)
            shrunk = np.asarray(whole.resize(stored[::-1], Image.Resampling.BILINEAR))
            upright = shrunk.swapaxes(0, 1) if transpose else shrunk
            upright = upright[::-1] if flip_y else upright
            upright = upright[:, ::-1] if flip_x else upright
            write(upright, each["canvas"], pitch)


@pytest.fixture
def gpu(monkeypatch):
    """What the GPU does: `calls` are the sizes of the batched calls, a thread calls `in_thread`
    before each image.
    """
    gpu = SimpleNamespace(
        calls=[],
        seconds=lambda images: 0.0,
        in_thread=lambda image: None,
        refused=set(),
        skipped=set(),
    )

    class Engines:
        def __init__(self, handle):
            self.permits = threading.BoundedSemaphore(2)

        def has_free_permit(self):
            return self.permits._value > 0

        def decode(self, encoded, sampling, pointers, pitches):
            images = [bytes(encoded.view(row)) for row in range(len(pointers))]
            gpu.calls.append(len(images))
            time.sleep(gpu.seconds(len(images)))
            if any(image in gpu.refused for image in images):
                raise NvjpegError("nvjpegDecodeBatched", 4)
            for image, pointer, pitch in zip(images, pointers, pitches):
                if image not in gpu.skipped:
                    write(as_stored(image), pointer, pitch)

        def close(self):
            pass

    class Threads:
        def __init__(self, ordinal, canvas, stream):
            self.started = []

        def decode(self, data, header, size, pointer):
            gpu.in_thread(bytes(data))
            self.started.append((bytes(data), pointer))

        def finish(self):
            while self.started:
                image, pointer = self.started.pop()
                write(on_canvas(image), pointer)

        def close(self):
            pass

    monkeypatch.setattr(canvas_buffers, "CanvasBuffer", HostBuffer)
    monkeypatch.setattr(gpu_module, "BatchedDecoder", Engines)
    monkeypatch.setattr(host_threads, "Uploader", Threads)
    monkeypatch.setattr(gpu_module, "_make_handle", lambda deterministic: None)
    monkeypatch.setattr(gpu_module.libnvjpeg, "destroy", lambda function, made: None)
    for name in ("core", "set_device", "create_stream"):
        monkeypatch.setattr(cuda, name, lambda *arguments: 0)
    memory = HostMemory()
    for name in ("call", "allocate", "pinned_array"):
        monkeypatch.setattr(cuda, name, getattr(memory, name))
    kinds = SimpleNamespace(cudaMemcpyKind=SimpleNamespace(cudaMemcpyHostToDevice=1))
    monkeypatch.setattr(cuda, "runtime", lambda: kinds)
    monkeypatch.setattr(gpu_module, "compile_resampler", HostResampler)
    monkeypatch.setattr(cuda, "on_device", contextlib.nullcontext)
    monkeypatch.setattr("jaxaug.decode._decoder._make_backend", make_backend)
    return gpu


def make_backend(backend, devices, canvas, num_threads, deterministic):
    return "nvjpeg", nvjpeg_backend.NvjpegBackend(devices, canvas, num_threads, deterministic)


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
        expected = decode_image(image)
        np.testing.assert_array_equal(
            pixels[row, : expected.shape[0], : expected.shape[1]], expected
        )


def test_a_small_batch_goes_to_idle_engines_whole(gpu):
    with decoder() as decode:
        check(decode, jpegs(40))
        assert gpu.calls == [40] and decode.stats["host"] == 0


def test_both_sides_work_until_the_queue_is_empty(gpu):
    gpu.seconds = lambda n: 0.1
    gpu.in_thread = lambda image: time.sleep(0.02)
    with decoder() as decode:
        check(decode, jpegs(16) * 32)
        assert 360 <= gpu.calls[0] <= 384 and len(gpu.calls) == 2
        assert 10 <= decode.stats["host"] < 128 and decode.stats["engines"] == sum(gpu.calls)


@pytest.mark.parametrize("size, threads", [(1, 3), (170_000, 3), (190_000, 6)])
def test_more_threads_help_with_large_images(gpu, size, threads):
    gpu.seconds = lambda n: 0.1
    seen = set()
    gpu.in_thread = lambda image: seen.add(threading.get_ident()) or time.sleep(0.02)
    with decoder() as decode:
        check(decode, [image.ljust(size, b"\0") for image in jpegs(16)] * 32)
        assert len(seen) == threads and decode.stats["host"] > 0


def test_engines_that_stand_still_do_not_hold_up_a_batch(gpu):
    """The engines stand until the threads have decoded all that the first call has left."""
    left = threading.Event()
    decoded = []

    def in_thread(image):
        decoded.append(image)
        if len(decoded) == 120:
            left.set()

    gpu.in_thread = in_thread
    gpu.seconds = lambda n: 0.0 * left.wait(60)
    with decoder() as decode:
        check(decode, jpegs(16) * 32)
        assert left.is_set() and decode.stats["host"] >= 120


def test_deterministic_leaves_the_queue_to_the_engines(gpu):
    progressive = encode(np.zeros((20, 30, 3), np.uint8), progressive=True)
    with decoder(deterministic=True) as decode:
        check(decode, [*jpegs(16) * 16, progressive])
        assert gpu.calls == [256] and decode.stats["host"] == 1


def test_several_gpus_leave_their_queues_to_the_engines(gpu):
    progressive = encode(np.zeros((20, 30, 3), np.uint8), progressive=True)
    gpu.seconds = lambda n: 0.1
    with decoder(gpus=2) as decode:
        images = decode.decode([*jpegs(15), progressive] * 32)
        assert gpu.calls == [240, 240] and decode.stats["host"] == 32
        assert [len(pixels) for pixels in images.pixels] == [256, 256] and images.valid.all()


def test_the_rarest_samplings_stand_at_the_threads_end():
    rows, frequency = dispatch.most_common_first(np.arange(6), np.array([1, 2, 2, 3, 2, 3, 9]))
    assert rows.tolist() == [1, 2, 4, 3, 5, 0] and frequency.tolist() == [3, 3, 3, 2, 2, 1]


def test_a_rare_sampling_goes_to_the_helpers(gpu):
    gray = encode(np.zeros((20, 30), np.uint8))
    for deterministic in (False, True):
        with decoder(deterministic=deterministic) as decode:
            check(decode, [*jpegs(32) * 2, gray])
            assert decode.stats["host"] == (not deterministic)
            check(decode, [*jpegs(31), gray])  # not rare
            assert decode.stats["host"] == (not deterministic)


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


def test_a_refused_call_and_a_skipped_image_are_decoded_again(gpu):
    images = jpegs(20)
    gpu.refused = {images[3]}
    gpu.skipped = {images[5]}
    with decoder(deterministic=True) as decode:
        check(decode, images)
        assert decode.stats == {
            "images": 20,
            "failed": 0,
            "shrunk": 0,
            "engines": 18,
            "host": 2,
            "refused": 2,
            "device_bytes": 0,
        }


@pytest.mark.parametrize("bad", [[17], [0, 255], [*range(100, 108)]])
def test_a_refused_call_is_halved_until_the_bad_images_stand_alone(gpu, bad):
    images = [
        encode(np.full((20, 30, 3), value, np.uint8)) + bytes([value]) for value in range(256)
    ]
    gpu.refused = {images[row] for row in bad}
    with decoder(deterministic=True) as decode:
        assert decode.stats["refused"] == 0
        check(decode, images)
        assert decode.stats["refused"] == decode.stats["host"] == len(bad)
        assert len(gpu.calls) <= 1 + 16 * len(bad)
        assert len(bad) > 1 or len(gpu.calls) == 17


def test_what_a_half_writes_and_then_skips_is_noticed(gpu, monkeypatch):
    """A refused call may have written an image that the next one skips: its sentinel must be there
    again.
    """
    images = jpegs(8)
    gpu.refused = {images[0]}
    real = gpu_module.BatchedDecoder.decode

    def decode_some(self, encoded, sampling, pointers, pitches):
        if len(pointers) == 8:
            write(as_stored(images[5]), pointers[3])  # a wrong image there
        real(self, encoded, sampling, pointers, pitches)

    monkeypatch.setattr(gpu_module.BatchedDecoder, "decode", decode_some)
    gpu.skipped = {images[3]}
    with decoder(deterministic=True) as decode:
        check(decode, images)
        assert decode.stats["refused"] == 2


def test_a_batch_does_not_wait_for_the_line_of_another(gpu):
    held = threading.Event()
    first = jpegs(16) * 32
    second = jpegs(16, seed=100) * 8
    gpu.seconds = lambda n: 0.0 if n < 150 else 0.0 * held.wait(60)
    gpu.in_thread = lambda image: held.wait(60) if image in first else None
    with decoder() as decode, ThreadPoolExecutor(2) as callers:
        slow = callers.submit(check, decode, first)
        while not (gpu.calls or slow.done()):  # now its end keeps all threads that share
            time.sleep(0.001)
        try:
            callers.submit(check, decode, second).result(30)
            assert not slow.done()
        finally:
            held.set()
        slow.result()


def test_an_exception_of_a_thread_comes_once_all_have_ended(gpu):
    progressive = [encode(np.full((20, 30, 3), i, np.uint8), progressive=True) for i in range(8)]
    images = [*jpegs(20), *progressive]
    ended = []

    def breaks(image):
        if image == progressive[0]:
            raise RuntimeError("the thread breaks")
        time.sleep(0.05)
        ended.append(image)

    with decoder() as decode:
        gpu.in_thread = breaks
        with pytest.raises(RuntimeError, match="breaks"):
            decode.decode(images)
        assert len(ended) == 7
        gpu.in_thread = lambda image: None
        check(decode, images)


def test_an_exception_of_the_engines_ends_the_queue(gpu):
    begun = []
    gpu.seconds = lambda n: 1 / 0
    gpu.in_thread = lambda image: begun.append(image) or time.sleep(0.01)
    with decoder() as decode:
        with pytest.raises(ZeroDivisionError):
            decode.decode(jpegs(16) * 64)  # of which the first call leaves 256
        assert len(begun) < 128


def test_what_no_side_can_decode_is_zero(gpu, monkeypatch):
    from jaxaug.errors import DecodeError

    images = jpegs(6)
    gpu.skipped = {images[2]}

    def fails(self, data, header, size, pointer):
        raise DecodeError("torn")

    monkeypatch.setattr(host_threads.Uploader, "decode", fails)
    with decoder() as decode:
        batch = decode.decode(images)
        assert np.asarray(batch.valid).tolist() == [True, True, False, True, True, True]
        assert not np.asarray(batch.pixels)[2].any()


def test_an_exception_of_the_engines_comes_through_and_leaves_the_buffer(gpu):
    with decoder() as decode:
        gpu.seconds = lambda n: 1 / 0
        with pytest.raises(ZeroDivisionError):
            decode.decode(jpegs(4))
        gpu.seconds = lambda n: 0.0
        check(decode, jpegs(4))


def test_an_exception_of_one_gpu_leaves_the_buffers_of_all(gpu):
    with decoder(gpus=2) as decode:
        gpu.seconds = lambda n: 1 / (2 - n)
        with pytest.raises(ZeroDivisionError):
            decode.decode([*jpegs(2), jpegs(1)[0], b"not an image"])
        assert gpu.calls == [2, 1] or gpu.calls == [1, 2]
        check_buffers_are_free(decode)


def test_a_pixel_of_the_sentinels_color_survives(gpu):
    png = encode(np.full((20, 30, 3), canvas_buffers.SENTINEL, np.uint8), "PNG")
    gpu.skipped = {jpegs(3)[1]}
    with decoder() as decode:
        check(decode, [jpegs(3)[0], png, jpegs(3)[1]])


def test_a_failed_copy_leaves_the_buffer(gpu, monkeypatch):
    def fails(view):
        raise RuntimeError("no memory")

    with decoder(gpus=2) as decode:
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no memory"):
            patch.setattr(_decoder, "_copy", fails)
            decode.decode(jpegs(2))
        check_buffers_are_free(decode)
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no memory"):
            patch.setattr(HostBuffer, "view", lambda self, rows: fails(rows))
            decode.decode(jpegs(2))
        check_buffers_are_free(decode)


def check_buffers_are_free(decode):
    for one in decode._backend._gpus:
        assert len(one.buffers._buffers) == len(one.buffers._free) == 1


def test_callers_that_wait_for_buffers_of_several_gpus_do_not_wait_for_each_other(gpu, monkeypatch):
    monkeypatch.setattr(canvas_buffers, "MAX_BUFFERS", 1)
    gpu.seconds = lambda n: 0.001
    decode = decoder(gpus=3)
    ended = []

    def call():
        for _ in range(100):
            decode.decode(jpegs(3))
        ended.append(True)

    callers = [threading.Thread(target=call, daemon=True) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert len(ended) == 3  # else it cannot be closed either
    decode.close()


def test_a_buffer_keeps_its_readers_when_the_wait_for_them_is_interrupted(gpu, monkeypatch):
    def interrupted(self, rows):
        raise KeyboardInterrupt

    pool = canvas_buffers.BufferPool(0, CANVAS, 2**30)
    reader = jax.numpy.zeros(())
    buffer, _ = pool.take(1)
    pool.give_back(buffer, reader)
    monkeypatch.setattr(HostBuffer, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.take(1)
    assert buffer.readers is reader


def test_the_wait_for_a_buffer_is_reported(gpu, monkeypatch):
    monkeypatch.setattr(canvas_buffers, "MAX_BUFFERS", 1)
    with decoder() as decode:
        first = decode.decode_rows(Encoded.from_bytes(jpegs(2)))
        with ThreadPoolExecutor(1) as reader:
            reader.submit(lambda: time.sleep(0.3) or first.release(()))
            second = decode.decode_rows(Encoded.from_bytes(jpegs(2)))
        second.release(())
        assert first.wait_seconds < 0.1 < 0.25 < second.wait_seconds


def test_no_memory_for_the_engines_is_an_error_and_no_refusal(gpu, monkeypatch):
    def fails(images):
        raise NvjpegError("nvjpegDecodeBatched", 5)

    monkeypatch.setattr(
        cuda, "call", lambda name, *given: (2**20, 2**30) if name == "cudaMemGetInfo" else 0
    )
    with decoder() as decode:
        gpu.seconds = fails
        with pytest.raises(MemoryError, match=r"1 of 1024 MiB.*XLA_CLIENT_MEM_FRACTION"):
            decode.decode(jpegs(3))
        gpu.seconds = lambda n: 0.0
        check(decode, jpegs(3))


def test_a_dropped_decoder_frees_its_buffers_once_nobody_has_its_rows(gpu, monkeypatch):
    closed = []
    monkeypatch.setattr(HostBuffer, "close", lambda self: closed.append(True))
    decode = decoder()
    rows = decode.decode_rows(Encoded.from_bytes(jpegs(3)))
    del decode
    gc.collect()
    assert not closed
    rows.release(())
    del rows
    gc.collect()
    assert closed == [True]


def test_a_gpu_that_cannot_be_used_frees_the_others(gpu, monkeypatch):
    closed = []
    made = iter(range(2))

    def make(deterministic):
        if next(made):
            raise NvjpegError("nvjpegCreateEx", 1)

    monkeypatch.setattr(gpu_module, "_make_handle", make)
    monkeypatch.setattr(canvas_buffers.BufferPool, "close", lambda self: closed.append(True))
    with pytest.raises(NvjpegError):
        decoder(gpus=2)
    gc.collect()
    assert closed == [True]


def test_columns_of_any_integers_reach_the_engines_as_their_own_kind(gpu):
    encoded = Encoded.from_bytes(jpegs(3))
    others = Encoded(
        encoded.addresses.astype(np.int64), encoded.lengths.astype(np.int32), encoded.owner
    )
    with decoder() as decode:
        seen = []
        real = decode._backend._gpus[0]._batched.decode
        decode._backend._gpus[0]._batched.decode = lambda *given: (
            seen.append(given[0]) or real(*given)
        )
        check(decode, others)
        assert seen[0].addresses.dtype == seen[0].lengths.dtype == np.uint64


def test_buffers_grow_while_they_are_read_and_no_further_than_memory(monkeypatch):
    room = [3]  # buffers

    class Buffer(HostBuffer):
        idle = True

        def prepare(self, rows):
            if not self.pixels.size:
                room[0] -= 1
                if room[0] < 0:
                    raise MemoryError("full")
            return super().prepare(rows)

        def is_idle(self):
            return self.idle

    monkeypatch.setattr(canvas_buffers, "CanvasBuffer", Buffer)
    pool = canvas_buffers.BufferPool(0, CANVAS, 2**30)
    first, _ = pool.take(2)
    pool.give_back(first)
    assert pool.take(2)[0] is first  # idle: used again
    monkeypatch.setattr(Buffer, "idle", False)
    pool.give_back(first)
    second = pool.take(2)[0]
    third = pool.take(2)[0]
    assert len({first, second, third}) == 3
    assert pool.take(2)[0] is first  # the fourth did not fit: wait for the oldest
    pool.give_back(third)
    assert pool.take(2)[0] is third
    with pytest.raises(MemoryError, match="full"):
        canvas_buffers.BufferPool(0, CANVAS, 2**30).take(2)


# ---- the end


def test_close_waits_for_engines_that_write(gpu, monkeypatch):
    order = []
    begun = threading.Event()
    monkeypatch.setattr(HostBuffer, "close", lambda self: order.append("buffer freed"))
    gpu.seconds = lambda n: (
        0.0 * (begun.set() or time.sleep(0.2) or order.append("engines wrote") or 1)
    )
    decode = decoder()
    with ThreadPoolExecutor(1) as caller:
        running = caller.submit(decode.decode, jpegs(4))
        assert begun.wait(30)
        decode.close()
        order.append("close returned")
        assert running.result(30).valid.all()
    assert order == ["engines wrote", "buffer freed", "close returned"]


def test_rows_that_are_borrowed_at_the_end_are_freed_when_they_come_back(gpu, monkeypatch):
    closed = []
    monkeypatch.setattr(HostBuffer, "close", lambda self: closed.append(self))
    decode = decoder()
    rows = decode.decode_rows(Encoded.from_bytes(jpegs(3)))
    decode.decode(jpegs(3))
    decode.close()
    assert len(closed) == 1 and rows.valid.all()
    rows.release(())
    assert len(closed) == len(set(map(id, closed))) == 2


def test_the_callers_device_is_current_again(gpu, monkeypatch):
    current = [1]

    def call(function, *arguments):
        if function == "cudaSetDevice":
            current[0] = arguments[0]
        return (2**35, 2**35) if function == "cudaMemGetInfo" else current[0]

    for name, real in REAL.items():
        monkeypatch.setattr(cuda, name, real)
    monkeypatch.setattr(cuda, "call", call)
    for gpus in (1, 2):
        with decoder(gpus=gpus) as decode:
            assert current == [1]
            check_all = decode.decode(jpegs(4))
            assert check_all.valid.all() and current == [1]
            gpu.seconds = lambda n: 1 / 0
            with pytest.raises(ZeroDivisionError):
                decode.decode(jpegs(4))
            gpu.seconds = lambda n: 0.0
            assert current == [1]
        assert current == [1]


REAL = {"set_device": cuda.set_device, "on_device": cuda.on_device}


def test_deterministic_pixels_need_engines(gpu, monkeypatch):
    """GPU_HYBRID's batched call decodes up to 50 images in another way than more (nvjpeg.h)."""
    made = []

    def create_handle(backend):
        made.append(backend)
        if backend == 3:
            raise NvjpegError("nvjpegCreateEx", 7)

    monkeypatch.setattr(gpu_module, "_make_handle", MAKE_HANDLE)
    monkeypatch.setattr(gpu_module.libnvjpeg, "create_handle", create_handle)
    with decoder() as decode:
        check(decode, jpegs(3))
    assert made == [3, 2]
    with pytest.raises(
        ImportError, match=r"no JPEG engines.*`deterministic` forbids.*'auto' or 'host'"
    ):
        decoder(deterministic=True)
    assert made == [3, 2, 3]
    monkeypatch.setattr("jaxaug.decode._decoder._make_backend", MAKE_BACKEND)
    monkeypatch.setattr(
        _decoder, "_check_devices", lambda devices: GpuLike.of(jax.devices("cpu")[:1])
    )
    _decoder._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="jaxaug decodes on the host.*no JPEG engines"):
        with Decoder(CANVAS, deterministic=True) as decode:
            assert decode.backend == "host"


MAKE_HANDLE = gpu_module._make_handle
MAKE_BACKEND = _decoder._make_backend


class GpuLike(SimpleNamespace):
    """A device that calls itself a GPU."""

    @classmethod
    def of(cls, devices):
        return [
            cls(platform="gpu", local_hardware_id=device.local_hardware_id) for device in devices
        ]


def turned(seed, height, width, orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return encode(picture(seed, height, width), quality=95, exif=tags.tobytes())


def check_fitted(decoder, images, *, levels=1.5):
    """Decode; every image must be on its canvas as the host lays it there, but for the way it is
    shrunk.
    """
    batch = decoder.decode(images)
    pixels = np.asarray(batch.pixels).astype(int)
    assert batch.valid.all()
    for row, image in enumerate(images):
        expected = on_canvas(image)
        height, width = expected.shape[:2]
        assert np.abs(pixels[row, :height, :width] - expected).mean() < levels, row
        assert not pixels[row, height:].any() and not pixels[row, :, width:].any()


WHOLE = [
    *(encode(picture(i, 90 + 7 * i, 130 - 5 * i), quality=95) for i in range(6)),
    *(turned(i, 40, 60, i + 1) for i in range(8)),
    *(turned(i, 140, 90, i + 1) for i in range(8)),
]


@pytest.mark.parametrize("options", [{"deterministic": True}, {}])
def test_larger_and_turned_images_are_decoded_by_the_engines(gpu, options):
    images = [*jpegs(30, 40, 50), *WHOLE, *jpegs(30, 40, 50, seed=50)]
    with decoder(**options) as one:
        check_fitted(one, images)
        check_fitted(one, images[::-1])
        if options:
            assert one.stats["engines"] == 2 * len(images) and one.stats["host"] == 0
            assert gpu.calls == [len(images)] * 2  # one call each: all fit a region


def test_regions_are_filled_one_after_another(gpu, monkeypatch):
    monkeypatch.setattr(gpu_module, "_MAX_REGION", 100_000)
    with decoder(deterministic=True) as one:
        check_fitted(one, [*jpegs(10, 40, 50), *WHOLE])
        assert one.stats["engines"] == 10 + len(WHOLE)
        assert len(gpu.calls) > 3 and sum(gpu.calls) == 10 + len(WHOLE) and gpu.calls[0] > 10


def test_an_image_larger_than_a_region_goes_to_the_host(gpu, monkeypatch):
    monkeypatch.setattr(gpu_module, "_MAX_REGION", 100_000)
    large = encode(picture(0, 200, 300), quality=95)
    with decoder(deterministic=True) as one:
        check_fitted(one, [large, *WHOLE])
        assert one.stats["host"] == 1 and one.stats["engines"] == len(WHOLE)


@pytest.mark.parametrize("fault", ["refused", "skipped"])
def test_whole_images_that_the_engines_do_not_decode_go_to_the_host(gpu, fault):
    setattr(gpu, fault, set(WHOLE[3:12:4]))
    with decoder(deterministic=True) as one:
        check_fitted(one, [*jpegs(9, 40, 50), *WHOLE])
        assert one.stats["host"] == 3 and one.stats["refused"] == 3


def test_without_the_kernel_larger_images_go_to_the_host_with_a_warning(gpu, monkeypatch):
    def fails():
        raise LibraryError("no NVRTC here")

    monkeypatch.setattr(gpu_module, "compile_resampler", fails)
    with pytest.warns(
        RuntimeWarning, match=r"larger than the canvas, .* on the host: no NVRTC here"
    ):
        one = decoder(deterministic=True)
    with one:
        check_fitted(one, [*jpegs(9, 40, 50), *WHOLE], levels=0.1)
        assert one.stats["host"] == len(WHOLE) - 1 and one.stats["engines"] == 10  # one is direct


def test_fewer_buffers_where_memory_is_short(gpu):
    pool = canvas_buffers.BufferPool(0, CANVAS, budget=3 * 10 * CANVAS[0] * CANVAS[1] * 3)
    taken = [pool.take(10)[0] for _ in range(3)]
    waiting = threading.Thread(target=lambda: taken.append(pool.take(10)[0]))
    waiting.start()
    time.sleep(0.1)
    assert len(taken) == 3
    pool.give_back(taken[0])
    waiting.join(10)
    assert len(taken) == 4 and taken[3] is taken[0]
