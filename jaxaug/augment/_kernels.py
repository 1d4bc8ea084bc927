"""The kernels of the interpolations that mix pixels."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxaug._typing import Array


class Kernel(NamedTuple):
    """The weights of the pixels around a position.

    Attributes:
      radius: the distance in pixels from which on the weight is 0.
      weight: the function of the place of a pixel minus that position.
      overshoots: True where weights may be negative, so that a mixture may leave the range of what
        is mixed.
    """

    radius: int
    weight: Callable[[Array], Array]
    overshoots: bool


@jax.custom_jvp
def _triangle(offset: Array) -> Array:
    """Return 1 - |d|, and 0 from a distance of 1 on."""
    return jnp.maximum(0.0, 1.0 - jnp.abs(offset))


@_triangle.defjvp
def _triangle_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Take the slopes at the three kinks from one side, that of a growing position.

    JAX's own rules for `abs` and `maximum` halve them there, and so would the gradient be wherever
    a position lies on a pixel.
    """
    (offset,), (change,) = primals, tangents
    rising = (offset > -1) & (offset <= 0)
    falling = (offset > 0) & (offset <= 1)
    slope = rising.astype(jnp.float32) - falling.astype(jnp.float32)
    return _triangle(offset), slope * change


def _cubic(offset: Array) -> Array:
    """Return the cubic convolution with a = -1/2, that of PIL's resize.

    Reference: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981,
      equation 15.
    """
    distance = jnp.abs(offset)
    near = (1.5 * distance - 2.5) * distance * distance + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return jnp.where(distance < 1, near, jnp.where(distance < 2, far, 0.0))


KERNELS = {"bilinear": Kernel(1, _triangle, False), "bicubic": Kernel(2, _cubic, True)}
INTERPOLATIONS = (*KERNELS, "nearest")
