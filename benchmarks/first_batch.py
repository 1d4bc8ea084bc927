"""Seconds from the start of a process to its first batch, and its memory: jaxaug beside DALI.

    python benchmarks/first_batch.py TAR [--rounds 5] [--batches 60]

Each round starts a process for each side, which loads, decodes, crops and normalizes batches of 256
with two of them ready ahead. JAX keeps compiled programs in a folder that the first round, which is
not counted, fills. Memory of the GPU is what `nvidia-smi` shows more than before the process, of
the host the resident memory; both are the maximum while so many batches are read, in GB.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from footprint import Peak
from images import write_tar
from vs_dali import BATCH, dali_iterator, jaxaug_chain

PREFETCH = 2


def read(side: str, tar: str, batches: int) -> None:
    """Print the time of the first batch, and read so many."""
    if side == "jaxaug":
        from jaxaug import Loader
        from jaxaug.iterators import WebDataset

        chain = jaxaug_chain("rrc")
        iterator = Loader(WebDataset(tar), BATCH, transform=chain, prefetch=PREFETCH)
    else:
        threads = len(os.sched_getaffinity(0))
        iterator = dali_iterator(tar, "rrc", 0.9, False, threads, prefetch=PREFETCH)

    import jax

    for number in range(batches):
        jax.block_until_ready(next(iterator)["image"])
        if number == 0:
            print(json.dumps({"first": time.time()}), flush=True)
    os._exit(0)  # what closing takes is not measured


def run(side: str, tar: str, batches: int, cache: str) -> dict[str, float]:
    """Return what a process of one side took: seconds, and GB of the host and of the GPU."""
    environment = os.environ | {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
    command = [sys.executable, __file__, tar, "--read", side, "--batches", str(batches)]
    peak = Peak()
    started = time.time()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    with peak.watching(child.pid):
        printed, _ = child.communicate()
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    if child.returncode or not lines:
        raise RuntimeError(f"the process {command} has failed")
    return {"s": json.loads(lines[0])["first"] - started, **peak.gb}


def main() -> None:
    """Parse the arguments, measure in turn, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tar", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--read", choices=["jaxaug", "dali"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        return read(args.read, str(args.tar), args.batches)

    found: dict[str, list[dict[str, float]]] = {"jaxaug": [], "dali": []}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tar = f"{folder}/images.tar"
        write_tar(args.tar, Path(tar), "")
        for number in range(args.rounds + 1):
            for side in found:
                result = run(side, tar, args.batches, f"{folder}/cache")
                found[side] += [result] if number else []

    for name in ("s", "host", "GPU"):
        cells = []
        for side, results in found.items():
            values = [result[name] for result in results]
            spread = f"({min(values):.2f} to {max(values):.2f})"
            cells.append(f"{side} {statistics.median(values):.2f} {spread}")
        mine, other = (statistics.median(r[name] for r in results) for results in found.values())
        print(f"{name:8s} {cells[0]}, {cells[1]}: {mine / other:.2f}", flush=True)


if __name__ == "__main__":
    main()
