"""How well orders of far data shuffle: the effective size of batches from shards sorted by class.

    pip install webdataset mosaicml-streaming
    python benchmarks/shuffle_quality.py

50,000 records of 100 classes, one after the other, in 100 shards; batches of 256. The effective
size is that of independent draws whose shares of classes vary as those of the batches do: 256 for a
global shuffle, more for an order that spreads the classes. Each is the mean of five epochs.
"""

import functools
import random

import numpy as np

from jaxaug.iterators import Blocks, Shuffled

BATCH = 256
SHARDS = 100
LABELS = np.repeat(np.arange(100), 500)


def effective_size(order: np.ndarray) -> float:
    """Return the size of independent draws whose shares of classes vary as much."""
    found = LABELS[order[: order.size // BATCH * BATCH]].reshape(-1, BATCH)
    shares = np.stack([np.bincount(batch, minlength=100) for batch in found]) / BATCH
    expected = np.bincount(LABELS) / LABELS.size
    variance = ((shares - expected) ** 2).sum(axis=1).mean()
    return float((expected * (1 - expected)).sum() / variance)


def of_sampler(make: functools.partial, epoch: int) -> np.ndarray:
    return make(LABELS.size).records(epoch, np.arange(LABELS.size))


def of_webdataset(buffer: int, epoch: int) -> np.ndarray:
    """Return the order of shuffled shards behind `shuffle(buffer)`."""
    from webdataset.filters import shuffle

    rng = random.Random(epoch)
    shards = np.split(np.arange(LABELS.size), SHARDS)
    rng.shuffle(shards)
    records = iter(np.concatenate(shards).tolist())
    return np.array(list(shuffle(buffer, initial=buffer, rng=rng)(records)))


def of_streaming(algorithm: str, epoch: int) -> np.ndarray:
    """Return the order of Streaming on one node, with its default block size."""
    from streaming.base.shuffle import get_shuffle

    sizes = np.full(SHARDS, LABELS.size // SHARDS)
    return get_shuffle(algorithm, sizes, 1, seed=9176, epoch=epoch, block_size=1 << 18)


CONTESTANTS = {
    "Shuffled": functools.partial(of_sampler, functools.partial(Shuffled)),
    "Blocks": functools.partial(of_sampler, functools.partial(Blocks)),
    "Blocks(run=64)": functools.partial(of_sampler, functools.partial(Blocks, run=64)),
    "Blocks(lanes=64)": functools.partial(of_sampler, functools.partial(Blocks, lanes=64)),
    "WebDataset shuffle(1000)": functools.partial(of_webdataset, 1000),
    "WebDataset shuffle(10000)": functools.partial(of_webdataset, 10_000),
    "Streaming py1e": functools.partial(of_streaming, "py1e"),
    "Streaming py1br": functools.partial(of_streaming, "py1br"),
    "Streaming py1s": functools.partial(of_streaming, "py1s"),
}


def main() -> None:
    """Print a line for each."""
    for name, order in CONTESTANTS.items():
        epochs = [order(epoch=epoch) for epoch in range(5)]
        assert all(np.array_equal(np.sort(each), np.arange(LABELS.size)) for each in epochs)
        print(f"{name:26} {np.mean([effective_size(each) for each in epochs]):6.0f}", flush=True)


if __name__ == "__main__":
    main()
