"""JPEG artifacts: an image as it looks after JPEG, without its bytes, and with gradients.

Everything up to a rounding is exact, in whole numbers or in floats of few bits: 8-bit pixels lie on
ties often (each thousandth luma does), where the rounding of a sum, which depends on the shapes
and on the batch that XLA compiles for, would move a coefficient by a whole step.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._checks import check_choice
from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Range,
    as_choice,
    as_int_range,
    extent,
    on_rgb,
    rounded,
)
from jaxaug.augment._chain import ImageOp
from jaxaug.augment._xla import barrier, to_planes, with_jvp_of
from jaxaug.augment.random import integers

Subsampling = Literal["4:2:0", "4:4:4"]
SUBSAMPLINGS = ("4:2:0", "4:4:4")


@on_rgb
def jpeg(
    image: Array, quality: Scalar, subsampling: Subsampling = "4:2:0", size: Any = None
) -> Array:
    """Return the image as decoded from a JPEG of it.

    Pixels are rounded to 8 bits. Luma and chroma are cut into blocks of 8 x 8 pixels, whose cosine
    transforms are rounded to multiples of the quantization tables. Rounding, and limiting to 8
    bits, have the gradient of the value that is rounded ("straight through").

    Args:
      image: float [H, W, 3] in [0, 1].
      quality: 1 (few colors of few blocks) to 100 (hardly a change), in libjpeg's scale.
      subsampling: static; "4:2:0" halves the chroma along both sides, "4:4:4" keeps it.
      size: int32[2], the used (height, width) of a canvas; None uses all of it.

    Returns:
      Floats of the image's dtype, which may lie a little outside of [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ramp = jnp.linspace(0, 1, 16).reshape(1, 16, 1) * jnp.ones((16, 1, 3))
      >>> bool(abs(jax.jit(jpeg)(ramp, 90) - ramp).max() < 0.05)
      True

    Reference: ITU-T T.81, Annexes A and K; libjpeg for the scale of quality and for enlarging the
    chroma by a triangle filter.

    Differs from torchvision in taking floats of three channels (there one or three), rounding no
    pixel of the result, and having gradients. libjpeg rounds inside of its cosine transforms to
    fewer bits, which moves values to the next multiple here and there: under half a level on
    average in photographs, up to some three in noise.
    """
    check_choice("subsampling", subsampling, SUBSAMPLINGS)
    height, width, _ = image.shape
    planes = _samples(_to_ycc(rounded(_whole_blocks(image * 255, size))))
    luma_table, chroma_table = _tables(quality)
    luma = _coded(planes[:1], luma_table) + 128
    chroma = planes[1:]
    if subsampling == "4:4:4":
        chroma = _coded(chroma, chroma_table)
    else:
        used = [(side + 1) // 2 for side in extent(image, size)]
        chroma = _doubled(_coded(rounded(_halved(chroma)), chroma_table), used)
    return _to_rgb(luma[0], chroma[0], chroma[1])[:height, :width] / 255


# ---- transforms


@dataclass(frozen=True)
class JPEG(ImageOp):
    """Give the image the artifacts of JPEG at a random quality; see `functional.jpeg`.

    Values are clipped to [0, 1]. Baseline JPEG has 8 bits: uint16 images are an error.

    Args:
      quality: an int of 1 to 100, or (low, high) for a random one, both included.
      subsampling: "4:2:0" halves the chroma along both sides, "4:4:4" keeps it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> JPEG((40, 90))(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    channels = 3
    eight_bits = True
    quality: Annotated[Range, Converter(as_int_range, 1, 100)]
    subsampling: Annotated[Subsampling, Converter(as_choice, SUBSAMPLINGS)] = "4:2:0"
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the quality."""
        low, high = self.quality
        return integers(key, low, high + 1)

    def apply(self, params: Array, image: Array, info: ImageInfo) -> Array:
        """Encode and decode the used part."""
        return jnp.clip(jpeg(image, params, self.subsampling, info.size), 0.0, 1.0)


# ---- the steps of JPEG


def _whole_blocks(image: Array, size: Any) -> Array:
    """Return the image with its last used pixels repeated, to sides that 16 divides."""
    for axis, length in enumerate(extent(image, size)):
        sides = -(-image.shape[axis] // 16) * 16
        index = jnp.minimum(jnp.arange(sides, dtype=jnp.int32), length - 1)
        image = jnp.take(image, index, axis=axis, mode="clip")
    return image


def _to_ycc(image: Array) -> Array:
    """Return [3, H, W], luma and the two chromas, all about 0; JFIF 1.02.

    As in libjpeg the weights have 16 bits: of whole levels these sums are exact in float32.
    """
    levels = to_planes(image)
    weights = np.round(_YCC * 2.0**16) / 2.0**16
    planes = [sum(float(w) * level for w, level in zip(row, levels)) for row in weights]
    return jnp.stack([planes[0] - 128, *planes[1:]])


def _to_rgb(luma: Array, chroma_blue: Array, chroma_red: Array) -> Array:
    """Return [H, W, 3] of luma and the two chromas about 0."""
    red = luma + 1.402 * chroma_red
    blue = luma + 1.772 * chroma_blue
    green = luma - (0.299 * 1.402 / 0.587) * chroma_red - (0.114 * 1.772 / 0.587) * chroma_blue
    return jnp.stack([red, green, blue], axis=2)


def _halved(planes: Array) -> Array:
    """Return the means of blocks of 2 x 2."""
    rows = planes[:, 0::2] + planes[:, 1::2]
    return (rows[:, :, 0::2] + rows[:, :, 1::2]) * 0.25


def _doubled(planes: Array, used: list[Array]) -> Array:
    """Return planes enlarged to twice their sides: 3/4 of the nearest value, 1/4 of the next."""
    for axis, length in zip((1, 2), used):
        index = jnp.arange(planes.shape[axis], dtype=jnp.int32)
        before = jnp.take(planes, jnp.clip(index - 1, 0, length - 1), axis=axis, mode="clip")
        after = jnp.take(planes, jnp.clip(index + 1, 0, length - 1), axis=axis, mode="clip")
        halves = [0.75 * planes + 0.25 * before, 0.75 * planes + 0.25 * after]
        shape = list(planes.shape)
        shape[axis] *= 2
        planes = jnp.stack(halves, axis=axis + 1).reshape(shape)
    return planes


def _coded(planes: Array, table: Array) -> Array:
    """Return planes with the cosine transforms of their blocks rounded to multiples of `table`."""
    count, height, width = planes.shape
    # One side after the other: batches that are sharded explicitly take no other reshape.
    rows = planes.reshape(count, height // 8, 8, width)
    blocks = rows.reshape(count, height // 8, 8, width // 8, 8)
    steps = table[None, None, :, None, :]
    blocks = rounded(_frequencies(blocks) / steps) * steps
    rows = _samples(_places(blocks)).reshape(count, height // 8, 8, width)
    return rows.reshape(count, height, width)


def _samples(values: Array) -> Array:
    """Return the nearest of the 256 levels about 0, with the gradient of `values`.

    A decoder limits luma and chroma before it mixes them to colors: T.81, Annex A.3.1 and libjpeg.
    """
    levels = jnp.clip(jnp.round(values), -128.0, 127.0)
    return values + lax.stop_gradient(levels - values)


def _exact(matrix: np.ndarray) -> Callable[[Array], Array]:
    """Return a function that mixes both sides of blocks [N, H, 8, W, 8] of whole numbers by matrix.

    An orthonormal matrix keeps the norm of a block, which is 1,024 at most for 64 levels and twice
    that with the errors of quantization. The weights are scaled by sqrt(8), so that those of the
    mean and of its kin are 1, and the partial sums of the second side fit an int32.
    """
    scaled = matrix * np.sqrt(8)
    weights = np.round(scaled * 2**_WEIGHT_BITS).astype(np.int32)

    def in_floats(blocks: Array) -> Array:
        return _mixed(_mixed(blocks, matrix, axis=2), matrix, axis=4)

    @with_jvp_of(in_floats)
    def in_whole_numbers(blocks: Array) -> Array:
        columns = _mixed(blocks.astype(jnp.int32), weights, axis=2)
        dropped = _WEIGHT_BITS - _KEPT_BITS
        columns = (columns + (1 << (dropped - 1))) >> dropped
        mixed = _mixed(columns, weights, axis=4)
        return mixed.astype(blocks.dtype) * (2.0 ** -(_WEIGHT_BITS + _KEPT_BITS) / 8)

    return in_whole_numbers


def _mixed(blocks: Array, weights: np.ndarray, axis: int) -> Array:
    """Return the eight entries along `axis` mixed by weights [8, 8], written out.

    As a matrix product its rounding would depend on the batch size.
    """
    blocks = barrier(blocks)
    entries = [jnp.take(blocks, i, axis=axis) for i in range(8)]
    rows = weights.tolist()
    mixed = [sum(weight * entry for weight, entry in zip(row, entries)) for row in rows]
    return jnp.stack(mixed, axis=axis)


def _cosines() -> np.ndarray:
    """Return float64[8, 8], the orthonormal cosine transform of eight values."""
    frequency, place = np.mgrid[:8, :8]
    waves = 0.5 * np.cos((2 * place + 1) * frequency * np.pi / 16)
    waves[0] *= np.sqrt(0.5)
    return waves


# The values are up to 2^14 (2,048, scaled by 8), and their sums up to 2^30 with these bits of the
# weights and of the first side's results. libjpeg has 13 and 2.
_WEIGHT_BITS, _KEPT_BITS = 12, 4
_frequencies, _places = _exact(_cosines()), _exact(_cosines().T)
_YCC = np.array(
    [
        [0.299, 0.587, 0.114],
        [-0.299 * 0.5 / 0.886, -0.587 * 0.5 / 0.886, 0.5],
        [0.5, -0.587 * 0.5 / 0.701, -0.114 * 0.5 / 0.701],
    ]
)


def _tables(quality: Scalar) -> tuple[Array, Array]:
    """Return float32[8, 8], the steps of luma and of chroma at libjpeg's `quality`."""
    quality = jnp.clip(jnp.asarray(quality, jnp.int32), 1, 100)
    percent = jnp.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    luma = jnp.clip((_LUMA_TABLE * percent + 50) // 100, 1, 255)
    chroma = jnp.clip((_CHROMA_TABLE * percent + 50) // 100, 1, 255)
    return luma.astype(jnp.float32), chroma.astype(jnp.float32)


# ITU-T T.81, tables K.1 and K.2.
_LUMA_TABLE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ],
    np.int32,
)
_CHROMA_TABLE = np.full((8, 8), 99, np.int32)
_CHROMA_TABLE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
