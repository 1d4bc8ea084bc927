"""Blurs, any number of channels: Gaussian, box, motion, defocus, median.

The pure functions take float images [H, W, C] in [0, 1]. Beyond its border an image is mirrored,
3 2 | 1 2 3 4 | 3 2; with `size` that is the border of the used part of a canvas.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Range,
    as_pair,
    as_range,
    as_range_of,
    as_range_to,
    on_image,
    plain,
)
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._ops.correlate import (
    along,
    as_kernel_size,
    check_kernel_size,
    correlated,
    mirrored_all,
    written_sum,
)
from jaxaug.augment.random import between, uniform


@on_image
def gaussian_blur(image: Array, kernel_size: Any, sigma: Any = None, size: Any = None) -> Array:
    """Return the image blurred by a Gaussian of `kernel_size` taps.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, an odd int or two, (along x, along y).
      sigma: the standard deviation in pixels, one number or two, (along x, along y); 0 is the
        image. None takes 0.15 kernel_size + 0.35.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((1, 5, 1)).at[0, 2, 0].set(1.0)
      >>> print((gaussian_blur(image, 3, 0.8)[0, :, 0] * 100).round())
      [ 0. 24. 52. 24.  0.]

    Differs from torchvision in taking images smaller than the kernel.
    """
    sizes = _as_kernel_sizes(kernel_size)
    if sigma is None:
        sigma = [0.15 * taps + 0.35 for taps in sizes]
    sigma = jnp.broadcast_to(jnp.asarray(sigma, jnp.float32), (2,))
    image = along(image, _gaussian(sizes[0], sigma[0]), 1, size)
    image = along(image, _gaussian(sizes[1], sigma[1]), 0, size)
    return image


@on_image
def box_blur(image: Array, kernel_size: int, size: Any = None) -> Array:
    """Return the mean of the `kernel_size` x `kernel_size` pixels about each pixel.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, an odd int.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((1, 5, 1)).at[0, 2, 0].set(1.0)
      >>> print((box_blur(image, 3)[0, :, 0] * 100).round())
      [ 0. 33. 33. 33.  0.]
    """
    check_kernel_size(kernel_size)
    weights = _box(kernel_size, (kernel_size - 1) / 2)
    return along(along(image, weights, 1, size), weights, 0, size)


@on_image
def motion_blur(
    image: Array, kernel_size: int, angle: Scalar, direction: Scalar = 0.0, size: Any = None
) -> Array:
    """Return the image blurred along a line of `kernel_size` points, one pixel apart.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, an odd int.
      angle: of the line, in degrees, counter-clockwise from the x axis.
      direction: in [-1, 1], where the weight lies: 0 spreads it evenly, 1 trails behind each pixel,
        -1 before it.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((1, 5, 1)).at[0, 2, 0].set(1.0)
      >>> print((motion_blur(image, 3, 0.0, 1.0)[0, :, 0] * 100).round())
      [ 0.  0. 33. 67.  0.]

    Reference: `kornia.filters.motion_blur`.

    Differs from kornia in placing the points between the pixels, bilinearly, not on the nearest.
    """
    check_kernel_size(kernel_size)
    kernel = _line(kernel_size, (kernel_size - 1) / 2, angle, direction)
    return correlated(image, kernel, size)


@on_image
def defocus(image: Array, kernel_size: int, radius: Scalar, size: Any = None) -> Array:
    """Return the image blurred by a disk, as a lens out of focus does.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, an odd int; the disk is cut off beyond it.
      radius: of the disk, in pixels, at most (kernel_size - 1) / 2; its edge is one pixel soft. 0
        is the image.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((5, 5, 1)).at[2, 2, 0].set(1.0)
      >>> print((defocus(image, 3, 1.0)[2, :, 0] * 100).round())
      [ 0. 15. 30. 15.  0.]

    Reference: `albumentations.Defocus`, of whose aliased disk this is the smooth form.
    """
    check_kernel_size(kernel_size)
    return correlated(image, _disk(kernel_size, radius), size)


@on_image
def median_blur(image: Array, kernel_size: int, size: Any = None) -> Array:
    """Return the median of the `kernel_size` x `kernel_size` values about each value.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, 3 or 5; 7 and more are slow to compile.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((5, 5, 1)).at[2, 2, 0].set(1.0)
      >>> float(median_blur(image, 3).max())
      0.0
    """
    check_kernel_size(kernel_size)
    height, width, _ = image.shape
    padded = mirrored_all(image, kernel_size // 2, size)
    window = [
        padded[y : y + height, x : x + width]
        for y in range(kernel_size)
        for x in range(kernel_size)
    ]
    return _median(window)


# ---- transforms


def _as_kernel_sizes(kernel_size: Any) -> tuple[int, int]:
    """Return the taps (along x, along y) of one odd int or two."""
    sizes = as_pair(plain(kernel_size))
    if not isinstance(sizes, tuple) or len(sizes) != 2:
        raise ValueError(f"`kernel_size` must be an odd int or two, got {kernel_size!r}.")
    for taps in sizes:
        check_kernel_size(taps)
    return sizes


def _as_kernel_size(name: str, value: Any) -> Any:
    """Return an odd int or two as they are, checked."""
    _as_kernel_sizes(value)
    return plain(value)


@dataclass(frozen=True)
class GaussianBlur(ImageOp):
    """Blur by a Gaussian of random width, one for both axes.

    Args:
      kernel_size: odd, the taps of the filter: an int, or (along x, along y).
      sigma: (low, high), the range of the standard deviation in pixels, or one number.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> GaussianBlur(23)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    kernel_size: Annotated[Any, Converter(_as_kernel_size)]
    sigma: Annotated[Range, Converter(as_range_of, 0.0)] = (0.1, 2.0)
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the standard deviation."""
        return uniform(key, *self.sigma)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Blur the used part."""
        return gaussian_blur(image, self.kernel_size, params, info.size)


@dataclass(frozen=True)
class BoxBlur(ImageOp):
    """Replace each pixel by the mean of a square about it, of random size.

    Args:
      blur_limit: (low, high), at least 1, the range of the square's side in pixels; at a side
        between two odd numbers the outermost pixels count in part.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> BoxBlur()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Blur`, whose sides are odd ints.
    """

    blur_limit: Annotated[Range, Converter(as_range_to, 1.0)] = (3.0, 7.0)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the side."""
        return uniform(key, *self.blur_limit)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Blur the used part."""
        radius = (params - 1) / 2
        weights = _box(_taps_for(self.blur_limit[1] / 2), radius)
        return along(along(image, weights, 1, info.size), weights, 0, info.size)


class Motion(NamedTuple):
    """Drawn parameters of `MotionBlur`: float32 length in pixels, degrees, direction."""

    length: Array
    angle: Array
    direction: Array


@dataclass(frozen=True)
class MotionBlur(ImageOp):
    """Blur along a line of random length, angle and direction; see `functional.motion_blur`.

    Args:
      blur_limit: (low, high), at least 1, the range of the line's length in pixels.
      angle_range: (low, high), degrees, counter-clockwise.
      direction_range: (low, high), within [-1, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> MotionBlur()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.MotionBlur`.
    """

    blur_limit: Annotated[Range, Converter(as_range_to, 1.0)] = (3.0, 7.0)
    angle_range: Annotated[Range, Converter(as_range)] = (0.0, 360.0)
    direction_range: Annotated[Range, Converter(as_range, -1.0, 1.0)] = (-1.0, 1.0)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Motion:
        """Draw the line."""
        ranges = (self.blur_limit, self.angle_range, self.direction_range)
        numbers = uniform(key, shape=(3,))
        return Motion(*(between(number, *pair) for number, pair in zip(numbers, ranges)))

    def apply(self, params: Motion, image: Array, info: ImageInfo) -> Array:
        """Blur the used part."""
        taps = _taps_for(self.blur_limit[1] / 2)
        kernel = _line(taps, (params.length - 1) / 2, params.angle, params.direction)
        return correlated(image, kernel, info.size)


@dataclass(frozen=True)
class Defocus(ImageOp):
    """Blur by a disk of random radius, as a lens out of focus does.

    Args:
      radius: (low, high), at least 0, the range of the radius in pixels. The cost grows with the
        square of the largest.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Defocus((1, 3))(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Defocus`, of whose aliased disk this is the smooth form.
    """

    radius: Annotated[Range, Converter(as_range_to, 0.0)] = (3.0, 10.0)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the radius."""
        return uniform(key, *self.radius)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Blur the used part."""
        return correlated(image, _disk(_taps_for(self.radius[1] + 0.5), params), info.size)


@dataclass(frozen=True)
class MedianBlur(ImageOp):
    """Replace each value by the median of a square about it, with probability `p`.

    Args:
      kernel_size: 3 or 5, the side of the square; 7 and more are slow to compile.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> MedianBlur()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from albumentations in one side for all images.
    """

    kernel_size: Annotated[int, Converter(as_kernel_size)] = 3
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Filter the used part."""
        return median_blur(image, self.kernel_size, info.size)


def _taps_for(reach: float) -> int:
    """Return the odd number of taps whose pixels lie less than `reach` from the middle, or more."""
    return 2 * math.ceil(reach - 0.5) + 1


# ---- kernels


def _gaussian(taps: int, sigma: Scalar) -> list[Array]:
    """Return the weights of a Gaussian; at 0 the middle one is 1 and the others are 0."""
    inverse = 1.0 / jnp.maximum(jnp.asarray(sigma, jnp.float32), _SMALLEST_SIGMA)
    distances = np.arange(taps, dtype=np.float32) - np.float32(taps // 2)
    return _normalized(jnp.exp(-0.5 * jnp.square(distances * inverse)))


_SMALLEST_SIGMA = 0.05  # where the weights beside the middle one are below float32's smallest


def _box(taps: int, radius: Scalar) -> list[Array]:
    """Return equal weights up to `radius` about the middle; between whole pixels less."""
    distances = np.abs(np.arange(taps, dtype=np.float32) - np.float32(taps // 2))
    return _normalized(jnp.clip(radius + 1 - distances, 0.0, 1.0))


def _disk(taps: int, radius: Scalar) -> Array:
    """Return [taps, taps], a disk of `radius` about the middle with an edge one pixel soft."""
    offsets = np.arange(taps, dtype=np.float32) - np.float32(taps // 2)
    distances = np.hypot(offsets[:, None], offsets[None, :])
    weights = jnp.clip(radius + 0.5 - distances, 0.0, 1.0)
    return weights * (1.0 / _total(_total(weights)))


def _line(taps: int, radius: Scalar, angle: Scalar, direction: Scalar) -> Array:
    """Return [taps, taps], points on a line through the middle, spread over the nearest pixels."""
    radians = jnp.asarray(angle, jnp.float32) * (np.pi / 180)
    along_x = jnp.cos(radians) * radius
    along_y = -jnp.sin(radians) * radius
    offsets = np.arange(taps, dtype=np.float32) - np.float32(taps // 2)
    places = [float(place) for place in np.linspace(-1.0, 1.0, taps)] if taps > 1 else [0.0]

    def near(position: Array) -> Array:
        return jnp.maximum(0.0, 1.0 - jnp.abs(offsets - position))

    points = [
        (1 - direction * place) * near(along_y * place)[:, None] * near(along_x * place)[None, :]
        for place in places
    ]
    return written_sum(points) * (1 / taps)


def _normalized(weights: Array) -> list[Array]:
    """Return weights [n], one by one, that add up to 1."""
    # The reciprocal is taken by hand: for a division by one number XLA may do either, not the same
    # for every batch size.
    scale = 1.0 / _total(weights)
    return [weights[i] * scale for i in range(weights.shape[0])]


def _total(values: Array) -> Array:
    """Return the sum over the first axis, in a fixed order."""
    return written_sum([values[i] for i in range(values.shape[0])])


def _median(values: list[Array]) -> Array:
    """Return the median of an odd number of arrays, value by value.

    Of any more than half of the values, neither the smallest nor the largest is the median: they
    are dropped, and the next value is taken in, until one is left.
    """
    count = len(values) // 2 + 2
    held = values[:count]
    rest = values[count:]
    while len(held) > 2:
        for low in range(len(held) - 1):
            held[low], held[-1] = _ordered(held[low], held[-1])
        held.pop()
        for high in range(1, len(held)):
            held[0], held[high] = _ordered(held[0], held[high])
        held.pop(0)
        if rest:
            held.append(rest.pop(0))
    return held[0]


def _ordered(a: Array, b: Array) -> tuple[Array, Array]:
    return jnp.minimum(a, b), jnp.maximum(a, b)
