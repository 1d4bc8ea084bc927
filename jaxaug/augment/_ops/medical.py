"""What microscopes and scanners do to images: stains, uneven coils, spikes in k-space.

The pure functions take float images [H, W, C] in [0, 1] and do not clip.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    PositiveInt,
    Range,
    SymmetricRange,
    as_choice,
    as_int,
    as_int_range,
    as_range,
    by_channel,
    on_image,
    on_rgb,
)
from jaxaug.augment._chain import Pointwise
from jaxaug.augment._ops.references import row_of
from jaxaug.augment._ops.weather import places
from jaxaug.augment.random import between, integer, uniform

# Optical densities of hematoxylin and eosin in red, green and blue, as albumentations lists them;
# the first are those of A. Ruifrok and D. Johnston, "Quantification of histochemical staining by
# color deconvolution", 2001, the second of M. Macenko et al., ISBI 2009.
STAINS: Mapping[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "ruifrok": ((0.644211, 0.716556, 0.266844), (0.092789, 0.954111, 0.283111)),
    "macenko": ((0.5626, 0.7201, 0.4062), (0.2159, 0.8012, 0.5581)),
    "standard": ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11)),
    "high_contrast": ((0.55, 0.88, 0.11), (0.12, 0.86, 0.49)),
    "h_heavy": ((0.75, 0.61, 0.32), (0.04, 0.93, 0.36)),
    "e_heavy": ((0.60, 0.75, 0.28), (0.17, 0.95, 0.25)),
    "dark": ((0.78, 0.55, 0.28), (0.09, 0.97, 0.21)),
    "light": ((0.57, 0.71, 0.38), (0.15, 0.89, 0.42)),
}
_DARKEST = 1 / 255  # below it an optical density would be without bound


@on_rgb
def adjust_stain(image: Array, stains: Array, separation: Array, scale: Any, shift: Any) -> Array:
    """Return the image with the amounts of two stains changed.

    With the optical density -log(image): its least-squares amounts a of the stains become
    a * scale + shift, and what the stains do not explain stays.

    Args:
      image: float [H, W, 3] in [0, 1].
      stains: float[2, 3], the optical density of each stain in red, green and blue.
      separation: float[3, 2], the pseudo-inverse of `stains`.
      scale, shift: float[2] each, of the amounts.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> stains = np.array([[0.65, 0.7, 0.29], [0.07, 0.99, 0.11]], np.float32)
      >>> separation = np.linalg.pinv(stains)
      >>> same = adjust_stain(jnp.full((1, 1, 3), 0.5), stains, separation, (1, 1), (0, 0))
      >>> same[0, 0].round(3).tolist() == [0.5, 0.5, 0.5]
      True

    Reference: D. Tellez et al., "Whole-Slide Mitosis Detection in H&E Breast Histology Using PHH3
      as a Reference to Train Distilled Stain-Invariant Convolutional Networks", IEEE TMI 2018;
      `albumentations.HEStain` with residual_mode "preserve".
    """
    density = -jnp.log(jnp.maximum(image, _DARKEST))
    change = jnp.zeros_like(image)
    for stain in range(2):
        parts = [density[:, :, c, None] * separation[c, stain] for c in range(3)]
        amount = parts[0] + parts[1] + parts[2]
        more = amount * (scale[stain] - 1) + shift[stain]
        change = change + more * by_channel(*(stains[stain, c] for c in range(3)))
    return jnp.exp(-(density + change))


@on_image
def bias_field(image: Array, coefficients: Array, order: int = 3, size: Any = None) -> Array:
    """Return the image times the exponential of a polynomial of the place.

    The polynomial is sum c_ij y^i x^j, i + j <= order, of places in [-1, 1] from edge to edge.

    Args:
      image: float [H, W, C] in [0, 1].
      coefficients: float[n], in the order of (i, j), n = (order + 1) (order + 2) / 2.
      order: static, at least 0.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> print(bias_field(jnp.ones((1, 2, 1)), jnp.array([0.0, 1.0, 0.0]), 1)[0, :, 0].round(2))
      [0.61 1.65]

    Reference: K. Van Leemput et al., "Automated model-based tissue classification of MR images of
      the brain", IEEE TMI 1999; `albumentations.BiasField`.
    """
    y, x = (2 * place - 1 for place in places(image, size))
    total = jnp.zeros(image.shape[:2], jnp.float32)
    number = 0
    power_y = jnp.ones_like(y)
    for i in range(order + 1):
        power_x = jnp.ones_like(x)
        for _ in range(order + 1 - i):
            total = total + coefficients[number] * (power_y * power_x)
            power_x = power_x * x
            number += 1
        power_y = power_y * y
    return image * jnp.exp(total)[:, :, None]


@on_image
def k_space_spikes(
    image: Array, waves: Array, phase: Array, intensity: Array, size: Any = None
) -> Array:
    """Return the image with stripes of waves, as spikes in the k-space of an MRI make them.

    image + sum of intensity * cos(2 pi (u x + v y) + phase), x and y shares of width and height.

    Args:
      image: float [H, W, C] in [0, 1].
      waves: float[n, 2], (u, v), how many waves fit in the width and in the height.
      phase: float[n], in radians.
      intensity: float[n], of each.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> wave = jnp.array([[1.0, 0.0]]), jnp.zeros(1), jnp.array([0.5])
      >>> print(k_space_spikes(jnp.zeros((1, 2, 1)), *wave)[0, :, 0].round(2) + 0.0)
      [0. 0.]

    Reference: `albumentations.KSpaceSpikeNoise`, `torchio.RandomSpike`.
    """
    y, x = places(image, size)
    for i in range(waves.shape[0]):
        turn = waves[i, 0] * x + waves[i, 1] * y
        stripe = intensity[i] * jnp.cos(2 * jnp.pi * turn + phase[i])
        image = image + stripe[:, :, None]
    return image


# ---- transforms


class Stain(NamedTuple):
    """Drawn parameters of `HEStain`, see `functional.adjust_stain`."""

    stains: Array
    separation: Array
    scale: Array
    shift: Array


@dataclass(frozen=True)
class HEStain(Pointwise):
    """Change how strongly a slide is stained by hematoxylin and eosin, with probability `p`.

    See `functional.adjust_stain`. Values are clipped to [0, 1].

    Args:
      preset: "random", or the name of the densities of the two stains: "ruifrok", "macenko",
        "standard", "high_contrast", "h_heavy", "e_heavy", "dark" or "light".
      intensity_scale: (low, high) of the factor of each stain's amount, at least 0.
      intensity_shift: (low, high) of what is added to it; a number v means (-v, v).

    Example:
      >>> import jax, jax.numpy as jnp
      >>> HEStain()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: D. Tellez et al., 2018; the defaults are those of `albumentations.HEStain`.

    Differs from it in keeping what the stains do not explain, in changing the background, too, and
    in densities that are given, not estimated from the image.
    """

    channels = 3
    across_channels = True
    preset: Annotated[str, Converter(as_choice, ("random", *STAINS))] = "random"
    intensity_scale: Annotated[Range, Converter(as_range, 0.0)] = (0.7, 1.3)
    intensity_shift: SymmetricRange = (-0.2, 0.2)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Stain:
        """Draw the densities, and scale and shift of each stain."""
        names = tuple(STAINS) if self.preset == "random" else (self.preset,)
        numbers = uniform(key, shape=(5,))
        stains = np.array([STAINS[name] for name in names])
        stains = stains / np.linalg.norm(stains, axis=2, keepdims=True)
        separation = np.linalg.pinv(stains).astype(np.float32)
        chosen = integer(numbers[4], 0, len(names))
        return Stain(
            row_of(jnp.asarray(stains.astype(np.float32)), chosen),
            row_of(jnp.asarray(separation), chosen),
            between(numbers[:2], *self.intensity_scale),
            between(numbers[2:4], *self.intensity_shift),
        )

    def apply(self, params: Stain, image: Array, info: ImageInfo) -> Array:
        """Change the stains."""
        return jnp.clip(adjust_stain(image, *params), 0.0, 1.0)


@dataclass(frozen=True)
class BiasField(Pointwise):
    """Brighten and darken smoothly, as the coils of an MRI do, with probability `p`.

    See `functional.bias_field`. Values are clipped to [0, 1].

    Args:
      coefficients: (low, high) of each coefficient; a number v means (-v, v).
      order: of the polynomial, at least 0.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> BiasField()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `torchio.RandomBiasField`, `albumentations.BiasField`; of volumes it is
    `augment.volume.BiasField`.
    """

    coefficients: SymmetricRange = (-0.5, 0.5)
    order: Annotated[int, Converter(as_int, 0)] = 3
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the coefficients."""
        return uniform(key, *self.coefficients, shape=((self.order + 1) * (self.order + 2) // 2,))

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Multiply by the field."""
        return jnp.clip(bias_field(image, params, self.order, info.size), 0.0, 1.0)


class Spikes(NamedTuple):
    """Drawn parameters of `KSpaceSpikeNoise`, see `functional.k_space_spikes`."""

    waves: Array
    phase: Array
    intensity: Array


@dataclass(frozen=True)
class KSpaceSpikeNoise(Pointwise):
    """Lay stripes over the image, as spikes in the k-space of an MRI do, with probability `p`.

    See `functional.k_space_spikes`. Values are clipped to [0, 1].

    Args:
      num_spikes: (low, high), or a number, how many there are, at least 1.
      intensity: (low, high) of each, at least 0.
      waves: how many fit in width and height at most.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> KSpaceSpikeNoise()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.KSpaceSpikeNoise`, whose intensity is a share of the largest
    magnitude in k-space.
    """

    num_spikes: Annotated[Range, Converter(as_int_range, 1)] = (1, 5)
    intensity: Annotated[Range, Converter(as_range, 0.0)] = (0.1, 0.5)
    waves: PositiveInt = 64
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Spikes:
        """Draw how many there are, their waves, phases and intensities."""
        low, high = self.num_spikes
        numbers = uniform(key, shape=(4 * high + 1,))
        each = numbers[1:].reshape(4, high)
        shown = jnp.arange(high, dtype=jnp.int32) < integer(numbers[0], low, high + 1)
        waves = integer(each[:2].T, -self.waves, self.waves + 1).astype(jnp.float32)
        strength = jnp.where(shown, between(each[3], *self.intensity), 0.0)
        return Spikes(waves, each[2] * (2 * jnp.pi), strength)

    def apply(self, params: Spikes, image: Array, info: ImageInfo) -> Array:
        """Add the stripes."""
        return jnp.clip(k_space_spikes(image, *params, size=info.size), 0.0, 1.0)
