"""Padding as a rule for indices: the pixel that stands at a position outside of an image."""

import jax.numpy as jnp

from jaxaug._typing import Array, Scalar

PADDING_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def fold(index: Array, length: Scalar, mode: str) -> Array:
    """Return float indices, also between two pixels, folded into [0, length - 1].

    Args:
      index: positions of pixels, pixel 0 at 0.
      length: of the axis, a float or float32.
      mode: one of PADDING_MODES; "constant" folds as "edge" does.
    """
    length = jnp.asarray(length, jnp.float32)
    if mode == "wrap":
        index = _modulo(index, length)
    elif mode == "reflect":  # 4 3 2 | 1 2 3 4 | 3 2 1
        period = jnp.maximum(2 * length - 2, 1.0)
        index = jnp.abs(_modulo(index, period))
        index = jnp.minimum(index, period - index)
    elif mode == "symmetric":  # 3 2 1 | 1 2 3 4 | 4 3 2
        index = _modulo(index, 2 * length)
        index = jnp.minimum(index, 2 * length - 1 - index)
    return jnp.clip(index, 0.0, length - 1)


def _modulo(index: Array, period: Array) -> Array:
    """Return `index` modulo `period`, from -1/2 to `period` - 1/2.

    XLA multiplies by the reciprocal of a constant period, and the quotient of two integers may fall
    just below an integer; half a pixel more keeps it away from there. jnp.mod calls fmod for every
    pixel on CPUs.
    """
    return index - period * jnp.floor((index + 0.5) / period)
