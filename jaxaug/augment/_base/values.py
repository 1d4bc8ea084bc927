"""The values of an image: float32 in [0, 1] to compute on, stored as levels of 8 or 16 bits."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._typing import Scalar

LEVELS = 256
_TOP_LEVELS = {"uint8": 255, "uint16": 65535}  # the level that stands for 1.0

_Arguments = ParamSpec("_Arguments")
_PureHalf = Callable[Concatenate[Array, _Arguments], Array]


def on_image(function: _PureHalf[_Arguments]) -> _PureHalf[_Arguments]:
    """Return `function` of a float32 image [H, W, C] for one of any float dtype, which it keeps."""

    @functools.wraps(function)
    def converted(image: Array, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Array:
        image = jnp.asarray(image)
        if not jnp.issubdtype(image.dtype, jnp.floating) or image.ndim != 3:
            raise TypeError(
                f"expected a float image [h, w, c] in [0, 1], got {image.dtype}{list(image.shape)}:"
                " call `to_float` first."
            )
        return function(image.astype(jnp.float32), *args, **kwargs).astype(image.dtype)

    return converted


def on_rgb(function: _PureHalf[_Arguments]) -> _PureHalf[_Arguments]:
    """Return `on_image(function)`, which takes three channels only: red, green and blue."""

    @functools.wraps(function)
    def checked(image: Array, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Array:
        if jnp.ndim(image) != 3 or jnp.shape(image)[2] != 3:
            raise TypeError(
                f"`{function.__name__}` needs three channels, red, green and blue: expected an"
                f" image [h, w, 3], got {list(jnp.shape(image))}."
            )
        return on_image(function)(image, *args, **kwargs)

    return checked


def as_image(image: Any) -> Array:
    """Return an image [H, W, C] or a plane [H, W], checked to be one."""
    image = jnp.asarray(image)
    if image.ndim not in (2, 3):
        raise ValueError(
            f"expected one image (h, w, channels), got {image.shape}: batches go through jax.vmap."
        )
    return image


def top_level(dtype: Any) -> int | None:
    """Return the level that stands for 1.0: of uint8 255, of uint16 65535; None for floats."""
    return _TOP_LEVELS.get(str(jnp.dtype(dtype)))


def is_pixels(dtype: Any) -> bool:
    """Return True for the dtypes of images: uint8, uint16 and floats."""
    return top_level(dtype) is not None or jnp.issubdtype(dtype, jnp.floating)


def unit(image: Array) -> Array:
    """Return `image` as float32 in [0, 1].

    Float32 has 24 bits, so that `stored_as` gives every level of 16 bits back.
    """
    values = image.astype(jnp.float32)
    top = top_level(image.dtype)
    return values if top is None else values / top


def stored_as(image: Array, dtype: Any) -> Array:
    """Return values in [0, 1] in the dtype of an image: the nearest levels, or floats as they are.

    What is not floating is levels already.
    """
    top = top_level(dtype)
    if top is not None and jnp.issubdtype(image.dtype, jnp.floating):
        image = jnp.round(jnp.clip(image, 0.0, 1.0) * top)
    return image.astype(dtype)


def standardized(image: Array, shift: Any, scale: Any) -> Array:
    """Return (image - shift) / scale of float32, each a number or one for each channel."""
    shift, scale = (jnp.asarray(value, jnp.float32).reshape(1, 1, -1) for value in (shift, scale))
    return (image - shift) / scale


class Epilogue(NamedTuple):
    """The map (value - shift) / scale of values in [0, 1], with a change of dtype.

    The last step of a chain, in a form that the resample before it can compute.

    Attributes:
      shift, scale: a number for each channel; empty where values stay as they are.
      dtype: the name of a floating dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> Epilogue((0.5,), (0.25,), "bfloat16").of(jnp.ones((1, 1, 1))).tolist()
      [[[2.0]]]
    """

    shift: tuple[float, ...]
    scale: tuple[float, ...]
    dtype: str

    def of(self, image: Array) -> Array:
        """Return the map of an image float32[H, W, C]."""
        if self.shift:
            image = standardized(image, self.shift, self.scale)
        return image.astype(self.dtype)


NO_EPILOGUE = Epilogue((), (), "float32")


def to_levels(image: Array, count: int = LEVELS) -> Array:
    """Return the nearest of `count` levels of each value, int32."""
    return jnp.round(jnp.clip(image, 0.0, 1.0) * (count - 1)).astype(jnp.int32)


def from_levels(levels: Array, count: int = LEVELS) -> Array:
    """Return the values of levels, float32 in [0, 1]."""
    return levels.astype(jnp.float32) / (count - 1)


def look_up(levels: Array, table: Array) -> Array:
    """Return the entries of a table [C, n] for levels [H, W, C] below n."""
    channels, count = table.shape
    bins = levels + count * jnp.arange(channels, dtype=jnp.int32)[None, None]
    return jnp.take(table.ravel(), bins, mode="clip")


def rounded(values: Array) -> Array:
    """Return the nearest whole numbers, with the gradient of `values` ("straight through")."""
    return values + lax.stop_gradient(jnp.round(values) - values)


def per_channel(name: str, value: Any, image: Array) -> Array:
    """Return one number as it is, and [C] as [1, 1, C]."""
    value = jnp.asarray(value, jnp.float32)
    if value.shape not in ((), image.shape[2:]):
        raise ValueError(
            f"`{name}` must be one number, or one for each channel of the image {image.shape}, got"
            f" {value.size}."
        )
    return value if value.ndim == 0 else value[None, None]


def by_channel(red: Scalar, green: Scalar, blue: Scalar) -> Array:
    """Return float32[1, 1, 3] of three numbers."""
    # A sum, for one number may be of each image and another of the whole batch: stacked, they would
    # need one sharding.
    first, second, third = np.eye(3, dtype=np.float32)[:, None, None]
    return jnp.float32(red) * first + jnp.float32(green) * second + jnp.float32(blue) * third
