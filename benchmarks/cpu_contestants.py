"""The contestants of `cpu.py`, each with the libraries of its own environment.

A contestant is a function (folder, chain) -> (step, close): `step()` returns the next batch of 64
images of 224 x 224 in float32, ready to be read. A chain that it does not offer is a KeyError.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 64
SIZE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
CPUS = len(os.sched_getaffinity(0))

Contestant = tuple[Callable[[], Any], Callable[[], None]]


# ---------------------------------------------------------------- jaxaug


def open_jaxaug(folder: Path, chain: str) -> Contestant:
    import jax

    from jaxaug import Loader, augment
    from jaxaug.iterators import ImageFolder

    crop = [augment.RandomResizedCrop(SIZE), augment.RandomHorizontalFlip()]
    jitter = [augment.RandomRotation(7), augment.ColorJitter(0.4, 0.4, 0.4, 0.1)]
    chains = {
        "crop": crop,
        "jitter": [*crop, *jitter],
        "evaluation": [augment.Resize(256), augment.CenterCrop(SIZE)],
        "randaugment": [*crop, augment.RandAugment()],
    }
    transform = augment.Compose([*chains[chain], augment.Normalize(MEAN, STD)])
    loader = Loader(ImageFolder(folder), BATCH, transform=transform)
    return lambda: jax.block_until_ready(next(loader)), loader.close


# ---------------------------------------------------------------- DALI


def open_dali(folder: Path, chain: str) -> Contestant:
    return _open_dali(folder, chain, regions=False)


def open_dali_regions(folder: Path, chain: str) -> Contestant:
    if chain == "evaluation":
        raise KeyError(chain)
    return _open_dali(folder, chain, regions=True)


def _open_dali(folder: Path, chain: str, regions: bool) -> Contestant:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import rand_augment

    linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}
    uniform = fn.random.uniform

    def cropped(data):
        if chain == "evaluation":
            return fn.resize(fn.decoders.image(data), resize_shorter=256, **linear)
        if not regions:
            images = fn.decoders.image(data)
            return fn.random_resized_crop(images, size=[SIZE, SIZE], **linear)
        window = {"random_area": [0.08, 1.0], "random_aspect_ratio": [0.75, 4 / 3]}
        images = fn.decoders.image_random_crop(data, **window)
        return fn.resize(images, size=[SIZE, SIZE], **linear)

    def jittered(images):
        angle = uniform(range=(-7.0, 7.0))
        images = fn.rotate(images, angle=angle, keep_size=True, fill_value=0)
        factors = {
            name: uniform(range=(0.6, 1.4)) for name in ("brightness", "contrast", "saturation")
        }
        return fn.color_twist(images, hue=uniform(range=(-36.0, 36.0)), **factors)

    # Conditionals cost DALI a little, so only the chain that needs them has them.
    @pipeline_def(enable_conditionals=chain == "randaugment")
    def pipeline():
        data, _ = fn.readers.file(file_root=str(folder), random_shuffle=True)
        images = cropped(data)
        if chain == "jitter":
            images = jittered(images)
        if chain == "randaugment":
            images = rand_augment.rand_augment(images, n=2, m=9)
        return fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="HWC",
            crop=(SIZE, SIZE),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            mirror=0 if chain == "evaluation" else fn.random.coin_flip(),
        )

    built = pipeline(batch_size=BATCH, num_threads=CPUS, device_id=None)
    built.build()
    return built.run, lambda: None


# ---------------------------------------------------------------- Grain with Pillow


def open_grain_threads(folder: Path, chain: str) -> Contestant:
    return _open_grain(folder, chain, processes=0)


def open_grain_processes(folder: Path, chain: str) -> Contestant:
    return _open_grain(folder, chain, processes=CPUS)


def _open_grain(folder: Path, chain: str, processes: int) -> Contestant:
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # Grain's worker processes read them
    files = sorted(map(str, folder.glob("*/*")))
    dataset = grain.MapDataset.source(files).seed(0).shuffle().repeat()
    dataset = dataset.random_map(PillowChain(chain)).batch(BATCH)
    batches = dataset.to_iter_dataset()
    if processes:
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=processes))
    iterator = iter(batches)
    return lambda: next(iterator), lambda: None


class PillowChain:
    """A chain by Pillow and NumPy: (file, numpy generator) -> float32[224, 224, 3]."""

    def __init__(self, chain: str):
        self._operators = {
            "crop": [self._crop, self._flip],
            "jitter": [self._crop, self._flip, self._rotate, self._jitter],
            "evaluation": [self._resize],
        }[chain]

    def pixels(self, file: str, rng: Any) -> Any:
        """Return uint8[224, 224, 3], not yet normalized."""
        import numpy as np
        from PIL import Image

        image = Image.open(file).convert("RGB")
        for operator in self._operators:
            image = operator(image, rng)
        return np.asarray(image)

    def __call__(self, file: str, rng: Any) -> Any:
        import numpy as np

        scale = (1 / (255 * np.array(STD))).astype(np.float32)
        shift = (np.array(MEAN) / np.array(STD)).astype(np.float32)
        return self.pixels(file, rng).astype(np.float32) * scale - shift

    def _crop(self, image: Any, rng: Any) -> Any:
        from PIL import Image

        width, height = image.size
        for _ in range(10):
            area = width * height * rng.uniform(0.08, 1.0)
            aspect = (3 / 4) * (16 / 9) ** rng.uniform()
            w = round((area * aspect) ** 0.5)
            h = round((area / aspect) ** 0.5)
            if 0 < w <= width and 0 < h <= height:
                break
        else:
            w = h = min(width, height)
        left = int(rng.integers(0, width - w + 1))
        top = int(rng.integers(0, height - h + 1))
        box = (left, top, left + w, top + h)
        return image.crop(box).resize((SIZE, SIZE), Image.Resampling.BILINEAR)

    def _flip(self, image: Any, rng: Any) -> Any:
        from PIL import Image

        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.uniform() < 0.5 else image

    def _rotate(self, image: Any, rng: Any) -> Any:
        from PIL import Image

        return image.rotate(rng.uniform(-7, 7), Image.Resampling.BILINEAR)

    def _jitter(self, image: Any, rng: Any) -> Any:
        from PIL import ImageEnhance

        enhancers = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color, None]
        for number in rng.permutation(4):
            enhancer = enhancers[number]
            if enhancer is None:
                image = self._hue(image, rng)
            else:
                image = enhancer(image).enhance(rng.uniform(0.6, 1.4))
        return image

    def _hue(self, image: Any, rng: Any) -> Any:
        from PIL import Image

        shift = int(rng.uniform(-0.1, 0.1) * 255)
        hue, saturation, value = image.convert("HSV").split()
        hue = hue.point([(level + shift) % 256 for level in range(256)])
        return Image.merge("HSV", (hue, saturation, value)).convert("RGB")

    def _resize(self, image: Any, rng: Any) -> Any:
        from PIL import Image

        width, height = image.size
        scale = 256 / min(width, height)
        image = image.resize(
            (round(width * scale), round(height * scale)), Image.Resampling.BILINEAR
        )
        left = (image.width - SIZE) // 2
        top = (image.height - SIZE) // 2
        return image.crop((left, top, left + SIZE, top + SIZE))


# ---------------------------------------------------------------- torchvision


def open_torchvision(folder: Path, chain: str) -> Contestant:
    import torch
    from torchvision import datasets
    from torchvision.transforms import v2

    crop = [v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()]
    chains = {
        "crop": crop,
        "jitter": [*crop, v2.RandomRotation(7), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)],
        "evaluation": [v2.Resize(256), v2.CenterCrop(SIZE)],
        "randaugment": [*crop, v2.RandAugment()],
    }
    end = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    loader = torch.utils.data.DataLoader(
        datasets.ImageFolder(str(folder), v2.Compose([*chains[chain], *end])),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=CPUS,
        persistent_workers=True,
    )
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    return lambda: next(epochs), lambda: None


CONTESTANTS = {
    "jaxaug": open_jaxaug,
    "DALI": open_dali,
    "DALI, regions": open_dali_regions,
    "Grain + Pillow, threads": open_grain_threads,
    "Grain + Pillow, processes": open_grain_processes,
    "torchvision": open_torchvision,
}
