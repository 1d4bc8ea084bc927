"""The host threads of a GPU, and the helpers that take the largest images of the queue."""

import io
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from jaxaug.decode.image.nvjpeg import nvjpeg_backend
from jaxaug.decode.image.nvjpeg.host_threads import RowQueue
from tests.decode.fake_gpu import check, check_fitted, decoder
from tests.images import encode, jpegs, picture


@pytest.fixture(autouse=True)
def two_thousand_pixels_are_large(monkeypatch):
    monkeypatch.setattr(nvjpeg_backend, "_MIN_LARGE_IMAGE", 2_000)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)


def large_jpegs(count, seed=0):
    return jpegs(count, 40, 56, seed)


def small_jpegs(count):
    return jpegs(count, 40, 48)


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
        assert 3 * (512 - 49) // 4 <= gpu.calls[0] <= 384 and len(gpu.calls) == 2
        assert decode.stats["host"] >= 10 and decode.stats["engines"] == sum(gpu.calls)
        assert decode.stats["host"] + decode.stats["engines"] == 512


@pytest.mark.parametrize("large, threads", [(0, 0), (240, 0), (280, 9), (512, 9)])
def test_threads_help_where_most_images_are_large(gpu, large, threads):
    """Each waits with its first image, and the engines with theirs, until all threads have come."""
    seen = set()
    all_there = threading.Event()

    def in_thread(image):
        seen.add(threading.get_ident())
        if len(seen) == threads:
            all_there.set()
        all_there.wait(60)

    gpu.in_thread = in_thread
    gpu.seconds = lambda n: 0.0 * all_there.wait(60 if threads else 0)
    with decoder() as decode:
        check(decode, large_jpegs(8) * (large // 8) + small_jpegs(8) * ((512 - large) // 8))
        assert len(seen) == threads and bool(decode.stats["host"]) == bool(threads)


def test_helpers_take_the_largest_images_first_and_no_small_ones(gpu):
    """The engines stand still; the images come in any order, half of the large ones for slots."""
    sides = [(40, 51 + number) for number in range(28)] * 5
    large = [encode(picture(row, *size), quality=95) for row, size in enumerate(sides)]
    images = large + small_jpegs(100)
    np.random.default_rng(8).shuffle(images)
    taken = []
    gpu.in_thread = taken.append
    with decoder() as decode, ThreadPoolExecutor(1) as caller:
        engines = decode._backend._gpus[0]._batched
        with engines.permits, engines.permits:
            checked = caller.submit(check_fitted, decode, images)
            while len(taken) < len(large) and not checked.done():
                time.sleep(0.01)
            time.sleep(0.05)
        checked.result()

    assert sorted(taken) == sorted(large)
    widths = [Image.open(io.BytesIO(image)).width for image in taken]
    for place, width in enumerate(widths):  # nine threads hold one each before they report it
        assert width >= max(widths[place + 9 :], default=0)


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


def test_an_exception_of_the_engines_ends_the_queue(gpu, monkeypatch):
    begun = []
    cleared = threading.Event()
    clear = RowQueue.clear
    monkeypatch.setattr(RowQueue, "clear", lambda queue: clear(queue) or cleared.set())
    gpu.seconds = lambda n: 1 / 0
    gpu.in_thread = lambda image: begun.append(image) or cleared.wait(60)
    with decoder() as decode:
        with pytest.raises(ZeroDivisionError):
            decode.decode(large_jpegs(16) * 64)  # of which the first call leaves 256
        assert len(begun) < 128


def test_each_row_of_a_queue_is_taken_once():
    rows = np.random.default_rng(0).permutation(100_000)
    queue = RowQueue(rows, for_helpers=100_000)
    begin = threading.Barrier(4)

    def help_():
        begin.wait()
        return list(queue.pop_first())

    def take():
        begin.wait()
        parts = []
        while queue:
            parts.append(queue.take_last(64))
        return [row for part in parts for row in rows[part].tolist()]

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(each) for each in (help_, take, help_, take)]
        taken = [row for task in tasks for row in task.result()]
    assert len(taken) == 100_000 and sorted(taken) == list(range(100_000))


def test_a_cleared_queue_has_no_rows():
    queue = RowQueue(np.arange(5), for_helpers=5)
    queue.clear()
    assert not queue and list(queue.pop_first()) == [] and queue.take_last(3) == slice(5, 5)


def test_helpers_leave_the_rows_behind_theirs():
    queue = RowQueue(np.arange(5), for_helpers=3)
    helper = queue.pop_first()
    assert next(helper) == 0 and queue.left_for_helpers() == 2
    assert queue.take_last(3) == slice(2, 5) and queue.left_for_helpers() == 1
    assert list(helper) == [1] and not queue
    whole = RowQueue(np.arange(5), for_helpers=3)
    assert list(whole.pop_first()) == [0, 1, 2] and len(whole) == 2
