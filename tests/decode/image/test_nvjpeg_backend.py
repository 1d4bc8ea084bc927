"""Several GPUs, the end of a Decoder, and errors of the nvJPEG backend."""

import enum
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxaug import _hardware_queues
from jaxaug._warn import warn_once
from jaxaug.decode import Decoder, Encoded
from jaxaug.decode.image import decoder as decoder_module
from jaxaug.decode.image.host.host_backend import HostBackend
from jaxaug.decode.image.nvjpeg import canvas_buffers, nvjpeg_backend
from jaxaug.decode.image.nvjpeg.host_threads import HostThreads
from jaxaug.decode.native import cuda
from jaxaug.decode.native.cuda import CudaError
from jaxaug.decode.native.libnvjpeg import NvjpegError
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.errors import DecodeError
from tests.decode.fake_gpu import CANVAS, CURRENT, HostBuffer, HostResampler, check, decoder, turned
from tests.images import encode, jpegs, picture


def test_several_gpus_leave_their_queues_to_the_engines(gpu):
    progressive = encode(np.zeros((20, 30, 3), np.uint8), progressive=True)
    gpu.seconds = lambda n: 0.1
    with decoder(gpus=2) as decode:
        images = decode.decode([*jpegs(15), progressive] * 32)
        assert gpu.calls == [240, 240] and decode.stats["host"] == 32
        assert [len(pixels) for pixels in images.pixels] == [256, 256] and images.valid.all()


@pytest.fixture
def mixed_images(gpu):
    """320 images: upright, larger than the canvas, turned, for the hosts, bad, refused, skipped."""
    images = []
    for number in range(40):
        large = encode(picture(number, 90 + number, 70), quality=90)
        progressive = encode(picture(number, 30, 20 + number), progressive=True)
        refused, skipped, *others = jpegs(4)
        gpu.refused.add(refused + bytes([number]))
        gpu.skipped.add(skipped + bytes([number]))
        marked = [refused + bytes([number]), skipped + bytes([number])]
        images += [*others, large, turned(number, 40, 50, 6), progressive, b"no image", *marked]
    return images


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_the_shards_of_many_gpus_are_those_of_one(gpu, mixed_images, gpus):
    with decoder(deterministic=True) as one, decoder(gpus, deterministic=True) as many:
        alone = one.decode(mixed_images)
        shards = many.decode(mixed_images)
        assert len(shards.pixels) == gpus
        assert many.stats | {"device_bytes": 0} == one.stats | {"device_bytes": 0}
        np.testing.assert_array_equal(np.concatenate(shards.pixels), alone.pixels)
        assert alone.pixels.any(axis=(1, 2, 3)).sum() == 280
        for name in ("size", "original_size", "valid"):
            np.testing.assert_array_equal(getattr(shards, name), getattr(alone, name))


def test_an_exception_of_one_gpu_leaves_the_buffers_of_all(gpu):
    with decoder(gpus=2) as decode:
        gpu.seconds = lambda n: 1 / (2 - n)
        with pytest.raises(ZeroDivisionError):
            decode.decode([*jpegs(2), jpegs(1)[0], b"not an image"])
        assert gpu.calls == [2, 1] or gpu.calls == [1, 2]
        check_buffers_are_free(decode)


def test_a_failed_copy_leaves_the_buffer(gpu, monkeypatch):
    def fails(view):
        raise RuntimeError("no memory")

    with decoder(gpus=2) as decode:
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no memory"):
            patch.setattr(decoder_module, "_copy", fails)
            decode.decode(jpegs(2))
        check_buffers_are_free(decode)
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no memory"):
            patch.setattr(HostBuffer, "view", lambda self, rows: fails(rows))
            decode.decode(jpegs(2))
        check_buffers_are_free(decode)


def test_an_error_for_a_bad_image_leaves_the_buffers(gpu):
    with decoder(gpus=2) as decode:
        decode.on_error = "raise"
        with pytest.raises(DecodeError, match="not an image"):
            decode.decode([*jpegs(3), b"not an image"])
        check_buffers_are_free(decode)


def check_buffers_are_free(decode):
    for one in decode._backend._gpus:
        assert len(one.buffers._buffers) == len(one.buffers._free) == 1


def test_buffers_come_back_with_the_copies_that_read_them(gpu):
    with decoder(gpus=2) as decode:
        decode.decode(jpegs(2))
        for one in decode._backend._gpus:
            (buffer,) = one.buffers._free
            assert len(buffer.readers) == 2
            assert all(isinstance(each, jax.Array) for each in buffer.readers)


def test_callers_that_wait_for_buffers_of_several_gpus_do_not_wait_for_each_other(gpu, monkeypatch):
    monkeypatch.setattr(canvas_buffers, "MAX_BUFFERS", 1)
    gpu.seconds = lambda n: 0.001
    decode = decoder(gpus=3)
    images = jpegs(3)
    ended = []

    def call():
        for _ in range(30):
            decode.decode(images)
        ended.append(True)

    callers = [threading.Thread(target=call, daemon=True) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert len(ended) == 3  # else it cannot be closed either
    decode.close()


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
        return CURRENT.ordinal

    monkeypatch.setattr(nvjpeg_backend, "_make_handle", make)
    monkeypatch.setattr(canvas_buffers.BufferPool, "close", lambda self: closed.append("buffers"))
    monkeypatch.setattr(HostThreads, "close", lambda self: closed.append("threads"))
    with pytest.raises(NvjpegError):
        decoder(gpus=2)
    gc.collect()
    assert sorted(closed) == ["buffers", "threads"]


def test_engines_start_beside_what_their_maker_does_next(gpu, monkeypatch):
    made = threading.Event()

    def compile_resampler(channels):
        assert made.wait(60)
        return HostResampler(channels)

    monkeypatch.setattr(nvjpeg_backend, "compile_resampler", compile_resampler)
    with decoder() as decode:
        made.set()
        check(decode, jpegs(3))
    # The states of 4:2:0, 4:4:4 and gray, before the first image.
    assert gpu.samplings == [0x22111100, 0x11111100, 0x11000000]


@pytest.mark.parametrize("falls_back", [True, False])
def test_cuda_that_fails_while_the_engines_start(gpu, monkeypatch, falls_back):
    """The handle is freed, and the host decodes where it may."""
    freed = []
    error = CudaError("cudaModuleLoad", GpuError.OUT)

    def fails(channels):
        raise error

    def make(backend, devices, canvas, form, num_threads, deterministic):
        host = HostBackend(devices, canvas, num_threads, form) if falls_back else None
        shape = (*canvas, form.count)
        made = nvjpeg_backend.NvjpegBackend(devices, shape, num_threads, deterministic, host)
        return "nvjpeg", made

    monkeypatch.setattr("jaxaug.decode.image.decoder._make_backend", make)
    monkeypatch.setattr(nvjpeg_backend, "compile_resampler", fails)
    monkeypatch.setattr(nvjpeg_backend.libnvjpeg, "destroy", lambda name, made: freed.append(name))
    warn_once.cache_clear()
    with decoder() as decode:
        if falls_back:
            with pytest.warns(RuntimeWarning, match="decodes on the host.*cudaModuleLoad: OUT"):
                check(decode, jpegs(4))
            check(decode, jpegs(4))
            assert decode.stats["host"] == 8 and decode.stats["device_bytes"] == 0
        else:
            for _ in range(2):
                with pytest.raises(CudaError, match="cudaModuleLoad: OUT"):
                    decode.decode(jpegs(4))
    assert freed == ["nvjpegDestroy"]


def test_a_library_that_is_missing_is_told_at_once(gpu, monkeypatch):
    freed = threading.Event()

    def missing():
        raise LibraryError("cuda-core is missing")

    def destroy(function, made):
        CURRENT.check(made)
        freed.set()

    monkeypatch.setattr(nvjpeg_backend.cuda, "core", missing)
    monkeypatch.setattr(nvjpeg_backend.libnvjpeg, "destroy", destroy)
    with pytest.raises(LibraryError, match="cuda-core is missing"):
        decoder()
    assert freed.wait(60)


class GpuError(enum.IntEnum):
    """Of CUDA."""

    OUT = 2


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

    def close(buffer):
        CURRENT.check(buffer.device)
        closed.append(buffer)

    monkeypatch.setattr(HostBuffer, "close", close)
    decode = decoder()
    rows = decode.decode_rows(Encoded.from_bytes(jpegs(3)))
    decode.decode(jpegs(3))
    decode.close()
    assert len(closed) == 1 and rows.valid.all()
    rows.release(())
    assert len(closed) == len(set(map(id, closed))) == 2


def test_the_callers_device_is_current_again(gpu):
    with cuda.on_device(1):
        for gpus in (1, 2):
            with decoder(gpus=gpus) as decode:
                assert CURRENT.ordinal == 1
                check_all = decode.decode(jpegs(4))
                assert check_all.valid.all() and CURRENT.ordinal == 1
                gpu.seconds = lambda n: 1 / 0
                with pytest.raises(ZeroDivisionError):
                    decode.decode(jpegs(4))
                gpu.seconds = lambda n: 0.0
                assert CURRENT.ordinal == 1
            assert CURRENT.ordinal == 1


def test_deterministic_pixels_need_engines(gpu, monkeypatch):
    """GPU_HYBRID's batched call decodes up to 50 images differently from more (nvjpeg.h)."""
    made = []

    def create_handle(backend):
        made.append(backend)
        if backend == 3:
            raise NvjpegError("nvjpegCreateEx", 7)
        return CURRENT.ordinal

    monkeypatch.setattr(nvjpeg_backend, "_make_handle", MAKE_HANDLE)
    monkeypatch.setattr(nvjpeg_backend.libnvjpeg, "create_handle", create_handle)
    with decoder() as decode:
        check(decode, jpegs(3))
    assert made == [3, 2]
    with pytest.raises(
        ImportError, match=r"no JPEG engines.*`deterministic` forbids.*'auto' or 'host'"
    ):
        decoder(deterministic=True)
    assert made == [3, 2, 3]
    monkeypatch.setattr("jaxaug.decode.image.decoder._make_backend", MAKE_BACKEND)
    monkeypatch.setattr(
        decoder_module, "_check_devices", lambda devices: GpuLike.of(jax.devices("cpu")[:1])
    )
    warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="jaxaug decodes on the host.*no JPEG engines"):
        with Decoder(CANVAS, deterministic=True) as decode:
            assert decode.backend == "host"


@pytest.mark.parametrize("deterministic", [True, False])
def test_without_memory_nothing_is_known_of_engines(gpu, monkeypatch, deterministic):
    def create_handle(backend):
        if backend == 3:
            raise NvjpegError("nvjpegCreateEx", 5)

    monkeypatch.setattr(nvjpeg_backend, "_make_handle", MAKE_HANDLE)
    monkeypatch.setattr(nvjpeg_backend.libnvjpeg, "create_handle", create_handle)
    with pytest.raises(MemoryError, match=r"no device memory for nvJPEG .*XLA_CLIENT_MEM_FRACTION"):
        decoder(deterministic=deterministic)


MAKE_HANDLE = nvjpeg_backend._make_handle


MAKE_BACKEND = decoder_module._make_backend


class GpuLike(SimpleNamespace):
    """A device that calls itself a GPU."""

    @classmethod
    def of(cls, devices):
        return [
            cls(platform="gpu", local_hardware_id=device.local_hardware_id) for device in devices
        ]


def test_a_decoder_on_gpus_warns_if_jaxaug_was_imported_late(gpu, monkeypatch):
    monkeypatch.setattr(_hardware_queues, "_IN_TIME", False)
    with pytest.warns(RuntimeWarning, match="imported after CUDA had started"):
        decoder().close()
