"""Boxes after geometry: `SanitizeBoxes` clips them and drops what is too small."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from jaxaug._typing import Sample
from jaxaug.augment._base import Converter, Drawn, ImageInfo, Names, as_number
from jaxaug.augment._chain import Transform
from jaxaug.augment._warp import (
    VALID,
    area,
    check_box_columns,
    clamp_bounding_boxes,
    packed,
    present,
    shorter_sides,
    shown_area,
)

_LARGEST = 1e9


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
        box and has not, and for "labels", "area", "iscrowd", "masks" or "keypoints" that have one
        but are not in `per_box`.

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
