"""Cropping, also with a resize to a fixed size.

Images are HWC; sizes are (height, width); on a canvas with `size` "the image" is its used part. The
pure functions take images without a canvas, uint8 (and give uint8, rounded) or float in [0, 1] (and
do not clip).
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    SMALLEST,
    Canvas,
    Color,
    Converter,
    ImageInfo,
    Interpolation,
    Padding,
    PaddingMode,
    Range,
    Size,
    UnitRange,
    as_optional,
    as_padding,
    as_range,
    as_size,
    log,
    ordered,
    plain,
)
from jaxaug.augment._chain import Geometric
from jaxaug.augment._ops.resize import resized
from jaxaug.augment._warp import Resampling, Warp, has_static_shape, shifted, warp_image
from jaxaug.augment.random import between, integer, uniform

_TRIES = 10  # torchvision's


def crop(
    image: Array,
    top: Scalar,
    left: Scalar,
    height: int,
    width: int,
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
) -> Array:
    """Return `height` x `width` pixels with the corner (`top`, `left`), pixel for pixel.

    Args:
      image: uint8 or float [H, W, C].
      top, left: integers, static or traced; the window may reach past the image.
      height, width: static, in pixels.
      padding_mode: of what lies outside: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant", in [0, 1].

    Returns:
      [height, width, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> crop(jnp.arange(12.0).reshape(3, 4, 1), 1, 2, 2, 2)[:, :, 0].tolist()
      [[6.0, 7.0], [10.0, 11.0]]
    """
    fits = all(isinstance(corner, int) for corner in (top, left))
    fits = fits and 0 <= top <= image.shape[0] - height and 0 <= left <= image.shape[1] - width
    return warp_image(
        image,
        window_at(top, left, (height, width), None, bool(fits)),
        "nearest",
        padding_mode,
        fill,
    )


def center_crop(image: Array, output_size: int | tuple[int, int]) -> Array:
    """Return the central window of `output_size`, zero outside of the image.

    Args:
      image: uint8 or float [H, W, C].
      output_size: (height, width), or an int for a square.

    Returns:
      [*output_size, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> center_crop(jnp.arange(5.0).reshape(1, 5, 1), (1, 3))[0, :, 0].tolist()
      [1.0, 2.0, 3.0]
    """
    height, width = as_size("output_size", output_size)
    top = _central(image.shape[0], height)
    left = _central(image.shape[1], width)
    return crop(image, top, left, height, width)


def resized_crop(
    image: Array,
    top: Scalar,
    left: Scalar,
    height: Scalar,
    width: Scalar,
    size: int | tuple[int, int],
    interpolation: str = "bilinear",
) -> Array:
    """Return `crop`, then `resize`, in one resample.

    Args:
      image: uint8 or float [H, W, C].
      top, left, height, width: the window in pixels, integers, inside the image; all may be traced.
      size: (height, width) of the result, static, or an int for a square.
      interpolation: "bilinear", "bicubic" or "nearest".

    Returns:
      [*size, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([9, 9, 0, 70, 140, 210, 9, 9], jnp.uint8).reshape(1, 8, 1)
      >>> resized_crop(image, 0, 2, 1, 4, (1, 2))[0, :, 0].tolist()
      [50, 160]

    Differs from torchvision in that an int `size` means a square.
    """
    corner = (top, left)
    window = jnp.stack(list(map(jnp.int32, (height, width))))
    return warp_image(
        image,
        resized_window(corner, window, (image.shape[0], image.shape[1]), as_size("size", size)),
        interpolation,
    )


# ---- transforms


def _as_size_or_share(name: str, value: Any) -> Any:
    """Return a float in (0, 1], a share of the image, or (height, width) of pixels."""
    size = plain(value)
    if not isinstance(size, float):
        return as_size(name, size)
    if not 0 < size <= 1:
        raise ValueError(
            f"a float `{name}` must be a share in (0, 1], got {size!r}; pixels are ints."
        )
    return size


class Window(NamedTuple):
    """Drawn parameters of the crops: int32 scalars, in pixels of the image."""

    top: Array
    left: Array
    height: Array
    width: Array


@dataclass(frozen=True)
class CenterCrop(Geometric):
    """Crop the center of every image, pixel for pixel.

    Args:
      size: (height, width) in pixels, or an int for a square: outside of a smaller image lies zero
        (or, in a run with padding transforms, what their padding mode says). Or a float in (0, 1]:
        that share of each image's own height and width; the images then keep different sizes.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> CenterCrop(0.5)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (20, 30, 3)

    Differs from torchvision in boxes where the window is larger than the image by an odd number of
    pixels: here they stay on their pixels, there they may lie one pixel further right or below.
    """

    size: Annotated[Size, Converter(_as_size_or_share)]

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return the shift to the central window."""
        height, width = info.height_width
        if isinstance(self.size, float):
            return self._share(self.size, info)
        canvas = self.size
        fits = info.size is None and canvas[0] <= height and canvas[1] <= width
        return window_at(
            _central(height, canvas[0]), _central(width, canvas[1]), canvas, None, fits
        )

    def _share(self, share: float, info: ImageInfo) -> Warp:
        height, width = info.height_width
        if info.size is None:
            rows, columns = (max(1, round(share * side)) for side in info.canvas)
            return window_at(
                _central(height, rows), _central(width, columns), (rows, columns), None, True
            )
        target = jnp.maximum(jnp.round(share * info.size.astype(jnp.float32)), 1.0).astype(
            jnp.int32
        )
        canvas: Canvas = (share * info.canvas[0], share * info.canvas[1])
        if has_static_shape(info.canvas):
            canvas = (math.ceil(canvas[0]), math.ceil(canvas[1]))
        return window_at(
            _central(height, target[0]), _central(width, target[1]), canvas, target, True
        )


@dataclass(frozen=True)
class RandomCrop(Geometric):
    """Crop a window of fixed size at a random place, pixel for pixel.

    Args:
      size: (height, width) in pixels, or an int for a square.
      padding: pixels added on every side before: an int, (left and right, top and bottom), or
        (left, top, right, bottom), as in torchvision.
      pad_if_needed: also pad an image smaller than the window, by the same amount on either side.
      fill: the color of "constant" padding in [0, 1], a number or one per channel.
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".

    Without any padding the window may look beyond an image that is too small on its canvas: there
    lies zero, or in a run with padding transforms, what their padding mode says.

    Raises:
      ValueError: on tracing, for an image, or a canvas, that is too small and not padded.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomCrop(32, padding=4)(jax.random.key(0), jnp.zeros((32, 32, 3), jnp.uint8)).shape
      (32, 32, 3)

    Differs from torchvision where an image of a smaller `size` lies on a canvas that is large
    enough: that is known too late for an error, and the image is padded as by `pad_if_needed`. Put
    a `Resize` before the crop where images may be smaller than the window.
    """

    size: Size
    padding: Annotated[Padding | None, Converter(as_optional, as_padding)] = None
    pad_if_needed: bool = False
    fill: Color = 0.0
    padding_mode: PaddingMode = "constant"

    def make_params(self, key: Key, info: ImageInfo) -> Window:
        """Draw a corner, uniform over the places where the window fits the padded image."""
        numbers = uniform(key, shape=(2,))
        top = self._place(numbers[0], info, 0)
        left = self._place(numbers[1], info, 1)
        return Window(top, left, *map(jnp.int32, self.size))

    def warp(self, params: Window, info: ImageInfo) -> Warp:
        """Return the shift to the window."""
        height, width = self.size
        fits = self.padding is None and info.size is None
        fits = fits and height <= info.canvas[0] and width <= info.canvas[1]
        return window_at(params.top, params.left, (height, width), None, fits)

    def resampling(self) -> Resampling:
        """Return the resampling with its border, where it pads."""
        if self.padding is None and not self.pad_if_needed:
            return Resampling()
        return Resampling(None, self.padding_mode, self.fill)

    def _place(self, number: Array, info: ImageInfo, axis: int) -> Array:
        """Return where the window begins along y (0) or x (1)."""
        window = self.size[axis]
        left, top, right, bottom = self.padding or (0, 0, 0, 0)
        before, behind = ((top, bottom), (left, right))[axis]
        if not self.pad_if_needed and has_static_shape(info.canvas):
            self._check_fits(info, info.canvas[axis] + before + behind - window)
        room = info.height_width[axis] + before + behind - window
        # torchvision's `pad_if_needed` adds the missing pixels on both sides.
        return integer(number, jnp.minimum(room, 0), jnp.maximum(room, 0) + 1) - before

    def _check_fits(self, info: ImageInfo, room: float) -> None:
        """Raise where no image holds the window; `room` is that of one as large as its array."""
        if room >= 0:
            return
        remedy = "give `padding`, or `pad_if_needed=True`"
        what = "an image"
        if info.size is not None:
            what = "any image on a canvas"
            remedy = f"{remedy}; or a larger `canvas` to the Loader, or a Resize before it"
        raise ValueError(f"RandomCrop{self.size} does not fit {what} of {info.canvas}: {remedy}.")


class WindowCrop(Geometric):
    """A crop of the `Window` that was drawn, resized to a field `size`."""

    size: Size

    def warp(self, params: Window, info: ImageInfo) -> Warp:
        """Return the crop, then the resize."""
        window = jnp.stack([params.height, params.width])
        return resized_window((params.top, params.left), window, info.canvas, self.size)


@dataclass(frozen=True)
class RandomResizedCrop(WindowCrop):
    """Crop a window of random area and aspect, and resize it to one size, antialiased.

    The area is `scale` times the image's, uniform; the aspect width / height is log-uniform in
    `ratio`. Of ten such windows the first that fits is placed uniformly; if none fits, the largest
    central window whose aspect lies in `ratio` is taken.

    Args:
      size: (height, width) of the output in pixels, or an int for a square.
      scale: (low, high) share of the image's area, within [0, 1].
      ratio: (low, high) width / height, above 0.
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomResizedCrop(8)(jax.random.key(0), jnp.zeros((20, 30, 3), jnp.uint8)).shape
      (8, 8, 3)

    Reference: Szegedy et al., "Going Deeper with Convolutions", 2014, section 6. The sampling rule
    is torchvision's; the pixels equal PIL's `crop(box).resize(size, BILINEAR)`, or BICUBIC, up to
    rounding.
    """

    size: Size
    scale: UnitRange = (0.08, 1.0)
    ratio: Annotated[Range, Converter(as_range, 0.0)] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"

    def __post_init__(self):
        super().__post_init__()
        if not ordered(SMALLEST, self.scale[1]) or not ordered(SMALLEST, self.ratio[0]):
            raise ValueError(
                f"`scale` and `ratio` must be above 0, got {self.scale} and {self.ratio}."
            )

    def make_params(self, key: Key, info: ImageInfo) -> Window:
        """Draw the window."""
        numbers = uniform(key, shape=(2 * _TRIES + 2,))
        full = list(map(jnp.int32, info.height_width))
        full_height, full_width = (side.astype(jnp.float32) for side in full)
        share = between(numbers[:_TRIES], *self.scale)
        ratio = jnp.exp(between(numbers[_TRIES : 2 * _TRIES], *map(log, self.ratio)))
        area = share * (full_height * full_width)
        heights = jnp.round(jnp.sqrt(area / ratio))
        widths = jnp.round(jnp.sqrt(area * ratio))
        fits = (heights > 0) & (heights <= full_height) & (widths > 0) & (widths <= full_width)
        first = jnp.argmax(fits)
        fallback = _largest(full_height, full_width, self.ratio)
        height = jnp.where(fits[first], heights[first], fallback[0]).astype(jnp.int32)
        width = jnp.where(fits[first], widths[first], fallback[1]).astype(jnp.int32)
        top = integer(numbers[-2], 0, full[0] - height + 1)
        left = integer(numbers[-1], 0, full[1] - width + 1)
        top = jnp.where(fits[first], top, (full[0] - height) // 2)
        left = jnp.where(fits[first], left, (full[1] - width) // 2)
        return Window(top, left, height, width)


def _largest(height: Array, width: Array, ratio: tuple[Scalar, Scalar]) -> tuple[Array, Array]:
    """Return the largest window inside an image whose width / height lies in `ratio`."""
    aspect = width / height
    return (
        jnp.where(aspect < ratio[0], jnp.maximum(jnp.round(width / ratio[0]), 1.0), height),
        jnp.where(aspect > ratio[1], jnp.maximum(jnp.round(height * ratio[1]), 1.0), width),
    )


def window_at(top: Scalar, left: Scalar, canvas: Canvas, size: Array | None, fits: bool) -> Warp:
    """Return a crop from one pixel on; ints are made floats."""
    top, left = (
        float(v) if isinstance(v, int) else jnp.asarray(v, jnp.float32) for v in (top, left)
    )
    return shifted(top, left, canvas, size, fits)


def resized_window(
    corner: tuple[Scalar, Scalar],
    window: Array,
    canvas: Canvas,
    size: tuple[int, int],
) -> Warp:
    """Return the warp of the int32[2] window at `corner` onto `size` pixels."""
    taken = window_at(*corner, canvas, window, True)
    return taken.then(resized(ImageInfo(canvas, window), size, None))


def _central(length, window):
    """Return where the central window begins, rounded as in torchvision; also for traced int32."""
    room = length - window
    if isinstance(room, int):
        return round(room / 2) if room >= 0 else -(-room // 2)
    half = jnp.round(room.astype(jnp.float32) / 2).astype(jnp.int32)
    return jnp.where(room >= 0, half, -(-room // 2))
