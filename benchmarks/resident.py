"""Compare a Loader that keeps its data with a loop written by hand.

    python benchmarks/resident.py --sides 32 64 224 --batch 512 --rounds 7
    python benchmarks/resident.py --sides --jpegs images.tar --batch 32 --keep host

The loop holds the pixels on the device, in an order that it shuffles there once an epoch, and has
one compiled call for each batch: keys, gather, jit(vmap(chain)). Both wait for a batch when the
next one has been asked for, as a training that reads its loss does. They take turns, and the first
round is not counted. JPEGs are compared with themselves: a later epoch with the first.
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
    pixels: np.ndarray, labels: np.ndarray, chain: augment.Compose, batch_size: int
) -> Iterator[dict[str, Any]]:
    """Yield batches as a user would write them."""

    @functools.partial(jax.jit, static_argnums=1)
    def shuffled(epoch, count):
        return jax.random.permutation(jax.random.fold_in(jax.random.key(0), epoch), count)

    @jax.jit
    def make_batch(data, order, start, epoch):
        rows = jax.lax.dynamic_slice_in_dim(order, start, batch_size)
        sample = jax.tree.map(lambda column: column[rows], data)
        return jax.vmap(chain)(sample_keys(jax.random.key(1), epoch, rows), sample)

    data = jax.device_put({"image": pixels, "label": labels})
    epoch = 0
    while True:
        order = shuffled(epoch, len(pixels))
        for start in range(0, len(pixels) - batch_size + 1, batch_size):
            yield make_batch(data, order, start, epoch)
        epoch += 1


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


def compare_arrays(side: int, options: argparse.Namespace) -> None:
    """Print the rates of both, and their ratio."""
    count = max(min(options.count, options.bytes // (3 * side * side)), 2 * options.batch)
    pixels = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
    labels = np.arange(count, dtype=np.int32) % 10
    chain = make_chain(side)
    hand = by_hand(pixels, labels, chain, options.batch)
    images = options.batches * options.batch
    ratios = []
    rates = []
    sharding = batch_sharding(jax.devices()[:1])
    source = InMemory(pixels, {"label": labels})
    kept = {"sharding": sharding, "keep": options.keep}
    with Loader(source, options.batch, transform=chain, **kept) as loader:
        while loader.stats["kept_records"] < count:
            next(loader)
        for number in range(1 + options.rounds):
            theirs = images / seconds_of(hand, options.batches)
            ours = images / seconds_of(loader.steps(), options.batches)
            if number:
                rates.append((ours, theirs))
                ratios.append(ours / theirs)
    ours, theirs = (statistics.median(each) for each in zip(*rates))
    print(
        f"{count} images of {side} x {side}: Loader {ours:,.0f} images/s, by hand {theirs:,.0f}; "
        f"ratio {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}",
        flush=True,
    )


def compare_epochs(options: argparse.Namespace) -> None:
    """Print the time of each epoch of JPEGs, and the ratio of the first to the later ones."""
    with tarfile.open(options.jpegs) as tar:
        members = [member for member in tar if member.isfile()]
        files = [tar.extractfile(member).read() for member in members]  # pyright: ignore
    source = InMemory(files * options.copies)
    with Loader(
        source,
        options.batch,
        transform=make_chain(224),
        last_batch="pad",
        sharding=batch_sharding(jax.devices()[:1]),
        keep=options.keep,
    ) as loader:
        times = []
        for _ in range(2 + options.rounds):
            started = time.perf_counter()
            for batch in loader:
                jax.block_until_ready(batch["image"])
            times.append(time.perf_counter() - started)
        gigabytes = loader.stats["kept_bytes"] / 1e9
    print(
        f"{len(source)} JPEGs, {gigabytes:.2f} GB: first epoch {times[0]:.2f} s, second "
        f"{times[1]:.2f} s, later {statistics.median(times[2:]):.2f} s; first over second "
        f"{times[0] / times[1]:.2f}, over later {times[0] / statistics.median(times[2:]):.2f}"
    )


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
