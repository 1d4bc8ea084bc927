"""The contestants of `vs_dali.py` that decode in worker processes: Grain and torchvision.

Their workers decode and augment with Pillow and hand over batches of bytes, which are copied to the
GPU and normalized there. A worker makes whole batches, so that these come in bursts: a step takes
one from each worker.
"""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpu_contestants import PillowChain

SIZE = 224
PILLOW_CHAINS = {"rrc": "crop", "jitter": "jitter", "eval": "evaluation"}
WORKERS = len(os.sched_getaffinity(0))

# A step, a wait for what it returns, and an end.
Contestant = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[], None]]


def open_grain(folder: Path, chain: str, batch: int, mean: Any, std: Any) -> Contestant:
    """Return Grain's contestant.

    Raises:
      KeyError: there is no such chain by Pillow.
    """
    import grain
    import jax
    import jax.numpy as jnp
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # Grain's worker processes read them
    files = sorted(map(str, folder.glob("*/*")))
    dataset = grain.MapDataset.source(files).seed(0).shuffle().repeat()
    dataset = dataset.random_map(PillowChain(PILLOW_CHAINS[chain]).pixels).batch(batch)
    options = grain.MultiprocessingOptions(num_workers=WORKERS)
    batches = iter(dataset.to_iter_dataset().mp_prefetch(options))

    @jax.jit
    def normalized(pixels):
        return ((pixels / 255 - jnp.array(mean)) / jnp.array(std)).astype(jnp.bfloat16)

    def step():
        for _ in range(WORKERS):
            last = normalized(jax.device_put(next(batches)))
        return last

    return step, jax.block_until_ready, batches.close


def open_torchvision(folder: Path, chain: str, batch: int, mean: Any, std: Any) -> Contestant:
    """Return torchvision's contestant, on the CPU where torch has no GPU."""
    import torch
    from torchvision import datasets
    from torchvision.transforms import v2

    crop = [v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()]
    bilinear = {"interpolation": v2.InterpolationMode.BILINEAR}  # as the others
    rotation = v2.RandomRotation(7, **bilinear)
    shears = [v2.RandomAffine(0, shear=(-5, 5, -5, 5), **bilinear) for _ in range(7)]
    chains = {
        "rrc": crop,
        "jitter": [*crop, rotation, v2.ColorJitter(0.4, 0.4, 0.4, 0.1)],
        "twelve": [*crop, rotation, *shears],
        "randaugment": [*crop, v2.RandAugment(2, 9)],
        "eval": [v2.Resize(256), v2.CenterCrop(SIZE)],
    }
    transform = v2.Compose([*chains[chain], v2.PILToTensor()])
    normalized = v2.Compose([v2.ToDtype(torch.float16, scale=True), v2.Normalize(mean, std)])
    images = datasets.ImageFolder(str(folder), transform)

    # The workers start one after another, and each would import torch anew, for 8 s.
    workers = multiprocessing.get_context("forkserver")
    workers.set_forkserver_preload(["torchvision.datasets", "torchvision.transforms.v2"])

    # Without an end of the epoch: so few images do not keep all workers busy across it.
    endless = torch.utils.data.RandomSampler(images, replacement=True, num_samples=2**40)
    on_gpu = torch.cuda.is_available()
    loader = torch.utils.data.DataLoader(
        images,
        batch,
        sampler=endless,
        num_workers=WORKERS,
        pin_memory=on_gpu,
        multiprocessing_context=workers,
    )
    batches = iter(loader)

    def step():
        for _ in range(WORKERS):
            pixels, _ = next(batches)
            last = normalized(pixels.to("cuda" if on_gpu else "cpu", non_blocking=True))
        return last

    def wait(_):
        if on_gpu:
            torch.cuda.synchronize()

    return step, wait, lambda: None
