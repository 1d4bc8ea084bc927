"""Images per second of a pipeline and of its parts."""

import time

import jax
import numpy as np

from jaxaug._demo.progress import progress
from jaxaug._typing import Sample
from jaxaug.augment import Transform
from jaxaug.decode import Decoder, ImageBatch
from jaxaug.iterators import ImageFolder, Loader

WARM_UP_BATCHES = 6  # until compilation is over and what was prefetched meanwhile is used up
AUGMENT_SECONDS = 2.0  # of measuring


def decode_rate(
    source: ImageFolder, batch_size: int, canvas: tuple[int, int]
) -> tuple[float, ImageBatch]:
    """Return images per second from bytes in memory to one device, and the last batch."""
    batches = [
        source.read(np.arange(start, start + batch_size))["image"]
        for start in range(0, len(source) - batch_size + 1, batch_size)
    ]
    with Decoder(canvas, devices=jax.local_devices()[:1]) as decoder:
        batch = decoder.decode(batches[0])  # starts the threads

        started = time.perf_counter()
        for encoded in progress(batches, "decode"):
            batch = decoder.decode(encoded)
            jax.block_until_ready(batch.pixels)
        seconds = time.perf_counter() - started
    return len(batches) * batch_size / seconds, batch


def augment_rate(transform: Transform, batch: ImageBatch) -> float:
    """Return images per second of the compiled transform on one device."""
    sample: Sample = jax.device_put({"image": batch.pixels, "size": batch.size})
    keys = jax.random.split(jax.random.key(0), len(batch.size))
    compiled = jax.jit(jax.vmap(transform)).lower(keys, sample).compile()
    jax.block_until_ready(compiled(keys, sample))
    calls = 0
    started = time.perf_counter()
    while time.perf_counter() < started + AUGMENT_SECONDS:
        jax.block_until_ready(compiled(keys, sample))
        calls += 1
    return calls * len(batch.size) / (time.perf_counter() - started)


def pipeline_rate(loader: Loader, batch_size: int) -> float:
    """Return images per second of an epoch of a Loader, its first batches left out."""
    skipped = min(WARM_UP_BATCHES, len(loader) - 1)
    started = time.perf_counter()
    for number, batch in enumerate(progress(loader, "decode + augment", len(loader)), 1):
        jax.block_until_ready(batch)
        if number == skipped:
            started = time.perf_counter()
    return (len(loader) - skipped) * batch_size / (time.perf_counter() - started)
