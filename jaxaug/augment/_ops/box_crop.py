"""Crops that look at the boxes, resized to one size: all of them inside, or one in the middle."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import jax.numpy as jnp

from jaxaug._typing import Array, Key
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Interpolation,
    Size,
    UnitRange,
    as_number,
)
from jaxaug.augment._chain import Geometric
from jaxaug.augment._ops.crop import Window, resized_window
from jaxaug.augment._warp import Resampling, Warp, hulls, present
from jaxaug.augment.random import between, integer, uniform


@dataclass(frozen=True)
class BoxCrop(Geometric):
    """A window that depends on the boxes, resized."""

    size: Size
    _: KW_ONLY
    interpolation: Interpolation = "bilinear"

    def warp(self, params: Window, info: ImageInfo) -> Warp:
        """Return the crop, then the resize."""
        window = jnp.stack([params.height, params.width])
        return resized_window((params.top, params.left), window, info.canvas, self.size)

    def resampling(self) -> Resampling:
        """Return the resampling with its interpolation."""
        return Resampling(self.interpolation)


@dataclass(frozen=True)
class RandomSizedBoxSafeCrop(BoxCrop):
    """Crop a random window that holds all boxes, and resize it to one size, antialiased.

    Each side of the window lies uniformly between the hull of the boxes and the edge of the image;
    of an image without boxes, between a random point and the edge.

    Args:
      size: (height, width) of the output in pixels, or an int for a square.
      erosion_rate: the share of the hull, of its sides, that may be cut off, in [0, 1].
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[2.0, 2.0, 18.0, 18.0]])
      >>> sample = {"image": jnp.zeros((20, 30, 3), jnp.uint8), "boxes": boxes}
      >>> RandomSizedBoxSafeCrop(8)(jax.random.key(0), sample)["image"].shape
      (8, 8, 3)

    Reference: `albumentations.RandomSizedBBoxSafeCrop`.
    """

    erosion_rate: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.0

    def make_params(self, key: Key, info: ImageInfo) -> Window:
        """Draw the window."""
        numbers = uniform(key, shape=(6,))
        height, width = (jnp.asarray(side, jnp.float32) for side in info.extent)
        point = jnp.stack([numbers[4] * width, numbers[5] * height] * 2)
        hull = point
        if info.boxes is not None and info.boxes.shape[0]:
            hull = _hull(info.boxes, point)
        margin = (hull[2:] - hull[:2]) * (self.erosion_rate / 2)
        sides = jnp.stack([width, height])
        low = jnp.clip(hull[:2] + margin, 0.0, sides)
        high = jnp.clip(hull[2:] - margin, low, sides)
        return _window(low * numbers[:2], high + (sides - high) * numbers[2:4], info)


@dataclass(frozen=True)
class RandomCropNearBox(BoxCrop):
    """Crop about a box, each of its sides shifted at random, and resize it to one size.

    The box is one of the sample's, each as likely; of an image without boxes it is the image.

    Args:
      size: (height, width) of the output in pixels, or an int for a square.
      max_part_shift: (y, x), how far a side is shifted at most, in or out, as a share of the box's
        height and width, in [0, 1].
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[2.0, 2.0, 18.0, 18.0]])
      >>> sample = {"image": jnp.zeros((20, 30, 3), jnp.uint8), "boxes": boxes}
      >>> RandomCropNearBox(8)(jax.random.key(0), sample)["image"].shape
      (8, 8, 3)

    Reference: `albumentations.RandomCropNearBBox`, without a resize; the choice of an object is
    that of DALI's `segmentation.random_object_bbox`.
    """

    max_part_shift: UnitRange = (0.0, 0.3)

    def make_params(self, key: Key, info: ImageInfo) -> Window:
        """Draw the box and the shifts."""
        numbers = uniform(key, shape=(5,))
        height, width = (jnp.asarray(side, jnp.float32) for side in info.extent)
        # Not zeros, which would be no values of the sample on an explicit mesh.
        box = jnp.stack([width - width, height - height, width, height])
        if info.boxes is not None and info.boxes.shape[0]:
            box = _one_of(info.boxes, numbers[4], box)
        low, high = box[:2], box[2:]
        reach = (high - low) * jnp.stack([jnp.float32(part) for part in self.max_part_shift[::-1]])
        low = low + between(numbers[:2], -reach, reach)
        high = high + between(numbers[2:4], -reach, reach)
        return _window(low, high, info)


def _hull(boxes: Array, otherwise: Array) -> Array:
    """Return (left, top, right, bottom) about all boxes; `otherwise` without any."""
    here = present(boxes)[:, None]
    boxes = hulls(boxes.astype(jnp.float32))
    low = jnp.min(jnp.where(here, boxes[:, :2], jnp.inf), axis=0)
    high = jnp.max(jnp.where(here, boxes[:, 2:], -jnp.inf), axis=0)
    return jnp.where(here.any(), jnp.concatenate([low, high]), otherwise)


def _one_of(boxes: Array, number: Array, otherwise: Array) -> Array:
    """Return one of the boxes by a number in [0, 1); `otherwise` without any."""
    here = present(boxes)
    rank = jnp.cumsum(here, dtype=jnp.int32) - 1
    count = jnp.sum(here, dtype=jnp.int32)
    chosen = here & (rank == integer(number, 0, jnp.maximum(count, 1)))
    box = jnp.sum(jnp.where(chosen[:, None], hulls(boxes.astype(jnp.float32)), 0.0), axis=0)
    return jnp.where(here.any(), box, otherwise)


def _window(low: Array, high: Array, info: ImageInfo) -> Window:
    """Return whole pixels inside of the image that hold (x, y) low to high, at least one."""
    height, width = (jnp.asarray(side, jnp.int32) for side in info.height_width)
    left, top = jnp.floor(low).astype(jnp.int32)
    right, bottom = jnp.ceil(high).astype(jnp.int32)
    left = jnp.clip(left, 0, width - 1)
    top = jnp.clip(top, 0, height - 1)
    right = jnp.clip(right, left + 1, width)
    bottom = jnp.clip(bottom, top + 1, height)
    return Window(top, left, bottom - top, right - left)
