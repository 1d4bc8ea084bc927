"""Time an epoch of training on small images: kept on the device, and by a loop written by hand.

    python benchmarks/cifar.py cifar10.tar.gz --batch 512 --rounds 5
    python benchmarks/cifar.py cifar10.tar.gz --count 2048 --batch 128 --widths 8 16 16
        --dtype float32

The tar holds images in a folder for each class; without it the pixels are drawn. They are repeated
up to `--count`. Both sides train the same convolutions with flips and crops of images padded by 2
pixels, as scripts in the manner of airbench do, and take turns epoch by epoch; the first two
rounds, in which the step is compiled for what it gets, are not counted. The loop holds the pixels
on the device and has one compiled call for the batch, and one for the step. The network of a GPU
takes some 40 TFLOP an epoch, and CPUs have no bfloat16: fewer channels are for them.

Reference: Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024.
"""

import argparse
import io
import itertools
import statistics
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
from resident import by_hand, kept_loader

from jaxaug import augment
from jaxaug.iterators import InMemory

SIDE = 32


def make_chain(dtype: str) -> augment.Compose:
    """Return the chain, which ends in values of a dtype."""
    return augment.Compose(
        [
            augment.RandomHorizontalFlip(),
            augment.RandomCrop(SIDE, padding=2, padding_mode="reflect"),
            augment.Normalize((0.491, 0.482, 0.447), (0.247, 0.244, 0.262), dtype=dtype),
        ]
    )


def read_images(path: str | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels uint8[count, 32, 32, 3] and labels int32[count]."""
    if path is None:
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
        return pixels, generator.integers(0, 10, count, np.int32)

    images, names = [], []
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None:
                images.append(np.asarray(Image.open(io.BytesIO(file.read())).convert("RGB")))
                names.append(Path(member.name).parent.name)
    labels = np.unique(names, return_inverse=True)[1].astype(np.int32)
    chosen = np.arange(count) % len(images)
    return np.stack(images)[chosen], labels[chosen]


def initial(key: jax.Array, widths: Sequence[int]) -> list[jax.Array]:
    """Return the weights of two convolutions for each width, and of the classes."""
    weights = []
    channels = 3
    for width in widths:
        for _ in range(2):
            key, drawn = jax.random.split(key)
            scale = (2 / (9 * channels)) ** 0.5
            weights.append(scale * jax.random.normal(drawn, (3, 3, channels, width)))
            channels = width
    return [*weights, jnp.zeros((channels, 10))]


def logits(weights: list[jax.Array], image: jax.Array) -> jax.Array:
    """Return the scores of images float[n, 32, 32, 3]."""
    x = image
    for number, weight in enumerate(weights[:-1]):
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(
            x, weight.astype(x.dtype), (1, 1), "SAME", dimension_numbers=numbers
        )
        if number % 2 == 0:
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        mean = x.mean((0, 1, 2), keepdims=True)
        x = jax.nn.gelu((x - mean) * jax.lax.rsqrt(x.var((0, 1, 2), keepdims=True) + 1e-5))
    return x.max((1, 2)).astype(jnp.float32) @ weights[-1]


@jax.jit
def step(weights: list[jax.Array], image: jax.Array, label: jax.Array) -> tuple[Any, jax.Array]:
    """Return the weights after a step of plain descent, and the loss."""

    def loss_of(weights: list[jax.Array]) -> jax.Array:
        scores = jax.nn.log_softmax(logits(weights, image))
        return -jnp.take_along_axis(scores, label[:, None], axis=1).mean()

    loss, slopes = jax.value_and_grad(loss_of)(weights)
    return [w - 0.02 * slope for w, slope in zip(weights, slopes)], loss


def seconds_of(batches: Iterator[dict[str, Any]], count: int, weights: Any) -> tuple[float, Any]:
    """Return how long so many steps take, and the weights; a loss is read two steps late."""
    losses = []
    started = time.perf_counter()
    for batch in itertools.islice(batches, count):
        weights, loss = step(weights, batch["image"], batch["label"])
        losses.append(loss)
        if len(losses) > 2:
            float(losses[-3])
    jax.block_until_ready(weights)
    return time.perf_counter() - started, weights


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tar", nargs="?")
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", default="device", help="device, host or disk:DIR")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 256])
    parser.add_argument("--dtype", default="bfloat16", help="of the images")
    options = parser.parse_args()

    chain = make_chain(options.dtype)
    pixels, labels = read_images(options.tar, options.count)
    weights = initial(jax.random.key(0), options.widths)
    count = options.count // options.batch
    hand = by_hand({"image": pixels, "label": labels}, chain, options.batch)
    with kept_loader(InMemory(pixels, {"label": labels}), chain, options) as loader:
        loader.restart()
        times = []
        for number in range(options.rounds + 2):
            theirs, weights = seconds_of(hand, count, weights)
            ours, weights = seconds_of(iter(loader), count, weights)
            times += [(ours, theirs)] if number > 1 else []
    resident = next(hand)
    alone = []
    for _ in range(3):
        found, weights = seconds_of(itertools.repeat(resident), count, weights)
        alone.append(found)
    ratios = [ours / theirs for ours, theirs in times]
    ours, theirs = (statistics.median(each) for each in zip(*times))
    print(
        f"{count} steps of {options.batch}: Loader {ours:.3f} s, by hand {theirs:.3f} s, the steps "
        f"alone {statistics.median(alone):.3f} s; ratio {statistics.median(ratios):.3f}, "
        f"{min(ratios):.3f} to {max(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
