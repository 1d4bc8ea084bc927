"""Padding: more frame around the image, or room for all of it in a frame of fixed size.

Images are HWC; sizes are (height, width); on a canvas with `size` "the image" is its used part.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Color,
    Converter,
    Flag,
    ImageInfo,
    Padding,
    PaddingMode,
    Range,
    Size,
    as_padding,
    as_static_range,
    as_symmetric_range,
    static,
)
from jaxaug.augment._chain import Bordered, Geometric
from jaxaug.augment._warp import Resampling, Warp, has_static_shape, shifted, warp_image
from jaxaug.augment.matrix import Matrix, scaling
from jaxaug.augment.random import between, uniform


def pad(
    image: Array,
    padding: Padding,
    fill: float | tuple[float, ...] = 0.0,
    padding_mode: str = "constant",
) -> Array:
    """Return the image with `padding` pixels more on each side.

    Args:
      image: uint8 or float [H, W, C].
      padding: an int, (left and right, top and bottom), or (left, top, right, bottom).
      fill: the color of "constant" in [0, 1], a number or one per channel.
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".

    Returns:
      [top + H + bottom, left + W + right, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> pad(jnp.arange(3.0).reshape(1, 3, 1), (2, 0), padding_mode="reflect")[0, :, 0].tolist()
      [2.0, 1.0, 0.0, 1.0, 2.0, 1.0, 0.0]

    Equals `numpy.pad`.
    """
    info = ImageInfo((image.shape[0], image.shape[1]))
    warp = _padded(info, as_padding("padding", padding))
    return warp_image(image, warp, "nearest", padding_mode, fill)


# ---- transforms


@dataclass(frozen=True)
class Pad(Geometric):
    """Add pixels on every side of the image.

    Args:
      padding: an int, (left and right, top and bottom), or (left, top, right, bottom), as in
        torchvision.
      fill: the color of "constant" in [0, 1], a number or one per channel.
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Pad((3, 1))(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (10, 15, 3)

    Differs from torchvision in what masks hold in the padding, see `Compose`.
    """

    padding: Padding
    fill: Color = 0.0
    padding_mode: PaddingMode = "constant"

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return the shift into the larger frame."""
        return _padded(info, self.padding)

    def resampling(self) -> Resampling:
        """Return the resampling with its border."""
        return Resampling(None, self.padding_mode, self.fill)


class ZoomOut(NamedTuple):
    """Drawn parameters of `RandomZoomOut`.

    Attributes:
      side: float32, the factor of height and width.
      place: float32[2], the (y, x) shares of the new room that come before the image.
    """

    side: Array
    place: Array


@dataclass(frozen=True)
class RandomZoomOut(Geometric):
    """Put the image at a random place in a larger frame of the same aspect.

    The output array holds the largest of these frames, `side_range[1]` times the input's height and
    width; its "size" tells the frame of each image. Followed by `Resize` in the same run, no such
    array is ever made.

    Args:
      fill: the color of the frame in [0, 1], a number or one per channel.
      side_range: (low, high) of the factor of height and width, at least 1.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sample = {"image": jnp.zeros((8, 9, 3), jnp.uint8)}
      >>> out = RandomZoomOut(side_range=(2, 2), p=1.0)(jax.random.key(0), sample)
      >>> out["image"].shape, out["size"].tolist()
      ((16, 18, 3), [16, 18])

    Reference: Liu et al., "SSD: Single Shot MultiBox Detector", 2016, section 3.6. The sampling
    rule is torchvision's.
    """

    fill: Color = 0.0
    side_range: Annotated[Range, Converter(as_static_range, 1.0)] = (1.0, 4.0)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> ZoomOut:
        """Draw the factor and the place."""
        numbers = uniform(key, shape=(3,))
        return ZoomOut(between(numbers[0], *self.side_range), numbers[1:])

    def neutral(self, params: ZoomOut) -> ZoomOut:
        """Return a frame that is the image's own, in an array of the same shape."""
        return ZoomOut(jnp.ones_like(params.side), jnp.zeros_like(params.place))

    def warp(self, params: ZoomOut, info: ImageInfo) -> Warp:
        """Return the shift into the larger frame."""
        sides = jnp.stack(list(map(jnp.float32, info.extent)))
        frame = jnp.floor(sides * params.side)
        rows, columns = (side * self.side_range[1] for side in info.canvas)
        if has_static_shape(info.canvas):
            rows, columns = int(rows), int(columns)
            # float32 may put a product just below a whole number on it.
            frame = jnp.minimum(frame, jnp.asarray([rows, columns], jnp.float32))
        top, left = jnp.floor((frame - sides) * params.place)
        return shifted(-top, -left, (rows, columns), frame.astype(jnp.int32), False)

    def resampling(self) -> Resampling:
        """Return the resampling with its border."""
        return Resampling(None, "constant", self.fill)


@dataclass(frozen=True)
class LetterBox(Bordered):
    """Resize the image until it just fits `size`, aspect kept, and pad it evenly to all of `size`.

    Args:
      size: (height, width) of the output in pixels, or an int for a square.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.full((2, 4, 1), 255, jnp.uint8)
      >>> LetterBox(4)(jax.random.key(0), image)[:, 0, 0].tolist()
      [0, 255, 255, 0]

    Equals `PIL.ImageOps.pad` with BILINEAR or BICUBIC, up to rounding; of an odd number of padding
    pixels the larger half is at the bottom or on the right.
    """

    size: Size

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return the resize, then the shift into the frame."""
        rows, columns = self.size
        used_height, used_width = info.height_width
        # The largest of the same aspect inside the frame: ints or int32.
        height = _limited(_rounded(used_height * columns, used_width), rows)
        width = _limited(_rounded(used_width * rows, used_height), columns)
        top = (rows - height) // 2
        left = (columns - width) // 2
        if info.size is None:
            shrink = (info.canvas[0] / height, info.canvas[1] / width)
        else:
            # Rounding a side down to a pixel less lets it shrink a little more.
            most = max(info.canvas[0] / rows, info.canvas[1] / columns) * (1 + 1 / min(self.size))
            shrink = (most, most)
        extent = info.extent
        fitted = Warp(
            scaling(extent[1] / _float(width), extent[0] / _float(height)),
            self.size,
            None,
            shrink,
            inside_source=True,
            crop_window=(0.0, 0.0, *extent),
        )
        return fitted.then(shifted(-_float(top), -_float(left), self.size, None, False))


def _padded(info: ImageInfo, padding: tuple[int, int, int, int]) -> Warp:
    """Return the shift into a frame with (left, top, right, bottom) pixels more."""
    left, top, right, bottom = padding
    canvas = (info.canvas[0] + top + bottom, info.canvas[1] + left + right)
    size = info.size
    if size is not None:
        size = size + jnp.asarray([top + bottom, left + right], jnp.int32)
    return shifted(-float(top), -float(left), canvas, size, False)


def _limited(side: Any, limit: int) -> Any:
    """Return an int or an int32 brought into [1, limit]."""
    return max(1, min(side, limit)) if isinstance(side, int) else jnp.clip(side, 1, limit)


def _rounded(dividend: Any, divisor: Any) -> Any:
    """Return the quotient of integers, rounded to the nearest."""
    return (2 * dividend + divisor) // (2 * divisor)


def _float(value: Scalar) -> Scalar:
    return float(value) if isinstance(value, int) else jnp.asarray(value, jnp.float32)


_LEAST_SHARE = -0.5 + 1e-3  # half of an image from both sides would leave nothing


def as_static_symmetric(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Return `as_symmetric_range` of numbers that are known while tracing: the taps follow."""
    first, last = as_symmetric_range(name, static(name, value), low, high)
    return float(first), float(last)


class Margins(NamedTuple):
    """Drawn parameter of `CropAndPad`: float32[4], (left, top, right, bottom) as shares."""

    shares: Array


@dataclass(frozen=True)
class CropAndPad(Bordered):
    """Crop or pad each side by a random share, and resize the result to the size before.

    Args:
      percent: (low, high), how much is added to a side, as a share of width or height, within
        (-0.5, 10]; negative shares crop, positive ones pad. A number v means (-v, v).
      sample_independently: False draws one share for all sides.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> CropAndPad()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.CropAndPad`, with `keep_size`; it has no default of `percent`.
    """

    percent: Annotated[Range, Converter(as_static_symmetric, _LEAST_SHARE, 10.0)] = (-0.1, 0.1)
    sample_independently: Flag = True
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Margins:
        """Draw the shares."""
        numbers = uniform(key, *self.percent, shape=(4 if self.sample_independently else 1,))
        return Margins(jnp.broadcast_to(numbers, (4,)))

    def warp(self, params: Margins, info: ImageInfo) -> Warp:
        """Return the map from the frame to the window with its margins."""
        height, width = info.extent
        left, top, right, bottom = params.shares
        window = Matrix(
            xx=1 + left + right, x1=-left * width, yy=1 + top + bottom, y1=-top * height
        )
        return Warp.framing(info, window, max(1.0, 1 + 2 * self.percent[1]))
