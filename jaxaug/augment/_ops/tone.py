"""Transforms of tone: each value by itself, through a curve or in steps.

The pure functions take float images [H, W, C] in [0, 1] and do not clip. Those with steps
(posterize, solarize, lookup_table) decide on the nearest of 256 levels, so that a float image gives
what its 8-bit form gives; for 16 bits `levels` is 65536.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    LEVELS,
    Converter,
    Flag,
    ImageInfo,
    Range,
    as_int,
    as_number,
    as_range,
    from_levels,
    look_up,
    on_image,
    ordered,
    per_channel,
    plain,
    to_levels,
)
from jaxaug.augment._chain import Pointwise
from jaxaug.augment.random import uniform


@on_image
def posterize(image: Array, bits: Scalar, levels: int = LEVELS) -> Array:
    """Return the image with all but the upper `bits` of each level cleared.

    Args:
      image: float [H, W, C] in [0, 1].
      bits: an integer of 0 to 8, of 65536 levels to 16; the last is the image in so many levels.
      levels: static, 256 or 65536.

    Returns:
      Floats of the image's dtype; their gradient is zero.

    Example:
      >>> import jax.numpy as jnp
      >>> (posterize(jnp.array([[[0.3, 0.6, 1.0]]]), 1) * 255).tolist()
      [[[0.0, 128.0, 128.0]]]

    Differs from torchvision for float images: the result is that of the 8-bit image, k * 2^(8 - b)
    / 255, and not k / 2^b.
    """
    depth = levels.bit_length() - 1
    cleared = depth - jnp.asarray(bits, jnp.int32)
    return from_levels((to_levels(image, levels) >> cleared) << cleared, levels)


@on_image
def solarize(image: Array, threshold: Scalar, levels: int = LEVELS) -> Array:
    """Return the image with the values from `threshold` on inverted.

    Args:
      image: float [H, W, C] in [0, 1].
      threshold: in [0, 1], compared with the nearest level; 0 inverts all, above 1 nothing.
      levels: static, 256 or 65536.

    Example:
      >>> import jax.numpy as jnp
      >>> print(solarize(jnp.array([[[0.25, 0.5, 1.0]]]), 0.5)[0, 0])
      [0.25 0.5  0.  ]
    """
    # 128 / 255 * 255 may come out just above 128.
    lowest = jnp.asarray(threshold, jnp.float32) * (levels - 1) - _TOLERANCES[levels]
    # A value's nearest level is at least n where the value is at least n - 1/2.
    return jnp.where(image * (levels - 1) >= jnp.ceil(lowest) - 0.5, 1 - image, image)


LEVEL_TOLERANCE = 1e-3
_TOLERANCES = {256: LEVEL_TOLERANCE, 65536: 0.05}  # above an ulp of the largest level, below a step


@on_image
def invert(image: Array) -> Array:
    """Return 1 - image.

    Args:
      image: float [H, W, C] in [0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> invert(jnp.array([[[0.25, 0.5, 1.0]]])).tolist()
      [[[0.75, 0.5, 0.0]]]
    """
    return 1 - image


@on_image
def adjust_gamma(image: Array, gamma: Scalar, gain: Scalar = 1.0) -> Array:
    """Return gain * image^gamma.

    Args:
      image: float [H, W, C] in [0, 1]; negative values count as 0.
      gamma: above 0; below 1 dark values become lighter.
      gain: the factor.

    Example:
      >>> import jax.numpy as jnp
      >>> print(adjust_gamma(jnp.array([[[0.0, 0.25, 1.0]]]), 0.5)[0, 0])
      [0.  0.5 1. ]

    Differs from torchvision in not clipping.
    """
    # The derivative of the power is infinite at 0: it is never taken there.
    positive = image > 0
    logarithm = jnp.log(jnp.where(positive, image, 1.0))
    # XLA's power takes five times as long, for a relative error of 1e-7 instead of some 5e-7.
    power = jnp.exp(logarithm * jnp.asarray(gamma, jnp.float32))
    return jnp.where(positive, power, 0.0) * gain


@on_image
def lookup_table(image: Array, table: Any) -> Array:
    """Return the entry of `table` for each value's nearest 8-bit level.

    Args:
      image: float [H, W, C] in [0, 1].
      table: float [256] in [0, 1], or [C, 256] for a table of each channel.

    Returns:
      Floats of the image's dtype; their gradient is zero.

    Example:
      >>> import jax.numpy as jnp
      >>> lookup_table(jnp.array([[[0.0, 1.0]]]), jnp.linspace(1, 0, 256)).tolist()
      [[[1.0, 0.0]]]
    """
    table = jnp.asarray(table, jnp.float32)
    channels = image.shape[2]
    if table.shape not in ((LEVELS,), (channels, LEVELS)):
        raise ValueError(
            f"`table` must have the shape (256,) or ({channels}, 256), got {table.shape}."
        )
    levels = to_levels(image)
    # A batch that is sharded explicitly can only be looked up in a table of each image.
    table = table + (levels[0, 0, 0] * 0).astype(jnp.float32)
    return look_up(levels, jnp.broadcast_to(table, (channels, LEVELS)))


@on_image
def tone_curve(image: Array, low_y: Scalar, high_y: Scalar) -> Array:
    """Return 3 (1 - x)^2 x low_y + 3 (1 - x) x^2 high_y + x^3, an S-shaped curve.

    Args:
      image: float [H, W, C] in [0, 1], x.
      low_y, high_y: in [0, 1], the heights of the Bezier curve's inner points; (1/3, 2/3) is the
        image. One number, or [C] with one of each channel.

    Example:
      >>> import jax.numpy as jnp
      >>> print(tone_curve(jnp.array([[[0.0, 0.5, 1.0]]]), 0.0, 1.0)[0, 0])
      [0.  0.5 1. ]

    Reference: `albumentations.RandomToneCurve`.
    """
    rest = 1 - image
    low = per_channel("low_y", low_y, image) * (3 * rest * rest * image)
    high = per_channel("high_y", high_y, image) * (3 * rest * image * image)
    return low + high + image * image * image


# ---- transforms


_MIN_GAMMA = 1e-3


def _as_table(name: str, value: Any) -> Any:
    """Return 256 numbers in [0, 1], or rows of them: a tuple, or an array where JAX's are among."""
    traced = any(isinstance(each, jax.Array) for each in jax.tree.leaves(value))
    table: Any = (jnp if traced else np).asarray(value, np.float32)
    shaped = table.ndim in (1, 2) and table.shape[-1] == LEVELS
    if not shaped or not ordered(0, table.min()) or not ordered(table.max(), 1):
        raise ValueError(
            f"`{name}` must be 256 numbers in [0, 1], or such a row for each channel, got"
            f" {table.shape} in [{table.min()}, {table.max()}]."
        )
    return table if traced else plain(table)


@dataclass(frozen=True)
class RandomPosterize(Pointwise):
    """Keep the upper `bits` of each level, of 8 bits or, for uint16, of 16, with probability `p`.

    Args:
      bits: 0 to 8.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.full((1, 1, 3), 255, jnp.uint8)
      >>> RandomPosterize(2, p=1.0)(jax.random.key(0), image).tolist()
      [[[192, 192, 192]]]
    """

    by_value = True
    bits: Annotated[int, Converter(as_int, 0, 8)]
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Posterize."""
        return posterize(image, self.bits, info.levels)


@dataclass(frozen=True)
class RandomSolarize(Pointwise):
    """Invert the values from `threshold` on, with probability `p`.

    Args:
      threshold: in [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.array([[[100, 200, 255]]], jnp.uint8)
      >>> RandomSolarize(0.5, p=1.0)(jax.random.key(0), image).tolist()
      [[[100, 55, 0]]]

    Differs from torchvision in a threshold of [0, 1] also for uint8: divide by 255.
    """

    by_value = True
    threshold: Annotated[float, Converter(as_number, 0.0, 1.0)]
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Solarize."""
        return solarize(image, self.threshold, info.levels)


@dataclass(frozen=True)
class RandomInvert(Pointwise):
    """Invert all values.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomInvert(1.0)(jax.random.key(0), jnp.full((1, 1, 3), 55, jnp.uint8)).tolist()
      [[[200, 200, 200]]]
    """

    by_value = True
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Invert."""
        return invert(image)


@dataclass(frozen=True)
class RandomGamma(Pointwise):
    """Raise the values to a random power, with probability `p`.

    Values are clipped to [0, 1] before.

    Args:
      gamma: (low, high), above 0, the range of the exponent.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomGamma((2.0, 2.0), p=1.0)(jax.random.key(0), jnp.full((1, 1, 3), 0.5)).tolist()
      [[[0.25, 0.25, 0.25]]]

    Reference: `albumentations.RandomGamma`, there in percent.
    """

    by_value = True
    gamma: Annotated[Range, Converter(as_range, _MIN_GAMMA)] = (0.8, 1.2)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the exponent."""
        return uniform(key, *self.gamma)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Raise to the power."""
        return adjust_gamma(jnp.clip(image, 0.0, 1.0), params)


@dataclass(frozen=True)
class LookupTable(Pointwise):
    """Replace each value by the entry of a table for its 8-bit level.

    Args:
      table: 256 numbers in [0, 1], or such a row for each channel.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> negative = LookupTable(np.linspace(1, 0, 256))
      >>> negative(jax.random.key(0), jnp.full((1, 1, 3), 55, jnp.uint8)).tolist()
      [[[200, 200, 200]]]

    Reference: `nvidia.dali.fn.lookup_table`.
    """

    eight_bits = True
    by_value = True
    table: Annotated[Any, Converter(_as_table)]
    _: KW_ONLY
    p: float = 1.0

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Look up."""
        return lookup_table(image, jnp.asarray(self.table, jnp.float32))


class ToneCurve(NamedTuple):
    """Drawn parameters of `RandomToneCurve`: float32 numbers, or [C] with one per channel."""

    low_y: Array
    high_y: Array


@dataclass(frozen=True)
class RandomToneCurve(Pointwise):
    """Bend the tones along a random S-shaped curve, with probability `p`.

    The heights of the curve's inner points are normal about 1/4 and 3/4, clipped to [0, 1].

    Args:
      scale: the standard deviation of the heights, at least 0.
      per_channel: True draws a curve for each channel, False one for all.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomToneCurve()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.RandomToneCurve`.
    """

    by_value = True
    scale: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.1
    per_channel: Flag = False
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> ToneCurve:
        """Draw the heights of the inner points."""
        channels = info.channels or 3 if self.per_channel else 3
        heights = jax.random.normal(key, (2, channels), jnp.float32) * self.scale
        low_y = jnp.clip(0.25 + heights[0], 0.0, 1.0)
        high_y = jnp.clip(0.75 + heights[1], 0.0, 1.0)
        return ToneCurve(low_y, high_y) if self.per_channel else ToneCurve(low_y[0], high_y[0])

    def apply(self, params: ToneCurve, image: Array, info: ImageInfo) -> Array:
        """Bend the tones."""
        return tone_curve(image, params.low_y, params.high_y)
