"""Transforms of the channels: their order, their levels against each other, their hue.

The pure functions take float images in [0, 1] and do not clip, but for `shift_hsv`, whose
saturation and value end at 0 and 1. Nothing here is a matrix product: three channels are too few
for one, and its rounding would depend on the batch size.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Range,
    SymmetricRange,
    as_int_range,
    as_number,
    as_range_of,
    by_channel,
    on_image,
    on_rgb,
    per_channel,
    plain,
)
from jaxaug.augment._chain import Pointwise
from jaxaug.augment._ops.hsv import from_hsv, to_hsv
from jaxaug.augment.random import between, integer, order, permutation, uniform


@on_image
def permute_channels(image: Array, permutation: Any) -> Array:
    """Return the image whose channel i is channel `permutation[i]` of the given one.

    Args:
      image: float [H, W, C] in [0, 1].
      permutation: int[C], each of 0 to C - 1 once; static or traced.

    Example:
      >>> import jax.numpy as jnp
      >>> print(permute_channels(jnp.array([[[0.25, 0.5, 1.0]]]), [2, 0, 1])[0, 0])
      [1.   0.25 0.5 ]
    """
    channels = image.shape[2]
    given = permutation
    permutation = jnp.asarray(given, jnp.int32)
    if permutation.shape != (channels,):
        raise ValueError(
            f"`permutation` must have one entry for each of the {channels} channels, got the"
            f" shape {permutation.shape}."
        )
    if not isinstance(given, jax.Array) and sorted(given) != list(range(channels)):
        raise ValueError(
            f"`permutation` must have each of 0 to {channels - 1} once, got {plain(given)}."
        )
    return jnp.take(image, permutation, axis=2, mode="clip")


@on_image
def drop_channels(image: Array, keep: Any, fill: Scalar = 0.0) -> Array:
    """Return the image with `fill` in the channels that are not kept.

    Args:
      image: float [H, W, C] in [0, 1].
      keep: bool[C], True for the channels that stay.
      fill: the value of the others, in [0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> print(drop_channels(jnp.array([[[0.25, 0.5, 1.0]]]), [True, False, True])[0, 0])
      [0.25 0.   1.  ]
    """
    return jnp.where(jnp.asarray(keep, bool)[None, None], image, fill)


@on_image
def scale_channels(image: Array, gain: Any, offset: Any = 0.0) -> Array:
    """Return gain * image + offset.

    Args:
      image: float [H, W, C] in [0, 1].
      gain, offset: numbers, or [C] with one of each channel.

    Example:
      >>> import jax.numpy as jnp
      >>> scale_channels(jnp.full((1, 1, 2), 0.5), [1.0, 0.5], [0.25, 0.0])[0, 0].tolist()
      [0.75, 0.25]
    """
    return image * per_channel("gain", gain, image) + per_channel("offset", offset, image)


@on_rgb
def shift_rgb(image: Array, red: Scalar, green: Scalar, blue: Scalar) -> Array:
    """Return the image with a number added to each channel.

    Args:
      image: float [H, W, 3] in [0, 1].
      red, green, blue: what is added, in [-1, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> print(shift_rgb(jnp.full((1, 1, 3), 0.5), 0.25, 0.0, -0.25)[0, 0])
      [0.75 0.5  0.25]

    Differs from kornia in not clipping.
    """
    return image + by_channel(red, green, blue)


@on_rgb
def shift_hsv(image: Array, hue: Scalar, saturation: Scalar, value: Scalar) -> Array:
    """Return the image with a number added to its hue, saturation and value.

    The saturation and the value are clipped to [0, 1], so the colors are, too. Gray has the hue of
    red.

    Args:
      image: float [H, W, 3] in [0, 1].
      hue: added to the hue, in turns; 1/3 takes red to green.
      saturation, value: added to the saturation and to the value, in [-1, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> shift_hsv(jnp.array([[[1.0, 0.0, 0.0]]]), 1 / 3, 0.0, -0.5)[0, 0].round(3).tolist()
      [0.0, 0.5, 0.0]

    Reference: `albumentations.HueSaturationValue`, there in half degrees and 255ths.
    """
    turns, relative, largest = to_hsv(image)
    relative = jnp.clip(relative + saturation, 0.0, 1.0)
    largest = jnp.clip(largest + value, 0.0, 1.0)
    return from_hsv(turns + hue, relative, largest)


@on_rgb
def adjust_hue_yiq(image: Array, hue_factor: Scalar) -> Array:
    """Return the image with its chroma turned about the gray axis, at constant luma.

    The plane (I, Q) of the YIQ form is rotated: one linear map of the colors, smooth everywhere and
    cheaper than the hue of HSV, whose turn keeps the largest channel.

    Args:
      image: float [H, W, 3] in [0, 1].
      hue_factor: the turn, in turns; small positive ones take red towards yellow.

    Example:
      >>> import jax.numpy as jnp
      >>> print(adjust_hue_yiq(jnp.full((1, 1, 3), 0.5), 0.3)[0, 0].round(3))
      [0.5 0.5 0.5]

    Reference: `nvidia.dali.fn.hue`, there in degrees.
    """
    angle = jnp.asarray(hue_factor, jnp.float32) * (2 * np.pi)
    cosine = jnp.cos(angle)
    sine = jnp.sin(angle)
    matrix = cosine * _CHROMA + sine * _QUARTER_TURN + _LUMA
    # Written out: a dot would round by the size of the batch.
    red, green, blue = (image[:, :, channel] for channel in range(3))
    rows = [matrix[i, 0] * red + matrix[i, 1] * green + matrix[i, 2] * blue for i in range(3)]
    return jnp.stack(rows, axis=2)


# ---- transforms


@dataclass(frozen=True)
class RandomChannelPermutation(Pointwise):
    """Put the channels in a random order.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.array([[[1, 2, 3]]], jnp.uint8)
      >>> sorted(RandomChannelPermutation()(jax.random.key(0), image)[0, 0].tolist())
      [1, 2, 3]
    """

    across_channels = True
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the order."""
        return permutation(key, info.channels or 3)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Permute the channels."""
        return permute_channels(image, params)


@dataclass(frozen=True)
class ChannelDropout(Pointwise):
    """Fill some of the channels, or bands, with one value, with probability `p`.

    Args:
      channel_drop_range: (low, high), ints from 0 to the number of channels of the image, the range
        of how many are filled.
      fill: the value that they get, in [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.array([[[9, 9, 9]]], jnp.uint8)
      >>> sorted(ChannelDropout(p=1.0)(jax.random.key(0), image)[0, 0].tolist())
      [0, 9, 9]

    Reference: `albumentations.ChannelDropout`.
    """

    by_value = True
    channel_drop_range: Annotated[tuple[int, int], Converter(as_int_range, 0)] = (1, 1)
    fill: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.0
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the channels that stay, bool[C]."""
        channels = info.channels or 3
        low, high = self.channel_drop_range
        if high > channels:
            raise ValueError(
                f"`channel_drop_range` of ChannelDropout must end at the {channels} channels of the"
                f" image, got {self.channel_drop_range}."
            )
        numbers = uniform(key, shape=(channels + 1,))
        return order(numbers[:channels]) >= integer(numbers[channels], low, high + 1)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Drop the channels."""
        return drop_channels(image, params, self.fill)


class Levels(NamedTuple):
    """Drawn parameters of `BandGain`: float32[C], by what each channel is multiplied, and added."""

    gain: Array
    offset: Array


@dataclass(frozen=True)
class BandGain(Pointwise):
    """Multiply each channel, or band, by a number of its own, and add another.

    A sensor's calibration drifts so, and the light that reaches it. Values are clipped to [0, 1].

    Args:
      gain: (low, high), at least 0, the range of the factors; one number for both.
      offset: (low, high), the range of what is added; one number for both.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.full((8, 9, 13), 20_000, jnp.uint16)
      >>> BandGain((2.0, 2.0))(jax.random.key(0), image)[0, 0, :3].tolist()
      [40000, 40000, 40000]
    """

    by_value = True
    gain: Annotated[Range, Converter(as_range_of, 0.0)] = (0.8, 1.2)
    offset: Annotated[Range, Converter(as_range_of, -1.0, 1.0)] = 0.0
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Levels:
        """Draw the numbers of each channel."""
        numbers = uniform(key, shape=(2, info.channels or 3))
        return Levels(between(numbers[0], *self.gain), between(numbers[1], *self.offset))

    def apply(self, params: Levels, image: Array, info: ImageInfo) -> Array:
        """Scale the channels."""
        return jnp.clip(scale_channels(image, *params), 0.0, 1.0)


@dataclass(frozen=True)
class RandomRGBShift(Pointwise):
    """Add a random number to each of red, green and blue, with probability `p`.

    Values are clipped to [0, 1].

    Args:
      r_shift_limit, g_shift_limit, b_shift_limit: v draws from [-v, v], a pair (low, high) from
        itself.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomRGBShift()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `kornia.augmentation.RandomRGBShift`.
    """

    by_value = True
    channels = 3
    r_shift_limit: SymmetricRange = 0.5
    g_shift_limit: SymmetricRange = 0.5
    b_shift_limit: SymmetricRange = 0.5
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw what is added, float32[3]."""
        limits = (self.r_shift_limit, self.g_shift_limit, self.b_shift_limit)
        numbers = uniform(key, shape=(3,))
        return jnp.stack([between(number, *pair) for number, pair in zip(numbers, limits)])

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Shift the channels."""
        return jnp.clip(shift_rgb(image, params[0], params[1], params[2]), 0.0, 1.0)


class HSVShift(NamedTuple):
    """Drawn parameters of `HueSaturationValue`: float32, the hue in turns."""

    hue: Array
    saturation: Array
    value: Array


@dataclass(frozen=True)
class HueSaturationValue(Pointwise):
    """Add random numbers to hue, saturation and value, with probability `p`.

    Args:
      hue_shift_limit: in turns; v draws from [-v, v], a pair (low, high) from itself.
      sat_shift_limit, val_shift_limit: the same, in values of [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> HueSaturationValue()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.HueSaturationValue`, there in half degrees and 255ths.
    """

    channels = 3
    across_channels = True
    hue_shift_limit: SymmetricRange = 20 / 180
    sat_shift_limit: SymmetricRange = 30 / 255
    val_shift_limit: SymmetricRange = 20 / 255
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> HSVShift:
        """Draw what is added."""
        limits = (self.hue_shift_limit, self.sat_shift_limit, self.val_shift_limit)
        numbers = uniform(key, shape=(3,))
        return HSVShift(*(between(number, *pair) for number, pair in zip(numbers, limits)))

    def apply(self, params: HSVShift, image: Array, info: ImageInfo) -> Array:
        """Shift the colors."""
        return shift_hsv(image, *params)


@dataclass(frozen=True)
class RandomHueYIQ(Pointwise):
    """Turn the chroma about the gray axis by a random angle; see `functional.adjust_hue_yiq`.

    Values are clipped to [0, 1].

    Args:
      hue: v in [0, 0.5] draws the turn from [-v, v] turns, a pair (low, high) from itself.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomHueYIQ(0.1)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    channels = 3
    across_channels = True
    hue: SymmetricRange = 0.5
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the turn."""
        return uniform(key, *self.hue)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Turn the chroma."""
        return jnp.clip(adjust_hue_yiq(image, params), 0.0, 1.0)


# ---- the YIQ form

_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)
# A turn of the chroma is cos _CHROMA + sin _QUARTER_TURN + _LUMA. Hue grows from I towards -Q.
_LUMA = (_FROM_YIQ @ np.diag([1.0, 0.0, 0.0]) @ _TO_YIQ).astype(np.float32)
_CHROMA = (_FROM_YIQ @ np.diag([0.0, 1.0, 1.0]) @ _TO_YIQ).astype(np.float32)
_QUARTER_TURN = (
    _FROM_YIQ @ np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]) @ _TO_YIQ
).astype(np.float32)
