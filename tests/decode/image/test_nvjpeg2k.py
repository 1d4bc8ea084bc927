"""JPEG 2000 on a GPU for the threads of the host: the same numbers, and OpenJPEG for all others."""

import enum
import threading

import jax
import numpy as np
import pytest

from jaxaug import decode
from jaxaug.decode.image.deep import jpeg2000
from jaxaug.decode.image.deep.gpu import decode_by

imagecodecs = pytest.importorskip("imagecodecs")
IMAGE = np.random.default_rng(0).integers(0, 4096, (31, 45, 3)).astype(np.uint16)


def encoded(image, bits=12):
    return imagecodecs.jpeg2k_encode(image, codecformat="jp2", reversible=True, bitspersample=bits)


class Stand:
    """In place of a `Jpeg2000Decoder`, which needs a GPU."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def decode(self, data, shape, dtype):
        self.asked.append((len(data), shape, dtype.name))
        return self.answer


@pytest.mark.parametrize("answer", [None, IMAGE[::-1]])
def test_a_thread_asks_its_decoder_first(answer):
    data = encoded(IMAGE)
    stand = Stand(answer)
    found = []

    def work():
        decode_by(JPEG2000=stand)
        found.append(jpeg2000.decode(memoryview(data), jpeg2000.read_layout(memoryview(data), 0)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert stand.asked == [(len(data), IMAGE.shape, "uint16")]
    np.testing.assert_array_equal(found[0], IMAGE if answer is None else answer)
    layout = jpeg2000.read_layout(memoryview(data), 0)
    np.testing.assert_array_equal(jpeg2000.decode(memoryview(data), layout), IMAGE)
    assert len(stand.asked) == 1  # no other thread does


def test_a_failure_of_cuda_leaves_the_image_to_the_host(monkeypatch):
    from jaxaug.decode.native import cuda, libnvjpeg2k

    status = enum.IntEnum("cudaError_t", {"cudaErrorIllegalAddress": 700})(700)

    def fail(self, *arguments):
        raise cuda.CudaError("cudaMemcpyAsync", status)

    monkeypatch.setattr(libnvjpeg2k.Jpeg2000Decoder, "__init__", lambda self: None)
    monkeypatch.setattr(libnvjpeg2k.Jpeg2000Decoder, "_decode", fail)
    files = decode.Encoded.from_bytes([encoded(IMAGE)] * 2)
    options = {"devices": jax.devices("cpu")[:1], "num_threads": 1}
    with decode.Decoder((31, 45), "host", channels=3, dtype="uint16", **options) as decoder:
        begin = decoder._backend._pool.submit(
            lambda: decode_by(JPEG2000=libnvjpeg2k.Jpeg2000Decoder())  # type: ignore[call-arg]
        )
        begin.result()
        pixels = np.asarray(decoder.decode(files).pixels)
    np.testing.assert_array_equal(pixels, np.broadcast_to(IMAGE, (2, *IMAGE.shape)))


@pytest.mark.gpu
def test_the_numbers_are_those_of_openjpeg():
    if jax.default_backend() != "gpu":
        pytest.skip("needs an NVIDIA GPU")
    from jaxaug.decode.native.libnvjpeg2k import Jpeg2000Decoder

    decoder = Jpeg2000Decoder(0)
    for samples, bits in ((1, 8), (3, 8), (1, 12), (3, 12), (4, 16)):
        image = np.random.default_rng(1).integers(0, 2**bits, (65, 47, samples))
        image = image.astype(np.uint16 if bits > 8 else np.uint8)
        data = encoded(image, bits)
        np.testing.assert_array_equal(decoder.decode(data, image.shape, image.dtype), image)
        assert decoder.decode(data[: len(data) // 2], image.shape, image.dtype) is None
    jobs = decode.Encoded.from_bytes([encoded(IMAGE)] * 8)
    with decode.Decoder((31, 45), devices=jax.devices()[:1], channels=3, dtype="uint16") as deep:
        pixels = np.asarray(deep.decode(jobs).pixels)
    np.testing.assert_array_equal(pixels, np.broadcast_to(IMAGE, (8, *IMAGE.shape)))
