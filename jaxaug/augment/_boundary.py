"""Values that are computed once, although what follows reads them several times.

XLA fuses a producer into its consumer and computes it anew for every reading: a resample once for
each of the channels that a gray value sums. `jax.lax.optimization_barrier` prevents that, on CPUs
only since jax 0.11.1; the XLA of earlier releases drops the barrier before it fuses.
"""

import jax
import jax.numpy as jnp
from jax import lax

from jaxaug._typing import Array
from jaxaug.augment._slope import with_slope_of

_BARRIER_SINCE = (0, 11, 1)


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


def computed_once(value: Array) -> Array:
    """Return `value`, which XLA does not fuse into what reads it."""
    if barrier_works_on_cpu():
        return lax.optimization_barrier(value)
    return lax.platform_dependent(value, cpu=_through_a_loop, default=lax.optimization_barrier)


def computed_once_on_cpu(value: Array) -> Array:
    """Return `value`; on CPUs XLA does not fuse it into what reads it, elsewhere it may."""
    on_cpu = lax.optimization_barrier if barrier_works_on_cpu() else _through_a_loop
    return lax.platform_dependent(value, cpu=on_cpu, default=_itself)


def channels_to_front(image: Array) -> Array:
    """Return [C, H, W] of [H, W, C].

    Where XLA's GPU backend sees a transpose it lays out by planes what the image is computed from,
    too: a resample then takes 17.7 us an image for 1.9 (H200). It sees slices of a finished image
    instead.
    """
    return lax.platform_dependent(image, cpu=_transposed, default=_stacked)


def to_planes(image: Array) -> Array:
    """Return [C, H, W] of [H, W, C] without a boundary, and without a transpose on GPUs.

    See `channels_to_front`; what is costly to compute is stored before.
    """
    return lax.platform_dependent(image, cpu=_transposed, default=_sliced)


def from_planes(planes: Array) -> Array:
    """Return [H, W, C] of [C, H, W], likewise."""
    return lax.platform_dependent(planes, cpu=_transposed_back, default=_stacked_back)


def _transposed(image: Array) -> Array:
    return image.transpose(2, 0, 1)


def _transposed_back(planes: Array) -> Array:
    return planes.transpose(1, 2, 0)


def _stacked_back(planes: Array) -> Array:
    return jnp.stack([planes[channel] for channel in range(planes.shape[0])], axis=-1)


def _stacked(image: Array) -> Array:
    return _sliced(lax.optimization_barrier(image))


def _sliced(image: Array) -> Array:
    return jnp.stack([image[:, :, channel] for channel in range(image.shape[2])])


def _itself(value: Array) -> Array:
    return value


@with_slope_of(_itself)
def _through_a_loop(value: Array) -> Array:
    """Carry `value` through a loop of two turns, which XLA does not fuse across.

    A turn multiplies one element by a one that XLA cannot foresee: it removes a loop that changes
    nothing.
    """

    def turn(i: Array, carried: Array) -> Array:
        corner = (i.astype(jnp.int32), *(jnp.int32(0) for _ in carried.shape[1:]))
        element = lax.dynamic_slice(carried, corner, (1,) * carried.ndim)
        one = (i < 2).astype(carried.dtype)
        return lax.dynamic_update_slice(carried, element * one, corner)

    return lax.fori_loop(jnp.int32(0), jnp.int32(2), turn, value)
