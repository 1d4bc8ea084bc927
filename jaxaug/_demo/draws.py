"""Random draws of a transform on one sample, as pictures with boxes, masks and keypoints."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw

from jaxaug._typing import Key, Sample
from jaxaug.augment import Compose, MultiView, Normalize
from jaxaug.iterators._viewable import viewable

COLORS = ("#ffd60a", "#00e5ff", "#ff4dd2", "#7cff4d", "#ff8c42", "#b794ff")
_MASK_WEIGHT = 0.35
_TARGETS = ("size", "mask", "masks", "boxes", "keypoints", "label")


def draws(
    transform: Callable, samples: Sequence[Mapping[str, Any]], keys: Key
) -> list[list[Sample]]:
    """Return the results of `transform` in NumPy: for each sample one for each of its keys.

    Args:
      transform: a function of (key, sample), compiled once.
      samples: of equal shapes.
      keys: [n, m], for n samples.
    """
    compiled = jax.jit(jax.vmap(transform, in_axes=(0, None)))
    results = []
    for sample, own_keys in zip(samples, keys, strict=True):
        drawn = jax.device_get(compiled(own_keys, dict(sample)))
        rows = range(len(own_keys))
        results.append([jax.tree.map(lambda leaf, row=row: leaf[row], drawn) for row in rows])
    return results


def pictures(result: Mapping[str, Any], mean: Any = 0.0, std: Any = 1.0) -> list[np.ndarray]:
    """Return the images of one result as uint8[h, w, 3]: its image, or all its views.

    Args:
      result: of a transform, with "image" or, as from `MultiView`, with stacks of images.
      mean, std: with which floats are normalized.
    """
    if "image" in result:
        return [_picture(result, mean, std)]
    stacks = [stack for name, stack in result.items() if name not in _TARGETS]
    return [viewable(image, mean, std) for stack in stacks for image in stack]


def normalization(transform: Any) -> tuple[Any, Any]:
    """Return the mean and std of the last step of a chain or its views; (0, 1) without."""
    if isinstance(transform, Normalize):
        return transform.mean, transform.std
    if isinstance(transform, Compose) and transform.transforms:
        return normalization(transform.transforms[-1])
    if isinstance(transform, MultiView):
        return normalization(transform.views[0][1])
    return 0.0, 1.0


def _picture(sample: Mapping[str, Any], mean: Any, std: Any) -> np.ndarray:
    """Return the used part of the image, its targets drawn over it."""
    pixels = viewable(sample["image"], mean, std)
    for label, plane in _planes(sample, pixels.shape[:2]):
        color = np.array(_rgb(label), np.float32)
        mixed = (1 - _MASK_WEIGHT) * pixels + _MASK_WEIGHT * color
        pixels = np.where(plane[:, :, None], mixed, pixels).astype(np.uint8)

    image = Image.fromarray(pixels)
    pen = ImageDraw.Draw(image)
    for number, box in enumerate(sample.get("boxes", ())):
        if np.any(box):
            pen.rectangle(_inner(box), outline=COLORS[number % len(COLORS)])
    for x, y in _points(sample):
        pen.ellipse((x - 2.5, y - 2.5, x + 2.5, y + 2.5), fill="#ffffff", outline="#d00000")

    height, width = sample.get("size", pixels.shape[:2])
    return np.asarray(image)[:height, :width]


def _planes(sample: Mapping[str, Any], shape: tuple[int, ...]) -> list[tuple[int, np.ndarray]]:
    """Return (label, bool[h, w]) of the classes but 0, and of the instances."""
    planes = list(enumerate(np.asarray(sample.get("masks", ()), bool)))
    mask = sample.get("mask")
    if mask is None or np.shape(mask) != shape:
        return planes
    labels = [label for label in np.unique(mask).tolist() if 0 < label < 255]
    return planes + [(int(label) - 1, np.equal(mask, label)) for label in labels]


def _points(sample: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the places of the keypoints that are visible."""
    rows = np.asarray(sample.get("keypoints", np.zeros((0, 2))))
    seen = rows[:, 2] > 0 if rows.shape[1] == 3 else np.ones(len(rows), bool)
    return [(float(x), float(y)) for x, y in rows[seen, :2]]


def _inner(box: np.ndarray) -> tuple[float, float, float, float]:
    """Return the pixels on the inside of a half-open box."""
    left, top, right, bottom = (float(side) for side in box)
    return left, top, max(left, right - 1), max(top, bottom - 1)


def _rgb(number: int) -> tuple[int, ...]:
    color = COLORS[number % len(COLORS)]
    return tuple(int(color[k : k + 2], 16) for k in (1, 3, 5))
