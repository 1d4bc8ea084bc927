"""What a transform may know about an image before it sees the pixels.

The pure halves take `size` beside an image instead, int32[2], the used (height, width) at the
top-left, or None where all of the array is used. What lies beyond it is neither read nor defined
afterwards.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._checks import check_choice
from jaxaug.augment._base.axis import PADDING_MODES, fold
from jaxaug.augment._base.values import LEVELS

Canvas = tuple[float, float]
NO_IMAGE = (0, 0)  # the canvas of a sample without an image


class AudioInfo(NamedTuple):
    """What a transform may know about a sound before it hears it.

    Attributes:
      samples: of the array, a static int; of features their frames.
      length: int32, how many of them are used, from the first; None where all are.
      channels: of a waveform [N, C] or features [T, bins, C]; None without that axis.
      bins: of features [T, bins]; None for a waveform.
      epoch: int32, the "epoch" of the sample; None without.

    Example:
      >>> AudioInfo(16_000).used
      16000
    """

    samples: int
    length: Array | None = None
    channels: int | None = None
    bins: int | None = None
    epoch: Array | None = None

    @property
    def used(self) -> Any:
        """How many samples are used: a Python int where that is static, else traced int32."""
        return self.samples if self.length is None else self.length

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return tuple(n for n in (self.samples, self.bins, self.channels) if n is not None)


class VolumeInfo(NamedTuple):
    """What a transform may know about a volume before it sees the voxels.

    Attributes:
      shape: (depth, height, width) of the array, static ints.
      channels: of a volume [D, H, W, C]; None without that axis.
      spacing: float32[3], the sides of a voxel along these axes, in mm; None where they are equal.
      epoch: int32, the "epoch" of the sample; None without.

    Example:
      >>> VolumeInfo((64, 64, 32)).shape
      (64, 64, 32)
    """

    shape: tuple[int, int, int]
    channels: int | None = None
    spacing: Array | None = None
    epoch: Array | None = None


class ImageInfo(NamedTuple):
    """What a transform may know about an image before it sees the pixels.

    Attributes:
      canvas: (height, width) of the array, static ints; (0, 0) for a sample without an image.
        Inside a run, after a resize whose output has no static shape, floats: see `Warp`.
      size: int32[2], (height, width) of the used top-left part; None where that is the whole
        canvas.
      boxes: float[n, 4], the "boxes" of the sample as moved by the transforms before, always xyxy,
        or the corners [n, 8] of oriented ones; None without.
      epoch: int32, the "epoch" of the sample, for what changes over the training; None without.
      channels: of the array, for what traces a function of an image; None means 3.
      audio: the `AudioInfo` of the sample's "audio"; None without.
      levels: that its values may have: 65536 of a uint16 image, 256 of others. Floats are compared
        at 8 bits by what works in steps, such as posterize.
      volume: the `VolumeInfo` of the sample's "volume"; None without.

    Example:
      >>> ImageInfo((480, 640)).extent
      (480.0, 640.0)
    """

    canvas: Canvas
    size: Array | None = None
    boxes: Array | None = None
    epoch: Array | None = None
    channels: int | None = None
    audio: AudioInfo | None = None
    levels: int = LEVELS
    volume: VolumeInfo | None = None

    @property
    def height_width(self) -> tuple[Any, Any]:
        """The used (height, width): Python ints where they are static, else traced int32."""
        return self.canvas if self.size is None else (self.size[0], self.size[1])

    @property
    def extent(self) -> tuple[Any, Any]:
        """The used (height, width) as floats, static or traced float32, for coordinates."""
        height, width = self.height_width
        if self.size is None:
            return float(height), float(width)
        return height.astype(jnp.float32), width.astype(jnp.float32)

    def used(self) -> Array | None:
        """Return bool[H, W], True on the used part; None where that is the whole canvas."""
        if self.size is None:
            return None
        rows, columns = self.canvas
        height, width = self.height_width
        y = jnp.arange(rows, dtype=jnp.int32)
        x = jnp.arange(columns, dtype=jnp.int32)
        return (y < height)[:, None] & (x < width)[None, :]

    def border(self, axis: int, index: Array, mode: str = "reflect") -> Array:
        """Return indices of pixels, folded into the used part: the border of a filter.

        Args:
          axis: 0 for rows, 1 for columns.
          index: int32, any shape; may lie outside of the used part.
          mode: "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".

        Returns:
          int32 of the shape of `index`, each at least 0 and less than the used height or width.

        Example:
          >>> import jax.numpy as jnp
          >>> ImageInfo((4, 9)).border(0, jnp.arange(-2, 6)).tolist()
          [2, 1, 0, 1, 2, 3, 2, 1]
        """
        check_choice("mode", mode, PADDING_MODES[1:])
        folded = fold(index.astype(jnp.float32), self.extent[axis], mode)
        return folded.astype(jnp.int32)


def info_of(image: Array, size: Any) -> ImageInfo:
    """Return the `ImageInfo` of an image [H, W, C]."""
    canvas = (image.shape[0], image.shape[1])
    return ImageInfo(canvas, None if size is None else jnp.asarray(size, jnp.int32))


def extent(image: Array, size: Any) -> tuple[Array, Array]:
    """Return the used height and width, int32."""
    height, width = info_of(image, size).height_width
    return jnp.asarray(height, jnp.int32), jnp.asarray(width, jnp.int32)


def inside(image: Array, size: Any, margin: int = 0) -> Array:
    """Return bool[H, W], True on the used part but for `margin` pixels at each of its sides."""
    height, width = extent(image, size)
    y = jnp.arange(image.shape[0], dtype=jnp.int32)
    x = jnp.arange(image.shape[1], dtype=jnp.int32)
    rows = (y >= margin) & (y < height - margin)
    columns = (x >= margin) & (x < width - margin)
    return rows[:, None] & columns[None, :]


def mirrored(image: Array, before: int, after: int, axis: int, size: Any) -> Array:
    """Return `image` with pixels added along `axis`: 3 2 | 1 2 3 4 | 3 2, about the used edges."""
    index = jnp.arange(-before, image.shape[axis] + after, dtype=jnp.int32)
    return jnp.take(image, info_of(image, size).border(axis, index), axis=axis, mode="clip")
