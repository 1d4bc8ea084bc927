"""3x3 matrices of plane maps, written out entry by entry.

A matrix here takes (x, y, 1) of the output to the source ("pull"), in continuous edge coordinates:
pixel i covers [i, i + 1). Its nine entries are Python numbers or traced float32 scalars. Products
drop zeros and ones that are Python numbers, so that the static structure of a chain (axis-aligned,
affine) can be read off them. Nothing is ever a dot: XLA tiles dots by batch size, which would make
a sample depend on its batch.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Scalar
from jaxaug.augment._xla import rounded


class Matrix(NamedTuple):
    """The rows of [[xx, xy, x1], [yx, yy, y1], [wx, wy, w1]].

    Example:
      >>> Matrix(x1=5.0).axis_aligned, Matrix(xy=0.5).axis_aligned
      (True, False)
    """

    xx: Scalar = 1.0
    xy: Scalar = 0.0
    x1: Scalar = 0.0
    yx: Scalar = 0.0
    yy: Scalar = 1.0
    y1: Scalar = 0.0
    wx: Scalar = 0.0
    wy: Scalar = 0.0
    w1: Scalar = 1.0

    @property
    def affine(self) -> bool:
        """True where the last row is (0, 0, 1), in Python numbers."""
        return _is(self.wx, 0.0) and _is(self.wy, 0.0) and _is(self.w1, 1.0)

    @property
    def axis_aligned(self) -> bool:
        """True where x depends on x alone and y on y alone."""
        return self.affine and _is(self.xy, 0.0) and _is(self.yx, 0.0)


def scaling(x: Scalar, y: Scalar) -> Matrix:
    """Return the map (u, v) -> (x u, y v).

    Example:
      >>> transform_points(scaling(2.0, 3.0), 1.0, 1.0)[:2]
      (2.0, 3.0)
    """
    return Matrix(xx=_entry(x), yy=_entry(y))


def translation(x: Scalar, y: Scalar) -> Matrix:
    """Return the map (u, v) -> (u + x, v + y).

    Example:
      >>> transform_points(translation(1.0, 2.0), 3.0, 4.0)[:2]
      (4.0, 6.0)
    """
    return Matrix(x1=_entry(x), y1=_entry(y))


def rotation(degrees: Scalar) -> Matrix:
    """Return the pull of a turn about the origin, counter-clockwise on a screen (y points down).

    Example:
      >>> x, y, _ = transform_points(rotation(90.0), 1.0, 0.0)
      >>> round(float(x)), round(float(y))
      (0, 1)
    """
    if _is(degrees, 0.0):
        return Matrix()
    radians = _radians(degrees)
    cos, sin = jnp.cos(radians), jnp.sin(radians)
    return Matrix(xx=cos, xy=-sin, yx=sin, yy=cos)


def shearing(x_degrees: Scalar, y_degrees: Scalar) -> Matrix:
    """Return the pull of a shear about the origin, with torchvision's signs.

    The push is [[1, 0], [-tan y, 1]] [[1, -tan x], [0, 1]], along x first; its inverse is written
    here.

    Example:
      >>> round(float(shearing(45.0, 0.0).xy), 3)
      1.0
    """
    x, y = _tan(x_degrees), _tan(y_degrees)
    return Matrix(xx=_add(1.0, _mul(x, y)), xy=x, yx=y)


def about(matrix: Matrix, x: Scalar, y: Scalar) -> Matrix:
    """Return `matrix` about the point (x, y) instead of the origin.

    Example:
      >>> transform_points(about(scaling(2.0, 2.0), 10.0, 10.0), 11.0, 10.0)[:2]
      (12.0, 10.0)
    """
    return product(translation(x, y), product(matrix, translation(-x, -y)))


def product(outer: Matrix, inner: Matrix) -> Matrix:
    """Return outer(inner(point)): in pull form the op that runs first stands outside.

    Example:
      >>> transform_points(product(translation(1.0, 0.0), scaling(2.0, 2.0)), 3.0, 0.0)[:2]
      (7.0, 0.0)
    """
    rows = (outer[0:3], outer[3:6], outer[6:9])
    columns = (inner[0::3], inner[1::3], inner[2::3])
    return Matrix(*(_dot(row, column) for row in rows for column in columns))


def stretched(matrix: Matrix, x: Scalar, y: Scalar) -> Matrix:
    """Return `matrix` on the unit square, carried over to `x` by `y`: S matrix S^-1.

    Example:
      >>> stretched(translation(0.5, 0.0), 8.0, 6.0).x1
      4.0
    """
    a, b, c, d, e, f, g, h, i = matrix
    return Matrix(
        a, _mul(b, x / y), _mul(c, x), _mul(d, y / x), e, _mul(f, y), _div(g, x), _div(h, y), i
    )


def inverse(matrix: Matrix) -> Matrix:
    """Return the inverse, by the adjugate.

    Example:
      >>> inverse(scaling(2.0, 4.0)).yy
      0.25
    """
    a, b, c, d, e, f, g, h, i = matrix
    # fmt: off
    minors = (
        (e, i, f, h), (c, h, b, i), (b, f, c, e),
        (f, g, d, i), (a, i, c, g), (c, d, a, f),
        (d, h, e, g), (b, g, a, h), (a, e, b, d),
    )
    # fmt: on
    adjugate = [_cross(p, r, s, q) for p, q, r, s in minors]
    if matrix.affine:
        return Matrix(*(_div(entry, adjugate[8]) for entry in adjugate))._replace(w1=1.0)
    # Dividing by the determinant keeps the third coordinate positive in front of the horizon.
    determinant = _dot((a, b, c), adjugate[0::3])
    return Matrix(*(_div(entry, determinant) for entry in adjugate))


def determinant(matrix: Matrix) -> Scalar:
    """Return the determinant, negative for a map that mirrors.

    Example:
      >>> determinant(scaling(-1.0, 2.0))
      -2.0
    """
    a, b, c, d, e, f, g, h, i = matrix
    minors = ((e, i, f, h), (c, h, b, i), (b, f, c, e))
    return _dot((a, d, g), tuple(_cross(p, r, s, q) for p, q, r, s in minors))


def homography(startpoints: Array, endpoints: Array) -> Matrix:
    """Return the pull of the map that takes four points to four others.

    Args:
      startpoints, endpoints: (x, y)[4], in cyclic order; both quadrangles convex.

    Example:
      >>> square = [[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 4.0]]
      >>> moved = [[1.0, 0.0], [5.0, 0.0], [5.0, 4.0], [1.0, 4.0]]
      >>> x, y, _ = transform_points(homography(square, moved), 3.0, 2.0)
      >>> round(float(x), 4), round(float(y), 4)
      (2.0, 2.0)
    """
    start = square_to(jnp.asarray(startpoints, jnp.float32))
    end = square_to(jnp.asarray(endpoints, jnp.float32))
    return product(start, inverse(end))


def square_to(corners: Array) -> Matrix:
    """Return the map of (0,0), (1,0), (1,1), (0,1) to the rows of `corners`, (x, y)[4].

    Reference: P. Heckbert, "Fundamentals of Texture Mapping and Image Warping", 1989, section
      2.2.3.

    Example:
      >>> corners = jnp.array([[2.0, 0.0], [4.0, 0.0], [4.0, 2.0], [2.0, 2.0]])
      >>> x, y, _ = transform_points(square_to(corners), 0.5, 0.5)
      >>> float(x), float(y)
      (3.0, 1.0)
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = ((corner[0], corner[1]) for corner in corners)
    dx1 = x1 - x2
    dx2 = x3 - x2
    sx = x0 - x1 + x2 - x3
    dy1 = y1 - y2
    dy2 = y3 - y2
    sy = y0 - y1 + y2 - y3
    determinant = _cross(dx1, dx2, dy1, dy2)
    g = _cross(sx, dx2, sy, dy2) / determinant
    h = _cross(dx1, sx, dy1, sy) / determinant
    xx, yx = x1 - x0 + _product(g, x1), y1 - y0 + _product(g, y1)
    xy, yy = x3 - x0 + _product(h, x3), y3 - y0 + _product(h, y3)
    return Matrix(xx, xy, x0, yx, yy, y0, g, h, 1.0)


def transform_points(matrix: Matrix, x: Array, y: Array) -> tuple[Any, Any, Any]:
    """Return the images of (x, y), and the third homogeneous coordinate they were divided by.

    A point on or behind the horizon of a homography lands far outside of every image, but finite.

    Example:
      >>> transform_points(translation(1.0, 2.0), 3.0, 4.0)
      (4.0, 6.0, 1.0)
    """
    # Affine places have the same bits in any batch without it, and are many.
    times = _mul if matrix.affine else _product
    u = _add(_add(times(matrix.xx, x), times(matrix.xy, y)), matrix.x1)
    v = _add(_add(times(matrix.yx, x), times(matrix.yy, y)), matrix.y1)
    if matrix.affine:
        return u, v, 1.0
    w = jnp.maximum(times(matrix.wx, x) + times(matrix.wy, y) + matrix.w1, 1e-6)
    return jnp.clip(u / w, -_FAR, _FAR), jnp.clip(v / w, -_FAR, _FAR), w


_FAR = 2.0**20  # pixels; float32 still resolves an eighth of a pixel there


def is_static(value) -> bool:
    """Return True for a Python or numpy number, whose value is known while tracing.

    Example:
      >>> is_static(1.0), is_static(jnp.ones(()))
      (True, False)
    """
    return isinstance(value, (int, float, np.number))


def _entry(value: Scalar) -> Scalar:
    """Return a number as it is, an array as float32."""
    return value if is_static(value) else jnp.asarray(value, jnp.float32)


def _is(value, literal: float) -> bool:
    return is_static(value) and value == literal


def _radians(degrees: Scalar) -> Array:
    return jnp.asarray(degrees, jnp.float32) * (math.pi / 180)


def _tan(degrees: Scalar) -> Scalar:
    return 0.0 if _is(degrees, 0.0) else jnp.tan(_radians(degrees))


def _mul(a, b):
    if _is(a, 0.0) or _is(b, 0.0):
        return 0.0
    return b if _is(a, 1.0) else a if _is(b, 1.0) else a * b


def _product(a, b):
    """Return a product whose bits do not depend on what is added to it."""
    value = _mul(a, b)
    return value if is_static(value) else rounded(value)


def _add(a, b):
    return b if _is(a, 0.0) else a if _is(b, 0.0) else a + b


def _sub(a, b):
    return _add(a, 0.0 if _is(b, 0.0) else -b)


def _div(a, b):
    return 0.0 if _is(a, 0.0) else a if _is(b, 1.0) else a / b


def _cross(a, b, c, d):
    """Return a d - b c."""
    return _sub(_product(a, d), _product(b, c))


def _dot(row, column):
    first, second, third = map(_product, row, column)
    return _add(_add(first, second), third)
