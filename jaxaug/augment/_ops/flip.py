"""Flips and quarter turns, pixel for pixel: the eight symmetries of the square.

In continuous edge coordinates a flip is x -> width - x or y -> height - y. Height and width swap in
half of the symmetries, so that the array must be square; an image of any shape may lie on it with
its `size`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key
from jaxaug.augment._base import ImageInfo, as_image
from jaxaug.augment._chain import Geometric
from jaxaug.augment._warp import Frame, Warp, warp_image
from jaxaug.augment.matrix import Matrix
from jaxaug.augment.random import integers


def horizontal_flip(image: Array) -> Array:
    """Return the image mirrored left to right: x -> width - x.

    Args:
      image: any dtype, [H, W, C] or [H, W].

    Example:
      >>> import jax.numpy as jnp
      >>> horizontal_flip(jnp.arange(3).reshape(1, 3, 1))[0, :, 0].tolist()
      [2, 1, 0]
    """
    if isinstance(image, Frame):
        return warp_image(image, _left_to_right(ImageInfo((image.shape[0], image.shape[1]))))
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
    if isinstance(image, Frame):
        return warp_image(image, _top_to_bottom(ImageInfo((image.shape[0], image.shape[1]))))
    return jnp.flip(as_image(image), 0)


def rot90(image: Array, k: int = 1) -> Array:
    """Return the image after `k` quarter turns, counter-clockwise on screen.

    Args:
      image: any dtype, [H, W, C] or [H, W].
      k: a static int.

    Returns:
      [W, H, C] for an odd `k`, else [H, W, C].

    Example:
      >>> import jax.numpy as jnp
      >>> rot90(jnp.arange(4).reshape(2, 2, 1))[:, :, 0].tolist()
      [[1, 3], [0, 2]]

    Equals `numpy.rot90`.
    """
    return jnp.rot90(as_image(image), k)


def transpose(image: Array) -> Array:
    """Return the image mirrored along its main diagonal: (x, y) -> (y, x).

    Args:
      image: any dtype, [H, W, C] or [H, W].

    Returns:
      [W, H, C].

    Example:
      >>> import jax.numpy as jnp
      >>> transpose(jnp.arange(4).reshape(2, 2, 1))[:, :, 0].tolist()
      [[0, 2], [1, 3]]
    """
    return jnp.swapaxes(as_image(image), 0, 1)


# ---- transforms


@dataclass(frozen=True)
class _Flip(Geometric):
    """A flip along one of the axes."""

    p: float = 0.5


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
        return _left_to_right(info)


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
        return _top_to_bottom(info)


def _left_to_right(info: ImageInfo) -> Warp:
    return _mirrored(info, Matrix(xx=-1.0, x1=info.extent[1]))


def _top_to_bottom(info: ImageInfo) -> Warp:
    return _mirrored(info, Matrix(yy=-1.0, y1=info.extent[0]))


def _mirrored(info: ImageInfo, matrix: Matrix) -> Warp:
    return Warp(matrix, info.canvas, info.size, integer_aligned=True, inside_source=True)


class Dihedral(NamedTuple):
    """Drawn parameter of `RandomRotate90` and `RandomD4`.

    Attributes:
      element: int32; 0 to 3 are as many quarter turns, counter-clockwise, 4 to 7 the same after a
        transpose.
    """

    element: Array


@dataclass(frozen=True)
class RandomRotate90(Geometric):
    """Turn by 0, 1, 2 or 3 quarters, each as likely, pixel for pixel.

    Raises:
      ValueError: on tracing, for an array that is not square.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {"image": jnp.zeros((9, 9, 3), jnp.uint8), "size": jnp.array([4, 9])}
      >>> turn = RandomRotate90(p=1.0)
      >>> sorted(turn(jax.random.key(0), sample)["size"].tolist())
      [4, 9]
    """

    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Dihedral:
        """Draw the number of quarter turns."""
        return Dihedral(integers(key, 0, 4))

    def warp(self, params: Dihedral, info: ImageInfo) -> Warp:
        """Return the turn."""
        return _symmetry(self, params.element, info)


@dataclass(frozen=True)
class RandomTranspose(Geometric):
    """Mirror along the main diagonal with probability `p`: (x, y) -> (y, x).

    Raises:
      ValueError: on tracing, for an array that is not square.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.arange(4, dtype=jnp.uint8).reshape(2, 2, 1)
      >>> RandomTranspose(p=1.0)(jax.random.key(0), image)[:, :, 0].tolist()
      [[0, 2], [1, 3]]
    """

    p: float = 0.5

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return the transpose."""
        return _symmetry(self, jnp.int32(4), info)


@dataclass(frozen=True)
class RandomD4(Geometric):
    """Apply one of the eight symmetries of the square, each as likely, pixel for pixel.

    Raises:
      ValueError: on tracing, for an array that is not square.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.arange(4, dtype=jnp.uint8).reshape(2, 2, 1)
      >>> sorted(RandomD4()(jax.random.key(0), image).ravel().tolist())
      [0, 1, 2, 3]
    """

    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Dihedral:
        """Draw the symmetry."""
        return Dihedral(integers(key, 0, 8))

    def warp(self, params: Dihedral, info: ImageInfo) -> Warp:
        """Return the symmetry."""
        return _symmetry(self, params.element, info)


# For each element of `Dihedral`: x and y swap, the source is mirrored in x, in y.
_SYMMETRIES = np.array(
    [
        [0, 0, 0],
        [1, 1, 0],
        [0, 1, 1],
        [1, 0, 1],
        [1, 0, 0],
        [0, 0, 1],
        [1, 1, 1],
        [0, 1, 0],
    ],
    np.float32,
)


def _symmetry(transform: Geometric, element: Array, info: ImageInfo) -> Warp:
    """Return the warp of an element, see `Dihedral`."""
    rows, columns = info.canvas
    if rows != columns:
        name = type(transform).__name__
        raise ValueError(
            f"{name} swaps height and width and needs a square array, got {rows} x {columns}: let"
            " a transform such as CenterCrop or LetterBox to a square come before it."
        )
    height, width = info.extent
    # Chosen by comparisons: no index into constants works on every explicit mesh.
    chosen = (jnp.arange(len(_SYMMETRIES), dtype=jnp.int32) == element)[:, None]
    swapped, mirrored_x, mirrored_y = jnp.sum(jnp.where(chosen, _SYMMETRIES, np.float32(0)), axis=0)
    along_x = 1 - 2 * mirrored_x
    along_y = 1 - 2 * mirrored_y
    matrix = Matrix(
        xx=(1 - swapped) * along_x,
        xy=swapped * along_x,
        x1=mirrored_x * width,
        yx=swapped * along_y,
        yy=(1 - swapped) * along_y,
        y1=mirrored_y * height,
    )
    size = info.size
    if size is not None:
        size = jnp.where(swapped > 0, size[::-1], size)
    return Warp(matrix, info.canvas, size, integer_aligned=True, inside_source=True)
