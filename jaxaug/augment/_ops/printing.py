"""Pictures as printers and old screens make them: dots, few colors, flat cells, two inks.

The pure functions take float images [H, W, C] in [0, 1] and do not clip. Means are those of the
used part of a canvas with `size`.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    LEVELS,
    Color,
    Converter,
    Flag,
    ImageInfo,
    PositiveInt,
    Range,
    UnitRange,
    as_choice,
    as_int,
    as_int_range,
    extent,
    inside,
    on_image,
    per_channel,
    to_levels,
)
from jaxaug.augment._chain import ImageOp, Pointwise
from jaxaug.augment._ops.color import rgb_to_grayscale
from jaxaug.augment._ops.correlate import written_sum
from jaxaug.augment._xla import barrier, exact_sum
from jaxaug.augment.random import between, integer, uniform, uniform_field


@on_image
def halftone(
    image: Array, dot_size: Array, blend: Scalar, size: Any = None, levels: int = LEVELS
) -> Array:
    """Return the image printed with round dots on black, one in each cell of a grid.

    A dot has the mean color of its cell, and a radius of half the cell times the mean of that
    color, at least a pixel. Its edge is a pixel soft.

    Args:
      image: float [H, W, C] in [0, 1].
      dot_size: int32, the side of a cell in pixels.
      blend: of the image over the print: 0 is the print, 1 the image.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.
      levels: to which values are rounded for the means, 65536 of uint16.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> dots = jax.jit(halftone)(jnp.ones((4, 4, 1)), jnp.int32(4), 0.0)
      >>> print((100 * dots[0, :, 0]).round())
      [38. 92. 92. 38.]

    Reference: `albumentations.Halftone`.
    """
    color = cell_means(image, dot_size, size, levels)
    side = dot_size.astype(jnp.float32)
    radius = jnp.maximum(jnp.mean(color, axis=2) * side / 2, 1.0)

    def from_center(axis: int) -> Array:
        place = jnp.arange(image.shape[axis], dtype=jnp.int32) % dot_size
        return place.astype(jnp.float32) + 0.5 - side / 2

    distance = jnp.hypot(from_center(0)[:, None], from_center(1)[None, :])
    dot = jnp.clip(radius - distance + 0.5, 0.0, 1.0)[:, :, None] * color
    return dot + blend * (image - dot)


@on_image
def dither(image: Array, thresholds: Array, colors: int = 2) -> Array:
    """Return the image with each value rounded to one of a few, up or down by a threshold.

    floor(v (n - 1) + threshold) / (n - 1): the mean over thresholds that are even in [0, 1) is v.

    Args:
      image: float [H, W, C] in [0, 1].
      thresholds: float[H, W], in [0, 1).
      colors: n, at least 2, how many values there are.

    Returns:
      Floats of the image's dtype; their gradient is that of the image.

    Example:
      >>> import jax.numpy as jnp
      >>> dither(jnp.full((1, 4, 1), 0.5), jnp.array([[0.1, 0.4, 0.6, 0.9]]))[0, :, 0].tolist()
      [0.0, 0.0, 1.0, 1.0]

    Reference: B. Bayer, "An optimum method for two-level rendition of continuous-tone pictures",
      ICC 1973, where the thresholds are those of `bayer_matrix`.
    """
    steps = colors - 1
    values = image * steps + thresholds[:, :, None]
    return (values + lax.stop_gradient(jnp.floor(values) - values)) * (1 / steps)


def bayer_matrix(side: int) -> np.ndarray:
    """Return the thresholds float32[side, side] in (0, 1) of ordered dithering.

    Args:
      side: a power of 2.

    Example:
      >>> bayer_matrix(2).tolist()
      [[0.125, 0.625], [0.875, 0.375]]
    """
    matrix = np.zeros((1, 1), np.int64)
    while len(matrix) < side:
        matrix = np.block([[4 * matrix, 4 * matrix + 2], [4 * matrix + 3, 4 * matrix + 1]])
    return ((matrix + 0.5) / side**2).astype(np.float32)


@on_image
def superpixels(
    image: Array,
    seeds: Array,
    replaced: Array,
    grid: tuple[int, int],
    size: Any = None,
    levels: int = LEVELS,
) -> Array:
    """Return the image with cells of its plane in their mean color.

    A pixel belongs to the nearest of the seeds, one in each cell of an even grid.

    Args:
      image: float [H, W, C] in [0, 1].
      seeds: float[rows, columns, 2], (y, x) of each in its cell, in [0, 1].
      replaced: bool[rows, columns], the cells to be flat.
      grid: static, (rows, columns).
      size: int32[2], the used (height, width) of a canvas; None uses all of it.
      levels: to which values are rounded for the means, 65536 of uint16.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.0, 0.2, 0.6, 1.0]).reshape(1, 4, 1)
      >>> flat = superpixels(image, jnp.full((1, 2, 2), 0.5), jnp.full((1, 2), True), (1, 2))
      >>> print((flat[0, :, 0] * 100).round())
      [10. 10. 80. 80.]

    Reference: `imgaug.augmenters.UniformVoronoi`; `albumentations.Superpixels` has cells that
      follow the colors.
    """
    nearest = _nearest_seed(image, seeds, grid, size)
    used = inside(image, size)
    count = grid[0] * grid[1]
    cells = jnp.where(used, nearest, count)
    parts = _parts(image, levels)
    parts = jnp.concatenate([parts, jnp.ones_like(parts[:, :, :1])], axis=2)
    sums = jnp.zeros((count + 1, parts.shape[2]), jnp.int32).at[cells].add(parts)
    pixels = jnp.maximum(sums[:, -1:], 1).astype(jnp.float32)
    means = barrier(_whole(sums[:, :-1], levels) * (1 / (pixels * (levels - 1))))
    flat = jnp.take(replaced.ravel(), nearest, mode="clip")
    return jnp.where(flat[:, :, None], jnp.take(means, nearest, axis=0, mode="clip"), image)


@on_image
def colorize(image: Array, black: Any, white: Any) -> Array:
    """Return the gray image in colors between two: black (1 - gray) + white gray.

    Args:
      image: float [H, W, C] in [0, 1]; of three channels gray is their luma.
      black, white: in [0, 1], a number or one per channel, what black and white become: of three
        numbers an image of one channel becomes one of three.

    Example:
      >>> import jax.numpy as jnp
      >>> print(colorize(jnp.full((1, 1, 3), 0.5), (0.0, 0.0, 0.5), 1.0)[0, 0].round(2))
      [0.5  0.5  0.75]

    Reference: `PIL.ImageOps.colorize`, `albumentations.Colorize`.
    """
    gray = rgb_to_grayscale(image) if image.shape[2] == 3 else image
    low, high = (jnp.asarray(color, jnp.float32).reshape(1, 1, -1) for color in (black, white))
    return low + gray * (high - low)


@on_image
def match_exposure(image: Array, target_mean: Scalar, size: Any = None) -> Array:
    """Return the image times what brings its mean, over pixels and channels, to a number.

    Args:
      image: float [H, W, C] in [0, 1].
      target_mean: in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> match_exposure(jnp.array([[[0.1], [0.3]]]), 0.4)[0, :, 0].tolist()
      [0.20000000298023224, 0.6000000238418579]

    Reference: `albumentations.ExposureMatching`.
    """
    return image * (target_mean / jnp.maximum(_mean(image, size), 1e-6))


@on_image
def standardize(image: Array, size: Any = None) -> Array:
    """Return (image - its mean) / its standard deviation, both over pixels and channels.

    The deviation is at least 1 / sqrt(values), so that flat images become 0.

    Args:
      image: float [H, W, C] in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> print(standardize(jnp.array([[[0.25], [0.75]]]))[0, :, 0].round(2))
      [-0.35  0.35]

    Reference: `tf.image.per_image_standardization`, DALI's `fn.normalize`.
    """
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    mean = _mean(image, size)
    centered = image - mean
    # In fixed point the squares of a low contrast would be 0: they are those of shares of the
    # largest.
    used = inside(image, size)[:, :, None]
    largest = lax.stop_gradient(jnp.max(jnp.where(used, jnp.abs(centered), 0.0)))
    shares = centered * (1 / jnp.maximum(largest, 1e-6))
    squares = _mean(shares * shares, size) * (largest * largest)
    least = 1 / (height * width * image.shape[2])
    return centered * (1 / jnp.sqrt(jnp.maximum(squares, least)))


# ---- transforms


class Dots(NamedTuple):
    """Drawn parameters of `Halftone`: int32 side of a cell, float32 share of the image."""

    dot_size: Array
    blend: Array


@dataclass(frozen=True)
class Halftone(ImageOp):
    """Print the image with dots, with probability `p`; see `functional.halftone`.

    Args:
      dot_size: (low, high), the side of a cell in pixels, ints of at least 2.
      blend: (low, high) of the share of the image over the print, within [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Halftone()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Halftone`.
    """

    dot_size: Annotated[Range, Converter(as_int_range, 2)] = (4, 10)
    blend: UnitRange = (0.0, 0.5)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Dots:
        """Draw the cells and the share."""
        numbers = uniform(key, shape=(2,))
        low, high = self.dot_size
        return Dots(integer(numbers[0], low, high + 1), between(numbers[1], *self.blend))

    def apply(self, params: Dots, image: Array, info: ImageInfo) -> Array:
        """Print the used part."""
        return halftone(image, params.dot_size, params.blend, info.size, info.levels)


@dataclass(frozen=True)
class Dithering(Pointwise):
    """Keep few values of each channel, in patterns that look like more, with probability `p`.

    Args:
      method: "ordered", by the thresholds of a Bayer matrix, or "random", by noise.
      colors: how many values a channel has, at least 2.
      bayer_size: the side of the matrix, 2, 4, 8 or 16.
      grayscale: True makes an image of three channels gray first.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Dithering()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Dithering`.

    Differs from it in leaving out error diffusion, its default, which goes from pixel to pixel, and
    in keeping colors by default.
    """

    across_channels = True
    method: Annotated[str, Converter(as_choice, ("ordered", "random"))] = "ordered"
    colors: Annotated[int, Converter(as_int, 2, LEVELS)] = 2
    bayer_size: Annotated[int, Converter(as_choice, (2, 4, 8, 16))] = 4
    grayscale: Flag = False
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Key:
        """Return the key of the noise."""
        return key

    def apply(self, params: Key, image: Array, info: ImageInfo) -> Array:
        """Dither the image."""
        height, width, channels = image.shape
        if self.method == "random":
            thresholds = uniform_field(params, (height, width))
        else:
            repeats = (-(-height // self.bayer_size), -(-width // self.bayer_size))
            tiles = np.tile(bayer_matrix(self.bayer_size), repeats)
            thresholds = jnp.asarray(tiles[:height, :width])
        if self.grayscale and channels == 3:
            image = jnp.broadcast_to(rgb_to_grayscale(image), image.shape)
        return dither(image, thresholds, self.colors)


class Cells(NamedTuple):
    """Drawn parameters of `Superpixels`: places of the seeds, and which cells are flat."""

    seeds: Array
    replaced: Array


@dataclass(frozen=True)
class Superpixels(ImageOp):
    """Flatten some cells of the image to their mean color, with probability `p`.

    See `functional.superpixels`.

    Args:
      p_replace: (low, high) of the share of the cells that are flattened, within [0, 1].
      segments: how many cells there are; the next square number is taken.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Superpixels()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Superpixels`, whose cells follow the colors (SLIC).
    """

    p_replace: UnitRange = (0.0, 0.1)
    segments: PositiveInt = 100
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Cells:
        """Draw the seeds, and which cells are flat."""
        side = self._side
        numbers = uniform(key, shape=(3 * side * side + 1,))
        each = numbers[1:].reshape(side, side, 3)
        return Cells(each[:, :, :2], each[:, :, 2] < between(numbers[0], *self.p_replace))

    def apply(self, params: Cells, image: Array, info: ImageInfo) -> Array:
        """Flatten cells of the used part."""
        grid = (self._side, self._side)
        return superpixels(image, params.seeds, params.replaced, grid, info.size, info.levels)

    @property
    def _side(self) -> int:
        return int(np.ceil(np.sqrt(self.segments)))


@dataclass(frozen=True)
class Colorize(Pointwise):
    """Make the image gray, in colors between two, with probability `p`; see `functional.colorize`.

    Args:
      black, white: in [0, 1], a number or one per channel, what black and white become.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Colorize()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `PIL.ImageOps.colorize`, `albumentations.Colorize`, there with ranges of colors.
    """

    across_channels = True
    black: Color = 0.0
    white: Color = 1.0
    _: KW_ONLY
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Color the image."""
        ends = (per_channel(name, getattr(self, name), image) for name in ("black", "white"))
        return jnp.broadcast_to(colorize(image, *ends), image.shape)


@dataclass(frozen=True)
class ExposureMatching(ImageOp):
    """Bring the mean of the image to a random number, with probability `p`.

    Values are clipped to [0, 1].

    Args:
      target_mean: (low, high) of the mean, within [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ExposureMatching()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.ExposureMatching`.
    """

    target_mean: UnitRange = (0.3, 0.5)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the mean."""
        return uniform(key, *self.target_mean)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Multiply by what the used part asks for."""
        return jnp.clip(match_exposure(image, params, info.size), 0.0, 1.0)


# ---- means


def cell_means(image: Array, side: Array, size: Any, levels: int) -> Array:
    """Return at each pixel the mean color of its cell in a grid of squares, by levels.

    Sums of levels up to each pixel are int32, which wrap around; the difference of four of them is
    right as long as a cell's sum fits, and exact.
    """
    parts = jnp.where(inside(image, size)[:, :, None], _parts(image, levels), 0)
    sums = jnp.cumsum(jnp.cumsum(parts, axis=0, dtype=jnp.int32), axis=1, dtype=jnp.int32)
    sums = barrier(jnp.pad(sums, ((1, 0), (1, 0), (0, 0))))
    counts = []
    for axis, length in enumerate(extent(image, size)):
        first = jnp.arange(image.shape[axis], dtype=jnp.int32) // side * side
        last = jnp.minimum(first + side, length)
        first = jnp.minimum(first, last)
        sums = jnp.take(sums, last, axis, mode="clip") - jnp.take(sums, first, axis, mode="clip")
        counts.append(jnp.maximum(last - first, 1))
    area = (counts[0][:, None] * counts[1][None, :]).astype(jnp.float32)
    return barrier(_whole(sums, levels) * (1 / (area * (levels - 1)))[:, :, None])


def _parts(image: Array, levels: int) -> Array:
    """Return the levels of an image as int32, those of 16 bits as their upper and lower 8, twice
    the channels: the sum of a cell must fit 31 bits.
    """
    found = to_levels(image, levels)
    return found if levels <= LEVELS else jnp.concatenate([found >> 8, found & 255], axis=2)


def _whole(sums: Array, levels: int) -> Array:
    """Return float32 sums of levels from sums of their `_parts`."""
    if levels <= LEVELS:
        return sums.astype(jnp.float32)
    upper, lower = jnp.split(sums.astype(jnp.float32), 2, axis=-1)
    return 256 * upper + lower


def channel_means(image: Array, size: Any) -> Array:
    """Return float32[C], the mean of each channel over the used part."""
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    used = inside(image, size)
    planes = [jnp.where(used, image[:, :, c], 0.0) for c in range(image.shape[2])]
    return jnp.stack([exact_sum(plane) for plane in planes]) * (1 / (height * width))


def _mean(image: Array, size: Any) -> Array:
    """Return the mean of the used part over pixels and channels."""
    means = channel_means(image, size)
    return written_sum([means[c] for c in range(len(means))]) * (1 / len(means))


def _nearest_seed(image: Array, seeds: Array, grid: tuple[int, int], size: Any) -> Array:
    """Return int32[H, W], the number of the nearest seed, of those of the 3 x 3 cells about."""
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    rows, columns = grid
    y = (jnp.arange(image.shape[0], dtype=jnp.float32) + 0.5)[:, None] * (rows / height)
    x = (jnp.arange(image.shape[1], dtype=jnp.float32) + 0.5)[None, :] * (columns / width)
    row = jnp.clip(jnp.floor(y).astype(jnp.int32), 0, rows - 1)
    column = jnp.clip(jnp.floor(x).astype(jnp.int32), 0, columns - 1)
    flat = jax.lax.stop_gradient(seeds).reshape(-1, 2)
    best = jnp.full(image.shape[:2], jnp.inf, jnp.float32)
    nearest = jnp.zeros(image.shape[:2], jnp.int32)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            there_row = jnp.clip(row + down, 0, rows - 1)
            there_column = jnp.clip(column + right, 0, columns - 1)
            number = there_row * columns + there_column
            place = jnp.take(flat, number, axis=0, mode="clip")
            away_y = (y - there_row.astype(jnp.float32) - place[:, :, 0]) * (height / rows)
            away_x = (x - there_column.astype(jnp.float32) - place[:, :, 1]) * (width / columns)
            away = away_y * away_y + away_x * away_x
            nearest = jnp.where(away < best, number, nearest)
            best = jnp.minimum(away, best)
    return nearest
