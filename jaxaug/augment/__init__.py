"""Random image transforms as pure functions of (key, image), and their composition.

One image per call, batches through `jax.vmap`; a dict sample goes through as one, its masks, boxes
and keypoints moving with the image. See `Compose`; the deterministic halves are in `functional`. An
operator of your own derives from `Geometric`, `Pointwise`, `ImageOp`, `SampleOp`, `GroupOp` or
`Output`, with `matrix` for its maps and `random` for its parameters.
"""

import importlib
from typing import TYPE_CHECKING

from jaxaug.augment import functional, matrix, random
from jaxaug.augment._base.info import AudioInfo, ImageInfo, VolumeInfo
from jaxaug.augment._chain.compose import Compose
from jaxaug.augment._chain.control import (
    ByEpoch,
    OneOf,
    RandomApply,
    RandomChoice,
    RandomOrder,
    SomeOf,
)
from jaxaug.augment._chain.frames import Frames
from jaxaug.augment._chain.group import GroupCompose, GroupOp
from jaxaug.augment._chain.transform import (
    Bordered,
    Geometric,
    ImageOp,
    Output,
    Pointwise,
    SampleOp,
    Transform,
)
from jaxaug.augment._chain.views import MultiView
from jaxaug.augment._ops.blur import BoxBlur, Defocus, GaussianBlur, MedianBlur, MotionBlur
from jaxaug.augment._ops.channels import (
    BandGain,
    ChannelDropout,
    HueSaturationValue,
    RandomChannelPermutation,
    RandomHueYIQ,
    RandomRGBShift,
)
from jaxaug.augment._ops.color import (
    ColorJitter,
    Grayscale,
    RandomGrayscale,
    RandomPhotometricDistort,
)
from jaxaug.augment._ops.copy_paste import CopyAndPaste
from jaxaug.augment._ops.crop import CenterCrop, RandomCrop, RandomResizedCrop
from jaxaug.augment._ops.custom import Lambda
from jaxaug.augment._ops.distortion import (
    GridDistortion,
    OpticalDistortion,
    PiecewiseAffine,
    ThinPlateSpline,
    WaterRefraction,
)
from jaxaug.augment._ops.elastic import ElasticTransform
from jaxaug.augment._ops.erase import (
    CoarseDropout,
    ConstrainedCoarseDropout,
    GridDropout,
    PixelDropout,
    RandomErasing,
    XYMasking,
)
from jaxaug.augment._ops.filters import (
    Downscale,
    Emboss,
    Morphological,
    RandomAdjustSharpness,
    UnsharpMask,
)
from jaxaug.augment._ops.five_crop import FiveCrop, TenCrop
from jaxaug.augment._ops.flip import (
    RandomD4,
    RandomHorizontalFlip,
    RandomRotate90,
    RandomTranspose,
    RandomVerticalFlip,
)
from jaxaug.augment._ops.geometry import (
    RandomAffine,
    RandomPerspective,
    RandomShear,
    RandomTranslate,
)
from jaxaug.augment._ops.grid_shuffle import RandomGridShuffle
from jaxaug.augment._ops.histogram import CLAHE, RandomAutocontrast, RandomEqualize
from jaxaug.augment._ops.jpeg import JPEG
from jaxaug.augment._ops.lighting import PCALighting, PlanckianJitter, Vignetting
from jaxaug.augment._ops.medical import BiasField, HEStain, KSpaceSpikeNoise
from jaxaug.augment._ops.mix import CutMix, MixUp, MixUpOrCutMix
from jaxaug.augment._ops.mosaic import Mosaic
from jaxaug.augment._ops.noise import (
    GaussianNoise,
    ISONoise,
    MultiplicativeNoise,
    RicianNoise,
    SaltAndPepper,
    ShotNoise,
)
from jaxaug.augment._ops.of_boxes import (
    RandomCropNearBox,
    RandomIoUCrop,
    RandomSizedBoxSafeCrop,
    SanitizeBoxes,
)
from jaxaug.augment._ops.of_masks import CropNonEmptyMaskIfExists, MaskDropout
from jaxaug.augment._ops.optics import (
    AdvancedBlur,
    ChromaticAberration,
    GlassBlur,
    KernelFilter,
    PixelSpread,
    RingingOvershoot,
    ZoomBlur,
)
from jaxaug.augment._ops.output import Normalize, ToFloat
from jaxaug.augment._ops.overlays import (
    RandomGravel,
    RandomRain,
    RandomShadow,
    RandomSunFlare,
    Spatter,
)
from jaxaug.augment._ops.pad import CropAndPad, LetterBox, Pad, RandomZoomOut
from jaxaug.augment._ops.policies import (
    AugMix,
    AutoAugment,
    RandAugment,
    ThreeAugment,
    TrivialAugmentWide,
)
from jaxaug.augment._ops.printing import (
    Colorize,
    Dithering,
    ExposureMatching,
    Halftone,
    Superpixels,
)
from jaxaug.augment._ops.references import (
    FDA,
    HistogramMatching,
    OverlayElements,
    PixelDistributionAdaptation,
)
from jaxaug.augment._ops.resize import RandomResize, RandomShortestSize, Resize, ScaleJitter
from jaxaug.augment._ops.rotation import RandomRotation
from jaxaug.augment._ops.temporal import (
    FrameDropout,
    RandomTemporalReversal,
    UniformTemporalSubsample,
)
from jaxaug.augment._ops.tone import (
    LookupTable,
    RandomGamma,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    RandomToneCurve,
)
from jaxaug.augment._ops.weather import (
    AtmosphericFog,
    FilmGrain,
    Illumination,
    PlasmaBrightnessContrast,
    PlasmaShadow,
    RandomSnow,
    ToSepia,
)
from jaxaug.augment._warp.fusion import Resampling
from jaxaug.augment._warp.interpolate import unwarp
from jaxaug.augment._warp.warp import Warp, select

if TYPE_CHECKING:
    from jaxaug.augment import audio as audio
    from jaxaug.augment import recipes as recipes
    from jaxaug.augment import volume as volume

__all__ = [
    "CLAHE",
    "FDA",
    "JPEG",
    "AdvancedBlur",
    "AtmosphericFog",
    "AudioInfo",
    "AugMix",
    "AutoAugment",
    "BandGain",
    "BiasField",
    "Bordered",
    "BoxBlur",
    "ByEpoch",
    "CenterCrop",
    "ChannelDropout",
    "ChromaticAberration",
    "CoarseDropout",
    "ColorJitter",
    "Colorize",
    "Compose",
    "ConstrainedCoarseDropout",
    "CopyAndPaste",
    "CropAndPad",
    "CropNonEmptyMaskIfExists",
    "CutMix",
    "Defocus",
    "Dithering",
    "Downscale",
    "ElasticTransform",
    "Emboss",
    "ExposureMatching",
    "FilmGrain",
    "FiveCrop",
    "FrameDropout",
    "Frames",
    "GaussianBlur",
    "GaussianNoise",
    "Geometric",
    "GlassBlur",
    "Grayscale",
    "GridDistortion",
    "GridDropout",
    "GroupCompose",
    "GroupOp",
    "HEStain",
    "Halftone",
    "HistogramMatching",
    "HueSaturationValue",
    "ISONoise",
    "Illumination",
    "ImageInfo",
    "ImageOp",
    "KSpaceSpikeNoise",
    "KernelFilter",
    "Lambda",
    "LetterBox",
    "LookupTable",
    "MaskDropout",
    "MedianBlur",
    "MixUp",
    "MixUpOrCutMix",
    "Morphological",
    "Mosaic",
    "MotionBlur",
    "MultiView",
    "MultiplicativeNoise",
    "Normalize",
    "OneOf",
    "OpticalDistortion",
    "Output",
    "OverlayElements",
    "PCALighting",
    "Pad",
    "PiecewiseAffine",
    "PixelDistributionAdaptation",
    "PixelDropout",
    "PixelSpread",
    "PlanckianJitter",
    "PlasmaBrightnessContrast",
    "PlasmaShadow",
    "Pointwise",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomCropNearBox",
    "RandomD4",
    "RandomEqualize",
    "RandomErasing",
    "RandomGamma",
    "RandomGravel",
    "RandomGrayscale",
    "RandomGridShuffle",
    "RandomHorizontalFlip",
    "RandomHueYIQ",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomRGBShift",
    "RandomRain",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotate90",
    "RandomRotation",
    "RandomShadow",
    "RandomShear",
    "RandomShortestSize",
    "RandomSizedBoxSafeCrop",
    "RandomSnow",
    "RandomSolarize",
    "RandomSunFlare",
    "RandomTemporalReversal",
    "RandomToneCurve",
    "RandomTranslate",
    "RandomTranspose",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resampling",
    "Resize",
    "RicianNoise",
    "RingingOvershoot",
    "SaltAndPepper",
    "SampleOp",
    "SanitizeBoxes",
    "ScaleJitter",
    "ShotNoise",
    "SomeOf",
    "Spatter",
    "Superpixels",
    "TenCrop",
    "ThinPlateSpline",
    "ThreeAugment",
    "ToFloat",
    "ToSepia",
    "Transform",
    "TrivialAugmentWide",
    "UniformTemporalSubsample",
    "UnsharpMask",
    "Vignetting",
    "VolumeInfo",
    "Warp",
    "WaterRefraction",
    "XYMasking",
    "ZoomBlur",
    "audio",
    "functional",
    "matrix",
    "random",
    "recipes",
    "select",
    "unwarp",
    "volume",
]


def __getattr__(name: str):
    if name in ("audio", "recipes", "volume"):  # imported when they are used
        return importlib.import_module(f"jaxaug.augment.{name}")
    raise AttributeError(f"module 'jaxaug.augment' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
