"""Sums over the neighbors of each pixel, written out tap by tap, mirrored at the used border.

A convolution's rounding would depend on the batch size.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Scalar
from jaxaug.augment._base import mirrored, plain
from jaxaug.augment._xla import barrier


def mirrored_all(image: Array, radius: int, size: Any) -> Array:
    """Return the image with a mirrored margin of `radius` on all sides."""
    image = mirrored(image, radius, radius, 0, size)
    return barrier(mirrored(image, radius, radius, 1, size))


def taps_along(image: Array, taps: int, axis: int, size: Any) -> list[Array]:
    """Return the image moved by each offset of a line of `taps`, mirrored at the border."""
    padded = barrier(mirrored(image, taps // 2, taps // 2, axis, size))
    length = image.shape[axis]
    return [lax.slice_in_dim(padded, i, i + length, axis=axis) for i in range(taps)]


def along(image: Array, weights: Sequence[Scalar], axis: int, size: Any) -> Array:
    """Return the correlation with weights along one axis."""
    taps = taps_along(image, len(weights), axis, size)
    return written_sum([weight * tap for weight, tap in zip(weights, taps)])


def correlated(image: Array, kernel: Array, size: Any) -> Array:
    """Return the correlation with a kernel [k, k], one row of the kernel after the other."""
    height, width, _ = image.shape
    taps = kernel.shape[0]
    padded = mirrored_all(image, taps // 2, size)

    def add_row(total: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        index, weights = row
        lines = lax.dynamic_slice_in_dim(padded, index, height, axis=0)
        terms = [weights[x] * lines[:, x : x + width] for x in range(taps)]
        return total + written_sum(terms), None

    # A loop: written out, the kernels that draws of 21 x 21 ask for would take minutes to compile.
    rows = (jnp.arange(taps, dtype=jnp.int32), kernel)
    return lax.scan(add_row, jnp.zeros_like(image), rows)[0]


def written_sum(values: Sequence[Array]) -> Array:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def check_kernel_size(taps: Any) -> None:
    """Raise where a kernel has no middle tap."""
    if not isinstance(taps, int) or taps < 1 or taps % 2 == 0:
        raise ValueError(f"`kernel_size` must be an odd int of at least 1, got {taps!r}.")


def as_kernel_size(name: str, value: Any) -> int:
    """Return the odd side of a kernel."""
    value = plain(value)
    check_kernel_size(value)
    return value
