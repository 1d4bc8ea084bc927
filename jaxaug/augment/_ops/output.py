"""The last step of a chain: `Normalize` and `ToFloat`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
from jax import Array

from jaxaug.augment._base import (
    SMALLEST,
    Channels,
    Converter,
    Epilogue,
    as_channels,
    as_choice,
    is_pixels,
    on_image,
    ordered,
    standardized,
    top_level,
    unit,
)
from jaxaug.augment._chain import Output
from jaxaug.augment.matrix import is_static

_LAYOUTS = ("HWC", "CHW", "NHWC", "NCHW")


@on_image
def normalize(image: Array, mean: float | Sequence[float], std: float | Sequence[float]) -> Array:
    """Return (image - mean) / std, per channel.

    Args:
      image: float [H, W, C] in [0, 1].
      mean, std: a number, or one for each channel, in the units of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> normalize(jnp.full((1, 1, 3), 0.75), 0.5, (0.25, 0.5, 1.0)).tolist()
      [[[1.0, 0.5, 0.25]]]
    """
    return standardized(image, mean, std)


def to_float(image: Array, dtype: str = "float32") -> Array:
    """Return uint8 and uint16 as floats in [0, 1]; floats only change their dtype.

    Args:
      image: uint8, uint16, or float in [0, 1].
      dtype: the name of a floating dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> to_float(jnp.full((1, 1, 3), 255, jnp.uint8)).tolist()
      [[[1.0, 1.0, 1.0]]]
    """
    image = jnp.asarray(image)
    if not is_pixels(image.dtype):
        raise TypeError(
            f"expected a uint8 or uint16 image, or a float image in [0, 1], got {image.dtype}."
        )
    return image.astype(dtype) if top_level(image.dtype) is None else unit(image).astype(dtype)


# ---- transforms


def _as_dtype(name: str, value: Any) -> str:
    """Return the name of a floating dtype."""
    try:
        dtype = jnp.dtype(value).name
    except TypeError:
        dtype = ""
    if not dtype or not jnp.issubdtype(jnp.dtype(dtype), jnp.floating):
        raise ValueError(
            f"`{name}` must be a floating dtype such as 'float32' or 'bfloat16', got {value!r}."
        )
    return dtype


def _as_mean(name: str, value: Any) -> Channels:
    """Return `as_channels` within [0, 1]."""
    mean = as_channels(name, value)
    if not all(ordered(0, number, 1) for number in mean):
        raise ValueError(
            f"`{name}` must lie in [0, 1], as images do here: got {mean}; divide by 255."
        )
    return mean


def _as_std(name: str, value: Any) -> Channels:
    """Return `as_channels` above 0."""
    std = as_channels(name, value)
    if not all(ordered(SMALLEST, number) for number in std):
        raise ValueError(f"`{name}` must be above 0, got {std}.")
    return std


@dataclass(frozen=True)
class Normalize(Output):
    """Normalize each channel, (image - mean) / std in [0, 1] units, for the model.

    Args:
      mean: a number or one per channel, in [0, 1].
      std: a number or one per channel, above 0.
      dtype: "float32", "bfloat16", "float16" or their `jax.numpy` names.
      layout: "HWC" or "CHW" ("NHWC", "NCHW": the same, with the axis that `vmap` adds).

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.zeros((8, 9, 3), jnp.uint8)
      >>> Normalize(0.5, 0.5, layout="CHW")(jax.random.key(0), image).shape
      (3, 8, 9)
    """

    mean: Annotated[Channels, Converter(_as_mean)]
    std: Annotated[Channels, Converter(_as_std)]
    dtype: Annotated[str, Converter(_as_dtype)] = "float32"
    layout: Annotated[str, Converter(as_choice, _LAYOUTS)] = "HWC"

    @property
    def wanted_channels(self) -> int | None:
        """As many as there are numbers; None for one that stands for all."""
        count = max(len(self.mean), len(self.std))
        return count if count > 1 else None

    def values(self, image: Array) -> Array:
        """Return (image - mean) / std."""
        return normalize(image, *self._per_channel(image))

    def epilogue(self, image: Array) -> Epilogue | None:
        """Return (image - mean) / std, for a resample to compute; None where they are arrays."""
        known = all(map(is_static, (*self.mean, *self.std)))
        if not known or type(self).values is not Normalize.values:
            return None
        return Epilogue(*self._per_channel(image), self.dtype)

    def _per_channel(self, image: Array) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return `mean` and `std`, a number for each channel of an image."""
        channels = image.shape[2]
        for name in ("mean", "std"):
            count = len(getattr(self, name))
            if count not in (1, channels):
                raise ValueError(
                    f"`{name}` of Normalize must be one number, or one per channel of the image"
                    f" {image.shape}, got {count}."
                )
        mean, std = tuple(self.mean), tuple(self.std)
        return mean * (channels // len(mean)), std * (channels // len(std))


@dataclass(frozen=True)
class ToFloat(Output):
    """Give the model floats in [0, 1], in the dtype and layout that it takes.

    Args:
      dtype: "float32", "bfloat16", "float16" or their `jax.numpy` names.
      layout: "HWC" or "CHW" ("NHWC", "NCHW": the same, with the axis that `vmap` adds).

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ToFloat("bfloat16")(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).dtype
      dtype(bfloat16)
    """

    dtype: Annotated[str, Converter(_as_dtype)] = "float32"
    layout: Annotated[str, Converter(as_choice, _LAYOUTS)] = "HWC"

    def values(self, image: Array) -> Array:
        """Return the image."""
        return image

    def epilogue(self, image: Array) -> Epilogue | None:
        """Return the change of the dtype, for a resample to compute."""
        if type(self).values is not ToFloat.values:
            return None
        return Epilogue((), (), self.dtype)
