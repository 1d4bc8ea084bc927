"""Occlusion: `RandomErasing`, `CoarseDropout`, `GridDropout`, `PixelDropout`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._checks import is_int
from jaxaug._typing import Key, Sample, Scalar
from jaxaug.augment._base import (
    Channels,
    Color,
    Converter,
    ImageInfo,
    Parameters,
    Range,
    SymmetricRange,
    UnitRange,
    as_color,
    as_int_range,
    as_number,
    as_probability,
    as_range,
    log,
    plain,
)
from jaxaug.augment._chain import Pointwise
from jaxaug.augment._warp import hulls, mask_value, present, spread
from jaxaug.augment.random import between, integer, normal_field, uniform, uniform_field

_TRIES = 10  # as torchvision
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


def erase(
    image: Array,
    top: Scalar,
    left: Scalar,
    height: Scalar,
    width: Scalar,
    value: Any = 0.0,
) -> Array:
    """Return `image` with a window painted over.

    Args:
      image: any dtype [H, W, C].
      top, left, height, width: the window in pixels, which may be traced; what lies outside of the
        image is ignored.
      value: what the window shows: whatever broadcasts to [H, W, C], in the units of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> erase(jnp.ones((2, 3, 1)), 0, 1, 1, 2)[:, :, 0].tolist()
      [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    holes = Holes(*(jnp.asarray(number).reshape(1) for number in (top, left, height, width)))
    value = jnp.broadcast_to(jnp.asarray(value, image.dtype), image.shape)
    return jnp.where(holes.cover(image.shape[:2])[:, :, None], value, image)


class Holes(NamedTuple):
    """Windows of pixels, each field [n]; one of no height or no width covers nothing."""

    top: Array
    left: Array
    height: Array
    width: Array

    def cover(self, canvas: tuple[Any, ...]) -> Array:
        """Return bool[H, W], True in any of the windows."""
        y = jnp.arange(canvas[0], dtype=jnp.int32)
        x = jnp.arange(canvas[1], dtype=jnp.int32)
        rows = _within(y, self.top, self.height)
        columns = _within(x, self.left, self.width)
        return jnp.any(rows[:, :, None] & columns[:, None, :], axis=0)


# ---- transforms


def _as_mask_fill(name: str, value: Any) -> int | None:
    """Return an int of Python, or None."""
    if value is not None and not is_int(value):
        raise ValueError(f"`{name}` must be None or an int, a class index, got {value!r}.")
    return plain(value)


def _as_paint(name: str, value: Any) -> Color | str:
    """Return a color, or "random"."""
    if isinstance(value, str) and value != "random":
        raise ValueError(f"`{name}` must be a color or 'random', got {value!r}.")
    return value if isinstance(value, str) else as_color(name, value)


class Occlusion(Pointwise):
    """A transform that paints over a part of the pixels, and of the mask where `mask_fill` says so.

    Boxes and keypoints are left as they are: what they mark is still there.
    """

    value: Any
    mask_fill: int | None

    def covered(self, params: Parameters, info: ImageInfo) -> Array:
        """Return bool[H, W], True where to paint, by default in the `Holes` that were drawn."""
        return params.cover(info.canvas)

    def apply(self, params: Parameters, image: Array, info: ImageInfo) -> Array:
        """Return the image with the covered pixels painted over."""
        paint = _per_channel(self, "value", self.value, image)
        return jnp.where(self.covered(params, info)[:, :, None], paint, image)

    def apply_rest(
        self, params: Parameters, rest: Sample, kinds: Mapping[str, str], info: ImageInfo
    ) -> Sample:
        """Return the masks with `mask_fill` on the covered pixels."""
        if self.mask_fill is None:
            return rest
        covered = self.covered(params, info)
        for name, kind in kinds.items():
            if kind == "mask":
                fill = mask_value(rest[name].dtype, self.mask_fill)
                rest[name] = jnp.where(spread(covered, kind, rest[name]), fill, rest[name])
        return rest


@dataclass(frozen=True)
class RandomErasing(Occlusion):
    """Paint over one random window.

    Its area is uniform in `scale`, as a share of the image, its height / width log-uniform in
    `ratio`. The first of ten windows that is smaller than the image on both sides is taken; without
    one the image stays as it is.

    Args:
      p: the probability of painting.
      scale: (low, high), shares of the area in (0, 1].
      ratio: (low, high), height / width.
      value: a number in [0, 1], one per channel, or "random" for normal noise per pixel.
      mean, std: of "random", a number or one per channel in [0, 1] units. Those of `Normalize` make
        the noise N(0, 1) after it, as where torchvision's recipes erase; so it leaves [0, 1] on
        float images.
      mask_fill: the label that an integer "mask" takes in the window (False and 0.0 in others); by
        default the mask stays.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> erasing = RandomErasing(1.0, scale=(0.25, 0.25), ratio=(1, 1))
      >>> out = erasing(jax.random.key(0), jnp.full((8, 8, 3), 9, jnp.uint8))
      >>> int((out[:, :, 0] == 0).sum())
      16

    Reference: Zhong et al., Random Erasing Data Augmentation, AAAI 2020.

    Differs from torchvision in `value`, which is in [0, 1] and not in normalized units: give the
    mean of `Normalize` for its 0.
    """

    p: float = 0.5
    scale: UnitRange = (0.02, 0.33)
    ratio: Annotated[Range, Converter(as_range, 1e-3, 1e3)] = (0.3, 3.3)
    value: Annotated[Color | str, Converter(_as_paint)] = 0.0
    mean: Channels = _IMAGENET_MEAN
    std: Channels = _IMAGENET_STD
    mask_fill: Annotated[int | None, Converter(_as_mask_fill)] = None

    def make_params(self, key: Key, info: ImageInfo) -> tuple[Holes, Key | None]:
        """Draw the window and, for "random", the key of the noise."""
        numbers = uniform(key, shape=(2 * _TRIES + 2,))
        image_height, image_width = info.extent
        area = image_height * image_width * between(numbers[:_TRIES], *self.scale)
        logs = between(numbers[_TRIES:-2], *map(log, self.ratio))
        heights = jnp.round(jnp.sqrt(area * jnp.exp(logs)))
        widths = jnp.round(jnp.sqrt(area * jnp.exp(-logs)))

        fits = (heights < image_height) & (widths < image_width)
        first = jnp.argmax(fits)
        height = jnp.where(fits[first], heights[first], 0.0).astype(jnp.int32)
        width = jnp.where(fits[first], widths[first], 0.0).astype(jnp.int32)
        full = info.height_width
        top = integer(numbers[-2], 0, full[0] - height + 1)
        left = integer(numbers[-1], 0, full[1] - width + 1)
        window = Holes(*(number.reshape(1) for number in (top, left, height, width)))
        return window, jax.random.fold_in(key, 1) if isinstance(self.value, str) else None

    def covered(self, params: tuple[Holes, Key | None], info: ImageInfo) -> Array:
        """Return True in the window."""
        return params[0].cover(info.canvas)

    def apply(self, params: tuple[Holes, Key | None], image: Array, info: ImageInfo) -> Array:
        """Return the image with the window painted over."""
        window, key = params
        if key is None:
            return super().apply(params, image, info)
        mean = _per_channel(self, "mean", self.mean, image)
        std = _per_channel(self, "std", self.std, image)
        noise = mean + std * normal_field(key, image.shape)
        return erase(image, *window, noise)


@dataclass(frozen=True)
class CoarseDropout(Occlusion):
    """Paint over several random windows, which may overlap; with one square it is Cutout.

    Args:
      holes: (low, high), the number of windows, uniform on low, ..., high; or an int.
      height, width: (low, high), the sides of each window as shares of the image's in (0, 1].
      value: a number in [0, 1], or one per channel.
      mask_fill: the label that an integer "mask" takes there; by default the mask stays.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.full((8, 8, 3), 9, jnp.uint8)
      >>> out = CoarseDropout(1, (0.5, 0.5), (0.25, 0.25), p=1.0)(jax.random.key(0), image)
      >>> int((out[:, :, 0] == 0).sum())
      8

    Reference: DeVries and Taylor, Improved Regularization of CNNs with Cutout, 2017.
    """

    holes: Annotated[Any, Converter(as_int_range, 1)] = (1, 2)
    height: UnitRange = (0.1, 0.2)
    width: UnitRange = (0.1, 0.2)
    value: Color = 0.0
    mask_fill: Annotated[int | None, Converter(_as_mask_fill)] = None
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Holes:
        """Draw the windows, those beyond the drawn number with no height."""
        fewest, most = self.holes
        numbers = uniform(key, shape=(4 * most + 1,))
        drawn = numbers[:-1].reshape(4, most)
        count = integer(numbers[-1], fewest, most + 1)
        image_height, image_width = info.height_width
        height = _share_of(info.extent[0], between(drawn[0], *self.height))
        width = _share_of(info.extent[1], between(drawn[1], *self.width))
        top = integer(drawn[2], 0, image_height - height + 1)
        left = integer(drawn[3], 0, image_width - width + 1)
        present = jnp.arange(most, dtype=jnp.int32) < count
        return Holes(top, left, jnp.where(present, height, 0), width)


@dataclass(frozen=True)
class ConstrainedCoarseDropout(Occlusion):
    """Paint over windows inside of the boxes: parts of objects, not of the background.

    Args:
      holes: (low, high), the number of windows in each box, uniform on low, ..., high; or an int.
      height, width: (low, high), the sides of each window as shares of its box's, in (0, 1].
      value: a number in [0, 1], or one per channel.
      mask_fill: the label that an integer "mask" takes there; by default the mask stays.

    Raises:
      ValueError: on tracing, for an image without "boxes".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {
      ...     "image": jnp.full((8, 8, 3), 9, jnp.uint8),
      ...     "boxes": jnp.array([[2.0, 2.0, 6.0, 6.0]]),
      ... }
      >>> dropout = ConstrainedCoarseDropout(1, (0.5, 0.5), (0.5, 0.5), p=1.0)
      >>> int((dropout(jax.random.key(0), sample)["image"][:, :, 0] == 0).sum())
      4

    Reference: `albumentations.ConstrainedCoarseDropout`.

    Differs from it in taking all boxes, not those of some classes.
    """

    holes: Annotated[Any, Converter(as_int_range, 1)] = (1, 1)
    height: UnitRange = (0.1, 0.1)
    width: UnitRange = (0.1, 0.1)
    value: Color = 0.0
    mask_fill: Annotated[int | None, Converter(_as_mask_fill)] = None
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Holes:
        """Draw the windows of each box, those beyond the drawn number with no height."""
        if info.boxes is None:
            raise ValueError('ConstrainedCoarseDropout needs a sample with "boxes", float[n, 4].')
        fewest, most = self.holes
        boxes = hulls(info.boxes.astype(jnp.float32))
        count = boxes.shape[0]
        numbers = uniform(key, shape=(5, count, most))
        left, top, right, bottom = (jnp.floor(boxes[:, i, None]) for i in range(4))
        height = jnp.maximum(jnp.round((bottom - top) * between(numbers[0], *self.height)), 1.0)
        width = jnp.maximum(jnp.round((right - left) * between(numbers[1], *self.width)), 1.0)
        y = top + jnp.floor(numbers[2] * (bottom - top - height + 1))
        x = left + jnp.floor(numbers[3] * (right - left - width + 1))
        drawn = jnp.arange(most, dtype=jnp.int32)[None, :] < integer(
            numbers[4, :, :1], fewest, most + 1
        )
        height = jnp.where(drawn & present(info.boxes)[:, None], height, 0.0)
        return Holes(*(side.astype(jnp.int32).reshape(-1) for side in (y, x, height, width)))


@dataclass(frozen=True)
class XYMasking(Occlusion):
    """Paint over whole columns and whole rows: the time and frequency masks of SpecAugment.

    Args:
      columns, rows: (low, high), how many bands of each, uniform on low, ..., high; or an int.
      width, height: (low, high), those of the bands as shares of the image's, in (0, 1].
      value: a number in [0, 1], or one per channel.
      mask_fill: the label that an integer "mask" takes there; by default the mask stays.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.full((8, 8, 3), 9, jnp.uint8)
      >>> out = XYMasking(1, 0, (0.25, 0.25), p=1.0)(jax.random.key(0), image)
      >>> int((out[:, :, 0] == 0).sum())
      16

    Reference: `albumentations.XYMasking`, with its sides in pixels and 0 by default; Park et al.,
    SpecAugment, 2019.
    """

    columns: Annotated[Any, Converter(as_int_range, 0)] = (1, 2)
    rows: Annotated[Any, Converter(as_int_range, 0)] = (1, 2)
    width: UnitRange = (0.05, 0.1)
    height: UnitRange = (0.05, 0.1)
    value: Color = 0.0
    mask_fill: Annotated[int | None, Converter(_as_mask_fill)] = None
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Holes:
        """Draw the bands, those beyond the drawn numbers with no height."""
        most = self.columns[1] + self.rows[1]
        numbers = uniform(key, shape=(2 * most + 2,))
        upright = jnp.arange(most, dtype=jnp.int32) < self.columns[1]
        image_height, image_width = map(jnp.int32, info.height_width)
        height = _share_of(info.extent[0], between(numbers[:most], *self.height))
        width = _share_of(info.extent[1], between(numbers[:most], *self.width))
        height = jnp.where(upright, image_height, height)
        width = jnp.where(upright, width, image_width)
        top = integer(numbers[most:-2], 0, image_height - height + 1)
        left = integer(numbers[most:-2], 0, image_width - width + 1)
        drawn = [integer(numbers[-2], self.columns[0], self.columns[1] + 1)]
        drawn.append(integer(numbers[-1], self.rows[0], self.rows[1] + 1))
        number = jnp.arange(most, dtype=jnp.int32)
        shown = jnp.where(upright, number < drawn[0], number - self.columns[1] < drawn[1])
        return Holes(top, left, jnp.where(shown, height, 0), width)


class Grid(NamedTuple):
    """A grid of squares: its offset and period in pixels, the cosine and sine of its turn."""

    offset: Array
    period: Array
    cosine: Array
    sine: Array


@dataclass(frozen=True)
class GridDropout(Occlusion):
    """Paint over the squares of a grid: GridMask.

    In each cell of the grid one square stays covered, `ratio` of the cell's side. The share of
    covered pixels is ratio^2 on average.

    Args:
      ratio: the side of a square / the side of its cell, in (0, 1).
      cell: (low, high), the side of a cell as a share of the shorter side of the image.
      degrees: the grid is turned by an angle of (-degrees, degrees), or of a pair (low, high).
      value: a number in [0, 1], or one per channel.
      mask_fill: the label that an integer "mask" takes there; by default the mask stays.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.full((16, 16, 3), 9, jnp.uint8)
      >>> out = GridDropout(0.5, (0.25, 0.25), p=1.0)(jax.random.key(0), image)
      >>> int((out[:, :, 0] == 0).sum())
      64

    Reference: Chen et al., GridMask Data Augmentation, 2020.
    """

    ratio: Annotated[float, Converter(as_number, 1e-3, 1 - 1e-3)] = 0.5
    cell: Annotated[Range, Converter(as_range, 1e-3, 1.0)] = (0.1, 0.4)
    degrees: SymmetricRange = 0.0
    value: Color = 0.0
    mask_fill: Annotated[int | None, Converter(_as_mask_fill)] = None
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Grid:
        """Draw the grid."""
        numbers = uniform(key, shape=(4,))
        shorter = jnp.minimum(*map(jnp.float32, info.extent))
        # Without a turn whole periods and offsets, so that all squares have the same size.
        period = jnp.maximum(jnp.round(shorter * between(numbers[0], *self.cell)), 2.0)
        offset = jnp.floor(numbers[1:3] * period)
        radians = jnp.deg2rad(between(numbers[3], *self.degrees))
        return Grid(offset, period, jnp.cos(radians), jnp.sin(radians))

    def covered(self, params: Grid, info: ImageInfo) -> Array:
        """Return True in the squares."""
        offset, period, cosine, sine = params
        rows, columns = info.canvas
        y = jnp.arange(rows, dtype=jnp.float32)[:, None] + 0.5
        x = jnp.arange(columns, dtype=jnp.float32)[None, :] + 0.5
        # Counter-clockwise on the screen, where y points down.
        u = x * cosine - y * sine + offset[0]
        v = x * sine + y * cosine + offset[1]
        side = jnp.clip(jnp.round(period * self.ratio), 1.0, period - 1.0)
        return (_remainder(u, period) < side) & (_remainder(v, period) < side)


@dataclass(frozen=True)
class PixelDropout(Pointwise):
    """Paint over single pixels, each with the same probability.

    Args:
      rate: the probability of each pixel, in [0, 1].
      per_channel: True drops each channel of a pixel by itself.
      value: a number in [0, 1], or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PixelDropout(1.0, p=1.0)(jax.random.key(0), jnp.full((1, 2, 1), 9, jnp.uint8)).tolist()
      [[[0], [0]]]
    """

    rate: Annotated[float, Converter(as_probability)] = 0.01
    per_channel: bool = False
    value: Color = 0.0
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Key:
        """Return the key of the pixels."""
        return key

    def apply(self, params: Key, image: Array, info: ImageInfo) -> Array:
        """Return the image with the dropped pixels painted over."""
        channels = image.shape[2] if self.per_channel else 1
        dropped = uniform_field(params, (*image.shape[:2], channels)) < self.rate
        return jnp.where(dropped, _per_channel(self, "value", self.value, image), image)


def _within(position: Array, start: Array, length: Array) -> Array:
    """Return bool[n, positions], True from `start` on for `length`."""
    position = position[None, :]
    return (position >= start[:, None]) & (position < (start + length)[:, None])


def _share_of(side: Scalar, share: Array) -> Array:
    """Return a share of a side in whole pixels, at least 1."""
    return jnp.maximum(jnp.round(side * share), 1.0).astype(jnp.int32)


def _remainder(value: Array, period: Array) -> Array:
    """Return `value` modulo a period of at least 2."""
    return value - period * jnp.floor(value / period)


def _per_channel(transform: Any, name: str, value: Any, image: Array) -> Array:
    """Return a number, or one per channel, as float32 that broadcasts to the image."""
    numbers = jnp.asarray(value, jnp.float32).reshape(1, 1, -1)
    if numbers.size not in (1, image.shape[2]):
        raise ValueError(
            f"`{name}` of {type(transform).__name__} must be one number, or one per channel of the"
            f" image {image.shape}, got {numbers.size}."
        )
    return numbers
