"""Contact sheets of transforms, on images, videos or sounds of a folder or on the drawn scene."""

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
from jaxaug.decode import Audio, ColumnDecoder, Image, Video
from jaxaug.errors import SourceError
from jaxaug.iterators import AudioFolder, ImageFolder, Loader, Subset, VideoFolder
from jaxaug.iterators.sources.folder import open_folder

SIDE = 256  # pixels of the canvas that images are shrunk to
DRAWS = 6  # random draws in each row
MAX_IMAGES = 7  # of a folder, or sounds
_FRAMES = 4  # of a clip
_SECONDS = 4.0  # of a sound, from its beginning

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

SHOWN_SOUNDS: Sequence[augment.Transform] = (
    augment.audio.Speed((0.7, 1.4)),
    augment.audio.PitchShift((-6, 6)),
    augment.audio.TimeShift(),
    augment.audio.AddNoise((0, 20)),
    augment.audio.BandStop(),
    augment.audio.TimeMask((0.1, 0.4)),
    augment.Compose(
        [
            augment.audio.Speed(),
            augment.audio.AddNoise(),
            augment.audio.LogMel(),
            augment.audio.Standardize(),
            augment.audio.SpecAugment(time_width=12, frequency_width=16),
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
    """Draw a contact sheet: a row of random draws for each image, clip or sound.

    Args:
      images: at least one, or sounds.
      path: the picture to write.
      title: the heading of the sheet.
      seed: of the random draws.
      chain: a function of (key, sample) that is applied to every image, or of (key, group) with a
        `group_size`, which is applied to every image and those that follow it. Without, each row
        shows another of `SHOWN`, of sounds `SHOWN_SOUNDS`, of clips alike in all frames.

    Returns:
      `path`.
    """
    if chain is not None:
        rows = _rows(chain, images, seed, 0)
        return contact_sheet(rows, path, title)

    rows = []
    shown = SHOWN_SOUNDS if "audio" in images[0].sample else SHOWN
    filmed = "video" in images[0].sample
    for number, transform in enumerate(shown):
        named = images[number % len(images)]
        applied = augment.Frames(transform) if filmed else transform
        (row,) = _rows(applied, [named], seed, number)
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
    canvas = np.zeros((side, side, 3), np.uint8)
    canvas[: scene.image.shape[0], : scene.image.shape[1]] = scene.image
    sample: dict[str, Any] = {"image": canvas, "size": np.array(scene.image.shape[:2], np.int32)}
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
    images = Image(canvas=(side, side))
    return _some(source, "image", images, ("image", "size", *source.features), 4 * MAX_IMAGES)


def folder_samples(folder: PathLike, side: int = SIDE) -> list[Named]:
    """Return `folder_images`; where there are none, some clips, or the first seconds of sounds."""
    try:
        return folder_images(folder, side)
    except SourceError as error:
        refused = error
    for source in open_folder(folder):
        if isinstance(source, VideoFolder):
            return _some_videos(source, side)
        if isinstance(source, AudioFolder):
            return _some_sounds(source)
    raise refused


def _some_videos(source: VideoFolder, side: int) -> list[Named]:
    """Return clips from the middles of some videos."""
    clips = Video(frames=_FRAMES, stride=8, start="center", canvas=(side, side))
    return _some(source, "video", clips, ("video", "size", "label"))


def _some_sounds(source: AudioFolder) -> list[Named]:
    """Return the first seconds of some sounds."""
    clips = Audio(seconds=_SECONDS, start=0)
    return _some(source, "audio", clips, ("audio", "audio_length", "label"))


def _some(
    source: ImageFolder | VideoFolder | AudioFolder,
    column: str,
    decoder: ColumnDecoder,
    entries: Sequence[str],
    tries: int = MAX_IMAGES,
) -> list[Named]:
    """Return some records, spread over a folder; broken files are left out, named on stderr."""
    count = min(tries, len(source))
    chosen = Subset(source, np.linspace(0, len(source) - 1, count).astype(np.int64))
    rows = -(-count // jax.device_count()) * jax.device_count()
    options = {"shuffle": False, "epochs": 1, "last_batch": "pad", "on_error": "mask"}
    with Loader(chosen, rows, decode={column: decoder}, **options) as loader:
        batch = jax.device_get(next(loader))
    for index in batch["index"][~batch["valid"] & (batch["index"] >= 0)].tolist():
        path = chosen.describe(index)["path"]
        print(f"jaxaug: left out {path!r}, which cannot be decoded", file=sys.stderr)
    good = np.flatnonzero(batch["valid"])
    if not good.size:
        what = f"none of {count} {column} files tried in {str(source.root)!r} can be decoded"
        raise SourceError(f"{what}.")
    found = []
    for row in good[np.linspace(0, good.size - 1, min(MAX_IMAGES, good.size)).astype(int)]:
        path = Path(chosen.describe(int(batch["index"][row]))["path"])
        sample = {name: batch[name][row] for name in entries}
        found.append(Named(str(path.relative_to(source.root)), sample))
    return found


def _title(transform: augment.Transform) -> str:
    if isinstance(transform, augment.Compose):
        return " + ".join(_title(part) for part in transform.transforms)
    return type(transform).__name__
