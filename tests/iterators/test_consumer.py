"""Threads end with their Loader, and a closed Loader says so."""

import gc

import pytest

from jaxaug import Loader
from tests.iterators.loaders import no_threads_soon, one_device, threads


def test_no_thread_outlives_a_dropped_loader(source):
    loader = Loader(source, 4, sharding=one_device())
    next(loader)
    assert threads()
    del loader
    gc.collect()
    no_threads_soon()


def test_a_closed_loader_says_so(source):
    loader = Loader(source, 4, sharding=one_device())
    next(loader)
    loader.close()
    loader.close()
    assert threads() == []
    with pytest.raises(ValueError, match="closed"):
        next(loader)
