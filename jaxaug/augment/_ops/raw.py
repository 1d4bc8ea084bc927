"""Values of cameras and files: mosaics of Bayer filters, spaces of color."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._checks import check_choice
from jaxaug.augment._base import mirrored, on_image
from jaxaug.augment._ops.color import rgb_to_grayscale

PATTERNS = {"rggb": (0, 1, 1, 2), "bggr": (2, 1, 1, 0), "grbg": (1, 0, 2, 1), "gbrg": (1, 2, 0, 1)}
_SPACES = ("rgb", "bgr", "gray", "ycbcr")
# Y, Cb and Cr of full range, ITU-R BT.601 as JFIF has it, less 1/2 of the chroma.
_TO_YCBCR = np.array(
    [
        [0.299, 0.587, 0.114],
        [-0.299 / 1.772, -0.587 / 1.772, 0.886 / 1.772],
        [0.701 / 1.402, -0.587 / 1.402, -0.114 / 1.402],
    ]
)


@on_image
def debayer(image: Array, pattern: str = "rggb", size: Any = None) -> Array:
    """Return the colors of a raw image, each missing one the mean of its nearest neighbors.

    Args:
      image: float [H, W, 1] in [0, 1], one color at each pixel.
      pattern: the colors of the first 2 x 2 pixels, line by line: "rggb", "bggr", "grbg" or "gbrg".
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Returns:
      Floats [H, W, 3], mirrored beyond the border.

    Example:
      >>> import jax.numpy as jnp
      >>> raw = jnp.array([[1.0, 0.5], [0.5, 0.0]])[:, :, None]
      >>> debayer(raw)[0, 0].tolist()
      [1.0, 0.5, 0.0]

    Reference: DALI's `fn.experimental.debayer`, `cv2.demosaicing` with bilinear interpolation,
      whose names of patterns begin at the second pixel of the second line.
    """
    check_choice("pattern", pattern, tuple(PATTERNS))
    if image.shape[2] != 1:
        raise ValueError(f"`image` must have one channel, got {image.shape}.")
    height, width, _ = image.shape
    y, x = np.arange(height)[:, None] % 2, np.arange(width)[None, :] % 2
    color_at = np.array(PATTERNS[pattern])[2 * y + x]
    padded = mirrored(mirrored(image, 1, 1, 0, size), 1, 1, 1, size)[:, :, 0]

    def tap(down: int, right: int) -> Array:
        return padded[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    here = tap(0, 0)
    beside = (tap(0, -1) + tap(0, 1)) * 0.5
    above = (tap(-1, 0) + tap(1, 0)) * 0.5
    diagonal = (tap(-1, -1) + tap(-1, 1) + tap(1, -1) + tap(1, 1)) * 0.25
    planes = []
    for color in (0, 2):
        in_row = (color_at == color).any(axis=1, keepdims=True)
        at_green = jnp.where(jnp.asarray(in_row), beside, above)
        other = jnp.where(jnp.asarray(color_at == 1), at_green, diagonal)
        planes.append(jnp.where(jnp.asarray(color_at == color), here, other))
    green = jnp.where(jnp.asarray(color_at == 1), here, (beside + above) * 0.5)
    return jnp.stack([planes[0], green, planes[1]], axis=2)


@on_image
def convert_color_space(image: Array, source: str, target: str) -> Array:
    """Return the image in another space of color.

    Args:
      image: float [H, W, C] in [0, 1], of one channel for "gray", of three for the others.
      source, target: "rgb", "bgr", "gray" (one channel of luma) or "ycbcr", of full range with the
        chroma about 1/2.

    Example:
      >>> import jax.numpy as jnp
      >>> print(convert_color_space(jnp.ones((1, 1, 3)), "rgb", "ycbcr")[0, 0].round(3))
      [1.  0.5 0.5]

    Reference: ITU-R BT.601, T.871 (JFIF); DALI's `fn.color_space_conversion`.
    """
    for name, space in (("source", source), ("target", target)):
        check_choice(name, space, _SPACES)
    channels = 1 if source == "gray" else 3
    if image.shape[2] != channels:
        raise ValueError(f"`image` in {source!r} must be [h, w, {channels}], got {image.shape}.")
    if source == target:
        return image
    rgb = _to_rgb(image, source)
    if target == "gray":
        return rgb_to_grayscale(rgb)[:, :, :1]
    if target == "bgr":
        return rgb[:, :, ::-1]
    if target == "rgb":
        return rgb
    shift = jnp.array([[[0.0, 0.5, 0.5]]], jnp.float32)
    return _times(rgb, _TO_YCBCR) + shift


def _to_rgb(image: Array, source: str) -> Array:
    if source == "gray":
        return jnp.broadcast_to(image, (*image.shape[:2], 3))
    if source == "bgr":
        return image[:, :, ::-1]
    if source == "rgb":
        return image
    shift = jnp.array([[[0.0, 0.5, 0.5]]], jnp.float32)
    return _times(image - shift, np.linalg.inv(_TO_YCBCR))


def _times(image: Array, matrix: np.ndarray) -> Array:
    """Return each pixel times a matrix [3, 3], written out: dots depend on the batch size."""
    columns = matrix.T.astype(np.float32)
    parts = [image[:, :, c, None] * jnp.asarray(columns[c])[None, None] for c in range(3)]
    return parts[0] + parts[1] + parts[2]
