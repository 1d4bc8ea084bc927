"""Resizing, antialiased when images shrink.

Images are HWC; sizes are (height, width); on a canvas with `size` "the image" is its used part.
"""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._base import (
    INTERPOLATIONS,
    ImageInfo,
    Size,
    as_choice,
    as_optional,
    as_size,
    converter,
    plain,
)
from jaxaug.augment._chain import Geometric
from jaxaug.augment._warp import Resampling, Warp, warp_image
from jaxaug.augment.matrix import Matrix, scaling


def resize(image: Array, size: int | tuple[int, int], interpolation: str = "bilinear") -> Array:
    """Return the image in `size` pixels, antialiased when it shrinks.

    Args:
      image: uint8 or float [H, W, C].
      size: (height, width), or an int for the shorter side; the longer one is then int(size * long
        / short).
      interpolation: "bilinear", "bicubic" or "nearest".

    Returns:
      [height, width, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> resize(jnp.array([0, 70, 140, 210], jnp.uint8).reshape(1, 4, 1), (1, 2))[0, :, 0].tolist()
      [50, 160]

    Equals `PIL.Image.resize` with BILINEAR, BICUBIC or NEAREST, up to rounding. "bicubic" may
    overshoot: uint8 is clipped, as by PIL and torchvision, floats are not. Those two round and clip
    uint8 after each axis, which shows where both overshoot: up to some 13 levels in noise.
    """
    target = as_size("size", size)
    if isinstance(plain(size), int):
        target = _shorter_side(image.shape[0], image.shape[1], target[0])
    return warp_image(
        image, resized(ImageInfo((image.shape[0], image.shape[1])), target, None), interpolation
    )


def _as_size_or_side(name: str, value: Any) -> Any:
    """Return (height, width), or the int of the shorter side."""
    as_size(name, value)
    return plain(value)


@dataclass(frozen=True)
class Resize(Geometric):
    """Resize every image, antialiased when it shrinks.

    Args:
      size: (height, width) for every image, or an int: the length of the shorter side, the aspect
        kept.
      canvas: (height, width) of the output array, which holds images of different shapes with their
        `size`; an image whose longer side does not fit is shrunk until it does. Needed with an int
        size where the images lie on a canvas with `size`, unless an op of fixed size
        (`CenterCrop(224)`) follows in the same run.
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> size = jnp.array([20, 30], jnp.int32)
      >>> sample = {"image": jnp.zeros((40, 60, 3), jnp.uint8), "size": size}
      >>> Resize(10, canvas=(16, 16))(jax.random.key(0), sample)["size"].tolist()
      [10, 15]

    Equals `PIL.Image.resize` with BILINEAR, BICUBIC or NEAREST, up to rounding; where "bicubic"
    overshoots along both axes see `functional.resize`.
    """

    size: Size = field(metadata=converter(_as_size_or_side))
    canvas: Size | None = field(default=None, metadata=converter(as_optional, as_size))
    interpolation: str = field(default="bilinear", metadata=converter(as_choice, INTERPOLATIONS))

    def __post_init__(self):
        super().__post_init__()
        if self.canvas is not None and not isinstance(self.size, int):
            raise ValueError(
                f"`canvas` goes with an int `size`: {self.size} is the same for every image and"
                " needs none."
            )

    def make_params(self, key: Key, info: ImageInfo) -> None:
        """Draw nothing."""
        del key, info

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return the scale; the target follows from the image's size."""
        del params
        if not isinstance(self.size, int):
            return resized(info, self.size, None)
        if self.canvas is not None:
            return _resize_onto_canvas(info, self.size, self.canvas)
        if info.size is not None:
            return _resize_shorter_side(info, self.size)
        return resized(info, _shorter_side(*info.height_width, self.size), None)

    def resampling(self) -> Resampling:
        """Return the resampling with its interpolation."""
        return Resampling(self.interpolation)


def resized(info: ImageInfo, target: tuple[int, int], size: Array | None) -> Warp:
    """Return the warp of the image onto `target` pixels."""
    height, width = info.extent
    matrix = scaling(width / target[1], height / target[0])
    shrink = (info.canvas[0] / target[0], info.canvas[1] / target[1])
    return Warp(matrix, target, size, shrink, inside_source=True, crop_window=_frame(info))


def _frame(info: ImageInfo) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return (top, left, bottom, right) of the used part."""
    return (0.0, 0.0, *info.extent)


def _resize_shorter_side(info: ImageInfo, shorter: int) -> Warp:
    """Return the warp of the shorter side onto `shorter` pixels; its frame has no static shape."""
    height, width = (jnp.asarray(side, jnp.int32) for side in info.height_width)
    short = jnp.minimum(height, width)
    size = jnp.stack([shorter * height // short, shorter * width // short])
    most = min(info.canvas) / shorter * _rounding(shorter)
    # No bound of the frame itself: that of the source pixels it spans, in units of `most`.
    canvas = (info.canvas[0] / most, info.canvas[1] / most)
    return Warp(
        _onto(info, size), canvas, size, (most, most), inside_source=True, crop_window=_frame(info)
    )


def _onto(info: ImageInfo, size: Array) -> Matrix:
    """Return the pull of the used part onto int32[2] `size` pixels."""
    height, width = (jnp.asarray(side, jnp.float32) for side in info.extent)
    return scaling(width / size[1].astype(jnp.float32), height / size[0].astype(jnp.float32))


def _rounding(side: int) -> float:
    """Return the largest ratio of a length to its floor, which has at least `side` pixels."""
    return 1 + 1 / side


def _resize_onto_canvas(info: ImageInfo, shorter: int, canvas: tuple[int, int]) -> Warp:
    """Return the warp of the shorter side onto `shorter` pixels, fewer on a small canvas."""
    height, width = (jnp.asarray(side, jnp.int32) for side in info.height_width)
    short = jnp.minimum(height, width)
    rows = canvas[0]
    columns = canvas[1]
    shorter = min(shorter, max(canvas))  # products with more may not fit an int32
    new_height = shorter * height // short
    new_width = shorter * width // short
    new_height, new_width = _shrink_to(rows, new_height, new_width, width * rows // height)
    new_width, new_height = _shrink_to(columns, new_width, new_height, height * columns // width)
    size = jnp.maximum(jnp.stack([new_height, new_width]), 1)
    most = max(min(info.canvas) / shorter, info.canvas[0] / rows, info.canvas[1] / columns)
    most *= _rounding(min(shorter, *canvas))
    return Warp(
        _onto(info, size), canvas, size, (most, most), inside_source=True, crop_window=_frame(info)
    )


def _shrink_to(limit: int, side: Array, other: Array, other_at_limit: Array) -> tuple[Array, Array]:
    return jnp.minimum(side, limit), jnp.where(side > limit, other_at_limit, other)


def _shorter_side(height: int, width: int, size: int) -> tuple[int, int]:
    """Return (height, width) with the shorter side `size`, rounded down as torchvision does."""
    short = min(height, width)
    return size * height // short, size * width // short
