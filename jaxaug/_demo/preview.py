"""The contact sheet of a folder: each row shows what one transform does to one of the images."""

import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from jaxaug import augment
from jaxaug._demo.sheet import Row, contact_sheet
from jaxaug._typing import PathLike
from jaxaug.decode import Decoder
from jaxaug.errors import SourceError
from jaxaug.iterators import ImageFolder

SIDE = 256  # pixels of the canvas that images are shrunk to
DRAWS = 6  # random draws in each row

SHOWN: Sequence[augment.Transform] = (
    augment.RandomResizedCrop(SIDE, scale=(0.2, 1.0)),
    augment.RandomHorizontalFlip(),
    augment.RandomRotation((-30, 30)),
    augment.RandomAffine(
        (-20, 20), translate=(0.15, 0.15), scale=(0.7, 1.2), padding_mode="reflect"
    ),
    augment.RandomPerspective(0.5, p=1.0),
    augment.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    augment.Compose(
        [
            augment.RandomRotation((-20, 20), padding_mode="reflect"),
            augment.RandomResizedCrop(SIDE, scale=(0.3, 1.0)),
            augment.RandomHorizontalFlip(),
            augment.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3, hue=0.05),
        ]
    ),
)


def draw_sheet(folder: PathLike, path: PathLike, title: str, seed: int = 0) -> Path:
    """Draw the contact sheet of the images in a folder.

    Args:
      folder: a folder with images somewhere below it, with or without class folders.
      path: the PNG to write.
      title: the heading of the sheet.
      seed: of the random draws.

    Returns:
      `path`.

    Raises:
      SourceError: no image in the folder can be decoded.
    """
    source = ImageFolder(folder)
    names, images = _choose(source, len(SHOWN))
    rows = []
    for number, transform in enumerate(SHOWN):
        name = names[number % len(names)]
        image = images[number % len(names)]
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), number), DRAWS)
        rows.append(Row(_title(transform), name, [image, *_draw(transform, keys, image)]))
    return contact_sheet(rows, path, title)


def _choose(source: ImageFolder, count: int) -> tuple[list[str], list[np.ndarray]]:
    """Return names and upright pixels of up to `count` images, spread over the folder.

    Broken files are left out, and named on stderr.
    """
    candidates = np.unique(np.linspace(0, len(source) - 1, 4 * count).astype(np.int64))
    encoded, _ = source.read(candidates)
    with Decoder((SIDE, SIDE), devices=jax.local_devices()[:1], on_error="mask") as decoder:
        batch = decoder.decode(encoded)

    good = np.flatnonzero(batch.valid)
    if not good.size:
        raise SourceError(
            f"none of {len(candidates)} files tried in {str(source.root)!r} can be decoded."
        )
    for index in candidates[~batch.valid].tolist():
        print(f"jaxaug: left out {source.path(index)!r}, which cannot be decoded", file=sys.stderr)

    rows = good[np.linspace(0, good.size - 1, min(count, good.size)).astype(int)]
    pixels = np.asarray(batch.pixels)
    names = [
        str(Path(source.path(int(index))).relative_to(source.root)) for index in candidates[rows]
    ]
    return names, [_used(pixels[row], batch.size[row]) for row in rows]


def _draw(transform: augment.Transform, keys: jax.Array, image: np.ndarray) -> list[np.ndarray]:
    """Return the results of `transform` on one image, one for each key."""
    # All images have one shape, so each transform is compiled once.
    canvas = np.zeros((SIDE, SIDE, 3), np.uint8)
    canvas[: image.shape[0], : image.shape[1]] = image
    sample = {"image": canvas, "size": np.array(image.shape[:2], np.int32)}
    drawn = jax.jit(jax.vmap(transform, in_axes=(0, None)))(keys, sample)
    images = np.asarray(drawn["image"])
    sizes = np.asarray(drawn["size"]) if "size" in drawn else [images.shape[1:3]] * len(images)
    return [_used(image, size) for image, size in zip(images, sizes)]


def _used(pixels: np.ndarray, size: Sequence[int] | np.ndarray) -> np.ndarray:
    return pixels[: int(size[0]), : int(size[1])]


def _title(transform: augment.Transform) -> str:
    if isinstance(transform, augment.Compose):
        return " + ".join(_title(part) for part in transform.transforms)
    return type(transform).__name__
