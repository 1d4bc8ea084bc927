"""jaxaug on the CPU beside DALI on the CPU, in turn: decode + random-resized-crop + flip +
normalise at 224, batch 64.

    python benchmarks/cpu.py --images FOLDER --rival "DALI_PYTHON DALI_SCRIPT" [--rounds 5]

FOLDER holds JPEGs. The rival is a command that prints lines ending in "<number> images/s" for
chains it names; the line that contains "full decode + rrc + flip + normalise" is compared. It runs
in its own environment (DALI wants its own wheels) with IMAGES=FOLDER. Rounds alternate; the table
gives medians.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax

from jaxaug import Loader, augment
from jaxaug.iterators import ImageFolder

BATCH = 64
CHAIN = "full decode + rrc + flip + normalise"


def chains() -> dict[str, augment.Compose]:
    end = augment.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    crop = [augment.RandomResizedCrop(224), augment.RandomHorizontalFlip()]
    return {CHAIN: augment.Compose([*crop, end])}


def jaxaug_rate(source: ImageFolder, transform: augment.Compose, batches: int = 12) -> float:
    with Loader(source, BATCH, transform=transform) as loader:
        for _ in range(3):
            jax.block_until_ready(next(loader))
        started = time.perf_counter()
        for _ in range(batches):
            batch = next(loader)
        jax.block_until_ready(batch)
        return batches * BATCH / (time.perf_counter() - started)


def rival_rates(command: str, folder: Path) -> dict[str, float]:
    output = subprocess.run(
        command.split(),
        env=os.environ | {"IMAGES": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.findall(r"^(.*?)\s+([0-9.]+) images/s", output, re.MULTILINE)
    return {name.strip(): float(rate) for name, rate in found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--rival", help="command of the rival's benchmark")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    source = ImageFolder(args.images)
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for name, transform in chains().items():
            ours.setdefault(name, []).append(jaxaug_rate(source, transform))
        for name, rate in (
            rival_rates(args.rival, args.images.resolve()).items() if args.rival else ()
        ):
            theirs.setdefault(name, []).append(rate)
    versions = f"jax {jax.__version__}, Python {sys.version.split()[0]}"
    print(f"{len(source)} images, batch {BATCH}, {os.cpu_count()} CPUs, {versions}")
    for name, rates in ours.items():
        print(
            f"jaxaug  {name:56s} {statistics.median(rates):7.0f} images/s ({min(rates):.0f} to {max(rates):.0f})"
        )
    for name, rates in theirs.items():
        print(
            f"rival   {name:56s} {statistics.median(rates):7.0f} images/s ({min(rates):.0f} to {max(rates):.0f})"
        )
    if CHAIN in theirs:
        print(
            f"ratio of the medians: {statistics.median(ours[CHAIN]) / statistics.median(theirs[CHAIN]):.2f}"
        )


if __name__ == "__main__":
    main()
