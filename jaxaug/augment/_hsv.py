"""Colors as hue, saturation and value (HSV), with finite slopes everywhere."""

import jax.numpy as jnp

from jaxaug._typing import Array


def to_hsv(image: Array) -> tuple[Array, Array, Array]:
    """Return hue in turns, saturation and value, each [H, W]; 0 where they are not defined.

    Written with factors of 0 and 1 for `where`, so that no slope is infinite.
    """
    red, green, blue = (image[:, :, channel] for channel in range(3))
    value = jnp.maximum(red, jnp.maximum(green, blue))
    chroma = value - jnp.minimum(red, jnp.minimum(green, blue))
    is_gray = (chroma <= 0).astype(jnp.float32)
    is_black = (value <= 0).astype(jnp.float32)
    is_red = (value == red).astype(jnp.float32)
    is_green = (1 - is_red) * (value == green).astype(jnp.float32)
    is_blue = 1 - is_red - is_green
    from_red = is_red * (green - blue)
    from_green = is_green * (2 * chroma + blue - red)
    from_blue = is_blue * (4 * chroma + red - green)
    sixths = (from_red + from_green + from_blue) / (chroma + is_gray)
    return sixths / 6, chroma / (value + is_black), value


def from_hsv(turns: Array, saturation: Array, value: Array) -> Array:
    """Return [H, W, 3] of hue in turns, saturation and value.

    Reference: https://en.wikipedia.org/wiki/HSL_and_HSV, the alternative HSV to RGB formula.
    """
    chroma = saturation * value
    return jnp.stack([value - chroma * _below_largest(turns, n) for n in (5, 3, 1)], axis=2)


def _below_largest(turns: Array, offset: int) -> Array:
    """Return how far a channel lies below the largest, in chromas; red, green, blue: 5, 3, 1."""
    sixths = 6 * turns + offset
    sixths = sixths - 6 * jnp.floor(sixths / 6)
    return jnp.clip(jnp.minimum(sixths, 4 - sixths), 0.0, 1.0)
