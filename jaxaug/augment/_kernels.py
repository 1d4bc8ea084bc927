"""The kernels of the interpolations that mix pixels."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array


class Kernel(NamedTuple):
    """The weights of the pixels around a position.

    Attributes:
      radius: the distance in pixels from which on the weight is 0.
      weight: the function of a distance of at least 0.
      overshoots: True where weights may be negative, so that a mixture may leave the range of what
        is mixed.
    """

    radius: int
    weight: Callable[[Array], Array]
    overshoots: bool


def _triangle(distance: Array) -> Array:
    """Return 1 - |d|, and 0 from a distance of 1 on."""
    return jnp.maximum(0.0, 1.0 - distance)


def _cubic(distance: Array) -> Array:
    """Return the cubic convolution with a = -1/2, that of PIL's resize.

    Reference: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981,
      equation 15.
    """
    near = (1.5 * distance - 2.5) * distance * distance + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return jnp.where(distance < 1, near, jnp.where(distance < 2, far, 0.0))


KERNELS = {"bilinear": Kernel(1, _triangle, False), "bicubic": Kernel(2, _cubic, True)}
INTERPOLATIONS = (*KERNELS, "nearest")
