"""The kinds of transform, and how chains of them run."""

from jaxaug.augment._chain.compose import Compose, Transforms
from jaxaug.augment._chain.control import ByEpoch, RandomApply, RandomChoice
from jaxaug.augment._chain.frames import Frames, frames_name, over_clips, split_frames
from jaxaug.augment._chain.group import (
    GroupCompose,
    GroupOp,
    channels_first,
    check_layout,
    mixable,
    with_soft_labels,
)
from jaxaug.augment._chain.progress import Note, State, check_key, resampled, warped
from jaxaug.augment._chain.transform import (
    Bordered,
    Geometric,
    ImageOp,
    Output,
    Pointwise,
    SampleOp,
    Transform,
)
from jaxaug.augment._chain.views import MultiView, image_alone, stacked

__all__ = [
    "Bordered",
    "ByEpoch",
    "Compose",
    "Frames",
    "Geometric",
    "GroupCompose",
    "GroupOp",
    "ImageOp",
    "MultiView",
    "Note",
    "Output",
    "Pointwise",
    "RandomApply",
    "RandomChoice",
    "SampleOp",
    "State",
    "Transform",
    "Transforms",
    "channels_first",
    "check_key",
    "check_layout",
    "frames_name",
    "image_alone",
    "mixable",
    "over_clips",
    "resampled",
    "split_frames",
    "stacked",
    "warped",
    "with_soft_labels",
]
