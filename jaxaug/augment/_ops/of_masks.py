"""What looks at the mask beside an image: a crop about labeled pixels, objects painted over."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    Color,
    Converter,
    Drawn,
    ImageInfo,
    Size,
    as_int,
    extent,
    inside,
    per_channel,
)
from jaxaug.augment._chain import Geometric, SampleOp, State, resampled, warped
from jaxaug.augment._ops.crop import window_at
from jaxaug.augment._warp import MASK_FILL, Warp
from jaxaug.augment._xla import vary_alike
from jaxaug.augment.random import integer, order, uniform

_LABELS = 256  # those of a mask that `MaskDropout` tells apart


def random_mask_pixel(number: Array, marked: Array) -> tuple[Array, Array]:
    """Return (row, column), int32, of one of the marked pixels, each as likely.

    Args:
      number: float32, uniform on [0, 1).
      marked: bool[H, W]; without any, the result is (0, 0).

    Example:
      >>> import jax.numpy as jnp
      >>> row, column = random_mask_pixel(jnp.float32(0.9), jnp.eye(3, dtype=bool))
      >>> int(row), int(column)
      (2, 2)

    Reference: DALI's `fn.segmentation.random_mask_pixel`.
    """
    marked = jnp.asarray(marked).astype(bool)  # labels would count as often as their number
    counts = jnp.cumsum(jnp.sum(marked, axis=1, dtype=jnp.int32), dtype=jnp.int32)
    rank = integer(number, 0, jnp.maximum(counts[-1], 1))
    row = jnp.argmax(counts > rank).astype(jnp.int32)
    before = jnp.where(row > 0, counts[jnp.maximum(row - 1, 0)], 0)
    line = jnp.cumsum(marked[row], dtype=jnp.int32)
    return row, jnp.argmax(line > rank - before).astype(jnp.int32)


class Around(NamedTuple):
    """Drawn parameters of `CropNonEmptyMaskIfExists`: numbers of [0, 1), for the pixel, for its
    place (y, x) in the window, and for the place of a window where no pixel is marked.
    """

    pixel: Array
    place: Array
    otherwise: Array


@dataclass(frozen=True)
class CropNonEmptyMaskIfExists(Geometric):
    """Crop a window about a random labeled pixel of the "mask", any window where there is none.

    Each pixel that is neither 0 nor ignored is as likely, and so is each of its places in the
    window that keeps the window in the image.

    Args:
      size: (height, width) in pixels, or an int for a square: outside of a smaller image lies zero.
      ignore_value: a label that does not count, beside 0, by default that of `mask_fill`, which
        masks have where there is no image; None for none.

    Raises:
      ValueError: on a call, for a sample without a "mask" [H, W].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> mask = jnp.zeros((20, 30), jnp.uint8).at[3, 25].set(1)
      >>> sample = {"image": jnp.zeros((20, 30, 3), jnp.uint8), "mask": mask}
      >>> int(CropNonEmptyMaskIfExists(8)(jax.random.key(0), sample)["mask"].sum())
      1

    Reference: `albumentations.CropNonEmptyMaskIfExists`, DALI's `fn.segmentation.random_mask_pixel`
    and `fn.roi_random_crop`.

    Ends a run: the mask is read as the transforms before have left it. `Compose.make_params` does
    not see it, so that transforms behind, in the same chain, must not draw by boxes.
    """

    size: Size
    ignore_value: int | None = MASK_FILL

    @property
    def geometric(self) -> bool:
        """False: the map depends on the mask."""
        return False

    def make_params(self, key: Key, info: ImageInfo) -> Around:
        """Draw the numbers."""
        numbers = uniform(key, shape=(5,))
        return Around(numbers[0], numbers[1:3], numbers[3:])

    def warp(self, params: tuple[Array, Array], info: ImageInfo) -> Warp:
        """Return the crop at a corner (top, left)."""
        height, width = self.size
        fits = info.size is None and height <= info.canvas[0] and width <= info.canvas[1]
        return window_at(*params, (height, width), None, fits)

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` afterwards, as of a crop of the corner."""
        corner = (jnp.int32(0), jnp.int32(0))
        return super().after(Drawn(corner), info)

    def run(self, drawn: Drawn, state: State) -> State:
        """Crop about a pixel of the mask."""
        state = resampled(state)
        mask = state.rest.get("mask")
        if mask is None or mask.ndim != 2:
            got = "none" if mask is None else f"{mask.shape}"
            raise ValueError(f"{self.title} needs a 'mask' [H, W] in the sample, got {got}.")
        marked = _labeled(mask, self.ignore_value, state.info)
        corner = _corner(drawn.params, marked, self.size, mask, state.info.size)
        return warped(state, self.warp(corner, state.info), self.resampling(), self)


def _labeled(mask: Array, ignored: int | None, info: ImageInfo) -> Array:
    """Return bool[H, W], where the used part has a label that counts."""
    labeled = (mask != 0) & inside(mask, info.size)
    return labeled if ignored is None else labeled & (mask.astype(jnp.int32) != ignored)


def _corner(
    drawn: Around, marked: Array, window: tuple[int, int], mask: Array, size: Any
) -> tuple[Array, Array]:
    """Return (top, left) of a window of the image that holds a marked pixel."""
    pixel = random_mask_pixel(drawn.pixel, marked)
    any_marked = marked.any()
    corner = []
    for axis, length in enumerate(extent(mask, size)):
        room = jnp.maximum(length - window[axis], 0)
        low = jnp.clip(pixel[axis] - window[axis] + 1, 0, room)
        high = jnp.clip(pixel[axis], 0, room)
        about = integer(drawn.place[axis], low, high + 1)
        corner.append(jnp.where(any_marked, about, integer(drawn.otherwise[axis], 0, room + 1)))
    return corner[0], corner[1]


def _occurring(labels: Array) -> Array:
    """Return bool[256], which labels int32[H, W] has: a bit of eight words for each.

    XLA's GPU backend would scatter the pixels one after the other.
    """
    places = jnp.arange(_LABELS // 32, dtype=jnp.int32)[:, None]

    def add(words: Array, line: Array) -> tuple[Array, None]:
        bit = jnp.uint32(1) << (line & 31).astype(jnp.uint32)[None]
        return words | jnp.where(line[None] >> 5 == places, bit, jnp.uint32(0)), None

    none = jnp.zeros((len(places), labels.shape[1]), jnp.uint32)
    columns, _ = lax.scan(add, *vary_alike(none, labels), unroll=_LINES_AT_ONCE)
    words = lax.reduce(columns, np.uint32(0), lax.bitwise_or, (1,))
    bits = words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]
    return (bits & 1).astype(bool).reshape(_LABELS)


_LINES_AT_ONCE = 32


@dataclass(frozen=True)
class MaskDropout(SampleOp):
    """Paint over all pixels of some labels of the "mask", with probability `p`.

    The labels are drawn among those of the mask, each as likely; 0 is the background and stays, and
    so does the label that is ignored.

    Args:
      max_objects: how many labels at most; their number is uniform from 1 on.
      fill: the color they are painted with in [0, 1], a number or one per channel.
      fill_mask: the label that their pixels get, 0 to 255.
      ignore_value: a label that is no object, beside 0, by default that of `mask_fill`, which
        masks have where there is no image; None for none.

    Raises:
      ValueError: on a call, for a sample without a "mask" [H, W] of uint8.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> mask = jnp.zeros((4, 4), jnp.uint8).at[0, 0].set(7)
      >>> sample = {"image": jnp.ones((4, 4, 1)), "mask": mask}
      >>> out = MaskDropout(p=1.0)(jax.random.key(0), sample)
      >>> float(out["image"].sum()), int(out["mask"].sum())
      (15.0, 0)

    Reference: `albumentations.MaskDropout`, whose objects are connected parts of the mask.
    """

    needs = "image"
    max_objects: Annotated[int, Converter(as_int, 1, _LABELS)] = 1
    fill: Color = 0.0
    fill_mask: Annotated[int, Converter(as_int, 0, _LABELS - 1)] = 0
    ignore_value: int | None = MASK_FILL
    _: KW_ONLY
    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw a number for each label, and one for how many are painted over."""
        return uniform(key, shape=(_LABELS,))

    def apply(self, params: Array, sample: Sample, info: ImageInfo) -> Sample:
        """Paint over the labels with the smallest numbers."""
        mask = sample.get("mask")
        if mask is None or mask.ndim != 2 or mask.dtype != jnp.uint8:
            got = "none" if mask is None else f"{mask.dtype}{list(mask.shape)}"
            raise ValueError(f"{self.title} needs a 'mask' uint8[H, W], got {got}.")
        labels = jnp.where(_labeled(mask, self.ignore_value, info), mask, 0).astype(jnp.int32)
        here = _occurring(labels).at[0].set(False)
        rank = order(order(jnp.where(here, params, 2.0)))
        count = integer(params[0], 1, self.max_objects + 1)  # that of label 0 is free
        dropped = (here & (rank < count)).at[labels].get(mode="promise_in_bounds")
        paint = per_channel("fill", self.fill, sample["image"])
        image = jnp.where(dropped[:, :, None], paint, sample["image"])
        filled = jnp.where(dropped, jnp.asarray(self.fill_mask, mask.dtype), mask)
        return {**sample, "image": image, "mask": filled}
