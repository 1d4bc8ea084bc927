"""`Blocks`: runs of neighbors in lanes; exact as every order, and shuffled well enough."""

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators import Blocks, Shuffled
from tests.iterators.loaders import N, one_device

SHAPES = [(1, 1), (1, 4), (5, 1), (3, 4), (16, 256)]


@pytest.mark.parametrize("run, lanes", SHAPES)
@pytest.mark.parametrize("length", [1, 2, 5, 15, 16, 17, 100, 1000, 4097])
def test_every_epoch_is_a_permutation(length, run, lanes):
    order = Blocks(length, run, lanes, seed=3)
    epochs = [order.records(epoch, np.arange(length)) for epoch in range(4)]
    for records in epochs:
        assert np.array_equal(np.sort(records), np.arange(length))
    assert length < 100 or len({records.tobytes() for records in epochs}) == 4
    parts = [order.records(2, np.arange(length)[start::7]) for start in range(7)]
    assert all(np.array_equal(part, epochs[2][at::7]) for at, part in enumerate(parts))


def test_positions_outside_are_refused():
    with pytest.raises(ValueError, match=r"`positions` must lie in \[0, 10\)"):
        Blocks(10, 2, 2).records(0, np.array([10]))


@pytest.mark.parametrize("wrong", [{"length": 0}, {"run": 0}, {"lanes": 2.0}])
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be"):
        Blocks(**({"length": 10} | wrong))


@pytest.mark.parametrize("length", [100_003, 4096, 23_800, 1023, 1024, 2048, 700, 40, 1])
def test_a_lane_takes_whole_runs_of_neighbors(length, run=16, lanes=64):
    order = Blocks(length, run, lanes, seed=1)
    positions = np.arange(length)
    records = order.records(5, positions)
    before, left = order.runs(positions)
    goes_on = np.flatnonzero(left > 1)
    assert ((records[goes_on + lanes] - records[goes_on]) % length == 1).all()
    assert np.array_equal(before[goes_on + lanes], before[goes_on] + 1)
    assert np.array_equal(left[goes_on + lanes], left[goes_on] - 1)
    runs = np.flatnonzero(before == 0)
    assert left[runs].sum() == length and left[runs].max(initial=0) < 2 * run
    assert runs.size <= length / run + 2 * lanes


def test_lanes_begin_their_runs_evenly():
    """In any step about as many of some neighboring lanes, which are those of one process."""
    order = Blocks(1_000_000, run=100, lanes=256)
    steps = np.arange(200, 1000)[:, None] * 256
    begins = order.runs(steps + np.arange(256))[0] == 0
    assert begins.mean() == pytest.approx(0.01, rel=0.01)
    for some in np.split(begins, 4, axis=1):
        by_ten = some.reshape(80, -1).sum(axis=1)
        assert 4 <= by_ten.min() and by_ten.max() <= 9


def test_epochs_cut_the_data_at_other_places():
    order = Blocks(1000, run=10, lanes=1, seed=2)
    starts = [int(order.records(epoch, np.zeros(1, int))[0]) for epoch in range(100)]
    assert {start % 10 for start in starts} == set(range(10))


def effective_size(order, labels, batch=256):
    """The size of the independent draws whose shares of classes vary as those of the batches do.

    Shares of k independent draws have a variance of p (1 - p) / k.
    """
    found = labels[order.records(0, np.arange(labels.size))]
    batches = found[: labels.size // batch * batch].reshape(-1, batch)
    count = labels.max() + 1
    shares = np.stack([np.bincount(each, minlength=count) for each in batches]) / batch
    expected = np.bincount(labels) / labels.size
    variance = ((shares - expected) ** 2).sum(axis=1).mean()
    return float((expected * (1 - expected)).sum() / variance)


def test_batches_of_shards_sorted_by_class_are_nearly_independent():
    labels = np.repeat(np.arange(100), 500)
    assert 240 < effective_size(Shuffled(labels.size), labels) < 280  # the measure itself
    assert effective_size(Blocks(labels.size, run=16, lanes=1), labels) < 30
    for seed in range(3):
        assert effective_size(Blocks(labels.size, seed=seed), labels) > 150


def test_a_run_goes_on_exactly_with_another_batch_size(source):
    order = Blocks(N, run=3, lanes=4, seed=1)
    with Loader(source, 4, shuffle=order, sharding=one_device()) as loader:
        next(loader)
        state = loader.get_state()
        expected = [int(i) for batch in loader for i in batch["index"]]
    with Loader(source, 2, shuffle=order, sharding=one_device()) as loader:
        loader.set_state(state)
        found = [int(i) for batch in loader for i in batch["index"]]
    assert found[: len(expected)] == expected
    assert expected == order.records(0, np.arange(4, 4 + len(expected))).tolist()


@pytest.mark.parametrize("processes, lanes", [(4, 256), (8, 512)])
def test_each_run_is_read_by_one_process(processes, lanes, batch=256, length=100_000, run=16):
    """Rows r to r + batch / processes of every batch are those of one process."""
    order = Blocks(length, run, lanes)
    records = order.records(0, np.arange(length // batch * batch)).reshape(-1, batch)
    owner = np.full(length, -1)
    for process, rows in enumerate(np.split(records, processes, axis=1)):
        owner[rows] = process
    neighbors = (owner[:-1] == owner[1:]) | (owner[:-1] < 0) | (owner[1:] < 0)
    starts = length / run + lanes
    assert (~neighbors).sum() <= starts  # where one run ends and the next begins, never inside
