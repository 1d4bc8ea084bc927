"""Compare a Loader over pixels in memory with a loop written by hand.

    python benchmarks/in_memory.py --count 20000 --side 32 --batch 256 --rounds 7

The loop gathers rows of the same host array in the same order and calls jit(vmap(chain)) on them.
Both wait for a batch when the next one has been asked for, as a training that reads its loss does.
They take turns, and the first round is not counted.
"""

import argparse
import statistics
import time

import jax
import numpy as np

from jaxaug import Loader, augment
from jaxaug.iterators import InMemory, sample_keys
from jaxaug.iterators.samplers.sampler import permute
from jaxaug.sharding import batch_sharding


def by_hand(pixels, labels, chain, batch_size, batches):
    """Yield batches as a user would write them."""
    compiled = jax.jit(jax.vmap(chain))
    key = jax.random.fold_in(jax.random.key(0), 1)
    make_keys = jax.jit(sample_keys, static_argnums=1)
    for step in range(batches):
        epoch, start = divmod(step * batch_size, len(pixels) // batch_size * batch_size)
        rows = permute(0, epoch, np.arange(start, start + batch_size), len(pixels))
        sample = {"image": pixels[rows], "label": labels[rows]}
        yield compiled(make_keys(key, epoch, rows), sample)


def rate(batches, batch_size, warm):
    """Return images per second once `warm` batches have passed."""
    before = None
    count = 0
    started = 0.0
    for step, batch in enumerate(batches):
        if before is not None:
            jax.block_until_ready(before)
        if step == warm:
            started = time.perf_counter()
        count += step > warm
        before = batch["image"]
    jax.block_until_ready(before)
    return count * batch_size / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    shape = (options.count, options.side, options.side, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    labels = np.arange(options.count, dtype=np.int32) % 10
    crop = augment.RandomCrop(options.side, padding=options.side // 8)
    chain = augment.Compose([crop, augment.RandomHorizontalFlip(), augment.Normalize(0.5, 0.25)])
    source = InMemory(pixels, {"label": labels})
    sharding = batch_sharding(jax.devices()[:1])
    warm = 5
    total = options.batches + warm

    ratios = []
    for number in range(1 + options.rounds):
        hand = rate(by_hand(pixels, labels, chain, options.batch, total), options.batch, warm)
        with Loader(source, options.batch, transform=chain, sharding=sharding) as loader:
            ours = rate(loader.steps(total), options.batch, warm)
        if number == 0:
            continue
        ratios.append(ours / hand)
        print(
            f"Loader {ours:9,.0f} images/s  by hand {hand:9,.0f}  ratio {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
