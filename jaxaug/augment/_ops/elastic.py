"""Elastic deformation: smoothed noise moves every pixel.

The noise is drawn at the nodes of a coarse grid, half a standard deviation apart, and smoothed by a
separable Gaussian there, written out as a sum. Between nodes displacements are bilinear, which
misses the smooth field by a few hundredths of its own size. The grid reaches past the image by the
width of the Gaussian, so that the noise is as strong at the border as inside.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import Converter, ImageInfo, Pair, as_xy, static
from jaxaug.augment._chain import Bordered
from jaxaug.augment._warp import Displacement, Warp, displaced_by, warp_image
from jaxaug.augment.random import between, uniform_field

_TRUNCATE = 4.0  # standard deviations on either side, as in torchvision
_NODES_PER_SIGMA = 2.0


def elastic(
    image: Array,
    displacement: Array,
    interpolation: str = "bilinear",
    padding_mode: str = "constant",
    fill: float | tuple[float, ...] = 0.0,
) -> Array:
    """Return the image that shows at (x, y) what lies at (x, y) + displacement.

    Args:
      image: uint8 or float [H, W, C].
      displacement: float32[h, w, 2], (x, y) in pixels: for [H, W] one per pixel, else at nodes of
        an even grid from edge to edge, at least 2 by 2.
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Returns:
      [H, W, C], the dtype of `image`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> one_to_the_right = jnp.ones((1, 3, 2)) * jnp.array([1.0, 0.0])
      >>> jax.jit(elastic)(jnp.arange(3.0).reshape(1, 3, 1), one_to_the_right)[0, :, 0].tolist()
      [1.0, 2.0, 0.0]

    Differs from torchvision in the unit of `displacement` (there half the width and height), and in
    scaling it down to a gradient of 0.6 where it is steeper.
    """
    info = ImageInfo((image.shape[0], image.shape[1]))
    displacement = jnp.asarray(displacement, jnp.float32)
    warp = Warp.displaced(info, displacement[:, :, 0], displacement[:, :, 1])
    return warp_image(image, warp, interpolation, padding_mode, fill)


# ---- transforms


def _as_static_xy(name: str, value: Any) -> tuple[Scalar, Scalar]:
    """Return `as_xy` of numbers that are known while tracing: the kernel has their size."""
    return as_xy(name, static(name, value))


class Elastic(NamedTuple):
    """Drawn parameter of `ElasticTransform`: float32[2, rows, columns], noise of x and y in [-1,
    1).
    """

    noise: Array


@dataclass(frozen=True)
class ElasticTransform(Bordered):
    """Move every pixel by smoothed noise.

    The displacement is alpha / 2 pixels times noise that is uniform on [-1, 1) in every pixel and
    smoothed by a Gaussian of `sigma` pixels: its standard deviation is about alpha / (12.3 sigma).

    Args:
      alpha: the strength, at least 0; a number, or (x, y) for the displacements along each axis.
      sigma: the standard deviation of the smoothing in pixels, at least 0; a number, or (x, y).
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ElasticTransform()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: Simard et al., "Best Practices for Convolutional Neural Networks Applied to Visual
      Document Analysis", 2003.

    Differs from torchvision in scaling the displacement down to a gradient of 0.6 where it is
    steeper, so that boxes and keypoints can follow it; in noise that does not depend on the aspect
    (there it is wider by W / H along x, and by H / W along y); and in noise that continues beyond
    the border (there it is mirrored).
    """

    alpha: Pair = 50.0
    sigma: Annotated[Pair, Converter(_as_static_xy)] = 5.0
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Elastic:
        """Draw the noise at the nodes."""
        shape = []
        for length, sigma in zip(info.canvas, reversed(self.sigma)):
            spacing = _spacing(sigma)
            nodes = int(_before(length, spacing, length)) + 1
            shape.append(nodes + len(_gaussian(sigma / spacing)) - 1)
        noise = between(uniform_field(key, (*shape, 2)), -1.0, 1.0)
        return Elastic(jnp.moveaxis(noise, 2, 0))

    def warp(self, params: Elastic, info: ImageInfo) -> Warp:
        """Return the displacement by the smoothed noise."""
        spacing_x, spacing_y = (_spacing(sigma) for sigma in self.sigma)
        smooth = _smoothed(params.noise, 1, self.sigma[1] / spacing_y)
        smooth = _smoothed(smooth, 2, self.sigma[0] / spacing_x)
        # A node stands for the mean of the pixels around it, in which noise is weaker.
        strength = 1 / (2 * math.sqrt(spacing_x * spacing_y))
        smooth = _used(smooth, info, (spacing_y, spacing_x))
        displacement = Displacement(
            smooth[0] * (self.alpha[0] * strength),
            smooth[1] * (self.alpha[1] * strength),
            (0.0, 0.0),
            (spacing_x, spacing_y),
        )
        return displaced_by(info, displacement)


def _spacing(sigma: float) -> float:
    """Return the distance of the nodes in pixels."""
    return max(1.0, sigma / _NODES_PER_SIGMA)


def _used(field: Array, info: ImageInfo, spacing: tuple[float, float]) -> Array:
    """Return [2, rows, columns] with the last nodes of the image in place of those beyond it.

    They would count for the steepest gradient, and bend what a run shows from beyond the border.
    """
    if info.size is None:
        return field
    for axis, distance in enumerate(spacing):
        last = _before(info.canvas[axis], distance, info.extent[axis])
        node = jnp.minimum(jnp.arange(field.shape[1 + axis], dtype=jnp.int32), last)
        field = jnp.take(field, node, axis=1 + axis, mode="clip")
    return field


def _before(longest: float, spacing: float, length: Any) -> Any:
    """Return how many nodes lie before `length`, which is at most `longest` and may be traced.

    Places are compared: a quotient may be rounded to the other side of a whole number.
    """
    places = np.arange(math.ceil(longest / spacing) + 1, dtype=np.float64) * spacing
    before = places.astype(np.float32) < length
    return before.sum() if isinstance(before, np.ndarray) else before.sum(dtype=jnp.int32)


def _gaussian(sigma: float) -> list[float]:
    """Return the weights of a Gaussian, `sigma` in units of their distance."""
    if sigma == 0:
        return [1.0]
    radius = math.ceil(_TRUNCATE * sigma)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return list(map(float, weights / weights.sum()))


def _smoothed(noise: Array, axis: int, sigma: float) -> Array:
    """Return the Gaussian sums along an axis, where the whole kernel fits."""
    weights = _gaussian(sigma)
    length = noise.shape[axis] - len(weights) + 1
    total = jnp.zeros((), jnp.float32)
    for i, weight in enumerate(weights):
        part = noise[:, i : i + length] if axis == 1 else noise[:, :, i : i + length]
        total = total + part * weight
    return total
