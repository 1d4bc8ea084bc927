"""Random numbers for the parameters of one transform: all of them from one call.

A call of the generator is the costly part of a small draw, to compile and to run, so a transform
asks once for as many uniform numbers as it needs and shapes them with the functions below.
"""

import jax
import jax.numpy as jnp

from jaxaug._typing import Array, Key, Scalar


def uniforms(key: Key, count: int) -> Array:
    """float32[count], independent and uniform on [0, 1)."""
    return jax.random.uniform(key, (count,), jnp.float32)


def between(uniform: Array, low: float, high: float) -> Array:
    """`uniform` stretched to [low, high)."""
    return low + uniform * (high - low)


def integer(uniform: Array, low: Scalar, high: Scalar) -> Array:
    """A whole number of `low` to `high`, both included, int32."""
    low = jnp.asarray(low, jnp.int32)
    high = jnp.asarray(high, jnp.int32)
    steps = jnp.floor(uniform * (high - low + 1).astype(jnp.float32)).astype(jnp.int32)
    return jnp.minimum(low + steps, high)


def permutation(uniform: Array) -> Array:
    """int32[n], a permutation of 0 to n - 1, each as likely, from n uniform numbers."""
    return jnp.argsort(uniform).astype(jnp.int32)
