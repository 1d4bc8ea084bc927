"""From images with masks to batches: the source, the augmentations and the Loaders of a run."""

from pathlib import Path

import numpy as np
from PIL import Image

from jaxaug import Loader, augment
from jaxaug.augment import recipes
from jaxaug.iterators import PairedFolders

IGNORED = 255  # in masks: beyond the image, of rows that are not valid, of unknown classes
AUGMENTATIONS = ("none", "scale", "scale_color")


def open_split(data: Path, split: str) -> PairedFolders:
    """Return a split of the folder that `examples/shapes.py` writes, or of one laid out alike."""
    return PairedFolders(data / split, data / f"{split}_masks")


def count_classes(data: Path, split: str) -> int:
    """Return the number of classes of the masks; 255 is none."""
    highest = 0
    for path in (data / f"{split}_masks").iterdir():
        with Image.open(path) as mask:
            classes = np.asarray(mask)
        highest = max(highest, int(classes.max(initial=0, where=classes != IGNORED)))
    return 1 + highest


def train_loader(
    source: PairedFolders, augmentation: str, size: int, batch_size: int, epochs: int, seed: int
) -> Loader:
    """Return shuffled, augmented, full batches of `epochs` epochs, squares of `size` pixels."""
    if augmentation == "none":
        normalize = augment.Normalize(recipes.IMAGENET_MEAN, recipes.IMAGENET_STD)
        transform = augment.Compose([augment.Resize(size), augment.CenterCrop(size), normalize])
    else:
        color = augment.RandomPhotometricDistort() if augmentation == "scale_color" else None
        transform = recipes.segmentation_train(size, size, color)
    return Loader(source, batch_size, transform=transform, seed=seed, epochs=epochs)


def test_loader(source: PairedFolders, size: int, batch_size: int) -> Loader:
    """Return ordered batches of one epoch, whole images; the last is padded."""
    # Whole images, up to half as wide again as high; what they do not fill is ignored.
    transform = recipes.segmentation_eval(size, canvas=(size, 3 * size // 2))
    return Loader(
        source, batch_size, transform=transform, shuffle=False, last_batch="pad", epochs=1
    )
