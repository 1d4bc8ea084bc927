"""Four images in one: `Mosaic`."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    Color,
    Converter,
    ImageInfo,
    Names,
    Size,
    UnitRange,
    as_class_index,
    as_int,
    as_number,
    as_optional,
    chosen,
    stored_as,
    top_level,
)
from jaxaug.augment._chain import GroupOp, channels_first, mixable
from jaxaug.augment._warp import (
    MASK_FILL,
    VALID,
    area,
    box_columns,
    clipped,
    mask_value,
    packed,
    shown_area,
)
from jaxaug.augment.random import between, uniform


class Layout(NamedTuple):
    """The parameters of the mosaics of a group, one for each of its samples.

    Attributes:
      center: int32[4, 2], (y, x) of the pixel where the four quadrants meet.
      order: int32[4, 4], the sample in each quadrant: top left, top right, bottom left, bottom
        right.
    """

    center: Array
    order: Array


class _Quadrants(NamedTuple):
    """The quadrants of one mosaic, each field [4].

    Attributes:
      sample: int32, the sample of the group.
      offset: int32[4, 2], (y, x) of the sample's corner in the mosaic.
      window: int32[4, 4], (left, top, right, bottom) of what shows it.
    """

    sample: Array
    offset: Array
    window: Array


@dataclass(frozen=True)
class Mosaic(GroupOp):
    """Show four images around a random point, each at its own scale.

    For `Loader(batch_transform=...)`: samples 4k to 4k + 3 of the global batch make four mosaics,
    each with its own center and order. A corner of each image lies at the center; what the frame
    or the other quadrants cut off is lost. A sample that is not "valid" is replaced by the one
    whose mosaic it is. Pixels are copied, so `Resize` or `RandomAffine` may come before or after
    (see `GroupCompose`), but `Normalize` and `ToFloat` only after it: images must be uint8 or
    uint16.

    Args:
      size: (height, width) of the result, or an int for a square.
      center: (low, high), the place of the center, as a share of each side.
      num_classes: see `MixUp`; labels are mixed by the area that shows them.
      fill: the color where no image lies: a number in [0, 1], or one per channel.
      mask_fill: the label of an integer "mask" there.
      min_visibility: boxes of which a smaller share of the area shows are dropped.
      until: from this epoch on each image stands alone, in the middle of the frame; None for never.
        It needs the "epoch" of the samples, which the Loader gives.
      per_box: the names of entries with a row per box, beside those that begin with "box_".

    Returns:
      On a call `(key, group)` the group, images and masks in their dtypes, without "size". "boxes"
      [n, 4], xyxy, become [4n, 4], cut at the quadrants and packed to the front; "boxes_valid"
      bool[4n] marks them.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> group = {"image": jnp.zeros((4, 8, 9, 3), jnp.uint8)}
      >>> Mosaic(12)(jax.random.key(0), group)["image"].shape
      (4, 12, 12, 3)

    Reference: Bochkovskiy et al., YOLOv4, 2020.
    """

    size: Size
    center: UnitRange = (0.25, 0.75)
    num_classes: Annotated[int | None, Converter(as_optional, as_int, 1)] = None
    fill: Color = 0.0
    mask_fill: Annotated[int, Converter(as_class_index)] = MASK_FILL
    min_visibility: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.1
    per_box: Names = ()
    until: Annotated[int | None, Converter(as_optional, as_int, 0)] = None
    group_size = 4

    def make_params(self, key: Key, info: ImageInfo) -> Layout:
        """Draw the centers and the orders."""
        numbers = uniform(key, shape=(4, 6))
        side = jnp.asarray(self.size, jnp.float32)[None, :]
        center = jnp.round(between(numbers[:, :2], *self.center) * side).astype(jnp.int32)
        return Layout(center, jnp.argsort(numbers[:, 2:], axis=1).astype(jnp.int32))

    def apply(self, params: Layout, group: Sample, info: ImageInfo) -> Sample:
        """Return the mosaics of images, labels, masks and boxes."""
        group = mixable(self, group)
        _check_pixels(self, group["image"], self.fill)
        rows, columns = info.canvas
        sizes = info.size
        if sizes is None:
            sizes = jnp.broadcast_to(jnp.array([[rows, columns]], jnp.int32), (4, 2))
        group.pop("size", None)

        def one(own: Array, center: Array, order: Array) -> Sample:
            if "valid" in group:
                order = jnp.where(group["valid"][order], order, own)
            quadrants = _placed(center, order, sizes, self.size)
            if self.until is not None:
                if "epoch" not in group:
                    raise ValueError(
                        "`until` of Mosaic needs the 'epoch' of samples: a Loader gives it."
                    )
                late = jnp.asarray(group["epoch"])[0] >= self.until
                quadrants = chosen(late, _alone(own, sizes, self.size), quadrants)
            return self._mosaic(own, quadrants, group)

        return jax.vmap(one)(jnp.arange(4, dtype=jnp.int32), *params)

    def _mosaic(self, own: Array, quadrants: _Quadrants, group: Sample) -> Sample:
        """Return the mosaic that takes the place of sample `own`."""
        mosaic = {name: value[own] for name, value in group.items()}
        fill = stored_as(jnp.asarray(self.fill, jnp.float32), group["image"].dtype)
        mosaic["image"] = _copied(group["image"], quadrants, self.size, fill)
        if "mask" in group:
            fill = mask_value(group["mask"].dtype, self.mask_fill)
            mosaic["mask"] = _copied(group["mask"], quadrants, self.size, fill)
        if "label" in group:
            labels = group["label"][quadrants.sample]
            shown = area(quadrants.window.astype(jnp.float32))
            share = jnp.expand_dims(shown / jnp.sum(shown), range(1, labels.ndim))
            mosaic["label"] = jnp.sum(share * labels, axis=0)
        return self._with_boxes(mosaic, quadrants, group) if "boxes" in group else mosaic

    def _with_boxes(self, mosaic: Sample, quadrants: _Quadrants, group: Sample) -> Sample:
        """Return the mosaic with the boxes of its quadrants."""
        before = group["boxes"][quadrants.sample]
        columns = before.shape[-1]
        shift = jnp.tile(quadrants.offset[:, ::-1], (1, columns // 2)).astype(before.dtype)
        moved = before + shift[:, None, :]  # padding too: a point, of which nothing shows
        boxes, shown = jax.vmap(_within)(moved, quadrants.window)
        keep = (shown > 0) & (shown >= self.min_visibility * jax.vmap(area)(moved))

        for name in box_columns(mosaic, self.per_box):
            rows = group[name][quadrants.sample]
            mosaic[name] = rows.reshape(-1, *rows.shape[2:])
        keep = keep.reshape(-1)
        return packed(
            {**mosaic, "boxes": boxes.reshape(-1, columns), VALID: keep}, keep, self.per_box
        )


def _within(boxes: Array, window: Array) -> tuple[Array, Array]:
    """Return boxes cut at a window, and the areas that show in it."""
    sides = tuple(window)
    return clipped(boxes, sides), shown_area(boxes, sides)


def _placed(center: Array, order: Array, sizes: Array, frame: tuple[int, int]) -> _Quadrants:
    """Return the quadrants around `center`: each sample has one of its corners there."""
    y, x = center
    height, width = sizes[order].T
    upper = jnp.array([True, True, False, False])
    leftmost = jnp.array([True, False, True, False])
    top = jnp.where(upper, y - height, y)
    left = jnp.where(leftmost, x - width, x)
    right = jnp.clip(left + width, 0, jnp.where(leftmost, x, frame[1]))
    bottom = jnp.clip(top + height, 0, jnp.where(upper, y, frame[0]))
    window = [jnp.maximum(left, 0), jnp.maximum(top, 0), right, bottom]
    return _Quadrants(order, jnp.stack([top, left], axis=1), jnp.stack(window, axis=1))


def _alone(own: Array, sizes: Array, frame: tuple[int, int]) -> _Quadrants:
    """Return quadrants of which the first is sample `own` in the middle, and the others nothing."""
    height, width = sizes[own]
    top, left = (frame[0] - height) // 2, (frame[1] - width) // 2
    window = [left, top, left + width, top + height]
    window = [jnp.maximum(window[0], 0), jnp.maximum(window[1], 0), *window[2:]]
    shown = jnp.stack([jnp.minimum(side, frame[1 - i % 2]) for i, side in enumerate(window)])
    first = jnp.arange(4, dtype=jnp.int32)[:, None] == 0
    offset = jnp.broadcast_to(jnp.stack([top, left])[None], (4, 2))
    return _Quadrants(jnp.broadcast_to(own, (4,)), offset, jnp.where(first, shown[None], 0))


def _copied(values: Array, quadrants: _Quadrants, frame: tuple[int, int], fill: Array) -> Array:
    """Return the pixels [*frame, ...] of `values` [4, H, W, ...], `fill` where there is none."""
    y = jnp.arange(frame[0], dtype=jnp.int32)[:, None]
    x = jnp.arange(frame[1], dtype=jnp.int32)[None, :]
    sample = jnp.zeros(frame, jnp.int32)
    row = jnp.zeros(frame, jnp.int32)
    column = jnp.zeros(frame, jnp.int32)
    shown = jnp.zeros(frame, bool)
    for i in range(4):
        left, top, right, bottom = quadrants.window[i]
        here = ((y >= top) & (y < bottom)) & ((x >= left) & (x < right))
        sample = jnp.where(here, quadrants.sample[i], sample)
        row = jnp.where(here, y - quadrants.offset[i, 0], row)
        column = jnp.where(here, x - quadrants.offset[i, 1], column)
        shown = shown | here
    pixels = values.at[sample, row, column].get(mode="promise_in_bounds")
    shown = shown if values.ndim == 3 else shown[:, :, None]
    return jnp.where(shown, pixels, jnp.broadcast_to(fill, pixels.shape))


def _check_pixels(transform: GroupOp, images: Array, fill: Color) -> None:
    """Raise for images in another layout, that may be normalized, or that `fill` does not fit."""
    name = type(transform).__name__
    if channels_first(images):
        raise ValueError(
            f"{name} needs images [H, W, C], got {images.shape[1:]} of layout CHW: put the output"
            f" (Normalize, ToFloat) after it, in GroupCompose([{name}(...), ...])."
        )
    if top_level(images.dtype) is None:
        raise TypeError(
            f"{name} needs uint8 or uint16 images, got {images.dtype}, which may be normalized: put"
            f" the output (Normalize, ToFloat) after it, in GroupCompose([{name}(...), ...])."
        )
    if isinstance(fill, tuple) and len(fill) != images.shape[3]:
        raise ValueError(
            f"`fill` of {name} must be one number, or one per channel of the images"
            f" {images.shape[1:]}, got {fill}."
        )
