"""Run epochs at full speed: memory, threads and open files must not grow.

    python benchmarks/memory.py --images FOLDER --minutes 60

Each source has an equal share of the minutes: class folders, a tar mapped, the same tar read, a
TFRecord file mapped, and images in memory. A line is printed every half minute, and at the end of
each share the growth in its second half.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from input import load, write

from jaxaug import Loader
from jaxaug.iterators import ImageFolder, InMemory, Source, TFRecord, WebDataset


def scale(key: jax.Array, sample: dict) -> dict:
    """Return the top-left corner of the image, darkened at random."""
    noise = jax.random.uniform(key, (), jnp.float32)
    return {"image": sample["image"][:64, :64].astype(jnp.float32) * noise}


def anonymous_megabytes() -> float:
    """Return the memory of this process without the page cache, in MB."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("RssAnon")
    )
    return int(line.split()[1]) / 1024


def watch(name: str, source: Source, seconds: float) -> None:
    """Iterate a source for some seconds; print memory, threads and open files."""
    started = time.perf_counter()
    printed = 0.0
    seen = []
    with Loader(source, 64, transform=scale, last_batch="pad") as loader:
        for batch in loader:
            jax.block_until_ready(batch)
            elapsed = time.perf_counter() - started
            seen.append((elapsed, anonymous_megabytes()))
            if elapsed > printed + 30 or elapsed > seconds:
                printed = elapsed
                state = loader.get_state()
                files = len(os.listdir("/proc/self/fd"))
                images = loader.stats["images"]
                print(
                    f"{name:24} {elapsed:6.0f} s  epoch {state['epoch']:5}  {images:9,} images  "
                    f"{seen[-1][1]:7.1f} MB  {threading.active_count()} threads  {files} files",
                    flush=True,
                )
            if elapsed > seconds:
                break
    half = [megabytes for elapsed, megabytes in seen if elapsed > seconds / 2]
    third = max(1, len(half) // 3)
    early = sum(half[:third]) / third
    late = sum(half[-third:]) / third
    print(
        f"{name:24} second half of {seconds / 60:.1f} minutes: {early:.1f} MB, then {late:.1f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, help="a folder of JPEGs (default: drawn ones)")
    parser.add_argument("--minutes", type=float, default=60.0)
    args = parser.parse_args()
    images = load(args.images)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(images, folder, copies=1)
        sources = {
            "ImageFolder": ImageFolder(folder / "loose"),
            "WebDataset": WebDataset(folder / "tar/*"),
            "WebDataset mmap=False": WebDataset(folder / "tar/*", mmap=False),
            "TFRecord": TFRecord(folder / "tfrecord/*"),
            "InMemory": InMemory(images),
        }
        for name, source in sources.items():
            watch(name, source, args.minutes * 60 / len(sources))


if __name__ == "__main__":
    main()
