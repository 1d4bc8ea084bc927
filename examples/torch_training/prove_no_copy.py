"""Show that the tensors of `to_torch` are the memory of the JAX arrays, and that nothing is copied.

    python prove_no_copy.py

A few batches are decoded ahead, so that the GPU has nothing else to do. Then the network is trained
on them under PyTorch's profiler, which sees the copies of both libraries. Printed are the pointers
that agree and the copies by kind; the exit status is 1 if images were copied.
"""

import argparse
import collections
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# JAX would take three quarters of the GPU when it starts; it needs room for a few batches alone.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
import torch
from data import MEAN, STD
from model import make_model
from PIL import Image
from torch import nn
from torch.profiler import ProfilerActivity, profile

from jaxaug import Loader, augment
from jaxaug.iterators import InMemory, to_torch
from jaxaug.sharding import batch_sharding

CLASSES = 10
SECONDS_AHEAD = 5.0  # that the Loader gets to finish all batches


class NotingLoader(Loader):
    """A Loader that notes the address of each batch's images on its device."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in super().__iter__():
            self.pointer = batch["image"].unsafe_buffer_pointer()
            yield batch


def make_images(count: int, side: int) -> InMemory:
    """Return JPEGs of noise, and their labels."""
    rng = np.random.default_rng(0)
    files = []
    for _ in range(count):
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=75)
        files.append(file.getvalue())
    return InMemory(files, {"label": np.arange(count) % CLASSES})


def make_loader(batches: int, batch_size: int, size: int) -> NotingLoader:
    """Return a Loader of a few batches, all of which it makes ahead."""
    chain = augment.Compose(
        [
            augment.RandomResizedCrop(size),
            augment.RandomHorizontalFlip(),
            augment.Normalize(MEAN, STD),
        ]
    )
    return NotingLoader(
        make_images(batches * batch_size, 2 * size),
        batch_size,
        transform=chain,
        epochs=1,
        sharding=batch_sharding(jax.local_devices()[:1]),
        prefetch=batches,
    )


def train_under_profiler(loader: NotingLoader, trace: Path) -> tuple[int, int]:
    """Train on the batches, write the trace of all but the first two, and return two numbers:
    how many of the traced batches there were, and how many had the array's address.
    """
    cuda = torch.cuda.is_available()
    model = make_model(CLASSES).to("cuda" if cuda else "cpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(image: torch.Tensor, label: torch.Tensor) -> None:
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    batches = iter(to_torch(loader, names=("image", "label"), channels_last=True))
    for _ in range(2):  # the first calls set the libraries up
        step(*next(batches))
    time.sleep(SECONDS_AHEAD)

    count = 0
    same = 0
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * cuda
    with profile(activities=activities) as profiler:
        for image, label in batches:
            count += 1
            same += image.data_ptr() == loader.pointer
            step(image, label)
        if cuda:
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(trace))
    return count, same


def copies(trace: Path) -> tuple[dict[str, tuple[int, int]], int]:
    """Return the number and the bytes of the copies of each kind in a trace, and its kernels."""
    events = json.loads(trace.read_text())["traceEvents"]
    found: dict[str, tuple[int, int]] = collections.defaultdict(lambda: (0, 0))
    for event in events:
        if event.get("cat") == "gpu_memcpy":
            number, size = found[event["name"]]
            found[event["name"]] = (number + 1, size + int(event["args"].get("bytes", 0)))
    return dict(found), sum(event.get("cat") == "kernel" for event in events)


def main() -> int:
    """Print what was found; return the exit status."""
    parser = argparse.ArgumentParser(description="Show that to_torch copies nothing.")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=224, help="side of the images, pixels")
    options = parser.parse_args()

    loader = make_loader(options.batches, options.batch_size, options.size)
    with loader, tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        count, same = train_under_profiler(loader, trace)
        found, kernels = copies(trace)

    print(f"{same} of {count} batches: tensor.data_ptr() == array.unsafe_buffer_pointer()")
    images = options.batch_size * options.size**2 * 3 * 4
    print(f"the images of a batch are {images:,} bytes, those of all traced {count * images:,}")
    if not torch.cuda.is_available():
        print("no CUDA device: copies were not traced")
        return int(same != count)

    print(f"{kernels} kernels; copies:" if found else f"{kernels} kernels; no copies")
    for name, (number, size) in sorted(found.items()):
        print(f"  {name}: {number}, {size:,} bytes in all")
    copied = sum(size for _, size in found.values())
    good = same == count and kernels > 0 and copied < images // 100
    print("no image was copied" if good else "NOT SHOWN")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
