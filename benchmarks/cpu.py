"""Images/s from JPEG files to float batches without a GPU: jaxaug beside DALI, Grain, torchvision.

    python benchmarks/cpu.py TAR --dali PYTHON --grain PYTHON --torchvision PYTHON [--json FILE]

TAR holds JPEGs, which are unpacked to a folder and read from there. The others run in the
interpreters that are given; without one they are left out. Everybody shuffles, decodes, augments
and normalizes to 224 x 224 in batches of 64 with all CPUs. DALI takes part twice, with whole and
with region decoding; Grain with threads and with processes.

The chains: "crop" is random-resized-crop and flip, "jitter" adds rotation by 7 degrees and a
4-op jitter, "randaugment" adds RandAugment(2, 9) to "crop", "evaluation" is resize 256 and
center-crop.

Each contestant has a process of its own and starts anew in each round, so that nothing is computed
ahead while another is measured. The table gives medians, the spread, the ratio to jaxaug, and the
processor time of an image, which tells more than the rate where the machine is not idle.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from child import Child
from cpu_contestants import BATCH, CONTESTANTS

CHAINS = ("crop", "jitter", "evaluation", "randaugment")
COPIES_OF = 1_500  # files, the images of the tar repeated
WARM_UP = 6  # batches, more than anybody keeps ready


def unpack(tar: Path, folder: Path) -> None:
    """Write the images of a tar to one class of a folder, repeated by links."""
    kept = folder / "class"
    kept.mkdir()
    with tarfile.open(tar) as archive:
        members = [member for member in archive if member.isfile()]
        for number, member in enumerate(members):
            data = archive.extractfile(member)
            assert data is not None
            (kept / f"{number:05d}.jpg").write_bytes(data.read())
    for number in range(len(members), COPIES_OF):
        (kept / f"{number:05d}.jpg").hardlink_to(kept / f"{number % len(members):05d}.jpg")


# ---------------------------------------------------------------- in the contestant's process


def serve(name: str, folder: Path) -> None:
    """Answer lines {"chain", "seconds"} with {"rate", "cpu_ms"}, or {} for an unknown chain."""
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            step, close = CONTESTANTS[name](folder, request["chain"])
        except KeyError:
            print("answer {}", flush=True)
            continue
        print("answer", json.dumps(measure(step, request["seconds"])), flush=True)
        close()
        del step, close


def measure(step: Any, seconds: float) -> dict[str, float]:
    """Return images/s and the processor time of an image in ms."""
    for _ in range(WARM_UP):
        step()
    count = 0
    began = cpu_seconds()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        step()
        count += BATCH
    elapsed = time.perf_counter() - started
    return {"rate": count / elapsed, "cpu_ms": (cpu_seconds() - began) / count * 1e3}


def cpu_seconds() -> float:
    """Return the processor time of this process and of its children that run."""
    total = time.process_time()
    tick = os.sysconf("SC_CLK_TCK")
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / tick
    return total


# ---------------------------------------------------------------- the table


class Process:
    """A contestant in a process of its own."""

    def __init__(self, name: str, python: str, folder: Path):
        self._child = Child([python, __file__, str(folder), "--serve", name])
        self._child.answer("ready")
        self.close = self._child.close

    def measure(self, chain: str, seconds: float) -> dict[str, float]:
        self._child.send(json.dumps({"chain": chain, "seconds": seconds}))
        return json.loads(self._child.answer("answer").removeprefix("answer"))


def compare(processes: dict[str, Process], chain: str, args: Any) -> list[dict[str, Any]]:
    """Measure one chain, all contestants in turn; return a row for each."""
    rows = {name: {"chain": chain, "who": name, "rate": [], "cpu_ms": []} for name in processes}
    for round_number in range(args.rounds + 1):
        for name, process in processes.items():
            figures = process.measure(chain, args.seconds)
            if round_number:  # the first one compiles and warms up
                for key, value in figures.items():
                    rows[name][key].append(value)
    return [row for row in rows.values() if row["rate"]]


def show(rows: list[dict[str, Any]]) -> None:
    ours = next(row for row in rows if row["who"] == "jaxaug")
    for row in rows:
        ratio = statistics.median(ours["rate"]) / statistics.median(row["rate"])
        cpu_ratio = statistics.median(row["cpu_ms"]) / statistics.median(ours["cpu_ms"])
        rate = spread(row["rate"], ".0f")
        cpu = spread(row["cpu_ms"], ".2f")
        print(
            f"{row['chain']:12s} {row['who']:26s} {rate:>22s} images/s {ratio:5.2f} x   "
            f"{cpu:>22s} ms of processor {cpu_ratio:5.2f} x",
            flush=True,
        )


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def interpreters(args: Any) -> dict[str, str]:
    """Return the Python of each contestant that takes part."""
    chosen = {"jaxaug": sys.executable}
    for name in CONTESTANTS:
        option = {"DALI": args.dali, "Grai": args.grain, "torc": args.torchvision}.get(name[:4])
        if option:
            chosen[name] = option
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, help="a tar of JPEGs")
    parser.add_argument("--dali", help="a Python with nvidia-dali")
    parser.add_argument("--grain", help="a Python with grain and Pillow")
    parser.add_argument("--torchvision", help="a Python with torchvision")
    parser.add_argument("--chain", nargs="+", default=CHAINS, choices=CHAINS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve, args.images)

    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        unpack(args.images, folder)
        processes = {
            who: Process(who, python, folder) for who, python in interpreters(args).items()
        }
        print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}, batches of {BATCH}")
        for chain in args.chain:
            found = compare(processes, chain, args)
            show(found)
            rows += found
        for process in processes.values():
            process.close()
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
