"""Filters, any number of channels: sharpness, edges, morphology, coarse pixels.

The pure functions take float images [H, W, C] in [0, 1] and do not clip. Beyond its border an image
is mirrored, 3 2 | 1 2 3 4 | 3 2; with `size` that is the border of the used part of a canvas.
"""

from dataclasses import KW_ONLY, dataclass, field
from functools import reduce
from typing import Any, Literal

import jax.numpy as jnp

from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._base import (
    ImageInfo,
    Range,
    as_choice,
    as_number,
    as_range,
    converter,
    extent,
    inside,
    on_image,
)
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._ops.correlate import (
    along,
    as_kernel_size,
    check_kernel_size,
    mirrored_all,
    taps_along,
    written_sum,
)
from jaxaug.augment.random import uniform


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

    sharpness_factor: float = field(metadata=converter(as_number, 0.0, float("inf")))
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> None:
        """Draw nothing but the coin of `p`."""
        del key, info

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Sharpen the used part."""
        del params
        return jnp.clip(adjust_sharpness(image, self.sharpness_factor, info.size), 0.0, 1.0)


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

    kernel_size: int = field(default=3, metadata=converter(as_kernel_size))
    operation: Literal["dilation", "erosion"] = field(
        default="dilation", metadata=converter(as_choice, ("dilation", "erosion"))
    )
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> None:
        """Draw nothing but the coin of `p`."""
        del key, info

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Filter the used part."""
        del params
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

    scale_range: Range = field(default=(0.25, 0.25), metadata=converter(as_range, _MIN_SCALE, 1.0))
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the scale."""
        del info
        return uniform(key, *self.scale_range)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Coarsen the used part."""
        return downscale(image, params, info.size)
