"""RandomIoUCrop: the crop of object detectors, which keeps enough of a box."""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp

from jaxaug._typing import Array, Key, Scalar
from jaxaug.augment._base import Converter, ImageInfo, Names, PositiveInt, as_number, setting
from jaxaug.augment._chain import Geometric
from jaxaug.augment._warp import Warp, hulls, present, shifted
from jaxaug.augment.random import between, integer, uniform

# torchvision draws rounds without end; an image that gives none within these is left as it is,
# which is how most of the endless ones end.
_ROUNDS = 24
_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class IoUCrop(NamedTuple):
    """Drawn parameters of `RandomIoUCrop`.

    Attributes:
      window: int32[4], (top, left, height, width) in pixels.
      crops: bool, False where nothing is cropped; the window is then the whole image.
    """

    window: Array
    crops: Array


def _as_options(name: str, value: Any) -> tuple[Scalar, ...]:
    """Return numbers of at least 0; those of torchvision for None."""
    options = _OPTIONS if value is None else setting(value)
    if not isinstance(options, tuple) or not options:
        expected = "a sequence of numbers of at least 0"
        raise ValueError(f"`{name}` must be {expected}, got {options!r}.")
    return tuple(as_number(name, option, 0.0, float("inf")) for option in options)


@dataclass(frozen=True)
class RandomIoUCrop(Geometric):
    """Crop a window that overlaps a box enough, or nothing.

    A least overlap is drawn from `sampler_options`, then up to `trials` windows of random height,
    width and place. The first one is taken whose aspect lies within the bounds, in which a box has
    its center, and which has an IoU of at least the option with such a box. Where none is, another
    option is drawn; with an option of at least 1 nothing is cropped. The image stays on its array,
    with a new "size". Boxes whose centers are cut off are dropped: those that are left stand first,
    in their order, and the other rows are zeros. "box_labels" and what else has a row per box goes
    along, "boxes_valid" and counts are brought up to date, as by `SanitizeBoxes`. Boxes are not
    clipped.

    Args:
      min_scale, max_scale: bounds of the height and width as shares of the image's, in (0, 1].
      min_aspect_ratio, max_aspect_ratio: bounds of width / height, above 0.
      sampler_options: the least overlaps, numbers of at least 0, each as likely; None for
        torchvision's, (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1).
      trials: how many windows are tried with one option.
      per_box: see `SanitizeBoxes`.

    Raises:
      ValueError: on tracing, for an image without "boxes", and for columns of boxes as
        `SanitizeBoxes`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[2.0, 2.0, 18.0, 18.0]])
      >>> sample = {"image": jnp.zeros((20, 30, 3), jnp.uint8), "boxes": boxes}
      >>> sorted(RandomIoUCrop()(jax.random.key(0), sample))
      ['boxes', 'image', 'size']

    Reference: Liu et al., "SSD: Single Shot MultiBox Detector", 2016, section 2.2. The rule is
    torchvision's, which tries without end; here an image is left as it is after 24 options.
    """

    min_scale: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.3
    max_scale: Annotated[float, Converter(as_number, 0.0, 1.0)] = 1.0
    min_aspect_ratio: Annotated[float, Converter(as_number, 0.0, float("inf"))] = 0.5
    max_aspect_ratio: Annotated[float, Converter(as_number, 0.0, float("inf"))] = 2.0
    sampler_options: Annotated[Any, Converter(_as_options)] = None
    trials: PositiveInt = 40
    per_box: Names = ()

    def __post_init__(self):
        super().__post_init__()
        as_number("max_scale", self.max_scale, self.min_scale, 1.0)
        as_number("max_aspect_ratio", self.max_aspect_ratio, self.min_aspect_ratio, float("inf"))

    def make_params(self, key: Key, info: ImageInfo) -> IoUCrop:
        """Draw the options and the windows, and take the first that will do."""
        boxes = _boxes_of(info)
        count = _ROUNDS * self.trials
        numbers = uniform(key, shape=(4 * count + _ROUNDS,))
        least = self._options(numbers[4 * count :])
        windows = self._windows(numbers[: 4 * count].reshape(4, count), info)
        inside, overlap = _overlaps(windows, boxes)
        largest = jnp.max(jnp.where(inside, overlap, -1.0), axis=1, initial=-1.0)
        good = inside.any(axis=1) & (largest >= least) & self._shaped(windows)

        # Chosen by comparisons: they work on every explicit mesh.
        first = jnp.argmax(good | (least >= 1)).astype(jnp.int32)
        first = jnp.arange(count, dtype=jnp.int32) == first
        taken = first & good & (least < 1)
        crops = taken.any()
        window = jnp.sum(jnp.where(taken[:, None], windows, 0), axis=0, dtype=jnp.int32)
        height = jnp.where(crops, window[2], info.height_width[0])
        width = jnp.where(crops, window[3], info.height_width[1])
        return IoUCrop(jnp.stack([window[0], window[1], height, width]), crops)

    def warp(self, params: IoUCrop, info: ImageInfo) -> Warp:
        """Return the shift to the window."""
        top = params.window[0].astype(jnp.float32)
        left = params.window[1].astype(jnp.float32)
        return shifted(top, left, info.canvas, params.window[2:], True)

    def kept_boxes(self, params: IoUCrop, info: ImageInfo) -> Array:
        """Return the boxes with a center inside the window; all where nothing is cropped.

        Those of the image itself: frames of a video share a window, not their boxes.
        """
        boxes = _boxes_of(info)
        inside, _ = _overlaps(params.window[None], boxes)
        return present(boxes) & (inside[0] | ~params.crops)

    def _options(self, numbers: Array) -> Array:
        """Return the least overlap of every window, float32[rounds * trials]."""
        index = integer(numbers, 0, len(self.sampler_options))
        least = jnp.zeros_like(numbers)
        for i, option in enumerate(self.sampler_options):
            least = jnp.where(index == i, option, least)
        return jnp.repeat(least, self.trials)

    def _windows(self, numbers: Array, info: ImageInfo) -> Array:
        """Return int32[rounds * trials, 4] windows (top, left, height, width)."""
        height, width = (jnp.asarray(side, jnp.float32) for side in info.extent)
        shares = between(numbers[:2], self.min_scale, self.max_scale)
        heights = jnp.floor(height * shares[0])
        widths = jnp.floor(width * shares[1])
        tops = jnp.floor((height - heights) * numbers[2])
        lefts = jnp.floor((width - widths) * numbers[3])
        return jnp.stack([tops, lefts, heights, widths], axis=1).astype(jnp.int32)

    def _shaped(self, windows: Array) -> Array:
        """Return True for windows that have pixels and an aspect within the bounds."""
        height, width = (windows[:, i].astype(jnp.float32) for i in (2, 3))
        aspect = width / jnp.maximum(height, 1.0)
        bounded = (aspect >= self.min_aspect_ratio) & (aspect <= self.max_aspect_ratio)
        return bounded & (height > 0) & (width > 0)


def _overlaps(windows: Array, boxes: Array) -> tuple[Array, Array]:
    """Return bool[m, n], True where box n has its center inside window m, and the IoU of both.

    Rows of zeros, which are padding, have theirs in the corner of the image, inside of no window.
    """
    top, left, height, width = (windows[:, i, None].astype(jnp.float32) for i in range(4))
    x0, y0, x1, y1 = (boxes[None, :, i] for i in range(4))
    center_x = (x0 + x1) / 2
    center_y = (y0 + y1) / 2
    inside = (center_x > left) & (center_x < left + width)
    inside = inside & (center_y > top) & (center_y < top + height)
    across = jnp.minimum(x1, left + width) - jnp.maximum(x0, left)
    down = jnp.minimum(y1, top + height) - jnp.maximum(y0, top)
    common = jnp.maximum(across, 0.0) * jnp.maximum(down, 0.0)
    union = (x1 - x0) * (y1 - y0) + height * width - common
    return inside, common / jnp.maximum(union, 1e-6)


def _boxes_of(info: ImageInfo) -> Array:
    """Return float32[n, 4], the boxes or the hulls of oriented ones; raise without any."""
    if info.boxes is None:
        raise ValueError('RandomIoUCrop needs a sample with "boxes", float[n, 4].')
    return hulls(info.boxes.astype(jnp.float32))
