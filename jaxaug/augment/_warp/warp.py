"""One geometric op as a value: the map from its output to its source, and its static bounds.

Warps form a monoid: `a.then(b)` is the op a followed by b, and a run of ops is resampled once, by
the product. Frames inside a run do not clip: what a rotation pushed out, a later op may bring back.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Scalar
from jaxaug.augment._base import Canvas, ImageInfo
from jaxaug.augment._xla import barrier, barrier_on_cpu
from jaxaug.augment.matrix import (
    Matrix,
    about,
    determinant,
    inverse,
    is_static,
    product,
    transform_points,
)

MAX_GRADIENT = 0.6  # below 1 the map folds nowhere; at 0.6 the inverse below converges quickly
_INVERSE_STEPS = 24  # 0.6^24 of a displacement of 100 pixels is 5e-4 pixels
Edges = tuple[Scalar, Scalar, Scalar, Scalar]  # top, left, bottom, right
_ANYWHERE = (-(2.0**20), -(2.0**20), 2.0**20, 2.0**20)  # edges that exclude no pixel


class Displacement(NamedTuple):
    """The map (x, y) -> (x + dx, y + dy), displacements read bilinearly between grid nodes.

    Attributes:
      dx, dy: float32[h, w], displacements in pixels. Beyond the outermost nodes theirs hold.
      origin: (x, y) of node [0, 0].
      spacing: (x, y), the distance of the nodes, in pixels.
    """

    dx: Array
    dy: Array
    origin: tuple[Scalar, Scalar] = (0.5, 0.5)
    spacing: tuple[Scalar, Scalar] = (1.0, 1.0)

    @classmethod
    def between_edges(cls, dx: Array, dy: Array, height: Scalar, width: Scalar) -> "Displacement":
        """Return displacements at the nodes of an even grid from edge to edge of an image."""
        rows, columns = dx.shape
        return cls(dx, dy, (0.0, 0.0), (width / (columns - 1), height / (rows - 1)))

    def pull(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the images of points of the output."""
        dx, dy = self._at(x, y)
        return x + dx, y + dy

    def push(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the points whose images are (x, y), by fixed-point iteration."""

        def step(_, point: tuple[Array, Array]) -> tuple[Array, Array]:
            dx, dy = self._at(*point)
            return x - dx, y - dy

        return lax.fori_loop(jnp.int32(0), jnp.int32(_INVERSE_STEPS), step, (x, y))

    def bounded(self) -> "Displacement":
        """Return the displacements, scaled down to a gradient of MAX_GRADIENT where it is steeper.

        The gradient of a cell is the Frobenius norm of the largest differences along its sides: an
        upper bound of how far the map stretches, everywhere between the nodes.
        """
        squares = [_steepness(field, self.spacing) for field in (self.dx, self.dy)]
        steepest = jnp.max(squares[0] + squares[1], initial=0.0)
        gradient = jnp.sqrt(jnp.maximum(steepest, 1e-12))  # the root's derivative at 0 is infinite
        share = jnp.minimum(1.0, MAX_GRADIENT / gradient)
        # Once for pixels and points, which would round them each in its own way.
        dx, dy = barrier(self.dx * share), barrier(self.dy * share)
        return self._replace(dx=dx, dy=dy)

    def _at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return (dx, dy) at points of any shape."""
        rows, columns = self.dx.shape
        left, right, along_x = _cell((x - self.origin[0]) / self.spacing[0], columns)
        top, bottom, along_y = _cell((y - self.origin[1]) / self.spacing[1], rows)

        if x.ndim == 2 and x.shape[0] == 1 and y.shape[1] == 1:  # one axis after the other

            def separably(field: Array) -> Array:
                # By rows, too: of columns alone XLA's CPU backend makes a transposed array.
                row = jnp.arange(rows, dtype=jnp.int32)[:, None]
                lines = _mixed(_take(field, row, left), _take(field, row, right), along_x)
                lines = barrier_on_cpu(lines)
                return _mixed(_take(lines, top[:, 0]), _take(lines, bottom[:, 0]), along_y)

            return separably(self.dx), separably(self.dy)

        field = jnp.stack([self.dx, self.dy], axis=2)
        along_x, along_y = along_x[..., None], along_y[..., None]
        upper = _mixed(_take(field, top, left), _take(field, top, right), along_x)
        lower = _mixed(_take(field, bottom, left), _take(field, bottom, right), along_x)
        displacement = _mixed(upper, lower, along_y)
        return displacement[..., 0], displacement[..., 1]


def _cell(position: Array, count: int) -> tuple[Array, Array, Array]:
    """Return the nodes on both sides of positions among `count` nodes, and the way between them."""
    position = jnp.clip(position, 0.0, count - 1.0)
    before = jnp.floor(position).astype(jnp.int32)
    after = jnp.minimum(before + 1, count - 1)
    return before, after, position - before.astype(jnp.float32)


def _mixed(before: Array, after: Array, along: Array) -> Array:
    return before + (after - before) * along  # what it is between two equal ones, to the bit


def _take(field: Array, *places: Any) -> Array:
    return field.at[places].get(mode="promise_in_bounds")


def _steepness(field: Array, spacing: tuple[Scalar, Scalar]) -> Array:
    """Return the squares of the largest gradients along the sides of each cell, summed."""
    field = jnp.pad(field, ((0, field.shape[0] == 1), (0, field.shape[1] == 1)), mode="edge")
    along_x = jnp.abs(field[:, 1:] - field[:, :-1]) / spacing[0]
    along_y = jnp.abs(field[1:] - field[:-1]) / spacing[1]
    largest_x = jnp.maximum(along_x[1:], along_x[:-1])
    largest_y = jnp.maximum(along_y[:, 1:], along_y[:, :-1])
    return largest_x * largest_x + largest_y * largest_y


_Displacements = tuple[tuple[Displacement, Matrix], ...]


class Warp(NamedTuple):
    """The pull map of a run of geometric ops.

    A point of the output goes through `matrix`, then through each pair of `displacements`:
    displaced, then through the matrix. That is its place in the source.

    Attributes:
      matrix: output to source, (x, y) in edge coordinates.
      canvas: (height, width) of the output: static ints. Floats where the output has no static
        shape, which is allowed inside a run only; `max_shrink * canvas` then bounds the source
        pixels that the frame spans.
      size: int32[2], the used (height, width) of the output, or None for the whole canvas.
      max_shrink: (y, x), static upper bounds of the source pixels per output pixel; they fix the
        number of taps, and with it the antialiasing. Turns, shears and displacements do not count:
        they are bilinear.
      integer_aligned: True where pixels land on pixels, so that one exact read is enough.
      inside_source: True where every output pixel lies inside the frame the op was given.
      crop_window: (top, left, bottom, right) in source pixels, the frame that a resize was given.
        Its antialiasing does not look past it: crop, then resize, is what `resized_crop` means.
      framed: True where a resize of the whole source comes before what reads beyond it: positions
        are then padded as those of the resized image, and the antialiasing does not look past the
        source.
      displacements: (Displacement, Matrix) pairs, see above.

    Example:
      >>> from jaxaug.augment import ImageInfo, matrix
      >>> Warp.centered(ImageInfo((4, 6)), matrix.scaling(0.5, 0.5)).matrix.x1
      1.5
    """

    matrix: Matrix
    canvas: Canvas
    size: Array | None = None
    max_shrink: tuple[float, float] = (1.0, 1.0)
    integer_aligned: bool = False
    inside_source: bool = False
    crop_window: Edges | None = None
    framed: bool = False
    displacements: _Displacements = ()

    @classmethod
    def identity(cls, info: ImageInfo) -> "Warp":
        """Return the warp that changes nothing."""
        return cls(Matrix(), info.canvas, info.size, integer_aligned=True, inside_source=True)

    @classmethod
    def centered(cls, info: ImageInfo, matrix: Matrix, max_shrink: float = 1.0) -> "Warp":
        """Return `matrix` about the center of the image, in the same frame.

        Args:
          info: of the image.
          matrix: a pull map with the center as its origin.
          max_shrink: a static upper bound of how many source pixels meet in an output pixel, at
            least 1; it fixes the antialiasing.
        """
        height, width = info.extent
        return cls.framing(info, about(matrix, width / 2, height / 2), max_shrink)

    @classmethod
    def framing(cls, info: ImageInfo, matrix: Matrix, max_shrink: float = 1.0) -> "Warp":
        """Return `matrix` from edge coordinates to edge coordinates, in the same frame."""
        return cls(matrix, info.canvas, info.size, (max_shrink, max_shrink))

    @classmethod
    def displaced(cls, info: ImageInfo, dx: Array, dy: Array) -> "Warp":
        """Return the warp that shows at (x, y) what lies at (x + dx, y + dy), in the same frame.

        Displacements with a gradient above 0.6 are scaled down to it, all by one factor: a map with
        a gradient above 1 folds, and no box or keypoint could follow it.

        Args:
          info: of the image.
          dx, dy: float[h, w], pixels, cast to float32. Where [h, w] is the canvas, one
            displacement per pixel, else nodes of an even grid from edge to edge of the used part,
            at least 2 by 2.

        Raises:
          ValueError: for arrays of other shapes.
        """
        dx, dy = jnp.asarray(dx, jnp.float32), jnp.asarray(dy, jnp.float32)
        if dx.shape == dy.shape == info.canvas:
            return displaced_by(info, Displacement(dx, dy))
        if dx.shape != dy.shape or dx.ndim != 2 or min(dx.shape) < 2:
            raise ValueError(
                f"`dx` and `dy` must have one shape, that of the canvas {info.canvas} or at least 2"
                f" by 2 nodes, got {dx.shape} and {dy.shape}."
            )
        return displaced_by(info, Displacement.between_edges(dx, dy, *info.extent))

    @property
    def axis_aligned(self) -> bool:
        """True where the source x depends on x alone, and y on y."""
        return self.matrix.axis_aligned and not self.displacements

    @property
    def mirrors(self) -> Array | bool:
        """True where left and right change sides: the map has a negative determinant."""
        return determinant(self.undisplaced()) < 0

    def then(self, after: "Warp") -> "Warp":
        """Return this op, then `after`."""
        matrix, displacements = _joined(self, after)
        shrink = after.max_shrink
        if not self.axis_aligned:
            # A row of a Jacobian product is bounded by row times operator norm.
            shrink = (max(shrink), max(shrink))
        # Only a resize keeps its frame without landing on pixels.
        resized = self.inside_source and not self.integer_aligned
        framed = (self.inside_source and after.framed) or (resized and not after.inside_source)
        return Warp(
            matrix,
            after.canvas,
            after.size,
            max_shrink=(self.max_shrink[0] * shrink[0], self.max_shrink[1] * shrink[1]),
            integer_aligned=self.integer_aligned and after.integer_aligned,
            inside_source=self.inside_source and after.inside_source,
            crop_window=_joined_window(self, after),
            framed=self.framed or framed,
            displacements=displacements,
        )

    def pull(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the places in the source that points of the output show."""
        x, y, _ = transform_points(self.matrix, x, y)
        for displacement, matrix in self.displacements:
            x, y, _ = transform_points(matrix, *displacement.pull(x, y))
        return x, y

    def push(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the places in the output where points of the source appear."""
        for displacement, matrix in reversed(self.displacements):
            x, y, _ = transform_points(inverse(matrix), x, y)
            x, y = displacement.push(x, y)
        x, y, _ = transform_points(inverse(self.matrix), x, y)
        return x, y

    def undisplaced(self) -> Matrix:
        """Return the map without its displacements."""
        matrices = [matrix for _, matrix in reversed(self.displacements)]
        return functools.reduce(product, [*matrices, self.matrix])


def shifted(top: Scalar, left: Scalar, canvas: Canvas, size: Array | None, fits: bool) -> Warp:
    """Return the window with the corner (top, left); `fits` when it certainly lies inside."""
    return Warp(Matrix(x1=left, y1=top), canvas, size, integer_aligned=True, inside_source=fits)


def displaced_by(info: ImageInfo, displacement: Displacement) -> Warp:
    """Return the warp of displacements, which are scaled down where they would fold the image."""
    return Warp(
        Matrix(), info.canvas, info.size, displacements=((displacement.bounded(), Matrix()),)
    )


def has_static_shape(canvas: Canvas) -> bool:
    """Return True where `canvas` is the shape of an array, not a bound."""
    return all(isinstance(side, int) for side in canvas)


def select(index: Array, branches: Sequence[Any]) -> Any:
    """Return the branch of a traced index; a choice among warps costs one resample.

    Args:
      index: int32, traced, from 0 to len(branches) - 1.
      branches: warps to frames of one shape; or arrays of one shape and dtype.

    Raises:
      ValueError: for warps to different canvases.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxaug.augment import ImageInfo, matrix
      >>> turns = [Warp.centered(ImageInfo((4, 6)), matrix.rotation(a)) for a in (0, 90)]
      >>> select(jnp.int32(0), turns).matrix.xx.item()
      1.0
    """
    if isinstance(branches[0], Warp):
        return _chosen_warp(index, branches)
    return _chosen(index, branches)


def check_one_frame(branches: Sequence[Warp | ImageInfo]) -> None:
    """Raise where the branches of a choice lead to frames of several shapes."""
    canvases = [branch.canvas for branch in branches]
    if len(set(canvases)) > 1:
        raise ValueError(
            f"a choice needs branches to frames of one shape, got canvases {canvases}: let an op of"
            " fixed size such as CenterCrop follow in each of them, or choose before the ops that"
            " differ."
        )
    if len({branch.size is None for branch in branches}) > 1:
        raise ValueError(
            "a choice needs branches to frames of one shape, got branches some of which have a"
            ' "size" of their own: give the sample a "size", the used (height, width), so that all'
            " have one."
        )


def _chosen_warp(index: Array, branches: Sequence[Warp]) -> Warp:
    first = branches[0]
    check_one_frame(branches)
    windows = [branch.crop_window for branch in branches]
    if any(window is not None for window in windows):
        edges = _chosen(index, [_ANYWHERE if window is None else window for window in windows])
    else:
        edges = None
    shrink_y, shrink_x = (max(bounds) for bounds in zip(*(each.max_shrink for each in branches)))
    return Warp(
        _chosen_matrix(index, [branch.matrix for branch in branches]),
        first.canvas,
        None if first.size is None else _chosen(index, [branch.size for branch in branches]),
        max_shrink=(shrink_y, shrink_x),
        integer_aligned=all(branch.integer_aligned for branch in branches),
        inside_source=all(branch.inside_source for branch in branches),
        crop_window=edges,
        framed=any(branch.framed for branch in branches),
        displacements=_chosen_displacements(index, [branch.displacements for branch in branches]),
    )


def _joined(warp: Warp, after: Warp) -> tuple[Matrix, _Displacements]:
    """Return the map of `warp`, then `after`: matrices that meet become one."""
    if not after.displacements:
        return product(warp.matrix, after.matrix), warp.displacements
    *displacements, (displacement, matrix) = after.displacements
    return after.matrix, (
        *displacements,
        (displacement, product(warp.matrix, matrix)),
        *warp.displacements,
    )


def _joined_window(warp: Warp, after: Warp) -> Edges | None:
    """Return the window of `warp`, then `after`, in source pixels."""
    if after.crop_window is None or not warp.integer_aligned:
        return warp.crop_window if after.inside_source else None
    # Through shifts, mirrors and quarter turns corners stay corners.
    top, left, bottom, right = map(jnp.float32, after.crop_window)
    x0, y0 = warp.pull(left, top)
    x1, y1 = warp.pull(right, bottom)
    return jnp.minimum(y0, y1), jnp.minimum(x0, x1), jnp.maximum(y0, y1), jnp.maximum(x0, x1)


def _chosen(index: Array, values: Sequence[Any]) -> Any:
    """Return the value of a traced index; a number that is the same in all stays static."""
    first = values[0]
    if isinstance(first, tuple):
        return tuple(_chosen(index, parts) for parts in zip(*values))
    if all(is_static(value) and value == first for value in values):
        return first
    values = [jnp.asarray(v, jnp.float32) if is_static(v) else v for v in values]
    chosen = values[0]
    for i in range(1, len(values)):
        chosen = jnp.where(index == i, values[i], chosen)
    return chosen


def _chosen_matrix(index: Array, matrices: Sequence[Matrix]) -> Matrix:
    return Matrix(*(_chosen(index, entries) for entries in zip(*matrices)))


def _chosen_displacements(index: Array, branches: Sequence[_Displacements]) -> _Displacements:
    """Return the displacements of a traced index, for each grid of nodes one.

    A branch without one on some grid is given one that moves nothing there.
    """
    displacements = []
    for place in range(max(map(len, branches))):
        here = [branch[place] if place < len(branch) else None for branch in branches]
        for grid in dict.fromkeys(pair[0].dx.shape for pair in here if pair):
            displacements.append(_chosen_displacement(index, here, grid))
    return tuple(displacements)


def _chosen_displacement(
    index: Array, branches: Sequence[tuple[Displacement, Matrix] | None], grid: tuple[int, ...]
) -> tuple[Displacement, Matrix]:
    """Return the displacement of a traced index with `grid` nodes, and its matrix."""
    own = [pair is not None and pair[0].dx.shape == grid for pair in branches]
    first = branches[own.index(True)]
    assert first is not None
    still = first[0]._replace(dx=jnp.zeros_like(first[0].dx), dy=jnp.zeros_like(first[0].dy))
    pairs = [pair if mine and pair else (still, Matrix()) for pair, mine in zip(branches, own)]
    fields = zip(*(displacement for displacement, _ in pairs))
    displacement = Displacement(*(_chosen(index, field) for field in fields))
    return displacement, _chosen_matrix(index, [matrix for _, matrix in pairs])
