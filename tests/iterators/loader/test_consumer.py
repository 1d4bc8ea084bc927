"""Threads end with their Loader, and a closed Loader says so."""

import gc
from concurrent.futures import CancelledError
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators.loader.consumer import Resources
from jaxaug.iterators.loader.pipeline import Pipeline
from jaxaug.iterators.loader.reader import ReadBatch
from jaxaug.iterators.loader.state import BatchSpan, Cursor
from tests.iterators.loaders import no_threads_soon, one_device, threads


def test_no_thread_outlives_a_dropped_loader(source):
    loader = Loader(source, 4, sharding=one_device())
    next(loader)
    assert threads()
    del loader
    gc.collect()
    no_threads_soon()


def test_a_loader_that_is_closed_after_its_last_read_leaves_no_thread(source):
    loader = Loader(source, 8, epochs=1, prefetch=8, sharding=one_device())
    next(loader)
    pipeline = loader._consumer._pipeline()
    pipeline._thread.join(20)
    assert threads() and pipeline.peek() is not None
    loader.close()
    assert threads() == []


def test_a_closed_loader_says_so(source):
    loader = Loader(source, 4, sharding=one_device())
    next(loader)
    loader.close()
    loader.close()
    assert threads() == []
    with pytest.raises(ValueError, match="closed"):
        next(loader)


def test_a_pipeline_that_starts_while_its_loader_is_closed_ends():
    def reads():
        while True:
            yield ReadBatch(BatchSpan(0, 0, 1, Cursor(0, 1)), np.zeros(1), np.zeros(1))

    resources = Resources()
    resources.close()
    pipeline = resources.start(Pipeline(reads(), lambda batch: batch, lambda read: iter(()), 1, 1))
    assert resources.pipeline is None
    with pytest.raises(CancelledError):
        pipeline.peek()
    no_threads_soon()


def test_a_batch_is_not_delivered_after_another_thread_has_closed_the_loader(source, monkeypatch):
    loader = Loader(source, 4, sharding=one_device())
    next(loader)
    pipeline = loader._consumer._pipeline()
    peek = pipeline.peek

    def close_behind():
        pending = peek()
        assert pending is not None and pending.result.result()
        loader.close()
        return pending

    monkeypatch.setattr(pipeline, "peek", close_behind)
    with pytest.raises(ValueError, match="closed"):
        next(loader)
    assert threads() == []


def test_a_fork_leaves_the_threads_of_its_parent_alone():
    """It has none of them, and a lock that one of them held is never given back."""
    resources = Resources()
    resources.process -= 1
    called = []
    parents = SimpleNamespace(stop=called.append, join=lambda: called.append("join"))
    resources.pipeline = parents  # pyright: ignore
    resources.close()
    assert not called and resources.pipeline is parents
