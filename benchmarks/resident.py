"""Compare a Loader that keeps its data with a loop written by hand.

    python benchmarks/resident.py --sides 32 64 224 --batch 512 --rounds 7
    python benchmarks/resident.py --sides --jpegs images.tar --batch 32 --keep host

The loop holds the pixels on the device, in an order that it shuffles there once an epoch, and has
one compiled call for each batch: keys, gather, jit(vmap(chain)). Both wait for a batch when the
next one has been asked for, as a training that reads its loss does. They take turns, and the first
round is not counted. JPEGs are compared with themselves too: a later epoch with the first. Their
loop holds the rows that a Loader without a transform delivers.
"""

import argparse
import functools
import statistics
import tarfile
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxaug import Loader, augment
from jaxaug.iterators import InMemory, sample_keys
from jaxaug.sharding import batch_sharding

WARM_BATCHES = 5


def make_chain(side: int) -> augment.Compose:
    """Return the chain of small images, or of photographs."""
    if side < 100:
        crop = augment.RandomCrop(side, padding=side // 8)
    else:
        crop = augment.RandomResizedCrop(side)
    return augment.Compose([crop, augment.RandomHorizontalFlip(), augment.Normalize(0.5, 0.25)])


def by_hand(
    columns: dict[str, Any], chain: augment.Compose, batch_size: int
) -> Iterator[dict[str, Any]]:
    """Yield batches as a user would write them."""
    count = len(columns["image"])

    @functools.partial(jax.jit, static_argnums=1)
    def shuffled(epoch, count):
        return jax.random.permutation(jax.random.fold_in(jax.random.key(0), epoch), count)

    @jax.jit
    def make_batch(data, order, start, epoch):
        rows = jax.lax.dynamic_slice_in_dim(order, start, batch_size)
        sample = jax.tree.map(lambda column: column[rows], data)
        return jax.vmap(chain)(sample_keys(jax.random.key(1), epoch, rows), sample)

    data = jax.device_put(columns)
    epoch = 0
    while True:
        order = shuffled(epoch, count)
        for start in range(0, count - batch_size + 1, batch_size):
            yield make_batch(data, order, start, epoch)
        epoch += 1


def kept_loader(
    source: InMemory, chain: augment.Compose, options: argparse.Namespace, fill: bool = True
) -> Loader:
    """Return a Loader on one device that keeps its records, all of them already if `fill`."""
    sharding = batch_sharding(jax.devices()[:1])
    loader = Loader(source, options.batch, transform=chain, sharding=sharding, keep=options.keep)
    while fill and loader.stats["kept_records"] < len(source):
        next(loader)
    return loader


def seconds_of(batches: Iterator[dict[str, Any]], count: int) -> float:
    """Return how long the next `count` batches take, once some have passed."""
    before = next(batches)["image"]
    started = 0.0
    for step in range(WARM_BATCHES + count):
        if step == WARM_BATCHES:
            jax.block_until_ready(before)
            started = time.perf_counter()
        batch = next(batches)["image"]
        jax.block_until_ready(before)
        before = batch
    jax.block_until_ready(before)
    return time.perf_counter() - started


def compare(loader: Loader, hand: Iterator[dict[str, Any]], name: str, options) -> None:
    """Print the rates of both, and their ratio."""
    images = options.batches * options.batch
    ratios = []
    rates = []
    for number in range(1 + options.rounds):
        theirs = images / seconds_of(hand, options.batches)
        ours = images / seconds_of(loader.steps(), options.batches)
        if number:
            rates.append((ours, theirs))
            ratios.append(ours / theirs)
    ours, theirs = (statistics.median(each) for each in zip(*rates))
    print(
        f"{name}: Loader {ours:,.0f} images/s, by hand {theirs:,.0f}; "
        f"ratio {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}",
        flush=True,
    )


def compare_arrays(side: int, options: argparse.Namespace) -> None:
    """Compare images of one size."""
    count = max(min(options.count, options.bytes // (3 * side * side)), 2 * options.batch)
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
    labels = np.arange(count, dtype=np.int32) % 10
    chain = make_chain(side)
    hand = by_hand({"image": pixels, "label": labels}, chain, options.batch)
    with kept_loader(InMemory(pixels, {"label": labels}), chain, options) as loader:
        compare(loader, hand, f"{count} images of {side} x {side}", options)


def decoded(source: InMemory, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return the rows of a Loader without a transform."""
    parts: list[dict[str, np.ndarray]] = []
    sharding = batch_sharding(jax.devices()[:1])
    with Loader(source, options.batch, shuffle=False, sharding=sharding) as loader:
        for batch in loader:
            parts.append({name: np.asarray(batch[name]) for name in ("image", "size")})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compare_epochs(options: argparse.Namespace) -> None:
    """Print the time of each epoch of JPEGs, the ratio of the first to later ones, and the rates of
    this Loader and of a loop over decoded rows.
    """
    with tarfile.open(options.jpegs) as tar:
        members = [member for member in tar if member.isfile()]
        files = [tar.extractfile(member).read() for member in members]  # pyright: ignore
    source = InMemory(files * options.copies)
    chain = make_chain(224)
    with kept_loader(source, chain, options, fill=False) as loader:
        times = []
        while len(times) < 2 + options.rounds or loader.stats["kept_records"] < len(source):
            started = time.perf_counter()
            for batch in loader:
                jax.block_until_ready(batch["image"])
            times.append(time.perf_counter() - started)
        gigabytes = loader.stats["kept_bytes"] / 1e9
        later = statistics.median(times[2:])
        print(
            f"{len(source)} JPEGs, {gigabytes:.2f} GB: first epoch {times[0]:.2f} s, second "
            f"{times[1]:.2f} s, later {later:.2f} s; first over second "
            f"{times[0] / times[1]:.2f}, over later {times[0] / later:.2f}"
        )
        hand = by_hand(decoded(source, options), chain, options.batch)
        compare(loader, hand, "JPEGs", options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sides", type=int, nargs="*", default=[32, 64, 224])
    parser.add_argument("--count", type=int, default=50_000, help="images, as CIFAR-10 has them")
    parser.add_argument("--bytes", type=int, default=10**9, help="of the pixels, at most")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jpegs", help="a tar of JPEGs")
    parser.add_argument("--keep", default="device", help="device, host or disk:DIR")
    parser.add_argument("--copies", type=int, default=1, help="of each JPEG")
    options = parser.parse_args()
    for side in options.sides:
        compare_arrays(side, options)
    if options.jpegs:
        compare_epochs(options)


if __name__ == "__main__":
    main()
