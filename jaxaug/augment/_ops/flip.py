"""Flips: x -> width - x and y -> height - y, in continuous edge coordinates."""

from dataclasses import dataclass

import jax.numpy as jnp

from jaxaug._typing import Array, Key
from jaxaug.augment._base import ImageInfo, as_image
from jaxaug.augment._chain import Geometric
from jaxaug.augment._warp import Warp
from jaxaug.augment.matrix import Matrix


def horizontal_flip(image: Array) -> Array:
    """Return the image mirrored left to right: x -> width - x.

    Args:
      image: any dtype, [H, W, C] or [H, W].

    Example:
      >>> import jax.numpy as jnp
      >>> horizontal_flip(jnp.arange(3).reshape(1, 3, 1))[0, :, 0].tolist()
      [2, 1, 0]
    """
    return jnp.flip(as_image(image), 1)


def vertical_flip(image: Array) -> Array:
    """Return the image mirrored top to bottom: y -> height - y.

    Args:
      image: any dtype, [H, W, C] or [H, W].

    Example:
      >>> import jax.numpy as jnp
      >>> vertical_flip(jnp.arange(3).reshape(3, 1, 1))[:, 0, 0].tolist()
      [2, 1, 0]
    """
    return jnp.flip(as_image(image), 0)


@dataclass(frozen=True)
class _Flip(Geometric):
    """A flip along one of the axes."""

    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> None:
        """Draw nothing but the coin of `p`."""
        del key, info


@dataclass(frozen=True)
class RandomHorizontalFlip(_Flip):
    """Mirror left to right: x -> width - x.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> flip = RandomHorizontalFlip(p=1.0)
      >>> flip(jax.random.key(0), jnp.zeros((1, 3, 3), jnp.uint8).at[0, 0].set(7))[0, :, 0].tolist()
      [0, 0, 7]
    """

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return width - x."""
        del params
        return _mirrored(info, Matrix(xx=-1.0, x1=info.extent[1]))


@dataclass(frozen=True)
class RandomVerticalFlip(_Flip):
    """Mirror top to bottom: y -> height - y.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> flip = RandomVerticalFlip(p=1.0)
      >>> flip(jax.random.key(0), jnp.zeros((3, 1, 3), jnp.uint8).at[0, 0].set(7))[:, 0, 0].tolist()
      [0, 0, 7]
    """

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return height - y."""
        del params
        return _mirrored(info, Matrix(yy=-1.0, y1=info.extent[0]))


def _mirrored(info: ImageInfo, matrix: Matrix) -> Warp:
    return Warp(matrix, info.canvas, info.size, integer_aligned=True, inside_source=True)
