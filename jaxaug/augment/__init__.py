"""Random image transforms as pure functions of (key, image), and their composition.

One image per call, batches through `jax.vmap`; a dict sample goes through as one, its masks, boxes
and keypoints moving with the image. See `Compose`; the deterministic halves are in `functional`. An
operator of your own derives from `Geometric`, `Pointwise`, `ImageOp`, `SampleOp`, `GroupOp` or
`Output`, with `matrix` for its maps and `random` for its parameters.
"""

from jaxaug.augment import functional as functional
from jaxaug.augment import matrix as matrix
from jaxaug.augment import random as random
from jaxaug.augment import recipes as recipes
from jaxaug.augment._bordered import Bordered as Bordered
from jaxaug.augment._compose import Compose as Compose
from jaxaug.augment._group import GroupOp as GroupOp
from jaxaug.augment._info import ImageInfo as ImageInfo
from jaxaug.augment._resampling import Resampling as Resampling
from jaxaug.augment._transform import Geometric as Geometric
from jaxaug.augment._transform import ImageOp as ImageOp
from jaxaug.augment._transform import Output as Output
from jaxaug.augment._transform import Pointwise as Pointwise
from jaxaug.augment._transform import SampleOp as SampleOp
from jaxaug.augment._transform import Transform as Transform
from jaxaug.augment._warp import Warp as Warp
from jaxaug.augment._warp import select as select
from jaxaug.augment.blur import BoxBlur as BoxBlur
from jaxaug.augment.blur import Defocus as Defocus
from jaxaug.augment.blur import GaussianBlur as GaussianBlur
from jaxaug.augment.blur import MedianBlur as MedianBlur
from jaxaug.augment.blur import MotionBlur as MotionBlur
from jaxaug.augment.channels import ChannelDropout as ChannelDropout
from jaxaug.augment.channels import HueSaturationValue as HueSaturationValue
from jaxaug.augment.channels import RandomChannelPermutation as RandomChannelPermutation
from jaxaug.augment.channels import RandomHueYIQ as RandomHueYIQ
from jaxaug.augment.channels import RandomRGBShift as RandomRGBShift
from jaxaug.augment.color import ColorJitter as ColorJitter
from jaxaug.augment.color import Grayscale as Grayscale
from jaxaug.augment.control import OneOf as OneOf
from jaxaug.augment.control import RandomApply as RandomApply
from jaxaug.augment.control import RandomChoice as RandomChoice
from jaxaug.augment.control import RandomOrder as RandomOrder
from jaxaug.augment.control import SomeOf as SomeOf
from jaxaug.augment.crop import CenterCrop as CenterCrop
from jaxaug.augment.crop import RandomCrop as RandomCrop
from jaxaug.augment.crop import RandomResizedCrop as RandomResizedCrop
from jaxaug.augment.custom import Lambda as Lambda
from jaxaug.augment.filters import Downscale as Downscale
from jaxaug.augment.filters import Morphological as Morphological
from jaxaug.augment.filters import RandomAdjustSharpness as RandomAdjustSharpness
from jaxaug.augment.flip import RandomHorizontalFlip as RandomHorizontalFlip
from jaxaug.augment.flip import RandomVerticalFlip as RandomVerticalFlip
from jaxaug.augment.geometry import RandomAffine as RandomAffine
from jaxaug.augment.geometry import RandomPerspective as RandomPerspective
from jaxaug.augment.geometry import RandomRotation as RandomRotation
from jaxaug.augment.histogram import CLAHE as CLAHE
from jaxaug.augment.histogram import RandomAutocontrast as RandomAutocontrast
from jaxaug.augment.histogram import RandomEqualize as RandomEqualize
from jaxaug.augment.jpeg import JPEG as JPEG
from jaxaug.augment.lighting import PCALighting as PCALighting
from jaxaug.augment.lighting import PlanckianJitter as PlanckianJitter
from jaxaug.augment.noise import GaussianNoise as GaussianNoise
from jaxaug.augment.noise import ISONoise as ISONoise
from jaxaug.augment.noise import MultiplicativeNoise as MultiplicativeNoise
from jaxaug.augment.noise import SaltAndPepper as SaltAndPepper
from jaxaug.augment.noise import ShotNoise as ShotNoise
from jaxaug.augment.output import Normalize as Normalize
from jaxaug.augment.output import ToFloat as ToFloat
from jaxaug.augment.photometric import RandomPhotometricDistort as RandomPhotometricDistort
from jaxaug.augment.policies import AugMix as AugMix
from jaxaug.augment.policies import AutoAugment as AutoAugment
from jaxaug.augment.policies import RandAugment as RandAugment
from jaxaug.augment.policies import ThreeAugment as ThreeAugment
from jaxaug.augment.policies import TrivialAugmentWide as TrivialAugmentWide
from jaxaug.augment.resize import Resize as Resize
from jaxaug.augment.tone import LookupTable as LookupTable
from jaxaug.augment.tone import RandomGamma as RandomGamma
from jaxaug.augment.tone import RandomInvert as RandomInvert
from jaxaug.augment.tone import RandomPosterize as RandomPosterize
from jaxaug.augment.tone import RandomSolarize as RandomSolarize
from jaxaug.augment.tone import RandomToneCurve as RandomToneCurve
from jaxaug.augment.views import MultiView as MultiView
