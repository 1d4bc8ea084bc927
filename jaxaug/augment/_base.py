"""The kinds of transform: configurations that sample parameters and apply them to one image.

A transform is a frozen dataclass of Python scalars. `sample(key, info)` draws the parameters and
sees no pixels; the other half draws nothing. Probability is folded into the parameters as the
neutral element.
"""

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Key, Sample
from jaxaug.augment._warp import Canvas, Warp

Parameters = Any  # a NamedTuple of arrays, its own for each transform


class ImageInfo(NamedTuple):
    """The facts about an image that a transform may know before it sees the pixels.

    Attributes:
      canvas: (height, width) of the array, static ints. Inside a run, after a resize whose output
        has no static shape, floats: see `Warp`.
      size: int32[2], (height, width) of the used top-left part; None where that is the whole
        canvas.
    """

    canvas: Canvas
    size: Array | None = None

    @property
    def height_width(self) -> tuple[Any, Any]:
        """The used (height, width): Python ints where they are static, else traced int32."""
        return self.canvas if self.size is None else (self.size[0], self.size[1])

    @property
    def extent(self) -> tuple[Any, Any]:
        """The used (height, width) as floats, static or traced float32, for arithmetic on
        coordinates.
        """
        height, width = self.height_width
        if self.size is None:
            return float(height), float(width)
        return height.astype(jnp.float32), width.astype(jnp.float32)

    def used(self) -> Array | None:
        """bool[H, W], True on the used part; None where that is the whole canvas."""
        if self.size is None:
            return None
        rows, columns = self.canvas
        height, width = self.height_width
        y = jnp.arange(rows, dtype=jnp.int32)
        x = jnp.arange(columns, dtype=jnp.int32)
        return (y < height)[:, None] & (x < width)[None, :]


class Resampling(NamedTuple):
    """The resampling that a geometric op asks for; None where it joins any run."""

    interpolation: str | None = None
    padding_mode: str | None = None
    fill: float | tuple[float, ...] | None = None


class Transform(abc.ABC):
    """A random image transform: `transform(key, image)` or `transform(key, sample)`, one image a
    call.
    """

    @abc.abstractmethod
    def sample(self, key: Key, info: ImageInfo) -> Parameters:
        """Draw the parameters of one image, a NamedTuple of arrays."""

    def __call__(self, key: Key, sample: Array | Sample) -> Any:
        """Transform one image, or a sample {"image": ..., "size"?, "mask"?, "boxes"?, ...}.

        Args:
          key: a PRNG key; the same key gives the same result.
          sample: uint8[H, W, 3] or float[H, W, 3] in [0, 1], or a dict with such an "image".
            Batches go through `jax.vmap`, with one key an image.

        Returns:
          What was given, transformed: an image for an image, a dict for a dict.
        """
        from jaxaug.augment._compose import (
            Compose,
        )  # Compose is a Transform itself: it can only follow

        return Compose((self,))(key, sample)


class Geometric(Transform):
    """A transform that moves pixels: it gives a `Warp`, and a run of them is one resample."""

    @abc.abstractmethod
    def warp(self, params: Parameters, info: ImageInfo) -> Warp:
        """The map from output to source that `params` stand for."""

    def resampling(self) -> Resampling:
        """How it wants to be resampled."""
        return Resampling()


class ImageOp(Transform):
    """A transform of values: float32 [H, W, 3] in [0, 1], in and out."""

    @abc.abstractmethod
    def apply(self, params: Parameters, image: Array, info: ImageInfo) -> Array:
        """Transform the pixels; draws nothing."""


class Output(Transform):
    """The last step of a chain: float32 values in [0, 1] to what the model takes.

    Attributes:
      dtype: the name of the output's floating dtype.
      layout: "HWC" or "CHW"; a leading N, the axis that `vmap` adds, may be written too.
    """

    dtype: str
    layout: str

    def sample(self, key: Key, info: ImageInfo) -> None:
        """Nothing is random here."""
        del key, info

    @abc.abstractmethod
    def values(self, image: Array) -> Array:
        """float32[H, W, 3] in [0, 1] to float32[H, W, 3]; dtype and layout are changed after it."""
