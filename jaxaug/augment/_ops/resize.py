"""Resizing to a size, and to random or bounded sides; antialiased when images shrink.

Images are HWC; sizes are (height, width); on a canvas with `size` "the image" is its used part. An
output array holds the largest image that its transform can make, and "size" tells how much of it is
used. In a run that ends with an op of fixed size, such as `RandomCrop`, only that op's array is
made.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._checks import check_positive_int
from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Interpolation,
    PositiveInt,
    Range,
    Size,
    as_int,
    as_optional,
    as_size,
    as_static_range,
    plain,
)
from jaxaug.augment._chain import Geometric
from jaxaug.augment._warp import Warp, warp_image
from jaxaug.augment.matrix import Matrix, scaling
from jaxaug.augment.random import choice, integers, uniform


def resize(image: Array, size: int | tuple[int, int], interpolation: str = "bilinear") -> Array:
    """Return the image in `size` pixels, antialiased when it shrinks.

    Args:
      image: uint8 or float [H, W, C].
      size: (height, width), or an int for the shorter side; the longer one is then int(size * long
        / short).
      interpolation: "bilinear", "bicubic" or "nearest".

    Returns:
      [height, width, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> resize(jnp.array([0, 70, 140, 210], jnp.uint8).reshape(1, 4, 1), (1, 2))[0, :, 0].tolist()
      [50, 160]

    Equals `PIL.Image.resize` with BILINEAR, BICUBIC or NEAREST, up to rounding. "bicubic" may
    overshoot: uint8 is clipped, as by PIL and torchvision, floats are not. Those two round and clip
    uint8 after each axis, which shows where both overshoot: up to some 13 levels in noise.
    """
    target = as_size("size", size)
    if isinstance(plain(size), int):
        target = _shorter_side(image.shape[0], image.shape[1], target[0])
    return warp_image(
        image, resized(ImageInfo((image.shape[0], image.shape[1])), target, None), interpolation
    )


def _as_size_or_side(name: str, value: Any) -> Any:
    """Return (height, width), or the int of the shorter side."""
    as_size(name, value)
    return plain(value)


@dataclass(frozen=True)
class Resize(Geometric):
    """Resize every image, antialiased when it shrinks.

    Args:
      size: (height, width) for every image, or an int: the length of the shorter side, the aspect
        kept.
      canvas: (height, width) of the output array, which holds images of different shapes with their
        `size`; an image whose longer side does not fit is shrunk until it does. Needed with an int
        size where the images lie on a canvas with `size`, unless an op of fixed size
        (`CenterCrop(224)`) follows in the same run.
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> size = jnp.array([20, 30], jnp.int32)
      >>> sample = {"image": jnp.zeros((40, 60, 3), jnp.uint8), "size": size}
      >>> Resize(10, canvas=(16, 16))(jax.random.key(0), sample)["size"].tolist()
      [10, 15]

    Equals `PIL.Image.resize` with BILINEAR, BICUBIC or NEAREST, up to rounding; where "bicubic"
    overshoots along both axes see `functional.resize`.
    """

    size: Annotated[Size, Converter(_as_size_or_side)]
    canvas: Annotated[Size | None, Converter(as_optional, as_size)] = None
    interpolation: Interpolation = "bilinear"

    def __post_init__(self):
        super().__post_init__()
        if self.canvas is not None and not isinstance(self.size, int):
            raise ValueError(
                f"`canvas` goes with an int `size`: {self.size} is the same for every image and"
                " needs none."
            )

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return the scale; the target follows from the image's size."""
        if not isinstance(self.size, int):
            return resized(info, self.size, None)
        if self.canvas is not None:
            return _resize_onto_canvas(info, self.size, self.canvas)
        if info.size is not None:
            return _resize_shorter_side(info, self.size)
        return resized(info, _shorter_side(*info.height_width, self.size), None)


def resized(info: ImageInfo, target: tuple[int, int], size: Array | None) -> Warp:
    """Return the warp of the image onto `target` pixels."""
    height, width = info.extent
    matrix = scaling(width / target[1], height / target[0])
    shrink = (info.canvas[0] / target[0], info.canvas[1] / target[1])
    return Warp(matrix, target, size, shrink, inside_source=True, crop_window=_frame(info))


def _frame(info: ImageInfo) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return (top, left, bottom, right) of the used part."""
    return (0.0, 0.0, *info.extent)


def _resize_shorter_side(info: ImageInfo, shorter: int) -> Warp:
    """Return the warp of the shorter side onto `shorter` pixels; its frame has no static shape."""
    height, width = map(jnp.int32, info.height_width)
    short = jnp.minimum(height, width)
    size = jnp.stack([shorter * height // short, shorter * width // short])
    most = min(info.canvas) / shorter * _rounding(shorter)
    # No bound of the frame itself: that of the source pixels it spans, in units of `most`.
    canvas = (info.canvas[0] / most, info.canvas[1] / most)
    return Warp(
        _onto(info, size), canvas, size, (most, most), inside_source=True, crop_window=_frame(info)
    )


def _onto(info: ImageInfo, size: Array) -> Matrix:
    """Return the pull of the used part onto int32[2] `size` pixels."""
    height, width = map(jnp.float32, info.extent)
    return scaling(width / size[1].astype(jnp.float32), height / size[0].astype(jnp.float32))


def _rounding(side: int) -> float:
    """Return the largest ratio of a length to its floor, which has at least `side` pixels."""
    return 1 + 1 / side


def _resize_onto_canvas(info: ImageInfo, shorter: int, canvas: tuple[int, int]) -> Warp:
    """Return the warp of the shorter side onto `shorter` pixels, fewer on a small canvas."""
    height, width = map(jnp.int32, info.height_width)
    short = jnp.minimum(height, width)
    rows = canvas[0]
    columns = canvas[1]
    shorter = min(shorter, max(canvas))  # products with more may not fit an int32
    new_height = shorter * height // short
    new_width = shorter * width // short
    new_height, new_width = _shrink_to(rows, new_height, new_width, width * rows // height)
    new_width, new_height = _shrink_to(columns, new_width, new_height, height * columns // width)
    size = jnp.maximum(jnp.stack([new_height, new_width]), 1)
    most = max(min(info.canvas) / shorter, info.canvas[0] / rows, info.canvas[1] / columns)
    most *= _rounding(min(shorter, *canvas))
    return Warp(
        _onto(info, size), canvas, size, (most, most), inside_source=True, crop_window=_frame(info)
    )


def _shrink_to(limit: int, side: Array, other: Array, other_at_limit: Array) -> tuple[Array, Array]:
    return jnp.minimum(side, limit), jnp.where(side > limit, other_at_limit, other)


def _shorter_side(height: int, width: int, size: int) -> tuple[int, int]:
    """Return (height, width) with the shorter side `size`, rounded down as torchvision does."""
    short = min(height, width)
    return size * height // short, size * width // short


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

    target_size: Size
    scale_range: Annotated[Range, Converter(_as_scale_range)] = (0.1, 2.0)
    interpolation: Interpolation = "bilinear"

    def make_params(self, key: Key, info: ImageInfo) -> Scale:
        """Draw the factor."""
        return Scale(uniform(key, *self.scale_range))

    def warp(self, params: Scale, info: ImageInfo) -> Warp:
        """Return the resize."""
        low, high = self.scale_range
        height, width = info.extent
        rows, columns = self.target_size
        scale = jnp.minimum(jnp.float32(rows / height), jnp.float32(columns / width)) * params.scale
        canvas = (_at_least_one(rows * high), _at_least_one(columns * high))
        lowest = min(rows / info.canvas[0], columns / info.canvas[1]) * low
        return _rescaled(info, scale, canvas, lowest)


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

    min_size: Annotated[Any, Converter(_as_sides)]
    max_size: Annotated[int | None, Converter(as_optional, as_int, 1)] = None
    interpolation: Interpolation = "bilinear"
    _: KW_ONLY
    canvas: Annotated[Size | None, Converter(as_optional, as_size)] = None

    def make_params(self, key: Key, info: ImageInfo) -> ShorterSide:
        """Draw the length of the shorter side."""
        sizes = jnp.asarray(self.min_size, jnp.int32)
        picked = jnp.arange(len(self.min_size), dtype=jnp.int32) == choice(key, len(self.min_size))
        return ShorterSide(jnp.sum(jnp.where(picked, sizes, 0), dtype=jnp.int32))

    def warp(self, params: ShorterSide, info: ImageInfo) -> Warp:
        """Return the resize."""
        sides = (min(self.min_size), max(self.min_size))
        return _shorter_side_onto(self, params.side, sides, self.max_size, self.canvas, info)


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

    min_size: PositiveInt
    max_size: PositiveInt
    interpolation: Interpolation = "bilinear"
    _: KW_ONLY
    canvas: Annotated[Size | None, Converter(as_optional, as_size)] = None

    def __post_init__(self):
        super().__post_init__()
        if self.min_size > self.max_size:
            raise ValueError(
                f"`max_size` must be at least `min_size` {self.min_size}, got {self.max_size}."
            )

    def make_params(self, key: Key, info: ImageInfo) -> ShorterSide:
        """Draw the length of the shorter side."""
        return ShorterSide(integers(key, self.min_size, self.max_size + 1))

    def warp(self, params: ShorterSide, info: ImageInfo) -> Warp:
        """Return the resize."""
        sides = (self.min_size, self.max_size)
        return _shorter_side_onto(self, params.side, sides, None, self.canvas, info)


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
    scale = side.astype(jnp.float32) / jnp.minimum(jnp.float32(height), jnp.float32(width))
    lowest = sides[0] / min(info.canvas)
    highest = sides[1] / min(info.canvas)
    if longest is not None:
        scale = jnp.minimum(scale, longest / jnp.maximum(jnp.float32(height), jnp.float32(width)))
        lowest = min(lowest, longest / max(info.canvas))
        highest = min(highest, longest / max(info.canvas))
    if canvas is not None:
        rows, columns = canvas
        fits = jnp.minimum(jnp.float32(rows / height), jnp.float32(columns / width))
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
    extent = jnp.stack([jnp.float32(side) for side in info.extent])
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
