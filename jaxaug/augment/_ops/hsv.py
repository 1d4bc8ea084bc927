"""Colors as hue, saturation and value (HSV), with finite derivatives everywhere."""

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Scalar

_OFFSETS = (5, 3, 1)  # of red, green and blue, in sixths of a turn


def shift_hue(planes: Array, turns: Scalar) -> Array:
    """Return planes [3, H, W] with their hue shifted."""
    sixths, chroma, value = _hexagon(*planes)
    offsets = jnp.asarray(_OFFSETS, planes.dtype)[:, None, None]
    return value[None] - chroma[None] * _below_largest((sixths + 6 * turns)[None] + offsets)


def to_hsv(image: Array) -> tuple[Array, Array, Array]:
    """Return hue in turns, saturation and value, each [H, W]; 0 where they are not defined."""
    sixths, chroma, value = _hexagon(*(image[:, :, channel] for channel in range(3)))
    is_black = (value <= 0).astype(value.dtype)
    return sixths / 6, chroma / (value + is_black), value


def from_hsv(turns: Array, saturation: Array, value: Array) -> Array:
    """Return [H, W, 3] of hue in turns, saturation and value."""
    chroma = saturation * value
    channels = [value - chroma * _below_largest(6 * turns + offset) for offset in _OFFSETS]
    return jnp.stack(channels, axis=2)


def _hexagon(red: Array, green: Array, blue: Array) -> tuple[Array, Array, Array]:
    """Return hue in sixths of a turn, chroma and value.

    Written without `where`, so that no derivative is infinite; and XLA's CPU backend gives each
    branch of a select its own copy of all that leads to it, which doubles with every step of a
    chain.
    """
    value = jnp.maximum(red, jnp.maximum(green, blue))
    chroma = value - jnp.minimum(red, jnp.minimum(green, blue))
    is_gray = (chroma <= 0).astype(value.dtype)
    is_red = (value == red).astype(value.dtype)
    is_green = (value == green).astype(value.dtype)
    from_green = is_green * (2 * chroma + blue - red) + (1 - is_green) * (4 * chroma + red - green)
    sixths = (is_red * (green - blue) + (1 - is_red) * from_green) / (chroma + is_gray)
    return sixths, chroma, value


def _below_largest(sixths: Array) -> Array:
    """Return how far a channel lies below the largest, in chromas, for its hue with its offset.

    Without `mod`: XLA's CPU backend calls fmod for each pixel.

    Reference: https://en.wikipedia.org/wiki/HSL_and_HSV, the alternative HSV to RGB formula.
    """
    sixths = sixths - 6 * jnp.floor(sixths / 6)
    return jnp.clip(jnp.minimum(sixths, 4 - sixths), 0.0, 1.0)
