"""The way back: what lies in the frame of a warp's output, in the frame of its source."""

import jax.numpy as jnp

from jaxaug._checks import check_choice
from jaxaug._typing import Array
from jaxaug.augment._bend import Bend
from jaxaug.augment._info import ImageInfo
from jaxaug.augment._kernels import INTERPOLATIONS
from jaxaug.augment._resample import resample
from jaxaug.augment._warp import Warp
from jaxaug.augment.matrix import Matrix, inverse


def unwarp(
    image: Array, warp: Warp, info: ImageInfo, interpolation: str = "bilinear", fill: float = 0.0
) -> Array:
    """Return a prediction about a warped image in the frame of the image before.

    Points go back by `warp.pull(x, y)`.

    Args:
      image: float [H, W, C] of `warp.canvas`, such as the logits of a segmentation.
      warp: of geometric transforms: `chain.warp(params, info)`.
      info: of the image before, as it was given to `chain.sample`.
      interpolation: "bilinear", "bicubic" or "nearest".
      fill: the value where the warped image shows nothing.

    Returns:
      float32 [*info.canvas, C].

    Raises:
      ValueError: for an image of another shape.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> chain = augment.Compose([augment.RandomHorizontalFlip(1.0)])
      >>> info = augment.ImageInfo((1, 3))
      >>> warp = chain.warp(chain.sample(jax.random.key(0), info), info)
      >>> unwarp(jnp.array([[[3.0], [2.0], [1.0]]]), warp, info).ravel().tolist()
      [1.0, 2.0, 3.0]
    """
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    if image.ndim != 3 or image.shape[:2] != warp.canvas:
        raise ValueError(
            f"`image` must be [H, W, C] of the warp's output, {warp.canvas}, got {image.shape}."
        )
    extent = ImageInfo(warp.canvas, warp.size).extent
    values = image.astype(jnp.float32)
    return resample(values, extent, _inverse(warp, info), interpolation, "constant", fill)


def _inverse(warp: Warp, info: ImageInfo) -> Warp:
    """Return the warp from the output of `warp` to its source."""
    if not warp.bends:
        aligned = warp.integer_aligned
        return Warp(inverse(warp.matrix), info.canvas, info.size, integer_aligned=aligned)
    rows, columns = info.canvas
    x, y = jnp.meshgrid(
        jnp.arange(columns, dtype=jnp.float32) + 0.5, jnp.arange(rows, dtype=jnp.float32) + 0.5
    )
    pushed_x, pushed_y = warp.push(x, y)
    bend = Bend(pushed_x - x, pushed_y - y)
    return Warp(Matrix(), info.canvas, info.size, bends=((bend, Matrix()),))
