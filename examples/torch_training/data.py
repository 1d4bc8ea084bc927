"""From folders of images to the two Loaders of a run."""

from jax.sharding import NamedSharding

from jaxaug import Loader, augment
from jaxaug.iterators import ImageFolder, Source

# ImageNet's, RGB in [0, 1]
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def train_loader(
    source: Source, size: int, batch_size: int, seed: int, sharding: NamedSharding
) -> Loader:
    """Return shuffled, augmented batches without end."""
    chain = augment.Compose(
        [
            augment.RandomResizedCrop(size, scale=(0.35, 1.0)),
            augment.RandomHorizontalFlip(),
            augment.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2),
            augment.Normalize(MEAN, STD),
        ]
    )
    return Loader(source, batch_size, transform=chain, seed=seed, sharding=sharding)


def test_loader(source: ImageFolder, size: int, batch_size: int, sharding: NamedSharding) -> Loader:
    """Return ordered batches without end; the last of an epoch is padded, none is left out."""
    chain = augment.Compose(
        [augment.Resize(size), augment.CenterCrop(size), augment.Normalize(MEAN, STD)]
    )
    options = {"transform": chain, "shuffle": False, "last_batch": "pad", "sharding": sharding}
    return Loader(source, batch_size, **options)
