"""One GPU: the division of a batch, and images that the engines refuse or skip."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jaxaug.decode.image.nvjpeg import canvas_buffers, host_threads, nvjpeg_backend
from jaxaug.decode.native import cuda
from jaxaug.decode.native.libnvjpeg import NvjpegError
from tests.decode.fake_gpu import as_stored, check, decoder, write
from tests.images import encode, jpegs


def test_a_small_batch_goes_to_idle_engines_whole(gpu):
    with decoder() as decode:
        check(decode, jpegs(40))
        assert gpu.calls == [40] and decode.stats["host"] == 0


def test_deterministic_leaves_the_queue_to_the_engines(gpu):
    progressive = encode(np.zeros((20, 30, 3), np.uint8), progressive=True)
    with decoder(deterministic=True) as decode:
        check(decode, [*jpegs(16) * 16, progressive])
        assert gpu.calls == [256] and decode.stats["host"] == 1


def test_without_the_gil_helpers_may_take_every_image(gpu, monkeypatch):
    """They do so while the engines are busy."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    taken = []
    gpu.in_thread = taken.append
    images = jpegs(16) * 8
    with decoder() as decode, ThreadPoolExecutor(1) as caller:
        engines = decode._backend._gpus[0]._batched
        with engines.permits, engines.permits:
            checked = caller.submit(check, decode, images)
            while len(taken) < len(images):
                time.sleep(0.01)
        checked.result()
        assert gpu.calls == [] and decode.stats["host"] == len(images)


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
    real = nvjpeg_backend.BatchedDecoder.decode

    def decode_some(self, encoded, sampling, pointers, pitches):
        if len(pointers) == 8:
            write(as_stored(images[5]), pointers[3])  # a wrong image there
        real(self, encoded, sampling, pointers, pitches)

    monkeypatch.setattr(nvjpeg_backend.BatchedDecoder, "decode", decode_some)
    gpu.skipped = {images[3]}
    with decoder(deterministic=True) as decode:
        check(decode, images)
        assert decode.stats["refused"] == 2


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


def test_a_pixel_of_the_sentinels_color_survives(gpu):
    png = encode(np.full((20, 30, 3), canvas_buffers.SENTINEL, np.uint8), "PNG")
    gpu.skipped = {jpegs(3)[1]}
    with decoder() as decode:
        check(decode, [jpegs(3)[0], png, jpegs(3)[1]])


def test_no_memory_for_the_engines_is_an_error_and_no_refusal(gpu, monkeypatch):
    def fails(images):
        raise NvjpegError("nvjpegDecodeBatched", 5)

    def call(name, *given):
        return (2**20, 2**30) if name == "cudaMemGetInfo" else gpu.memory.call(name, *given)

    monkeypatch.setattr(cuda, "call", call)
    with decoder() as decode:
        gpu.seconds = fails
        with pytest.raises(MemoryError, match=r"1 of 1024 MiB.*XLA_CLIENT_MEM_FRACTION"):
            decode.decode(jpegs(3))
        gpu.seconds = lambda n: 0.0
        check(decode, jpegs(3))
