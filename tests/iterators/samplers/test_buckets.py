"""Buckets: batches of like lengths, each record once, by (seed, epoch, position) alone."""

import jax
import numpy as np
import pytest

from jaxaug import iterators
from jaxaug.iterators.samplers.sampler import sampler_name

CASES = [  # records, bounds, batch size
    (100, [2, 5, 10], 8),
    (7, [3, 10], 8),  # fewer than a batch
    (64, [1, 2, 3, 4, 10], 4),
    (33, [10], 5),
    (50, [0.5, 9.5, 10], 7),  # a bucket of few, and one of most
    (1, [10], 1),
]


def made(count, bounds, batch_size, seed=0):
    lengths = np.random.default_rng(count).uniform(0, 10, count)
    return lengths, iterators.Buckets(lengths, bounds, batch_size, seed)


@pytest.mark.parametrize("count, bounds, size", CASES)
def test_each_record_comes_once_in_a_batch_where_it_fits(count, bounds, size):
    lengths, order = made(count, bounds, size)
    for epoch in range(3):
        records = order.records(epoch, np.arange(count))
        np.testing.assert_array_equal(np.sort(records), np.arange(count))
        for start in range(0, count, size):
            longest = lengths[records[start : start + size]].max()
            assert longest <= order.bound(epoch, start)
            assert order.bound(epoch, start) == order.bound(epoch, min(start + size, count) - 1)


def test_most_batches_hold_their_own_bucket_alone():
    lengths, order = made(1000, [2, 4, 6, 8, 10], 8)
    records = order.records(0, np.arange(1000)).reshape(-1, 8)
    own = np.ceil(lengths[records] / 2)
    mixed = (own != own.max(axis=1, keepdims=True)).any(axis=1)
    assert mixed.sum() <= 4 * 7  # what is left of each bucket but the last
    bounds = np.array([order.bound(0, start) for start in range(0, 1000, 8)])
    np.testing.assert_array_equal(bounds, 2 * own.max(axis=1))
    assert (np.diff(bounds) != 0).sum() > 60  # the batches are shuffled


def test_any_positions_at_a_time_give_the_same():
    _, order = made(100, [2, 5, 10], 8, seed=3)
    whole = order.records(4, np.arange(100))
    places = np.random.default_rng(0).permutation(100)
    np.testing.assert_array_equal(order.records(4, places), whole[places])
    single = [order.records(4, np.array([place]))[0] for place in range(100)]
    np.testing.assert_array_equal(single, whole)


def test_epochs_and_seeds_differ():
    _, order = made(100, [2, 5, 10], 8)
    _, other = made(100, [2, 5, 10], 8, seed=1)
    places = np.arange(100)
    assert (order.records(0, places) != order.records(1, places)).mean() > 0.9
    assert (order.records(0, places) != other.records(0, places)).mean() > 0.9
    assert sampler_name(order) == sampler_name(made(100, [2, 5, 10], 8)[1]) != sampler_name(other)


def test_each_record_meets_all_of_its_bucket():
    """Where a record stands in its bucket is uniform over epochs."""
    lengths = np.repeat([1.0, 3.0], [12, 12])
    order = iterators.Buckets(lengths, [2, 4], 4)
    first = np.array([order.records(epoch, np.arange(24)) for epoch in range(600)])
    place = np.argsort(first, axis=1)[:, 0]  # of record 0
    counts = np.bincount(place, minlength=24)
    assert counts.min() > 8 and counts.max() < 50


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.ones(3), [2, 1], 2), "`bounds` must be ascending"),
        ((np.ones(3), [0.5], 2), "`bounds` must reach the longest record, 1, got 0.5: 3 records"),
        (([1.0, np.inf], [2], 2), "`lengths` must be a finite number"),
        ((iterators.Sequential(3), [2], 2), r"`lengths` .*, got Sequential.*Manifest.*durations"),
        ((np.ones(3), "long", 2), "`bounds` must be ascending numbers, got 'long'"),
        ((np.ones(3), [2], 0), "`batch_size` must be"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        iterators.Buckets(*arguments)


def test_a_loader_takes_batches_of_buckets():
    lengths = np.arange(32) % 10 + 1.0
    source = iterators.InMemory(np.arange(32 * 12, dtype=np.uint8).reshape(32, 2, 2, 3))
    order = iterators.Buckets(lengths, [5, 10], 16, seed=2)
    mesh = jax.make_mesh((1,), ("batch",), devices=jax.devices()[:1])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    with iterators.Loader(source, 16, shuffle=order, sharding=sharding) as loader:
        state = loader.get_state()
        bound = order.bound(state["epoch"], state["position"])
        index = np.asarray(next(loader)["index"])
        assert lengths[index].max() <= bound
        np.testing.assert_array_equal(index, order.records(0, np.arange(16)))
    with pytest.raises(ValueError, match="`batch_size` must be that of `shuffle`, 16, or divide"):
        iterators.Loader(source, 12, shuffle=order, sharding=sharding)
