"""What falls or lies on a picture: rain, shadows, sun flares, gravel, spatter.

The pure functions take float images in [0, 1] and do not clip. Places are shares of height and
width of the used part of a canvas with `size`, so that a draw fits images of any size.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Color,
    Converter,
    ImageInfo,
    PositiveInt,
    Range,
    UnitRange,
    as_choice,
    as_int,
    as_int_range,
    as_number,
    as_range,
    extent,
    floating,
    is_number,
    on_image,
    on_rgb,
    ordered,
    per_channel,
    setting,
)
from jaxaug.augment._chain import ImageOp, Pointwise
from jaxaug.augment._ops.blur import box_blur, gaussian_blur
from jaxaug.augment._ops.correlate import as_kernel_size
from jaxaug.augment._ops.weather import places, with_lightness
from jaxaug.augment._xla import barrier, vary_alike
from jaxaug.augment.random import between, integer, normal_field, uniform

_AT_ONCE = 25  # streaks, or stones, that one turn of a loop lays over the image
Region = Any  # (left, top, right, bottom) as shares of width and height


def as_region(name: str, value: Any) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return (left, top, right, bottom), four numbers of [0, 1] in their order."""
    numbers = setting(value)
    good = isinstance(numbers, tuple) and len(numbers) == 4 and all(map(is_number, numbers))
    if not good or not (ordered(0, *numbers[::2], 1) and ordered(0, *numbers[1::2], 1)):
        expected = "(left, top, right, bottom), shares of [0, 1] in their order"
        raise ValueError(f"`{name}` must be {expected}, got {value!r}.")
    left, top, right, bottom = map(floating, numbers)
    return left, top, right, bottom


@on_image
def rain(
    image: Array,
    drops: Array,
    slant: Scalar,
    *,
    length: Scalar = 1 / 8,
    width: Scalar = 1.0,
    color: Any = 200 / 255,
    size: Any = None,
) -> Array:
    """Return the image behind straight streaks of rain, with edges a pixel soft.

    Args:
      image: float [H, W, C] in [0, 1].
      drops: float[n, 2], (x, y) of the upper ends, as shares of what the streaks leave free.
      slant: degrees from the vertical; positive streaks fall to the right.
      length: of a streak, as a share of the height.
      width: of a streak, in pixels.
      color: in [0, 1], a number or one per channel.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> wet = rain(jnp.zeros((4, 3, 1)), jnp.array([[0.5, 0.0]]), 0.0, length=0.5, color=1.0)
      >>> wet[:, :, 0].tolist()[0], wet[3, 1, 0].tolist()
      ([0.0, 1.0, 0.0], 0.0)

    Reference: `albumentations.RandomRain`, `kornia.augmentation.RandomRain`.
    """
    height, used_width = (side.astype(jnp.float32) for side in extent(image, size))
    y = (jnp.arange(image.shape[0], dtype=jnp.float32) + 0.5)[None, :]
    x = (jnp.arange(image.shape[1], dtype=jnp.float32) + 0.5)[None, :]
    drops = jnp.asarray(drops, jnp.float32)
    down = y - drops[:, 1, None] * (height * (1 - length))
    middle = drops[:, 0, None] * used_width
    middle = middle + down * jnp.tan(jnp.deg2rad(jnp.asarray(slant, jnp.float32)))
    falling = (down >= 0) & (down <= length * height)
    middles = jnp.where(falling, middle, jnp.inf)  # [n, H], of each streak in each line

    def nearer(aside: Array, middle: Array) -> tuple[Array, None]:
        return jnp.minimum(aside, jnp.abs(x - middle[:, None])), None

    # A loop: XLA's GPU backend compiles one minimum over all streaks for minutes.
    away = jnp.full(image.shape[:2], jnp.inf, jnp.float32)
    aside, _ = lax.scan(nearer, *vary_alike(away, middles), unroll=_AT_ONCE)
    cover = jnp.clip(width / 2 + 0.5 - aside, 0.0, 1.0)[:, :, None]
    return image + cover * (per_channel("color", color, image) - image)


@on_image
def shadow(image: Array, vertices: Array, intensity: Any, size: Any = None) -> Array:
    """Return the image times 1 - intensity inside of polygons.

    Args:
      image: float [H, W, C] in [0, 1].
      vertices: float[n, k, 2], the corners (x, y) of n polygons as shares of width and height; a
        point is inside where a ray from it crosses an odd number of edges.
      intensity: float[n], in [0, 1]; 0 leaves the image, 1 is black.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> left = jnp.array([[[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]])
      >>> shadow(jnp.ones((1, 4, 1)), left, jnp.array([0.5]))[0, :, 0].tolist()
      [0.5, 0.5, 1.0, 1.0]

    Reference: `albumentations.RandomShadow`, `cv2.fillPoly`.
    """
    y, x = places(image, size)
    intensity = jnp.asarray(intensity, jnp.float32)
    for polygon in range(vertices.shape[0]):
        crossings = jnp.zeros(image.shape[:2], jnp.int32)
        for corner in range(vertices.shape[1]):
            here, there = vertices[polygon, corner - 1], vertices[polygon, corner]
            spans = (here[1] > y) != (there[1] > y)
            rise = jnp.where(there[1] == here[1], 1.0, there[1] - here[1])
            crossing = here[0] + (y - here[1]) * ((there[0] - here[0]) / rise)
            crossings += (spans & (x < crossing)).astype(jnp.int32)
        dark = jnp.where(crossings % 2 == 1, intensity[polygon], 0.0)
        image = image * (1 - dark)[:, :, None]
    return image


class Ghosts(NamedTuple):
    """Disks of light, each field with n numbers.

    Attributes:
      x, y: of their centers, as shares of width and height.
      radius: as shares of the longer side.
      alpha: their opacity.
      color: [n, C], in [0, 1].
    """

    x: Array
    y: Array
    radius: Array
    alpha: Array
    color: Array


@on_image
def sun_flare(
    image: Array, center: Any, radius: Scalar, color: Any, ghosts: Ghosts, size: Any = None
) -> Array:
    """Return the image with disks of light, then a sun laid over it.

    The opacity of the sun is (1 - r / radius)^3 at the distance r from its center.

    Args:
      image: float [H, W, C] in [0, 1].
      center: (x, y) of the sun, as shares of width and height.
      radius: of its light, as a share of the longer side.
      color: of the sun in [0, 1], a number or one per channel.
      ghosts: the disks, which a lens makes of the sun.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> none = Ghosts(*(jnp.zeros(0),) * 4, jnp.zeros((0, 1)))
      >>> lit = sun_flare(jnp.zeros((1, 4, 1)), (0.0, 0.5), 1.0, 1.0, none)
      >>> print((lit[0, :, 0] * 100).round())
      [67. 24.  5.  0.]

    Reference: `albumentations.RandomSunFlare` with method "overlay".
    """
    if ghosts.color.shape[1] != image.shape[2]:
        raise ValueError(
            f"the disks have {ghosts.color.shape[1]} channels, the image {image.shape[2]}: draw"
            " them with the `channels` of the image in `ImageInfo`."
        )
    height, width = (side.astype(jnp.float32) for side in extent(image, size))
    longer = jnp.maximum(height, width)
    y, x = places(image, size)

    def distance(right: Any, down: Any) -> Array:
        return jnp.hypot((x - right) * (width / longer), (y - down) * (height / longer))

    for i in range(ghosts.x.shape[0]):
        away = distance(ghosts.x[i], ghosts.y[i])
        soft = jnp.clip((ghosts.radius[i] - away) * longer + 0.5, 0.0, 1.0)
        image = image + (ghosts.alpha[i] * soft)[:, :, None] * (ghosts.color[i][None, None] - image)
    light = jnp.clip(1 - distance(*center) / radius, 0.0, 1.0)
    light = (light * light * light)[:, :, None]
    return image + light * (per_channel("color", color, image) - image)


@on_rgb
def gravel(image: Array, stones: Array, half: Array, lightness: Array, size: Any = None) -> Array:
    """Return the image with squares of another lightness; hue and saturation of HLS stay.

    Args:
      image: float [H, W, 3] in [0, 1].
      stones: float[n, 2], (x, y) of the centers, as shares of width and height. Later ones lie on
        earlier ones.
      half: int32[n], half the sides, in pixels.
      lightness: float[n], in [0, 1].
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> stone = jnp.array([[0.5, 0.5]]), jnp.array([1]), jnp.array([1.0])
      >>> gravel(jnp.zeros((1, 6, 3)), *stone)[0, :, 0].tolist()
      [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]

    Reference: `albumentations.RandomGravel`.
    """
    height, width = extent(image, size)
    x = jnp.floor(stones[:, 0] * width.astype(jnp.float32)).astype(jnp.int32)[:, None]
    y = jnp.floor(stones[:, 1] * height.astype(jnp.float32)).astype(jnp.int32)[:, None]
    reach = half[:, None]
    down = jnp.arange(image.shape[0], dtype=jnp.int32)[None]
    right = jnp.arange(image.shape[1], dtype=jnp.int32)[None]
    rows = (down >= y - reach) & (down < y + reach)
    columns = (right >= x - reach) & (right < x + reach)

    def paint(painted: Array, stone: Any) -> tuple[Array, None]:
        rows, columns, light = stone
        return jnp.where(rows[:, None] & columns[None, :], light, painted), None

    bare = jnp.full(image.shape[:2], _BARE, jnp.float32)
    start, strewn = vary_alike(bare, (rows, columns, jnp.asarray(lightness, jnp.float32)))
    wanted, _ = lax.scan(paint, start, strewn, unroll=_AT_ONCE)
    wanted = barrier(wanted)
    return jnp.where((wanted == _BARE)[:, :, None], image, with_lightness(image, wanted))


_BARE = -1.0  # the lightness of pixels without a stone


@on_image
def spatter(image: Array, noise: Array, threshold: Scalar, intensity: Scalar, color: Any) -> Array:
    """Return the image under drops of a color, where smooth noise exceeds a threshold.

    The opacity of a drop grows from 0 at its edge to `intensity` where the noise is a tenth above
    the threshold.

    Args:
      image: float [H, W, C] in [0, 1].
      noise: float[H, W], of about [0, 1].
      threshold: of the noise.
      intensity: the opacity of a drop, in [0, 1].
      color: of the drops in [0, 1], a number or one per channel.

    Example:
      >>> import jax.numpy as jnp
      >>> noise = jnp.array([[0.5, 0.75, 0.9]])
      >>> print(spatter(jnp.zeros((1, 3, 1)), noise, 0.7, 0.5, 1.0)[0, :, 0].round(2))
      [0.   0.25 0.5 ]

    Reference: D. Hendrycks and T. Dietterich, "Benchmarking Neural Network Robustness to Common
      Corruptions and Perturbations", ICLR 2019; `albumentations.Spatter`.
    """
    opacity = (intensity * jnp.clip((noise - threshold) * 10, 0.0, 1.0))[:, :, None]
    return image + opacity * (per_channel("color", color, image) - image)


# ---- transforms


class Streaks(NamedTuple):
    """Drawn parameters of `RandomRain`: float32[n, 2] places of the drops, and degrees."""

    drops: Array
    slant: Array


@dataclass(frozen=True)
class RandomRain(ImageOp):
    """Let streaks of rain fall over the image, blur and darken it, with probability `p`.

    Args:
      slant: (low, high) of the streaks' angle from the vertical, in degrees, within [-80, 80].
      drops: how many there are.
      drop_length: of a streak, as a share of the height, in [0, 1].
      drop_width: in pixels, at least 0.
      drop_color: in [0, 1], a number or one per channel.
      blur: odd, the side of the box that blurs the image afterwards; 1 does not.
      brightness: the factor of the image afterwards, in [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomRain()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.RandomRain`, whose number of drops is a third of the height.

    Differs from albumentations in the number of drops and soft edges; from kornia, which neither
    blurs nor darkens (`blur=1, brightness=1`), in one slant for all streaks.
    """

    slant: Annotated[Range, Converter(as_range, -80.0, 80.0)] = (-10.0, 10.0)
    drops: PositiveInt = 75
    drop_length: Annotated[float, Converter(as_number, 0.0, 1.0)] = 1 / 8
    drop_width: Annotated[float, Converter(as_number, 0.0, 1e6)] = 1.0
    drop_color: Color = 200 / 255
    blur: Annotated[int, Converter(as_kernel_size)] = 7
    brightness: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.7
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Streaks:
        """Draw the slant, and where drops begin."""
        numbers = uniform(key, shape=(2 * self.drops + 1,))
        slant = between(numbers[-1], *self.slant)
        return Streaks(numbers[:-1].reshape(self.drops, 2), slant)

    def apply(self, params: Streaks, image: Array, info: ImageInfo) -> Array:
        """Rain on the used part."""
        streaks = {"length": self.drop_length, "width": self.drop_width, "color": self.drop_color}
        wet = rain(image, params.drops, params.slant, **streaks, size=info.size)
        return box_blur(barrier(wet), self.blur, info.size) * self.brightness


class Shadows(NamedTuple):
    """Drawn parameters of `RandomShadow`: float32[n, k, 2] corners, float32[n] intensities."""

    vertices: Array
    intensity: Array


@dataclass(frozen=True)
class RandomShadow(Pointwise):
    """Darken random polygons, with probability `p`; see `functional.shadow`.

    Args:
      shadow_roi: (left, top, right, bottom), where their corners lie, as shares of width and
        height.
      num_shadows: (low, high), or a number, how many there are.
      vertices: how many corners each has, at least 3.
      intensity: (low, high) of how much they darken, within [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomShadow()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.RandomShadow`.
    """

    shadow_roi: Annotated[Region, Converter(as_region)] = (0.0, 0.5, 1.0, 1.0)
    num_shadows: Annotated[Range, Converter(as_int_range, 1)] = (1, 2)
    vertices: Annotated[int, Converter(as_int, 3)] = 5
    intensity: UnitRange = (0.5, 0.5)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Shadows:
        """Draw how many there are, their corners, and how dark they are."""
        low, high = self.num_shadows
        corners = (high, self.vertices, 2)
        numbers = uniform(key, shape=(2 * high * self.vertices + high + 1,))
        shown = jnp.arange(high, dtype=jnp.int32) < integer(numbers[-1], low, high + 1)
        dark = between(numbers[-1 - high : -1], *self.intensity)
        corners_in = _in_region(numbers[: -1 - high].reshape(corners), self.shadow_roi)
        return Shadows(corners_in, jnp.where(shown, dark, 0.0))

    def apply(self, params: Shadows, image: Array, info: ImageInfo) -> Array:
        """Darken the polygons."""
        return shadow(image, params.vertices, params.intensity, info.size)


class Flare(NamedTuple):
    """Drawn parameters of `RandomSunFlare`: the center (x, y) of the sun, and the disks."""

    center: Array
    ghosts: Ghosts


@dataclass(frozen=True)
class RandomSunFlare(Pointwise):
    """Let the sun shine into the lens, with probability `p`; see `functional.sun_flare`.

    Behind the sun, on a line through its center, lie disks of light, whose radius is up to a fifth
    of the sun's, whose opacity is 0.05 to 0.2, and whose color is up to a fifth darker.

    Args:
      flare_roi: (left, top, right, bottom), where the center of the sun lies, as shares of width
        and height.
      radius: of the sun's light, as a share of the longer side, at least 0.
      color: of the sun in [0, 1], a number or one per channel.
      num_ghosts: (low, high), or a number, how many disks there are.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomSunFlare()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.RandomSunFlare` with method "overlay", whose radius is 400 pixels.
    """

    flare_roi: Annotated[Region, Converter(as_region)] = (0.0, 0.0, 1.0, 0.5)
    radius: Annotated[float, Converter(as_number, 1e-3, 1e3)] = 0.5
    color: Color = 1.0
    num_ghosts: Annotated[Range, Converter(as_int_range, 0)] = (6, 10)
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Flare:
        """Draw the center, the line and the disks."""
        low, high = self.num_ghosts
        channels = 3 if info.channels is None else info.channels
        color = per_channel("color", self.color, jnp.zeros((1, 1, channels), jnp.float32))
        keys = jax.random.split(key)
        numbers = uniform(keys[0], shape=(4,))
        center = _in_region(numbers[:2], self.flare_roi)
        angle = numbers[2] * (2 * jnp.pi)
        each = uniform(keys[1], shape=(3 + channels, high))
        along = between(each[0], -1.0, 1.0)
        shown = jnp.arange(high, dtype=jnp.int32) < integer(numbers[3], low, high + 1)
        ghosts = Ghosts(
            x=center[0] + along * jnp.cos(angle),
            y=center[1] + along * jnp.sin(angle),
            radius=each[1] * (self.radius / 5),
            alpha=jnp.where(shown, between(each[2], 0.05, 0.2), 0.0),
            color=between(each[3:].T, 0.8, 1.0) * color.reshape(1, -1),
        )
        return Flare(center, ghosts)

    def apply(self, params: Flare, image: Array, info: ImageInfo) -> Array:
        """Lay the light over the image."""
        center = (params.center[0], params.center[1])
        return sun_flare(image, center, self.radius, self.color, params.ghosts, info.size)


class Stones(NamedTuple):
    """Drawn parameters of `RandomGravel`, see `functional.gravel`."""

    stones: Array
    half: Array
    lightness: Array


@dataclass(frozen=True)
class RandomGravel(Pointwise):
    """Strew stones over random patches of the image, with probability `p`.

    A patch has a tenth to a fifth of the sides of the region, a stone is 2, 4 or 6 pixels wide and
    has any lightness; see `functional.gravel`.

    Args:
      gravel_roi: (left, top, right, bottom), where the patches lie, as shares of width and height.
      number_of_patches: at least 1.
      stones: in a patch.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomGravel()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.RandomGravel`, whose patches have a stone for 100 pixels.
    """

    channels = 3
    across_channels = True
    gravel_roi: Annotated[Region, Converter(as_region)] = (0.1, 0.4, 0.9, 0.9)
    number_of_patches: PositiveInt = 2
    stones: PositiveInt = 20
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Stones:
        """Draw the patches, and the stones of each."""
        keys = jax.random.split(key)
        left, top, right, bottom = self.gravel_roi
        patches = uniform(keys[0], shape=(4, self.number_of_patches, 1))
        width = between(patches[0], 0.1, 0.2) * (right - left)
        height = between(patches[1], 0.1, 0.2) * (bottom - top)
        corner_x = left + patches[2] * (right - left - width)
        corner_y = top + patches[3] * (bottom - top - height)
        each = uniform(keys[1], shape=(self.number_of_patches, self.stones, 4))
        x, y = corner_x + each[:, :, 0] * width, corner_y + each[:, :, 1] * height
        centers = jnp.stack([x, y], axis=2).reshape(-1, 2)
        return Stones(centers, integer(each[:, :, 2].ravel(), 1, 4), each[:, :, 3].ravel())

    def apply(self, params: Stones, image: Array, info: ImageInfo) -> Array:
        """Paint the stones."""
        return gravel(image, params.stones, params.half, params.lightness, info.size)


class Splash(NamedTuple):
    """Drawn parameters of `Spatter`: a key of the noise, its mean, the threshold, the opacity."""

    key: Array
    mean: Array
    threshold: Array
    intensity: Array


@dataclass(frozen=True)
class Spatter(ImageOp):
    """Spatter the image with rain or mud, with probability `p`; see `functional.spatter`.

    The noise is normal, blurred by a Gaussian.

    Args:
      mode: "rain", light drops, or "mud", dark ones.
      mean: (low, high) of the mean of the noise.
      std: of the noise before the blur, at least 0.
      sigma: of the Gaussian, in pixels.
      threshold: (low, high) of the noise above which there is a drop.
      intensity: (low, high) of the opacity of drops, within [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Spatter()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: D. Hendrycks and T. Dietterich, "Benchmarking Neural Network Robustness to Common
      Corruptions and Perturbations", ICLR 2019; the numbers and colors are albumentations'.

    Differs from both in the rim of rain drops, there drawn from edges of the noise.
    """

    mode: Annotated[str, Converter(as_choice, ("rain", "mud"))] = "rain"
    mean: Annotated[Range, Converter(as_range)] = (0.65, 0.65)
    std: Annotated[float, Converter(as_number, 0.0, 1e6)] = 0.3
    sigma: Annotated[float, Converter(as_number, 0.0, 1e3)] = 2.0
    threshold: Annotated[Range, Converter(as_range)] = (0.68, 0.68)
    intensity: UnitRange = (0.6, 0.6)
    _: KW_ONLY
    p: float = 0.5
    channels = 3

    def make_params(self, key: Key, info: ImageInfo) -> Splash:
        """Draw the noise's key and mean, the threshold and the opacity."""
        keys = jax.random.split(key)
        numbers = uniform(keys[0], shape=(3,))
        ranges = (self.mean, self.threshold, self.intensity)
        drawn = [between(numbers[i], *limits) for i, limits in enumerate(ranges)]
        return Splash(keys[1], *map(jnp.float32, drawn))

    def apply(self, params: Splash, image: Array, info: ImageInfo) -> Array:
        """Lay the drops over the image."""
        noise = normal_field(params.key, image.shape[:2])[:, :, None] * self.std
        smooth = gaussian_blur(noise, _SPATTER_TAPS, self.sigma, info.size)[:, :, 0] + params.mean
        color = _SPATTER_COLORS[self.mode]
        return spatter(image, barrier(smooth), params.threshold, params.intensity, color)


_SPATTER_TAPS = 15  # up to three and a half standard deviations of the default
_SPATTER_COLORS = {  # as albumentations and imagecorruptions have them
    "rain": (238 / 255, 238 / 255, 175 / 255),
    "mud": (20 / 255, 42 / 255, 63 / 255),
}


def _in_region(numbers: Array, region: Region) -> Array:
    """Return numbers [..., 2] of [0, 1) as places (x, y) in a region."""
    left, top, right, bottom = region
    x, y = between(numbers[..., 0], left, right), between(numbers[..., 1], top, bottom)
    return jnp.stack([x, y], axis=-1)
