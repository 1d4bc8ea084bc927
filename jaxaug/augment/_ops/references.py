"""The looks of other images: histograms, colors and low frequencies of a bank of references.

A bank is reduced to what is read of it when the transform is made, and lies on the device: curves,
means, or amplitudes of a few frequencies. Each image draws one of the references.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Range,
    UnitRange,
    as_static_range,
    extent,
    inside,
    on_image,
    to_levels,
    top_level,
)
from jaxaug.augment._chain import ImageOp, Pointwise
from jaxaug.augment._ops.histogram import histogram_of
from jaxaug.augment._ops.printing import channel_means
from jaxaug.augment._xla import barrier, fixed_point_bits, vary_alike, with_jvp_of
from jaxaug.augment.random import between, integer, uniform

References = Any  # images [n, h, w, C], uint8 or floats in [0, 1]; kept as what is read of them
_QUANTILES = 1025  # of a curve: neighbors are a thousandth of the pixels apart
_FREQUENCIES = 33  # of an amplitude, from 0 on along each axis
# Of weaker frequencies, a two-hundredth of a level, the phase is noise of rounding.
_LEAST_AMPLITUDE = 2e-5
_SLACK = 1e-3  # a resize may overshoot by a rounding


def _images(name: str, value: Any) -> np.ndarray:
    """Return a bank as float64[n, h, w, C] in [0, 1]."""
    if isinstance(value, (list, tuple)) and len({np.shape(each) for each in value}) > 1:
        raise ValueError(f"`{name}` must be images of one shape [n, h, w, C]: resize them.")
    images = np.asarray(value)
    good = images.ndim == 4 and len(images) > 0
    top = top_level(images.dtype)
    if not good or (top is None and not np.issubdtype(images.dtype, np.floating)):
        got = f"{images.dtype}{list(images.shape)}"
        raise ValueError(f"`{name}` must be images [n, h, w, C], uint8 or floats, got {got}.")
    images = images.astype(np.float64) / (top or 1)
    if not (images.min(initial=0) >= -_SLACK and images.max(initial=0) <= 1 + _SLACK):
        got = f"{images.min():g} to {images.max():g}"
        raise ValueError(f"`{name}` must be uint8, or floats in [0, 1], got {got}.")
    return images


def _kept(value: Any, shape: tuple[int | None, ...]) -> bool:
    """Return True for a bank that is reduced already, of a transform that is built again."""
    if not isinstance(value, jax.Array) or value.dtype != jnp.float32 or value.ndim != len(shape):
        return False
    return all(side in (None, given) for side, given in zip(shape, value.shape, strict=True))


def _check_channels(what: str, channels: int, image: Array) -> None:
    """Raise where a reference has other channels than the image, to which it would broadcast."""
    if channels != image.shape[2]:
        raise ValueError(
            f"{what} must have the channels of the image, {image.shape[2]}, got {channels}."
        )


def as_curves(name: str, value: Any) -> Array:
    """Return float32[n, C, quantiles], the values below which shares of the pixels lie."""
    if _kept(value, (None, None, _QUANTILES)):
        return value
    images = _images(name, value)
    flat = images.reshape(len(images), -1, images.shape[3])
    shares = np.linspace(0, 1, _QUANTILES)
    curves = np.empty((len(images), images.shape[3], _QUANTILES), np.float32)
    for place in np.ndindex(curves.shape[:2]):
        values, counts = np.unique(flat[place[0], :, place[1]], return_counts=True)
        curves[place] = np.interp(shares, np.cumsum(counts) / counts.sum(), values)
    return jnp.asarray(curves)


def as_moments(name: str, value: Any) -> Array:
    """Return float32[n, 2, C], mean and standard deviation of each channel."""
    if _kept(value, (None, 2, None)):
        return value
    images = _images(name, value)
    return jnp.asarray(
        np.stack([images.mean((1, 2)), images.std((1, 2))], axis=1).astype(np.float32)
    )


def as_amplitudes(name: str, value: Any) -> Array:
    """Return float32[n, 2 k - 1, k, C], amplitudes of the lowest frequencies along y and x.

    They are divided by the number of pixels: those of a picture hardly depend on its size. Those
    that a small picture does not have are 0.
    """
    if _kept(value, (None, 2 * _FREQUENCIES - 1, _FREQUENCIES, None)):
        return value
    images = _images(name, value)
    _, height, width, _ = images.shape
    amplitudes = np.abs(np.fft.fft2(images, axes=(1, 2))) / (height * width)
    y = np.arange(-_FREQUENCIES + 1, _FREQUENCIES)
    x = np.arange(_FREQUENCIES)
    has = (2 * np.abs(y) <= height)[:, None] & (2 * x <= width)[None, :]
    kept = amplitudes[:, y % height][:, :, x % width] * has[None, :, :, None]
    return jnp.asarray(kept.astype(np.float32))


def as_elements(name: str, value: Any) -> Array:
    """Return float32[n, h, w, C + 1] in [0, 1], the opacity last."""
    if isinstance(value, Tracer):
        return value
    return jnp.asarray(_images(name, value).astype(np.float32))


@on_image
def overlay(image: Array, element: Array, top: Array, left: Array) -> Array:
    """Return the image with an element laid over it, by its opacity.

    Args:
      image: float [H, W, C] in [0, 1].
      element: float[h, w, C + 1] in [0, 1], the opacity last.
      top, left: int32, the place of its upper left pixel; what lies outside is cut off.

    Example:
      >>> import jax.numpy as jnp
      >>> element = jnp.array([[[1.0, 0.5]]])
      >>> overlay(jnp.zeros((1, 3, 1)), element, jnp.int32(0), jnp.int32(1))[0, :, 0].tolist()
      [0.0, 0.5, 0.0]

    Reference: `albumentations.OverlayElements`.
    """
    _check_channels("the element, less its opacity,", element.shape[2] - 1, image)
    inside_element = []
    picked = element
    for axis, first in enumerate((top, left)):
        place = jnp.arange(image.shape[axis], dtype=jnp.int32) - first
        inside_element.append((place >= 0) & (place < element.shape[axis]))
        picked = jnp.take(picked, place, axis=axis, mode="clip")
    shown = inside_element[0][:, None] & inside_element[1][None, :]
    opacity = jnp.where(shown, picked[:, :, -1], 0.0)[:, :, None]
    return image + opacity * (picked[:, :, :-1] - image)


@on_image
def match_histogram(image: Array, curves: Array, blend: Scalar, size: Any = None) -> Array:
    """Return the image with the histogram of a reference, channel by channel, blended with it.

    A level takes the value below which the same share of the reference lies.

    Args:
      image: float [H, W, C] in [0, 1], whose shares are those of its levels of 8 bits; NaN counts
        as 0.
      curves: float[C, quantiles], values of the reference at even shares from 0 to 1.
      blend: the weight of the matched image, in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.0, 0.2, 0.4, 0.6]).reshape(1, 4, 1)
      >>> print((match_histogram(image, jnp.array([[0.0, 1.0]]), 1.0)[0, :, 0] * 100).round())
      [ 25.  50.  75. 100.]

    Reference: `skimage.exposure.match_histograms`, `albumentations.HistogramMatching`.
    """
    _check_channels("`curves`", curves.shape[0], image)
    levels = to_levels(image)
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    counts = jnp.cumsum(histogram_of(levels, inside(image, size)), axis=1, dtype=jnp.int32)
    last = curves.shape[1] - 1
    place = counts.astype(jnp.float32) * (1 / (height * width)) * last
    place = jnp.clip(place, 0.0, last)
    before = jnp.minimum(jnp.floor(place).astype(jnp.int32), last - 1)
    along = place - before.astype(jnp.float32)
    low = jnp.take_along_axis(curves, before, axis=1)
    high = jnp.take_along_axis(curves, before + 1, axis=1)
    table = barrier(low + (high - low) * along)
    channel = jnp.arange(image.shape[2], dtype=jnp.int32)[None, None]
    matched = table.at[channel, levels].get(mode="promise_in_bounds")
    return image + blend * (matched - image)


@on_image
def match_moments(
    image: Array, mean: Array, deviation: Array, blend: Scalar, size: Any = None
) -> Array:
    """Return the image with other means and standard deviations of its channels, blended with it.

    Args:
      image: float [H, W, C] in [0, 1].
      mean, deviation: float[C], of the reference.
      blend: the weight of the matched image, in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.25, 0.75]).reshape(1, 2, 1)
      >>> match_moments(image, jnp.array([0.5]), jnp.array([0.125]), 1.0)[0, :, 0].tolist()
      [0.375, 0.625]

    Reference: E. Reinhard et al., "Color Transfer between Images", 2001;
      `albumentations.PixelDistributionAdaptation` with transform_type "standard".
    """
    for name, values in (("`mean`", mean), ("`deviation`", deviation)):
        _check_channels(name, values.shape[0], image)
    own = barrier(channel_means(image, size))
    centered = image - own[None, None]
    # In fixed point the squares of a low contrast would be 0: they are those of shares of the
    # largest.
    used = inside(image, size)[:, :, None]
    largest = jnp.max(jnp.where(used, jnp.abs(centered), 0.0), axis=(0, 1))
    largest = lax.stop_gradient(barrier(largest))
    shares = centered * (1 / jnp.maximum(largest, 1e-6))[None, None]
    squares = barrier(channel_means(shares * shares, size) * (largest * largest))
    scale = deviation / jnp.sqrt(jnp.maximum(squares, 1e-8))
    matched = jnp.clip(centered * scale[None, None] + mean[None, None], 0.0, 1.0)
    return image + blend * (matched - image)


@on_image
def swap_low_frequencies(
    image: Array, amplitudes: Array, border: Array, reach: int, size: Any = None
) -> Array:
    """Return the image with the amplitudes of its low frequencies replaced, their phases kept.

    A frequency that the image does not have, as all of a flat one but its mean, has no phase and
    gets nothing.

    Args:
      image: float [H, W, C] in [0, 1].
      amplitudes: float[2 k - 1, k, C], of the frequencies 1 - k to k - 1 along y and 0 to k - 1
        along x, divided by the number of pixels.
      border: int32, the highest frequency that is replaced along each axis.
      reach: static, the largest `border`, less than k.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> bright = jnp.zeros((3, 2, 1)).at[1, 0, 0].set(0.75)
      >>> swap = jax.jit(swap_low_frequencies, static_argnums=3)
      >>> image = swap(jnp.full((2, 3, 1), 0.25), bright, jnp.int32(0), 0)
      >>> image[0, :, 0].tolist()
      [0.75, 0.75, 0.75]

    Reference: Y. Yang and S. Soatto, "FDA: Fourier Domain Adaptation for Semantic Segmentation",
      CVPR 2020; `albumentations.FDA`.
    """
    _check_channels("`amplitudes`", amplitudes.shape[2], image)
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    image = jnp.where(inside(image, size)[:, :, None], image, 0.0)
    middle = (amplitudes.shape[0] - 1) // 2
    wanted = amplitudes[middle - reach : middle + reach + 1, : reach + 1]
    up = jnp.arange(-reach, reach + 1, dtype=jnp.float32)
    right = jnp.arange(reach + 1, dtype=jnp.float32)
    cos_y, sin_y = _waves(up, image.shape[0], height)
    cos_x, sin_x = _waves(right, image.shape[1], width)

    # The transform of the lines, then of the columns: F = sum image * e^(-2 pi i (u x + v y)).
    real = _line_sums(image[:, None] * cos_x[None, :, :, None], 2) * (1 / width)  # [H, u, C]
    imaginary = _line_sums(image[:, None] * -sin_x[None, :, :, None], 2) * (1 / width)
    lines_r, lines_i = (part.swapaxes(0, 1)[None] for part in (real, imaginary))  # [1, u, H, C]
    cos, sin = cos_y[:, None, :, None], sin_y[:, None, :, None]
    real = _line_sums(barrier(lines_r) * cos + lines_i * sin, 2) * (1 / height)  # [v, u, C]
    imaginary = _line_sums(barrier(lines_i) * cos - lines_r * sin, 2) * (1 / height)

    # What is added to F; frequencies of a positive u stand for their mirror images, too, but for
    # those of half of an even width. -v and v are one where they are half of an even height.
    own = jnp.sqrt(jnp.maximum(real * real + imaginary * imaginary, _LEAST_AMPLITUDE**2))
    border = border.astype(jnp.float32)
    rows, columns = (jnp.abs(up) <= border) & (2 * up > -height), right <= border
    low = rows[:, None, None] & columns[None, :, None]
    itself = (right == 0) | (2 * right == width)
    twice = jnp.where(itself, jnp.ones_like(right), 2.0)[None, :, None]
    factor = jnp.where(low, wanted * (1 / own) - 1, 0.0) * twice
    mean = (up == 0)[:, None, None] & (right == 0)[None, :, None]  # whose phase is 0, also of black
    real = barrier(jnp.where(mean, wanted - real, real * factor))
    imaginary = barrier(imaginary * factor)
    return image + _synthesis(real, imaginary, (cos_y, sin_y), (cos_x, sin_x))


# ---- transforms


class Picked(NamedTuple):
    """Drawn parameters: int32 number of the reference, and a float32."""

    reference: Array
    amount: Array


def _pick(key: Key, references: Array, low: Scalar, high: Scalar) -> Picked:
    """Draw a reference, and a number of a range."""
    numbers = uniform(key, shape=(2,))
    return Picked(integer(numbers[0], 0, references.shape[0]), between(numbers[1], low, high))


@dataclass(frozen=True)
class HistogramMatching(ImageOp):
    """Give the image the histogram of a reference, with probability `p`.

    See `functional.match_histogram`; uint16 images are an error.

    Args:
      references: images [n, h, w, C], uint8 or floats in [0, 1], with the channels of the images.
      blend_ratio: (low, high) of the weight of the matched image, within [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> bank = np.zeros((2, 8, 9, 3), np.uint8)
      >>> HistogramMatching(bank)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.HistogramMatching`.
    """

    eight_bits = True
    references: Annotated[References, Converter(as_curves)]
    blend_ratio: UnitRange = (0.5, 1.0)
    _: KW_ONLY
    p: float = 0.5

    @property
    def wanted_channels(self) -> int:
        """Those of the references."""
        return self.references.shape[1]

    def make_params(self, key: Key, info: ImageInfo) -> Picked:
        """Draw the reference and the weight."""
        return _pick(key, self.references, *self.blend_ratio)

    def apply(self, params: Picked, image: Array, info: ImageInfo) -> Array:
        """Match the used part."""
        curves = row_of(self.references, params.reference)
        return match_histogram(image, curves, params.amount, info.size)


@dataclass(frozen=True)
class PixelDistributionAdaptation(ImageOp):
    """Give the image the mean and deviation of a reference's colors, with probability `p`.

    See `functional.match_moments`.

    Args:
      references: images [n, h, w, C], uint8 or floats in [0, 1], with the channels of the images.
      blend_ratio: (low, high) of the weight of the matched image, within [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> adapt = PixelDistributionAdaptation(np.zeros((2, 8, 9, 3), np.uint8))
      >>> adapt(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.PixelDistributionAdaptation`.

    Differs from it in matching channel by channel, its "standard", not along principal axes.
    """

    references: Annotated[References, Converter(as_moments)]
    blend_ratio: UnitRange = (0.25, 1.0)
    _: KW_ONLY
    p: float = 0.5

    @property
    def wanted_channels(self) -> int:
        """Those of the references."""
        return self.references.shape[2]

    def make_params(self, key: Key, info: ImageInfo) -> Picked:
        """Draw the reference and the weight."""
        return _pick(key, self.references, *self.blend_ratio)

    def apply(self, params: Picked, image: Array, info: ImageInfo) -> Array:
        """Match the used part."""
        moments = row_of(self.references, params.reference)
        return match_moments(image, moments[0], moments[1], params.amount, info.size)


@dataclass(frozen=True)
class FDA(ImageOp):
    """Give the image the low frequencies' amplitudes of a reference, with probability `p`.

    See `functional.swap_low_frequencies`. Values are clipped to [0, 1].

    Args:
      references: images [n, h, w, C], uint8 or floats in [0, 1], with the channels of the images.
      beta_range: (low, high) of the highest frequency that is replaced, as a share of the shorter
        side, within [0, 0.5]; at most 32.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> bank = np.zeros((2, 8, 9, 3), np.uint8)
      >>> FDA(bank)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: Y. Yang and S. Soatto, "FDA: Fourier Domain Adaptation for Semantic Segmentation",
      CVPR 2020; the default is that of `albumentations.FDA`.
    """

    references: Annotated[References, Converter(as_amplitudes)]
    beta_range: Annotated[Range, Converter(as_static_range, 0.0, 0.5)] = (0.0, 0.1)
    _: KW_ONLY
    p: float = 0.5

    @property
    def wanted_channels(self) -> int:
        """Those of the references."""
        return self.references.shape[3]

    def make_params(self, key: Key, info: ImageInfo) -> Picked:
        """Draw the reference and the share."""
        return _pick(key, self.references, *self.beta_range)

    def apply(self, params: Picked, image: Array, info: ImageInfo) -> Array:
        """Replace low frequencies of the used part."""
        shorter = min(image.shape[:2])
        # In float32, as the border is: 0.29 of 100 is 29 there.
        reach = min(int(np.float32(self.beta_range[1]) * np.float32(shorter)), _FREQUENCIES - 1)
        sides = jnp.minimum(*(side.astype(jnp.float32) for side in extent(image, info.size)))
        border = jnp.minimum(jnp.floor(params.amount * sides).astype(jnp.int32), reach)
        amplitudes = row_of(self.references, params.reference)
        swapped = swap_low_frequencies(image, amplitudes, border, reach, info.size)
        return jnp.clip(swapped, 0.0, 1.0)


class Placed(NamedTuple):
    """Drawn parameters of `OverlayElements`: int32 number, float32[2] place (y, x) of [0, 1)."""

    element: Array
    place: Array


@dataclass(frozen=True)
class OverlayElements(Pointwise):
    """Lay an element of a bank over the image at a random place, with probability `p`.

    It lies inside of the image where it fits.

    Args:
      elements: images [n, h, w, C + 1], uint8 or floats in [0, 1]: the channels of the images, then
        the opacity.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> logo = np.full((1, 2, 3, 4), 255, np.uint8)
      >>> shown = OverlayElements(logo, p=1.0)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8))
      >>> int((shown[:, :, 0] == 255).sum())
      6

    Reference: `albumentations.OverlayElements`, whose elements come with each sample.
    """

    across_channels = True
    elements: Annotated[References, Converter(as_elements)]
    _: KW_ONLY
    p: float = 0.5

    @property
    def wanted_channels(self) -> int:
        """Those of the elements, less their opacity."""
        return self.elements.shape[3] - 1

    def make_params(self, key: Key, info: ImageInfo) -> Placed:
        """Draw the element and its place."""
        numbers = uniform(key, shape=(3,))
        return Placed(integer(numbers[0], 0, self.elements.shape[0]), numbers[1:])

    def apply(self, params: Placed, image: Array, info: ImageInfo) -> Array:
        """Lay it over the used part."""
        corner = []
        for axis, length in enumerate(extent(image, info.size)):
            room = jnp.maximum(length - self.elements.shape[1 + axis], 0)
            corner.append(integer(params.place[axis], 0, room + 1))
        return overlay(image, row_of(self.elements, params.element), corner[0], corner[1])


def row_of(bank: Array, index: Array) -> Array:
    """Return `bank[index]` as a sum: an index that is split over devices gathers from no array
    that is not.
    """
    numbers = jnp.arange(bank.shape[0], dtype=jnp.int32)
    here = (numbers == index).reshape(-1, *(1,) * (bank.ndim - 1))
    return jnp.sum(jnp.where(here, bank, 0.0), axis=0)


# ---- a few frequencies


def _waves(frequencies: Array, count: int, length: Array) -> tuple[Array, Array]:
    """Return cos and sin of 2 pi f x / length at the pixels x, float32[f, count]."""
    turns = frequencies[:, None] * jnp.arange(count, dtype=jnp.float32)[None, :] * (1 / length)
    angle = (turns - jnp.round(turns)) * (2 * jnp.pi)
    return barrier(jnp.cos(angle)), barrier(jnp.sin(angle))


def _line_sums(values: Array, axis: int) -> Array:
    """Return sums along an axis of values in [-2, 2], in fixed point, as `exact_sum` says."""

    def total(values: Array) -> Array:
        return jnp.sum(values, axis=axis)

    @with_jvp_of(total)
    def exact(values: Array) -> Array:
        bits = fixed_point_bits(values.shape[axis])
        fixed = jnp.round(jnp.clip(values, -2.0, 2.0) * 2.0**bits).astype(jnp.int32)
        return jnp.sum(fixed, axis=axis, dtype=jnp.int32).astype(jnp.float32) * 2.0**-bits

    return exact(values)


def _synthesis(real: Array, imaginary: Array, along_y: Any, along_x: Any) -> Array:
    """Return the image [H, W, C] of what is added to frequencies [v, u, C], one after the other."""
    cos_y, sin_y = along_y
    cos_x, sin_x = along_x
    count = real.shape[1]

    def add_row(total: Any, row: Any) -> Any:
        r, i, cos, sin = row  # [u, C], [u, C], [H], [H]
        cos, sin = cos[:, None, None], sin[:, None, None]
        return (total[0] + r[None] * cos - i[None] * sin, total[1] + r[None] * sin + i[None] * cos)

    empty = jnp.zeros((cos_y.shape[1], count, real.shape[2]), jnp.float32)
    empty, rows = vary_alike(empty, (real, imaginary, cos_y, sin_y))
    (real, imaginary), _ = lax.scan(
        lambda total, row: (add_row(total, row), None), (empty, empty), rows
    )

    def add_column(total: Array, column: Any) -> tuple[Array, None]:
        r, i, cos, sin = column  # [H, C], [H, C], [W], [W]
        cos, sin = cos[None, :, None], sin[None, :, None]
        return total + (r[:, None] * cos - i[:, None] * sin), None

    columns = (real.swapaxes(0, 1), imaginary.swapaxes(0, 1), cos_x, sin_x)
    start = jnp.zeros((cos_y.shape[1], cos_x.shape[1], real.shape[2]), jnp.float32)
    start, columns = vary_alike(start, columns)
    return lax.scan(add_column, start, columns)[0]
