"""From images to batches: the sources, the augmentations, and the two Loaders of a run."""

from pathlib import Path

from config import Config

from jaxaug import Loader, augment
from jaxaug.iterators import TFDS, ImageFolder, Source

# ImageNet's, RGB in [0, 1]
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def _none(size: int) -> list[augment.Transform]:
    return [augment.Resize(size), augment.CenterCrop(size)]


def _flip_crop_jitter(size: int) -> list[augment.Transform]:
    return [
        augment.Resize(size),
        augment.RandomCrop(size, padding=size // 8, padding_mode="reflect"),
        augment.RandomHorizontalFlip(),
        augment.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.02),
    ]


def _flip_resized_crop_jitter(size: int) -> list[augment.Transform]:
    return [
        augment.RandomResizedCrop(size, scale=(0.35, 1.0)),
        augment.RandomHorizontalFlip(),
        augment.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.02),
    ]


AUGMENTATIONS = {
    "none": _none,
    "flip_crop_jitter": _flip_crop_jitter,
    "flip_resized_crop_jitter": _flip_resized_crop_jitter,
}


def train_transform(config: Config) -> augment.Compose:
    """Return the chosen augmentation, with normalization."""
    if config.augment not in AUGMENTATIONS:
        names = ", ".join(AUGMENTATIONS)
        raise SystemExit(f"--augment must be one of {names}, got {config.augment!r}.")
    steps = AUGMENTATIONS[config.augment](config.image_size)
    return augment.Compose([*steps, augment.Normalize(MEAN, STD, dtype=config.dtype)])


def test_transform(config: Config) -> augment.Compose:
    """Return the center crop of each image, with normalization."""
    return augment.Compose(
        [*_none(config.image_size), augment.Normalize(MEAN, STD, dtype=config.dtype)]
    )


def open_split(
    config: Config, split: str, classes: tuple[str, ...] | None = None
) -> ImageFolder | TFDS:
    """Return the images of one split, from class folders or from TFDS.

    Args:
      config: the settings of the run.
      split: the name of a folder, or a split of TFDS.
      classes: the class folders by label: those of the training images, so that a split in which a
        class has no images is labeled alike. None for those of the folder.
    """
    if config.data.startswith("tfds:"):
        return TFDS(config.data.removeprefix("tfds:"), split=split)
    return ImageFolder(Path(config.data) / split, classes)


def count_classes(source: ImageFolder | TFDS) -> int:
    """Return the number of classes of a source."""
    if source.classes is None:
        raise SystemExit(
            f"{source}: its label must be a ClassLabel, so that the number of classes is known."
        )
    return len(source.classes)


def train_loader(config: Config, source: Source) -> Loader:
    """Return shuffled, augmented, full batches of `config.epochs` epochs."""
    transform = train_transform(config)
    return Loader(
        source, config.batch_size, transform=transform, seed=config.seed, epochs=config.epochs
    )


def test_loader(config: Config, source: Source) -> Loader:
    """Return ordered batches without end; the last of an epoch is padded, none is left out."""
    return Loader(
        source, config.batch_size, transform=test_transform(config), shuffle=False, last_batch="pad"
    )
