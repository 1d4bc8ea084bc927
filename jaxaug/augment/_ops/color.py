"""Transforms of color: float32 in [0, 1], RGB, written out per channel.

The pure functions take float images [H, W, 3] in [0, 1] and do not clip; the transforms clip where
torchvision does. Nothing here is a matrix product: three channels are too few for one, and its
rounding would depend on the batch size.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    LARGEST,
    Converter,
    Drawn,
    ImageInfo,
    Range,
    as_range,
    info_of,
    is_number,
    on_rgb,
    ordered,
    setting,
)
from jaxaug.augment._chain import ImageOp, Pointwise
from jaxaug.augment._cuda import choice
from jaxaug.augment._cuda import jitter as cuda_jitter
from jaxaug.augment._ops.channels import permute_channels
from jaxaug.augment._ops.hsv import shift_hue
from jaxaug.augment._xla import exact_sum, from_planes, to_planes
from jaxaug.augment.matrix import is_static
from jaxaug.augment.random import between, order, uniform

_GRAY = (0.2989, 0.587, 0.114)  # torchvision's and OpenCV's weights of red, green and blue


@on_rgb
def adjust_brightness(image: Array, brightness_factor: Scalar) -> Array:
    """Return image * `brightness_factor`.

    Args:
      image: float [H, W, 3] in [0, 1].
      brightness_factor: 0 is black, 1 the image.

    Example:
      >>> import jax.numpy as jnp
      >>> adjust_brightness(jnp.full((1, 1, 3), 0.5), 1.5).tolist()
      [[[0.75, 0.75, 0.75]]]

    Differs from torchvision in not clipping.
    """
    return image * brightness_factor


@on_rgb
def adjust_contrast(image: Array, contrast_factor: Scalar, size: Any = None) -> Array:
    """Return the blend with the mean of the gray values: f * image + (1 - f) * mean.

    Args:
      image: float [H, W, 3] in [0, 1].
      contrast_factor: f; 0 is flat gray, 1 the image.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.array([0.0, 1.0]).reshape(1, 2, 1) * jnp.ones((1, 1, 3))
      >>> adjust_contrast(image, 0.5)[0, :, 0].round(2).tolist()
      [0.25, 0.75]

    Differs from torchvision in not clipping.
    """
    planes = to_planes(image)
    mean = _mean_gray(planes, info_of(image, size))
    return from_planes(contrast_factor * planes + (1 - contrast_factor) * mean)


@on_rgb
def adjust_saturation(image: Array, saturation_factor: Scalar) -> Array:
    """Return the blend with the gray values: f * image + (1 - f) * gray.

    Args:
      image: float [H, W, 3] in [0, 1].
      saturation_factor: f; 0 is gray, 1 the image.

    Example:
      >>> import jax.numpy as jnp
      >>> print(adjust_saturation(jnp.array([[[1.0, 0.0, 0.0]]]), 0.0)[0, 0])
      [0.2989 0.2989 0.2989]

    Differs from torchvision in not clipping.
    """
    planes = to_planes(image)
    return from_planes(saturation_factor * planes + ((1 - saturation_factor) * _gray(planes))[None])


@on_rgb
def adjust_hue(image: Array, hue_factor: Scalar) -> Array:
    """Return the image with the hue of its HSV form shifted.

    Args:
      image: float [H, W, 3] in [0, 1].
      hue_factor: the shift in turns, in [-0.5, 0.5]; 1/3 takes red to green.

    Example:
      >>> import jax.numpy as jnp
      >>> adjust_hue(jnp.array([[[1.0, 0.0, 0.0]]]), 1 / 3)[0, 0].round(3).tolist()
      [0.0, 1.0, 0.0]
    """
    return from_planes(shift_hue(to_planes(image), hue_factor))


@on_rgb
def rgb_to_grayscale(image: Array, num_output_channels: int = 1) -> Array:
    """Return 0.2989 red + 0.587 green + 0.114 blue.

    Args:
      image: float [H, W, 3] in [0, 1].
      num_output_channels: 1 or 3, how often the gray channel is repeated.

    Example:
      >>> import jax.numpy as jnp
      >>> print(rgb_to_grayscale(jnp.array([[[0.0, 1.0, 0.0]]])))
      [[[0.587]]]
    """
    gray = _gray(to_planes(image))
    return jnp.repeat(gray[:, :, None], num_output_channels, axis=2)


# ---- transforms


def _as_factor_range(name: str, value: Any) -> tuple[Scalar, Scalar]:
    """Return (max(0, 1 - v), 1 + v) of one number, or a pair as it is."""
    value = setting(value)
    if is_number(value):
        if not ordered(0, value, LARGEST):
            raise ValueError(
                f"`{name}` must be one number of at least 0 or a pair (low, high), got {value!r}."
            )
        low = max(0.0, 1.0 - value) if is_static(value) else jnp.maximum(0.0, 1.0 - value)
        return low, 1.0 + value
    return as_range(name, value, 0.0)


def _as_hue_range(name: str, value: Any) -> tuple[Scalar, Scalar]:
    """Return (-v, v) of one number, or a pair as it is, within half a turn."""
    value = setting(value)
    if is_number(value) and not ordered(0, value, 0.5):
        raise ValueError(
            f"`{name}` must be one number in [0, 0.5] or a pair within [-0.5, 0.5], got {value!r}."
        )
    pair = (0.0 - value, value) if is_number(value) else value
    return as_range(name, pair, -0.5, 0.5)


class Jitter(NamedTuple):
    """Drawn parameters of `ColorJitter`: float32 factors, the hue shift in turns, and the order.

    `order` int32[k] names the k components that are asked for, in the order of their turns: 0
    brightness, 1 contrast, 2 saturation, 3 hue.
    """

    brightness: Array
    contrast: Array
    saturation: Array
    hue: Array
    order: Array


_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)
_NEUTRAL = (1.0, 1.0, 1.0, 0.0)


@dataclass(frozen=True)
class ColorJitter(ImageOp):
    """Change brightness, contrast, saturation and hue by random amounts, in a random order for each
    image.

    Values are clipped to [0, 1] after each. A component left at 0 costs nothing; without contrast
    no mean is taken.

    Args:
      brightness, contrast, saturation: v draws the factor from [max(0, 1 - v), 1 + v], a pair (low,
        high) from itself.
      hue: v in [0, 0.5] draws the shift from [-v, v] turns, a pair from itself.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ColorJitter(0.4, 0.4, 0.4, 0.1)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in computing in float32 also for uint8, rounding once at the end.
    """

    channels = 3
    brightness: Annotated[Range, Converter(_as_factor_range)] = 0.0
    contrast: Annotated[Range, Converter(_as_factor_range)] = 0.0
    saturation: Annotated[Range, Converter(_as_factor_range)] = 0.0
    hue: Annotated[Range, Converter(_as_hue_range)] = 0.0
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Jitter:
        """Draw the three factors, the shift and the order."""
        numbers = uniform(key, shape=(8,))
        components = jnp.asarray(self.components, jnp.int32)
        return Jitter(
            between(numbers[0], *self.brightness),
            between(numbers[1], *self.contrast),
            between(numbers[2], *self.saturation),
            between(numbers[3], *self.hue),
            lax.sort_key_val(numbers[4:][: len(components)], components)[1],
        )

    def neutral(self, params: Jitter) -> Jitter:
        """Return factors of 1 and no shift."""
        one = jnp.float32(1)
        return Jitter(one, one, one, jnp.float32(0), params.order)

    def apply(self, params: Jitter, image: Array, info: ImageInfo) -> Array:
        """Apply the components in their order."""
        if not self.components:
            return image
        if len(self.components) == 1:  # XLA computes it in one pass with its neighbors
            return self._by_xla(params, image, info)
        return choice.on_gpu(self._by_cuda, self._by_xla, params, image, info)

    def _by_cuda(self, params: Jitter, image: Array, info: ImageInfo) -> Array:
        """Apply the components by CUDA kernels."""
        factors = (params.brightness, params.contrast, params.saturation, params.hue)
        numbers = [*info.extent, *factors, *params.order]
        return cuda_jitter.jitter(image, numbers, len(self.components))

    def _by_xla(self, params: Jitter, image: Array, info: ImageInfo) -> Array:
        """Apply the components by XLA, in the way that is fast on the device."""
        planes = to_planes(image)
        if len(self.components) == 1:
            planes = self._in_two_passes(params, planes, info)
        elif _CONTRAST in self.components:
            in_a_loop = partial(self._in_a_loop, info=info)
            in_two_passes = partial(self._in_two_passes, info=info)
            planes = lax.platform_dependent(params, planes, cpu=in_a_loop, default=in_two_passes)
        else:
            planes = self._in_a_loop(params, planes, info)
        return from_planes(planes)

    def _in_a_loop(self, params: Jitter, planes: Array, info: ImageInfo) -> Array:
        """Apply one component after the other.

        XLA's CPU backend would inline the earlier turns of an unrolled loop into every later mean.
        """

        def turn(planes: Array, component: Array) -> tuple[Array, None]:
            mean = _mean_gray(planes, info) if _CONTRAST in self.components else None
            return self._turn(params, planes, component, mean), None

        return lax.scan(turn, planes, params.order)[0]

    def _in_two_passes(self, params: Jitter, planes: Array, info: ImageInfo) -> Array:
        """Apply the components before contrast, take the mean, and apply all from the start.

        A GPU reads the image twice and writes it once; computing the first components twice costs
        less than writing what they give.
        """
        order = [params.order[turn] for turn in range(len(self.components))]
        before = planes
        seen_contrast = jnp.bool_(False)
        for component in order:
            seen_contrast = seen_contrast | (component == _CONTRAST)
            turned = self._turn(params, before, component, None)
            before = jnp.where(seen_contrast, before, turned)
        mean = _mean_gray(before, info) if _CONTRAST in self.components else None

        for component in order:
            planes = self._turn(params, planes, component, mean)
        return planes

    @property
    def _ranges(self) -> tuple[tuple[Scalar, Scalar], ...]:
        """The ranges of the four components."""
        return self.brightness, self.contrast, self.saturation, self.hue

    @property
    def components(self) -> tuple[int, ...]:
        """The components that are asked for; those of arrays are."""
        asked = []
        for component, ends in enumerate(self._ranges):
            if not all(is_static(end) and end == _NEUTRAL[component] for end in ends):
                asked.append(component)
        return tuple(asked)

    def _turn(self, params: Jitter, planes: Array, component: Array, mean: Array | None) -> Array:
        """Return the planes after one component, traced: a blend with black, the mean gray or gray,
        or a shift of hue. Without the mean, contrast means nothing.

        A part that the component leaves out is multiplied by 0 rather than selected away, see
        `_hsv`.
        """

        def only(index: int, value: Scalar) -> Array:
            return jnp.where(component == index, value, 0.0)

        # Summed, not indexed: a batch that is split on an explicit mesh allows no gather here.
        factor = only(_BRIGHTNESS, params.brightness) + only(_CONTRAST, params.contrast)
        factor = factor + only(_SATURATION, params.saturation) + only(_HUE, 1.0)
        blended = factor * planes
        if mean is not None:
            blended = blended + only(_CONTRAST, 1 - factor) * mean
        if _SATURATION in self.components:
            blended = blended + (only(_SATURATION, 1 - factor) * _gray(planes))[None]
        blended = jnp.clip(blended, 0.0, 1.0)
        if _HUE not in self.components:
            return blended
        turned = only(_HUE, (params.hue != 0).astype(jnp.float32))
        shifted = jnp.clip(shift_hue(planes, params.hue), 0.0, 1.0)
        return turned * shifted + (1 - turned) * blended


@dataclass(frozen=True)
class Grayscale(Pointwise):
    """Replace the colors by their gray value, in all three channels.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Grayscale()(jax.random.key(0), jnp.full((1, 1, 3), 200, jnp.uint8)).tolist()
      [[[200, 200, 200]]]

    Differs from torchvision in always keeping three channels.
    """

    channels = 3
    across_channels = True

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Return the gray image."""
        return rgb_to_grayscale(image, 3)


@dataclass(frozen=True)
class RandomGrayscale(Grayscale):
    """Replace the colors by their gray value, in all three channels, with probability `p`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> gray = RandomGrayscale(p=1.0)(jax.random.key(0), jnp.array([[[0.0, 1.0, 0.0]]]))
      >>> print(gray[0, 0])
      [0.587 0.587 0.587]
    """

    p: float = 0.1


def _gray(planes: Array) -> Array:
    return _GRAY[0] * planes[0] + _GRAY[1] * planes[1] + _GRAY[2] * planes[2]


def _mean_gray(planes: Array, info: ImageInfo) -> Array:
    """Return the mean of the gray values over the used part."""
    gray = _gray(planes)
    used = info.used()
    if used is None:
        return exact_sum(gray) / gray.size
    height, width = info.extent
    return exact_sum(jnp.where(used, gray, 0.0)) / (height * width)


class Distortion(NamedTuple):
    """Drawn parameters of `RandomPhotometricDistort`: a jitter, and int32[3], the channels."""

    jitter: Jitter
    permutation: Array


@dataclass(frozen=True)
class RandomPhotometricDistort(ImageOp):
    """Change brightness, contrast, saturation, hue and the order of the channels, each with
    probability `p`.

    Contrast comes before saturation and hue for one half of the images, after them for the other.
    Values are clipped to [0, 1] after each step.

    Args:
      brightness, contrast, saturation: (low, high), at least 0, the range of the factor.
      hue: (low, high), within [-0.5, 0.5], the range of the shift in turns.
      p: the probability of each of the five.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomPhotometricDistort()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: W. Liu et al., "SSD: Single shot multibox detector", 2016.
    """

    channels = 3
    brightness: Annotated[Range, Converter(as_range, 0.0)] = (0.875, 1.125)
    contrast: Annotated[Range, Converter(as_range, 0.0)] = (0.5, 1.5)
    saturation: Annotated[Range, Converter(as_range, 0.0)] = (0.5, 1.5)
    hue: Annotated[Range, Converter(as_range, -0.5, 0.5)] = (-0.05, 0.05)
    p: float = 0.5

    def draw(self, key: Key, info: ImageInfo) -> Drawn:
        """Draw the parameters, which hold the coin of each of the five."""
        return Drawn(self.make_params(key, info))

    def make_params(self, key: Key, info: ImageInfo) -> Distortion:
        """Draw the coins, the factors, the place of contrast and the order of the channels."""
        numbers = uniform(key, shape=(13,))
        applied = numbers[:5] < self.p
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        neutral = (1.0, 1.0, 1.0, 0.0)
        drawn = [between(number, *pair) for number, pair in zip(numbers[5:9], ranges)]
        brightness, contrast, saturation, hue = (
            jnp.where(on, value, none) for on, value, none in zip(applied, drawn, neutral)
        )
        early, late = self._turns((0, 1, 2, 3)), self._turns((0, 2, 3, 1))  # contrast is 1
        turns = jnp.where(numbers[9] < 0.5, early, late)
        jitter = Jitter(brightness, contrast, saturation, hue, turns)
        same = jnp.arange(3, dtype=jnp.int32)
        permutation = jnp.where(applied[4], order(numbers[10:]), same)
        return Distortion(jitter, permutation)

    def apply(self, params: Distortion, image: Array, info: ImageInfo) -> Array:
        """Apply the steps in their order."""
        jittered = self._jitter.apply(params.jitter, image, info)
        return permute_channels(jittered, params.permutation)

    @property
    def _jitter(self) -> ColorJitter:
        """The transform that does all but the order of the channels."""
        return ColorJitter(self.brightness, self.contrast, self.saturation, self.hue)

    def _turns(self, order: tuple[int, ...]) -> Array:
        """Return those of `order` that the jitter has, as `Jitter.order`."""
        components = self._jitter.components
        return jnp.array([turn for turn in order if turn in components], jnp.int32)
