"""How one axis is read: its padding, the kernels of the interpolations, and the weighed taps.

Padding is a rule for indices: the pixel that stands at a position outside of an image.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Scalar
from jaxaug.augment._xla import barrier

PADDING_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def fold(index: Array, length: Scalar, mode: str) -> Array:
    """Return float indices, also between two pixels, folded into [0, length - 1].

    Args:
      index: positions of pixels, pixel 0 at 0.
      length: of the axis, a float or float32.
      mode: one of PADDING_MODES; "constant" folds as "edge" does.
    """
    length = jnp.asarray(length, jnp.float32)
    if mode == "wrap":
        index = _modulo(index, length)
    elif mode == "reflect":  # 4 3 2 | 1 2 3 4 | 3 2 1
        period = jnp.maximum(2 * length - 2, 1.0)
        index = jnp.abs(_modulo(index, period))
        index = jnp.minimum(index, period - index)
    elif mode == "symmetric":  # 3 2 1 | 1 2 3 4 | 4 3 2
        index = _modulo(index, 2 * length)
        index = jnp.minimum(index, 2 * length - 1 - index)
    return jnp.clip(index, 0.0, length - 1)


def _modulo(index: Array, period: Array) -> Array:
    """Return `index` modulo `period`, from -1/2 to `period` - 1/2.

    XLA multiplies by the reciprocal of a constant period, and the quotient of two integers may fall
    just below an integer; half a pixel more keeps it away from there. jnp.mod calls fmod for every
    pixel on CPUs.
    """
    return index - period * jnp.floor((index + 0.5) / period)


class Kernel(NamedTuple):
    """The weights of the pixels around a position.

    Attributes:
      radius: the distance in pixels from which on the weight is 0.
      weight: the function of the place of a pixel minus that position.
      overshoots: True where weights may be negative, so that a mixture may leave the range of what
        is mixed.
    """

    radius: int
    weight: Callable[[Array], Array]
    overshoots: bool


@jax.custom_jvp
def _triangle(offset: Array) -> Array:
    """Return 1 - |d|, and 0 from a distance of 1 on."""
    return jnp.maximum(0.0, 1.0 - jnp.abs(offset))


@_triangle.defjvp
def _triangle_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Take the derivatives at the three kinks from one side, that of a growing position.

    JAX's own rules for `abs` and `maximum` halve them there, and so would the gradient be wherever
    a position lies on a pixel.
    """
    (offset,), (change,) = primals, tangents
    rising = (offset > -1) & (offset <= 0)
    falling = (offset > 0) & (offset <= 1)
    derivative = rising.astype(jnp.float32) - falling.astype(jnp.float32)
    return _triangle(offset), derivative * change


def _cubic(offset: Array) -> Array:
    """Return the cubic convolution with a = -1/2, that of PIL's resize.

    Reference: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981,
      equation 15.
    """
    distance = jnp.abs(offset)
    near = (1.5 * distance - 2.5) * distance * distance + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return jnp.where(distance < 1, near, jnp.where(distance < 2, far, 0.0))


KERNELS = {"bilinear": Kernel(1, _triangle, False), "bicubic": Kernel(2, _cubic, True)}
INTERPOLATIONS = (*KERNELS, "nearest")


MAX_UNROLLED = 32  # taps of an axis that are terms of the program: each takes 0.1 s to compile


class Axis(NamedTuple):
    """What one axis is, and the static bounds of its reads."""

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
    return barrier(lax.stop_gradient(floor)) if floor.ndim == 1 else floor


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
