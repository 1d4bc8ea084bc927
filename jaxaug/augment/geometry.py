"""Transforms that move pixels within their frame: rotations, affine maps, perspective.

Coordinates are continuous and (x, y): pixel i covers [i, i + 1), so the center of an image lies at
(width / 2, height / 2). Angles are degrees, counter-clockwise on screen. On a canvas with
`size` "the image" is its used part. The pure functions take whole images, uint8 or float in [0, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.core import Tracer

from jaxaug._checks import check_choice
from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._base import Geometric, ImageInfo, Resampling
from jaxaug.augment._fields import (
    as_color,
    as_number,
    as_probability,
    as_range,
    as_symmetric_range,
    plain,
)
from jaxaug.augment._resample import INTERPOLATIONS, PADDING_MODES, warp_image
from jaxaug.augment._warp import Warp
from jaxaug.augment.matrix import (
    Matrix,
    about,
    inverse,
    product,
    rotation,
    scaling,
    shearing,
    square_to,
    stretched,
    translation,
)
from jaxaug.augment.random import between, uniforms

# Antialiasing a perspective up to this shrink costs 9 taps instead of 4 and leaves the far end soft
# enough.
_PERSPECTIVE_SHRINK = 1.5


def rotate(
    image: Array,
    angle: Scalar,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
) -> Array:
    """The image turned about its center, in the same frame.

    Args:
      image: uint8 or float [H, W, C].
      angle: degrees, counter-clockwise on screen; static or traced.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one a channel.

    Returns:
      [H, W, C], the dtype of `image`.

    Example:
      >>> import jax.numpy as jnp
      >>> rotate(jnp.arange(4.0).reshape(2, 2, 1), 90)[:, :, 0].round(4).tolist()
      [[1.0, 3.0], [0.0, 2.0]]

    Differs from torchvision in `interpolation`, there "nearest" by default.
    """
    return affine(image, angle, interpolation=interpolation, padding_mode=padding_mode, fill=fill)


def affine(
    image: Array,
    angle: Scalar = 0.0,
    translate: tuple[Scalar, Scalar] = (0.0, 0.0),
    scale: float = 1.0,
    shear: tuple[Scalar, Scalar] = (0.0, 0.0),
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
) -> Array:
    """The image sheared, scaled and turned about its center, then shifted, in the same frame.

    Args:
      image: uint8 or float [H, W, C].
      angle: degrees, counter-clockwise on screen; static or traced.
      translate: (x, y) in pixels, right and down.
      scale: above 0, static: below 1 it fixes the size of the antialiasing kernel.
      shear: (x, y) in degrees with torchvision's signs: positive x moves the top right, positive y
        lifts the right side.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one a channel.

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
    angle = _float(angle)
    scale = _static_scale(scale)
    x, y, shear_x, shear_y = (_float(v) for v in (*translate, *shear))
    matrix = _affine_matrix(info, angle, (x, y), scale, (shear_x, shear_y))
    warp = _within(info, matrix, max(1.0, 1 / scale))
    return warp_image(image, warp, interpolation, padding_mode, fill)


def perspective(
    image: Array,
    startpoints: Array,
    endpoints: Array,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
) -> Array:
    """The image through the homography that takes four points to four others, in the same frame.

    Args:
      image: uint8 or float [H, W, C].
      startpoints: (x, y)[4] in pixels of the image, in cyclic order; [[0, 0], [W, 0], [W, H], [0,
        H]] are its corners.
      endpoints: (x, y)[4], where they go; both quadrangles convex.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one a channel.

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
    start, end = (
        square_to(jnp.asarray(points, jnp.float32)) for points in (startpoints, endpoints)
    )
    info = ImageInfo((image.shape[0], image.shape[1]))
    warp = _within(info, product(start, inverse(end)), _PERSPECTIVE_SHRINK)
    return warp_image(image, warp, interpolation, padding_mode, fill)


# ---- transforms


@dataclass(frozen=True)
class _Warping(Geometric):
    """The fields that every transform with a border shares."""

    _: KW_ONLY
    interpolation: str = "bilinear"
    padding_mode: str = "constant"
    fill: float | tuple[float, ...] = 0.0

    def __post_init__(self):
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("padding_mode", self.padding_mode, PADDING_MODES)
        object.__setattr__(self, "fill", as_color("fill", self.fill))

    def resampling(self) -> Resampling:
        """How it wants to be resampled."""
        return Resampling(self.interpolation, self.padding_mode, self.fill)


class Affine(NamedTuple):
    """Sampled parameters of `RandomAffine`: float32; degrees, (x, y) pixels, factor, (x, y)
    degrees.
    """

    angle: Scalar
    translate: tuple[Scalar, Scalar]
    scale: Scalar
    shear: tuple[Scalar, Scalar]


@dataclass(frozen=True)
class RandomAffine(_Warping):
    """Turn, shift, scale and shear about the center of the image, in the same frame.

    What is not asked for is not drawn and costs nothing.

    Args:
      degrees: (low, high) of the angle, counter-clockwise; a number v means (-v, v).
      translate: (x, y), the largest shifts as shares of width and height, in [0, 1]; whole pixels
        are drawn.
      scale: (low, high) of the scale, above 0.
      shear: (low, high) degrees along x, or four numbers, the ranges along x and y; v means (-v, v)
        along x.
      p: the probability of being applied.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one a channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomAffine(10, translate=(0.1, 0.1))(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in the sign of the angle (there clockwise), in bilinear interpolation
    by default, and in antialiasing what `scale` shrinks. Turns and shears alone are read
    bilinearly, as there.
    """

    degrees: float | tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: float | tuple[float, ...] | None = None
    _: KW_ONLY
    p: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "degrees", as_symmetric_range("degrees", self.degrees))
        if self.translate is not None:
            object.__setattr__(self, "translate", _as_shares("translate", self.translate))
        if self.scale is not None:
            object.__setattr__(self, "scale", as_range("scale", self.scale, 0.0))
            if self.scale[0] == 0:
                raise ValueError(f"`scale` must be above 0, got {self.scale}.")
        object.__setattr__(self, "shear", _as_shear(self.shear))
        object.__setattr__(self, "p", as_probability("p", self.p))

    def sample(self, key: Key, info: ImageInfo) -> Affine:
        """The angle, shift, scale and shear, or those of the identity."""
        numbers = uniforms(key, 7)
        height, width = info.extent
        on = numbers[0] < self.p
        x_share, y_share = self.translate or (0.0, 0.0)
        shear = _as_shear(self.shear) or (0.0, 0.0, 0.0, 0.0)

        def draw(number: Array, low: float, high: float, neutral: float = 0.0) -> Scalar:
            if low == high == neutral:
                return neutral
            return jnp.where(on, between(number, low, high), neutral)

        return Affine(
            draw(numbers[1], *as_symmetric_range("degrees", self.degrees)),
            (
                _in_pixels(draw(numbers[2], -x_share, x_share), width),
                _in_pixels(draw(numbers[3], -y_share, y_share), height),
            ),
            draw(numbers[4], *(self.scale or (1.0, 1.0)), 1.0),
            (draw(numbers[5], *shear[:2]), draw(numbers[6], *shear[2:])),
        )

    def warp(self, params: Affine, info: ImageInfo) -> Warp:
        """The affine map about the center."""
        # A shear makes no pixel smaller: it counts towards the antialiasing no more than a turn
        # does.
        most = 1 / min(1.0, (self.scale or (1.0,))[0])
        return _within(info, _affine_matrix(info, *params), most)


class Perspective(NamedTuple):
    """Sampled parameter of `RandomPerspective`: how far each corner moves inwards, float32[4, 2]
    shares.
    """

    inwards: Array


@dataclass(frozen=True)
class RandomPerspective(_Warping):
    """Move the four corners of the image inwards, each by its own random amount.

    Args:
      distortion_scale: in [0, 1], how far a corner moves at most: this share of half the width and
        height.
      p: the probability of being applied.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one a channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomPerspective()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in continuous instead of whole-pixel corners, in the edges of the image
    being its corners (there the centers of the corner pixels), and in some antialiasing.
    """

    distortion_scale: float = 0.5
    p: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        scale = as_number("distortion_scale", self.distortion_scale, 0.0, 1.0)
        object.__setattr__(self, "distortion_scale", scale)
        object.__setattr__(self, "p", as_probability("p", self.p))

    def sample(self, key: Key, info: ImageInfo) -> Perspective:
        """The corners' moves, or none."""
        del info
        numbers = uniforms(key, 9)
        inwards = between(numbers[1:].reshape(4, 2), 0.0, self.distortion_scale / 2)
        return Perspective(jnp.where(numbers[0] < self.p, inwards, 0.0))

    def warp(self, params: Perspective, info: ImageInfo) -> Warp:
        """The homography from the moved corners back to the image's."""
        height, width = info.extent
        corners = jnp.asarray(_CORNERS, jnp.float32)
        moved = corners + params.inwards * (1 - 2 * corners)  # on the unit square
        matrix = stretched(inverse(square_to(moved)), width, height)
        return _within(
            info, matrix, min(_PERSPECTIVE_SHRINK, 1 / (1 - self.distortion_scale + 1e-6))
        )


class Rotation(NamedTuple):
    """Sampled parameter of `RandomRotation`: float32 degrees."""

    angle: Array


@dataclass(frozen=True)
class RandomRotation(_Warping):
    """Turn about the center of the image, in the same frame.

    Args:
      degrees: (low, high) of the angle, counter-clockwise; a number v means (-v, v).
      p: the probability of being applied.
      interpolation: "bilinear" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one a channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandomRotation(15)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in bilinear interpolation by default, and in having no `expand` and no
    `center`.
    """

    degrees: float | tuple[float, float]
    _: KW_ONLY
    p: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "degrees", as_symmetric_range("degrees", self.degrees))
        object.__setattr__(self, "p", as_probability("p", self.p))

    def sample(self, key: Key, info: ImageInfo) -> Rotation:
        """The angle, or 0."""
        del info
        on, number = uniforms(key, 2)
        angle = between(number, *as_symmetric_range("degrees", self.degrees))
        return Rotation(jnp.where(on < self.p, angle, 0.0))

    def warp(self, params: Rotation, info: ImageInfo) -> Warp:
        """The turn about the center."""
        height, width = info.extent
        return _within(info, about(rotation(params.angle), width / 2, height / 2), 1.0)


_CORNERS = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))


def _within(info: ImageInfo, matrix: Matrix, most: float) -> Warp:
    """A factor that keeps its frame; `most` bounds how far it shrinks."""
    return Warp(matrix, *info, max_shrink=(most, most))


def _affine_matrix(info: ImageInfo, angle, translate, scale, shear) -> Matrix:
    """The pull of: shear, scale, turn about the center, shift."""
    height, width = info.extent
    shrink = 1.0 if isinstance(scale, float) and scale == 1.0 else 1.0 / scale
    turned = product(shearing(*shear), product(scaling(shrink, shrink), rotation(angle)))
    return product(
        about(turned, width / 2, height / 2), translation(*(-shift for shift in translate))
    )


def _in_pixels(share: Scalar, length: Scalar) -> Scalar:
    """A share of a length in whole pixels."""
    return share if isinstance(share, float) else jnp.round(share * length)


def _float(value: Scalar) -> Scalar:
    """A Python number as a float, so that zeros are seen; an array as float32."""
    return float(value) if isinstance(value, (int, float)) else jnp.asarray(value, jnp.float32)


def _static_scale(scale: Any) -> float:
    """Return the scale of `affine`, a number above 0."""
    if isinstance(scale, Tracer):
        raise TypeError("`scale` must be a static number: it fixes the antialiasing kernel's size.")
    number = plain(scale)
    if not isinstance(number, (int, float)) or not 0 < number < float("inf"):
        raise ValueError(f"`scale` must be above 0, got {scale!r}.")
    return float(number)


def _as_shares(name: str, value: Any) -> tuple[float, float]:
    """Return (x, y) shares in [0, 1]."""
    pair = plain(value)
    good = isinstance(pair, tuple) and len(pair) == 2
    if not good or not all(isinstance(v, (int, float)) and 0 <= v <= 1 for v in pair):
        expected = "(x, y), the largest shifts as shares of width and height in [0, 1]"
        raise ValueError(f"`{name}` must be {expected}, got {value!r}.")
    return float(pair[0]), float(pair[1])


def _as_shear(shear) -> tuple[float, float, float, float] | None:
    """(x low, x high, y low, y high) of what torchvision takes for a shear."""
    shear = plain(shear)
    if shear is None:
        return None
    if isinstance(shear, (int, float)) or (isinstance(shear, tuple) and len(shear) == 2):
        return (*as_symmetric_range("shear", shear), 0.0, 0.0)
    if not isinstance(shear, tuple) or len(shear) != 4:
        raise ValueError(f"`shear` must be a number, a pair or four numbers, got {shear!r}.")
    x_low, x_high = as_range("shear", shear[:2])
    y_low, y_high = as_range("shear", shear[2:])
    return x_low, x_high, y_low, y_high
