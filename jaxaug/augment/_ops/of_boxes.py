"""Operators that look at boxes: crops of them or near them, and what keeps those that are left."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample, Scalar
from jaxaug.augment._base import (
    Converter,
    Drawn,
    ImageInfo,
    Interpolation,
    Names,
    PositiveInt,
    Size,
    UnitRange,
    as_number,
    setting,
)
from jaxaug.augment._chain import Geometric, Transform
from jaxaug.augment._ops.crop import Window, WindowCrop
from jaxaug.augment._warp import (
    VALID,
    Warp,
    area,
    check_box_columns,
    clamp_bounding_boxes,
    hulls,
    packed,
    present,
    shifted,
    shorter_sides,
    shown_area,
)
from jaxaug.augment.random import between, integer, uniform

# torchvision draws rounds without end; an image that gives none within these is left as it is,
# which is how most of the endless ones end.
_ROUNDS = 24
_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_LARGEST = 1e9


@dataclass(frozen=True)
class BoxCrop(WindowCrop):
    """A window that depends on the boxes, resized."""

    size: Size
    _: KW_ONLY
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class RandomSizedBoxSafeCrop(BoxCrop):
    """Crop a random window that holds all boxes, and resize it to one size, antialiased.

    Each side of the window lies uniformly between the hull of the boxes and the edge of the image;
    of an image without boxes, between a random point and the edge.

    Args:
      size: (height, width) of the output in pixels, or an int for a square.
      erosion_rate: the share of the hull, of its sides, that may be cut off, in [0, 1].
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[2.0, 2.0, 18.0, 18.0]])
      >>> sample = {"image": jnp.zeros((20, 30, 3), jnp.uint8), "boxes": boxes}
      >>> RandomSizedBoxSafeCrop(8)(jax.random.key(0), sample)["image"].shape
      (8, 8, 3)

    Reference: `albumentations.RandomSizedBBoxSafeCrop`.
    """

    erosion_rate: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.0

    def make_params(self, key: Key, info: ImageInfo) -> Window:
        """Draw the window."""
        numbers = uniform(key, shape=(6,))
        height, width = map(jnp.float32, info.extent)
        point = jnp.stack([numbers[4] * width, numbers[5] * height] * 2)
        hull = point
        if info.boxes is not None and info.boxes.shape[0]:
            hull = _hull(info.boxes, point)
        margin = (hull[2:] - hull[:2]) * (self.erosion_rate / 2)
        sides = jnp.stack([width, height])
        low = jnp.clip(hull[:2] + margin, 0.0, sides)
        high = jnp.clip(hull[2:] - margin, low, sides)
        return _window(low * numbers[:2], high + (sides - high) * numbers[2:4], info)


@dataclass(frozen=True)
class RandomCropNearBox(BoxCrop):
    """Crop about a box, each of its sides shifted at random, and resize it to one size.

    The box is one of the sample's, each as likely; of an image without boxes it is the image.

    Args:
      size: (height, width) of the output in pixels, or an int for a square.
      max_part_shift: (y, x), how far a side is shifted at most, in or out, as a share of the box's
        height and width, in [0, 1].
      interpolation: "bilinear", "bicubic" or "nearest".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[2.0, 2.0, 18.0, 18.0]])
      >>> sample = {"image": jnp.zeros((20, 30, 3), jnp.uint8), "boxes": boxes}
      >>> RandomCropNearBox(8)(jax.random.key(0), sample)["image"].shape
      (8, 8, 3)

    Reference: `albumentations.RandomCropNearBBox`, without a resize; the choice of an object is
    that of DALI's `segmentation.random_object_bbox`.
    """

    max_part_shift: UnitRange = (0.0, 0.3)

    def make_params(self, key: Key, info: ImageInfo) -> Window:
        """Draw the box and the shifts."""
        numbers = uniform(key, shape=(5,))
        height, width = map(jnp.float32, info.extent)
        # Not zeros, which would be no values of the sample on an explicit mesh.
        box = jnp.stack([width - width, height - height, width, height])
        if info.boxes is not None and info.boxes.shape[0]:
            box = _one_of(info.boxes, numbers[4], box)
        low, high = box[:2], box[2:]
        reach = (high - low) * jnp.stack([jnp.float32(part) for part in self.max_part_shift[::-1]])
        low = low + between(numbers[:2], -reach, reach)
        high = high + between(numbers[2:4], -reach, reach)
        return _window(low, high, info)


def _hull(boxes: Array, otherwise: Array) -> Array:
    """Return (left, top, right, bottom) about all boxes; `otherwise` without any."""
    here = present(boxes)[:, None]
    boxes = hulls(boxes.astype(jnp.float32))
    low = jnp.min(jnp.where(here, boxes[:, :2], jnp.inf), axis=0)
    high = jnp.max(jnp.where(here, boxes[:, 2:], -jnp.inf), axis=0)
    return jnp.where(here.any(), jnp.concatenate([low, high]), otherwise)


def _one_of(boxes: Array, number: Array, otherwise: Array) -> Array:
    """Return one of the boxes by a number in [0, 1); `otherwise` without any."""
    here = present(boxes)
    rank = jnp.cumsum(here, dtype=jnp.int32) - 1
    count = jnp.sum(here, dtype=jnp.int32)
    chosen = here & (rank == integer(number, 0, jnp.maximum(count, 1)))
    box = jnp.sum(jnp.where(chosen[:, None], hulls(boxes.astype(jnp.float32)), 0.0), axis=0)
    return jnp.where(here.any(), box, otherwise)


def _window(low: Array, high: Array, info: ImageInfo) -> Window:
    """Return whole pixels inside of the image that hold (x, y) low to high, at least one."""
    height, width = map(jnp.int32, info.height_width)
    left, top = jnp.floor(low).astype(jnp.int32)
    right, bottom = jnp.ceil(high).astype(jnp.int32)
    left = jnp.clip(left, 0, width - 1)
    top = jnp.clip(top, 0, height - 1)
    right = jnp.clip(right, left + 1, width)
    bottom = jnp.clip(bottom, top + 1, height)
    return Window(top, left, bottom - top, right - left)


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
        height, width = map(jnp.float32, info.extent)
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


@dataclass(frozen=True)
class SanitizeBoxes(Transform):
    """Clip "boxes" at the edges of the image and drop those of which too little is left.

    Place it after the geometric transforms: inside a run nothing is clipped. The boxes that are
    left stand first, in their order, with "boxes_valid" bool[n] to mark them; the other rows are
    zeros. Entries whose names begin with "box_", such as "box_labels", have a row per box and go
    along; their padding is 0, that of integers -1. "box_count" or "boxes_length" is brought up to
    date where there is one; before, it says which rows are boxes, as an earlier "boxes_valid" does.
    Oriented boxes are dropped by the area of what is inside, and not clipped.

    Args:
      min_size: the smallest width and height, in pixels.
      min_area: the smallest area, in square pixels.
      min_visibility: the smallest share of a box's area inside of the image, in [0, 1].
      per_box: the names of other entries with a row per box, which go along where present.

    Raises:
      ValueError: on a call, for a sample without "boxes", for an entry that should have a row per
        box and has not, and for "labels", "scores", "area", "iscrowd", "masks", "keypoints" or
        another of the usual names that has one but is not in `per_box`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[7.0, 0.0, 99.0, 8.0], [-2.0, 1.0, 5.0, 9.0]])
      >>> sample = {"image": jnp.zeros((8, 8, 3), jnp.uint8), "boxes": boxes}
      >>> SanitizeBoxes(min_visibility=0.1)(jax.random.key(0), sample)["boxes"].tolist()
      [[0.0, 1.0, 5.0, 8.0], [0.0, 0.0, 0.0, 0.0]]

    Differs from torchvision's SanitizeBoundingBoxes in clipping, and in the static number of rows.
    """

    min_size: Annotated[float, Converter(as_number, 0.0, _LARGEST)] = 1.0
    min_area: Annotated[float, Converter(as_number, 0.0, _LARGEST)] = 1.0
    min_visibility: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.0
    per_box: Names = ()

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` with the boxes that are left."""
        if info.boxes is None:
            return info
        return info._replace(boxes=self._left({"boxes": info.boxes}, info)["boxes"])

    def apply_rest(
        self, params: None, rest: Sample, kinds: Mapping[str, str], info: ImageInfo
    ) -> Sample:
        """Return the boxes that are left, and what goes along with them."""
        if "boxes" not in rest:
            raise ValueError(
                f"SanitizeBoxes needs 'boxes' in the sample, got {sorted([*rest, 'image'])}."
            )
        check_box_columns(self, rest)
        return self._left(rest, info)

    def _left(self, sample: Sample, info: ImageInfo) -> Sample:
        """Return the sample with the boxes that are left."""
        height, width = info.extent
        boxes = clamp_bounding_boxes(sample["boxes"], height, width)
        shown = shown_area(boxes, (0, 0, width, height))
        large = (shorter_sides(boxes) >= self.min_size) & (shown >= self.min_area)
        keep = present(boxes) & large
        keep = keep & (shown >= self.min_visibility * area(sample["boxes"]))
        return packed({**sample, "boxes": boxes, VALID: keep}, keep, self.per_box)
