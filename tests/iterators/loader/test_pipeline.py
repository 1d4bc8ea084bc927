"""The threads of a Loader: who may take batches, what stops them, and what they leave behind."""

import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import SourceError
from jaxaug.iterators import FromIterable, InMemory
from jaxaug.iterators.loader import pipeline
from jaxaug.iterators.loader.pipeline import Pipeline
from jaxaug.iterators.loader.reader import ReadBatch
from jaxaug.iterators.loader.state import BatchSpan, Cursor
from jaxaug.iterators.sources.storage.threads import check_awaited
from tests.images import jpegs
from tests.iterators.loaders import one_device, threads

N = 12


def soon(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


class Held(InMemory):
    """Its reads wait for `go` from the third on."""

    def __init__(self, images):
        super().__init__(images)
        self.go = threading.Event()
        self.reads = 0

    def read(self, indices):
        self.reads += 1
        if self.reads > 2:
            self.go.wait(20)
        return super().read(indices)


def test_one_loader_has_one_thread_that_reads():
    with Loader(InMemory(jpegs(N)), 4, sharding=one_device()) as loader:
        next(loader)
        names = sorted(t.name.rstrip("_0123456789") for t in threads())
        assert names.count("jaxaug-reader") == 1
        assert set(names) <= {"jaxaug-reader", "jaxaug-build", "jaxaug-decode", "jaxaug-device"}


def test_two_calls_at_once_are_an_error():
    source = Held(jpegs(N))
    with Loader(source, 4, sharding=one_device()) as loader:
        first = threading.Thread(target=lambda: next(loader))
        first.start()
        assert soon(lambda: loader._consumer._one_at_a_time.locked())
        with pytest.raises(RuntimeError, match="two calls take a batch of this Loader at once"):
            next(loader)
        source.go.set()
        first.join()
        next(loader)


def test_close_in_another_thread_ends_a_waiting_loop_with_an_error():
    source = Held(jpegs(N))
    loader = Loader(source, 4, sharding=one_device())
    errors = []

    def consume():
        try:
            list(loader)
        except ValueError as error:
            errors.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert soon(lambda: loader._consumer._one_at_a_time.locked())
    closing = threading.Thread(target=loader.close)
    closing.start()
    consumer.join(20)
    source.go.set()
    closing.join(20)
    assert len(errors) == 1 and "closed" in str(errors[0])
    assert soon(lambda: threads() == [])


class Trainer:
    """Owns a Loader whose transform is a method of its own."""

    def __init__(self):
        self.loader = Loader(InMemory(jpegs(N)), 4, transform=self.augment, sharding=one_device())
        next(self.loader)

    def augment(self, key, sample):
        return {"image": sample["image"]}


def test_a_loader_whose_transform_is_a_method_of_its_owner_can_be_collected():
    owner = weakref.ref(Trainer())
    gc.collect()
    assert owner() is None
    assert soon(lambda: threads() == [])


class Collecting(InMemory):
    """Its fourth read waits for `dropped`, then runs the collector in the Loader's own thread."""

    def __init__(self, images):
        super().__init__(images)
        self.dropped = threading.Event()
        self.reads = 0

    def read(self, indices):
        self.reads += 1
        if self.reads > 3:
            self.dropped.wait(20)
            gc.collect()
        return super().read(indices)


def test_a_loader_may_be_collected_by_its_own_thread():
    """The finalizer must not wait for the thread that it runs in."""
    gc.disable()
    try:
        source = Collecting(jpegs(N))
        loader = Loader(source, 2, sharding=one_device())
        next(loader)
        owner = {"loader": loader}
        owner["self"] = owner
        gone = weakref.ref(loader)
        del loader, owner  # a cycle: only the collector ends it
        source.dropped.set()
        assert soon(lambda: threads() == []) and gone() is None
    finally:
        gc.enable()


def test_no_more_batches_wait_for_their_consumer_than_the_depth():
    def reads():
        while True:
            yield ReadBatch(BatchSpan(0, 0, 1, Cursor(0, 1)), np.zeros(1), np.zeros(1))

    built = []
    pipeline = Pipeline(reads(), built.append, lambda read: iter(()), workers=2, depth=3)
    pipeline.start()
    try:
        for count in (3, 4):
            assert soon(lambda count=count: len(built) == count)
            time.sleep(0.05)
            assert len(built) == count
            pipeline.pop()
    finally:
        pipeline.stop()
        pipeline.join()


def test_two_runs_wait_for_their_consumer():
    cursors = (Cursor(0, 8), Cursor(0, 16), Cursor(0, 24), Cursor(1, 0))

    def reads():
        while True:
            yield ReadBatch(BatchSpan(0, 16, 8, cursors[-1]), np.zeros(1), np.zeros(1), run=cursors)

    launched = []

    def launch(read):
        launched.append(read)
        yield list(read.run)

    pipeline = Pipeline(reads(), launched.append, launch, workers=2, depth=5)
    pipeline.start()
    try:
        for number in range(12):
            count = 2 + number // 4
            assert soon(lambda count=count: len(launched) == count)
            time.sleep(0.02)
            assert len(launched) == count
            assert pipeline.peek().after == pipeline.peek().result.result() == cursors[number % 4]
            pipeline.pop()
    finally:
        pipeline.stop()
        pipeline.join()


class Made:
    """A batch that may be referred to weakly."""


def test_light_runs_are_launched_by_their_consumer_as_it_comes_near():
    cursors = tuple(Cursor(0, number) for number in range(1, 9))
    launched = []
    alive = weakref.WeakSet[Made]()

    def reads():
        while True:
            yield ReadBatch(BatchSpan(0, 0, 1, cursors[-1]), np.zeros(1), np.zeros(1), run=cursors)

    def launch(read):
        for number in range(0, 8, 2):
            launched.append(threading.current_thread())
            if number == 6:
                raise ZeroDivisionError
            yield [alive.add(made) or made for made in (Made(), Made())]

    build: Any = launch  # is never called
    pipeline = Pipeline(reads(), build, launch, workers=1, depth=3, is_light=True)
    pipeline.start()
    try:
        for number in range(20):
            pending = pipeline.peek()
            assert pending is not None and pending.after == cursors[number % 8]
            assert number // 2 + 1 <= len(launched) <= (number + 3) // 2 + 1
            assert isinstance(pending.result.exception(), ZeroDivisionError) == (number % 8 > 5)
            del pending
            pipeline.pop()
            assert number > 5 or len(alive) <= 5  # an error keeps its frames
        assert set(launched) == {threading.current_thread()}
    finally:
        pipeline.stop()
        pipeline.join()


def test_a_source_may_close_the_loader_that_reads_it():
    class Closing(InMemory):
        loader = None
        outcome = None

        def read(self, indices):
            if self.loader is not None:
                self.outcome = self.loader.close() or "closed"
            return super().read(indices)

    source = Closing(jpegs(N))
    loader = Loader(source, 4, sharding=one_device())
    source.loader = loader
    with pytest.raises(ValueError, match="closed"):
        next(loader)
    assert soon(lambda: threads() == []) and source.outcome == "closed"


def test_a_pipeline_may_be_stopped_by_a_thread_that_holds_its_lock():
    """Where the collector comes in the midst of one of its methods."""
    pipeline = Pipeline(iter(()), lambda batch: batch, lambda read: iter(()), 1, 1)  # pyright: ignore

    def stop():
        with pipeline._changed:
            pipeline.stop()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_stream_cleans_up_in_the_thread_that_read_it():
    ended = []
    (image,) = jpegs(1)

    def items():
        try:
            while True:
                yield image, {}
        finally:
            ended.append(threading.current_thread().name)

    with Loader(FromIterable(items), 2, shuffle=False, sharding=one_device()) as loader:
        ended.clear()  # those that looked at the first records
        next(loader)
    assert ended == ["jaxaug-reader"]


FORKED = """
import os, signal, sys
import jax
from jaxaug import Loader
from jaxaug.iterators import InMemory
from tests.images import jpegs
loader = Loader(InMemory(jpegs(12)), 4, seed=3)
next(loader)
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        next(loader)
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)
print("CHILD", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
next(loader)
loader.close()
"""


def test_a_forked_child_is_told_that_it_has_no_threads():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "CHILD 7" in done.stdout, (done.stdout, done.stderr[-2000:])


FORKED_AMIDST = """
import os, threading
from jaxaug import Loader
from jaxaug.iterators import InMemory
from jaxaug.iterators.loader.pipeline import _stop_all
from tests.images import jpegs
loader = Loader(InMemory(jpegs(12)), 4)
next(loader)
changed = loader._consumer._resources.pipeline._changed
held = threading.Event()
forked = threading.Event()

def hold():
    with changed:
        held.set()
        forked.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    _stop_all()  # as at the exit, where JAX's own end crashes in a fork
    os._exit(7)
forked.set()
print("CHILD", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_ends_whatever_locks_were_held():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED_AMIDST],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "CHILD 7\n", done.stderr[-2000:]


ENDS = """
import sys
from jaxaug import Loader
from jaxaug.iterators import InMemory
from tests.images import jpegs
loader = Loader(InMemory(jpegs(12)), 4)
next(loader)
print("DONE", flush=True)
"""


def test_a_process_ends_with_a_loader_that_nobody_closed():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "DONE\n" and "Traceback" not in done.stderr


def test_an_exit_waits_for_threads_that_drop_what_a_stopped_pipeline_had(monkeypatch):
    go, finish = threading.Event(), Pipeline._finish

    def finish_and_drop(self):
        finish(self)
        go.wait(20)

    monkeypatch.setattr(Pipeline, "_finish", finish_and_drop)
    made = Pipeline((each for each in ()), id, iter, workers=1, depth=1)
    made.start()
    assert soon(lambda: made not in pipeline._running) and made._thread.is_alive()
    threading.Timer(0.2, go.set).start()
    pipeline._stop_all()
    assert not made._thread.is_alive()


def test_the_context_of_a_thread_keeps_no_pipeline():
    contexts = []

    def reads():
        contexts.append(contextvars.copy_context())  # as a source's threads have it
        yield from ()

    made = Pipeline(reads(), id, iter, workers=1, depth=1)
    made.start()
    with pytest.raises(SourceError, match="closed"):
        made.stop()
        made.join()
        contexts[0].run(check_awaited)
    found = weakref.ref(made)
    del made
    gc.collect()
    assert found() is None
    with pytest.raises(SourceError, match="closed"):
        contexts[0].run(check_awaited)


def test_an_interrupt_does_not_wait_for_a_source_for_ever(monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.loader.pipeline._JOIN_SECONDS", 0.2)
    source = Held(jpegs(N))
    with Loader(source, 4, sharding=one_device()) as loader:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.warns(RuntimeWarning, match="a read of the source has not ended"):
            with pytest.raises(KeyboardInterrupt):
                next(loader)
        source.go.set()
        assert next(loader)["valid"].all()  # still usable


def test_an_interrupt_while_the_threads_start_leaves_none(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        if thread.name == "jaxaug-reader":
            monkeypatch.undo()
            raise KeyboardInterrupt

    with Loader(InMemory(jpegs(N)), 4, shuffle=False, sharding=one_device()) as loader:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(loader)
        assert soon(lambda: not any(t.name == "jaxaug-reader" for t in threads()))
        assert next(loader)["index"].tolist() == [0, 1, 2, 3]


def test_stats_count_what_was_delivered():
    with Loader(InMemory(jpegs(N)), 4, prefetch=3, sharding=one_device()) as loader:
        next(loader)
        time.sleep(0.2)
        assert loader.stats["batches"] == 1 and loader.stats["images"] == 4
