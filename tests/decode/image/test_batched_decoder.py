"""Several threads with the states of nvJPEG, on a library that only keeps count."""

import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug.decode import Encoded
from jaxaug.decode.image.nvjpeg import batched_decoder
from jaxaug.decode.native.libnvjpeg import NvjpegError
from tests.decode.fake_gpu import free_permits


class Interrupts:
    """Ctrl-C as Python has it: never inside of a C function, at once when that returns, anywhere
    else.
    """

    def __init__(self):
        self.inside = 0
        self.pending = False

    def handle(self, *arguments):
        self.pending = True
        self.raise_pending()

    def raise_pending(self):
        if self.pending and not self.inside:
            self.pending = False
            raise KeyboardInterrupt

    def in_c(self, function):
        def call(*arguments, **options):
            if threading.current_thread() is not threading.main_thread():
                return function(*arguments, **options)
            self.inside += 1
            try:
                return function(*arguments, **options)
            finally:
                self.inside -= 1
                self.raise_pending()

        return call


INTERRUPTS = Interrupts()


@pytest.fixture
def library(monkeypatch):
    """`running` maps a stream to its state's sampling; `most` is how many ran at once."""
    library = SimpleNamespace(running={}, most=0, made=0, decoded=[], fails=False)
    lock = threading.Lock()

    def create(*arguments):
        library.made += 1
        return library.made

    def decode_batched(handle, state, addresses, lengths, images, stream, channels):
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
            library.running.pop(stream, None)  # nothing runs there once it was interrupted

    monkeypatch.setattr(batched_decoder.libnvjpeg, "create", create)
    monkeypatch.setattr(
        batched_decoder.libnvjpeg, "decode_batched", INTERRUPTS.in_c(decode_batched)
    )
    monkeypatch.setattr(batched_decoder.cuda, "create_stream", lambda: object())
    monkeypatch.setattr(batched_decoder.cuda, "call", INTERRUPTS.in_c(call))
    return library


IMAGES = Encoded.from_bytes([b"x"] * 8)
SAMPLING = np.array([3, 3, 3, 1, 1, 2, 5, 3], np.uint32)
POINTERS = np.arange(8, dtype=np.uint64)
PITCHES = np.full(len(POINTERS), 30, np.uint64)


def test_one_thread_has_two_samplings_at_work_and_decodes_each_image_once(library):
    decoder = batched_decoder.BatchedDecoder(None, 3)
    for _ in range(3):
        with decoder.permits:
            decoder.decode(IMAGES, SAMPLING, POINTERS, PITCHES)
        assert sorted(library.decoded) == [*range(8)] and not library.running
        library.decoded.clear()
    assert (
        library.most == 2 and library.made == 8
    )  # both states of each sampling with its first image, never later


def test_the_most_common_sampling_is_decoded_first(library):
    decoder = batched_decoder.BatchedDecoder(None, 3)
    with decoder.permits:
        decoder.decode(IMAGES, np.sort(SAMPLING), POINTERS, PITCHES)
    assert library.decoded[:6] == [3, 4, 5, 6, 0, 1]


def test_several_threads_never_have_a_third_state_at_work(library):
    decoder = batched_decoder.BatchedDecoder(None, 3)
    errors = []

    def work():
        try:
            for _ in range(20):
                with decoder.permits:
                    decoder.decode(IMAGES, SAMPLING, POINTERS, PITCHES)
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


def test_a_refused_call_ends_what_it_began_and_its_permits(library):
    decoder = batched_decoder.BatchedDecoder(None, 3)
    library.fails = True
    with pytest.raises(NvjpegError), decoder.permits:
        decoder.decode(IMAGES, SAMPLING, POINTERS, PITCHES)
    assert not library.running
    with decoder.permits:
        assert decoder.has_free_permit()
        with decoder.permits:
            assert not decoder.has_free_permit()


def interrupted(seconds: float, call) -> bool:
    """Return True if a Ctrl-C after that time interrupts `call`."""

    before = signal.signal(signal.SIGALRM, INTERRUPTS.handle)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return False


@pytest.mark.parametrize("which", [1, 2, 3, 4, 5])
def test_ctrl_c_when_a_call_of_cuda_returns_leaves_all_states_and_permits(
    library, monkeypatch, which
):
    """There is nothing left to wait for, and later calls go as the first did."""
    decoder = batched_decoder.BatchedDecoder(None, 3)
    count = [0]
    call = batched_decoder.cuda.call

    def decode():
        with decoder.permits:
            decoder.decode(IMAGES, SAMPLING, POINTERS, PITCHES)

    def call_and_interrupt(function, stream):
        call(function, stream)
        count[0] += 1
        if count[0] == which:
            signal.raise_signal(signal.SIGALRM)

    decode()
    monkeypatch.setattr(batched_decoder.cuda, "call", call_and_interrupt)
    for _ in range(3):
        count[0] = 0
        assert interrupted(60, decode) == (which <= 4)
        assert not library.running
        assert {
            sampling: len(states) for sampling, states in decoder._idle.items()
        } == dict.fromkeys((3, 1, 2, 5), 2)
        assert free_permits(decoder) == batched_decoder.MAX_RUNNING_CALLS
    count[0] = 99
    decode()
    assert library.made == 8


def test_closing_destroys_every_state_once(library, monkeypatch):
    destroyed = []
    ended = []
    decoder = batched_decoder.BatchedDecoder(None, 3)
    with decoder.permits:
        decoder.decode(IMAGES, SAMPLING, POINTERS, PITCHES)
    monkeypatch.setattr(
        batched_decoder.libnvjpeg, "destroy", lambda *arguments: destroyed.append(arguments)
    )
    monkeypatch.setattr(
        batched_decoder.cuda, "call", lambda function, stream: ended.append(function)
    )
    decoder.close()
    assert sorted(destroyed) == [("nvjpegJpegStateDestroy", number) for number in range(1, 9)]
    assert ended == ["cudaStreamDestroy"] * 8
