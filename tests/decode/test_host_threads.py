"""The host threads of a GPU, and the helpers that take from the end of the queue."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jaxaug.decode.nvjpeg.row_queue import RowQueue
from tests.decode.fake_gpu import check, decoder
from tests.images import encode, jpegs


def large_jpegs(count, seed=0):
    """Return images of so many bytes that the threads help with them."""
    return [image.ljust(190_000, b"\0") for image in jpegs(count, seed=seed)]


def test_both_sides_work_until_the_queue_is_empty(gpu):
    """The first call lasts until the threads have decoded ten rows; after 40 they wait for the
    second, which takes all that is left.
    """
    decoded = []
    ten = threading.Event()
    second = threading.Event()

    def in_thread(image):
        decoded.append(image)
        if len(decoded) >= 10:
            ten.set()
        if len(decoded) >= 40:
            second.wait(60)

    def seconds(count):
        if len(gpu.calls) == 2:
            second.set()
        return 0.0 * ten.wait(60)

    gpu.in_thread = in_thread
    gpu.seconds = seconds
    with decoder() as decode:
        check(decode, large_jpegs(16) * 32)
        assert 3 * (512 - 46) // 4 <= gpu.calls[0] <= 384 and len(gpu.calls) == 2
        assert decode.stats["host"] >= 10 and decode.stats["engines"] == sum(gpu.calls)
        assert decode.stats["host"] + decode.stats["engines"] == 512


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


def test_each_row_of_a_queue_is_taken_once():
    rows = np.random.default_rng(0).permutation(100_000)
    queue = RowQueue(rows)
    begin = threading.Barrier(4)

    def take_last():
        begin.wait()
        return list(queue.pop_last())

    def take_first():
        begin.wait()
        parts = []
        while queue:
            parts.append(queue.take_first(64))
        return [row for part in parts for row in rows[part].tolist()]

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(each) for each in (take_last, take_first, take_last, take_first)]
        taken = [row for task in tasks for row in task.result()]
    assert len(taken) == 100_000 and sorted(taken) == list(range(100_000))


def test_a_cleared_queue_has_no_rows():
    queue = RowQueue(np.arange(5))
    queue.clear()
    assert not queue and list(queue.pop_last()) == [] and queue.take_first(3) == slice(5, 5)
