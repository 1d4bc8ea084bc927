"""Time a step of training alone, and while its input is decoded and augmented.

    python benchmarks/train_stall.py TAR [--model resnet50] [--chain rrc jitter] [--feeder jaxaug]
        [--gpus 1] [--batch 256] [--steps 100] [--rounds 5] [--keep device] [--json FILE]

    resident     the step, again and again on one batch that stays on the device
    decoded      the same, beside a Loader without a transform, whose batch each step drops
    beside NAME  the same, beside a Loader with that chain, whose batch each step drops
    fed NAME     the step on the batches of that Loader
    kept NAME    the same, of a Loader that keeps its records where `--keep` says

Each loss is read two steps late, as a training that logs does. The rungs take turns, round after
round; the table gives medians, spreads and the ratio to "resident". With `--feeder dali`, a run of
its own as its users have it, the rungs are "resident" and "fed" by DALI's JAX iterator. With
`--gpus`, the training is data-parallel over several GPUs of this process: parameters on all of
them, and `--batch` images on each.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from images import write_tar
from jax.sharding import NamedSharding, PartitionSpec
from train_models import make_step
from vs_dali import BATCH, dali_iterator, jaxaug_chain

SIDE = 224  # pixels of the images that the chains of vs_dali.py give
LATE = 2  # steps behind which a loss is read
WARM_UP = 10  # steps; more than any feeder keeps ready

Batch = tuple[jax.Array, jax.Array]


def batch_split(args: argparse.Namespace) -> NamedSharding:
    """Return the sharding of a batch over the GPUs."""
    from jaxaug.sharding import batch_sharding

    return batch_sharding(jax.devices()[: args.gpus])


def jaxaug_rungs(tar: str, args: argparse.Namespace) -> dict[str, Callable[[Batch], Batch]]:
    """Return by name a function of the resident batch that gives the batch of the next step."""
    from jaxaug import Decoder, Loader
    from jaxaug.iterators import WebDataset

    split = batch_split(args)
    decoder = Decoder((640, 704), devices=split.mesh.devices.tolist())
    options: dict[str, Any] = {"decode": decoder, "sharding": split}
    images = args.batch * args.gpus

    def beside(loader: Iterator[Any]) -> Callable[[Batch], Batch]:
        def resident(batch: Batch) -> Batch:
            next(loader)
            return batch

        return resident

    def fed(loader: Iterator[Any]) -> Callable[[Batch], Batch]:
        def step(batch: Batch) -> Batch:
            loaded = next(loader)
            return loaded["image"], loaded["label"]

        return step

    rungs = {"decoded": beside(Loader(WebDataset(tar), images, **options))}
    for chain in args.chain:
        loader = Loader(WebDataset(tar), images, transform=jaxaug_chain(chain), **options)
        rungs |= {f"beside {chain}": beside(loader), f"fed {chain}": fed(loader)}
        if args.keep:
            kept = Loader(
                WebDataset(tar),
                images,
                transform=jaxaug_chain(chain),
                keep=args.keep,
                **options,
            )
            rungs[f"kept {chain}"] = fed(kept)
    return rungs


def dali_rungs(tar: str, args: argparse.Namespace) -> dict[str, Callable[[Batch], Batch]]:
    """Return the rung of each chain of DALI; its images come without labels."""
    threads = len(os.sched_getaffinity(0))

    def fed(iterator: Iterator[Any]) -> Callable[[Batch], Batch]:
        return lambda batch: (next(iterator)["image"], batch[1])

    return {
        f"fed {chain}": fed(dali_iterator(tar, chain, args.load, False, threads, args.batch))
        for chain in args.chain
    }


def milliseconds(step: Any, state: Any, batch: Batch, rung: Any, steps: int) -> tuple[float, Any]:
    """Return the time of a step, and the state behind the last.

    Args:
      step: of `make_step`.
      state: of the training.
      batch: the resident one.
      rung: see `jaxaug_rungs`.
      steps: how many are timed.
    """
    losses: deque[jax.Array] = deque()
    started = 0.0
    for number in range(WARM_UP + steps):
        if number == WARM_UP:
            jax.block_until_ready(losses[-1])
            started = time.perf_counter()
        state, loss = step(state, *rung(batch))
        losses.append(loss)
        if len(losses) > LATE:
            float(losses.popleft())
    jax.block_until_ready(losses[-1])
    return (time.perf_counter() - started) / steps * 1e3, state


def measure(tar: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """Return the milliseconds of a step by rung, one for each round."""
    make = dali_rungs if args.feeder == "dali" else jaxaug_rungs
    # Before the step: its parameters start CUDA, and jaxaug must be imported before that.
    rungs = {"resident": lambda batch: batch, **make(tar, args)}
    split = batch_split(args)
    step, state = make_step(args.model, SIDE)
    state = jax.device_put(state, NamedSharding(split.mesh, PartitionSpec()))

    images = args.batch * args.gpus
    dtype = "float16" if args.feeder == "dali" else "bfloat16"
    resident = jax.device_put(
        (
            jax.random.normal(jax.random.key(0), (images, SIDE, SIDE, 3), dtype),
            jax.random.randint(jax.random.key(1), (images,), 0, 1000),
        ),
        split,
    )
    times: dict[str, list[float]] = {name: [] for name in rungs}
    for number in range(args.rounds + 1):  # the first compiles and fills the queues
        for name, rung in rungs.items():
            found, state = milliseconds(step, state, resident, rung, args.steps)
            times[name] += [found] if number else []
            print(f"  round {number}, {name}: {found:.2f} ms", file=sys.stderr, flush=True)
    return times


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tar", type=Path)
    parser.add_argument("--model", choices=["resnet50", "vit_b16", "small"], default="resnet50")
    parser.add_argument("--chain", nargs="+", default=["rrc", "jitter"], help="of vs_dali.py")
    parser.add_argument("--feeder", choices=["jaxaug", "dali"], default="jaxaug")
    parser.add_argument("--load", type=float, default=0.9, help="of DALI's hardware decoder")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--batch", type=int, default=BATCH, help="for each GPU")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", help="device, host or disk:DIR: one rung more for each chain")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.feeder == "dali" and args.gpus > 1:
        parser.error("--feeder dali takes one GPU: its JAX iterator is measured as such")

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tar = f"{folder}/images.tar"
        write_tar(args.tar, Path(tar), "")
        times = measure(tar, args)

    resident = times["resident"]
    images = args.batch * args.gpus
    print(f"{args.model}, {args.feeder}, {args.gpus} GPUs, batch {images}: ms a step")
    for name, found in times.items():
        ratio = statistics.median(map(float.__truediv__, found, resident))
        low, high = min(found), max(found)
        median = statistics.median(found)
        print(f"{name:14s} {median:7.2f} ({low:.2f} to {high:.2f})  x {ratio:.3f}", flush=True)
    if args.json:
        run = {"case": args.tar.name, "model": args.model, "batch": images}
        rows = [
            {**run, "rung": name, args.feeder: [images / each * 1e3 for each in found]}
            for name, found in times.items()
        ]
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
