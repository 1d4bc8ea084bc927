"""The kinds of transform, and how chains of them run."""

from jaxaug.augment._chain.compose import Compose
from jaxaug.augment._chain.control import RandomChoice
from jaxaug.augment._chain.group import GroupCompose, GroupOp, channels_first, mixable
from jaxaug.augment._chain.transform import (
    Bordered,
    Geometric,
    ImageOp,
    Output,
    Pointwise,
    Transform,
)
from jaxaug.augment._chain.views import MultiView

__all__ = [
    "Bordered",
    "Compose",
    "Geometric",
    "GroupCompose",
    "GroupOp",
    "ImageOp",
    "MultiView",
    "Output",
    "Pointwise",
    "RandomChoice",
    "Transform",
    "channels_first",
    "mixable",
]
