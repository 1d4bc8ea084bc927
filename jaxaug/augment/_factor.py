"""One geometric op as a number: the map from its output to its source, and what is statically known of it.

Factors form a monoid: `a.then(b)` is the op a followed by b, and a run of ops is resampled once, by the
product. Frames inside a run do not clip: what a rotation pushed out, a later op may bring back.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Scalar
from jaxaug.augment._matrix import Matrix, product


class Factor(NamedTuple):
    """The pull map of a run of geometric ops.

    Attributes:
      matrix: output to source, (x, y) in edge coordinates.
      canvas: (height, width) of the output, static.
      size: int32[2], the used (height, width) of the output, or None for the whole canvas.
      shrink: (y, x), static upper bounds of the source pixels per output pixel; they fix the number of taps.
      whole: whether pixels land on pixels, so that one exact read is enough.
      keeps: whether every output pixel lies inside the frame the op was given.
      window: (top, left, bottom, right) in source pixels, from a crop of unscaled pixels. The antialiasing of
        what follows must not look past it: crop, then resize, is what `resized_crop` means.
    """

    matrix: Matrix
    canvas: tuple[int, int]
    size: Array | None = None
    shrink: tuple[float, float] = (1.0, 1.0)
    whole: bool = False
    keeps: bool = False
    window: tuple[Scalar, Scalar, Scalar, Scalar] | None = None

    def then(self, after: "Factor") -> "Factor":
        """This op, then `after`."""
        if after.window is not None and self.whole:
            window = _pull(self.matrix, after.window)
        else:
            window = self.window if after.keeps else None
        # A row of a Jacobian product is bounded by row times operator norm; `max(shrink)` bounds the latter.
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
        )


def unchanged(canvas: tuple[int, int], size: Array | None) -> Factor:
    """The neutral factor."""
    return Factor(Matrix(), canvas, size, whole=True, keeps=True)


def cropped(top: Scalar, left: Scalar, canvas: tuple[int, int], size: Array | None, fits: bool) -> Factor:
    """The window whose corner is (top, left); `fits` when it certainly lies inside the source."""
    height, width = canvas if size is None else (size[0].astype(jnp.float32), size[1].astype(jnp.float32))
    window = (top, left, top + height, left + width)
    return Factor(Matrix(x1=left, y1=top), canvas, size, whole=True, keeps=fits, window=window)


def _pull(matrix: Matrix, window):
    """`window` through a map of whole pixels, whose scales are +1 and -1."""
    top, left, bottom, right = (jnp.asarray(side, jnp.float32) for side in window)
    x = (matrix.xx * left + matrix.x1, matrix.xx * right + matrix.x1)
    y = (matrix.yy * top + matrix.y1, matrix.yy * bottom + matrix.y1)
    return jnp.minimum(*y), jnp.minimum(*x), jnp.maximum(*y), jnp.maximum(*x)
