"""Windows and mirrors inside of an image, read as slices: on CPUs, where gathers are slow.

A gather computes the place of each value anew there; a slice copies rows, and a mirror is one
select. Elsewhere the gather stays: it fuses with what reads it.
"""

import jax.numpy as jnp
from jax import lax

from jaxaug._typing import Array, Scalar
from jaxaug.augment._warp import Warp
from jaxaug.augment.matrix import is_static


def is_window(image: Array, extent: tuple[Scalar, Scalar], warp: Warp) -> bool:
    """Return True where `warp` shows whole pixels of an image without an unused part, upright or
    mirrored, and nothing beyond it.
    """
    if warp.size is not None:  # the rest of its canvas may lie beyond the image
        return False
    moves_whole_pixels = warp.axis_aligned and warp.integer_aligned and warp.inside_source
    return moves_whole_pixels and all(map(is_static, extent)) and extent == image.shape[:2]


def read_window(image: Array, warp: Warp) -> Array:
    """Return the pixels that a warp shows for which `is_window`: [*warp.canvas, C]."""
    matrix = warp.matrix
    image, top = _mirrored(image, 0, matrix.yy, matrix.y1)
    image, left = _mirrored(image, 1, matrix.xx, matrix.x1)
    shape = (*warp.canvas, image.shape[2])
    if shape == image.shape:
        return image
    return lax.dynamic_slice(image, (top, left, jnp.int32(0)), shape)


def _mirrored(image: Array, axis: int, direction: Scalar, begin: Scalar) -> tuple[Array, Array]:
    """Return the image, mirrored where `direction` is -1, and the first pixel of the window."""
    begin = jnp.round(jnp.asarray(begin, jnp.float32)).astype(jnp.int32)
    if is_static(direction) and direction > 0:
        return image, begin
    mirrored = jnp.asarray(direction, jnp.float32) < 0
    begin = jnp.where(mirrored, image.shape[axis] - begin, begin)
    return jnp.where(mirrored, jnp.flip(image, axis), image), begin
