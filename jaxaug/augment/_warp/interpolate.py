"""The one resample of a run of geometric ops.

A kernel around the source position of an output pixel's center weighs its taps. It is stretched by
the number of source pixels per output pixel, at least 1: interpolated when enlarging, antialiased
when shrinking. Taps outside of the source read what the padding mode puts there, as if the source
had been padded before. Taps outside of the frame that a resize was given are dropped and the others
renormalized, as PIL does.

Axis-aligned maps go one axis at a time, the rest as a two-dimensional gather. Both are sums over a
static number of taps, the many of a strong shrink in a loop; neither is a dot, whose rounding would
depend on the batch size.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxaug._checks import check_choice
from jaxaug._typing import Scalar
from jaxaug.augment._base import (
    INTERPOLATIONS,
    KERNELS,
    NO_EPILOGUE,
    PADDING_MODES,
    Axis,
    Epilogue,
    ImageInfo,
    Kernel,
    Taps,
    find_taps,
    is_pixels,
    stored_as,
    sum_of_taps,
    tap_count,
    top_level,
    unit,
)
from jaxaug.augment._cuda import choice
from jaxaug.augment._cuda import warp as cuda_warp
from jaxaug.augment._warp.slices import (
    FRACTIONS,
    compute_smallest,
    fraction_of,
    has_parts,
    is_window,
    read_part,
    read_window,
)
from jaxaug.augment._warp.warp import Displacement, Warp
from jaxaug.augment._xla import barrier_on_cpu
from jaxaug.augment.matrix import Matrix, inverse, transform_points


class _Interpolation(NamedTuple):
    """What is static of a resample that interpolates."""

    kernel: Kernel
    mode: str
    epilogue: Epilogue | None


def resample(
    image: Array,
    extent: tuple[Scalar, Scalar],
    warp: Warp,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | Sequence[float] = 0.0,
    epilogue: Epilogue | None = None,
) -> Array:
    """Read `image` [H, W, C] at the places that `warp` names.

    Args:
      image: uint8, uint16, or any dtype of [0, 1] values.
      extent: its used (height, width) as floats.
      warp: the pull map with its output canvas.
      interpolation: one of INTERPOLATIONS.
      padding_mode: one of PADDING_MODES, for positions outside of the used part.
      fill: the color of "constant" in [0, 1], a scalar or one per channel.
      epilogue: the map of the values in [0, 1].

    Returns:
      [*warp.canvas, C], finished. Without an epilogue the dtype of `image` where pixels are read as
      they are ("nearest", or a warp that moves whole pixels), else float32 in [0, 1]; of "bicubic"
      also a little beyond.
    """
    filling = jnp.asarray(fill, jnp.float32).reshape(1, 1, -1)
    if filling.shape[2] not in (1, image.shape[2]):
        raise ValueError(
            f"`fill` must be one number, or one per channel of the image {image.shape}, got {fill}."
        )
    if warp.integer_aligned or interpolation == "nearest":
        pixels = stored_as(filling, image.dtype)
        read = read_exactly(image, extent, warp, padding_mode, pixels)
        return _finished(read, KERNELS.get(interpolation), epilogue)
    settings = _Interpolation(KERNELS[interpolation], padding_mode, epilogue)
    operands = (image, extent, warp, filling)
    if warp.displacements or not cuda_warp.computes(image.dtype, epilogue):
        return _interpolate(settings, *operands)
    return choice.on_gpu(
        functools.partial(_interpolate_by_cuda, settings),
        functools.partial(_interpolate, settings),
        *operands,
    )


def read_exactly(
    image: Array,
    extent: tuple[Scalar, Scalar],
    warp: Warp,
    padding_mode: str,
    fill: Array,
) -> Array:
    """Read the pixels of `image` [H, W, C] under the places that `warp` names, as they are.

    Args:
      image: any dtype.
      extent, warp, padding_mode: as in `resample`.
      fill: the pixel of "constant" padding, in the dtype of `image`.

    Returns:
      [*warp.canvas, C], the dtype of `image`.
    """

    def gathered(image: Array) -> Array:
        rows, columns = _locate(extent, warp, padding_mode, None, (1, 1))
        if warp.axis_aligned:
            pixels = _take_rows(_take_columns(image, columns.indices[0]), rows.indices[0])
        else:
            pixels = _take(image, rows.indices[0], columns.indices[0])
        if rows.coverage is None or columns.coverage is None:
            return pixels
        return jnp.where(_outer(rows.coverage, columns.coverage), pixels, fill)

    if not is_window(image, extent, warp):
        return gathered(image)
    return lax.platform_dependent(
        image, cpu=functools.partial(read_window, warp=warp), default=gathered
    )


class Frame(NamedTuple):
    """What stands for an image of which the map alone is asked: see `warp_image`."""

    shape: tuple[int, int, int]


class MappedFrame(NamedTuple):
    """The map of a function of images, and how it pads."""

    warp: Warp
    padding_mode: str


def warp_image(
    image: Any,
    warp: Warp,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | Sequence[float] = 0.0,
) -> Any:
    """Return `resample` of a plain image, all of it used, in the dtype of the image.

    Of a `Frame` it returns the map itself.

    Raises:
      TypeError: for integers other than uint8 and uint16 that would be interpolated.
      ValueError: for an unknown interpolation or padding mode, and for anything but one image (h,
        w, c).
    """
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    check_choice("padding_mode", padding_mode, PADDING_MODES)
    if isinstance(image, Frame):
        return MappedFrame(warp, padding_mode)
    image = jnp.asarray(image)
    if image.ndim != 3:
        raise ValueError(f"expected one image (h, w, channels), got {image.shape}.")

    interpolates = interpolation != "nearest" and not warp.integer_aligned
    if interpolates and not is_pixels(image.dtype):
        got = f"{image.dtype}{list(image.shape)}"
        hint = "convert it with .astype('uint8'), or read it with interpolation='nearest'"
        raise TypeError(
            f"expected a uint8 or uint16 image, or a float image in [0, 1], got {got}: {hint}."
        )

    extent = (float(image.shape[0]), float(image.shape[1]))
    warped = resample(image, extent, warp, interpolation, padding_mode, fill)
    return stored_as(warped, image.dtype)


def unwarp(
    image: Array, warp: Warp, info: ImageInfo, interpolation: str = "bilinear", fill: float = 0.0
) -> Array:
    """Return a prediction about a warped image in the frame of the image before.

    Points go back by `warp.pull(x, y)`.

    Args:
      image: float [H, W, C] of `warp.canvas`, such as the logits of a segmentation.
      warp: of geometric transforms: `chain.warp(params, info)`.
      info: of the image before, as it was given to `chain.make_params`.
      interpolation: "bilinear", "bicubic" or "nearest".
      fill: the value where the warped image shows nothing.

    Returns:
      float32 [*info.canvas, C].

    Raises:
      ValueError: for an image of another shape.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> chain = augment.Compose([augment.RandomHorizontalFlip(1.0)])
      >>> info = augment.ImageInfo((1, 3))
      >>> warp = chain.warp(chain.make_params(jax.random.key(0), info), info)
      >>> unwarp(jnp.array([[[3.0], [2.0], [1.0]]]), warp, info).ravel().tolist()
      [1.0, 2.0, 3.0]
    """
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    if image.ndim != 3 or image.shape[:2] != warp.canvas:
        raise ValueError(
            f"`image` must be [H, W, C] of the warp's output, {warp.canvas}, got {image.shape}."
        )
    extent = ImageInfo(warp.canvas, warp.size).extent
    values = image.astype(jnp.float32)
    back = _inverse_warp(warp, info)
    return resample(values, extent, back, interpolation, fill=fill)


def _inverse_warp(warp: Warp, info: ImageInfo) -> Warp:
    """Return the warp from the output of `warp` to its source."""
    if not warp.displacements:
        aligned = warp.integer_aligned
        return Warp(inverse(warp.matrix), info.canvas, info.size, integer_aligned=aligned)
    rows, columns = info.canvas
    x, y = jnp.meshgrid(
        jnp.arange(columns, dtype=jnp.float32) + 0.5, jnp.arange(rows, dtype=jnp.float32) + 0.5
    )
    pushed_x, pushed_y = warp.push(x, y)
    displacement = Displacement(pushed_x - x, pushed_y - y)
    return Warp(Matrix(), info.canvas, info.size, displacements=((displacement, Matrix()),))


def in_range(image: Array, interpolation: str) -> Array:
    """Return an image that was resampled, clipped to [0, 1] where its kernel may overshoot."""
    return _clipped(image, KERNELS.get(interpolation))


def _clipped(image: Array, kernel: Kernel | None) -> Array:
    if top_level(image.dtype) is not None or kernel is None or not kernel.overshoots:
        return image
    return jnp.clip(image, 0.0, 1.0)


def _finished(image: Array, kernel: Kernel | None, epilogue: Epilogue | None) -> Array:
    return image if epilogue is None else epilogue.of(_clipped(unit(image), kernel))


def _interpolate(settings: _Interpolation, image: Array, extent, warp: Warp, fill: Array) -> Array:
    """Return the sums over the taps, finished, as XLA computes them."""
    kernel, mode, epilogue = settings
    return _finished(_sum(kernel, mode, image, extent, warp, fill), kernel, epilogue)


def _sum(kernel: Kernel, mode: str, image: Array, extent, warp: Warp, fill: Array) -> Array:
    """Return the sums over as many taps as the images need."""
    y_axis, x_axis = _axes(warp, extent, mode, kernel)
    least = 2 * kernel.radius
    all_taps = (y_axis.taps, x_axis.taps)
    summed = functools.partial(_sum_taps, kernel, mode)
    operands = (image, extent, warp, fill)
    if warp.axis_aligned or max(all_taps) == least or not has_parts(image):
        return summed(all_taps, *operands)

    fewer = [
        (max(least, fraction_of(y_axis.taps, each)), max(least, fraction_of(x_axis.taps, each)))
        for each in FRACTIONS
    ]

    def too_small(image: Array, extent: Any, warp: Warp, fill: Array) -> list[Array]:
        x, y = _centers(warp)
        scale_x, scale_y = _footprint(warp.undisplaced(), x[None, :], y[:, None])
        needed_y = least * jnp.max(scale_y)
        needed_x = least * jnp.max(scale_x)
        return [(needed_y > y_taps) | (needed_x > x_taps) for y_taps, x_taps in fewer]

    branches = [functools.partial(summed, each) for each in (*fewer, all_taps)]
    return compute_smallest(branches, too_small, *operands)


def _sum_taps(
    kernel: Kernel,
    mode: str,
    taps: tuple[int, int],
    image: Array,
    extent: tuple[Scalar, Scalar],
    warp: Warp,
    fill: Array,
) -> Array:
    """Return the sums over so many taps along y and x."""
    rows, columns = _locate(extent, warp, mode, kernel, taps)
    if warp.axis_aligned:
        color = read_part(_read_separably, image, rows, columns)
    else:
        color = _read_plane(image, rows, columns)
    top = top_level(image.dtype)
    if top is not None:
        color = color / top
    if rows.coverage is None or columns.coverage is None:
        return color
    return color + (1.0 - _outer(rows.coverage, columns.coverage)) * fill


def _interpolate_by_cuda(
    settings: _Interpolation, image: Array, extent, warp: Warp, fill: Array
) -> Array:
    """Return the sums over the taps, finished, as a CUDA kernel computes them."""
    kernel, mode, epilogue = settings
    y_axis, x_axis = _axes(warp, extent, mode, kernel)
    windows = [(0.0, 0.0) if axis.window is None else axis.window for axis in (y_axis, x_axis)]
    (top, bottom), (left, right) = windows
    numbers = [*warp.matrix, *extent, top, left, bottom, right]
    colors = jnp.broadcast_to(fill.reshape(-1), (image.shape[2],))
    constants = cuda_warp.Constants(
        image=(image.shape[0], image.shape[1], image.shape[2]),
        dtype=str(image.dtype),
        canvas=(int(warp.canvas[0]), int(warp.canvas[1])),
        radius=kernel.radius,
        affine=warp.matrix.affine,
        mode=y_axis.mode,
        fills=y_axis.fills,
        framed=y_axis.framed,
        windowed=y_axis.window is not None,
        taps=(y_axis.taps, x_axis.taps),
        most=(y_axis.most, x_axis.most),
        clips=kernel.overshoots and epilogue is not None,
        epilogue=epilogue or NO_EPILOGUE,
    )
    return cuda_warp.warp(constants, image, [*numbers, *colors])


def _locate(
    extent, warp: Warp, mode: str, kernel: Kernel | None, taps: tuple[int, int]
) -> tuple[Taps, Taps]:
    """Return so many taps along y and x: vectors for an axis-aligned warp, else planes."""
    y_axis, x_axis = _axes(warp, extent, mode, kernel)
    y_axis = y_axis._replace(taps=taps[0])
    x_axis = x_axis._replace(taps=taps[1])
    x, y = _centers(warp)
    if warp.axis_aligned:
        source_x, source_y = warp.pull(x, y)
        scale_x = jnp.abs(jnp.float32(warp.matrix.xx))
        scale_y = jnp.abs(jnp.float32(warp.matrix.yy))
    else:
        source_x, source_y = warp.pull(x[None, :], y[:, None])
        if warp.displacements:  # costly to compute anew for every tap
            source_x, source_y = barrier_on_cpu(source_x), barrier_on_cpu(source_y)
        scale_x, scale_y = _footprint(warp.undisplaced(), x[None, :], y[:, None])
    return find_taps(source_y, scale_y, y_axis), find_taps(source_x, scale_x, x_axis)


def _centers(warp: Warp) -> tuple[Array, Array]:
    """Return x and y of the centers of the output's pixels."""
    x = jnp.arange(warp.canvas[1], dtype=jnp.float32) + 0.5
    y = jnp.arange(warp.canvas[0], dtype=jnp.float32) + 0.5
    return x, y


def _axes(warp: Warp, extent, mode: str, kernel: Kernel | None) -> tuple[Axis, Axis]:
    """Return the y and the x axis."""
    fills = mode == "constant" and not warp.inside_source
    mode = "edge" if warp.inside_source else mode
    window = (0.0, 0.0, *extent) if warp.framed else warp.crop_window
    axes = []
    for i in range(2):
        most = max(1.0, warp.max_shrink[i])
        taps = 1 if kernel is None else tap_count(most, kernel)
        limits = None if window is None else (window[i], window[2 + i] - 1)
        axes.append(
            Axis(
                extent=extent[i],
                window=limits,
                mode=mode,
                fills=fills,
                framed=warp.framed,
                kernel=kernel,
                taps=taps,
                most=most,
            )
        )
    return axes[0], axes[1]


def _footprint(matrix: Matrix, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the source pixels per output pixel along x and y: the row norms of the Jacobian."""
    if matrix.affine:
        rows = ((matrix.xx, matrix.xy), (matrix.yx, matrix.yy))
    else:
        source_x, source_y, w = transform_points(matrix, x, y)
        rows = tuple(
            ((a - source * matrix.wx) / w, (b - source * matrix.wy) / w)
            for a, b, source in ((matrix.xx, matrix.xy, source_x), (matrix.yx, matrix.yy, source_y))
        )
    floats = ((jnp.float32(a), jnp.float32(b)) for a, b in rows)
    x_norm, y_norm = (jnp.sqrt(a * a + b * b) for a, b in floats)
    return x_norm, y_norm


def _read_separably(image: Array, rows: Taps, columns: Taps) -> Array:
    """Sum over rows, then over columns."""

    def from_rows(index: Array, weight: Array) -> Array:
        scaled = (weight * rows.scale)[:, None, None]
        return _take_rows(image, index).astype(jnp.float32) * scaled

    def from_columns(index: Array, weight: Array) -> Array:
        return _take_columns(lines, index) * (weight * columns.scale)[None, :, None]

    lines = sum_of_taps(from_rows, rows.indices, rows.weights, ndim=1)
    # A GPU reads each line again for every column tap faster than it writes and reads all of them.
    lines = barrier_on_cpu(lines)
    return sum_of_taps(from_columns, columns.indices, columns.weights, ndim=1)


def _read_plane(image: Array, rows: Taps, columns: Taps) -> Array:
    """Sum over every tap of every output pixel, wherever it lies."""

    def line(row: Array, row_weight: Array) -> Array:
        def pixel(column: Array, weight: Array) -> Array:
            return _take(image, row, column).astype(jnp.float32) * weight[:, :, None]

        pixels = sum_of_taps(pixel, columns.indices, columns.weights, ndim=2)
        return pixels * row_weight[:, :, None]

    lines = sum_of_taps(line, rows.indices, rows.weights, ndim=2)
    return lines * (rows.scale * columns.scale)[:, :, None]


def _outer(rows: Array, columns: Array) -> Array:
    """Return the product over [H, W, 1] of two vectors, or of two planes."""
    if rows.ndim == 1:
        rows, columns = rows[:, None], columns[None, :]
    return (rows * columns)[:, :, None]


def _take_rows(image: Array, index: Array) -> Array:
    return image.at[index].get(mode="promise_in_bounds")


def _take_columns(image: Array, index: Array) -> Array:
    return image.at[:, index].get(mode="promise_in_bounds")


def _take(image: Array, row: Array, column: Array) -> Array:
    return image.at[row, column].get(mode="promise_in_bounds")
