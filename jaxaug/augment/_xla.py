"""What works around XLA, and around how JAX hands programs to it.

`with_jvp_of`: a function is computed in one way and differentiated in another. `split_arrays`,
`vary_alike`: operands that JAX can trace. `barrier` and its kin: values that are computed once,
although what follows reads them several times. `exact_sum`, `rounded`: bits that do not depend on
the batch.

XLA fuses a producer into its consumer and computes it anew for every reading: a resample once for
each of the channels that a gray value sums. `jax.lax.optimization_barrier` prevents that, on CPUs
only since jax 0.11.1; the XLA of earlier releases drops the barrier before it fuses.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

_BARRIER_SINCE = (0, 11, 1)


def with_jvp_of(reference: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Return a decorator that gives a function the derivatives of `reference`, of all orders.

    The function computes the values and is never differentiated itself: it may be a kernel, a loop
    or a choice that JAX cannot differentiate well.

    Args:
      reference: a function of the same operands, pytrees of arrays, with results of the same shapes
        and dtypes. Neither closes over values that are differentiated.
    """

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        differentiable = jax.custom_jvp(function)

        @differentiable.defjvp
        def jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
            _, tangent = jax.jvp(reference, primals, tangents)
            return differentiable(*primals), tangent

        return differentiable

    return wrap


def split_arrays(operands: Any) -> tuple[list[Array], Callable[[Sequence[Array]], Any]]:
    """Return the arrays of a pytree, and a function that puts such arrays in their places."""
    leaves, structure = jax.tree.flatten(operands)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]

    def join(arrays: Sequence[Array]) -> Any:
        whole = list(leaves)
        for place, array in zip(places, arrays):
            whole[place] = array
        return jax.tree.unflatten(structure, whole)

    return [leaves[place] for place in places], join


def vary_alike(*trees: Any) -> tuple[Any, ...]:
    """Return pytrees whose arrays all vary over the mesh axes over which one of them does.

    The type of an array inside of `jax.shard_map` says over which axes it varies. What a loop
    carries keeps its type, and the programs for several kinds of devices give results of one type:
    with keys that are split and an image that is not, neither would be so. Elsewhere nothing
    varies, and the same arrays come back.

    Reference: "Tracking how values vary over manual mesh axes",
      https://docs.jax.dev/en/latest/notebooks/shard_map.html.
    """
    varying = [_varying(leaf) for leaf in jax.tree.leaves(trees)]
    every = frozenset[Any]().union(*varying)
    if all(axes == every for axes in varying):
        return trees

    def vary(leaf: Any) -> Any:
        missing = tuple(every - _varying(leaf))
        if not missing or not hasattr(leaf, "dtype"):
            return leaf
        return lax.pcast(jnp.asarray(leaf), missing, to="varying")

    return jax.tree.map(vary, trees)


def _varying(leaf: Any) -> frozenset[Any]:
    if not isinstance(leaf, Tracer):
        return frozenset()
    return jax.typeof(leaf).manual_axis_type.varying


def barrier_works_on_cpu() -> bool:
    """Return True where `lax.optimization_barrier` keeps XLA's CPU backend from fusing."""
    return jax.__version_info__ >= _BARRIER_SINCE


def cpu_advice() -> str | None:
    """Return what users of this jax should know of the speed of transforms on CPUs, or None."""
    if barrier_works_on_cpu():
        return None
    return (
        f"jax {jax.__version__} ignores optimization barriers on CPUs: a function in `Lambda` that"
        " uses one is slower there. jax 0.11.1 and later (Python 3.12) heed them."
    )


def barrier(value: Array) -> Array:
    """Return `value`, which XLA does not fuse into what reads it."""
    if barrier_works_on_cpu():
        return lax.optimization_barrier(value)
    return lax.platform_dependent(value, cpu=_through_a_loop, default=lax.optimization_barrier)


def barrier_on_cpu(value: Array) -> Array:
    """Return `value`; on CPUs XLA does not fuse it into what reads it, elsewhere it may."""
    on_cpu = lax.optimization_barrier if barrier_works_on_cpu() else _through_a_loop
    return lax.platform_dependent(value, cpu=on_cpu, default=_itself)


def channels_to_front(image: Array) -> Array:
    """Return [C, H, W] of [H, W, C].

    Where XLA's GPU backend sees a transpose it lays out by planes what the image is computed from,
    too: a resample then takes 17.7 us an image for 1.9 (H200). It sees slices of a finished image
    instead.
    """

    def stacked(image: Array) -> Array:
        return _sliced(lax.optimization_barrier(image))

    return lax.platform_dependent(image, cpu=_transposed, default=stacked)


def to_planes(image: Array) -> Array:
    """Return [C, H, W] of [H, W, C] without a barrier, and without a transpose on GPUs.

    See `channels_to_front`; what is costly to compute is stored before.
    """
    return lax.platform_dependent(image, cpu=_transposed, default=_sliced)


def from_planes(planes: Array) -> Array:
    """Return [H, W, C] of [C, H, W], likewise."""

    def transposed(planes: Array) -> Array:
        return planes.transpose(1, 2, 0)

    def stacked(planes: Array) -> Array:
        return jnp.stack([planes[channel] for channel in range(planes.shape[0])], axis=-1)

    return lax.platform_dependent(planes, cpu=transposed, default=stacked)


def _transposed(image: Array) -> Array:
    return image.transpose(2, 0, 1)


def _sliced(image: Array) -> Array:
    return jnp.stack([image[:, :, channel] for channel in range(image.shape[2])])


def _itself(value: Array) -> Array:
    return value


@with_jvp_of(_itself)
def _through_a_loop(value: Array) -> Array:
    """Carry `value` through a loop of two turns, which XLA does not fuse across.

    A turn multiplies one element by a one that XLA cannot foresee: it removes a loop that changes
    nothing.
    """
    if value.size == 0:
        return value

    def turn(i: Array, carried: Array) -> Array:
        corner = (i.astype(jnp.int32), *(jnp.int32(0) for _ in carried.shape[1:]))
        element = lax.dynamic_slice(carried, corner, (1,) * carried.ndim)
        one = (i < 2).astype(carried.dtype)
        return lax.dynamic_update_slice(carried, element * one, corner)

    return lax.fori_loop(jnp.int32(0), jnp.int32(2), turn, value)


def rounded(product: Array | float) -> Array:
    """Return a product that something is added to, rounded before it is.

    LLVM makes one instruction of a product and a sum where it can, which rounds once: in the loop
    over an array, but not in the remainder behind it, so that bits depend on the array's size. A
    maximum with the lowest float stands between the two, and changes no finite number.
    """
    return jnp.maximum(product, jnp.finfo(jnp.float32).min)


def fixed_point_bits(width: int) -> int:
    """Return the bits behind the point so that a line of values up to 2 in magnitude fits int32."""
    return 29 - math.ceil(math.log2(max(width, 2)))


@with_jvp_of(jnp.sum)
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
