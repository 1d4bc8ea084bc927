"""The tiles of a grid over the image, in another order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import Converter, ImageInfo, as_image, as_size, extent
from jaxaug.augment._chain import ImageOp
from jaxaug.augment.random import permutation


def grid_shuffle(image: Array, order: Any, grid: tuple[int, int], size: Any = None) -> Array:
    """Return the image whose tile i is tile `order[i]` of the given one, pixel for pixel.

    All tiles are of one size, height // rows x width // columns; what is left over at the bottom
    and at the right stays as it is.

    Args:
      image: any dtype, [H, W, C] or [H, W].
      order: int[rows * columns], each number below that once, row by row; static or traced.
      grid: static, (rows, columns).
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Example:
      >>> import jax.numpy as jnp
      >>> grid_shuffle(jnp.arange(7).reshape(1, 7, 1), [2, 0, 1], (1, 3))[0, :, 0].tolist()
      [4, 5, 0, 1, 2, 3, 6]

    Reference: `albumentations.RandomGridShuffle`.
    """
    image = as_image(image)
    rows, columns = grid
    height, width = (side // count for side, count in zip(extent(image, size), grid))
    y = jnp.arange(image.shape[0], dtype=jnp.int32)[:, None]
    x = jnp.arange(image.shape[1], dtype=jnp.int32)[None, :]
    moved = (y < rows * height) & (x < columns * width)

    # Of an image with fewer pixels than tiles none is moved, and its tiles are not divided by.
    height, width = jnp.maximum(height, 1), jnp.maximum(width, 1)
    tile = jnp.where(moved, y // height * columns + x // width, 0)
    source = jnp.take(jnp.asarray(order, jnp.int32), tile, mode="clip")
    source_y = jnp.where(moved, source // columns * height + y % height, y)
    source_x = jnp.where(moved, source % columns * width + x % width, x)
    return image.at[source_y, source_x].get(mode="clip")


@dataclass(frozen=True)
class RandomGridShuffle(ImageOp):
    """Put the tiles of a grid in a random order, with probability `p`; `functional.grid_shuffle`.

    Masks follow the image; boxes and keypoints, which may lie on several tiles, are an error.

    Args:
      grid: (rows, columns), or an int for both.

    Raises:
      ValueError: on tracing, for boxes and keypoints.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> image = jnp.arange(4, dtype=jnp.uint8).reshape(2, 2, 1)
      >>> shuffled = RandomGridShuffle(2, p=1.0)(jax.random.key(0), image)
      >>> sorted(shuffled.ravel().tolist())
      [0, 1, 2, 3]

    Reference: `albumentations.RandomGridShuffle`.

    Differs from albumentations in the pixels that no whole tile covers, which stay, and in
    refusing keypoints.
    """

    grid: Annotated[Any, Converter(as_size)] = (3, 3)
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the order of the tiles."""
        return permutation(key, self.grid[0] * self.grid[1])

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Shuffle the used part."""
        return grid_shuffle(image, params, self.grid, info.size)

    def apply_rest(
        self, params: Array, rest: Sample, kinds: Mapping[str, str], info: ImageInfo
    ) -> Sample:
        """Shuffle what has a row and a column for each pixel."""
        refused = [name for name, kind in kinds.items() if kind in ("boxes", "keypoints")]
        if refused:
            names = ", ".join(map(repr, refused))
            raise ValueError(f"RandomGridShuffle moves tiles, which {names} cannot follow.")
        for name, kind in kinds.items():
            planes = jnp.moveaxis(rest[name], 0, -1) if kind == "masks" else rest[name]
            shuffled = grid_shuffle(planes, params, self.grid, info.size)
            rest[name] = jnp.moveaxis(shuffled, -1, 0) if kind == "masks" else shuffled
        return rest
