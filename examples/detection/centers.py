"""Boxes as centers: what the network should say for given boxes, and the boxes of what it says.

The image is cut into cells of `STRIDE` pixels. The cell in which a box has its center gets the
class of the box, and the logarithms of the distances from the cell's center to the box's left, top,
right and bottom, in cells. Reference: Zhou et al., "Objects as Points", 2019; Tian et al., "FCOS",
2019.
"""

import jax
import jax.numpy as jnp

STRIDE = 4
_SPREAD = 6.0  # a box is so many standard deviations wide
_MIN_DISTANCE = 0.05  # in cells


def make_targets(
    boxes: jax.Array, labels: jax.Array, grid: tuple[int, int], num_classes: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return what the network should say about one image.

    Args:
      boxes: float[n, 4], xyxy in pixels; rows without area are padding.
      labels: int[n].
      grid: (rows, columns) of cells.
      num_classes: of all shapes.

    Returns:
      heat [rows, columns, classes]: 1 in a box's own cell, less about it. distances [rows, columns,
      4], and own, bool[rows, columns], True where there is a box.
    """
    rows, columns = grid
    boxes = boxes.astype(jnp.float32) / STRIDE
    sides = boxes[:, 2:] - boxes[:, :2]
    real = (sides > 0).all(axis=1)
    center = (boxes[:, :2] + boxes[:, 2:]) / 2
    column = jnp.clip(jnp.floor(center[:, 0]).astype(jnp.int32), 0, columns - 1)
    row = jnp.clip(jnp.floor(center[:, 1]).astype(jnp.int32), 0, rows - 1)

    x = (jnp.arange(columns)[None, :] - column[:, None]) * _SPREAD / jnp.maximum(sides[:, :1], 1)
    y = (jnp.arange(rows)[None, :] - row[:, None]) * _SPREAD / jnp.maximum(sides[:, 1:], 1)
    near = jnp.exp(-(y[:, :, None] ** 2 + x[:, None, :] ** 2) / 2)
    near = jnp.where(real[:, None, None], near, 0.0)
    of_class = jax.nn.one_hot(labels, num_classes)
    heat = jnp.max(near[:, :, :, None] * of_class[:, None, None, :], axis=0)

    middle = jnp.stack([column + 0.5, row + 0.5], axis=1)
    distances = jnp.concatenate([middle - boxes[:, :2], boxes[:, 2:] - middle], axis=1)
    distances = jnp.log(jnp.maximum(distances, _MIN_DISTANCE))
    row = jnp.where(real, row, rows)  # beyond the grid: dropped
    field = jnp.zeros((rows, columns, 4)).at[row, column].set(distances, mode="drop")
    own = jnp.zeros((rows, columns), bool).at[row, column].set(True, mode="drop")
    return heat, field, own


def find_boxes(
    heat: jax.Array, distances: jax.Array, count: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the `count` best boxes of one image: boxes [count, 4], scores and labels [count].

    Args:
      heat: [rows, columns, classes], in [0, 1].
      distances: [rows, columns, 4], logarithms in cells.
      count: static.
    """
    rows, columns, classes = heat.shape
    around = jax.lax.reduce_window(heat, -jnp.inf, jax.lax.max, (3, 3, 1), (1, 1, 1), "SAME")
    peaks = jnp.where(heat == around, heat, 0.0)
    scores, place = jax.lax.top_k(peaks.ravel(), count)
    cell = place // classes
    middle = jnp.stack([cell % columns + 0.5, cell // columns + 0.5], axis=1)
    sides = jnp.exp(distances.reshape(rows * columns, 4)[cell])
    boxes = jnp.concatenate([middle - sides[:, :2], middle + sides[:, 2:]], axis=1)
    return boxes * STRIDE, scores, place % classes
