"""Resizing to random or bounded sides, aspect kept, onto arrays of a static shape.

An output array holds the largest image that its transform can make, and "size" tells how much of it
is used. In a run that ends with an op of fixed size, such as `RandomCrop`, only that op's array is
made.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxaug._checks import check_positive_int
from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._base import (
    INTERPOLATIONS,
    ImageInfo,
    Range,
    Size,
    as_choice,
    as_optional,
    as_positive_int,
    as_size,
    as_static_range,
    converter,
    plain,
)
from jaxaug.augment._chain import Geometric
from jaxaug.augment._warp import Resampling, Warp
from jaxaug.augment.matrix import scaling
from jaxaug.augment.random import choice, integers, uniform

# Sides are rounded down, as torchvision does; float32 may put a whole number a little below itself.
_ROUNDING = 1e-3


class Scale(NamedTuple):
    """Drawn parameter of `ScaleJitter`: float32, a factor."""

    scale: Array


def _as_scale_range(name: str, value: Any) -> tuple[float, float]:
    """Return (low, high) above 0."""
    scales = as_static_range(name, value, 0.0)
    if scales[0] == 0:
        raise ValueError(f"`{name}` must be above 0, got {scales}.")
    return scales


def _as_sides(name: str, value: Any) -> tuple[int, ...]:
    """Return one int of at least 1, or several, as a tuple."""
    sides = plain(value)
    sides = sides if isinstance(sides, tuple) else (sides,)
    if not sides:
        raise ValueError(f"`{name}` must be an int of at least 1 or several, got ().")
    for side in sides:
        check_positive_int(name, side)
    return sides


@dataclass(frozen=True)
class ScaleJitter(Geometric):
    """Resize the image to fit `target_size`, times a random factor, aspect kept.

    The output array is `target_size` times `scale_range[1]`.

    Args:
      target_size: (height, width) in pixels, or an int for a square.
      scale_range: (low, high) of the factor, above 0.
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {"image": jnp.zeros((20, 40, 3), jnp.uint8)}
      >>> out = ScaleJitter(32, (0.5, 0.5))(jax.random.key(0), sample)
      >>> out["image"].shape, out["size"].tolist()
      ((16, 16, 3), [8, 16])

    Reference: Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method", 2021,
      section 3. The rule is torchvision's.

    Differs from torchvision where `target_size` is not a square: there its height limits the width
    of the image, and its width the height.
    """

    target_size: Size = field(metadata=converter(as_size))
    scale_range: Range = field(default=(0.1, 2.0), metadata=converter(_as_scale_range))
    interpolation: str = field(default="bilinear", metadata=converter(as_choice, INTERPOLATIONS))

    def make_params(self, key: Key, info: ImageInfo) -> Scale:
        """Draw the factor."""
        del info
        return Scale(uniform(key, *self.scale_range))

    def warp(self, params: Scale, info: ImageInfo) -> Warp:
        """Return the resize."""
        low, high = self.scale_range
        height, width = info.extent
        rows, columns = self.target_size
        scale = jnp.minimum(_float(rows / height), _float(columns / width)) * params.scale
        canvas = (_at_least_one(rows * high), _at_least_one(columns * high))
        lowest = min(rows / info.canvas[0], columns / info.canvas[1]) * low
        return _rescaled(info, scale, canvas, lowest)

    def resampling(self) -> Resampling:
        """Return the resampling with its interpolation."""
        return Resampling(self.interpolation)


class ShorterSide(NamedTuple):
    """Drawn parameter of `RandomShortestSize` and `RandomResize`: int32 pixels."""

    side: Array


@dataclass(frozen=True)
class RandomShortestSize(Geometric):
    """Resize the shorter side of the image to one of several lengths, aspect kept.

    Args:
      min_size: the length of the shorter side in pixels, or several, each as likely.
      max_size: a bound of the longer side: an image beyond it is made smaller.
      interpolation: "bilinear", "bicubic" or "nearest".
      canvas: (height, width) of the output array; an image that does not fit is shrunk until it
        does. By default a square of `max_size`. One of the two is needed where the images lie on a
        canvas with `size`.

    Raises:
      ValueError: on tracing, where the output array has no static shape.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {"image": jnp.zeros((20, 40, 3), jnp.uint8)}
      >>> resize = RandomShortestSize((10, 10), max_size=16)
      >>> resize(jax.random.key(0), sample)["size"].tolist()
      [8, 16]

    The rule is torchvision's.

    Differs from torchvision where a side is a whole number, which its floats may miss by a pixel:
    175 x 180 with 31 is 31 x 31 here, 30 x 31 there.
    """

    min_size: Any = field(metadata=converter(_as_sides))
    max_size: int | None = field(default=None, metadata=converter(as_optional, as_positive_int))
    interpolation: str = field(default="bilinear", metadata=converter(as_choice, INTERPOLATIONS))
    _: KW_ONLY
    canvas: Size | None = field(default=None, metadata=converter(as_optional, as_size))

    def make_params(self, key: Key, info: ImageInfo) -> ShorterSide:
        """Draw the length of the shorter side."""
        del info
        sizes = jnp.asarray(self.min_size, jnp.int32)
        picked = jnp.arange(len(self.min_size), dtype=jnp.int32) == choice(key, len(self.min_size))
        return ShorterSide(jnp.sum(jnp.where(picked, sizes, 0), dtype=jnp.int32))

    def warp(self, params: ShorterSide, info: ImageInfo) -> Warp:
        """Return the resize."""
        sides = (min(self.min_size), max(self.min_size))
        return _shorter_side_onto(self, params.side, sides, self.max_size, self.canvas, info)

    def resampling(self) -> Resampling:
        """Return the resampling with its interpolation."""
        return Resampling(self.interpolation)


@dataclass(frozen=True)
class RandomResize(Geometric):
    """Resize the shorter side of the image to a random length, aspect kept.

    Args:
      min_size, max_size: the least and the largest length of the shorter side in pixels; every
        whole number from one to the other is as likely.
      interpolation: "bilinear", "bicubic" or "nearest".
      canvas: (height, width) of the output array; an image that does not fit is shrunk until it
        does. Needed where the images lie on a canvas with `size`.

    Raises:
      ValueError: on tracing, where the output array has no static shape.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {"image": jnp.zeros((20, 40, 3), jnp.uint8)}
      >>> RandomResize(10, 10)(jax.random.key(0), sample)["size"].tolist()
      [10, 20]

    The rule is torchvision's.
    """

    min_size: int = field(metadata=converter(as_positive_int))
    max_size: int = field(metadata=converter(as_positive_int))
    interpolation: str = field(default="bilinear", metadata=converter(as_choice, INTERPOLATIONS))
    _: KW_ONLY
    canvas: Size | None = field(default=None, metadata=converter(as_optional, as_size))

    def __post_init__(self):
        super().__post_init__()
        if self.min_size > self.max_size:
            raise ValueError(
                f"`max_size` must be at least `min_size` {self.min_size}, got {self.max_size}."
            )

    def make_params(self, key: Key, info: ImageInfo) -> ShorterSide:
        """Draw the length of the shorter side."""
        del info
        return ShorterSide(integers(key, self.min_size, self.max_size + 1))

    def warp(self, params: ShorterSide, info: ImageInfo) -> Warp:
        """Return the resize."""
        sides = (self.min_size, self.max_size)
        return _shorter_side_onto(self, params.side, sides, None, self.canvas, info)

    def resampling(self) -> Resampling:
        """Return the resampling with its interpolation."""
        return Resampling(self.interpolation)


def _shorter_side_onto(
    transform: Geometric,
    side: Array,
    sides: tuple[int, int],
    longest: int | None,
    canvas: tuple[int, int] | None,
    info: ImageInfo,
) -> Warp:
    """Return the resize of the shorter side to `side`, which lies within `sides`."""
    height, width = info.extent
    scale = side.astype(jnp.float32) / jnp.minimum(_float(height), _float(width))
    lowest = sides[0] / min(info.canvas)
    highest = sides[1] / min(info.canvas)
    if longest is not None:
        scale = jnp.minimum(scale, longest / jnp.maximum(_float(height), _float(width)))
        lowest = min(lowest, longest / max(info.canvas))
        highest = min(highest, longest / max(info.canvas))
    if canvas is not None:
        rows, columns = canvas
        fits = jnp.minimum(_float(rows / height), _float(columns / width))
        lowest = min(lowest, rows / info.canvas[0], columns / info.canvas[1])
        return _rescaled(info, jnp.minimum(scale, fits), canvas, lowest)
    if info.size is None:
        rows, columns = info.canvas
        return _rescaled(
            info, scale, (_at_least_one(rows * highest), _at_least_one(columns * highest)), lowest
        )
    if longest is not None:
        return _rescaled(info, scale, (longest, longest), lowest)
    raise ValueError(
        f"{type(transform).__name__} keeps the aspect of images whose `size` differs, so its output"
        " needs a static shape: give `canvas=(height, width)`."
    )


def _rescaled(info: ImageInfo, scale: Array, canvas: tuple[int, int], lowest: float) -> Warp:
    """Return the resize by `scale`.

    Args:
      info: of the image.
      scale: float32, traced.
      canvas: (height, width) of the output, where the result fits.
      lowest: a static lower bound of `scale` for an image that fills its array.
    """
    extent = jnp.stack([_float(side) for side in info.extent])
    limits = jnp.asarray(canvas, jnp.float32)
    sides = jnp.clip(jnp.floor(extent * scale + _ROUNDING), 1.0, limits)
    # A side that is rounded down to a pixel less shrinks a little more.
    most = max(1.0, (1 + 1 / max(1.0, lowest * min(info.canvas))) / lowest)
    return Warp(
        scaling(extent[1] / sides[1], extent[0] / sides[0]),
        canvas,
        sides.astype(jnp.int32),
        (most, most),
        inside_source=True,
        crop_window=(0.0, 0.0, *info.extent),
    )


def _at_least_one(length: float) -> int:
    return max(1, int(length + _ROUNDING))


def _float(value: Scalar) -> Array:
    return jnp.asarray(value, jnp.float32)
