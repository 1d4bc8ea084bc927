"""Rotation, in the frame of the image or in one that holds all of it.

Angles are degrees, counter-clockwise on screen; on a canvas with `size` "the image" is its used
part.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Canvas,
    Flag,
    ImageInfo,
    Point,
    SymmetricRange,
)
from jaxaug.augment._chain import Bordered
from jaxaug.augment._ops.geometry import affine
from jaxaug.augment._warp import Warp, has_static_shape, warp_image
from jaxaug.augment.matrix import Matrix, about, is_static, product, rotation, translation
from jaxaug.augment.random import uniform

_ROUNDING = 1e-3  # pixels; cosines of right angles are a little beside 0


def rotate(
    image: Array,
    angle: Scalar,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
    expand: bool = False,
    center: tuple[Scalar, Scalar] | None = None,
) -> Array:
    """Return the image turned about a center.

    Args:
      image: uint8 or float [H, W, C].
      angle: degrees, counter-clockwise on screen; static or traced.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.
      expand: return the smallest frame that holds all of the turned image, instead of the image's
        own; the angle must be static then.
      center: (x, y) in pixels from the top left corner; None for the middle of the image. It says
        nothing with `expand`.

    Returns:
      [H, W, C], or another height and width with `expand`; the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> rotate(jnp.arange(4.0).reshape(2, 2, 1), 90)[:, :, 0].round(4).tolist()
      [[1.0, 3.0], [0.0, 2.0]]

    Differs from torchvision in `interpolation`, there "nearest" by default, and in expanded frames,
    there of all pixels that the turned image touches: a side may be a pixel longer. "bicubic" is
    the kernel of PIL's resize (a = -1/2) here, too; PIL's own `rotate` takes a sharper one
    (a = -1).
    """
    if not expand:
        return affine(
            image,
            angle,
            interpolation=interpolation,
            padding_mode=padding_mode,
            fill=fill,
            center=center,
        )
    if isinstance(angle, Tracer):
        raise TypeError("`angle` must be static with `expand`: it decides the shape.")
    info = ImageInfo((image.shape[0], image.shape[1]))
    height, width = _turned_sides(*info.extent, math.radians(angle))
    canvas = (_whole(height), _whole(width))
    matrix = _turned(info, angle, canvas)
    return warp_image(image, Warp(matrix, canvas), interpolation, padding_mode, fill)


# ---- transforms


class Rotation(NamedTuple):
    """Drawn parameter of `RandomRotation`: float32 degrees."""

    angle: Array


@dataclass(frozen=True)
class RandomRotation(Bordered):
    """Turn about a center, in the same frame or in one that holds all of the turned image.

    Args:
      degrees: (low, high) of the angle, counter-clockwise; a number v means (-v, v).
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.
      expand: give each image the smallest frame that holds all of it turned: its new "size", on an
        array that is large enough for every angle.
      center: (x, y) in pixels from the top left corner; None for the middle of the image. It says
        nothing with `expand`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomRotation(15)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in bilinear interpolation by default, and in expanded frames that may
    be a pixel smaller. Boxes lie in them where the pixels do, and the image is in the middle of its
    frame; there boxes begin at the frame's corner, which differs by up to half a pixel.
    """

    degrees: SymmetricRange
    _: KW_ONLY
    p: float = 1.0
    expand: Flag = False
    center: Point = None

    def make_params(self, key: Key, info: ImageInfo) -> Rotation:
        """Draw the angle."""
        return Rotation(uniform(key, *self.degrees))

    def neutral(self, params: Rotation) -> Rotation | None:
        """Return no turn where the array grows, which it does for the others, too."""
        return Rotation(jnp.zeros_like(params.angle)) if self.expand else None

    def warp(self, params: Rotation, info: ImageInfo) -> Warp:
        """Return the turn."""
        if self.expand:
            return _expanding(info, params.angle, self.degrees)
        if self.center is None:
            return Warp.centered(info, rotation(params.angle))
        return Warp.framing(info, about(rotation(params.angle), *self.center))


def _expanding(info: ImageInfo, angle: Array, degrees: tuple[Scalar, Scalar]) -> Warp:
    """Return the turn into the smallest frame, on an array for all angles within `degrees`."""
    radians = angle * (math.pi / 180)
    height, width = map(jnp.float32, info.extent)
    canvas = _largest_frame(info.canvas, degrees)
    frame = jnp.ceil(jnp.stack(_turned_sides(height, width, radians, jnp)) - _ROUNDING)
    if has_static_shape(canvas):
        frame = jnp.minimum(frame, jnp.asarray(canvas, jnp.float32))
    frame = jnp.maximum(frame, 1.0)
    return Warp(_turned(info, angle, (frame[0], frame[1])), canvas, frame.astype(jnp.int32))


def _turned(info: ImageInfo, angle: Scalar, frame: tuple[Scalar, Scalar]) -> Matrix:
    """Return the turn that takes the middle of the image to that of a (height, width) frame."""
    height, width = info.extent
    turned = product(rotation(angle), translation(-frame[1] / 2, -frame[0] / 2))
    return product(translation(width / 2, height / 2), turned)


def _turned_sides(height: Any, width: Any, radians: Any, numpy: Any = np) -> tuple[Any, Any]:
    """Return the (height, width) of the hull of a turned rectangle, by numpy or jax.numpy."""
    cos = numpy.abs(numpy.cos(radians))
    sin = numpy.abs(numpy.sin(radians))
    return height * cos + width * sin, width * cos + height * sin


def _largest_frame(canvas: Canvas, degrees: tuple[Scalar, Scalar]) -> Canvas:
    """Return the (height, width) that hold a canvas turned by any angle within `degrees`.

    Whole pixels, or a bound where the canvas is one, see `Warp`. Arrays may be any angle.
    """
    height, width = canvas
    if not all(map(is_static, degrees)):
        degrees = (0.0, 180.0)
    low, high = (math.radians(angle) for angle in degrees)
    # Each side of the hull has its maxima where a diagonal lies along it.
    diagonals = [math.atan2(height, width), math.atan2(width, height)]
    angles = [low, high]
    for first in (*diagonals, *(-diagonal for diagonal in diagonals)):
        turns = math.ceil((low - first) / math.pi)
        if first + turns * math.pi <= high:
            angles.append(first + turns * math.pi)
    sides = [_turned_sides(height, width, angle) for angle in angles]
    largest = max(side[0] for side in sides), max(side[1] for side in sides)
    if has_static_shape(canvas):
        return _whole(largest[0]), _whole(largest[1])
    return largest[0] + 1.0, largest[1] + 1.0  # frames are rounded up


def _whole(length: float) -> int:
    """Return the next whole number of pixels, but for the last bits of one."""
    return max(1, math.ceil(length - _ROUNDING))
