"""The light: its temperature, ImageNet's main directions of colors, its fall-off at the corners.

The pure functions take float images in [0, 1] and do not clip.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Range,
    UnitRange,
    as_number,
    as_range,
    by_channel,
    extent,
    on_image,
    on_rgb,
)
from jaxaug.augment._chain import Pointwise
from jaxaug.augment.random import between, uniform


@on_rgb
def adjust_temperature(image: Array, temperature: Scalar) -> Array:
    """Return the image as lit by a black body of another temperature than that of daylight.

    Red and blue are multiplied by their share beside green in the light of `temperature`, in the
    image's gamma encoding; 6500 K is the image.

    Args:
      image: float [H, W, 3] in [0, 1].
      temperature: in kelvins, 2000 (candle) to 25000 (blue sky).

    Example:
      >>> import jax.numpy as jnp
      >>> red, green, blue = adjust_temperature(jnp.full((1, 1, 3), 0.5), 3000.0)[0, 0]
      >>> bool(red > green > blue)
      True

    Reference: S. Zini et al., "Planckian jitter", ICLR 2023; the locus by B. Kim et al., "Design of
    advanced color temperature control system for HDTV applications", 2002.

    Differs from kornia and albumentations in following the locus by its formula, not a table of 25
    lights, and in keeping the image at 6500 K.
    """
    light = _light_of(jnp.asarray(temperature, jnp.float32))
    daylight = _light_of(jnp.float32(_DAYLIGHT))
    red, blue = (jnp.power(of / at, 1 / _DISPLAY_GAMMA) for of, at in zip(light, daylight))
    return image * by_channel(red, 1.0, blue)


@on_rgb
def pca_lighting(image: Array, alpha: Any) -> Array:
    """Return the image with multiples of the principal components of ImageNet's colors added.

    image + alpha[0] l[0] v[0] + alpha[1] l[1] v[1] + alpha[2] l[2] v[2], with eigenvalues l and
    eigenvectors v of the covariance of red, green and blue.

    Args:
      image: float [H, W, 3] in [0, 1].
      alpha: float[3], usually normal with a standard deviation of 0.1.

    Example:
      >>> import jax.numpy as jnp
      >>> red, green, blue = pca_lighting(jnp.full((1, 1, 3), 0.5), [0.0, 1.0, 0.0])[0, 0]
      >>> bool(red > green > blue)
      True

    Reference: A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet classification with deep
    convolutional neural networks", 2012, section 4.1.
    """
    alpha = jnp.asarray(alpha, jnp.float32)
    shifts = [
        sum(alpha[i] * float(_EIGENVALUES[i] * _EIGENVECTORS[channel, i]) for i in range(3))
        for channel in range(3)
    ]
    return image + by_channel(*shifts)


# Of ImageNet's pixels in [0, 1], red, green, blue; one vector a column. From torch7's
# fb.resnet.torch, which every implementation since copies.
_EIGENVALUES = np.array([0.2175, 0.0188, 0.0045])
_EIGENVECTORS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)


@on_image
def vignette(image: Array, intensity: Scalar, center: Any = (0.5, 0.5), size: Any = None) -> Array:
    """Return image * (1 - intensity * (r / R)^2), darker toward its corners, as lenses make it.

    r is the distance of a pixel from the center, and R that of the farthest corner.

    Args:
      image: float [H, W, C] in [0, 1].
      intensity: in [0, 1]; 0 is the image, 1 leaves the farthest corner black.
      center: (x, y), as shares of width and height, in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> print((vignette(jnp.ones((1, 5, 1)), 0.52)[0, :, 0] * 100).round())
      [ 68.  92. 100.  92.  68.]

    Reference: the first term of the polynomial of D. Goldman, "Vignette and exposure calibration
    and compensation", TPAMI 2010.
    """
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    x, y = map(jnp.float32, center)
    down = jnp.arange(image.shape[0], dtype=jnp.float32) + 0.5 - y * height
    right = jnp.arange(image.shape[1], dtype=jnp.float32) + 0.5 - x * width
    farthest = jnp.square(jnp.maximum(y, 1 - y) * height)
    farthest += jnp.square(jnp.maximum(x, 1 - x) * width)
    distance = jnp.square(down)[:, None] + jnp.square(right)[None, :]
    return image * (1 - (intensity / farthest) * distance)[:, :, None]


# ---- transforms


@dataclass(frozen=True)
class PlanckianJitter(Pointwise):
    """Change the color temperature of the light at random, with probability `p`.

    Values are clipped to [0, 1].

    Args:
      temperature_limit: (low, high), in kelvins, within [2000, 25000]; 6500 is the image.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PlanckianJitter()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.PlanckianJitter`.
    """

    by_value = True
    channels = 3
    temperature_limit: Annotated[Range, Converter(as_range, 2000.0, 25000.0)] = (3000.0, 15000.0)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the temperature."""
        return uniform(key, *self.temperature_limit)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Change the light."""
        return jnp.clip(adjust_temperature(image, params), 0.0, 1.0)


@dataclass(frozen=True)
class PCALighting(Pointwise):
    """Add random multiples of the principal components of ImageNet's colors.

    Values are clipped to [0, 1].

    Args:
      std: the standard deviation of the multiples, at least 0.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PCALighting()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from albumentations' FancyPCA in components of ImageNet, not of each image.
    """

    by_value = True
    channels = 3
    std: Annotated[float, Converter(as_number, 0.0, float("inf"))] = 0.1
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the three multiples."""
        return self.std * jax.random.normal(key, (3,), jnp.float32)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Add the components."""
        return jnp.clip(pca_lighting(image, params), 0.0, 1.0)


class Vignette(NamedTuple):
    """Drawn parameters of `Vignetting`: float32, the center as shares of width and height."""

    intensity: Array
    x: Array
    y: Array


@dataclass(frozen=True)
class Vignetting(Pointwise):
    """Darken toward the corners by a random amount, with probability `p`; `functional.vignette`.

    Args:
      intensity_range: (low, high), within [0, 1], the range of how much the farthest corner loses.
      center_range: (low, high), within [0, 1], the range of both coordinates of the brightest
        point, as shares of width and height.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Vignetting()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Named as in Albumentations; the fall-off is that of `functional.vignette`.
    """

    intensity_range: UnitRange = (0.2, 0.5)
    center_range: UnitRange = (0.3, 0.7)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Vignette:
        """Draw the amount and the center."""
        ranges = (self.intensity_range, self.center_range, self.center_range)
        numbers = uniform(key, shape=(3,))
        return Vignette(*(between(number, *pair) for number, pair in zip(numbers, ranges)))

    def apply(self, params: Vignette, image: Array, info: ImageInfo) -> Array:
        """Darken the used part."""
        return vignette(image, params.intensity, (params.x, params.y), info.size)


_DAYLIGHT = 6500.0  # kelvins, about the white of sRGB
_DISPLAY_GAMMA = 2.2


def _light_of(temperature: Array) -> tuple[Array, Array]:
    """Return the red and the blue of a black body's light, linear sRGB, where green is 1."""
    t = 1000 / temperature
    t2 = t * t
    t3 = t * t2
    x = jnp.where(
        temperature < 4000,
        -0.2661239 * t3 - 0.2343589 * t2 + 0.8776956 * t + 0.179910,
        -3.0258469 * t3 + 2.1070379 * t2 + 0.2226347 * t + 0.240390,
    )
    x2 = x * x
    x3 = x * x2
    warm = jnp.where(
        temperature < 2222,
        -1.1063814 * x3 - 1.34811020 * x2 + 2.18555832 * x - 0.20219683,
        -0.9549476 * x3 - 1.37418593 * x2 + 2.09137015 * x - 0.16748867,
    )
    cold = 3.0817580 * x3 - 5.87338670 * x2 + 3.75112997 * x - 0.37001483
    y = jnp.where(temperature < 4000, warm, cold)
    z = 1 - x - y
    # XYZ to linear sRGB, IEC 61966-2-1.
    red = 3.2406 * x - 1.5372 * y - 0.4986 * z
    green = -0.9689 * x + 1.8758 * y + 0.0415 * z
    blue = 0.0557 * x - 0.2040 * y + 1.0570 * z
    return red / green, jnp.maximum(blue / green, 0.0)
