"""Sums whose bits depend neither on the size of a batch nor on padding."""

import jax.numpy as jnp
from jax import Array

from jaxaug.augment._xla import with_jvp_of
from jaxaug.augment.audio._kind import padded

_BITS = 21  # behind the point
_LINE = 512  # numbers of at most 1 whose sum in fixed point fits int32


def _along_first(values: Array) -> Array:
    return jnp.sum(values, axis=0)


@with_jvp_of(_along_first)
def total(values: Array) -> Array:
    """Return the sum of values [N, ...] along the first axis, rounded to 2^-21 of the largest.

    Zeros at the end change no bit of it: integers have one sum in any order. The sums of lines fill
    an int32, so their upper half and two lower bytes are added up apart, up to 2^17 lines.
    """
    peak = jnp.max(jnp.abs(values), axis=0, initial=0.0)
    scale = jnp.where(peak > 0, peak, 1.0)
    fixed = jnp.round(values / scale[None] * 2.0**_BITS).astype(jnp.int32)
    rest = values.shape[1:]
    filled = padded(fixed, 0, -values.shape[0] % _LINE)
    lines = jnp.sum(filled.reshape(-1, _LINE, *rest), axis=1, dtype=jnp.int32)
    upper = jnp.sum(lines >> 16, axis=0, dtype=jnp.int32).astype(jnp.float32)
    middle = jnp.sum(lines >> 8 & 0xFF, axis=0, dtype=jnp.int32).astype(jnp.float32)
    lower = jnp.sum(lines & 0xFF, axis=0, dtype=jnp.int32).astype(jnp.float32)
    return (upper * 2.0**16 + (middle * 2.0**8 + lower)) * 2.0**-_BITS * scale


def bin_means(values: Array, count: Array | int) -> Array:
    """Return the means [...] of values [N, ...] of which `count` rows are used, the others 0."""
    return total(values) / jnp.maximum(jnp.asarray(count, jnp.float32), 1.0)


def mean(values: Array, count: Array | int) -> Array:
    """Return the one mean of values [N, ...] of which `count` rows are used, the others 0."""
    means = bin_means(values, count).reshape(-1, 1)
    return total(means)[0] / means.shape[0]


def root_mean_square(audio: Array, count: Array | int) -> Array:
    """Return the root of the mean square of audio of which `count` rows are used, 0 else."""
    square = mean(audio**2, count)
    positive = jnp.where(square > 0, square, 1.0)  # the root has no slope at 0
    return jnp.where(square > 0, jnp.sqrt(positive), 0.0)
