"""Compare jaxaug and DALI on the CPU: decode, random-resized-crop, flip, normalize.

    python benchmarks/cpu.py --images FOLDER --rival "DALI_PYTHON DALI_SCRIPT" --rounds 5

The images become 224 x 224 in batches of 64. The rival is a command that prints a line ending in
"<number> images/s" for each chain that it measures; the one named "full decode + rrc + flip +
normalise" is compared. It runs in an environment of its own, with IMAGES=FOLDER. Rounds alternate;
the table gives medians.
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
    """Return the chains to measure, by the names that the rival gives them."""
    end = augment.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    crop = [augment.RandomResizedCrop(224), augment.RandomHorizontalFlip()]
    return {CHAIN: augment.Compose([*crop, end])}


def jaxaug_rate(source: ImageFolder, transform: augment.Compose, batches: int = 12) -> float:
    """Return images/s of a Loader after three batches."""
    with Loader(source, BATCH, transform=transform) as loader:
        for _ in range(3):
            jax.block_until_ready(next(loader))
        started = time.perf_counter()
        for _ in range(batches):
            batch = next(loader)
        jax.block_until_ready(batch)
        return batches * BATCH / (time.perf_counter() - started)


def rival_rates(command: str, folder: Path) -> dict[str, float]:
    """Run the rival once; return its images/s for each chain."""
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
        found = rival_rates(args.rival, args.images.resolve()) if args.rival else {}
        for name, rate in found.items():
            theirs.setdefault(name, []).append(rate)
    versions = f"jax {jax.__version__}, Python {sys.version.split()[0]}"
    print(f"{len(source)} images, batch {BATCH}, {os.cpu_count()} CPUs, {versions}")
    for who, table in (("jaxaug", ours), ("rival", theirs)):
        for name, rates in table.items():
            spread = f"({min(rates):.0f} to {max(rates):.0f})"
            print(f"{who:8s}{name:56s} {statistics.median(rates):7.0f} images/s {spread}")

    if CHAIN in theirs:
        ratio = statistics.median(ours[CHAIN]) / statistics.median(theirs[CHAIN])
        print(f"ratio of the medians: {ratio:.2f}")


if __name__ == "__main__":
    main()
