"""Frames from planes to RGB in the compiled call: one computation for GPUs, stages for CPUs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import sequential_vmap

from jaxaug.decode.video.color import (
    doubled,
    doubled_in_fields,
    rgb_levels,
    to_rgb,
    whole_chroma,
)

# Chroma at the size of luma takes more memory than canvases, of 16 clips of 1,080 lines 2 GB. Clips
# of more than this, each of which keeps a GPU busy, are converted one after the other.
_CHROMA_BYTES = 4  # of a pixel
_MAX_CHROMA = 2**25  # bytes of a clip
Size = tuple[int, int]


def frames_to_rgb(
    luma: Array,
    chroma: Array,
    shown: Array,
    size: Array,
    color: Array,
    interlaced: Array | None = None,
) -> Array:
    """Return RGB of frames, zero outside of their size and where they are not shown.

    Every device computes the same integers, see `color`.

    Args:
      luma: uint8[..., H, W].
      chroma: uint8[..., 2, ceil(H / 2), ceil(W / 2)] or uint8[..., 2, H, W].
      shown: bool[...].
      size: int32[2], the (height, width) at the top left that is used.
      color: int32[4], of `Color`.
      interlaced: bool[...], True for frames whose rows of chroma, half as many as those of luma,
        are of two fields in turn; None where there are none.

    Returns:
      uint8[..., H, W, 3].
    """
    given = (luma, chroma, shown, size, color, interlaced)
    others = _whole if _CHROMA_BYTES * luma.size <= _MAX_CHROMA else sequential_vmap(_whole)
    return lax.platform_dependent(*given, cpu=_in_stages, default=others)


def _whole(
    luma: Array, chroma: Array, shown: Array, size: Array, color: Array, interlaced: Array | None
) -> Array:
    height, width = luma.shape[-2:]
    large = whole_chroma(chroma, (height, width), color[2:])
    if interlaced is not None:
        in_fields = whole_chroma(chroma, (height, width), color[2:], interlaced=True)
        large = jnp.where(interlaced[..., None, None, None], in_fields, large)
    # The barrier has chroma computed once, not for each channel of a pixel.
    large = lax.optimization_barrier(large)
    inside = _inside(size, (height, width))
    inside = shown[..., None, None] & lax.broadcast(inside, (1,) * shown.ndim)
    planes = large[..., 0, :, :], large[..., 1, :, :]
    return to_rgb(luma, *planes, color[0], color[1], inside)


@sequential_vmap  # in a batch the branches of `_apart` would be selections, which XLA fuses
def _in_stages(
    luma: Array, chroma: Array, shown: Array, size: Array, color: Array, interlaced: Array | None
) -> Array:
    """Return the same frame by frame, in stages that stay in the cache.

    XLA's CPU backend would fuse all into a loop over the bytes of the result, which interpolates
    chroma for each of them: 35 ms for 16 frames of 256 x 340 where this takes 3.
    """
    height, width = luma.shape[-2:]
    inside = _inside(size, (height, width))
    halved = chroma.shape[-2:] != (height, width)

    def across(chroma: Array) -> Array:
        return doubled(chroma.astype(jnp.uint16), -1, width, 2 * color[3])

    def down(wide: Array) -> Array:
        return doubled(wide, -2, height, 2 * color[2])

    def down_fields(wide: Array) -> Array:
        return doubled_in_fields(wide, height, color[2])

    def convert(frame: tuple[Array, Array, Array, Array | None]) -> Array:
        luma, chroma, shown, interlaced = frame
        if not halved:
            large = whole_chroma(chroma, (height, width))
        elif interlaced is None:
            large = _apart(size, down, _apart(size, across, chroma))
        else:
            large = lax.cond(interlaced, down_fields, down, _apart(size, across, chroma))

        def levels(luma: Array, large: Array) -> Array:
            planes = large[0], large[1]
            return jnp.stack(rgb_levels(luma, *planes, color[0], color[1], shown & inside))

        return jnp.moveaxis(_apart(size, levels, luma, large), 0, -1)

    frames = (luma.reshape(-1, height, width), chroma.reshape(-1, *chroma.shape[-3:]))
    flags = (shown.ravel(), None if interlaced is None else interlaced.ravel())
    return lax.map(convert, (*frames, *flags)).reshape(*luma.shape, 3)


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
