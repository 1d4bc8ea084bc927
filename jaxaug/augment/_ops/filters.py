"""Filters, any number of channels: sharpness, edges, relief, morphology, coarse pixels.

The pure functions take float images [H, W, C] in [0, 1] and do not clip. Beyond its border an image
is mirrored, 3 2 | 1 2 3 4 | 3 2; with `size` that is the border of the used part of a canvas.
"""

from dataclasses import KW_ONLY, dataclass
from functools import reduce
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Range,
    UnitRange,
    as_choice,
    as_number,
    as_range,
    extent,
    inside,
    on_image,
)
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._ops.blur import gaussian_blur
from jaxaug.augment._ops.correlate import (
    along,
    as_kernel_size,
    check_kernel_size,
    mirrored_all,
    taps_along,
    written_sum,
)
from jaxaug.augment.random import between, uniform


@on_image
def adjust_sharpness(image: Array, sharpness_factor: Scalar, size: Any = None) -> Array:
    """Return f * image + (1 - f) * smooth.

    smooth is the sum of the 3x3 pixels about each pixel and four times the pixel itself, over 13;
    the outermost pixels stay as they are.

    Args:
      image: float [H, W, C] in [0, 1].
      sharpness_factor: f; 0 is smooth, 1 the image, 2 sharper.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((3, 3, 1)).at[1, 1, 0].set(1.0)
      >>> print((adjust_sharpness(image, 0.0)[1, :, 0] * 13).round())
      [0. 5. 0.]

    Differs from torchvision in not clipping.
    """
    height, width, _ = image.shape
    padded = mirrored_all(image, 1, size)
    taps = [padded[y : y + height, x : x + width] for y in range(3) for x in range(3)]
    # The stored pixels: computed anew from 8 bits, they may be rounded otherwise in other programs.
    image = taps[4]
    change = (written_sum(taps) + 4 * image) * (1 / 13) - image
    interior = inside(image, size, margin=1)[:, :, None]
    return image + (1 - sharpness_factor) * jnp.where(interior, change, 0.0)


@on_image
def unsharp_mask(
    image: Array, kernel_size: int, sigma: Scalar, amount: Scalar, size: Any = None
) -> Array:
    """Return image + amount * (image - its Gaussian blur).

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, an odd int, the taps of the Gaussian.
      sigma: the standard deviation of the Gaussian in pixels; 0 gives the image.
      amount: how much of what the blur takes away is added; 0 gives the image.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.25, 0.25, 0.25, 0.75, 0.75, 0.75]).reshape(1, 6, 1)
      >>> print((unsharp_mask(image, 3, 0.8, 1.0)[0, :, 0] * 100).round())
      [25. 25. 13. 87. 75. 75.]

    Reference: `kornia.filters.unsharp_mask`, whose amount is 1.
    """
    blurred = gaussian_blur(image, kernel_size, sigma, size)
    return image + amount * (image - blurred)


@on_image
def emboss(image: Array, alpha: Scalar, strength: Scalar, size: Any = None) -> Array:
    """Return (1 - alpha) * image + alpha * relief, lit from the upper left.

    relief is the image plus differences of its 3 x 3 pixels along the falling diagonal: the
    correlation with [[-1 - s, -s, 0], [-s, 1, s], [0, s, 1 + s]], whose sum is 1, with s the
    strength.

    Args:
      image: float [H, W, C] in [0, 1].
      alpha: the weight of the relief, in [0, 1].
      strength: s, at least 0.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.25, 0.25, 0.75, 0.75]).reshape(1, 4, 1)
      >>> print(emboss(image, 1.0, 0.0)[0, :, 0])
      [0.25 0.75 1.25 0.75]

    Reference: `albumentations.Emboss`.
    """
    height, width, _ = image.shape
    padded = mirrored_all(image, 1, size)

    def moved(down: int, right: int) -> Array:
        return padded[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    corners = moved(1, 1) - moved(-1, -1)
    sides = moved(0, 1) - moved(0, -1) + (moved(1, 0) - moved(-1, 0))
    # The stored pixels, as in `adjust_sharpness`.
    return moved(0, 0) + alpha * (corners + strength * (corners + sides))


@on_image
def laplacian(image: Array, size: Any = None) -> Array:
    """Return the sum of the four neighbors of each pixel less four times the pixel.

    Args:
      image: float [H, W, C] in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Returns:
      Floats in [-4, 4] of the image's shape, zero where it is flat.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((1, 5, 1)).at[0, 2, 0].set(1.0)
      >>> laplacian(image)[0, :, 0].tolist()
      [0.0, 1.0, -2.0, 1.0, 0.0]

    Reference: `cv2.Laplacian` with ksize 1, `scipy.ndimage.laplace` with mode "mirror".
    """
    second_difference = [1.0, -2.0, 1.0]
    return along(image, second_difference, 1, size) + along(image, second_difference, 0, size)


@on_image
def dilate(image: Array, kernel_size: int, size: Any = None) -> Array:
    """Return the largest of the `kernel_size` x `kernel_size` values about each value.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, an odd int.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.zeros((1, 5, 1)).at[0, 2, 0].set(1.0)
      >>> dilate(image, 3)[0, :, 0].tolist()
      [0.0, 1.0, 1.0, 1.0, 0.0]
    """
    check_kernel_size(kernel_size)
    for axis in (1, 0):
        image = reduce(jnp.maximum, taps_along(image, kernel_size, axis, size))
    return image


@on_image
def erode(image: Array, kernel_size: int, size: Any = None) -> Array:
    """Return the smallest of the `kernel_size` x `kernel_size` values about each value.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel_size: static, an odd int.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.ones((1, 5, 1)).at[0, 2, 0].set(0.0)
      >>> erode(image, 3)[0, :, 0].tolist()
      [1.0, 0.0, 0.0, 0.0, 1.0]
    """
    return -dilate(-image, kernel_size, size)


@on_image
def downscale(image: Array, scale: Scalar, size: Any = None) -> Array:
    """Return the image shrunk by `scale` and enlarged again, both to the nearest pixel.

    Args:
      image: float [H, W, C] in [0, 1].
      scale: above 0 to 1; 0.25 leaves blocks of 4 x 4 pixels, 1 the image.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> print(downscale(jnp.arange(6.0).reshape(1, 6, 1) / 10, 1 / 3)[0, :, 0])
      [0.1 0.1 0.1 0.4 0.4 0.4]

    Reference: `albumentations.Downscale`.
    """
    for axis, length in enumerate(extent(image, size)):
        small = jnp.round(length.astype(jnp.float32) * scale).astype(jnp.int32)
        small = jnp.clip(small, 1, length)
        pixel = jnp.arange(image.shape[axis], dtype=jnp.int32)
        # Centers of pixels, in whole numbers: (2 i + 1) / 2.
        block = (2 * pixel + 1) * small // (2 * length)
        nearest = (2 * block + 1) * length // (2 * small)
        image = jnp.take(image, nearest, axis=axis, mode="clip")
    return image


# ---- transforms


_MIN_SCALE = 1e-3


@dataclass(frozen=True)
class RandomAdjustSharpness(ImageOp):
    """Change the sharpness, with probability `p`.

    Values are clipped to [0, 1].

    Args:
      sharpness_factor: at least 0; 0 is smooth, 1 the image, 2 sharper.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomAdjustSharpness(2.0)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    sharpness_factor: Annotated[float, Converter(as_number, 0.0, float("inf"))]
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Sharpen the used part."""
        return jnp.clip(adjust_sharpness(image, self.sharpness_factor, info.size), 0.0, 1.0)


class Unsharp(NamedTuple):
    """Drawn parameters of `UnsharpMask`: float32 sigma in pixels, and amount."""

    sigma: Array
    amount: Array


@dataclass(frozen=True)
class UnsharpMask(ImageOp):
    """Add what a Gaussian blur takes away, with probability `p`; see `functional.unsharp_mask`.

    Values are clipped to [0, 1].

    Args:
      kernel_size: odd, the taps of the Gaussian.
      sigma: (low, high), at least 0, the range of its standard deviation in pixels.
      amount: (low, high), at least 0, the range of how much is added.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> UnsharpMask()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.UnsharpMask`, there with `alpha` for the amount.

    Differs from albumentations in sharpening small differences, too, without a threshold, and in
    drawing the width of the Gaussian, not the number of its taps.
    """

    kernel_size: Annotated[int, Converter(as_kernel_size)] = 7
    sigma: Annotated[Range, Converter(as_range, 0.0)] = (0.8, 1.4)
    amount: Annotated[Range, Converter(as_range, 0.0)] = (0.2, 0.5)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Unsharp:
        """Draw the width of the Gaussian and the amount."""
        numbers = uniform(key, shape=(2,))
        return Unsharp(between(numbers[0], *self.sigma), between(numbers[1], *self.amount))

    def apply(self, params: Unsharp, image: Array, info: ImageInfo) -> Array:
        """Sharpen the used part."""
        sharp = unsharp_mask(image, self.kernel_size, params.sigma, params.amount, info.size)
        return jnp.clip(sharp, 0.0, 1.0)


class Relief(NamedTuple):
    """Drawn parameters of `Emboss`: float32 weight and strength of the relief."""

    alpha: Array
    strength: Array


@dataclass(frozen=True)
class Emboss(ImageOp):
    """Blend in a relief lit from the upper left, with probability `p`; see `functional.emboss`.

    Values are clipped to [0, 1].

    Args:
      alpha: (low, high), within [0, 1], the range of the weight of the relief.
      strength: (low, high), at least 0, the range of its strength.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Emboss()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Emboss`.
    """

    alpha: UnitRange = (0.2, 0.5)
    strength: Annotated[Range, Converter(as_range, 0.0)] = (0.2, 0.7)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Relief:
        """Draw weight and strength."""
        numbers = uniform(key, shape=(2,))
        return Relief(between(numbers[0], *self.alpha), between(numbers[1], *self.strength))

    def apply(self, params: Relief, image: Array, info: ImageInfo) -> Array:
        """Emboss the used part."""
        return jnp.clip(emboss(image, params.alpha, params.strength, info.size), 0.0, 1.0)


@dataclass(frozen=True)
class Morphological(ImageOp):
    """Replace each value by the largest or the smallest of a square about it.

    Args:
      kernel_size: odd, the side of the square.
      operation: "dilation" for the largest, "erosion" for the smallest.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Morphological(5)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from albumentations in one side for all images, and in leaving masks and boxes.
    """

    kernel_size: Annotated[int, Converter(as_kernel_size)] = 3
    operation: Annotated[str, Converter(as_choice, ("dilation", "erosion"))] = "dilation"
    _: KW_ONLY
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Filter the used part."""
        function = dilate if self.operation == "dilation" else erode
        return function(image, self.kernel_size, info.size)


@dataclass(frozen=True)
class Downscale(ImageOp):
    """Coarsen the image to blocks of random size, with probability `p`.

    Args:
      scale_range: (low, high), within (0, 1], the range of the scale of the coarse image.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Downscale()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Downscale`.
    """

    scale_range: Annotated[Range, Converter(as_range, _MIN_SCALE, 1.0)] = (0.25, 0.25)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the scale."""
        return uniform(key, *self.scale_range)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Coarsen the used part."""
        return downscale(image, params, info.size)
