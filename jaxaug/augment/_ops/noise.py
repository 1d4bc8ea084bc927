"""Noise: pixels drawn from a key, any number of channels but for `iso_noise`.

The pure functions take a key beside a float image [H, W, C] in [0, 1], and do not clip. One key
gives one noise: that of a pixel depends on its place, not on the canvas or the batch.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    Flag,
    ImageInfo,
    Range,
    UnitRange,
    as_number,
    as_range,
    as_range_of,
    inside,
    on_image,
    on_rgb,
    per_channel,
)
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._ops.hsv import from_hsv, to_hsv
from jaxaug.augment._xla import exact_sum
from jaxaug.augment.random import between, normal_field, uniform, uniform_field


@on_image
def gaussian_noise(image: Array, key: Key, mean: Scalar = 0.0, sigma: Scalar = 0.1) -> Array:
    """Return the image with normal numbers added to each value.

    Args:
      image: float [H, W, C] in [0, 1].
      key: of the noise.
      mean, sigma: mean and standard deviation of the noise; the latter one number, or [C] with one
        of each channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noisy = gaussian_noise(jnp.full((64, 64, 3), 0.5), jax.random.key(0), sigma=0.1)
      >>> print(f"{noisy.mean():.2f} {noisy.std():.2f}")
      0.50 0.10

    Differs from torchvision in taking a key, and in not clipping.
    """
    return image + mean + per_channel("sigma", sigma, image) * normal_field(key, image.shape)


@on_image
def rician_noise(image: Array, key: Key, sigma: Scalar) -> Array:
    """Return sqrt((image + a)^2 + b^2), a and b normal: the noise of a magnitude in MRI.

    Args:
      image: float [H, W, C] in [0, 1].
      key: of the noise.
      sigma: the standard deviation of a and b, those of the two channels of the receiver.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noisy = rician_noise(jnp.zeros((64, 64, 3)), jax.random.key(0), 0.1)
      >>> print(f"{noisy.mean():.2f}")  # sigma * sqrt(pi / 2)
      0.13

    Reference: H. Gudbjartsson and S. Patz, "The Rician distribution of noisy MRI data", 1995.
    """
    real, imaginary = jax.random.split(key)
    first = image + sigma * normal_field(real, image.shape)
    second = sigma * normal_field(imaginary, image.shape)
    square = first * first + second * second
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


@on_image
def shot_noise(image: Array, key: Key, scale: Scalar) -> Array:
    """Return Poisson(image / scale) * scale, as a sensor counts photons.

    Args:
      image: float [H, W, C] in [0, 1]; negative values count as 0.
      key: of the noise.
      scale: above 0, the value that one photon adds; the variance is scale * image.

    Returns:
      Floats of the image's dtype, multiples of `scale`, with the gradient of the image.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noisy = shot_noise(jnp.full((64, 64, 3), 0.5), jax.random.key(0), 0.02)
      >>> print(f"{noisy.mean():.2f} {noisy.std():.2f}")
      0.50 0.10

    Reference: `nvidia.dali.fn.noise.shot`, `albumentations.ShotNoise`.

    Differs from albumentations in counting values as they are, not the light that a gamma of 2.2
    makes of them.
    """
    uniform = uniform_field(key, image.shape)
    photons = _poisson(uniform, lax.stop_gradient(jnp.maximum(image, 0.0) / scale))
    return image + lax.stop_gradient(photons * scale - image)


@on_image
def salt_and_pepper(image: Array, key: Key, amount: Scalar, salt_vs_pepper: Scalar = 0.5) -> Array:
    """Return the image with some pixels white and some black, in all their channels.

    Args:
      image: float [H, W, C] in [0, 1].
      key: of the noise.
      amount: in [0, 1], the share of the pixels that change.
      salt_vs_pepper: in [0, 1], the share of white ones among them.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noisy = salt_and_pepper(jnp.full((64, 64, 3), 0.5), jax.random.key(0), 0.4)
      >>> print(f"{(noisy == 1).mean():.1f} {(noisy == 0).mean():.1f}")
      0.2 0.2

    Reference: `kornia.augmentation.RandomSaltAndPepperNoise`.
    """
    height, width, _ = image.shape
    uniform = uniform_field(key, (height, width, 1))
    salt = amount * salt_vs_pepper
    white_or_black = (uniform < salt).astype(jnp.float32)
    return jnp.where(uniform < amount, white_or_black, image)


@on_image
def multiplicative_noise(
    image: Array, key: Key, low: Scalar = 0.9, high: Scalar = 1.1, per_channel: bool = False
) -> Array:
    """Return the image with each pixel multiplied by a number uniform between `low` and `high`.

    Args:
      image: float [H, W, C] in [0, 1].
      key: of the noise.
      low, high: the range of the factors.
      per_channel: static; True draws a number for each channel of a pixel, False one for all.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noisy = multiplicative_noise(jnp.ones((64, 64, 3)), jax.random.key(0), 0.8, 1.2)
      >>> print(f"{noisy.min():.2f} {noisy.max():.2f}")
      0.80 1.20

    Reference: `albumentations.MultiplicativeNoise` with elementwise=True.
    """
    height, width, channels = image.shape
    shape = (height, width, channels if per_channel else 1)
    uniform = uniform_field(key, shape)
    return image * (low + uniform * (high - low))


@on_rgb
def iso_noise(
    image: Array, key: Key, color_shift: Scalar = 0.05, intensity: Scalar = 0.5, size: Any = None
) -> Array:
    """Return the image with the noise of a camera at high sensitivity: in hue and in lightness.

    The hue of each pixel turns by a normal number of deviation color_shift * intensity turns. Its
    lightness L, the mean of the largest and the smallest channel, becomes L + n / 255 (1 - L), with
    n from Poisson(intensity * s) and s the standard deviation of the lightness in 255ths.

    Args:
      image: float [H, W, 3] in [0, 1].
      key: of the noise.
      color_shift: in [0, 1], of the hue.
      intensity: in [0, 1], of both.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.tile(jnp.array([0.2, 0.8]), 32).reshape(1, 64, 1) * jnp.ones((64, 1, 3))
      >>> noisy = jax.jit(iso_noise)(image, jax.random.key(0), 0.05, 0.5)
      >>> bool((noisy >= image - 1e-6).all() and noisy.max() <= 1)
      True

    Reference: `albumentations.ISONoise`.
    """
    hue_key, lightness_key = jax.random.split(key)
    shape = image.shape[:2]
    turns = color_shift * intensity * normal_field(hue_key, shape)
    photons = intensity * _lightness_deviation(image, size)
    uniform = uniform_field(lightness_key, shape)
    lighter = _poisson(uniform, jnp.broadcast_to(photons, shape)) / 255
    return _with_hue_and_lightness(image, turns, lighter)


# ---- transforms

_MIN_SCALE = 1e-6


class Noise(NamedTuple):
    """Drawn parameters of noise: the key of its pixels, and float32 numbers of each kind."""

    key: Key
    numbers: Array


def _noise(key: Key, *ranges: tuple[float, float]) -> Noise:
    """Return the parameters of noise, one number for each range."""
    pixels, parameters = jax.random.split(key)
    numbers = uniform(parameters, shape=(len(ranges),))
    drawn = [between(number, *pair) for number, pair in zip(numbers, ranges)]
    return Noise(pixels, jnp.stack(drawn))


@dataclass(frozen=True)
class GaussianNoise(ImageOp):
    """Add normal numbers to each value.

    Args:
      mean: of the noise.
      sigma: the standard deviation of the noise, at least 0: a number, or (low, high) for a random
        one.
      clip: True clips the values to [0, 1].
      per_channel: True draws a standard deviation for each channel, False one for all.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> GaussianNoise()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    mean: Annotated[float, Converter(as_number, -1.0, 1.0)] = 0.0
    sigma: Annotated[Range, Converter(as_range_of, 0.0)] = 0.1
    clip: Flag = True
    per_channel: Flag = False
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Noise:
        """Draw the key of the pixels and the standard deviation, or one for each channel."""
        return _noise(key, *[self.sigma] * ((info.channels or 3) if self.per_channel else 1))

    def apply(self, params: Noise, image: Array, info: ImageInfo) -> Array:
        """Add the noise."""
        sigma = params.numbers if self.per_channel else params.numbers[0]
        noisy = gaussian_noise(image, params.key, self.mean, sigma)
        return jnp.clip(noisy, 0.0, 1.0) if self.clip else noisy


@dataclass(frozen=True)
class RicianNoise(ImageOp):
    """Add the noise of a magnitude in MRI; see `functional.rician_noise`.

    Values are clipped to [0, 1].

    Args:
      sigma: (low, high), at least 0, the range of the standard deviation of each of the two
        channels of the receiver; one number for both.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RicianNoise()(jax.random.key(0), jnp.zeros((8, 9, 1), jnp.uint16)).shape
      (8, 9, 1)
    """

    sigma: Annotated[Range, Converter(as_range_of, 0.0)] = (0.0, 0.1)
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Noise:
        """Draw the key of the pixels and the standard deviation."""
        return _noise(key, self.sigma)

    def apply(self, params: Noise, image: Array, info: ImageInfo) -> Array:
        """Add the noise."""
        return jnp.clip(rician_noise(image, params.key, params.numbers[0]), 0.0, 1.0)


@dataclass(frozen=True)
class ShotNoise(ImageOp):
    """Count photons at a random sensitivity; see `functional.shot_noise`.

    Values are clipped to [0, 1].

    Args:
      scale_range: (low, high), above 0, the range of the value that one photon adds.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ShotNoise()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.ShotNoise`.
    """

    scale_range: Annotated[Range, Converter(as_range, _MIN_SCALE)] = (0.1, 0.3)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Noise:
        """Draw the key of the pixels and the scale."""
        return _noise(key, self.scale_range)

    def apply(self, params: Noise, image: Array, info: ImageInfo) -> Array:
        """Count the photons."""
        return jnp.clip(shot_noise(image, params.key, params.numbers[0]), 0.0, 1.0)


@dataclass(frozen=True)
class SaltAndPepper(ImageOp):
    """Make a random share of the pixels white or black, with probability `p`.

    Args:
      amount: (low, high), within [0, 1], the range of the share of the pixels.
      salt_vs_pepper: (low, high), within [0, 1], the range of the share of white ones among them.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> SaltAndPepper()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.SaltAndPepper`.
    """

    amount: UnitRange = (0.01, 0.06)
    salt_vs_pepper: UnitRange = (0.4, 0.6)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Noise:
        """Draw the key of the pixels and the two shares."""
        return _noise(key, self.amount, self.salt_vs_pepper)

    def apply(self, params: Noise, image: Array, info: ImageInfo) -> Array:
        """Scatter the pixels."""
        return salt_and_pepper(image, params.key, params.numbers[0], params.numbers[1])


@dataclass(frozen=True)
class ISONoise(ImageOp):
    """Add the noise of a camera at high sensitivity, with probability `p`.

    Args:
      color_shift: (low, high), within [0, 1], the range of the noise of the hue.
      intensity: (low, high), within [0, 1], the range of the strength.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ISONoise()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.ISONoise`.
    """

    channels = 3
    color_shift: UnitRange = (0.01, 0.05)
    intensity: UnitRange = (0.1, 0.5)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Noise:
        """Draw the key of the pixels, the shift and the strength."""
        return _noise(key, self.color_shift, self.intensity)

    def apply(self, params: Noise, image: Array, info: ImageInfo) -> Array:
        """Add the noise, whose strength follows the used part."""
        color_shift, intensity = params.numbers
        return iso_noise(image, params.key, color_shift, intensity, info.size)


@dataclass(frozen=True)
class MultiplicativeNoise(ImageOp):
    """Multiply each pixel by a random number.

    Values are clipped to [0, 1].

    Args:
      multiplier: (low, high), at least 0, the range of the numbers.
      per_channel: True draws a number for each channel of a pixel, False one for all.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> MultiplicativeNoise()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from albumentations in being elementwise: one number for all pixels is brightness.
    """

    multiplier: Annotated[Range, Converter(as_range, 0.0)] = (0.9, 1.1)
    per_channel: Flag = False
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Key:
        """Return the key of the pixels."""
        return key

    def apply(self, params: Key, image: Array, info: ImageInfo) -> Array:
        """Multiply the pixels."""
        low, high = self.multiplier
        noisy = multiplicative_noise(image, params, low, high, self.per_channel)
        return jnp.clip(noisy, 0.0, 1.0)


# ---- what the noise is made of


def _poisson(uniform: Array, mean: Array) -> Array:
    """Return the Poisson numbers of `mean` at the quantiles `uniform`, as float32.

    Up to a mean of 12 the probabilities are added up until they exceed the quantile. Beyond it is
    the normal quantile with the corrections of Cornish and Fisher for the third and the fourth
    cumulant, which misses at most one number in a hundred, by one.

    `jax.random.poisson` draws and rejects for every pixel until the last one is accepted; here
    there is one number for each pixel, and no loop.
    """
    few = jnp.minimum(mean, _MAX_COUNTED)
    probability = jnp.exp(-few)
    cumulative = probability
    counted = jnp.zeros_like(few)
    for count in range(1, _MAX_COUNT):
        counted = counted + (uniform >= cumulative).astype(jnp.float32)
        probability = probability * few * (1 / count)
        cumulative = cumulative + probability

    z = jax.scipy.special.ndtri(jnp.clip(uniform, 2.0**-24, 1 - 2.0**-24))
    root = jnp.sqrt(jnp.maximum(mean, _MAX_COUNTED))
    many = mean + root * z + (z * z - 1) / 6 + (z - z * z * z) / (72 * root)
    return jnp.where(mean <= _MAX_COUNTED, counted, jnp.round(jnp.maximum(many, 0.0)))


_MAX_COUNTED = 12.0
_MAX_COUNT = 36  # above the largest quantile of float32's uniform numbers, 1 - 2^-23


def _lightness_deviation(image: Array, size: Any) -> Array:
    """Return the standard deviation of the lightness over the used part, in 255ths."""
    lightness = (jnp.max(image, axis=2) + jnp.min(image, axis=2)) / 2
    used = inside(image, size)
    count = jnp.sum(used, dtype=jnp.int32).astype(jnp.float32)
    lightness = lax.stop_gradient(jnp.where(used, lightness, 0.0))
    mean = exact_sum(lightness) / count
    mean_square = exact_sum(lightness * lightness) / count
    return 255 * jnp.sqrt(jnp.maximum(mean_square - mean * mean, 0.0))


def _with_hue_and_lightness(image: Array, turns: Array, lighter: Array) -> Array:
    """Return the image with its hue turned and its HLS lightness moved towards 1."""
    hue, saturation, value = to_hsv(image)
    chroma = saturation * value
    before = value - chroma / 2
    after = before + lighter * (1 - before)
    room = 1 - jnp.abs(2 * before - 1)
    # HLS keeps the share that the chroma has of the room that the lightness leaves it.
    chroma = chroma * (1 - jnp.abs(2 * after - 1)) / jnp.where(room > 0, room, 1.0)
    value = after + chroma / 2
    return from_hsv(hue + turns, chroma / jnp.where(value > 0, value, 1.0), value)
