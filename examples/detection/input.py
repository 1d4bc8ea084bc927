"""From images with boxes to batches: the augmentations and the Loaders of a run."""

from pathlib import Path

from jaxaug import Loader
from jaxaug.augment import recipes
from jaxaug.iterators import Coco

AUGMENTATIONS = ("none", "ssd", "yolo")


def open_split(data: Path, split: str) -> Coco:
    """Return a split of the folder that `examples/shapes.py` writes, or of one laid out alike."""
    return Coco(data / split, data / f"{split}.json")


def train_loader(
    source: Coco, augment: str, size: int, batch_size: int, epochs: int, seed: int
) -> Loader:
    """Return shuffled, augmented, full batches of `epochs` epochs."""
    batch_transform = None
    if augment == "yolo":
        transform, batch_transform = recipes.yolo_train(size)
    elif augment == "ssd":
        transform = recipes.ssd_train(size)
    else:
        transform = recipes.ssd_eval(size)
    return Loader(
        source,
        batch_size,
        transform=transform,
        batch_transform=batch_transform,
        seed=seed,
        epochs=epochs,
    )


def test_loader(source: Coco, augment: str, size: int, batch_size: int) -> Loader:
    """Return ordered batches of one epoch; the last is padded, no image is left out."""
    transform = recipes.yolo_eval(size) if augment == "yolo" else recipes.ssd_eval(size)
    return Loader(
        source, batch_size, transform=transform, shuffle=False, last_batch="pad", epochs=1
    )
