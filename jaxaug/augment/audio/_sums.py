"""Sums whose bits depend neither on the size of a batch nor on padding."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxaug._typing import Array
from jaxaug.augment._xla import exact_sum

_LINE = 256  # numbers of a line of `exact_sum`, which fixes its 21 bits behind the point


def total(values: Array) -> Array:
    """Return the sum of values [N, ...] along the first axis, rounded to 2^-21 of the largest.

    Zeros at the end change no bit of it.
    """
    columns = values.reshape(values.shape[0], -1)
    peak = jnp.max(jnp.abs(columns), axis=0, initial=0.0)
    scale = lax.stop_gradient(jnp.where(peak > 0, peak, 1.0))
    padded = jnp.pad(columns / scale[None], ((0, -values.shape[0] % _LINE), (0, 0)))
    sums = jax.vmap(exact_sum, in_axes=2)(padded.reshape(-1, _LINE, columns.shape[1]))
    return (sums * scale).reshape(values.shape[1:])


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
