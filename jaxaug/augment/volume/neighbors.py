"""Values of voxels by those around them: blurs, blurs along a line, thick slices."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._typing import Key
from jaxaug.augment._base import Converter, Range, VolumeInfo, as_range_of, as_range_to
from jaxaug.augment._xla import barrier
from jaxaug.augment.random import between, integers, uniform
from jaxaug.augment.volume._fields import Axes
from jaxaug.augment.volume._kind import Intensity

_TRUNCATED = 4.0  # deviations after which the kernel ends, as in scipy


@dataclass(frozen=True)
class Blur(Intensity):
    """Blur by a Gaussian of a random width; the border is repeated.

    Args:
      sigma: (low, high), the range of the standard deviation in voxels; `high`, which fixes the
        size of the kernel, is a number.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> bool(jnp.allclose(Blur((1.0, 1.0))(jax.random.key(0), jnp.ones((4, 5, 6))), 1.0))
      True

    Reference: `scipy.ndimage.gaussian_filter` with mode "nearest"; `monai.transforms.
      RandGaussianSmooth`, `torchio.RandomBlur`.
    """

    sigma: Annotated[Range, Converter(as_range_to, 0.0)] = (0.0, 2.0)
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw the standard deviation."""
        return uniform(key, *self.sigma)

    def apply(self, params: Array, volume: Array, info: VolumeInfo) -> Array:
        """Blur along each axis."""
        radius = math.ceil(_TRUNCATED * self.sigma[1])
        offsets = np.arange(-radius, radius + 1, dtype=np.float32)
        reach = jnp.floor(_TRUNCATED * params + 0.5)
        weights = jnp.exp(-0.5 * (offsets / jnp.maximum(params, 1e-3)) ** 2)
        weights = jnp.where(jnp.abs(offsets) <= reach, weights, 0.0)
        weights = weights / jnp.sum(weights)
        for axis in range(3):
            volume = _correlated(volume, weights, axis)
        return volume


@dataclass(frozen=True)
class MotionBlur(Intensity):
    """Blur along a line of random length and direction; the border is repeated.

    Each voxel becomes the mean of places on a line about it, at most a voxel apart, each read
    linearly between the voxels. All directions of the sphere are equally likely.

    Args:
      length: (low, high), at least 0, the range of the line's length in voxels; `high`, which fixes
        how many places are read, is a number.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> out = MotionBlur((4.0, 4.0))(jax.random.key(0), jnp.ones((4, 5, 6)))
      >>> bool(jnp.allclose(out, 1.0))
      True

    Reference: `kornia.augmentation.RandomMotionBlur3D`.

    Differs from kornia in directions by length and place, not as a kernel of whole voxels that is
    turned, and from `torchio.RandomMotion`, which moves the head between lines of k-space.
    """

    length: Annotated[Range, Converter(as_range_to, 0.0)] = (2.0, 6.0)
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw the line, float32[3], from its center to its end."""
        numbers = uniform(key, shape=(3,))
        height = 2.0 * numbers[0] - 1.0
        angle = 2.0 * np.float32(np.pi) * numbers[1]
        across = jnp.sqrt(jnp.maximum(1.0 - height * height, 0.0))
        direction = jnp.stack([height, across * jnp.sin(angle), across * jnp.cos(angle)])
        return 0.5 * between(numbers[2], *self.length) * direction

    def apply(self, params: Array, volume: Array, info: VolumeInfo) -> Array:
        """Return the means."""
        steps = max(1, math.ceil(self.length[1] / 2))
        places = np.arange(-steps, steps + 1, dtype=np.float32) / steps
        # The voxel and the share of its neighbor must be of one number.
        offsets = barrier(jnp.asarray(places)[:, None] * params[None, :])
        below = lax.stop_gradient(jnp.floor(offsets))

        def turn(total: Array, place: tuple[Array, Array]) -> tuple[Array, None]:
            return total + _moved(volume, *place), None

        moves = (below.astype(jnp.int32), offsets - below)
        total, _ = lax.scan(turn, jnp.zeros_like(volume), moves)
        return total / (2 * steps + 1)


class AnisotropyDraw(NamedTuple):
    """Drawn parameters of `Anisotropy`: the axis, int32, and the factor, float32."""

    axis: Array
    factor: Array


@dataclass(frozen=True)
class Anisotropy(Intensity):
    """Keep some slices across a random axis and interpolate between them, as thick ones look.

    Args:
      factor: (low, high), at least 1: how many voxels apart the slices are that are kept. Each is
        the one at the center of its share, and between two of them all is linear.
      axes: 0 (depth), 1 (height), 2 (width), of which one is drawn.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> line = jnp.array([0.0, 1.0, 2.0, 9.0]).reshape(1, 1, 4)
      >>> Anisotropy((2.0, 2.0), axes=2)(jax.random.key(0), line).tolist()
      [[[1.0, 3.0, 7.0, 9.0]]]

    Reference: `torchio.RandomAnisotropy`.
    """

    factor: Annotated[Range, Converter(as_range_of, 1.0)] = (1.5, 5.0)
    axes: Axes = (0, 1, 2)
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> AnisotropyDraw:
        """Draw the axis and the factor."""
        first, second = jax.random.split(key)
        number = integers(first, 0, len(self.axes))
        axis = jnp.asarray(self.axes, jnp.int32)[number]
        return AnisotropyDraw(axis=axis, factor=uniform(second, *self.factor))

    def apply(self, params: AnisotropyDraw, volume: Array, info: VolumeInfo) -> Array:
        """Return the volume between the slices that are kept."""
        for axis in self.axes:
            thick = _between_slices(volume, axis, params.factor)
            volume = jnp.where(params.axis == axis, thick, volume)
        return volume


def _between_slices(volume: Array, axis: int, factor: Array) -> Array:
    """Return a volume with slices `factor` apart kept along an axis; of 1, the volume itself."""
    length = volume.shape[axis]
    last = jnp.ceil(length / factor) - 1
    place = (np.arange(length, dtype=np.float32) + 0.5) / factor - 0.5
    below = jnp.floor(place)
    shape = [-1 if each == axis else 1 for each in range(volume.ndim)]
    share = (place - below).reshape(shape)

    def kept(number: Array) -> Array:
        center = (jnp.clip(number, 0, last) + 0.5) * factor
        index = jnp.clip(jnp.floor(center), 0, length - 1).astype(jnp.int32)
        return jnp.take(volume, index, axis=axis, mode="clip")

    return kept(below) * (1 - share) + kept(below + 1) * share


def _correlated(volume: Array, weights: Array, axis: int) -> Array:
    """Return the sums of neighbors along an axis, its ends repeated."""
    radius = weights.shape[0] // 2
    length = volume.shape[axis]
    line = np.arange(length)
    total = jnp.zeros((), jnp.float32)
    for tap in range(weights.shape[0]):
        index = np.clip(line + tap - radius, 0, length - 1)
        total = total + weights[tap] * jnp.take(volume, index, axis=axis, mode="clip")
    return total


def _moved(volume: Array, below: Array, share: Array) -> Array:
    """Return the volume read linearly at an offset from each voxel, its ends repeated.

    Args:
      below: int32[3], the whole voxels of the offset.
      share: float32[3], what it has beyond them.
    """
    for axis in range(3):
        length = volume.shape[axis]
        index = np.arange(length) + below[axis]
        before, behind = (
            jnp.take(volume, jnp.clip(index + k, 0, length - 1), axis=axis, mode="clip")
            for k in range(2)
        )
        volume = before + share[axis] * (behind - before)
    return volume
