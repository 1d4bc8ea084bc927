"""The used part of a canvas: the top-left `size`, all of the array where that is None.

`size` is int32[2], (height, width). What lies beyond it is neither read nor defined afterwards.
"""

from typing import Any

import jax.numpy as jnp

from jaxaug._typing import Array


def extent(image: Array, size: Any) -> tuple[Array, Array]:
    """Return the used height and width, int32."""
    height_width = jnp.asarray(image.shape[:2] if size is None else size, jnp.int32)
    return height_width[0], height_width[1]


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
    length = extent(image, size)[axis]
    index = jnp.arange(-before, image.shape[axis] + after, dtype=jnp.int32)
    return jnp.take(image, reflect(index, length), axis=axis, mode="clip")


def reflect(index: Array, length: Array) -> Array:
    """Return indices, int32, folded into [0, length): 3 2 | 1 2 3 4 | 3 2."""
    period = jnp.maximum(2 * length - 2, 1)
    index = jnp.abs(index) % period
    return jnp.minimum(index, period - index)
