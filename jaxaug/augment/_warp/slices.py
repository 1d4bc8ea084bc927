"""Reads as slices, on CPUs: they cost what is read, not what the canvas is large.

A gather computes the place of each value anew there; a slice copies rows, and a mirror is one
select. And the bound of taps is that of the largest image, although most images use a part of the
canvas, and a random crop a part of that. Elsewhere the gather of all stays: it fuses with what
reads it.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from jaxaug._typing import Scalar
from jaxaug.augment._warp.warp import Warp
from jaxaug.augment._xla import split_arrays, with_jvp_of
from jaxaug.augment.matrix import is_static

# Of the canvas, or of the taps. A branch for each is compiled, which small canvases do not repay.
FRACTIONS = (1 / 4, 1 / 2, 3 / 4)
_MIN_PIXELS = 2**18


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
    image, top = _flipped(image, 0, matrix.yy, matrix.y1)
    image, left = _flipped(image, 1, matrix.xx, matrix.x1)
    shape = (*warp.canvas, image.shape[2])
    if shape == image.shape:
        return image
    return lax.dynamic_slice(image, (top, left, jnp.int32(0)), shape)


def _flipped(image: Array, axis: int, direction: Scalar, begin: Scalar) -> tuple[Array, Array]:
    """Return the image, mirrored where `direction` is -1, and the first pixel of the window."""
    begin = jnp.round(jnp.asarray(begin, jnp.float32)).astype(jnp.int32)
    if is_static(direction) and direction > 0:
        return image, begin
    mirrored = jnp.asarray(direction, jnp.float32) < 0
    begin = jnp.where(mirrored, image.shape[axis] - begin, begin)
    return jnp.where(mirrored, jnp.flip(image, axis), image), begin


def has_parts(image: Array) -> bool:
    """Return True for a canvas of which it pays to read a part."""
    return image.shape[0] * image.shape[1] >= _MIN_PIXELS


def compute_smallest(
    branches: Sequence[Callable[..., Array]],
    too_small: Callable[..., Sequence[Array]],
    *operands: Any,
) -> Array:
    """Return what the first branch that suffices gives, for images that CPUs compute sequentially.

    Of images that are vmapped, and on other devices, the last branch is computed: XLA would compute
    every branch for each of them.

    Args:
      branches: functions of the operands, each with no less than the one before; all that suffice
        give the same, and the last one always does.
      too_small: a function of the operands: a bool for each branch but the last.
      operands: pytrees. Their arrays are traced; numbers and strings stay what they are. No
        function closes over traced values.
    """
    arrays, join = split_arrays(operands)

    def of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arrays: function(*join(arrays))

    largest = of_arrays(branches[-1])

    @custom_vmap
    def smallest(*arrays: Array) -> Array:
        conditions = of_arrays(too_small)(*arrays)
        place = functools.reduce(jnp.add, [each.astype(jnp.int32) for each in conditions])
        return lax.switch(place, [*map(of_arrays, branches)], *arrays)

    @smallest.def_vmap
    def all_at_once(size: int, batched: Sequence[bool], *arrays: Array) -> tuple[Array, bool]:
        axes = [0 if each else None for each in batched]
        return jax.vmap(largest, axes, axis_size=size)(*arrays), True

    sequential = with_jvp_of(largest)(smallest)
    return lax.platform_dependent(*arrays, cpu=sequential, default=largest)


def fraction_of(count: int, fraction: float) -> int:
    """Return a fraction of a count, rounded up."""
    return math.ceil(count * fraction - 1e-6)


def read_part(read: Callable[..., Array], image: Array, rows: Any, columns: Any) -> Array:
    """Return `read(image, rows, columns)`: `compute_smallest` of the fractions of the canvas and of
    the taps that hold all of them.

    Args:
      read: sums `image` over the taps of rows and columns.
      image: [H, W, C].
      rows, columns: taps with `indices` and `weights`, lists of vectors.
    """
    if not has_parts(image):
        return read(image, rows, columns)

    def too_small(image: Array, rows: Any, columns: Any) -> list[Array]:
        height, width, _ = image.shape
        return [~(_holds(rows, height, each) & _holds(columns, width, each)) for each in FRACTIONS]

    parts = [functools.partial(_read_fraction, read, fraction) for fraction in FRACTIONS]
    return compute_smallest([*parts, read], too_small, image, rows, columns)


def _holds(taps: Any, length: int, fraction: float) -> Array:
    """Return True where a fraction of an axis, and of its taps, is all that counts."""
    count = fraction_of(len(taps.indices), fraction)
    first, last = _span(taps.indices[:count])
    rest = [jnp.any(weight != 0) for weight in taps.weights[count:]]
    more = functools.reduce(jnp.logical_or, rest, jnp.bool_(False))
    return ~more & (last - first < fraction_of(length, fraction))


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
        count = fraction_of(len(each.indices), fraction)
        side = fraction_of(image.shape[axis], fraction)
        first, _ = _span(each.indices[:count])
        start = jnp.minimum(first, image.shape[axis] - side)
        starts.append(start)
        sides.append(side)
        indices = [index - start for index in each.indices[:count]]
        taps.append(each._replace(indices=indices, weights=each.weights[:count]))

    window = lax.dynamic_slice(image, (*starts, jnp.int32(0)), (*sides, image.shape[2]))
    return read(window, *taps)
