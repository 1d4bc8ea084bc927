"""Filters: each pixel from those about it, any number of channels.

The pure functions take float images [H, W, C] in [0, 1] and do not clip. Beyond its border an image
is mirrored, 3 2 | 1 2 3 4 | 3 2; with `size` that is the border of the used part of a canvas. Sums
are written out tap by tap: a convolution's rounding would depend on the batch size.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxaug._typing import Array, Scalar
from jaxaug.augment._boundary import computed_once
from jaxaug.augment._used import extent, inside, mirrored
from jaxaug.augment._values import on_image


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
    sizes = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
    check_kernel_size(sizes[0])
    check_kernel_size(sizes[1])
    if sigma is None:
        sigma = [0.15 * taps + 0.35 for taps in sizes]
    sigma = jnp.broadcast_to(jnp.asarray(sigma, jnp.float32), (2,))
    image = _along(image, _gaussian(sizes[0], sigma[0]), 1, size)
    image = _along(image, _gaussian(sizes[1], sigma[1]), 0, size)
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
    return _along(_along(image, weights, 1, size), weights, 0, size)


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
    return _correlated(image, kernel, size)


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
    return _correlated(image, _disk(kernel_size, radius), size)


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
    padded = _mirrored(image, kernel_size // 2, size)
    window = [
        padded[y : y + height, x : x + width]
        for y in range(kernel_size)
        for x in range(kernel_size)
    ]
    return _median(window)


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
    ones = [1.0, 1.0, 1.0]
    total = _along(_along(image, ones, 1, size), ones, 0, size)
    change = (total + 4 * image) * (1 / 13) - image
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
    return _along(image, second_difference, 1, size) + _along(image, second_difference, 0, size)


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
        image = reduce(jnp.maximum, _taps(image, kernel_size, axis, size))
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
    return _sum(points) * (1 / taps)


def _normalized(weights: Array) -> list[Array]:
    """Return weights [n], one by one, that add up to 1."""
    # The reciprocal is taken by hand: for a division by one number XLA may do either, not the same
    # for every batch size.
    scale = 1.0 / _total(weights)
    return [weights[i] * scale for i in range(weights.shape[0])]


def _total(values: Array) -> Array:
    """Return the sum over the first axis, in a fixed order."""
    return _sum([values[i] for i in range(values.shape[0])])


def _sum(values: Sequence[Array]) -> Array:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def check_kernel_size(taps: Any) -> None:
    """Raise where a kernel has no middle tap."""
    if not isinstance(taps, int) or taps < 1 or taps % 2 == 0:
        raise ValueError(f"`kernel_size` must be an odd int of at least 1, got {taps!r}.")


# ---- passes over the image


def _mirrored(image: Array, radius: int, size: Any) -> Array:
    """Return the image with a mirrored margin of `radius` on all sides."""
    image = mirrored(image, radius, radius, 0, size)
    return computed_once(mirrored(image, radius, radius, 1, size))


def _taps(image: Array, taps: int, axis: int, size: Any) -> list[Array]:
    """Return the image moved by each offset of a line of `taps`, mirrored at the border."""
    padded = computed_once(mirrored(image, taps // 2, taps // 2, axis, size))
    length = image.shape[axis]
    return [lax.slice_in_dim(padded, i, i + length, axis=axis) for i in range(taps)]


def _along(image: Array, weights: Sequence[Scalar], axis: int, size: Any) -> Array:
    """Return the correlation with weights along one axis."""
    taps = _taps(image, len(weights), axis, size)
    return _sum([weight * tap for weight, tap in zip(weights, taps)])


def _correlated(image: Array, kernel: Array, size: Any) -> Array:
    """Return the correlation with a kernel [k, k], one row of the kernel after the other."""
    height, width, _ = image.shape
    taps = kernel.shape[0]
    padded = _mirrored(image, taps // 2, size)

    def add_row(total: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        index, weights = row
        lines = lax.dynamic_slice_in_dim(padded, index, height, axis=0)
        terms = [weights[x] * lines[:, x : x + width] for x in range(taps)]
        return total + _sum(terms), None

    # A loop: written out, the kernels that draws of 21 x 21 ask for would take minutes to compile.
    rows = (jnp.arange(taps, dtype=jnp.int32), kernel)
    return lax.scan(add_row, jnp.zeros_like(image), rows)[0]


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
