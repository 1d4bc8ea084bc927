"""Light and weather that lie over a picture: gradients, clouds of light, fog, snow, old prints.

The pure functions take float images in [0, 1] and do not clip. What lies over the picture is a
function of the place as a share of height and width, of the used part of a canvas with `size`.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Color,
    Converter,
    ImageInfo,
    Range,
    UnitRange,
    as_choice,
    as_number,
    as_range,
    as_symmetric_range,
    by_channel,
    extent,
    on_image,
    on_rgb,
)
from jaxaug.augment._chain import Pointwise
from jaxaug.augment.random import between, normal_field, uniform

_OCTAVES = 5  # 2 to 32 cells: the finest have the size of a thirtieth of the picture


@on_rgb
def sepia(image: Array) -> Array:
    """Return the image in the brown of old prints: each channel a sum of red, green and blue.

    Args:
      image: float [H, W, 3] in [0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> print((sepia(jnp.full((1, 1, 3), 0.5))[0, 0] * 1000).round())
      [676. 602. 468.]

    Reference: the weights are those of `albumentations.ToSepia`, and of the W3C's filter effects.
    """
    red, green, blue = (image[:, :, channel, None] for channel in range(3))
    return (
        red * by_channel(0.393, 0.349, 0.272)
        + green * by_channel(0.769, 0.686, 0.534)
        + blue * by_channel(0.189, 0.168, 0.131)
    )


@on_image
def linear_illumination(image: Array, intensity: Scalar, angle: Scalar, size: Any = None) -> Array:
    """Return the image with light added along a direction, from 0 at one side to its full at the
    other.

    Args:
      image: float [H, W, C] in [0, 1].
      intensity: what is added at most; negative numbers darken.
      angle: of the direction in which it grows, degrees, counter-clockwise on the screen from the
        right.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> lit = linear_illumination(jnp.zeros((1, 4, 1)), 0.8, 0.0)
      >>> [f"{value:.1f}" for value in lit[0, :, 0]]
      ['0.1', '0.3', '0.5', '0.7']

    Reference: `kornia.augmentation.RandomLinearIllumination`, `albumentations.Illumination`.
    """
    y, x = places(image, size)
    radians = jnp.deg2rad(jnp.asarray(angle, jnp.float32))
    right, up = jnp.cos(radians), jnp.sin(radians)
    # From corner to corner: the shares of both axes add up to at most 1.
    along = (x - 0.5) * right - (y - 0.5) * up
    share = along / (jnp.abs(right) + jnp.abs(up)) + 0.5
    return image + intensity * share[:, :, None]


@on_image
def gaussian_illumination(
    image: Array, intensity: Scalar, center: Any, sigma: Scalar, size: Any = None
) -> Array:
    """Return image * (1 + intensity * a Gaussian about a center): a spot of light, or of shadow.

    Args:
      image: float [H, W, C] in [0, 1].
      intensity: at the center; negative numbers darken.
      center: (x, y), as shares of width and height.
      sigma: the standard deviation, as a share of the longer side.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> spot = gaussian_illumination(jnp.full((1, 5, 1), 0.5), 1.0, (0.5, 0.5), 0.2)
      >>> [f"{value:.2f}" for value in spot[0, :, 0]]
      ['0.57', '0.80', '1.00', '0.80', '0.57']

    Reference: `albumentations.Illumination` with mode "gaussian".
    """
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    longer = jnp.maximum(height, width)
    y, x = places(image, size)
    down = (y - center[1]) * (height / longer)
    right = (x - center[0]) * (width / longer)
    spot = jnp.exp(-(down * down + right * right) / (2 * sigma * sigma))
    return image * (1 + intensity * spot)[:, :, None]


@on_image
def plasma_light(
    image: Array, plasma: Array, brightness: Scalar, contrast: Scalar, size: Any = None
) -> Array:
    """Return the image with brightness and contrast changed by a cloud, where it is dense.

    With n the cloud in [0, 1]: image + brightness * n, then away from 1/2 by 1 + contrast * n.

    Args:
      image: float [H, W, C] in [0, 1].
      plasma: float[n, n], the cloud at nodes from edge to edge, read bilinearly.
      brightness, contrast: at the densest.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> cloud = jnp.array([[0.0, 1.0], [0.0, 1.0]])
      >>> darker = plasma_light(jnp.full((1, 4, 1), 0.5), cloud, -0.4, 0.0)
      >>> [f"{value:.2f}" for value in darker[0, :, 0]]
      ['0.45', '0.35', '0.25', '0.15']

    Reference: `albumentations.PlasmaBrightnessContrast`.

    Differs from it in the contrast, there about the mean of the image.
    """
    density = _read(plasma, image, size)[:, :, None]
    lit = image + brightness * density
    return 0.5 + (lit - 0.5) * (1 + contrast * density)


@on_image
def fog(image: Array, density: Scalar, color: Any = 200 / 255, size: Any = None) -> Array:
    """Return the image behind fog that is thicker toward the top, as toward the horizon.

    With depth d, 0 at the lower edge and 1 at the upper: image * t + color * (1 - t) with t =
    exp(-density * d), the law of Beer and Lambert.

    Args:
      image: float [H, W, C] in [0, 1].
      density: at least 0; 0 is the image.
      color: in [0, 1], a number or one per channel.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> print(fog(jnp.zeros((4, 1, 1)), 2.0, 1.0)[:, 0, 0].round(2))
      [0.83 0.71 0.53 0.22]

    Reference: `albumentations.AtmosphericFog` with depth_mode "linear".
    """
    y, _ = places(image, size)
    through = jnp.exp(-density * (1 - y))[:, :, None]
    haze = jnp.asarray(color, jnp.float32).reshape(1, 1, -1)
    return haze + through * (image - haze)


@on_rgb
def snow(image: Array, snow_point: Scalar, brightness: Scalar = 2.5) -> Array:
    """Return the image with the lightness of its darker parts multiplied: bleached, as in snow.

    The lightness (max + min) / 2 is multiplied where it is below snow_point / 2 + 1/3, to at most
    1; hue and saturation of HLS stay.

    Args:
      image: float [H, W, 3] in [0, 1].
      snow_point: in [0, 1].
      brightness: the factor.

    Example:
      >>> import jax.numpy as jnp
      >>> snow(jnp.array([[[0.2, 0.2, 0.2], [0.8, 0.8, 0.8]]]), 0.2)[0, :, 0].tolist()
      [0.5, 0.800000011920929]

    Reference: `albumentations.RandomSnow` with method "bleach".
    """
    lightness = lightness_of(image)
    bleached = jnp.minimum(lightness * brightness, 1.0)
    bleached = jnp.where(lightness < snow_point / 2 + 1 / 3, bleached, lightness)
    return with_lightness(image, bleached)


@on_image
def film_grain(image: Array, grain: Array, intensity: Scalar) -> Array:
    """Return image + intensity * (1 - mean of its channels) * grain: it shows in shadows.

    Args:
      image: float [H, W, C] in [0, 1].
      grain: float[H, W], normal noise.
      intensity: of the grain in black.

    Example:
      >>> import jax.numpy as jnp
      >>> print(film_grain(jnp.array([[[0.0], [0.75]]]), jnp.ones((1, 2)), 0.2)[0, :, 0])
      [0.2 0.8]

    Reference: `albumentations.FilmGrain`.
    """
    dark = 1 - jnp.mean(image, axis=2)
    return image + (intensity * dark * grain)[:, :, None]


# ---- transforms


@dataclass(frozen=True)
class ToSepia(Pointwise):
    """Color the image as old prints are, with probability `p`; see `functional.sepia`.

    Values are clipped to [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ToSepia()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    across_channels = True
    channels = 3
    p: float = 0.5

    def apply(self, params: None, image: Array, info: ImageInfo) -> Array:
        """Color the pixels."""
        return jnp.clip(sepia(image), 0.0, 1.0)


class Light(NamedTuple):
    """Drawn parameters of `Illumination`: float32, the center and sigma as shares."""

    intensity: Array
    angle: Array
    center: Array
    sigma: Array


@dataclass(frozen=True)
class Illumination(Pointwise):
    """Light the image from one side, or by a spot, with probability `p`.

    Values are clipped to [0, 1]. See `functional.linear_illumination` and `gaussian_illumination`.

    Args:
      mode: "linear" or "gaussian".
      intensity_range: (low, high), within [0, 1], the range of the strength.
      effect_type: "brighten", "darken", or "both" for either by a coin.
      angle_range: (low, high) of "linear", degrees.
      center_range: (low, high) of "gaussian", within [0, 1], of both coordinates.
      sigma_range: (low, high) of "gaussian", as shares of the longer side.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Illumination()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.Illumination`; kornia's RandomLinearIllumination and
      RandomGaussianIllumination.
    """

    mode: Annotated[str, Converter(as_choice, ("linear", "gaussian"))] = "linear"
    intensity_range: UnitRange = (0.01, 0.2)
    effect_type: Annotated[str, Converter(as_choice, ("both", "brighten", "darken"))] = "both"
    angle_range: Annotated[Range, Converter(as_range)] = (0.0, 360.0)
    center_range: UnitRange = (0.1, 0.9)
    sigma_range: Annotated[Range, Converter(as_range, 1e-3)] = (0.2, 1.0)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Light:
        """Draw strength, sign, direction and spot."""
        numbers = uniform(key, shape=(6,))
        darkens = {"both": numbers[1] < 0.5, "brighten": False, "darken": True}[self.effect_type]
        strength = between(numbers[0], *self.intensity_range)
        return Light(
            jnp.where(darkens, -strength, strength),
            between(numbers[2], *self.angle_range),
            between(numbers[3:5], *self.center_range),
            between(numbers[5], *self.sigma_range),
        )

    def apply(self, params: Light, image: Array, info: ImageInfo) -> Array:
        """Light the used part."""
        strength, angle, center, sigma = params
        if self.mode == "linear":
            lit = linear_illumination(image, strength, angle, info.size)
        else:
            lit = gaussian_illumination(image, strength, center, sigma, info.size)
        return jnp.clip(lit, 0.0, 1.0)


class Plasma(NamedTuple):
    """Drawn parameters of the clouds: the key of their noise, roughness, and strengths."""

    key: Key
    roughness: Array
    brightness: Array
    contrast: Array

    @property
    def nodes(self) -> Array:
        """The cloud float32[n, n]."""
        return cloud(uniform(jax.random.fold_in(self.key, 1), shape=(_NOISE,)), self.roughness)


@dataclass(frozen=True)
class PlasmaBrightnessContrast(Pointwise):
    """Change brightness and contrast by a random cloud, with probability `p`.

    Values are clipped to [0, 1]. See `functional.plasma_light`; the cloud is a sum of noises, each
    twice as fine as the one before and `roughness` times as strong, stretched to [0, 1].

    Args:
      brightness_range, contrast_range: (low, high), within [-1, 1]; a number v means (-v, v).
      roughness: (low, high), within [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PlasmaBrightnessContrast()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.PlasmaBrightnessContrast`; the roughness is that of kornia's
      RandomPlasmaBrightness and RandomPlasmaContrast.
    """

    brightness_range: Annotated[Range, Converter(as_symmetric_range, -1.0, 1.0)] = (-0.3, 0.3)
    contrast_range: Annotated[Range, Converter(as_symmetric_range, -1.0, 1.0)] = (-0.3, 0.3)
    roughness: UnitRange = (0.1, 0.7)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Plasma:
        """Draw the cloud and the strengths."""
        numbers = uniform(key, shape=(3,))
        brightness = between(numbers[0], *self.brightness_range)
        contrast = between(numbers[1], *self.contrast_range)
        return Plasma(key, between(numbers[2], *self.roughness), brightness, contrast)

    def apply(self, params: Plasma, image: Array, info: ImageInfo) -> Array:
        """Light the used part."""
        strengths = params.brightness, params.contrast
        return jnp.clip(plasma_light(image, params.nodes, *strengths, info.size), 0.0, 1.0)


@dataclass(frozen=True)
class PlasmaShadow(Pointwise):
    """Darken by a random cloud, with probability `p`: image * (1 - intensity * cloud).

    Args:
      shadow_intensity_range: (low, high), within [0, 1].
      roughness: see `PlasmaBrightnessContrast`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> PlasmaShadow()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.PlasmaShadow`, kornia's RandomPlasmaShadow.
    """

    shadow_intensity_range: UnitRange = (0.3, 0.7)
    roughness: UnitRange = (0.1, 0.7)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Plasma:
        """Draw the cloud and its strength."""
        numbers = uniform(key, shape=(2,))
        strength = between(numbers[0], *self.shadow_intensity_range)
        return Plasma(key, between(numbers[1], *self.roughness), strength, jnp.zeros_like(strength))

    def apply(self, params: Plasma, image: Array, info: ImageInfo) -> Array:
        """Darken the used part."""
        shade = _read(params.nodes, image, info.size)[:, :, None]
        return image * (1 - params.brightness * shade)


@dataclass(frozen=True)
class AtmosphericFog(Pointwise):
    """Put fog before the image, with probability `p`; see `functional.fog`.

    Args:
      density_range: (low, high), at least 0.
      fog_color: in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> AtmosphericFog()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.AtmosphericFog` with depth_mode "linear".
    """

    density_range: Annotated[Range, Converter(as_range, 0.0)] = (1.0, 3.0)
    fog_color: Color = 200 / 255
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the density."""
        return uniform(key, *self.density_range)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Veil the used part."""
        return fog(image, params, self.fog_color, info.size)


@dataclass(frozen=True)
class RandomSnow(Pointwise):
    """Bleach the darker parts, as snow does, with probability `p`; see `functional.snow`.

    Values are clipped to [0, 1].

    Args:
      snow_point_range: (low, high), within [0, 1].
      brightness_coeff: the factor, at least 0.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomSnow()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.RandomSnow` with method "bleach".
    """

    across_channels = True
    channels = 3
    snow_point_range: UnitRange = (0.1, 0.3)
    brightness_coeff: Annotated[float, Converter(as_number, 0.0, 1e3)] = 2.5
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the snow point."""
        return uniform(key, *self.snow_point_range)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Bleach the pixels."""
        return jnp.clip(snow(image, params, self.brightness_coeff), 0.0, 1.0)


class Grain(NamedTuple):
    """Drawn parameters of `FilmGrain`: float32 strength, and the key of the grain."""

    intensity: Array
    key: Key


@dataclass(frozen=True)
class FilmGrain(Pointwise):
    """Add the grain of film, strongest in the shadows, with probability `p`.

    Values are clipped to [0, 1]. See `functional.film_grain`.

    Args:
      intensity_range: (low, high), within [0, 1], the range of the strength.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> FilmGrain()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.FilmGrain`, with grains of one pixel.
    """

    intensity_range: UnitRange = (0.1, 0.3)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Grain:
        """Draw the strength, and the key of the grain."""
        grain, strength = jax.random.split(key)
        return Grain(uniform(strength, *self.intensity_range), grain)

    def apply(self, params: Grain, image: Array, info: ImageInfo) -> Array:
        """Add the grain."""
        grain = normal_field(params.key, image.shape[:2])
        return jnp.clip(film_grain(image, grain, params.intensity), 0.0, 1.0)


def cloud(noise: Array, roughness: Scalar) -> Array:
    """Return noise of all octaves as one field float32[n, n] in [0, 1].

    Args:
      noise: float[...], numbers for the nodes of all octaves, one after the other.
      roughness: the strength of an octave beside the one before.
    """
    field = jnp.zeros((2, 2), jnp.float32)
    first = 0
    strength = jnp.float32(1.0)
    for octave in range(1, _OCTAVES + 1):
        side = 2**octave + 1
        own = noise[first : first + side * side].reshape(side, side)
        first += side * side
        field = _doubled(_doubled(field, 0), 1) + strength * own
        strength = strength * roughness
    lowest, highest = field.min(), field.max()
    return (field - lowest) / jnp.maximum(highest - lowest, 1e-6)


_NOISE = sum((2**octave + 1) ** 2 for octave in range(1, _OCTAVES + 1))


def _doubled(nodes: Array, axis: int) -> Array:
    """Return nodes with their means between them along an axis."""
    nodes = jnp.moveaxis(nodes, axis, 0)
    between_nodes = (nodes[:-1] + nodes[1:]) / 2
    pairs = jnp.stack([nodes[:-1], between_nodes], axis=1).reshape(-1, nodes.shape[1])
    return jnp.moveaxis(jnp.concatenate([pairs, nodes[-1:]]), 0, axis)


def lightness_of(image: Array) -> Array:
    """Return the lightness of HLS, (max + min) / 2 of the channels, float[H, W]."""
    return (image.max(axis=2) + image.min(axis=2)) / 2


def with_lightness(image: Array, wanted: Array) -> Array:
    """Return the image with another lightness [H, W], its hue and saturation of HLS kept."""
    lightness = lightness_of(image)
    # The chroma of a saturation is in proportion to 1 - |2 L - 1|.
    chroma = (1 - jnp.abs(2 * wanted - 1)) / jnp.maximum(1 - jnp.abs(2 * lightness - 1), 1e-6)
    return wanted[:, :, None] + (image - lightness[:, :, None]) * chroma[:, :, None]


def places(image: Array, size: Any) -> tuple[Array, Array]:
    """Return y [H, 1] and x [1, W] of pixel centers, as shares of the used sides."""
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    y = (jnp.arange(image.shape[0], dtype=jnp.float32) + 0.5) / height
    x = (jnp.arange(image.shape[1], dtype=jnp.float32) + 0.5) / width
    return y[:, None], x[None, :]


def _read(nodes: Array, image: Array, size: Any) -> Array:
    """Return the field of nodes from edge to edge at the pixels of the image, bilinearly."""
    y, x = places(image, size)
    rows = _between(nodes, y[:, 0], 0)
    return _between(rows, x[0], 1)


def _between(nodes: Array, share: Array, axis: int) -> Array:
    last = nodes.shape[axis] - 1
    place = jnp.clip(share, 0.0, 1.0) * last
    before = jnp.minimum(jnp.floor(place).astype(jnp.int32), last - 1)
    along = place - before.astype(jnp.float32)
    along = along[:, None] if axis == 0 else along[None, :]
    low = jnp.take(nodes, before, axis=axis, mode="clip")
    high = jnp.take(nodes, before + 1, axis=axis, mode="clip")
    return low + (high - low) * along
