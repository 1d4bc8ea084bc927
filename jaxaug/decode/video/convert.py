"""Frames from planes to RGB in the compiled call: one computation for GPUs, stages for CPUs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import sequential_vmap

from jaxaug.decode.video.color import doubled, rgb_levels, to_rgb, whole_chroma

Size = tuple[int, int]


def frames_to_rgb(luma: Array, chroma: Array, shown: Array, size: Array, color: Array) -> Array:
    """Return RGB of frames, zero outside of their size and where they are not shown.

    Every device computes the same integers, see `color`.

    Args:
      luma: uint8[..., H, W].
      chroma: uint8[..., 2, ceil(H / 2), ceil(W / 2)] or uint8[..., 2, H, W].
      shown: bool[...].
      size: int32[2], the (height, width) at the top left that is used.
      color: int32[4], of `Color`.

    Returns:
      uint8[..., H, W, 3].
    """
    return lax.platform_dependent(luma, chroma, shown, size, color, cpu=_in_stages, default=_whole)


def _whole(luma: Array, chroma: Array, shown: Array, size: Array, color: Array) -> Array:
    height, width = luma.shape[-2:]
    # The barrier has chroma computed once, not for each channel of a pixel.
    large = lax.optimization_barrier(whole_chroma(chroma, (height, width), color[2:]))
    inside = _inside(size, (height, width))
    inside = shown[..., None, None] & lax.broadcast(inside, (1,) * shown.ndim)
    planes = large[..., 0, :, :], large[..., 1, :, :]
    return to_rgb(luma, *planes, color[0], color[1], inside)


@sequential_vmap  # in a batch the branches of `_apart` would be selections, which XLA fuses
def _in_stages(luma: Array, chroma: Array, shown: Array, size: Array, color: Array) -> Array:
    """Return the same frame by frame, in stages that stay in the cache.

    XLA's CPU backend would fuse all into a loop over the bytes of the result, which interpolates
    chroma for each of them: 35 ms for 16 frames of 256 x 340 where this takes 3.
    """
    height, width = luma.shape[-2:]
    inside = _inside(size, (height, width))
    halved = chroma.shape[-2:] != (height, width)

    def convert(frame: tuple[Array, Array, Array]) -> Array:
        luma, chroma, shown = frame
        if halved:
            wide = _apart(
                size, lambda values: doubled(values.astype(jnp.uint16), -1, width, color[3]), chroma
            )
            large = _apart(size, lambda values: doubled(values, -2, height, color[2]), wide)
        else:
            large = whole_chroma(chroma, (height, width))

        def levels(luma: Array, large: Array) -> Array:
            planes = large[0], large[1]
            return jnp.stack(rgb_levels(luma, *planes, color[0], color[1], shown & inside))

        return jnp.moveaxis(_apart(size, levels, luma, large), 0, -1)

    flat = (luma.reshape(-1, height, width), chroma.reshape(-1, *chroma.shape[-3:]), shown.ravel())
    return lax.map(convert, flat).reshape(*luma.shape, 3)


def _inside(size: Array, canvas: Size) -> Array:
    """Return bool[H, W], True for the pixels of the used part of a canvas."""
    return (jnp.arange(canvas[0])[:, None] < size[0]) & (jnp.arange(canvas[1])[None] < size[1])


def _apart(size: Array, stage: Callable[..., Array], *arrays: Array) -> Array:
    """Return stage(*arrays), which XLA does not fuse with what comes before or after.

    A branch is a computation of its own, as long as XLA cannot tell which one is taken: no size is
    negative. Barriers are ignored on CPUs before jax 0.11.1.
    """
    form: Any = jax.eval_shape(stage, *arrays)
    return lax.cond(size[0] >= 0, stage, lambda *others: jnp.zeros(form.shape, form.dtype), *arrays)
