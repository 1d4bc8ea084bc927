"""Noise: pixels drawn from a key, any number of channels but for `iso_noise`.

The pure functions take a key beside a float image [H, W, C] in [0, 1], and do not clip. One key
gives one noise, for any batch size; another shape of the image gives another.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._hsv import from_hsv, to_hsv
from jaxaug.augment._used import inside
from jaxaug.augment._values import on_image, on_rgb
from jaxaug.augment.color import _sum as exact_sum


@on_image
def gaussian_noise(image: Array, key: Key, mean: Scalar = 0.0, sigma: Scalar = 0.1) -> Array:
    """Return the image with normal numbers added to each value.

    Args:
      image: float [H, W, C] in [0, 1].
      key: of the noise.
      mean, sigma: mean and standard deviation of the noise.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noisy = gaussian_noise(jnp.full((64, 64, 3), 0.5), jax.random.key(0), sigma=0.1)
      >>> print(f"{noisy.mean():.2f} {noisy.std():.2f}")
      0.50 0.10

    Differs from torchvision in taking a key, and in not clipping.
    """
    return image + mean + sigma * jax.random.normal(key, image.shape, jnp.float32)


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
    uniform = jax.random.uniform(key, image.shape, jnp.float32)
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
    uniform = jax.random.uniform(key, (height, width, 1), jnp.float32)
    salt = amount * salt_vs_pepper
    white_or_black = jnp.where(uniform < salt, 1.0, 0.0)
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
    uniform = jax.random.uniform(key, shape, jnp.float32)
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
      >>> noisy = iso_noise(image, jax.random.key(0), 0.05, 0.5)
      >>> bool((noisy >= image - 1e-6).all() and noisy.max() <= 1)
      True

    Reference: `albumentations.ISONoise`.
    """
    hue_key, lightness_key = jax.random.split(key)
    shape = image.shape[:2]
    turns = color_shift * intensity * jax.random.normal(hue_key, shape, jnp.float32)
    photons = intensity * _lightness_deviation(image, size)
    uniform = jax.random.uniform(lightness_key, shape, jnp.float32)
    lighter = _poisson(uniform, jnp.broadcast_to(photons, shape)) / 255
    return _with_hue_and_lightness(image, turns, lighter)


# ---- what the noise is made of


def _poisson(uniform: Array, mean: Array) -> Array:
    """Return the Poisson numbers of `mean` at the quantiles `uniform`, as float32.

    Up to a mean of 64 the probabilities are added up until they exceed the quantile. Beyond it is
    the normal quantile with Cornish and Fisher's correction for the skewness.

    `jax.random.poisson` draws and rejects for every pixel until the last one is accepted; here
    there is one number a pixel.
    """
    few = jnp.minimum(mean, _MAX_COUNTED)

    def not_reached(state: tuple[Array, ...]) -> Array:
        step, _, cumulative, _ = state
        return jnp.any(uniform >= cumulative) & (step < _MAX_STEPS)

    def add(state: tuple[Array, ...]) -> tuple[Array, ...]:
        step, probability, cumulative, count = state
        count = count + (uniform >= cumulative).astype(jnp.float32)
        probability = probability * (few / (step + 1))
        return step + 1, probability, cumulative + probability, count

    none = jnp.exp(-few)
    start = (jnp.float32(0), none, none, jnp.zeros_like(none))
    counted = lax.while_loop(not_reached, add, start)[3]

    normal = jax.scipy.special.ndtri(jnp.clip(uniform, 2.0**-24, 1 - 2.0**-24))
    many = mean + jnp.sqrt(mean) * normal + (normal * normal - 1) / 6
    return jnp.where(mean <= _MAX_COUNTED, counted, jnp.round(jnp.maximum(many, 0.0)))


_MAX_COUNTED = 64.0
_MAX_STEPS = 128  # eight standard deviations above the largest mean


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
