"""How several threads share nvJPEG's states, on a library that only keeps count."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug.decode import Encoded
from jaxaug.decode import _batched as batched
from jaxaug.decode.native._nvjpeg import NvjpegError


@pytest.fixture
def library(monkeypatch):
    """`running` maps a stream to its state's sampling; `most` is how many ran at once."""
    library = SimpleNamespace(running={}, most=0, made=0, decoded=[], fails=False)
    lock = threading.Lock()

    def create(*arguments):
        library.made += 1
        return library.made

    def decode_batched(handle, state, addresses, lengths, images, stream):
        with lock:
            assert stream not in library.running
            library.running[stream] = state
            library.most = max(library.most, len(library.running))
            library.decoded += images[:, 0].tolist()
        if library.fails:
            raise NvjpegError("nvjpegDecodeBatched", 4)

    def call(function, stream):
        assert function == "cudaStreamSynchronize"
        time.sleep(0.001)
        with lock:
            del library.running[stream]

    monkeypatch.setattr(batched._nvjpeg, "create", create)
    monkeypatch.setattr(batched._nvjpeg, "decode_batched", decode_batched)
    monkeypatch.setattr(batched._cuda, "create_stream", lambda: object())
    monkeypatch.setattr(batched._cuda, "call", call)
    return library


IMAGES = Encoded.from_bytes([b"x"] * 8)
SAMPLING = np.array([3, 3, 3, 1, 1, 2, 5, 3], np.uint32)
POINTERS = np.arange(8, dtype=np.uint64)


def test_one_thread_has_two_samplings_at_work_and_decodes_each_image_once(library):
    decoder = batched.BatchedDecoder(0, None, 30)
    for _ in range(3):
        with decoder.turns:
            decoder.decode(IMAGES, SAMPLING, POINTERS)
        assert sorted(library.decoded) == [*range(8)] and not library.running
        library.decoded.clear()
    assert library.most == 2 and library.made == 8  # both states of each sampling with its first image, never later


def test_several_threads_never_have_a_third_state_at_work(library):
    decoder, errors = batched.BatchedDecoder(0, None, 30), []

    def work():
        try:
            for _ in range(20):
                with decoder.turns:
                    decoder.decode(IMAGES, SAMPLING, POINTERS)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and library.most == 2 and not library.running
    assert sorted(library.decoded) == sorted([*range(8)] * 80)
    assert library.made == 8


def test_a_refused_call_ends_what_it_began_and_its_turns(library):
    decoder = batched.BatchedDecoder(0, None, 30)
    library.fails = True
    with pytest.raises(NvjpegError), decoder.turns:
        decoder.decode(IMAGES, SAMPLING, POINTERS)
    assert not library.running
    with decoder.turns:
        assert decoder.idle()
        with decoder.turns:
            assert not decoder.idle()


def test_closing_destroys_every_state_once(library, monkeypatch):
    destroyed, ended = [], []
    decoder = batched.BatchedDecoder(0, None, 30)
    with decoder.turns:
        decoder.decode(IMAGES, SAMPLING, POINTERS)
    monkeypatch.setattr(batched._nvjpeg, "destroy", lambda *arguments: destroyed.append(arguments))
    monkeypatch.setattr(batched._cuda, "set_device", lambda ordinal: None)
    monkeypatch.setattr(batched._cuda, "call", lambda function, stream: ended.append(function))
    decoder.close()
    assert sorted(destroyed) == [("nvjpegJpegStateDestroy", number) for number in range(1, 9)]
    assert ended == ["cudaStreamDestroy"] * 8
