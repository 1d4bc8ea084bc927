"""Many hosts share an epoch: every record once, and the requests and bytes of each host.

    python benchmarks/hosts.py --records 1000000000 --hosts 256

Runs through all positions of an epoch of `Blocks`, notes each record in a table of bits, and counts
how many runs of neighbors each host asks for; with 10^9 records it takes some minutes and 130 MB.
"""

import argparse
import time

import numpy as np

from jaxaug.iterators import Blocks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10**9)
    parser.add_argument("--hosts", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--run", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=79_000, help="of a record")
    given = parser.parse_args()
    order = Blocks(given.records, run=given.run, lanes=given.batch)
    host_of = np.arange(order.window) % given.batch // (given.batch // given.hosts)
    by_host = np.argsort(host_of, kind="stable")
    seen = np.zeros(-(-given.records // 8), np.uint8)
    records = np.zeros(given.hosts, np.int64)
    requests = np.zeros(given.hosts, np.int64)

    started = time.perf_counter()
    for start in range(0, given.records, order.window):
        size = min(order.window, given.records - start)
        found = order.records(0, np.arange(start, start + size))
        np.bitwise_or.at(seen, found >> 3, (1 << (found & 7)).astype(np.uint8))
        rows = by_host[by_host < size]
        hosts = host_of[rows]
        order_in_host = np.lexsort((found[rows], hosts))
        sorted_records, sorted_hosts = found[rows][order_in_host], hosts[order_in_host]
        new = np.ones(size, bool)
        new[1:] = (np.diff(sorted_records) != 1) | (np.diff(sorted_hosts) != 0)
        requests += np.bincount(sorted_hosts[new], minlength=given.hosts)
        records += np.bincount(hosts, minlength=given.hosts)
    missing = given.records - int(np.bitwise_count(seen).sum(dtype=np.int64))
    print(f"{records.sum()} positions, {missing} records missing")
    for name, counts in (
        ("records", records),
        ("GB", records * given.bytes / 1e9),
        ("requests", requests),
        ("requests / record", requests / records),
    ):
        print(f"{name} of a host: {counts.min():.4g} to {counts.max():.4g}")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
