"""The pixels that a resample reads along one axis, and their weights."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxaug._typing import Array, Scalar
from jaxaug.augment._border import fold
from jaxaug.augment._boundary import computed_once
from jaxaug.augment._kernels import Kernel

MAX_UNROLLED = 32  # taps of an axis that are terms of the program: each takes 0.1 s to compile


class Axis(NamedTuple):
    """The static facts and bounds of one axis."""

    extent: Scalar  # the used length, a float
    window: tuple[Scalar, Scalar] | None  # the first and last pixel that may be read, not folded
    mode: str
    fills: bool  # positions outside of the source take the fill
    framed: bool  # see Warp
    kernel: Kernel | None  # None: read the pixel under the position
    taps: int
    most: float  # an upper bound of the kernel's stretch


class Taps(NamedTuple):
    """The pixels that are read along one axis, and their weights.

    Of more than `MAX_UNROLLED` taps, each array of `indices` and `weights` holds several: along one
    more axis, the first.

    Attributes:
      indices: int32, one array a tap.
      weights: float32, one array a tap; none for an exact read.
      scale: 1 / the sum of the weights, times the coverage of a framed axis; 1 for an exact read.
      coverage: the share of the source in the result, the rest being fill; None where that is all.
        For an exact read a bool.
    """

    indices: list[Array]
    weights: list[Array]
    scale: Array
    coverage: Array | None


def tap_count(max_shrink: float, kernel: Kernel) -> int:
    """Return the taps along an axis on which at most `max_shrink` source pixels meet in one."""
    width = 2 * kernel.radius * max(1.0, max_shrink)
    return math.ceil(width - 1e-4)  # products of bounds carry rounding


def find_taps(position: Array, scale: Array, axis: Axis) -> Taps:
    """Return the taps of source positions (edge coordinates) along one axis."""
    kernel = axis.kernel
    if kernel is None:
        index = jnp.floor(position)
        inside = _inside(index, axis) if axis.fills else None
        return Taps(
            [fold(index, axis.extent, axis.mode).astype(jnp.int32)],
            [],
            jnp.ones_like(scale),
            inside,
        )
    stretches = axis.taps > 2 * kernel.radius
    stretch = jnp.clip(scale, 1.0, axis.most) if stretches else jnp.ones_like(scale)
    # Multiplied, not divided: for a division by one number XLA does either, not the same on one
    # device and on several.
    inverse = 1.0 / stretch
    center = fold(position - 0.5, axis.extent, axis.mode) if axis.framed else position - 0.5
    first = _settled(jnp.floor(center - kernel.radius * stretch)) + 1
    turns = math.ceil(axis.taps / MAX_UNROLLED)

    def weighed(first: Array) -> tuple[list[Array], list[Array]]:
        indices = [first + tap for tap in range(0, axis.taps, turns)]
        return indices, [kernel.weight((index - center) * inverse) for index in indices]

    if turns == 1:
        indices, weights = weighed(first)
    else:
        starts = jnp.arange(turns, dtype=jnp.float32)
        indices, weights = jax.vmap(lambda start: weighed(first + start))(starts)
    if axis.window is not None:
        low, high = axis.window
        weights = [jnp.where((i >= low) & (i <= high), w, 0.0) for i, w in zip(indices, weights)]

    # The unused part of a canvas may lie outside of the window with all its taps.
    scaling = 1.0 / jnp.maximum(_sum_of_weights(weights, position.ndim), 1e-3)
    coverage = None
    if axis.fills and axis.framed:
        coverage = _ramp(position, scale, axis)
        scaling = scaling * coverage
    elif axis.fills:
        weights = [jnp.where(_inside(i, axis), w, 0.0) for i, w in zip(indices, weights)]
        coverage = scaling * _sum_of_weights(weights, position.ndim)
    return Taps(
        [fold(i, axis.extent, axis.mode).astype(jnp.int32) for i in indices],
        weights,
        scaling,
        coverage,
    )


def _settled(floor: Array) -> Array:
    """Return `floor`, computed once for the indices and the weights that begin there.

    Where the kernel ends on a whole pixel, two roundings of one position may have two floors, and
    XLA may compute vectors once for each. Planes are part of the one computation that reads them.
    """
    return computed_once(lax.stop_gradient(floor)) if floor.ndim == 1 else floor


def _inside(index: Array, axis: Axis) -> Array:
    return (index >= 0) & (index <= axis.extent - 1)


def _ramp(position: Array, scale: Array, axis: Axis) -> Array:
    """Return the share of an output pixel that lies inside the source."""
    inverse = 1.0 / jnp.maximum(scale, 1e-6)
    before = jnp.clip(position * inverse + 0.5, 0.0, 1.0)
    behind = jnp.clip((axis.extent - position) * inverse + 0.5, 0.0, 1.0)
    return before * behind


def sum_of_taps(term: Callable[..., Array], *taps: list[Array], ndim: int) -> Array:
    """Return the sum of `term` over the taps: the arrays that have more than `ndim` axes in turns.

    Args:
      term: of one tap from each list.
      taps: lists of equal lengths.
      ndim: of one tap.
    """

    def of_arrays(taps: Any) -> Array:
        return functools.reduce(jnp.add, map(term, *taps))

    def turn(total: Array, taps: Any) -> tuple[Array, None]:
        return total + of_arrays(taps), None

    if taps[0][0].ndim == ndim:
        return of_arrays(taps)
    zero = jnp.zeros_like(term(*(each[0][0] for each in taps)))
    return lax.scan(turn, zero, taps)[0]


def _sum_of_weights(weights: list[Array], ndim: int) -> Array:
    return sum_of_taps(lambda weight: weight, weights, ndim=ndim)
