"""Streams in parts: their order, resume, split over processes, and worker processes."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.decode import Image
from jaxaug.errors import SourceError
from jaxaug.iterators import FromIterable
from jaxaug.iterators.loader import pipeline
from jaxaug.iterators.sources import _workers
from jaxaug.iterators.sources._parts import SKIPPED, Parts
from tests.images import jpegs
from tests.iterators.loaders import one_device


def numbers(first, count, fails=None, seconds=0.0):
    """Pairs of a JPEG and its number."""
    images = jpegs(3)
    for number in range(first, first + count):
        if number == fails:
            raise KeyError("no such thing")
        time.sleep(seconds)
        yield images[number % 3], {"label": number}


def parts_of(lengths, **options):
    firsts = np.cumsum([0, *lengths]).tolist()
    return [partial(numbers, first, count, **options) for first, count in zip(firsts, lengths)]


def opened_of(lengths):
    firsts = np.cumsum([0, *lengths]).tolist()
    return [partial(range, first, first + count) for first, count in zip(firsts, lengths)]


LENGTHS = [[5], [3, 0, 7, 2], [4] * 8, [1, 9, 2, 2, 6, 1, 1], [0, 2]]


@pytest.mark.parametrize("buffer", [0, 1, 3, 100])
@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_any_part_of_an_epoch_is_that_of_the_whole(lengths, lanes, buffer):
    parts = Parts(opened_of(lengths), lengths, lanes, buffer, seed=4)
    rng = np.random.default_rng(0)
    for epoch in range(3):
        whole = list(parts.items(epoch, 0, np.ones(1, bool)))
        assert sorted(whole) == list(range(sum(lengths)))
        for start in range(0, sum(lengths) + 1, 5):
            wanted = rng.random(4) < 0.5
            expected = [x if wanted[i % 4] else SKIPPED for i, x in enumerate(whole[start:])]
            assert list(parts.items(epoch, start, wanted)) == expected
            shares = [list(parts.items(epoch, start, wanted, (n, 2))) for n in range(2)]
            joined = [b if a is SKIPPED else a for a, b in zip(*shares)]
            assert joined == expected


def test_without_a_buffer_lanes_take_turns():
    parts = Parts(opened_of([2, 3, 1]), [2, 3, 1], lanes=2, buffer=0, seed=0)
    # lane 0: parts 0 and 2, lane 1: part 1
    assert list(parts.items(7, 0, np.ones(1, bool))) == [0, 2, 1, 3, 5, 4]


def test_a_buffer_shuffles_as_far_as_it_reaches():
    lengths = [400, 400]
    epochs = {}
    for seed in (0, 1):
        parts = Parts(opened_of(lengths), lengths, lanes=1, buffer=50, seed=seed)
        for epoch in (0, 1):
            found = np.array(list(parts.items(epoch, 0, np.ones(1, bool))))
            epochs[seed, epoch] = found.tobytes()
            early = np.arange(800) - np.where(found[0] < 400, found, (found + 400) % 800)
            assert early.min() >= -50 and early.max() > 50  # an item may wait, none comes early
            assert np.corrcoef(found[:400], np.arange(400))[0, 1] < 0.999
    assert len(set(epochs.values())) == 4
    single = Parts([partial(range, 20)], None, lanes=1, buffer=50, seed=0)
    orders = np.array([list(single.items(epoch, 0, np.ones(1, bool))) for epoch in range(2000)])
    counts = np.stack([np.bincount(orders[:, place], minlength=20) for place in range(20)])
    assert ((counts - 100) ** 2 / 100).sum() < 361 + 5 * np.sqrt(2 * 361)  # chi-square, 19 x 19


def test_a_process_opens_the_parts_of_its_rows_alone():
    opened = []

    def part(number):
        opened.append(number)
        return iter(range(6))

    parts = Parts([partial(part, n) for n in range(16)], [6] * 16, lanes=8, buffer=2, seed=0)
    seen = []
    for process in range(4):  # rows 2 k and 2 k + 1 of every batch of 8
        opened.clear()
        list(parts.items(0, 0, np.arange(8) // 2 == process))
        seen += opened
        assert len(opened) == 4
    assert sorted(seen) == list(range(16))
    opened.clear()
    list(parts.items(0, 8 * 7, np.ones(1, bool)))  # the first part of each lane is over
    assert len(opened) == 8


@pytest.mark.parametrize("lengths", [None, [9, 0, 14, 5, 12]])
def test_a_resumed_stream_goes_on_exactly(lengths):
    items = parts_of([40])[0] if lengths is None else parts_of(lengths)
    source = FromIterable(items, lengths=lengths, lanes=3, buffer=7, seed=1)
    options = {"shuffle": False, "sharding": one_device(), "last_batch": "pad"}
    with Loader(source, 4, epochs=2, **options) as loader:
        [next(loader) for _ in range(3)]
        state = loader.get_state()
        expected = [int(n) for batch in loader.steps(17) for n in batch["label"][batch["valid"]]]
    assert sorted(expected[-40:]) == list(range(40)) and expected[-40:-12] != expected[:28]
    with Loader(source, 5, epochs=2, **options) as loader:
        loader.set_state(state)
        steps = loader.steps(14)
        found = [int(n) for batch in steps for n in batch["label"][batch["valid"]]]
    assert found == expected


@pytest.mark.parametrize("said, how", [([3, 2, 4], "more"), ([3, 4, 4], "fewer")])
def test_a_wrong_length_is_an_error(said, how):
    parts = parts_of([3, 3, 4])
    with pytest.raises(SourceError, match=f"`lengths`: part 1 has {how} items than {said[1]}"):
        list(FromIterable(parts, lengths=said, lanes=1).iterate())


@pytest.mark.parametrize("workers", [0, 1])
def test_more_items_at_the_end_of_the_last_part_are_an_error(workers):
    source = FromIterable(parts_of([3, 3]), lengths=[3, 2], lanes=2, workers=workers)
    with pytest.raises(SourceError, match="`lengths`: part 1 has more items than 2"):
        list(source.iterate_from(0, 0, np.ones(1, bool)))


@pytest.mark.parametrize("lengths", [[1], [1, 2, 3], [1, -1], [1.0, 2]])
def test_lengths_that_are_none_are_named(lengths):
    with pytest.raises(ValueError, match="`lengths` must have the number of items"):
        FromIterable(parts_of([1, 2]), lengths=lengths)


def test_workers_give_the_same_items_and_errors_at_their_places():
    lengths = [5, 30, 8, 21]
    alone = FromIterable(parts_of(lengths), lengths=lengths, lanes=3, buffer=4)
    shared = FromIterable(parts_of(lengths), lengths=lengths, lanes=3, buffer=4, workers=2)
    wanted = np.array([True, False, True])
    expected = list(alone.iterate_from(1, 5, wanted))
    assert list(shared.iterate_from(1, 5, wanted)) == expected

    failing = parts_of(lengths, fails=20)
    shared = FromIterable(failing, lengths=lengths, lanes=3, workers=1)
    alone = FromIterable(failing, lengths=lengths, lanes=3)
    counts = []
    for source in (alone, shared):
        counts.append(0)
        with pytest.raises(KeyError, match="no such thing"):
            for _ in source.iterate_from(0, 0, np.ones(1, bool)):
                counts[-1] += 1
    assert counts[0] == counts[1] > 20


def unsendable(count):
    for number, (image, features) in enumerate(numbers(0, count)):
        yield image, features | ({"way": lambda: None} if number == 2 else {})


def test_an_item_that_a_worker_cannot_send_is_named():
    source = FromIterable([partial(unsendable, 4)], lengths=[4], workers=1)
    records = source.iterate_from(0, 0, np.ones(1, bool))
    assert [int(next(records)["label"]) for _ in range(2)] == [0, 1]  # those before it come
    with pytest.raises(SourceError, match=r"`workers`: an item cannot be sent .*lambda"):
        next(records)


STREAM = """
import os, sys
import numpy as np
from tests.iterators.sources.test_stream_parts import parts_of
from jaxaug.iterators import FromIterable
if __name__ == "__main__":
    lengths = [10**6] * 2
    source = FromIterable(parts_of(lengths, seconds=0.005), lengths=lengths, workers=2)
    for number, record in enumerate(source.iterate_from(0, 0, np.ones(1, bool))):
        if number == 0:
            import multiprocessing
            print(*[child.pid for child in multiprocessing.active_children()], flush=True)
"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path, end):
    script = tmp_path / "script.py"
    script.write_text(STREAM)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    workers = []
    watchdog = threading.Timer(90, parent.kill)  # which ends the wait for its line
    watchdog.start()
    try:
        assert parent.stdout is not None
        workers = [int(each) for each in parent.stdout.readline().split()]
        assert len(workers) == 2 and all(map(is_alive, workers))
        if end == signal.SIGINT:
            os.killpg(parent.pid, end)
        else:
            parent.send_signal(end)
        parent.wait(30)
        deadline = time.monotonic() + 20
        while any(map(is_alive, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_alive, workers))
    finally:
        watchdog.cancel()
        parent.kill()
        parent.communicate(timeout=300)
        for each in workers:
            if is_alive(each):
                os.kill(each, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_an_error():
    import multiprocessing

    lengths = [10**6] * 2
    source = FromIterable(parts_of(lengths, seconds=0.01), lengths=lengths, workers=2)
    records = source.iterate_from(0, 0, np.ones(1, bool))
    next(records)
    try:
        multiprocessing.active_children()[0].kill()
        with pytest.raises(SourceError, match=r"`workers`: process \d+ ended with exit code -9"):
            for _ in records:
                pass
        assert not multiprocessing.active_children()
    finally:
        for each in multiprocessing.active_children():
            each.kill()


def hang(count):
    yield from numbers(0, count)
    threading.Event().wait()


def test_a_worker_that_hangs_is_ended_with_the_loader(monkeypatch):
    """It kept the thread that reads for ten minutes."""
    import multiprocessing

    monkeypatch.setattr(pipeline, "_JOIN_SECONDS", 60.0)
    source = FromIterable([partial(hang, 16)], lengths=[20], workers=1)
    loader = Loader(source, 8, sharding=one_device(), decode=Image((64, 64)), shuffle=False)
    assert np.asarray(next(loader)["label"]).tolist() == list(range(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a thread that goes on is warned of
        loader.close()
    assert not multiprocessing.active_children()


def test_a_worker_that_hangs_is_told_and_ended(monkeypatch):
    monkeypatch.setattr(_workers, "_MINUTE", 1.5)
    monkeypatch.setattr(_workers, "_MAX_MINUTES", 4)
    source = FromIterable([partial(hang, 8)], lengths=[20], workers=1)
    items = source.iterate_from(0, 0, np.ones(1, bool))
    with (
        pytest.warns(RuntimeWarning, match="has sent nothing for 3 min"),
        pytest.raises(SourceError, match="has sent nothing for 4 min: it hangs"),
    ):
        assert [int(next(items)["label"]) for _ in range(8)] == list(range(8))
        next(items)
