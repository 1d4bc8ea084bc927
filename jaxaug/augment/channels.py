"""Transforms of the channels: their order, their levels against each other, their hue.

The pure functions take float images in [0, 1] and do not clip, but for `shift_hsv`, whose
saturation and value end at 0 and 1. Nothing here is a matrix product: three channels are too few
for one, and its rounding would depend on the batch size.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxaug._typing import Array, Scalar
from jaxaug.augment._hsv import from_hsv, to_hsv
from jaxaug.augment._values import on_image, on_rgb


@on_image
def permute_channels(image: Array, permutation: Any) -> Array:
    """Return the image whose channel i is channel `permutation[i]` of the given one.

    Args:
      image: float [H, W, C] in [0, 1].
      permutation: int[C], each of 0 to C - 1 once.

    Example:
      >>> import jax.numpy as jnp
      >>> print(permute_channels(jnp.array([[[0.25, 0.5, 1.0]]]), [2, 0, 1])[0, 0])
      [1.   0.25 0.5 ]
    """
    permutation = jnp.asarray(permutation, jnp.int32)
    if permutation.shape != (image.shape[2],):
        raise ValueError(
            f"`permutation` must have one entry for each of the {image.shape[2]} channels, got the"
            f" shape {permutation.shape}."
        )
    return jnp.take(image, permutation, axis=2, mode="clip")


@on_image
def drop_channels(image: Array, keep: Any, fill: Scalar = 0.0) -> Array:
    """Return the image with `fill` in the channels that are not kept.

    Args:
      image: float [H, W, C] in [0, 1].
      keep: bool[C], True for the channels that stay.
      fill: the value of the others, in [0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> print(drop_channels(jnp.array([[[0.25, 0.5, 1.0]]]), [True, False, True])[0, 0])
      [0.25 0.   1.  ]
    """
    return jnp.where(jnp.asarray(keep, bool)[None, None], image, fill)


@on_rgb
def shift_rgb(image: Array, red: Scalar, green: Scalar, blue: Scalar) -> Array:
    """Return the image with a number added to each channel.

    Args:
      image: float [H, W, 3] in [0, 1].
      red, green, blue: what is added, in [-1, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> print(shift_rgb(jnp.full((1, 1, 3), 0.5), 0.25, 0.0, -0.25)[0, 0])
      [0.75 0.5  0.25]

    Differs from kornia in not clipping.
    """
    return image + _stacked(red, green, blue)


@on_rgb
def shift_hsv(image: Array, hue: Scalar, saturation: Scalar, value: Scalar) -> Array:
    """Return the image with a number added to its hue, saturation and value.

    The saturation and the value are clipped to [0, 1], so the colors are, too. Gray has the hue of
    red.

    Args:
      image: float [H, W, 3] in [0, 1].
      hue: added to the hue, in turns; 1/3 takes red to green.
      saturation, value: added to the saturation and to the value, in [-1, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> shift_hsv(jnp.array([[[1.0, 0.0, 0.0]]]), 1 / 3, 0.0, -0.5)[0, 0].round(3).tolist()
      [0.0, 0.5, 0.0]

    Reference: `albumentations.HueSaturationValue`, there in half degrees and 255ths.
    """
    turns, relative, largest = to_hsv(image)
    relative = jnp.clip(relative + saturation, 0.0, 1.0)
    largest = jnp.clip(largest + value, 0.0, 1.0)
    return from_hsv(turns + hue, relative, largest)


@on_rgb
def adjust_hue_yiq(image: Array, hue_factor: Scalar) -> Array:
    """Return the image with its chroma turned about the gray axis, at constant luma.

    The plane (I, Q) of the YIQ form is rotated: one linear map of the colors, smooth everywhere and
    cheaper than the hue of HSV, whose turn keeps the largest channel.

    Args:
      image: float [H, W, 3] in [0, 1].
      hue_factor: the turn, in turns; small positive ones take red towards yellow.

    Example:
      >>> import jax.numpy as jnp
      >>> print(adjust_hue_yiq(jnp.full((1, 1, 3), 0.5), 0.3)[0, 0].round(3))
      [0.5 0.5 0.5]

    Reference: `nvidia.dali.fn.hue`, there in degrees.
    """
    angle = jnp.asarray(hue_factor, jnp.float32) * (2 * np.pi)
    cosine = jnp.cos(angle)
    sine = jnp.sin(angle)
    return _mixed(image, cosine * _CHROMA + sine * _QUARTER_TURN + _LUMA)


@on_rgb
def adjust_temperature(image: Array, temperature: Scalar) -> Array:
    """Return the image as lit by a black body of another temperature than that of daylight.

    Red and blue are multiplied by their share beside green in the light of `temperature`, in the
    image's gamma encoding; 6500 K is the image.

    Args:
      image: float [H, W, 3] in [0, 1].
      temperature: in kelvins, 2000 (candle) to 25000 (blue sky).

    Example:
      >>> import jax.numpy as jnp
      >>> red, green, blue = adjust_temperature(jnp.full((1, 1, 3), 0.5), 3000.0)[0, 0]
      >>> bool(red > green > blue)
      True

    Reference: S. Zini et al., "Planckian jitter", ICLR 2023; the locus by B. Kim et al., "Design of
    advanced color temperature control system for HDTV applications", 2002.

    Differs from kornia and albumentations in following the locus by its formula, not a table of 25
    lights, and in keeping the image at 6500 K.
    """
    light = _light_of(jnp.asarray(temperature, jnp.float32))
    daylight = _light_of(jnp.float32(_DAYLIGHT))
    red, blue = (jnp.power(of / at, 1 / _DISPLAY_GAMMA) for of, at in zip(light, daylight))
    return image * _stacked(red, 1.0, blue)


@on_rgb
def pca_lighting(image: Array, alpha: Any) -> Array:
    """Return the image with multiples of the principal components of ImageNet's colors added.

    image + alpha[0] l[0] v[0] + alpha[1] l[1] v[1] + alpha[2] l[2] v[2], with eigenvalues l and
    eigenvectors v of the covariance of red, green and blue.

    Args:
      image: float [H, W, 3] in [0, 1].
      alpha: float[3], usually normal with a standard deviation of 0.1.

    Example:
      >>> import jax.numpy as jnp
      >>> red, green, blue = pca_lighting(jnp.full((1, 1, 3), 0.5), [0.0, 1.0, 0.0])[0, 0]
      >>> bool(red > green > blue)
      True

    Reference: A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet classification with deep
    convolutional neural networks", 2012, section 4.1.
    """
    alpha = jnp.asarray(alpha, jnp.float32)
    shifts = [
        sum(alpha[i] * float(_EIGENVALUES[i] * _EIGENVECTORS[channel, i]) for i in range(3))
        for channel in range(3)
    ]
    return image + _stacked(*shifts)


# Of ImageNet's pixels in [0, 1], red, green, blue; one vector a column. From torch7's
# fb.resnet.torch, which every implementation since copies.
_EIGENVALUES = np.array([0.2175, 0.0188, 0.0045])
_EIGENVECTORS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)


# ---- colors in other coordinates

_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)
# A turn of the chroma is cos _CHROMA + sin _QUARTER_TURN + _LUMA. Hue grows from I towards -Q.
_LUMA = (_FROM_YIQ @ np.diag([1.0, 0.0, 0.0]) @ _TO_YIQ).astype(np.float32)
_CHROMA = (_FROM_YIQ @ np.diag([0.0, 1.0, 1.0]) @ _TO_YIQ).astype(np.float32)
_QUARTER_TURN = (
    _FROM_YIQ @ np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]) @ _TO_YIQ
).astype(np.float32)

_DAYLIGHT = 6500.0  # kelvins, about the white of sRGB
_DISPLAY_GAMMA = 2.2


def _mixed(image: Array, matrix: Array) -> Array:
    """Return the colors times a 3x3 matrix, written out."""
    red, green, blue = (image[:, :, channel] for channel in range(3))
    rows = [matrix[i, 0] * red + matrix[i, 1] * green + matrix[i, 2] * blue for i in range(3)]
    return jnp.stack(rows, axis=2)


def _stacked(red: Scalar, green: Scalar, blue: Scalar) -> Array:
    """Return float32[1, 1, 3] of three numbers."""
    return jnp.stack([jnp.asarray(value, jnp.float32) for value in (red, green, blue)])[None, None]


def _light_of(temperature: Array) -> tuple[Array, Array]:
    """Return the red and the blue of a black body's light, linear sRGB, where green is 1."""
    t = 1000 / temperature
    t2 = t * t
    t3 = t * t2
    x = jnp.where(
        temperature < 4000,
        -0.2661239 * t3 - 0.2343589 * t2 + 0.8776956 * t + 0.179910,
        -3.0258469 * t3 + 2.1070379 * t2 + 0.2226347 * t + 0.240390,
    )
    x2 = x * x
    x3 = x * x2
    warm = jnp.where(
        temperature < 2222,
        -1.1063814 * x3 - 1.34811020 * x2 + 2.18555832 * x - 0.20219683,
        -0.9549476 * x3 - 1.37418593 * x2 + 2.09137015 * x - 0.16748867,
    )
    cold = 3.0817580 * x3 - 5.87338670 * x2 + 3.75112997 * x - 0.37001483
    y = jnp.where(temperature < 4000, warm, cold)
    z = 1 - x - y
    # XYZ to linear sRGB, IEC 61966-2-1.
    red = 3.2406 * x - 1.5372 * y - 0.4986 * z
    green = -0.9689 * x + 1.8758 * y + 0.0415 * z
    blue = 0.0557 * x - 0.2040 * y + 1.0570 * z
    return red / green, jnp.maximum(blue / green, 0.0)
