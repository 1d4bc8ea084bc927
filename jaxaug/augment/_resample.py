"""The one resample of a run of geometric ops.

The source position of an output pixel centre is folded into the source by the padding mode; a triangle kernel
then reads its taps, dropping those outside and renormalising, as PIL does at borders. Its half-width is the
number of source pixels per output pixel, at least 1: bilinear when enlarging, antialiased when shrinking.

Axis-aligned maps go one axis at a time, the rest as a two-dimensional gather. Both are sums over a static
number of taps; neither is a dot, whose rounding would depend on the batch size.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxaug._checks import check_choice
from jaxaug._typing import Array, Scalar
from jaxaug.augment._factor import Factor
from jaxaug.augment._matrix import transform_points

INTERPOLATIONS = ("bilinear", "nearest")
PADDING_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


class _Axis(NamedTuple):
    """What one axis of the source asks of its taps."""

    extent: Scalar  # the used length, a float
    low: Scalar  # the first and the last pixel that may be read
    high: Scalar
    mode: str
    taps: int  # 1: read the pixel under the position
    most: float  # an upper bound of the kernel's half-width


class _Taps(NamedTuple):
    """Which pixels are read along one axis, with what weights, and how much of the position lies inside."""

    indices: list[Array]
    weights: list[Array]
    coverage: Array | None


def resample(
    image: Array,
    extent: tuple[Scalar, Scalar],
    factor: Factor,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | Sequence[float] = 0.0,
) -> Array:
    """Read `image` [H, W, C] at the places that `factor` names.

    Args:
      image: uint8, or any dtype of [0, 1] values.
      extent: its used (height, width) as floats.
      factor: the pull map with its output canvas.
      interpolation: one of INTERPOLATIONS.
      padding_mode: one of PADDING_MODES, for positions outside of the used part.
      fill: the colour of "constant" in [0, 1], a scalar or one a channel.

    Returns:
      [*factor.canvas, C]: the dtype of `image` where pixels are read as they are ("nearest", or a factor that
      moves whole pixels), else float32 in [0, 1].
    """
    exact = factor.whole or interpolation == "nearest"
    y_axis, x_axis = _axes(factor, extent, padding_mode, exact)
    x = jnp.arange(factor.canvas[1], dtype=jnp.float32) + 0.5
    y = jnp.arange(factor.canvas[0], dtype=jnp.float32) + 0.5
    if factor.matrix.axis_aligned:
        source_x, source_y, _ = transform_points(factor.matrix, x, y)
        rows = _taps(source_y, jnp.abs(_f32(factor.matrix.yy)), y_axis)
        columns = _taps(source_x, jnp.abs(_f32(factor.matrix.xx)), x_axis)
        colour = _read_separably(image, rows, columns)
        rows, columns = _stretch(rows.coverage, (1, 2)), _stretch(columns.coverage, (0, 2))
    else:
        source_x, source_y, w = transform_points(factor.matrix, x[None, :], y[:, None])
        scale_x, scale_y = _footprint(factor.matrix, source_x, source_y, w)
        rows, columns = _taps(source_y, scale_y, y_axis), _taps(source_x, scale_x, x_axis)
        colour = _read_plane(image, rows, columns)
        rows, columns = _stretch(rows.coverage, (2,)), _stretch(columns.coverage, (2,))
    if image.dtype == jnp.uint8 and not exact:
        colour = colour / 255
    return colour if rows is None or columns is None else _blend(colour, rows * columns, fill)


def warp(
    image: Array,
    factor: Factor,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | Sequence[float] = 0.0,
) -> Array:
    """`resample` for a plain image, all of it used; uint8 gives uint8, and a float dtype itself."""
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    check_choice("padding_mode", padding_mode, PADDING_MODES)
    image = jnp.asarray(image)
    if image.ndim != 3:
        raise ValueError(f"expected one image (h, w, channels), got {image.shape}.")
    extent = (float(image.shape[0]), float(image.shape[1]))
    warped = resample(image, extent, factor, interpolation, padding_mode, fill)
    if image.dtype == jnp.uint8 and warped.dtype != jnp.uint8:
        warped = jnp.round(jnp.clip(warped, 0.0, 1.0) * 255)
    return warped.astype(image.dtype)


def _axes(factor: Factor, extent, mode: str, exact: bool) -> tuple[_Axis, _Axis]:
    """The y and the x axis."""
    mode = "edge" if factor.keeps else mode
    # A folded position may leave the window of a crop that padded by reflection.
    window = factor.window if mode in ("constant", "edge") else None
    begins, ends = ((0.0, 0.0), extent) if window is None else (window[:2], window[2:])
    axes = []
    for length, begin, end, shrink in zip(extent, begins, ends, factor.shrink):
        most = max(1.0, shrink)
        taps = 1 if exact else math.ceil(2 * most - 1e-4)  # products of bounds carry rounding
        low, high = _clip(begin, 0.0, length - 1), _clip(end - 1, 0.0, length - 1)
        axes.append(_Axis(length, low, high, mode, taps, most))
    return axes[0], axes[1]


def _taps(position: Array, scale: Array, axis: _Axis) -> _Taps:
    """The taps of source positions (edge coordinates) along one axis."""
    half = jnp.ones_like(scale) if axis.taps <= 2 else jnp.clip(scale, 1.0, axis.most)
    # Multiplied, not divided: for a division by one number XLA does either, not the same on one device and on several.
    inverse = 1.0 / half
    coverage = _coverage(position, inverse, axis) if axis.mode == "constant" else None
    if axis.taps == 1:
        return _Taps([_fold(jnp.floor(position), axis).astype(jnp.int32)], [], coverage)
    centre = _fold(position - 0.5, axis)
    first = jnp.floor(centre - half) + 1
    indices, weights = [], []
    for tap in range(axis.taps):
        index = first + tap
        weight = jnp.maximum(0.0, 1.0 - jnp.abs(index - centre) * inverse)
        if axis.mode == "wrap":
            index = _modulo(index, axis.extent)
        else:
            weight = jnp.where((index >= axis.low) & (index <= axis.high), weight, 0.0)
            index = jnp.clip(index, axis.low, axis.high)
        indices.append(index.astype(jnp.int32))
        weights.append(weight)
    return _Taps(indices, weights, coverage)


def _fold(centre: Array, axis: _Axis) -> Array:
    """Fold positions, in which pixel i is i, into [low, high], or for "wrap" into [0, extent)."""
    length = axis.extent
    if axis.mode == "wrap":
        return _modulo(centre, length)
    if axis.mode == "reflect":  # 4 3 2 | 1 2 3 4 | 3 2 1
        period = jnp.maximum(_f32(2 * length - 2), 1.0)
        centre = _modulo(centre, period)
        centre = jnp.minimum(centre, period - centre)
    elif axis.mode == "symmetric":  # 3 2 1 | 1 2 3 4 | 4 3 2
        centre = _modulo(centre + 0.5, 2 * length)
        centre = jnp.minimum(centre, 2 * length - centre) - 0.5
    return jnp.clip(centre, axis.low, axis.high)


def _modulo(value: Array, period: Scalar) -> Array:
    """`value` modulo `period`; jnp.mod would call fmod for every pixel on CPUs."""
    return value - period * jnp.floor(value / period)


def _coverage(position: Array, inverse: Array, axis: _Axis) -> Array:
    """The share of a footprint that lies inside; with half-width 1, bilinear with a filled border."""
    if axis.taps == 1:
        return ((position >= 0) & (position < axis.extent)).astype(jnp.float32)
    before, behind = position * inverse + 0.5, (axis.extent - position) * inverse + 0.5
    return jnp.clip(before, 0.0, 1.0) * jnp.clip(behind, 0.0, 1.0)


def _footprint(matrix, source_x: Array, source_y: Array, w) -> tuple[Array, Array]:
    """Source pixels per output pixel along x and y: the row norms of the Jacobian."""
    if matrix.affine:
        rows = ((matrix.xx, matrix.xy), (matrix.yx, matrix.yy))
    else:
        rows = tuple(
            ((a - source * matrix.wx) / w, (b - source * matrix.wy) / w)
            for a, b, source in ((matrix.xx, matrix.xy, source_x), (matrix.yx, matrix.yy, source_y))
        )
    x, y = (jnp.sqrt(_f32(a) * _f32(a) + _f32(b) * _f32(b)) for a, b in rows)
    return x, y


def _read_separably(image: Array, rows: _Taps, columns: _Taps) -> Array:
    """Columns first: gathering 3-vectors from uint8, then whole rows, is the fastest order on CPUs."""
    if not rows.weights:
        return _take_rows(_take_columns(image, columns.indices[0]), rows.indices[0])
    row_total, column_total = _sum(rows.weights), _sum(columns.weights)
    squeezed = _sum(
        [
            _take_columns(image, i).astype(jnp.float32) * (w / column_total)[None, :, None]
            for i, w in zip(columns.indices, columns.weights)
        ]
    )
    # Without the barrier a GPU may gather the columns anew for every row.
    squeezed = lax.optimization_barrier(squeezed)
    return _sum([_take_rows(squeezed, i) * (w / row_total)[:, None, None] for i, w in zip(rows.indices, rows.weights)])


def _read_plane(image: Array, rows: _Taps, columns: _Taps) -> Array:
    """Every tap of every output pixel, wherever it lies."""
    if not rows.weights:
        return _take(image, rows.indices[0], columns.indices[0])
    lines = []
    for i, row_weight in zip(rows.indices, rows.weights):
        terms = [
            _take(image, i, j).astype(jnp.float32) * w[:, :, None] for j, w in zip(columns.indices, columns.weights)
        ]
        lines.append(_sum(terms) * row_weight[:, :, None])
    return _sum(lines) / (_sum(rows.weights) * _sum(columns.weights))[:, :, None]


def _sum(terms: list[Array]) -> Array:
    return functools.reduce(jnp.add, terms)


def _take_rows(image: Array, index: Array) -> Array:
    return image.at[index].get(mode="promise_in_bounds")


def _take_columns(image: Array, index: Array) -> Array:
    return image.at[:, index].get(mode="promise_in_bounds")


def _take(image: Array, row: Array, column: Array) -> Array:
    return image.at[row, column].get(mode="promise_in_bounds")


def _blend(colour: Array, coverage: Array, fill) -> Array:
    """`colour` where it is covered, `fill` where it is not."""
    filling = jnp.asarray(fill, jnp.float32).reshape(1, 1, -1)
    if not jnp.issubdtype(colour.dtype, jnp.floating):  # read exactly: the coverage is 0 or 1
        scale = 255 if colour.dtype == jnp.uint8 else 1
        return jnp.where(coverage > 0, colour, jnp.round(filling * scale).astype(colour.dtype))
    blended = coverage * colour.astype(jnp.float32) + (1.0 - coverage) * filling
    return blended.astype(colour.dtype)


def _stretch(coverage: Array | None, axes: tuple[int, ...]) -> Array | None:
    return None if coverage is None else jnp.expand_dims(coverage, axes)


def _clip(value, low, high):
    """Python floats stay Python floats."""
    if all(isinstance(v, (int, float)) for v in (value, low, high)):
        return min(max(value, low), high)
    return jnp.clip(_f32(value), low, high)


def _f32(value) -> Array:
    return jnp.asarray(value, jnp.float32)
