"""Sums whose bits do not depend on the batch size."""

import math

import jax.numpy as jnp

from jaxaug._typing import Array
from jaxaug.augment._slope import with_slope_of


def fixed_point_bits(width: int) -> int:
    """Return the bits behind the point so that a line of values up to 2 in magnitude fits int32."""
    return 29 - math.ceil(math.log2(max(width, 2)))


@with_slope_of(jnp.sum)
def exact_sum(values: Array) -> Array:
    """Return the sum of values [H, W] of about [0, 1], in fixed point.

    XLA adds floats up in an order that depends on the batch size; integers give the same sum in any
    order. Each value is rounded to 2^-bits, 21 bits for a width of 224 and 16 for one of 8192. The
    sums of the lines fill an int32, so their upper and lower halves are added up apart: up to 32768
    lines.
    """
    bits = fixed_point_bits(values.shape[1])
    fixed = jnp.round(jnp.clip(values, -2.0, 2.0) * 2.0**bits).astype(jnp.int32)
    lines = jnp.sum(fixed, axis=1, dtype=jnp.int32)
    upper = jnp.sum(lines >> 16, dtype=jnp.int32).astype(jnp.float32)
    lower = jnp.sum(lines & 0xFFFF, dtype=jnp.int32).astype(jnp.float32)
    return (upper * 2.0**16 + lower) * 2.0**-bits
