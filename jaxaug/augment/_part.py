"""Separable reads of the part of a large canvas that their taps touch: on CPUs.

There a read costs what its canvas is large, and its bound of taps is that of the largest image,
although most images use a part of the canvas, and a random crop a part of that.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxaug._typing import Array
from jaxaug.augment._slope import with_slope_of

# A branch for each is compiled, which small canvases do not repay.
_FRACTIONS = (1 / 4, 1 / 2, 3 / 4)
_MIN_PIXELS = 2**18


def read_part(read: Callable[..., Array], image: Array, rows: Any, columns: Any) -> Array:
    """Return `read(image, rows, columns)`.

    Where images are computed one after the other, the smallest fraction of the canvas and of the
    taps that holds all of them is read. Of images that are vmapped, all: XLA would compute every
    branch for each of them.

    Args:
      read: sums `image` over the taps of rows and columns.
      image: [H, W, C].
      rows, columns: taps with `indices` and `weights`, lists of vectors.
    """
    if image.shape[0] * image.shape[1] < _MIN_PIXELS:
        return read(image, rows, columns)

    @custom_vmap
    def part(*operands: Any) -> Array:
        return _smallest(read, *operands)

    @part.def_vmap
    def all_at_once(size: int, batched: Any, *operands: Any) -> tuple[Array, bool]:
        axes = jax.tree.map(lambda each: 0 if each else None, batched)
        return jax.vmap(read, tuple(axes), axis_size=size)(*operands), True

    in_parts = with_slope_of(read)(part)
    return lax.platform_dependent(image, rows, columns, cpu=in_parts, default=read)


def _smallest(read: Callable[..., Array], image: Array, rows: Any, columns: Any) -> Array:
    """Read the smallest fraction that holds all taps whose weight is not 0."""
    reads = [functools.partial(_read_fraction, read, fraction) for fraction in _FRACTIONS]
    too_small = [
        ~(_holds(rows, image.shape[0], fraction) & _holds(columns, image.shape[1], fraction))
        for fraction in _FRACTIONS
    ]
    branch = functools.reduce(jnp.add, [each.astype(jnp.int32) for each in too_small])
    return lax.switch(branch, [*reads, read], image, rows, columns)


def _holds(taps: Any, length: int, fraction: float) -> Array:
    """Return True where a fraction of an axis, and of its taps, is all that counts."""
    count = _fraction_of(len(taps.indices), fraction)
    first, last = _span(taps.indices[:count])
    rest = [jnp.any(weight != 0) for weight in taps.weights[count:]]
    more = functools.reduce(jnp.logical_or, rest, jnp.bool_(False))
    return ~more & (last - first < _fraction_of(length, fraction))


def _span(indices: list[Array]) -> tuple[Array, Array]:
    """Return the first and the last of the places."""
    first = functools.reduce(jnp.minimum, indices).min()
    last = functools.reduce(jnp.maximum, indices).max()
    return first, last


def _read_fraction(
    read: Callable[..., Array], fraction: float, image: Array, rows: Any, columns: Any
) -> Array:
    """Read the window of a fraction of the image where the taps begin, with so many of them."""
    starts, sides, taps = [], [], []
    for axis, each in enumerate((rows, columns)):
        count = _fraction_of(len(each.indices), fraction)
        side = _fraction_of(image.shape[axis], fraction)
        first, _ = _span(each.indices[:count])
        start = jnp.minimum(first, image.shape[axis] - side)
        starts.append(start)
        sides.append(side)
        indices = [index - start for index in each.indices[:count]]
        taps.append(each._replace(indices=indices, weights=each.weights[:count]))

    window = lax.dynamic_slice(image, (*starts, jnp.int32(0)), (*sides, image.shape[2]))
    return read(window, *taps)


def _fraction_of(count: int, fraction: float) -> int:
    return math.ceil(count * fraction - 1e-6)
