"""Random draws of a transform on one sample, as pictures with boxes, masks and keypoints."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw

from jaxaug._typing import Key, Sample
from jaxaug.augment import Compose, FiveCrop, GroupCompose, MultiView, Normalize
from jaxaug.iterators.export.viewable import color_of, planes, rgb_of, viewable, visible_points

_AS_IT_IS = (0.0, 1.0)  # the mean and std that change nothing
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
    """Return the mean and std of the last `Normalize` in a chain or its views; (0, 1) without."""
    if isinstance(transform, Normalize):
        return transform.mean, transform.std
    steps = ()
    if isinstance(transform, (Compose, GroupCompose)):
        steps = transform.transforms
    elif isinstance(transform, (MultiView, FiveCrop)):
        steps = transform.chains
    found = [normalization(step) for step in steps]
    return next((each for each in reversed(found) if each != _AS_IT_IS), _AS_IT_IS)


def _picture(sample: Mapping[str, Any], mean: Any, std: Any) -> np.ndarray:
    """Return the used part of the image, its targets drawn over it."""
    pixels = viewable(sample["image"], mean, std)
    for number, plane in planes(sample, pixels.shape[:2]):
        color = np.array(rgb_of(number), np.float32)
        mixed = (1 - _MASK_WEIGHT) * pixels + _MASK_WEIGHT * color
        pixels = np.where(plane[:, :, None], mixed, pixels).astype(np.uint8)

    image = Image.fromarray(pixels)
    pen = ImageDraw.Draw(image)
    for number, box in enumerate(sample.get("boxes", ())):
        if np.any(box):
            pen.rectangle(_inner(box), outline=color_of(number))
    for x, y in visible_points(sample).tolist():
        pen.ellipse((x - 2.5, y - 2.5, x + 2.5, y + 2.5), fill="#ffffff", outline="#d00000")

    height, width = sample.get("size", pixels.shape[:2])
    return np.asarray(image)[:height, :width]


def _inner(box: np.ndarray) -> tuple[float, float, float, float]:
    """Return the pixels on the inside of a half-open box."""
    left, top, right, bottom = (float(side) for side in box)
    return left, top, max(left, right - 1), max(top, bottom - 1)
