"""Transforms of tone: each channel by itself, through a curve or a histogram.

The pure functions take float images [H, W, C] in [0, 1] and do not clip. Those with steps
(posterize, solarize, equalize, autocontrast, lookup_table, clahe) decide on the nearest of the 256
levels, so that a float image gives what its 8-bit form gives.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Scalar
from jaxaug.augment._used import extent, inside, reflect
from jaxaug.augment._values import from_levels, on_image, to_levels

_LEVELS = 256


@on_image
def posterize(image: Array, bits: Scalar) -> Array:
    """Return the image with all but the upper `bits` of each 8-bit level cleared.

    Args:
      image: float [H, W, C] in [0, 1].
      bits: an integer of 0 to 8; 8 is the image in 8 bits.

    Returns:
      Floats of the image's dtype; their gradient is zero.

    Example:
      >>> import jax.numpy as jnp
      >>> (posterize(jnp.array([[[0.3, 0.6, 1.0]]]), 1) * 255).tolist()
      [[[0.0, 128.0, 128.0]]]

    Differs from torchvision for float images: the result is that of the 8-bit image, k * 2^(8 - b)
    / 255, and not k / 2^b.
    """
    cleared = 8 - jnp.asarray(bits, jnp.int32)
    return from_levels((to_levels(image) >> cleared) << cleared)


@on_image
def solarize(image: Array, threshold: Scalar) -> Array:
    """Return the image with the values from `threshold` on inverted.

    Args:
      image: float [H, W, C] in [0, 1].
      threshold: in [0, 1], compared with the nearest 8-bit level; 0 inverts all, above 1 nothing.

    Example:
      >>> import jax.numpy as jnp
      >>> print(solarize(jnp.array([[[0.25, 0.5, 1.0]]]), 0.5)[0, 0])
      [0.25 0.5  0.  ]
    """
    # 128 / 255 * 255 may come out just above 128.
    lowest = jnp.asarray(threshold, jnp.float32) * 255 - _LEVEL_TOLERANCE
    return jnp.where(to_levels(image).astype(jnp.float32) >= lowest, 1 - image, image)


_LEVEL_TOLERANCE = 1e-3


@on_image
def invert(image: Array) -> Array:
    """Return 1 - image.

    Args:
      image: float [H, W, C] in [0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> invert(jnp.array([[[0.25, 0.5, 1.0]]])).tolist()
      [[[0.75, 0.5, 0.0]]]
    """
    return 1 - image


@on_image
def equalize(image: Array, size: Any = None) -> Array:
    """Return the image with the histogram of each channel made flat.

    With h the histogram of n pixels, m its highest level and s = (n - h[m]) // 255, level v becomes
    (h[0] + ... + h[v - 1] + s // 2) // s. Where s is 0 the channel stays.

    Args:
      image: float [H, W, C] in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Returns:
      Floats of the image's dtype, on 8-bit levels; their gradient is zero.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.linspace(0.4, 0.6, 1024).reshape(32, 32, 1)
      >>> out = equalize(image)
      >>> print(out.min(), out.max())
      0.0 1.0

    Reference: `PIL.ImageOps.equalize`.
    """
    levels = to_levels(image)
    histogram = _histogram(levels, inside(image, size))
    before = jnp.cumsum(histogram, axis=1, dtype=jnp.int32) - histogram
    highest = _LEVELS - 1 - jnp.argmax(histogram[:, ::-1] > 0, axis=1).astype(jnp.int32)
    # What lies before the highest level is n - h[m].
    step = jnp.take_along_axis(before, highest[:, None], axis=1) // 255
    table = (before + step // 2) // jnp.maximum(step, 1)
    identity = jnp.arange(_LEVELS, dtype=jnp.int32)[None]
    table = jnp.where(step > 0, jnp.minimum(table, 255), identity)
    return from_levels(_look_up(levels, table))


@on_image
def autocontrast(image: Array, size: Any = None) -> Array:
    """Return the image with each channel stretched so that its levels reach from 0 to 1.

    (image - low) / (high - low), of the channel's lowest and highest 8-bit levels; a channel of one
    level stays.

    Args:
      image: float [H, W, C] in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([51.0, 102.0, 153.0]).reshape(1, 3, 1) / 255
      >>> print(autocontrast(image)[0, :, 0].round(3))
      [0.  0.5 1. ]

    Differs from torchvision in not clipping, and for floats in taking the nearest levels.
    """
    used = inside(image, size)[:, :, None]
    levels = to_levels(image)
    low = jnp.min(jnp.where(used, levels, 255), axis=(0, 1))
    high = jnp.max(jnp.where(used, levels, 0), axis=(0, 1))
    flat = high <= low
    scale = jnp.where(flat, 1.0, 255.0 / jnp.maximum(high - low, 1).astype(jnp.float32))
    return (image - from_levels(jnp.where(flat, 0, low))[None, None]) * scale[None, None]


@on_image
def adjust_gamma(image: Array, gamma: Scalar, gain: Scalar = 1.0) -> Array:
    """Return gain * image^gamma.

    Args:
      image: float [H, W, C] in [0, 1]; negative values count as 0.
      gamma: above 0; below 1 dark values become lighter.
      gain: the factor.

    Example:
      >>> import jax.numpy as jnp
      >>> print(adjust_gamma(jnp.array([[[0.0, 0.25, 1.0]]]), 0.5)[0, 0])
      [0.  0.5 1. ]

    Differs from torchvision in not clipping.
    """
    # The slope of the power is infinite at 0: it is never taken there.
    positive = image > 0
    power = jnp.where(positive, image, 1.0) ** jnp.asarray(gamma, jnp.float32)
    return jnp.where(positive, power, 0.0) * gain


@on_image
def lookup_table(image: Array, table: Any) -> Array:
    """Return the entry of `table` for each value's nearest 8-bit level.

    Args:
      image: float [H, W, C] in [0, 1].
      table: float [256] in [0, 1], or [C, 256] for a table of each channel.

    Returns:
      Floats of the image's dtype; their gradient is zero.

    Example:
      >>> import jax.numpy as jnp
      >>> lookup_table(jnp.array([[[0.0, 1.0]]]), jnp.linspace(1, 0, 256)).tolist()
      [[[1.0, 0.0]]]
    """
    table = jnp.asarray(table, jnp.float32)
    channels = image.shape[2]
    if table.shape not in ((_LEVELS,), (channels, _LEVELS)):
        raise ValueError(
            f"`table` must have the shape (256,) or ({channels}, 256), got {table.shape}."
        )
    return _look_up(to_levels(image), jnp.broadcast_to(table, (channels, _LEVELS)))


@on_image
def tone_curve(image: Array, low_y: Scalar, high_y: Scalar) -> Array:
    """Return 3 (1 - x)^2 x low_y + 3 (1 - x) x^2 high_y + x^3, an S-shaped curve.

    Args:
      image: float [H, W, C] in [0, 1], x.
      low_y, high_y: in [0, 1], the heights of the Bezier curve's inner points; (1/3, 2/3) is the
        image. One number, or [C] with one of each channel.

    Example:
      >>> import jax.numpy as jnp
      >>> print(tone_curve(jnp.array([[[0.0, 0.5, 1.0]]]), 0.0, 1.0)[0, 0])
      [0.  0.5 1. ]

    Reference: `albumentations.RandomToneCurve`.
    """
    low_y = jnp.asarray(low_y, jnp.float32)
    high_y = jnp.asarray(high_y, jnp.float32)
    rest = 1 - image
    low = _by_channel(low_y) * (3 * rest * rest * image)
    high = _by_channel(high_y) * (3 * rest * image * image)
    return low + high + image * image * image


@on_image
def clahe(
    image: Array,
    clip_limit: Scalar = 40.0,
    tile_grid_size: tuple[int, int] = (8, 8),
    size: Any = None,
) -> Array:
    """Return the contrast limited adaptive histogram equalization of each channel.

    The image is cut into tiles. The histogram of each is cut off at `clip_limit` times its mean,
    what is cut off is spread over all levels, and its running sum is the tile's curve. A pixel
    takes the curves of the four tiles about it, mixed bilinearly.

    Args:
      image: float [H, W, C] in [0, 1].
      clip_limit: above 0, of a tile's mean count; 1 changes contrast little, 40 much.
      tile_grid_size: static, the tiles in a column and in a row.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Returns:
      Floats of the image's dtype; their gradient is zero.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.linspace(0.4, 0.6, 1024).reshape(32, 32, 1)
      >>> bool(jnp.ptp(clahe(image, tile_grid_size=(1, 1))) > 0.9)
      True

    Reference: `cv2.createCLAHE`, K. Zuiderveld, "Contrast limited adaptive histogram equalization",
    Graphics Gems IV, 1994.

    Differs from albumentations in equalizing each channel, as kornia does, not the lightness.
    """
    grid = _Tiles.of(image, tile_grid_size, size)
    levels = to_levels(image)
    curves = _clahe_curves(grid, levels, clip_limit)
    return _between_tiles(grid, levels, curves)


# ---- tables and tiles


def _histogram(levels: Array, used: Array) -> Array:
    """Return int32[C, 256], how many used pixels of levels [H, W, C] have each level.

    Integers are counted: their sum is the same in any order.
    """
    channels = levels.shape[2]
    bins = levels + _LEVELS * jnp.arange(channels, dtype=jnp.int32)[None, None]
    counted = jnp.broadcast_to(used[:, :, None], bins.shape).astype(jnp.int32)
    counts = jnp.zeros(channels * _LEVELS, jnp.int32).at[bins.ravel()].add(counted.ravel())
    return counts.reshape(channels, _LEVELS)


def _look_up(levels: Array, table: Array) -> Array:
    """Return the entries of a table [C, 256] for levels [H, W, C]."""
    channels = levels.shape[2]
    bins = levels + _LEVELS * jnp.arange(channels, dtype=jnp.int32)[None, None]
    return jnp.take(table.ravel(), bins, mode="clip")


def _by_channel(value: Array) -> Array:
    """Return one number as it is, and [C] as [1, 1, C]."""
    return value if value.ndim == 0 else value[None, None]


class _Tiles(NamedTuple):
    """A grid of tiles of equal size, which covers the used part and may extend beyond it.

    Attributes:
      rows, columns: static, the number of tiles.
      height, width: int32, the size of a tile in pixels.
      used_height, used_width: int32, the used part.
    """

    rows: int
    columns: int
    height: Array
    width: Array
    used_height: Array
    used_width: Array

    @classmethod
    def of(cls, image: Array, tile_grid_size: tuple[int, int], size: Any) -> "_Tiles":
        """Return OpenCV's tiles: where one side does not divide, both are extended."""
        rows, columns = tile_grid_size
        used_height, used_width = extent(image, size)
        divides = (used_height % rows == 0) & (used_width % columns == 0)
        more = jnp.where(divides, 0, 1).astype(jnp.int32)
        height = used_height // rows + more
        width = used_width // columns + more
        return cls(rows, columns, height, width, used_height, used_width)

    def curve_index(self, row: Array, column: Array, levels: Array) -> Array:
        """Return the place of levels [H, W, C] in curves [rows, columns, C, 256], flattened."""
        channels = levels.shape[2]
        tile = row[:, None] * self.columns + column[None, :]
        channel = jnp.arange(channels, dtype=jnp.int32)
        return (tile[:, :, None] * channels + channel[None, None]) * _LEVELS + levels


def _clahe_curves(tiles: _Tiles, levels: Array, clip_limit: Scalar) -> Array:
    """Return float32[rows, columns, C, 256], the curve of each tile in [0, 1]."""
    height, width, channels = levels.shape
    y = jnp.arange(height + tiles.rows, dtype=jnp.int32)
    x = jnp.arange(width + tiles.columns, dtype=jnp.int32)
    extended = jnp.take(levels, reflect(y, tiles.used_height), axis=0, mode="clip")
    extended = jnp.take(extended, reflect(x, tiles.used_width), axis=1, mode="clip")
    row = y // tiles.height
    column = x // tiles.width
    bins = tiles.curve_index(row, jnp.minimum(column, tiles.columns - 1), extended)
    counted = (row < tiles.rows)[:, None, None] & (column < tiles.columns)[None, :, None]
    counted = jnp.broadcast_to(counted, bins.shape).astype(jnp.int32)
    shape = (tiles.rows, tiles.columns, channels, _LEVELS)
    counts = jnp.zeros(math.prod(shape), jnp.int32)
    counts = counts.at[bins.ravel()].add(counted.ravel(), mode="drop").reshape(shape)

    area = (tiles.height * tiles.width).astype(jnp.float32)
    limit = jnp.maximum(jnp.floor(clip_limit * area / _LEVELS), 1.0).astype(jnp.int32)
    counts = _clipped(counts, limit)
    return jnp.cumsum(counts, axis=3, dtype=jnp.int32).astype(jnp.float32) / area


def _clipped(counts: Array, limit: Array) -> Array:
    """Return histograms int32[..., 256] cut off at `limit`, the rest spread over all levels."""
    rest = jnp.sum(jnp.maximum(counts - limit, 0), axis=-1, keepdims=True, dtype=jnp.int32)
    each = rest // _LEVELS
    left = rest - each * _LEVELS
    # The last few go to levels at equal distances.
    distance = jnp.maximum(_LEVELS // jnp.maximum(left, 1), 1)
    level = jnp.arange(_LEVELS, dtype=jnp.int32).reshape((1,) * (counts.ndim - 1) + (_LEVELS,))
    one_more = (level % distance == 0) & (level // distance < left)
    return jnp.minimum(counts, limit) + each + one_more.astype(jnp.int32)


def _between_tiles(tiles: _Tiles, levels: Array, curves: Array) -> Array:
    """Return the values that the curves of the four nearest tiles give, mixed bilinearly."""

    def neighbors(length: int, side: Array, count: int) -> tuple[Array, Array, Array]:
        position = jnp.arange(length, dtype=jnp.float32) / side.astype(jnp.float32) - 0.5
        first = jnp.floor(position)
        index = first.astype(jnp.int32)
        last = count - 1
        return jnp.clip(index, 0, last), jnp.clip(index + 1, 0, last), position - first

    top, bottom, down = neighbors(levels.shape[0], tiles.height, tiles.rows)
    left, right, along = neighbors(levels.shape[1], tiles.width, tiles.columns)
    down = down[:, None, None]
    along = along[None, :, None]
    flat = curves.ravel()

    def value(row: Array, column: Array) -> Array:
        return jnp.take(flat, tiles.curve_index(row, column, levels), mode="clip")

    upper = value(top, left) * (1 - along) + value(top, right) * along
    lower = value(bottom, left) * (1 - along) + value(bottom, right) * along
    return upper * (1 - down) + lower * down
