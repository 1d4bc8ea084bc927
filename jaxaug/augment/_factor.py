"""One geometric op as a number: the map from its output to its source, and its static bounds.

Factors form a monoid: `a.then(b)` is the op a followed by b, and a run of ops is resampled once, by
the product. Frames inside a run do not clip: what a rotation pushed out, a later op may bring back.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Scalar
from jaxaug.augment._matrix import Matrix, product, transform_points

Canvas = tuple[float, float]


class Factor(NamedTuple):
    """The pull map of a run of geometric ops.

    Attributes:
      matrix: output to source, (x, y) in edge coordinates.
      canvas: (height, width) of the output: static ints. Floats where the output has no static
        shape, which is allowed inside a run only; `shrink * canvas` then bounds the source pixels
        that the frame spans.
      size: int32[2], the used (height, width) of the output, or None for the whole canvas.
      shrink: (y, x), static upper bounds of the source pixels per output pixel; they fix the number
        of taps, and with it the antialiasing. Turns and shears do not count: they are bilinear.
      whole: True where pixels land on pixels, so that one exact read is enough.
      keeps: True where every output pixel lies inside the frame the op was given.
      window: (top, left, bottom, right) in source pixels, the frame that a resize was given. Its
        antialiasing does not look past it: crop, then resize, is what `resized_crop` means.
      framed: True where a resize of the whole source comes before what reads beyond it: positions
        are then padded as those of the resized image, and the antialiasing does not look past the
        source.
    """

    matrix: Matrix
    canvas: Canvas
    size: Array | None = None
    shrink: tuple[float, float] = (1.0, 1.0)
    whole: bool = False
    keeps: bool = False
    window: tuple[Scalar, Scalar, Scalar, Scalar] | None = None
    framed: bool = False

    def then(self, after: "Factor") -> "Factor":
        """Return this op, then `after`."""
        if after.window is not None and self.whole:
            window = _pull(self.matrix, after.window)
        else:
            window = self.window if after.keeps else None
        # A row of a Jacobian product is bounded by row times operator norm; `max(shrink)` bounds
        # the latter.
        most = max(after.shrink)
        by = after.shrink if self.matrix.axis_aligned else (most, most)
        return Factor(
            product(self.matrix, after.matrix),
            after.canvas,
            after.size,
            (self.shrink[0] * by[0], self.shrink[1] * by[1]),
            self.whole and after.whole,
            self.keeps and after.keeps,
            window,
            # Only a resize keeps its frame and is not whole.
            self.framed or (self.keeps and not self.whole and not after.keeps),
        )


def unchanged(canvas: Canvas, size: Array | None) -> Factor:
    """Return the neutral factor."""
    return Factor(Matrix(), canvas, size, whole=True, keeps=True)


def cropped(top: Scalar, left: Scalar, canvas: Canvas, size: Array | None, fits: bool) -> Factor:
    """Return the window with the corner (top, left); `fits` when it certainly lies inside."""
    return Factor(Matrix(x1=left, y1=top), canvas, size, whole=True, keeps=fits)


def is_static(canvas: Canvas) -> bool:
    """Return True where `canvas` is the shape of an array, not a bound."""
    return all(isinstance(side, int) for side in canvas)


def _pull(matrix: Matrix, window):
    """Return `window` through a map of whole pixels: shifts, mirrors and quarter turns."""
    top, left, bottom, right = (jnp.asarray(side, jnp.float32) for side in window)
    x0, y0, _ = transform_points(matrix, left, top)
    x1, y1, _ = transform_points(matrix, right, bottom)
    return jnp.minimum(y0, y1), jnp.minimum(x0, x1), jnp.maximum(y0, y1), jnp.maximum(x0, x1)
