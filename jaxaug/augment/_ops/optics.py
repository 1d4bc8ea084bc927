"""What glass and lenses do to pixels: glass and zoom blur, kernels of any shape, colored fringes.

The pure functions take float images [H, W, C] in [0, 1]. Beyond its border an image is mirrored,
3 2 | 1 2 3 4 | 3 2; with `size` that is the border of the used part of a canvas.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    PositiveInt,
    Range,
    SymmetricRange,
    as_choice,
    as_int_range,
    as_number,
    as_range,
    as_symmetric_range,
    extent,
    info_of,
    on_image,
    on_rgb,
    setting,
)
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._ops.blur import gaussian_blur
from jaxaug.augment._ops.correlate import check_kernel_size, correlated, written_sum
from jaxaug.augment._xla import barrier
from jaxaug.augment.random import between, integer, uniform, uniform_field


@on_image
def remap(
    image: Array, x: Array, y: Array, interpolation: str = "bilinear", size: Any = None
) -> Array:
    """Return the values of the image at any places, mirrored beyond its border.

    Args:
      image: float [H, W, C] in [0, 1].
      x, y: float [h, w], a place for each pixel of the result, in pixels from the left and upper
        edge: the center of the first pixel is 0.5.
      interpolation: "bilinear" or "nearest".
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Returns:
      Floats [h, w, C].

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.0, 0.5, 1.0]).reshape(1, 3, 1)
      >>> remap(image, jnp.array([[1.0, 2.5]]), jnp.array([[0.5, 0.5]]))[0, :, 0].tolist()
      [0.25, 1.0]

    Reference: `cv2.remap` and DALI's `fn.experimental.remap`, whose places are 0.5 less.
    """
    as_choice("interpolation", interpolation, ("bilinear", "nearest"))
    info = info_of(image, size)

    def at(row: Array, column: Array) -> Array:
        row, column = info.border(0, row), info.border(1, column)
        return image.at[row, column].get(mode="promise_in_bounds")

    if interpolation == "nearest":
        return at(jnp.floor(y).astype(jnp.int32), jnp.floor(x).astype(jnp.int32))
    left, top = jnp.floor(x - 0.5), jnp.floor(y - 0.5)
    right, down = (x - 0.5 - left)[:, :, None], (y - 0.5 - top)[:, :, None]
    column, row = left.astype(jnp.int32), top.astype(jnp.int32)
    upper = at(row, column) * (1 - right) + at(row, column + 1) * right
    lower = at(row + 1, column) * (1 - right) + at(row + 1, column + 1) * right
    return upper * (1 - down) + lower * down


@on_image
def spread_pixels(image: Array, numbers: Array, radius: int, size: Any = None) -> Array:
    """Return the image with each pixel read from another, up to `radius` pixels away.

    Args:
      image: float [H, W, C] in [0, 1].
      numbers: float[H, W, 2], of [0, 1): where the pixel is along y and x, from -radius to radius.
      radius: in pixels.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.0, 0.5, 1.0]).reshape(1, 3, 1)
      >>> spread_pixels(image, jnp.full((1, 3, 2), 0.9), 1)[0, :, 0].tolist()
      [0.5, 1.0, 0.5]

    Reference: `albumentations.PixelSpread`, DALI's `fn.jitter`.
    """
    y = jnp.arange(image.shape[0], dtype=jnp.int32)[:, None]
    x = jnp.arange(image.shape[1], dtype=jnp.int32)[None, :]
    shifts = integer(numbers, -radius, radius + 1)
    info = info_of(image, size)
    row, column = info.border(0, y + shifts[:, :, 0]), info.border(1, x + shifts[:, :, 1])
    return image.at[row, column].get(mode="promise_in_bounds")


@on_image
def zoom_blur(image: Array, factor: Scalar, steps: int = 8, size: Any = None) -> Array:
    """Return the mean of the image and of `steps` enlargements of it, up to `factor`.

    Args:
      image: float [H, W, C] in [0, 1].
      factor: of the largest, at least 1; the others lie evenly between it and 1.
      steps: static, at least 1.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.0, 0.0, 1.0, 0.0, 0.0]).reshape(1, 5, 1)
      >>> print(zoom_blur(image, 2.0, 1)[0, :, 0])
      [0.   0.25 1.   0.25 0.  ]

    Reference: D. Hendrycks and T. Dietterich, "Benchmarking Neural Network Robustness to Common
      Corruptions and Perturbations", ICLR 2019; `albumentations.ZoomBlur`.
    """
    height, width = (side.astype(jnp.float32) / 2 for side in extent(image, size))
    y = (jnp.arange(image.shape[0], dtype=jnp.float32) + 0.5 - height)[:, None]
    x = (jnp.arange(image.shape[1], dtype=jnp.float32) + 0.5 - width)[None, :]
    shape = image.shape[:2]

    def add(total: Array, share: Array) -> tuple[Array, None]:
        inverse = 1 / (1 + (factor - 1) * share)
        columns = jnp.broadcast_to(x * inverse + width, shape)
        rows = jnp.broadcast_to(y * inverse + height, shape)
        return total + remap(image, columns, rows, size=size), None

    shares = jnp.arange(1, steps + 1, dtype=jnp.float32) / steps
    return lax.scan(add, image, shares)[0] * (1 / (steps + 1))


@on_image
def correlate(image: Array, kernel: Any, size: Any = None) -> Array:
    """Return the sum of the pixels about each pixel, weighted by a kernel of one's own.

    Args:
      image: float [H, W, C] in [0, 1].
      kernel: float[k, k], k odd, for all channels. It is not turned, as that of a convolution is.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.0, 0.5, 1.0]).reshape(1, 3, 1)
      >>> rise = [[0, 0, 0], [-1, 0, 1], [0, 0, 0]]
      >>> correlate(image, rise)[0, :, 0].tolist()
      [0.0, 1.0, 0.0]

    Reference: `cv2.filter2D`, DALI's `fn.experimental.filter`.
    """
    kernel = jnp.asarray(kernel, jnp.float32)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1]:
        raise ValueError(f"`kernel` must be [k, k] with an odd k, got {kernel.shape}.")
    check_kernel_size(kernel.shape[0])
    return correlated(image, kernel, size)


@on_rgb
def chromatic_aberration(image: Array, red: Any, blue: Any, size: Any = None) -> Array:
    """Return the image with red and blue bent by a lens, each by its own.

    A place at radius r shows what lies at r (1 + a r^2 + b r^4), with the radius that of
    ((x - W/2) / W, (y - H/2) / H).

    Args:
      image: float [H, W, 3] in [0, 1].
      red, blue: (a, b) of the channel; 0 leaves it.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.linspace(0, 1, 5).reshape(1, 5, 1).repeat(3, axis=2)
      >>> print(chromatic_aberration(image, (0.5, 0.0), (0.0, 0.0))[0, 1].round(2))
      [0.24 0.25 0.25]

    Reference: `albumentations.ChromaticAberration`, `cv2.initUndistortRectifyMap`.
    """
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    y = ((jnp.arange(image.shape[0], dtype=jnp.float32) + 0.5) / height - 0.5)[:, None]
    x = ((jnp.arange(image.shape[1], dtype=jnp.float32) + 0.5) / width - 0.5)[None, :]
    squared = x * x + y * y
    planes = [image[:, :, channel, None] for channel in range(image.shape[2])]
    for channel, (a, b) in ((0, red), (2, blue)):
        along = 1 + squared * (a + b * squared)
        column, row = (x * along + 0.5) * width, (y * along + 0.5) * height
        planes[channel] = remap(planes[channel], column, row, size=size)
    return jnp.concatenate(planes, axis=2)


# ---- transforms


@dataclass(frozen=True)
class PixelSpread(ImageOp):
    """Read each pixel from a random one near it, with probability `p`.

    Args:
      radius: how far along each axis, at least 1.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PixelSpread()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.PixelSpread`, DALI's `fn.jitter`.

    Differs from albumentations in leaving masks and keypoints.
    """

    radius: PositiveInt = 2
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Key:
        """Return the key of the places."""
        return key

    def apply(self, params: Key, image: Array, info: ImageInfo) -> Array:
        """Spread the used part."""
        numbers = uniform_field(params, (*image.shape[:2], 2))
        return spread_pixels(image, numbers, self.radius, info.size)


@dataclass(frozen=True)
class GlassBlur(ImageOp):
    """Look through frosted glass: blur, spread the pixels again and again, blur once more.

    Args:
      sigma: the standard deviation of both Gaussians, in pixels, at least 0.
      max_delta: how far a pixel is spread each time, along each axis.
      iterations: how often.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> GlassBlur()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: D. Hendrycks and T. Dietterich, "Benchmarking Neural Network Robustness to Common
      Corruptions and Perturbations", ICLR 2019; `albumentations.GlassBlur`.

    Differs from both in reading pixels, there swapped one pair after the other, and up to the
    border.
    """

    sigma: Annotated[float, Converter(as_number, 0.0, 100.0)] = 0.7
    max_delta: PositiveInt = 4
    iterations: PositiveInt = 2
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Key:
        """Return the keys of the places."""
        return jax.random.split(key, self.iterations)

    def apply(self, params: Key, image: Array, info: ImageInfo) -> Array:
        """Blur and spread the used part."""
        image = barrier(gaussian_blur(image, _GLASS_TAPS, self.sigma, info.size))
        for i in range(self.iterations):
            numbers = uniform_field(params[i], (*image.shape[:2], 2))
            image = spread_pixels(image, numbers, self.max_delta, info.size)
        return gaussian_blur(barrier(image), _GLASS_TAPS, self.sigma, info.size)


_GLASS_TAPS = 7  # four standard deviations of the default


@dataclass(frozen=True)
class ZoomBlur(ImageOp):
    """Blur away from the center, as a zoom during the exposure does, with probability `p`.

    Args:
      max_factor: (low, high) of the largest enlargement, at least 1; see `functional.zoom_blur`.
      enlargements: how many there are.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ZoomBlur()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.ZoomBlur`, whose factors are 0.01 to 0.03 apart.
    """

    max_factor: Annotated[Range, Converter(as_range, 1.0)] = (1.0, 1.31)
    enlargements: PositiveInt = 8
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the largest enlargement."""
        return uniform(key, *self.max_factor)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Blur the used part."""
        return zoom_blur(image, params, self.enlargements, info.size)


def as_kernel(name: str, value: Any) -> tuple[tuple[Scalar, ...], ...]:
    """Return the rows of a square kernel of an odd side."""
    rows = setting(value)
    rows = rows if isinstance(rows, tuple) else ()
    square = all(isinstance(row, tuple) and len(row) == len(rows) for row in rows)
    if not square or len(rows) % 2 == 0:
        raise ValueError(f"`{name}` must be [k, k] numbers with an odd k, got {value!r}.")
    return tuple(tuple(v if isinstance(v, jax.Array) else float(v) for v in row) for row in rows)


def _as_sides(name: str, value: Any, low: int) -> tuple[int, int]:
    """Return (low, high) of the odd side of a kernel."""
    sides = as_int_range(name, value, low)
    for side in sides:
        check_kernel_size(side)
    return sides


@dataclass(frozen=True)
class KernelFilter(ImageOp):
    """Correlate the image with a kernel of one's own, with probability `p`.

    Values are clipped to [0, 1].

    Args:
      kernel: [k, k] numbers with an odd k, see `functional.correlate`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> smooth = KernelFilter([[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]])
      >>> smooth(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: DALI's `fn.experimental.filter`, `cv2.filter2D`.
    """

    kernel: Annotated[Sequence[Sequence[float]], Converter(as_kernel)]
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Filter the used part."""
        kernel = jnp.stack([jnp.stack([jnp.float32(v) for v in row]) for row in self.kernel])
        return jnp.clip(correlate(image, kernel, info.size), 0.0, 1.0)


class Shape(NamedTuple):
    """Drawn parameters of `AdvancedBlur`: the kernel's half side, the standard deviations along
    its axes, their angle in degrees, the exponent, and numbers [k, k] for the noise.
    """

    reach: Array
    sigma_x: Array
    sigma_y: Array
    angle: Array
    beta: Array
    noise: Array


@dataclass(frozen=True)
class AdvancedBlur(ImageOp):
    """Blur by a generalized Gaussian that is turned, stretched and noisy, with probability `p`.

    The weight at the Mahalanobis distance d is exp(-d^(2 beta) / 2) times noise.

    Args:
      blur_limit: (low, high) of the kernel's side, odd ints.
      sigma_x, sigma_y: (low, high) of the standard deviations, in pixels, above 0.
      rotate: (low, high) of their angle, in degrees; a number v means (-v, v).
      beta: (low, high) of the exponent, above 0: 1 is a Gaussian, more are flatter.
      noise: (low, high) of the noise that multiplies each weight, above 0.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> AdvancedBlur()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: X. Wang et al., "Real-ESRGAN: Training Real-World Blind Super-Resolution with Pure
      Synthetic Data", ICCVW 2021; the defaults are those of `albumentations.AdvancedBlur`.
    """

    blur_limit: Annotated[Range, Converter(_as_sides, 1)] = (3, 7)
    sigma_x: Annotated[Range, Converter(as_range, 1e-3)] = (0.2, 1.0)
    sigma_y: Annotated[Range, Converter(as_range, 1e-3)] = (0.2, 1.0)
    rotate: SymmetricRange = (-90.0, 90.0)
    beta: Annotated[Range, Converter(as_range, 1e-3)] = (0.5, 8.0)
    noise: Annotated[Range, Converter(as_range, 1e-3)] = (0.9, 1.1)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Shape:
        """Draw the shape, and the noise of its weights."""
        side = self.blur_limit[1]
        numbers = uniform(key, shape=(5 + side * side,))
        ranges = (self.sigma_x, self.sigma_y, self.rotate, self.beta)
        x, y, angle, beta = (between(numbers[i], *limits) for i, limits in enumerate(ranges))
        reach = _reach(numbers[4], self.blur_limit)
        noise = between(numbers[5:].reshape(side, side), *self.noise)
        return Shape(reach, x, y, angle, beta, noise)

    def apply(self, params: Shape, image: Array, info: ImageInfo) -> Array:
        """Blur the used part."""
        return correlated(image, _generalized_gaussian(params), info.size)


class Low(NamedTuple):
    """Drawn parameters of `RingingOvershoot`: the kernel's half side, the cutoff in radians."""

    reach: Array
    cutoff: Array


@dataclass(frozen=True)
class RingingOvershoot(ImageOp):
    """Let edges ring, by a low-pass filter with a sharp cutoff, with probability `p`.

    The kernel is the Fourier transform of a disk, c J1(c r) / (2 pi r), cut off and scaled to a
    sum of 1. Values are clipped to [0, 1].

    Args:
      blur_limit: (low, high) of the kernel's side, odd ints.
      cutoff: (low, high) of c, in radians for a pixel, within (0, pi].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RingingOvershoot()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: X. Wang et al., "Real-ESRGAN: Training Real-World Blind Super-Resolution with Pure
      Synthetic Data", ICCVW 2021; the defaults are those of `albumentations.RingingOvershoot`.
    """

    blur_limit: Annotated[Range, Converter(_as_sides, 3)] = (7, 15)
    cutoff: Annotated[Range, Converter(as_range, 1e-3, math.pi)] = (math.pi / 4, math.pi / 2)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Low:
        """Draw the side of the kernel, and the cutoff."""
        numbers = uniform(key, shape=(2,))
        return Low(_reach(numbers[0], self.blur_limit), between(numbers[1], *self.cutoff))

    def apply(self, params: Low, image: Array, info: ImageInfo) -> Array:
        """Filter the used part."""
        kernel = sinc_kernel(self.blur_limit[1], params.reach, params.cutoff)
        return jnp.clip(correlated(image, kernel, info.size), 0.0, 1.0)


class Fringes(NamedTuple):
    """Drawn parameters of `ChromaticAberration`: float32[2] of each channel, see the function."""

    red: Array
    blue: Array


_FRINGES = ("green_purple", "red_blue", "random")


@dataclass(frozen=True)
class ChromaticAberration(ImageOp):
    """Bend red and blue apart, as a lens does, with probability `p`.

    See `functional.chromatic_aberration`.

    Args:
      primary: (low, high) of the coefficient of r^2, within [-1, 1]; a number v means (-v, v).
      secondary: (low, high) of that of r^4, likewise.
      mode: "green_purple" bends red and blue in the same direction, "red_blue" in opposite ones,
        "random" does either.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ChromaticAberration()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.ChromaticAberration`.

    Differs from it in mirroring what lies beyond the border, there black.
    """

    channels = 3
    primary: Annotated[Range, Converter(as_symmetric_range, -1.0, 1.0)] = (-0.02, 0.02)
    secondary: Annotated[Range, Converter(as_symmetric_range, -1.0, 1.0)] = (-0.05, 0.05)
    mode: Annotated[str, Converter(as_choice, _FRINGES)] = "green_purple"
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Fringes:
        """Draw the coefficients of red and of blue."""
        numbers = uniform(key, shape=(5,))
        primary = between(numbers[:2], *self.primary)
        secondary = between(numbers[2:4], *self.secondary)
        alike = {"green_purple": True, "red_blue": False, "random": numbers[4] < 0.5}[self.mode]
        blue = jnp.stack([primary[1], secondary[1]])
        red = jnp.stack([primary[0], secondary[0]])
        along = jnp.abs(red) * jnp.sign(blue)
        return Fringes(jnp.where(alike, along, -along), blue)

    def apply(self, params: Fringes, image: Array, info: ImageInfo) -> Array:
        """Bend the used part of red and blue."""
        red, blue = ((each[0], each[1]) for each in params)
        return chromatic_aberration(image, red, blue, info.size)


# ---- kernels


def _reach(number: Array, sides: tuple[int, int]) -> Array:
    """Return half of one of the odd sides from low to high, int32."""
    return integer(number, sides[0] // 2, sides[1] // 2 + 1)


def _offsets(side: int) -> np.ndarray:
    return np.arange(side, dtype=np.float32) - np.float32(side // 2)


def _normalized(kernel: Array, reach: Array) -> Array:
    """Return a kernel [k, k] of a sum of 1, without what lies beyond `reach` along an axis."""
    near = np.abs(_offsets(kernel.shape[0])) <= reach.astype(jnp.float32)
    kernel = jnp.where(near[:, None] & near[None, :], kernel, 0.0)
    total = written_sum([kernel[y, x] for y in range(len(kernel)) for x in range(len(kernel))])
    return kernel * (1 / total)


def _generalized_gaussian(shape: Shape) -> Array:
    """Return the kernel of `AdvancedBlur`."""
    offsets = _offsets(shape.noise.shape[0])
    radians = jnp.deg2rad(shape.angle)
    y, x = offsets[:, None], offsets[None, :]
    along = (x * jnp.cos(radians) + y * jnp.sin(radians)) * (1 / shape.sigma_x)
    across = (y * jnp.cos(radians) - x * jnp.sin(radians)) * (1 / shape.sigma_y)
    squared = jnp.clip(along * along + across * across, 1e-12, 1e12)
    weights = jnp.exp(-0.5 * jnp.minimum(jnp.power(squared, shape.beta), 200.0))
    return _normalized(weights * shape.noise, shape.reach)


def sinc_kernel(side: int, reach: Array, cutoff: Scalar) -> Array:
    """Return the kernel [side, side] of `RingingOvershoot`.

    J1(z) is the mean of cos(t - z sin t) over half a turn; the sum over even steps converges faster
    than any power of their number.
    """
    offsets = _offsets(side)
    radius = np.hypot(offsets[:, None], offsets[None, :])
    z = cutoff * radius
    turn = (np.arange(_STEPS) + 0.5) * (np.pi / _STEPS)
    steps = [jnp.cos(float(t) - z * float(np.sin(t))) for t in turn]
    bessel = written_sum(steps) * (1 / _STEPS)
    middle = cutoff * cutoff / (4 * np.pi)
    ring = cutoff * bessel / np.maximum(2 * np.pi * radius, 1e-6)
    return _normalized(jnp.where(radius == 0, middle, ring), reach)


_STEPS = 32  # for z up to 16 the rest is below 1e-7
