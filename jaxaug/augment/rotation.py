"""Rotation about the center of an image.

Angles are degrees, counter-clockwise on screen; on a canvas with `size` "the image" is its used
part.
"""

from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._bordered import Bordered
from jaxaug.augment._fields import Range, as_symmetric_range, store
from jaxaug.augment._info import ImageInfo
from jaxaug.augment._warp import Warp
from jaxaug.augment.geometry import affine
from jaxaug.augment.matrix import rotation
from jaxaug.augment.random import uniform


def rotate(
    image: Array,
    angle: Scalar,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
) -> Array:
    """Return the image turned about its center, in the same frame.

    Args:
      image: uint8 or float [H, W, C].
      angle: degrees, counter-clockwise on screen; static or traced.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Returns:
      [H, W, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> rotate(jnp.arange(4.0).reshape(2, 2, 1), 90)[:, :, 0].round(4).tolist()
      [[1.0, 3.0], [0.0, 2.0]]

    Differs from torchvision in `interpolation`, there "nearest" by default.
    """
    return affine(image, angle, interpolation=interpolation, padding_mode=padding_mode, fill=fill)


# ---- transforms


class Rotation(NamedTuple):
    """Drawn parameter of `RandomRotation`: float32 degrees."""

    angle: Array


@dataclass(frozen=True)
class RandomRotation(Bordered):
    """Turn about the center of the image, in the same frame.

    Args:
      degrees: (low, high) of the angle, counter-clockwise; a number v means (-v, v).
      p: the probability of being applied.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomRotation(15)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in bilinear interpolation by default, and in having no `expand` and no
    `center`.
    """

    degrees: Range
    _: KW_ONLY
    p: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        store(self, degrees=as_symmetric_range("degrees", self.degrees))

    def sample(self, key: Key, info: ImageInfo) -> Rotation:
        """Draw the angle."""
        del info
        return Rotation(uniform(key, *self.degrees))

    def warp(self, params: Rotation, info: ImageInfo) -> Warp:
        """Return the turn about the center."""
        return Warp.centered(info, rotation(params.angle))
