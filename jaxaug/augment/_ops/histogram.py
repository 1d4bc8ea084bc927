"""Transforms by the histogram of each channel: equalize, autocontrast, CLAHE.

The pure functions take float images [H, W, C] in [0, 1] and decide on the nearest of the 256
levels, so that a float image gives what its 8-bit form gives; of uint16 images on 65536, but for
equalize, which nobody defines there. Histograms count integers: their sums are the same in any
order. NaN counts as level 0.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    LEVELS,
    Converter,
    ImageInfo,
    Range,
    Size,
    as_range,
    extent,
    from_levels,
    inside,
    look_up,
    mirrored,
    on_image,
    to_levels,
)
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._cuda import choice
from jaxaug.augment._cuda import operation as cuda_operation
from jaxaug.augment._ops.tone import LEVEL_TOLERANCE
from jaxaug.augment._xla import barrier
from jaxaug.augment.random import uniform


@on_image
def equalize(image: Array, size: Any = None) -> Array:
    """Return the image with the histogram of each channel made flat.

    With h the histogram of n pixels, m its highest level and s = (n - h[m]) // 255, level v becomes
    (h[0] + ... + h[v - 1] + s // 2) // s. Where s is 0 the channel stays.

    Args:
      image: float [H, W, C] in [0, 1]; NaN counts as 0.
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
    histogram = histogram_of(levels, inside(image, size))
    before = jnp.cumsum(histogram, axis=1, dtype=jnp.int32) - histogram
    # What lies before the highest level is n - h[m].
    rest = jnp.max(jnp.where(histogram > 0, before, 0), axis=1, keepdims=True)
    step = rest // 255
    table = (before + step // 2) // jnp.maximum(step, 1)
    identity = jnp.arange(LEVELS, dtype=jnp.int32)[None]
    table = jnp.where(step > 0, jnp.minimum(table, 255), identity)
    # Fused into the lookup, the divisions would be done for every pixel.
    return look_up(levels, barrier(from_levels(table)))


@on_image
def autocontrast(image: Array, size: Any = None, levels: int = LEVELS) -> Array:
    """Return the image with each channel stretched so that its levels reach from 0 to 1.

    (image - low) / (high - low), of the channel's lowest and highest levels; a channel of one level
    stays.

    Args:
      image: float [H, W, C] in [0, 1]; NaN counts as 0.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.
      levels: static, 256 or 65536.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([51.0, 102.0, 153.0]).reshape(1, 3, 1) / 255
      >>> print(autocontrast(image)[0, :, 0].round(3))
      [0.  0.5 1. ]

    Differs from torchvision in not clipping, and for floats in taking the nearest levels.
    """
    used = inside(image, size)[:, :, None]
    found = to_levels(image, levels)
    low = jnp.min(jnp.where(used, found, levels - 1), axis=(0, 1))
    high = jnp.max(jnp.where(used, found, 0), axis=(0, 1))
    flat = high <= low
    span = jnp.maximum(high - low, 1).astype(jnp.float32)
    scale = jnp.where(flat, 1.0, (levels - 1.0) / span)
    return (image - from_levels(jnp.where(flat, 0, low), levels)[None, None]) * scale[None, None]


@on_image
def clahe(
    image: Array,
    clip_limit: Scalar = 40.0,
    tile_grid_size: tuple[int, int] = (8, 8),
    size: Any = None,
    levels: int = LEVELS,
) -> Array:
    """Return the contrast limited adaptive histogram equalization of each channel.

    The image is cut into tiles. The histogram of each is cut off at `clip_limit` times its mean,
    what is cut off is spread over all levels, and its running sum is the tile's curve. A pixel
    takes the curves of the four tiles about it, mixed bilinearly.

    Args:
      image: float [H, W, C] in [0, 1]; NaN counts as 0.
      clip_limit: above 0, of a tile's mean count; 1 changes contrast little, 40 much.
      tile_grid_size: static, the tiles in a column and in a row.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.
      levels: static, 256 or 65536, as OpenCV counts them in images of 8 and of 16 bits.

    Returns:
      Floats of the image's dtype; their gradient is zero.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.linspace(0.4, 0.6, 1024).reshape(32, 32, 1)
      >>> out = jax.jit(clahe, static_argnames="tile_grid_size")(image, tile_grid_size=(1, 1))
      >>> bool(jnp.ptp(out) > 0.9)
      True

    Reference: `cv2.createCLAHE`, K. Zuiderveld, "Contrast limited adaptive histogram equalization",
    Graphics Gems IV, 1994.

    Differs from albumentations in equalizing each channel, as kornia does, not the lightness.
    """
    grid = _Tiles.of(image, tile_grid_size, size, levels)

    def equalized(found: Array) -> Array:
        return _between_tiles(grid, found, _clahe_curves(grid, found, clip_limit, size))

    found = to_levels(image, levels)
    if levels == LEVELS:
        return equalized(found)
    # One channel at a time: its curves of 65,536 levels take 8 MB.
    channels = jnp.moveaxis(found, 2, 0)[..., None]
    return jnp.moveaxis(lax.map(equalized, channels)[..., 0], 0, 2)


# ---- transforms


@dataclass(frozen=True)
class RandomEqualize(ImageOp):
    """Make the histogram of each channel flat; uint16 images are an error.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomEqualize()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    eight_bits = True
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Equalize the used part."""
        if image.shape[2] != 3:
            return _equalize_by_xla(image, info)

        def by_cuda(image: Array, info: ImageInfo) -> Array:
            # For a histogram, XLA's GPU backend adds one pixel after the other.
            code = cuda_operation.NAMES.index("Equalize")
            return cuda_operation.change(image, info.extent, code, 0.0, LEVEL_TOLERANCE)

        return choice.on_gpu(by_cuda, _equalize_by_xla, image, info)


def _equalize_by_xla(image: Array, info: ImageInfo) -> Array:
    return equalize(image, info.size)


@dataclass(frozen=True)
class RandomAutocontrast(ImageOp):
    """Stretch each channel to the whole range of values.

    Values are clipped to [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomAutocontrast()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Stretch by the used part."""
        return jnp.clip(autocontrast(image, info.size, info.levels), 0.0, 1.0)


@dataclass(frozen=True)
class CLAHE(ImageOp):
    """Equalize each channel tile by tile, with a random limit of contrast; see `functional.clahe`.

    Args:
      clip_limit: (low, high), at least 1, the range of the limit.
      tile_grid_size: the tiles in a column and in a row.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> CLAHE()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from albumentations in equalizing each channel, as kornia does, not the lightness.
    """

    clip_limit: Annotated[Range, Converter(as_range, 1.0)] = (1.0, 4.0)
    tile_grid_size: Size = (8, 8)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the limit."""
        return uniform(key, *self.clip_limit)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Equalize the used part."""
        return clahe(image, params, self.tile_grid_size, info.size, info.levels)


# ---- histograms and tiles


def histogram_of(levels: Array, used: Array) -> Array:
    """Return int32[C, 256], how many used pixels of levels [H, W, C] have each level.

    Integers are counted: their sum is the same in any order.
    """
    channels = levels.shape[2]
    bins = levels + LEVELS * jnp.arange(channels, dtype=jnp.int32)[None, None]
    counted = jnp.broadcast_to(used[:, :, None], bins.shape).astype(jnp.int32)
    counts = jnp.zeros(channels * LEVELS, jnp.int32).at[bins.ravel()].add(counted.ravel())
    return counts.reshape(channels, LEVELS)


class _Tiles(NamedTuple):
    """A grid of tiles of equal size, which covers the used part and may extend beyond it.

    Attributes:
      rows, columns: static, the number of tiles.
      levels: static, how many there are.
      height, width: int32, the size of a tile in pixels.
    """

    rows: int
    columns: int
    levels: int
    height: Array
    width: Array

    @classmethod
    def of(cls, image: Array, tile_grid_size: tuple[int, int], size: Any, levels: int) -> "_Tiles":
        """Return OpenCV's tiles: where one side does not divide, both are extended."""
        rows, columns = tile_grid_size
        used_height, used_width = extent(image, size)
        divides = (used_height % rows == 0) & (used_width % columns == 0)
        more = 1 - divides.astype(jnp.int32)
        height = used_height // rows + more
        width = used_width // columns + more
        return cls(rows, columns, levels, height, width)

    def stored(self, curves: Array) -> Array:
        """Return curves in [0, 1] as they are kept: of 16 bits in as many, as OpenCV does."""
        if self.levels == LEVELS:
            return curves
        return jnp.round(curves * (self.levels - 1)).astype(jnp.uint16)

    def curve_index(self, row: Array, column: Array, levels: Array) -> Array:
        """Return the place of levels [H, W, C] in curves [rows, columns, C, n], flattened."""
        channels = levels.shape[2]
        tile = row[:, None] * self.columns + column[None, :]
        channel = jnp.arange(channels, dtype=jnp.int32)
        return (tile[:, :, None] * channels + channel[None, None]) * self.levels + levels


def _clahe_curves(tiles: _Tiles, levels: Array, clip_limit: Scalar, size: Any) -> Array:
    """Return [rows, columns, C, n], the curve of each tile; see `_Tiles.stored`."""
    extended = mirrored(mirrored(levels, 0, tiles.rows, 0, size), 0, tiles.columns, 1, size)
    most = levels.shape[0] // tiles.rows + 1  # rows of pixels of a tile
    column = jnp.arange(extended.shape[1], dtype=jnp.int32) // tiles.width
    row_inside = jnp.arange(most, dtype=jnp.int32) < tiles.height
    counted = row_inside[:, None, None] & (column < tiles.columns)[None, :, None]
    area = (tiles.height * tiles.width).astype(jnp.float32)
    limit = jnp.maximum(jnp.floor(clip_limit * area / tiles.levels), 1.0).astype(jnp.int32)

    def curves(row: Array) -> Array:
        """Return [columns, C, n], those of one row of tiles."""
        part = lax.dynamic_slice_in_dim(extended, row * tiles.height, most)
        bins = tiles.curve_index(jnp.zeros(most, jnp.int32), column, part)
        shape = (tiles.columns, levels.shape[2], tiles.levels)
        counts = jnp.zeros(math.prod(shape), jnp.int32)
        each = jnp.broadcast_to(counted, bins.shape).astype(jnp.int32)
        counts = counts.at[bins.ravel()].add(each.ravel(), mode="drop").reshape(shape)
        sums = jnp.cumsum(_clipped(counts, limit), axis=2, dtype=jnp.int32)
        return tiles.stored(sums.astype(jnp.float32) / area)

    rows = jnp.arange(tiles.rows, dtype=jnp.int32)
    return jax.vmap(curves)(rows) if tiles.levels == LEVELS else lax.map(curves, rows)


def _clipped(counts: Array, limit: Array) -> Array:
    """Return histograms int32[..., n] cut off at `limit`, the rest spread over all levels."""
    count = counts.shape[-1]
    rest = jnp.sum(jnp.maximum(counts - limit, 0), axis=-1, keepdims=True, dtype=jnp.int32)
    each = rest // count
    left = rest - each * count
    # The last few go to levels at equal distances.
    distance = jnp.maximum(count // jnp.maximum(left, 1), 1)
    level = jnp.arange(count, dtype=jnp.int32).reshape((1,) * (counts.ndim - 1) + (count,))
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
        found = jnp.take(flat, tiles.curve_index(row, column, levels), mode="clip")
        return found if tiles.levels == LEVELS else found.astype(jnp.float32) / (tiles.levels - 1)

    upper = value(top, left) * (1 - along) + value(top, right) * along
    lower = value(bottom, left) * (1 - along) + value(bottom, right) * along
    return upper * (1 - down) + lower * down
