"""Images/s of 1, 2, 4, ... GPUs of one host, from a tar to random-resized crops on the devices.

    python benchmarks/scaling.py TAR [--gpus 1 2 4] [--rounds 5] [--seconds 1.5] [--json FILE]
        [--processes] [--decode] [--batch 256] [--threads 16] [--max-warm-up 20]

One process drives the first n GPUs with one Loader of n times the batch; `--processes` measures a
process for each GPU as well, joined by `jax.distributed`. `--decode` measures a Decoder alone, fed
from memory by three threads. Each contestant is warmed up until the rates of two successive rounds
differ by less than 3 per cent. Then they take turns, round after round, each in processes of its
own; the table gives medians, spreads and the ratio to one GPU.
"""

import argparse
import json
import socket
import statistics
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from child import Child
from images import write_tar
from vs_dali import jaxaug_chain, measure, spread

MIN_ROUNDS = 5
STEADY = 0.03  # the relative difference of two successive rounds of a contestant that is warm


class Pipeline:
    """A Loader over the first `count` GPUs of all processes."""

    def __init__(self, tar: str, count: int, batch: int, threads: int):
        import jax

        from jaxaug import Decoder, Loader, sharding
        from jaxaug.iterators import WebDataset

        devices = jax.devices()[:count]
        mesh = jax.sharding.Mesh(devices, ("batch",))
        local = [device for device in devices if device.process_index == jax.process_index()]
        self._images = batch * count
        self._loader = Loader(
            WebDataset(tar),
            self._images,
            transform=jaxaug_chain("rrc"),
            decode=Decoder((640, 704), devices=local, num_threads=threads * len(local)),
            sharding=sharding.batch_sharding(mesh),
        )

    def rate(self, seconds: float) -> float:
        """Return images/s of all GPUs."""
        return measure(lambda: next(self._loader)["image"], seconds, self._images)


class DecoderAlone:
    """A Decoder over the first `count` GPUs, fed from memory by three threads."""

    def __init__(self, tar: str, count: int, batch: int, threads: int):
        import jax

        from jaxaug.decode import Decoder, Encoded

        with tarfile.open(tar) as file:
            members = [member for member in file if member.name.endswith(".jpg")]
            images = [file.extractfile(member).read() for member in members[: batch * count]]  # type: ignore[union-attr]
        self._encoded = Encoded.from_bytes(images)
        devices = jax.devices()[:count]
        self._decoder = Decoder((640, 704), devices=devices, num_threads=threads * count)

    def rate(self, seconds: float) -> float:
        from decode import decoder_rate

        return decoder_rate(self._decoder, self._encoded, 3, seconds)


WORK = {"pipeline": Pipeline, "decode": DecoderAlone}


class Contestant:
    """`count` GPUs, driven by one process or by a process each.

    No contestant shares a process with another: its streams, threads and memory stay when it waits
    for its turn.

    Args:
      work: of `WORK`.
      tar: with the images.
      count: number of GPUs.
      processes: 1 or `count`.
      args: `batch` and `threads` for each GPU.
    """

    def __init__(self, work: str, tar: str, count: int, processes: int, args: argparse.Namespace):
        task = {"work": work, "tar": tar, "count": count, "processes": processes}
        task |= {"batch": args.batch, "threads": args.threads, "port": free_port()}
        gpus_each = count // processes
        self._children = []
        for rank in range(processes):
            gpus = range(rank * gpus_each, (rank + 1) * gpus_each)
            visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
            command = [sys.executable, __file__, "--child", json.dumps(task | {"rank": rank})]
            self._children.append(Child(command, visible))
        for child in self._children:
            child.answer("ready")

    def rate(self, seconds: float) -> float:
        """Return images/s of all GPUs together, as each process has timed it."""
        for child in self._children:
            child.send(str(seconds))
        return statistics.median(float(child.answer("rate").split()[1]) for child in self._children)

    def close(self) -> None:
        """End the processes."""
        for child in self._children:
            child.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def serve(task: dict[str, Any]) -> None:
    """Measure as the process of a contestant whenever a line of seconds comes."""
    import jaxaug  # noqa: F401  (before CUDA starts)
    import jax  # isort: skip

    if task["processes"] > 1:
        address = f"localhost:{task['port']}"
        jax.distributed.initialize(address, task["processes"], task["rank"])
    work = WORK[task["work"]](task["tar"], task["count"], task["batch"], task["threads"])
    print("ready", flush=True)
    for line in sys.stdin:
        print("rate", work.rate(float(line)), flush=True)


def warm_up(contestant: Any, seconds: float, max_rounds: int) -> list[float]:
    """Return the rates of rounds until two successive ones are alike, or of `max_rounds`."""
    rates = [contestant.rate(seconds)]
    while len(rates) < max_rounds:
        rates.append(contestant.rate(seconds))
        if abs(rates[-1] - rates[-2]) < STEADY * rates[-2]:
            break
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tar", nargs="?")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=256, help="for each GPU")
    parser.add_argument("--threads", type=int, default=16, help="for each GPU")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="at least 5")
    parser.add_argument("--max-warm-up", type=int, default=20, help="rounds of a contestant")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return serve(args.child)
    if args.tar is None:
        parser.error("TAR is missing, a tar of JPEGs")
    if args.rounds < MIN_ROUNDS:
        parser.error(f"--rounds must be at least {MIN_ROUNDS}, got {args.rounds}")

    work = "decode" if args.decode else "pipeline"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tar = f"{folder}/images.tar"
        write_tar(Path(args.tar), Path(tar), "")
        contestants = {
            ("one process", count): Contestant(work, tar, count, 1, args) for count in args.gpus
        }
        if args.processes:
            for count in args.gpus:
                contestants["a process each", count] = Contestant(work, tar, count, count, args)
        warm: dict[Any, list[float]] = {}
        for key, contestant in contestants.items():
            warm[key] = warm_up(contestant, args.seconds, args.max_warm_up)
            print(f"{key[0]}, {key[1]} GPUs: warm after {len(warm[key])} rounds", flush=True)
        rates: dict[Any, list[float]] = {key: [] for key in contestants}
        for _ in range(args.rounds):
            for key, contestant in contestants.items():
                rates[key].append(contestant.rate(args.seconds))
        show(rates, warm, args)
        for contestant in contestants.values():
            contestant.close()


def show(rates: dict[Any, list[float]], warm: dict[Any, list[float]], args: Any) -> None:
    """Print the table, and write it as JSON where that is asked for."""
    for (name, count), found in rates.items():
        ratio = statistics.median(found) / statistics.median(rates[name, args.gpus[0]])
        print(f"{name:20s} {count} GPUs {spread(found)}  {ratio:5.2f} x", flush=True)
    if args.json:
        rows = []
        for (kind, count), found in rates.items():
            settings = {"warm_up": warm[kind, count]}
            rows.append({"kind": kind, "gpus": count, "rates": found, "settings": settings})
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
