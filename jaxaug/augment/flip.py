"""Flips: in continuous coordinates, where pixel i covers [i, i + 1), x -> width - x and y -> height
- y.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._base import Geometric, ImageInfo
from jaxaug.augment._fields import as_probability
from jaxaug.augment._warp import Warp
from jaxaug.augment.matrix import Matrix
from jaxaug.augment.random import uniforms


def horizontal_flip(image: Array) -> Array:
    """The image mirrored left to right: x -> width - x.

    Args:
      image: any dtype, [H, W, C].

    Example:
      >>> import jax.numpy as jnp
      >>> horizontal_flip(jnp.arange(3).reshape(1, 3, 1))[0, :, 0].tolist()
      [2, 1, 0]
    """
    return jnp.flip(image, 1)


def vertical_flip(image: Array) -> Array:
    """The image mirrored top to bottom: y -> height - y.

    Args:
      image: any dtype, [H, W, C].

    Example:
      >>> import jax.numpy as jnp
      >>> vertical_flip(jnp.arange(3).reshape(3, 1, 1))[:, 0, 0].tolist()
      [2, 1, 0]
    """
    return jnp.flip(image, 0)


class Flip(NamedTuple):
    """Sampled parameter of the flips: whether to."""

    on: Array


@dataclass(frozen=True)
class _Flipping(Geometric):
    """What both flips share."""

    p: float = 0.5

    def __post_init__(self):
        object.__setattr__(self, "p", as_probability("p", self.p))

    def sample(self, key: Key, info: ImageInfo) -> Flip:
        """Whether to."""
        del info
        return Flip(uniforms(key, 1)[0] < self.p)


@dataclass(frozen=True)
class RandomHorizontalFlip(_Flipping):
    """Mirror left to right with probability `p`: x -> width - x.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> flip = RandomHorizontalFlip(p=1.0)
      >>> flip(jax.random.key(0), jnp.zeros((1, 3, 3), jnp.uint8).at[0, 0].set(7))[0, :, 0].tolist()
      [0, 0, 7]
    """

    def warp(self, params: Flip, info: ImageInfo) -> Warp:
        """width - x, or x."""
        sign, shift = _mirrored(params.on, info.extent[1])
        return Warp(Matrix(xx=sign, x1=shift), *info, integer_aligned=True, inside_source=True)


@dataclass(frozen=True)
class RandomVerticalFlip(_Flipping):
    """Mirror top to bottom with probability `p`: y -> height - y.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> flip = RandomVerticalFlip(p=1.0)
      >>> flip(jax.random.key(0), jnp.zeros((3, 1, 3), jnp.uint8).at[0, 0].set(7))[:, 0, 0].tolist()
      [0, 0, 7]
    """

    def warp(self, params: Flip, info: ImageInfo) -> Warp:
        """height - y, or y."""
        sign, shift = _mirrored(params.on, info.extent[0])
        return Warp(Matrix(yy=sign, y1=shift), *info, integer_aligned=True, inside_source=True)


def _mirrored(on: Array, length: Scalar) -> tuple[Array, Array]:
    """(sign, shift) of one axis."""
    return jnp.where(on, jnp.float32(-1), jnp.float32(1)), jnp.where(
        on, jnp.asarray(length, jnp.float32), 0.0
    )
