"""Contact sheets of transforms, on the images of a folder or on the drawn scene."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug import augment
from jaxaug._demo.draws import draws, normalization, pictures
from jaxaug._demo.scene import draw_scene
from jaxaug._demo.sheet import Row, contact_sheet
from jaxaug._typing import PathLike
from jaxaug.decode import Decoder
from jaxaug.errors import SourceError
from jaxaug.iterators import ImageFolder

SIDE = 256  # pixels of the canvas that images are shrunk to
DRAWS = 6  # random draws in each row
MAX_IMAGES = 7  # of a folder

# What a group operator mixes with the drawn scene.
VARIANTS: Mapping[str, augment.Transform] = {
    "mirrored": augment.RandomHorizontalFlip(p=1.0),
    "gray": augment.Grayscale(),
    "inverted": augment.RandomInvert(p=1.0),
}

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


class Named(NamedTuple):
    """A sample and the name under which the sheet shows it."""

    name: str
    sample: dict[str, Any]


def draw_sheet(
    images: Sequence[Named],
    path: PathLike,
    title: str,
    seed: int = 0,
    chain: Callable | None = None,
) -> Path:
    """Draw a contact sheet: a row of random draws for each image.

    Args:
      images: at least one.
      path: the picture to write.
      title: the heading of the sheet.
      seed: of the random draws.
      chain: a function of (key, sample) that is applied to every image, or of (key, group) with a
        `group_size`, which is applied to every image and those that follow it. Without, each row
        shows another of `SHOWN`.

    Returns:
      `path`.
    """
    if chain is not None:
        rows = _rows(chain, images, seed, 0)
        return contact_sheet(rows, path, title)

    rows = []
    for number, transform in enumerate(SHOWN):
        named = images[number % len(images)]
        (row,) = _rows(transform, [named], seed, number)
        rows.append(Row(_title(transform), named.name, row.images))
    return contact_sheet(rows, path, title)


def _rows(chain: Callable, images: Sequence[Named], seed: int, first: int) -> list[Row]:
    """Return one row for each image, its key folded from the number of the row."""
    keys = [jax.random.fold_in(jax.random.key(seed), first + k) for k in range(len(images))]
    keys = jax.numpy.stack([jax.random.split(key, DRAWS) for key in keys])
    mean, std = normalization(chain)
    samples = [named.sample for named in images]
    group_size = getattr(chain, "group_size", None)
    given = samples if group_size is None else _groups(samples, group_size)
    rows = []
    for named, results in zip(images, draws(chain, given, keys)):
        shown = pictures(named.sample)
        for result in results:
            own = result if group_size is None else jax.tree.map(lambda leaf: leaf[0], result)
            shown += pictures(own, mean, std)
        rows.append(Row(named.name, "", shown[: 1 + DRAWS]))
    return rows


def _groups(samples: Sequence[Mapping[str, Any]], size: int) -> list[dict[str, Any]]:
    """Return for each sample a group of it and those that follow; the first follow the last."""
    groups = []
    for first in range(len(samples)):
        members = [samples[(first + offset) % len(samples)] for offset in range(size)]
        groups.append(jax.tree.map(lambda *leaves: np.stack(leaves), *members))
    return groups


def demo_images(side: int = SIDE, targets: bool = False, several: bool = False) -> list[Named]:
    """Return the drawn scene on a square canvas, and variants of it for operators of groups.

    Args:
      side: of the canvas, in pixels.
      targets: True for the scene with its mask, boxes and keypoints; of several only mask and
        boxes, as keypoints are not mixed.
      several: True for the variants, too.
    """
    scene = draw_scene(side // 4 * 4)
    sample = _on_canvas(scene.image, side)
    if targets:
        mask = np.zeros((side, side), np.uint8)
        mask[: scene.mask.shape[0], : scene.mask.shape[1]] = scene.mask
        sample |= {"mask": mask, "boxes": scene.boxes, "keypoints": scene.keypoints}
    if not several:
        return [Named("drawn scene", sample)]

    sample.pop("keypoints", None)
    images = [Named("drawn scene", sample)]
    for name, transform in VARIANTS.items():
        images.append(Named(name, jax.device_get(transform(jax.random.key(0), sample))))
    return images


def folder_images(folder: PathLike, side: int = SIDE) -> list[Named]:
    """Return some images of a folder, spread over it, with their labels.

    Broken files are left out, and named on stderr.

    Args:
      folder: a folder with images somewhere below it, with or without class folders.
      side: of the canvas, to which larger images are shrunk.

    Raises:
      SourceError: no image in the folder can be decoded.
    """
    source = ImageFolder(folder)
    candidates = np.unique(np.linspace(0, len(source) - 1, 4 * MAX_IMAGES).astype(np.int64))
    columns = source.read(candidates)
    with Decoder((side, side), devices=jax.local_devices()[:1], on_error="mask") as decoder:
        batch = decoder.decode(columns["image"])

    good = np.flatnonzero(batch.valid)
    if not good.size:
        raise SourceError(
            f"none of {len(candidates)} files tried in {str(source.root)!r} can be decoded."
        )
    for index in candidates[~batch.valid].tolist():
        print(f"jaxaug: left out {source.path(index)!r}, which cannot be decoded", file=sys.stderr)

    pixels = np.asarray(batch.pixels)
    images = []
    for row in good[np.linspace(0, good.size - 1, min(MAX_IMAGES, good.size)).astype(int)]:
        path = Path(source.path(int(candidates[row])))
        sample = {"image": pixels[row], "size": np.asarray(batch.size[row], np.int32)}
        sample |= {name: np.asarray(columns[name])[row] for name in source.features}
        images.append(Named(str(path.relative_to(source.root)), sample))
    return images


def _on_canvas(image: np.ndarray, side: int) -> dict[str, Any]:
    """Return an image at the top left of a square canvas, with its size."""
    canvas = np.zeros((side, side, 3), np.uint8)
    canvas[: image.shape[0], : image.shape[1]] = image
    return {"image": canvas, "size": np.array(image.shape[:2], np.int32)}


def _title(transform: augment.Transform) -> str:
    if isinstance(transform, augment.Compose):
        return " + ".join(_title(part) for part in transform.transforms)
    return type(transform).__name__
