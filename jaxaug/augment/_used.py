"""The used part of a canvas for the pure halves, which take its `size` beside an image.

`size` is int32[2], the top-left (height, width); None where all of the array is used. What lies
beyond it is neither read nor defined afterwards.
"""

from typing import Any

import jax.numpy as jnp

from jaxaug._typing import Array
from jaxaug.augment._info import ImageInfo


def info_of(image: Array, size: Any) -> ImageInfo:
    """Return the facts about an image [H, W, C]."""
    canvas = (image.shape[0], image.shape[1])
    return ImageInfo(canvas, None if size is None else jnp.asarray(size, jnp.int32))


def extent(image: Array, size: Any) -> tuple[Array, Array]:
    """Return the used height and width, int32."""
    height, width = info_of(image, size).height_width
    return jnp.asarray(height, jnp.int32), jnp.asarray(width, jnp.int32)


def inside(image: Array, size: Any, margin: int = 0) -> Array:
    """Return bool[H, W], True on the used part but for `margin` pixels at each of its sides."""
    height, width = extent(image, size)
    y = jnp.arange(image.shape[0], dtype=jnp.int32)
    x = jnp.arange(image.shape[1], dtype=jnp.int32)
    rows = (y >= margin) & (y < height - margin)
    columns = (x >= margin) & (x < width - margin)
    return rows[:, None] & columns[None, :]


def mirrored(image: Array, before: int, after: int, axis: int, size: Any) -> Array:
    """Return `image` with pixels added along `axis`: 3 2 | 1 2 3 4 | 3 2, about the used edges."""
    index = jnp.arange(-before, image.shape[axis] + after, dtype=jnp.int32)
    return jnp.take(image, info_of(image, size).border(axis, index), axis=axis, mode="clip")
