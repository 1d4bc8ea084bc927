"""Epochs of images that torchvision augments on the CPU, made ahead of the training by processes.

The chains are those of `jaxaug.augment.recipes.cifar_train`, on PIL images as in torchvision's
references. The output stays uint8: `Normalize` runs on the device.
"""

import multiprocessing
import os
import tempfile
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

from jaxaug.augment import recipes

# Within half a level of what `Normalize` makes 0, with which the references erase.
MEAN_COLOR = tuple(round(255 * value) for value in recipes.CIFAR10_MEAN)


class Job(NamedTuple):
    """One epoch to make.

    Attributes:
      chain: a name for `make_chain`.
      seed, epoch: what the draws depend on.
    """

    chain: str
    seed: int
    epoch: int


def make_chain(name: str) -> v2.Compose:
    """Return the chain of a name, from a PIL image to a tensor uint8[3, 32, 32]."""
    bilinear = InterpolationMode.BILINEAR
    policies = {
        "flip_crop": [],
        "trivial": [v2.TrivialAugmentWide(interpolation=bilinear)],
        "rand": [v2.RandAugment(2, 9, interpolation=bilinear)],
    }
    erasing = [] if name == "flip_crop" else [v2.RandomErasing(0.25, value=MEAN_COLOR)]
    crop = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()]
    return v2.Compose([*crop, *policies[name], v2.PILToTensor(), *erasing])


class Epochs:
    """The images of the jobs in their order, uint8[n, 32, 32, 3], made in a process for each core.

    Args:
      images: uint8[n, 32, 32, 3].
      jobs: the epochs to make.
      ahead: how many wait in memory at most, finished or being made.
    """

    def __init__(self, images: np.ndarray, jobs: Iterable[Job], ahead: int):
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "images.npy"
        np.save(path, images)  # as an argument they would have each process started by itself
        context = multiprocessing.get_context("spawn")  # JAX's threads do not survive a fork
        self._pool = ProcessPoolExecutor(os.cpu_count(), context, begin, (path,))
        self._jobs = iter(jobs)
        self._waiting: deque[Future[np.ndarray]] = deque()
        for _ in range(ahead):
            self._submit()

    def __iter__(self):
        return self

    def __next__(self) -> np.ndarray:
        if not self._waiting:
            raise StopIteration
        images = self._waiting.popleft().result()
        self._submit()
        return images

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def _submit(self) -> None:
        """Have the next job done, if there is one."""
        job = next(self._jobs, None)
        if job is not None:
            self._waiting.append(self._pool.submit(augmented, job))


_given = np.zeros((0, 32, 32, 3), np.uint8)  # of a process


def begin(path: Path) -> None:
    """Read the images into a process."""
    global _given
    torch.set_num_threads(1)
    _given = np.load(path)


def augmented(job: Job) -> np.ndarray:
    """Return the images of one epoch, each augmented on its own, in a process that has begun."""
    entropy = np.random.SeedSequence((job.seed, job.epoch))
    torch.manual_seed(int(entropy.generate_state(1)[0]))
    chain = make_chain(job.chain)
    images = [chain(Image.fromarray(image)).permute(1, 2, 0).numpy() for image in _given]
    return np.stack(images)
