"""Random transforms of volumes, CT, MRI or microscopy, as pure functions of (key, sample).

A sample has a "volume" [D, H, W] or [D, H, W, C] and, if they are there, "labels" [D, H, W] of
whole numbers and its "spacing", float32[3] in mm. One volume a call, batches through `jax.vmap`;
`Compose` and the choices take these transforms as they take those of images.

Spatial transforms that follow each other are one resample: the volume linearly, the labels by the
nearest voxel. Volumes come out as float32: of uint8 and uint16 in [0, 1], of other numbers in their
units. An operator of your own derives from `Spatial`, `Intensity` or `VolumeOp`.
"""

from jaxaug.augment.volume._kind import Border, Intensity, Spatial, VolumeOp, inverse, warp_of
from jaxaug.augment.volume._warp import VolumeWarp
from jaxaug.augment.volume.crop import (
    CenterCrop,
    Crop,
    CropOrPad,
    ForegroundCrop,
    GridShuffle,
    ResizedCrop,
)
from jaxaug.augment.volume.intensity import (
    BiasField,
    CoarseDropout,
    Equalize,
    Gamma,
    Noise,
    Standardize,
    Window,
)
from jaxaug.augment.volume.mix import Transplantation
from jaxaug.augment.volume.neighbors import Anisotropy, Blur, MotionBlur
from jaxaug.augment.volume.spatial import Affine, Elastic, Flip, Perspective, QuarterTurn, Resize

__all__ = [
    "Affine",
    "Anisotropy",
    "BiasField",
    "Blur",
    "Border",
    "CenterCrop",
    "CoarseDropout",
    "Crop",
    "CropOrPad",
    "Elastic",
    "Equalize",
    "Flip",
    "ForegroundCrop",
    "Gamma",
    "GridShuffle",
    "Intensity",
    "MotionBlur",
    "Noise",
    "Perspective",
    "QuarterTurn",
    "Resize",
    "ResizedCrop",
    "Spatial",
    "Standardize",
    "Transplantation",
    "VolumeOp",
    "VolumeWarp",
    "Window",
    "inverse",
    "warp_of",
]
