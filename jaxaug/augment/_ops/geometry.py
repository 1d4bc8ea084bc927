"""Transforms that move pixels within their frame: affine maps, perspective.

Coordinates are continuous and (x, y): pixel i covers [i, i + 1), so the center of an image lies at
(width / 2, height / 2). Angles are degrees, counter-clockwise on screen. On a canvas with
`size` "the image" is its used part. The pure functions take images without a canvas, uint8 or
float in [0, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    LARGEST,
    SMALLEST,
    Converter,
    ImageInfo,
    Point,
    Range,
    SymmetricRange,
    as_number,
    as_optional,
    as_range,
    as_symmetric_range,
    floating,
    is_number,
    ordered,
    setting,
)
from jaxaug.augment._chain import Bordered
from jaxaug.augment._warp import Warp, warp_image
from jaxaug.augment.matrix import (
    Matrix,
    about,
    homography,
    inverse,
    is_static,
    product,
    rotation,
    scaling,
    shearing,
    square_to,
    stretched,
    translation,
)
from jaxaug.augment.random import between, uniform

Shares: TypeAlias = Any  # (x, y) in [0, 1]
Shear: TypeAlias = Any  # a number, (low, high) along x, or four numbers; kept as the last

# Antialiasing a perspective up to this shrink costs 9 taps instead of 4 and leaves the far end soft
# enough.
_PERSPECTIVE_SHRINK = 1.5

# The kernel for a scale of which no bound is known: 25 taps instead of 4.
_TRACED_SHRINK = 2.0


def affine(
    image: Array,
    angle: Scalar = 0.0,
    translate: tuple[Scalar, Scalar] = (0.0, 0.0),
    scale: Scalar = 1.0,
    shear: Scalar | tuple[Scalar, Scalar] = (0.0, 0.0),
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
    center: tuple[Scalar, Scalar] | None = None,
) -> Array:
    """Return the image sheared, scaled and turned about a center, then shifted.

    Args:
      image: uint8 or float [H, W, C].
      angle: degrees, counter-clockwise on screen; static or traced.
      translate: (x, y) in pixels, right and down.
      scale: above 0; static or traced. Below 1 it fixes the size of the antialiasing kernel; a
        traced one is antialiased down to 1/2.
      shear: (x, y) in degrees with torchvision's signs: positive x moves the top right, positive y
        lifts the right side; a single number is x.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.
      center: (x, y) in pixels from the top left corner; None for the middle of the image.

    Returns:
      [H, W, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> affine(jnp.arange(3.0).reshape(1, 3, 1), translate=(1.0, 0.0))[0, :, 0].tolist()
      [0.0, 0.0, 1.0]

    Differs from torchvision in the sign of `angle` (there clockwise), in the default interpolation,
    and in antialiasing what `scale` shrinks. Turns and shears alone are read bilinearly, as there.
    """
    info = ImageInfo((image.shape[0], image.shape[1]))
    scale = _as_scale(scale)
    shear = shear if isinstance(shear, (tuple, list)) else (shear, 0.0)
    matrix = _affine_matrix(info, angle, translate, scale, shear, center)
    warp = Warp.framing(info, matrix, _shrink_to(scale))
    return warp_image(image, warp, interpolation, padding_mode, fill)


def perspective(
    image: Array,
    startpoints: Array,
    endpoints: Array,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
) -> Array:
    """Return the image through the homography that takes four points to four others.

    Args:
      image: uint8 or float [H, W, C].
      startpoints: (x, y)[4] in pixels of the image, in cyclic order; [[0, 0], [W, 0], [W, H], [0,
        H]] are its corners.
      endpoints: (x, y)[4], where they go; both quadrangles convex.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Returns:
      [H, W, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> corners = jnp.array([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0], [0.0, 1.0]])
      >>> shifted = corners + jnp.array([[1.0, 0.0]])
      >>> perspective(jnp.arange(3.0).reshape(1, 3, 1), corners, shifted)[0, :, 0].round(4).tolist()
      [0.0, 0.0, 1.0]

    Reference: P. Heckbert, "Fundamentals of Texture Mapping and Image Warping", 1989, section
      2.2.3.

    Differs from torchvision in some antialiasing where it shrinks.
    """
    info = ImageInfo((image.shape[0], image.shape[1]))
    warp = Warp.framing(info, homography(startpoints, endpoints), _PERSPECTIVE_SHRINK)
    return warp_image(image, warp, interpolation, padding_mode, fill)


# ---- transforms


def _as_scale_range(name: str, value: Any) -> tuple[Scalar, Scalar]:
    """Return (low, high) above 0."""
    low, high = as_range(name, value, 0.0)
    if not ordered(SMALLEST, low):
        raise ValueError(f"`{name}` must be above 0, got {(low, high)}.")
    return low, high


def _as_shares(name: str, value: Any) -> tuple[Scalar, Scalar]:
    """Return (x, y) shares in [0, 1]."""
    pair = setting(value)
    good = isinstance(pair, tuple) and len(pair) == 2 and all(map(is_number, pair))
    if not good or not all(ordered(0, share, 1) for share in pair):
        expected = "(x, y), the largest shifts as shares of width and height in [0, 1]"
        raise ValueError(f"`{name}` must be {expected}, got {value!r}.")
    return floating(pair[0]), floating(pair[1])


def _as_shear(name: str, value: Any) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return (x low, x high, y low, y high) of all that torchvision takes for a shear."""
    shear = setting(value)
    if is_number(shear) or (isinstance(shear, tuple) and len(shear) == 2):
        return (*as_symmetric_range(name, shear), 0.0, 0.0)
    if not isinstance(shear, tuple) or len(shear) != 4:
        raise ValueError(f"`{name}` must be a number, a pair or four numbers, got {shear!r}.")
    x_low, x_high = as_range(name, shear[:2])
    y_low, y_high = as_range(name, shear[2:])
    return x_low, x_high, y_low, y_high


class Affine(NamedTuple):
    """Drawn parameters of `RandomAffine`: degrees, (x, y) pixels, a factor, (x, y) degrees.

    What is not asked for is None.
    """

    angle: Array | None
    translate: tuple[Array | None, Array | None]
    scale: Array | None
    shear: tuple[Array | None, Array | None]


@dataclass(frozen=True)
class RandomAffine(Bordered):
    """Turn, shift, scale and shear about a center, in the same frame.

    What is not asked for is not drawn and costs nothing.

    Args:
      degrees: (low, high) of the angle, counter-clockwise; a number v means (-v, v).
      translate: (x, y), the largest shifts as shares of width and height, in [0, 1]; integers of
        pixels are drawn.
      scale: (low, high) of the scale, above 0. A `low` that is a JAX array is antialiased down to
        1/2.
      shear: (low, high) degrees along x, or four numbers, the ranges along x and y; v means (-v, v)
        along x.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.
      center: (x, y) in pixels from the top left corner; None for the middle of the image.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> shake = RandomAffine(10, translate=(0.1, 0.1))
      >>> shake(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in the sign of the angle (there clockwise), in bilinear interpolation
    by default, and in antialiasing what `scale` shrinks. Turns and shears alone are read
    bilinearly, as there.
    """

    degrees: SymmetricRange
    translate: Annotated[Shares | None, Converter(as_optional, _as_shares)] = None
    scale: Annotated[Range | None, Converter(as_optional, _as_scale_range)] = None
    shear: Annotated[Shear | None, Converter(as_optional, _as_shear)] = None
    _: KW_ONLY
    p: float = 1.0
    center: Point = None

    def make_params(self, key: Key, info: ImageInfo) -> Affine:
        """Draw the angle, shift, scale and shear."""
        numbers = uniform(key, shape=(6,))
        height, width = info.extent
        x_share, y_share = self.translate or (0.0, 0.0)
        shear = self.shear or (0.0, 0.0, 0.0, 0.0)
        x = _draw(numbers[1], (-x_share, x_share))
        y = _draw(numbers[2], (-y_share, y_share))
        return Affine(
            _draw(numbers[0], self.degrees),
            (_in_pixels(x, width), _in_pixels(y, height)),
            _draw(numbers[3], self.scale or (1.0, 1.0), neutral=1.0),
            (_draw(numbers[4], shear[:2]), _draw(numbers[5], shear[2:])),
        )

    def warp(self, params: Affine, info: ImageInfo) -> Warp:
        """Return the affine map about the center."""
        # A shear makes no pixel smaller: it counts towards the antialiasing no more than a turn
        # does.
        max_shrink = _shrink_to((self.scale or (1.0,))[0])
        return Warp.framing(info, _drawn_matrix(info, params, self.center), max_shrink)


@dataclass(frozen=True)
class RandomShear(Bordered):
    """Shear about the middle of the image: `RandomAffine` with nothing else.

    Args:
      shear: (low, high) degrees along x, or four numbers, the ranges along x and y; v means (-v, v)
        along x.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomShear(10)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    shear: Annotated[Shear, Converter(_as_shear)]
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Affine:
        """Draw the shear."""
        return RandomAffine(0.0, shear=self.shear).make_params(key, info)

    def warp(self, params: Affine, info: ImageInfo) -> Warp:
        """Return the shear about the middle."""
        return Warp.framing(info, _drawn_matrix(info, params))


@dataclass(frozen=True)
class RandomTranslate(Bordered):
    """Shift by whole pixels, pixel for pixel: `RandomAffine` with nothing else.

    Args:
      translate: (x, y), the largest shifts as shares of width and height, in [0, 1].
      interpolation: "bilinear", "bicubic" or "nearest", of the other transforms in the run.
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomTranslate((0.1, 0.2))(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    translate: Annotated[Shares, Converter(_as_shares)]
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Affine:
        """Draw the shift."""
        return RandomAffine(0.0, self.translate).make_params(key, info)

    def warp(self, params: Affine, info: ImageInfo) -> Warp:
        """Return the shift."""
        warp = Warp.framing(info, _drawn_matrix(info, params))
        return warp._replace(integer_aligned=True)


class Perspective(NamedTuple):
    """Drawn parameter of `RandomPerspective`: the moves of the corners inwards, float32[4, 2]
    shares.
    """

    inwards: Array


@dataclass(frozen=True)
class RandomPerspective(Bordered):
    """Move the four corners of the image inwards, each by its own random amount.

    Args:
      distortion_scale: in [0, 1], how far a corner moves at most: this share of half the width and
        height.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomPerspective()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in continuous instead of whole-pixel corners, in the edges of the image
    being its corners (there the centers of the corner pixels), and in some antialiasing.
    """

    distortion_scale: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.5
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Perspective:
        """Draw the moves of the corners."""
        return Perspective(uniform(key, 0.0, self.distortion_scale / 2, shape=(4, 2)))

    def warp(self, params: Perspective, info: ImageInfo) -> Warp:
        """Return the homography from the moved corners back to the image's."""
        height, width = info.extent
        corners = jnp.asarray(_CORNERS, jnp.float32)
        moved = corners + params.inwards * (1 - 2 * corners)  # on the unit square
        matrix = stretched(inverse(square_to(moved)), width, height)
        max_shrink = _PERSPECTIVE_SHRINK
        if is_static(self.distortion_scale):
            max_shrink = min(max_shrink, 1 / (1 - self.distortion_scale + 1e-6))
        return Warp.framing(info, matrix, max_shrink)


_CORNERS = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))


def _affine_matrix(info: ImageInfo, angle, translate, scale, shear, center=None) -> Matrix:
    """Return the pull of: shear, scale, turn about the center, shift."""
    height, width = info.extent
    x, y = (width / 2, height / 2) if center is None else center
    shrink = 1.0 / scale
    turned = product(shearing(*shear), product(scaling(shrink, shrink), rotation(angle)))
    return product(about(turned, x, y), translation(*(-shift for shift in translate)))


def _drawn_matrix(info: ImageInfo, drawn: Affine, center: Any = None) -> Matrix:
    """Return the pull of drawn parameters; what was not drawn stays static."""
    drawn = Affine(*drawn)  # a tuple of one's own will do
    angle = 0.0 if drawn.angle is None else drawn.angle
    translate = tuple(0.0 if shift is None else shift for shift in drawn.translate)
    scale = 1.0 if drawn.scale is None else drawn.scale
    shear = tuple(0.0 if degrees is None else degrees for degrees in drawn.shear)
    return _affine_matrix(info, angle, translate, scale, shear, center)


def _draw(number: Array, ends: tuple[Scalar, Scalar], neutral: float = 0.0) -> Array | None:
    """Return a number of [low, high), or None where all that there is is `neutral`."""
    low, high = ends
    if is_static(low) and is_static(high) and low == high == neutral:
        return None
    return between(number, low, high)


def _in_pixels(share: Array | None, length: Scalar) -> Array | None:
    """Return a share of a length in pixels, an integer."""
    return None if share is None else jnp.round(share * length)


def _shrink_to(scale: Scalar) -> float:
    """Return a static bound of the source pixels per output pixel at `scale` or more."""
    return max(1.0, 1 / float(scale)) if is_static(scale) else _TRACED_SHRINK


def _as_scale(scale: Any) -> Scalar:
    """Return the scale of `affine`, a number above 0."""
    number = setting(scale)
    if not is_number(number) or not ordered(SMALLEST, number, LARGEST):
        raise ValueError(f"`scale` must be above 0, got {scale!r}.")
    return floating(number)
