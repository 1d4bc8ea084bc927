"""One geometric op as a number: the map from its output to its source, and its static bounds.

Warps form a monoid: `a.then(b)` is the op a followed by b, and a run of ops is resampled once, by
the product. Frames inside a run do not clip: what a rotation pushed out, a later op may bring back.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Scalar
from jaxaug.augment.matrix import Matrix, product, transform_points

Canvas = tuple[float, float]


class Warp(NamedTuple):
    """The pull map of a run of geometric ops.

    Attributes:
      matrix: output to source, (x, y) in edge coordinates.
      canvas: (height, width) of the output: static ints. Floats where the output has no static
        shape, which is allowed inside a run only; `max_shrink * canvas` then bounds the source pixels
        that the frame spans.
      size: int32[2], the used (height, width) of the output, or None for the whole canvas.
      max_shrink: (y, x), static upper bounds of the source pixels per output pixel; they fix the number
        of taps, and with it the antialiasing. Turns and shears do not count: they are bilinear.
      integer_aligned: True where pixels land on pixels, so that one exact read is enough.
      inside_source: True where every output pixel lies inside the frame the op was given.
      crop_window: (top, left, bottom, right) in source pixels, the frame that a resize was given. Its
        antialiasing does not look past it: crop, then resize, is what `resized_crop` means.
      framed: True where a resize of the whole source comes before what reads beyond it: positions
        are then padded as those of the resized image, and the antialiasing does not look past the
        source.
    """

    matrix: Matrix
    canvas: Canvas
    size: Array | None = None
    max_shrink: tuple[float, float] = (1.0, 1.0)
    integer_aligned: bool = False
    inside_source: bool = False
    crop_window: tuple[Scalar, Scalar, Scalar, Scalar] | None = None
    framed: bool = False

    def then(self, after: "Warp") -> "Warp":
        """Return this op, then `after`."""
        if after.crop_window is not None and self.integer_aligned:
            window = _pull(self.matrix, after.crop_window)
        else:
            window = self.crop_window if after.inside_source else None
        # A row of a Jacobian product is bounded by row times operator norm; `max(max_shrink)` bounds
        # the latter.
        most = max(after.max_shrink)
        by = after.max_shrink if self.matrix.axis_aligned else (most, most)
        return Warp(
            product(self.matrix, after.matrix),
            after.canvas,
            after.size,
            (self.max_shrink[0] * by[0], self.max_shrink[1] * by[1]),
            self.integer_aligned and after.integer_aligned,
            self.inside_source and after.inside_source,
            window,
            # Only a resize keeps its frame and is not whole.
            self.framed
            or (self.inside_source and not self.integer_aligned and not after.inside_source),
        )


def unchanged(canvas: Canvas, size: Array | None) -> Warp:
    """Return the neutral warp."""
    return Warp(Matrix(), canvas, size, integer_aligned=True, inside_source=True)


def shifted(top: Scalar, left: Scalar, canvas: Canvas, size: Array | None, fits: bool) -> Warp:
    """Return the window with the corner (top, left); `fits` when it certainly lies inside."""
    return Warp(Matrix(x1=left, y1=top), canvas, size, integer_aligned=True, inside_source=fits)


def is_static(canvas: Canvas) -> bool:
    """Return True where `canvas` is the shape of an array, not a bound."""
    return all(isinstance(side, int) for side in canvas)


def _pull(matrix: Matrix, window):
    """Return `window` through a map of whole pixels: shifts, mirrors and quarter turns."""
    top, left, bottom, right = (jnp.asarray(side, jnp.float32) for side in window)
    x0, y0, _ = transform_points(matrix, left, top)
    x1, y1, _ = transform_points(matrix, right, bottom)
    return jnp.minimum(y0, y1), jnp.minimum(x0, x1), jnp.maximum(y0, y1), jnp.maximum(x0, x1)
