"""A geometric operator as a value, its resample, and what moves with an image."""

from jaxaug.augment._warp.boxes import (
    BOX_FORMATS,
    VALID,
    WEIGHTS,
    area,
    as_boxes,
    box_columns,
    check_box_columns,
    clamp_bounding_boxes,
    clipped,
    given_alone,
    moved_info,
    packed,
    present,
    with_kept_boxes,
)
from jaxaug.augment._warp.displacement import Displacement
from jaxaug.augment._warp.fusion import Resampling, Run, agreed, check_resampling
from jaxaug.augment._warp.interpolate import in_range, resample, warp_image
from jaxaug.augment._warp.targets import (
    BOXES_ELSEWHERE,
    MASK_FILL,
    Targets,
    as_added,
    mask_value,
    spread,
)
from jaxaug.augment._warp.warp import (
    Warp,
    check_one_frame,
    displaced_by,
    has_static_shape,
    select,
    shifted,
)

__all__ = [
    "BOXES_ELSEWHERE",
    "BOX_FORMATS",
    "MASK_FILL",
    "VALID",
    "WEIGHTS",
    "Displacement",
    "Resampling",
    "Run",
    "Targets",
    "Warp",
    "agreed",
    "area",
    "as_added",
    "as_boxes",
    "box_columns",
    "check_box_columns",
    "check_one_frame",
    "check_resampling",
    "clamp_bounding_boxes",
    "clipped",
    "displaced_by",
    "given_alone",
    "has_static_shape",
    "in_range",
    "mask_value",
    "moved_info",
    "packed",
    "present",
    "resample",
    "select",
    "shifted",
    "spread",
    "warp_image",
    "with_kept_boxes",
]
