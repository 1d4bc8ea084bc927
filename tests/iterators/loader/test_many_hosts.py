"""Hundreds of hosts and 10^9 records: what each reads, by sampling; and other hosts midway."""

import itertools

import numpy as np
import pytest

from jaxaug.iterators import Blocks, InMemory, Shuffled
from jaxaug.iterators.loader.reader import PADDING, BatchPlan, RecordReader
from jaxaug.iterators.loader.state import Cursor
from tests.images import jpegs

HOSTS = 256
RECORDS = 10**9


class Numbers(InMemory):
    """As many records as wanted, each with its number alone."""

    def __init__(self, length):
        super().__init__(jpegs(1))
        self.length = length

    def __len__(self):
        return self.length

    def read(self, indices):
        return {"number": np.asarray(indices, np.int64) % 2**31}


def batches_of(order, batch_size, hosts, host, start, count, epochs=None):
    """The records of `count` batches of a host of several, and where they end."""
    rows = np.arange(batch_size).reshape(hosts, -1)[host]
    reader = RecordReader(source=Numbers(order.length), sampler=order)
    plan = BatchPlan(batch_size, rows, False, epochs)
    batches = list(itertools.islice(reader.batches(plan, Cursor(*start)), count))
    return [batch.indices for batch in batches], batches[-1].span.after


@pytest.mark.parametrize("order", [Shuffled(RECORDS), Blocks(RECORDS, run=64, lanes=8192)])
def test_hosts_share_an_epoch_of_a_billion_records(order, batch_size=8192):
    """At places all over the epoch: no record twice, none left out, runs read by one host."""
    rng = np.random.default_rng(0)
    starts = np.unique(rng.integers(0, RECORDS // batch_size, 24)) * batch_size
    positions = (starts[:, None] + np.arange(batch_size)).ravel()
    records = order.records(3, positions)
    assert np.unique(records).size == positions.size
    assert 0 <= records.min() and records.max() < RECORDS
    for host in rng.integers(0, HOSTS, 4).tolist():
        start = (3, int(starts[5]))
        (found,), after = batches_of(order, batch_size, HOSTS, host, start, 1)
        rows = slice(host * batch_size // HOSTS, (host + 1) * batch_size // HOSTS)
        assert np.array_equal(found, records.reshape(-1, batch_size)[5, rows])
        assert after == Cursor(3, start[1] + batch_size)
    if isinstance(order, Blocks):
        # Half a run of steps: at most every lane of the host begins one more.
        steps = starts[3] + np.arange(0, order.run // 2)[:, None] * batch_size
        rows = np.arange(7 * batch_size // HOSTS, 8 * batch_size // HOSTS)
        runs = np.sort(order.records(3, (steps + rows).ravel()))
        assert (np.diff(runs) != 1).sum() < 2 * order.lanes // HOSTS


@pytest.mark.parametrize("kind", [Shuffled, Blocks])
def test_four_hosts_become_two_and_then_three_in_the_middle_of_a_block(kind):
    order = kind(1000) if kind is Shuffled else Blocks(1000, run=8, lanes=24, seed=5)
    whole = np.concatenate([order.records(epoch, np.arange(1000)) for epoch in range(2)])
    seen = []
    cursor = Cursor(0, 0)
    for hosts, batch_size, count in ((4, 24, 13), (2, 24, 7), (3, 24, 40)):
        parts = [batches_of(order, batch_size, hosts, host, cursor, count) for host in range(hosts)]
        assert len({after for _, after in parts}) == 1
        cursor = parts[0][1]
        rows = [np.concatenate(each) for each in zip(*(indices for indices, _ in parts))]
        seen += [row[row != PADDING] for row in rows]
    seen = np.concatenate(seen)
    assert np.array_equal(seen, whole[: seen.size]) and seen.size > 1300
