"""RandomPhotometricDistort: the color jitter of single-shot detectors."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Key
from jaxaug.augment._base import Drawn, ImageInfo, Range, as_range, converter
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._ops.channels import permute_channels
from jaxaug.augment._ops.color import ColorJitter, Jitter
from jaxaug.augment.random import between, order, uniform


class Distortion(NamedTuple):
    """Drawn parameters of `RandomPhotometricDistort`: a jitter, and int32[3], the channels."""

    jitter: Jitter
    permutation: Array


@dataclass(frozen=True)
class RandomPhotometricDistort(ImageOp):
    """Change brightness, contrast, saturation, hue and the order of the channels, each with
    probability `p`.

    Contrast comes before saturation and hue for one half of the images, after them for the other.
    Values are clipped to [0, 1] after each step.

    Args:
      brightness, contrast, saturation: (low, high), at least 0, the range of the factor.
      hue: (low, high), within [-0.5, 0.5], the range of the shift in turns.
      p: the probability of each of the five.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomPhotometricDistort()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: W. Liu et al., "SSD: Single shot multibox detector", 2016.
    """

    channels = 3
    brightness: Range = field(default=(0.875, 1.125), metadata=converter(as_range, 0.0))
    contrast: Range = field(default=(0.5, 1.5), metadata=converter(as_range, 0.0))
    saturation: Range = field(default=(0.5, 1.5), metadata=converter(as_range, 0.0))
    hue: Range = field(default=(-0.05, 0.05), metadata=converter(as_range, -0.5, 0.5))
    p: float = 0.5

    def draw(self, key: Key, info: ImageInfo) -> Drawn:
        """Draw the parameters, which hold the coin of each of the five."""
        return Drawn(self.make_params(key, info))

    def make_params(self, key: Key, info: ImageInfo) -> Distortion:
        """Draw the coins, the factors, the place of contrast and the order of the channels."""
        del info
        numbers = uniform(key, shape=(13,))
        applied = numbers[:5] < self.p
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        neutral = (1.0, 1.0, 1.0, 0.0)
        drawn = [between(number, *pair) for number, pair in zip(numbers[5:9], ranges)]
        brightness, contrast, saturation, hue = (
            jnp.where(on, value, none) for on, value, none in zip(applied, drawn, neutral)
        )
        early, late = self._turns((0, 1, 2, 3)), self._turns((0, 2, 3, 1))  # contrast is 1
        turns = jnp.where(numbers[9] < 0.5, early, late)
        jitter = Jitter(brightness, contrast, saturation, hue, turns)
        same = jnp.arange(3, dtype=jnp.int32)
        permutation = jnp.where(applied[4], order(numbers[10:]), same)
        return Distortion(jitter, permutation)

    def apply(self, params: Distortion, image: Array, info: ImageInfo) -> Array:
        """Apply the steps in their order."""
        jittered = self._jitter.apply(params.jitter, image, info)
        return permute_channels(jittered, params.permutation)

    @property
    def _jitter(self) -> ColorJitter:
        """The transform that does all but the order of the channels."""
        return ColorJitter(self.brightness, self.contrast, self.saturation, self.hue)

    def _turns(self, order: tuple[int, ...]) -> Array:
        """Return those of `order` that the jitter has, as `Jitter.order`."""
        components = self._jitter.components
        return jnp.array([turn for turn in order if turn in components], jnp.int32)
