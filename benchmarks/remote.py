"""Read records of far shards: requests, records/s and processor time of each order.

    python benchmarks/remote.py --latency 0.02 0.1

JPEGs of about 100 kB in tar shards, on a server of this machine (`far_server.py`) that waits before
each answer and sends so many bytes a second on a connection. A Loader reads an epoch in batches of
256 without decoding them. `start` is the time from the opening of the source, whose index is there,
to the first batch; `records/s` is from there on, `with start` over all. Server and reader share
the processors. `at a time` is how many requests the server had at once, `CPU us` the processor time
of the reader for a record.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import jax
import numpy as np
from input import load, write

from jaxaug import Loader, decode
from jaxaug.iterators import Blocks, Sampler, WebDataset
from jaxaug.sharding import batch_sharding

BATCH = 256


class Unread(decode.ColumnDecoder):
    """Takes the lengths of records alone."""

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {"bytes": jax.ShapeDtypeStruct((), np.int32)}

    def decode_rows(self, values, checked, siblings, wanted, keys):
        lengths = values.lengths.astype(np.int32)
        return decode.Decoded({"bytes": lengths}, wanted & (lengths > 0), {})


@contextmanager
def far_server(folder: pathlib.Path, latency: float, bandwidth: float) -> Iterator[str]:
    """Serve a folder from another process; the URL of it."""
    script = pathlib.Path(__file__).parent / "far_server.py"
    command = [sys.executable, script, folder, "--latency", latency, "--bandwidth", bandwidth]
    server = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.terminate()
        server.wait()


def counters(url: str) -> dict[str, int]:
    """Return what the server counted since the last call."""
    with urllib.request.urlopen(f"{url}/counters") as answer:
        return json.load(answer)


def measure(
    opened: Callable[[], WebDataset], order: Callable[[int], bool | Sampler], url: str
) -> dict[str, float]:
    """Read an epoch of a source."""
    one = batch_sharding(jax.devices()[:1])
    options = {"decode": {"image": Unread()}, "sharding": one, "epochs": 1}
    counters(url)
    began = time.perf_counter()
    source = opened()
    with Loader(source, BATCH, shuffle=order(len(source)), **options) as loader:
        next(loader)
        started, used = time.perf_counter(), time.process_time()
        rows = sum(int(np.asarray(batch["valid"]).sum()) for batch in loader)
        ended, used = time.perf_counter(), time.process_time() - used
    assert rows == (len(source) // BATCH - 1) * BATCH
    found = counters(url)
    return {
        "records/s": rows / (ended - started),
        "with start": (rows + BATCH) / (ended - began),
        "start": started - began,
        "GET/record": found["GET"] / (rows + BATCH),
        "HEAD/record": found["HEAD"] / (rows + BATCH),
        "bytes/record": found["bytes"] / (rows + BATCH),
        "CPU us": used / rows * 1e6,
        "at a time": found["at_a_time"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--latency", type=float, nargs="+", default=[0.02, 0.1])
    parser.add_argument("--bandwidth", type=float, default=60e6)
    parser.add_argument("--shards", type=int, default=100, help="of 238 records")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        write(load(None), folder, given.shards)
        run(given, folder / "tar")


def run(given: argparse.Namespace, folder: pathlib.Path) -> None:
    """Print a line for each latency and order."""
    for latency in given.latency:
        with far_server(folder, latency, given.bandwidth) as url:
            shards = f"{{0000..{given.shards - 1:04d}}}.tar"
            far = partial(WebDataset, f"{url}/{shards}")
            kept = partial(WebDataset, f"{url}/{shards}", cache=folder.parent / f"kept-{latency}")
            near = partial(WebDataset, f"{folder}/{shards}", mmap=False)
            far(), near()  # which make the indexes
            contestants = {
                "Shuffled": (far, lambda length: True),
                "Sequential": (far, lambda length: False),
                "Blocks": (far, Blocks),
                "Blocks, new cache": (kept, Blocks),
                "Blocks, full cache": (kept, Blocks),
                "Shuffled, full cache": (kept, lambda length: True),
                "Blocks, local files": (near, Blocks),
                "Shuffled, local files": (near, lambda length: True),
            }
            for name, (contestant, order) in contestants.items():
                found = measure(contestant, order, url)
                text = "  ".join(f"{key} {value:.3g}" for key, value in found.items())
                print(f"{1e3 * latency:3.0f} ms  {name:21}  {text}", flush=True)


if __name__ == "__main__":
    main()
