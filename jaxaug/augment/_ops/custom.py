"""Operators of one's own: `Lambda` wraps a function of (key, image)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._checks import takes_two
from jaxaug._typing import Key
from jaxaug.augment._base import Converter, Drawn, ImageInfo
from jaxaug.augment._chain import ImageOp


def _as_function(name: str, value: Any) -> Any:
    """Return a function of two arguments."""
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"`{name}` must be a function of (key, image), got {value!r}.")
    if not takes_two(value):
        raise TypeError(
            f"`{name}` must take two arguments, (key, image), got {value!r}:"
            " write Lambda(lambda key, image: ...)."
        )
    return value


@dataclass(frozen=True)
class Lambda(ImageOp):
    """Apply any `jax.numpy` function of (key, image).

    Args:
      function: `(key, image) -> image` on one float32 image [H, W, C] in [0, 1]. On a canvas it
        sees the unused part too. It may return another height and width, the same for all images;
        `size` then ends. Not beside a "mask", "boxes" or "keypoints", which would stay behind.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> invert = Lambda(lambda key, image: 1 - image)
      >>> invert(jax.random.key(0), jnp.zeros((1, 1, 3), jnp.uint8)).tolist()
      [[[255, 255, 255]]]

    Picklable if the function is: one defined in a module, rather than a lambda.
    """

    function: Annotated[Callable[[Key, Array], Array], Converter(_as_function)]

    def make_params(self, key: Key, info: ImageInfo) -> Key:
        """Return the key itself: the function draws."""
        return key

    def apply(self, params: Key, image: Array, info: ImageInfo) -> Array:
        """Return the function's result."""
        return self.function(params, image)

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` afterwards, from a trace of the function."""
        image = jax.ShapeDtypeStruct((*info.canvas, info.channels or 3), jnp.float32)
        shape = jax.eval_shape(self.function, drawn.params, image).shape
        if shape[:2] == info.canvas:
            return info._replace(channels=shape[-1])
        return info._replace(canvas=shape[:2], size=None, boxes=None, channels=shape[-1])
