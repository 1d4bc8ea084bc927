import threading
import time

import pytest

from jaxaug.iterators._prefetch import Prefetch


def names():
    return [thread.name for thread in threading.enumerate()]


def test_items_come_in_order_and_the_thread_ends():
    stage = Prefetch((i for i in range(5)), 2, "jaxaug-test-a")
    assert list(stage) == list(range(5))
    stage.close()
    assert "jaxaug-test-a" not in names()


def test_at_most_depth_items_are_made_ahead():
    made = []

    def items():
        for i in range(10):
            made.append(i)
            yield i

    stage = Prefetch(items(), 2, "jaxaug-test-b")
    deadline = time.monotonic() + 10
    while len(made) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2]  # two wait, the third is in the maker's hand
    stage.close()


def test_an_exception_comes_at_its_place():
    def items():
        yield 1
        raise RuntimeError("disk on fire")

    stage = Prefetch(items(), 4, "jaxaug-test-c")
    assert next(stage) == 1
    with pytest.raises(RuntimeError, match="disk on fire"):
        next(stage)
    stage.close()


def test_close_ends_a_thread_that_waits_for_room_and_runs_its_clean_up():
    cleaned = []

    def items():
        try:
            while True:
                yield 0
        finally:
            cleaned.append(threading.current_thread().name)

    stage = Prefetch(items(), 1, "jaxaug-test-d")
    next(stage)
    stage.close()
    assert cleaned == ["jaxaug-test-d"] and "jaxaug-test-d" not in names()
    with pytest.raises(StopIteration):
        next(stage)
