"""Many hosts share an epoch: every record once, and the requests and bytes of each host.

    python benchmarks/hosts.py --records 1000000000 --hosts 256

An epoch of `Blocks` is made of runs of neighbors, which are what hosts ask for. All runs are found,
each by its first position; those of a lane follow each other. They cover the data exactly if, in
order, each begins where the one before ends, and the last where the first begins. That a run has
the neighbors it says is looked up at a million positions.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np

from jaxaug.iterators import Blocks

_REQUEST_BYTES = 8 << 20


def runs_of(order: Blocks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the first positions of runs, at most one a lane at a time, and their records."""
    positions = np.arange(min(order.lanes, order.length))
    while positions.size:
        _, left = order.runs(positions)
        yield positions, left
        positions = positions + left * order.lanes
        positions = positions[positions < order.length]


def count_misplaced(order: Blocks, count: int = 1_000_000) -> int:
    """Return how many of random positions are not `before` records behind their run's first."""
    positions = np.random.default_rng(0).integers(0, order.length, count)
    before, _ = order.runs(positions)
    first = order.records(0, positions - before * order.lanes)
    return int(((first + before) % order.length != order.records(0, positions)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10**9)
    parser.add_argument("--hosts", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--run", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=79_000, help="of a record")
    given = parser.parse_args()
    order = Blocks(given.records, run=given.run, lanes=given.batch)
    started = time.perf_counter()
    positions, lengths = (np.concatenate(each) for each in zip(*runs_of(order)))
    firsts = order.records(0, positions)
    hosts = positions % given.batch // (given.batch // given.hosts)

    by_place = np.argsort(firsts)
    ends = (firsts + lengths)[by_place] % given.records
    gaps = int((ends != np.roll(firsts[by_place], -1)).sum())
    print(f"{len(firsts)} runs, {lengths.sum()} records, {gaps} gaps or overlaps")
    print(f"{count_misplaced(order)} of a million positions are at another place of their run")
    records = np.bincount(hosts, lengths, minlength=given.hosts)
    asked = -(-lengths * given.bytes // _REQUEST_BYTES)
    requests = np.bincount(hosts, asked, minlength=given.hosts)
    for name, counts in (
        ("records", records),
        ("GB", records * given.bytes / 1e9),
        ("requests", requests),
        ("requests for 8 MB", requests / (records * given.bytes / 8e6)),
    ):
        print(f"{name} of a host: {counts.min():.6g} to {counts.max():.6g}")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
