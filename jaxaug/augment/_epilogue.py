"""The last step of a chain in a form that the resample before it can compute."""

from typing import NamedTuple

from jaxaug._typing import Array
from jaxaug.augment._values import standardized


class Epilogue(NamedTuple):
    """The map (value - shift) / scale of values in [0, 1], with a change of dtype.

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
