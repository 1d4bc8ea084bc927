"""A Loader as the first stage of a Grain pipeline."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators import InMemory
from tests.images import jpegs
from tests.iterators.loaders import N, one_device

pytest.importorskip("grain", reason="needs grain, which no extra of jaxaug installs")


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N)})


def make(source, batch_size=8):
    return Loader(source, batch_size, sharding=one_device(), seed=4)


def dataset_of(loader):
    from jaxaug.iterators.grain import LoaderDataset

    return LoaderDataset(loader)


def labels(batches, count):
    return [label for _ in range(count) for label in next(batches).tolist()]


def test_a_stage_behind_it_sees_the_batches_over_the_ends_of_epochs(source):
    with make(source) as plain:
        expected = [batch["label"].tolist() for batch in plain.steps(7)]
    with make(source) as loader:
        dataset = dataset_of(loader).map(lambda batch: batch["label"].tolist())
        found = [batch for batch, _ in zip(dataset, range(7))]
    assert found == expected


def test_the_state_of_a_pipeline_resumes_exactly_with_another_batch_size(source):
    with make(source) as loader:
        batches = iter(dataset_of(loader).map(lambda batch: batch["label"]))
        labels(batches, 4)
        state = json.loads(json.dumps(batches.get_state()))
        expected = labels(batches, 3)
    with make(source, 4) as loader:
        batches = iter(dataset_of(loader).map(lambda batch: batch["label"]))
        batches.set_state(state)
        assert batches.get_state() == state
        assert labels(batches, 6) == expected


def test_iterators_have_places_of_their_own(source):
    with make(source) as loader:
        next(loader)
        dataset = dataset_of(loader).map(lambda batch: batch["label"])
        first = iter(dataset)
        expected = labels(first, 4)
        one = iter(dataset)
        two = iter(dataset)
        found = [labels(one, 1), labels(two, 2), labels(one, 3), labels(two, 2)]
    assert found[0] + found[2] == expected == found[1] + found[3]


def test_iterators_of_several_threads_have_places_of_their_own(source):
    with make(source) as loader:
        dataset = dataset_of(loader).map(lambda batch: batch["label"])
        expected = labels(iter(dataset), 4)
        with ThreadPoolExecutor(2) as pool:
            found = list(
                pool.map(lambda batches: labels(batches, 4), [iter(dataset), iter(dataset)])
            )
    assert found == [expected, expected]


def test_epochs_that_are_used_up_end_it(source):
    with Loader(source, 8, sharding=one_device(), epochs=2) as loader:
        assert len(list(dataset_of(loader))) == 6


def test_it_is_told_by_its_loader_and_takes_nothing_else(source):
    with make(source) as loader:
        assert repr(dataset_of(loader)) == f"LoaderDataset({loader!r})"
    with pytest.raises(TypeError, match=r"`loader` must be a jaxaug.Loader, got InMemory"):
        dataset_of(source)
