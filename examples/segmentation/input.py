"""From images with masks to batches: the source, the augmentations and the Loaders of a run."""

from pathlib import Path

import numpy as np
from PIL import Image

from jaxaug import Loader, augment
from jaxaug.augment import recipes
from jaxaug.iterators import InMemory

AUGMENTATIONS = ("none", "scale", "scale_color")


def open_split(data: Path, split: str) -> InMemory:
    """Return a split of the folder that `examples/shapes.py` writes, or of one laid out alike.

    The images stay encoded. The masks, all of one size, are read into memory, as the feature
    "mask", which the Loader and the transforms move with the image.
    """
    paths = sorted((data / split).glob("*.jpg"))
    masks = []
    for path in paths:
        with Image.open(data / f"{split}_masks" / f"{path.stem}.png") as mask:
            masks.append(np.asarray(mask))
    return InMemory([path.read_bytes() for path in paths], {"mask": np.stack(masks)})


def count_classes(source: InMemory) -> int:
    """Return the number of classes of the masks."""
    return int(source.features["mask"].max()) + 1


def train_loader(
    source: InMemory, augmentation: str, size: int, batch_size: int, epochs: int, seed: int
) -> Loader:
    """Return shuffled, augmented, full batches of `epochs` epochs, squares of `size` pixels."""
    if augmentation == "none":
        normalize = augment.Normalize(recipes.IMAGENET_MEAN, recipes.IMAGENET_STD)
        transform = augment.Compose([augment.Resize(size), augment.CenterCrop(size), normalize])
    else:
        color = augment.RandomPhotometricDistort() if augmentation == "scale_color" else None
        transform = recipes.segmentation_train(size, size, color)
    return Loader(source, batch_size, transform=transform, seed=seed, epochs=epochs)


def test_loader(source: InMemory, size: int, batch_size: int) -> Loader:
    """Return ordered batches of one epoch, whole images; the last is padded."""
    # Whole images, up to half as wide again as high; what they do not fill is ignored.
    transform = recipes.segmentation_eval(size, canvas=(size, 3 * size // 2))
    return Loader(
        source, batch_size, transform=transform, shuffle=False, last_batch="pad", epochs=1
    )
