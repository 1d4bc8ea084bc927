"""Read records from disk, or read and decode them: each kind of source in one run.

    python benchmarks/input.py --images FOLDER --records 200000 --seconds 2 --rounds 3
    python benchmarks/input.py --images FOLDER --decode

The images are repeated by hard links until there are `--records`, so all of them are in the page
cache. "read" is `source.read` of 256 random records. "touched" also copies every byte once, because
a mapped source reads nothing before that. "pool" is `open().read()` in 16 threads. `--decode`
measures images/s of a Loader from memory and of one from each source, all with one Decoder for the
default devices. The contestants take turns, round after round, and the first round is not counted;
the table gives medians, minima and maxima.
"""

import argparse
import io
import os
import statistics
import struct
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
from images import jpegs_below
from PIL import Image

from jaxaug import Loader
from jaxaug.decode import Decoder
from jaxaug.iterators import ImageFolder, InMemory, Source, TFRecord, WebDataset
from jaxaug.iterators.sources.storage.crc32c import crc32c

BATCH = 256


def load(folder: Path | None) -> list[bytes]:
    """Return the JPEGs of a folder, or drawn ones of ImageNet's usual size and about 100 kB."""
    if folder is not None:
        return jpegs_below(folder)
    generator = np.random.default_rng(0)
    images = []
    for _ in range(238):
        small = generator.integers(0, 256, (60, 80, 3), dtype=np.uint8)
        pixels = np.asarray(
            Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
        ).astype(np.int16)
        pixels += generator.integers(-12, 13, pixels.shape, dtype=np.int16)
        file = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(
            file, "JPEG", quality=92, subsampling=2
        )
        images.append(file.getvalue())
    return images


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def field(payload: bytes, number: int = 1) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def example(image: bytes, label: int) -> bytes:
    values = {
        "image/encoded": field(field(image)),
        "image/class/label": field(field(varint(label)), 3),
    }
    return field(
        b"".join(field(field(name.encode()) + field(value, 2)) for name, value in values.items())
    )


def sealed(data: bytes) -> bytes:
    block = np.frombuffer(data, np.uint8)
    crc = int(crc32c(block, np.zeros(1, np.int64), np.array([block.size]))[0])
    return data + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def write(images: list[bytes], folder: Path, copies: int) -> None:
    """Write the images as loose files, one TFRecord and one tar, each with `copies` hard links."""
    for name in ("loose/0", "tfrecord", "tar"):
        (folder / name).mkdir(parents=True)
    for number, image in enumerate(images):
        (folder / f"loose/0/{number:03d}.jpg").write_bytes(image)
    records = [example(image, number) for number, image in enumerate(images)]
    packed = b"".join(sealed(struct.pack("<Q", len(record))) + sealed(record) for record in records)
    (folder / "tfrecord/0000.tfrecord").write_bytes(packed)
    with tarfile.open(folder / "tar/0000.tar", "w") as tar:
        for number, image in enumerate(images):
            for name, data in ((f"{number:03d}.jpg", image), (f"{number:03d}.cls", b"%d" % number)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    for copy in range(1, copies):
        for name, suffix in (("tfrecord", "tfrecord"), ("tar", "tar")):
            os.link(folder / name / f"0000.{suffix}", folder / name / f"{copy:04d}.{suffix}")
        (folder / f"loose/{copy}").mkdir()
        for number in range(len(images)):
            os.link(folder / f"loose/0/{number:03d}.jpg", folder / f"loose/{copy}/{number:03d}.jpg")


def rate(step: Callable[[], None], seconds: float) -> float:
    """Return records/s of calls of `step`, 256 records each, after a warm-up."""
    for _ in range(8):
        step()
    count = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        step()
        count += BATCH
    return count / elapsed


def read(source: Source, touch: bool) -> Callable[[], None]:
    """Return a function that reads random records, and with `touch` every byte of them."""
    generator = np.random.default_rng(0)

    def step() -> None:
        encoded = source.read(generator.integers(0, len(source), BATCH))["image"]
        if touch:
            for row in range(BATCH):
                bytes(encoded.view(row))

    return step


def in_memory(images: list[bytes]) -> InMemory:
    """Return at least four batches, with labels as the files have them."""
    copies = -(-4 * BATCH // len(images))
    return InMemory(
        images * copies, {"label": np.tile(np.arange(len(images), dtype=np.int32), copies)}
    )


def pool_read(source: ImageFolder, pool: ThreadPoolExecutor) -> Callable[[], None]:
    """Return a function that opens and reads random files in the threads of `pool`."""
    generator = np.random.default_rng(0)

    def load_file(path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def step() -> None:
        chosen = generator.integers(0, len(source), BATCH).tolist()
        list(pool.map(load_file, map(source.path, chosen)))

    return step


def decode(loader: Loader) -> Callable[[], None]:
    """Return a function that takes a batch and waits for it."""

    def step() -> None:
        jax.block_until_ready(next(loader)["image"])

    return step


def measure(
    title: str, contestants: dict[str, Callable[[], None]], seconds: float, rounds: int, base: str
) -> None:
    """Measure in turn; print medians, minima, maxima, and ratios to the contestant `base`."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(1 + rounds):
        for name, step in contestants.items():
            rates[name].append(rate(step, seconds))
    print(f"\n{title}")
    middle = statistics.median(rates[base][1:])
    for name, (_, *found) in rates.items():
        median = statistics.median(found)
        spread = f"({min(found):,.0f} to {max(found):,.0f})"
        print(f"  {name:28}{median:12,.0f}/s  {spread}  {median / middle:6.2f} x {base}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, help="a folder of JPEGs (default: drawn ones)")
    parser.add_argument("--records", type=int, default=200_000, help="at least one batch, 256")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="sources, by the names in the table")
    args = parser.parse_args()
    images = load(args.images)
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, {len(images)} images of {np.mean([*map(len, images)]):,.0f} bytes")
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(16) as pool:
        folder = Path(temporary)
        one_batch = -(-BATCH // len(images))
        write(images, folder, max(one_batch, round(args.records / len(images))))
        started = time.perf_counter()
        record = TFRecord(folder / "tfrecord/*")
        tar = WebDataset(folder / "tar/*")
        loose = ImageFolder(folder / "loose")
        memory = in_memory(images)
        elapsed = time.perf_counter() - started
        print(f"{len(record):,} records indexed, twice, in {elapsed:.1f} s; {jax.devices()}")
        packed = {"TFRecord": record, "WebDataset": tar}
        staged = {
            "TFRecord mmap=False": TFRecord(folder / "tfrecord/*", mmap=False),
            "WebDataset mmap=False": WebDataset(folder / "tar/*", mmap=False),
        }
        sources: dict[str, Source] = {**packed, **staged, "ImageFolder": loose}
        if args.only:
            sources = {name: source for name, source in sources.items() if name in args.only}
        if not args.decode:
            for title, touch in (("read", False), ("read and touched", True)):
                contestants = {name: read(source, touch) for name, source in sources.items()}
                measure(
                    title,
                    {"pool": pool_read(loose, pool)} | contestants,
                    args.seconds,
                    args.rounds,
                    "pool",
                )
            return
        with Decoder() as decoder:
            loaders = {"memory": Loader(memory, BATCH, decode=decoder)}
            for name, source in sources.items():
                loaders[name] = Loader(source, BATCH, decode=decoder)
            contestants = {name: decode(loader) for name, loader in loaders.items()}
            measure("decoded", contestants, args.seconds, args.rounds, "memory")
            for loader in loaders.values():
                loader.close()


if __name__ == "__main__":
    main()
