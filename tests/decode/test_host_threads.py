"""The host threads of a GPU, and the helpers that take from the end of the queue."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.decode.fake_gpu import check, decoder
from tests.images import encode, jpegs


def large_jpegs(count, seed=0):
    """Return images of so many bytes that the threads help with them."""
    return [image.ljust(190_000, b"\0") for image in jpegs(count, seed=seed)]


def test_both_sides_work_until_the_queue_is_empty(gpu):
    gpu.seconds = lambda n: 0.1
    gpu.in_thread = lambda image: time.sleep(0.02)
    with decoder() as decode:
        check(decode, large_jpegs(16) * 32)
        assert 360 <= gpu.calls[0] <= 384 and len(gpu.calls) == 2
        assert 10 <= decode.stats["host"] <= 512 - 360 and decode.stats["engines"] == sum(gpu.calls)


@pytest.mark.parametrize("size, threads", [(1, 0), (170_000, 0), (190_000, 6)])
def test_threads_help_with_large_images(gpu, size, threads):
    gpu.seconds = lambda n: 0.1
    seen = set()
    gpu.in_thread = lambda image: seen.add(threading.get_ident()) or time.sleep(0.02)
    with decoder() as decode:
        check(decode, [image.ljust(size, b"\0") for image in jpegs(16)] * 32)
        assert len(seen) == threads and bool(decode.stats["host"]) == bool(threads)


def test_engines_that_stand_still_do_not_hold_up_a_batch(gpu):
    """The engines wait until the threads have decoded all rows that the first call has left."""
    left = threading.Event()
    decoded = []

    def in_thread(image):
        decoded.append(image)
        if len(decoded) == 120:
            left.set()

    gpu.in_thread = in_thread
    gpu.seconds = lambda n: 0.0 * left.wait(60)
    with decoder() as decode:
        check(decode, large_jpegs(16) * 32)
        assert left.is_set() and decode.stats["host"] >= 120


def test_a_rare_sampling_goes_to_the_helpers(gpu):
    gray = encode(np.zeros((20, 30), np.uint8))
    for deterministic in (False, True):
        with decoder(deterministic=deterministic) as decode:
            check(decode, [*jpegs(32) * 2, gray])
            assert decode.stats["host"] == (not deterministic)
            check(decode, [*jpegs(31), gray])  # not rare
            assert decode.stats["host"] == (not deterministic)


def test_a_batch_does_not_wait_for_the_queue_of_another(gpu):
    held = threading.Event()
    first = large_jpegs(16) * 32
    second = large_jpegs(16, seed=100) * 8
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
            decode.decode(large_jpegs(16) * 64)  # of which the first call leaves 256
        assert len(begun) < 128
