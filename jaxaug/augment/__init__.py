"""Random image transforms as pure functions of (key, image), and their composition.

One image per call, batches through `jax.vmap`; a dict sample goes through as one, its masks, boxes
and keypoints moving with the image. See `Compose`; the deterministic halves are in `functional`. An
operator of your own derives from `Geometric`, `Pointwise`, `ImageOp`, `SampleOp`, `GroupOp` or
`Output`, with `matrix` for its maps and `random` for its parameters.
"""

from jaxaug.augment import functional as functional
from jaxaug.augment import matrix as matrix
from jaxaug.augment import random as random
from jaxaug.augment._bordered import Bordered as Bordered
from jaxaug.augment._compose import Compose as Compose
from jaxaug.augment._group import GroupOp as GroupOp
from jaxaug.augment._group_compose import GroupCompose as GroupCompose
from jaxaug.augment._info import ImageInfo as ImageInfo
from jaxaug.augment._resampling import Resampling as Resampling
from jaxaug.augment._transform import Geometric as Geometric
from jaxaug.augment._transform import ImageOp as ImageOp
from jaxaug.augment._transform import Output as Output
from jaxaug.augment._transform import Pointwise as Pointwise
from jaxaug.augment._transform import SampleOp as SampleOp
from jaxaug.augment._transform import Transform as Transform
from jaxaug.augment._unwarp import unwarp as unwarp
from jaxaug.augment._warp import Warp as Warp
from jaxaug.augment._warp import select as select
from jaxaug.augment.color import ColorJitter as ColorJitter
from jaxaug.augment.color import Grayscale as Grayscale
from jaxaug.augment.crop import CenterCrop as CenterCrop
from jaxaug.augment.crop import RandomCrop as RandomCrop
from jaxaug.augment.crop import RandomResizedCrop as RandomResizedCrop
from jaxaug.augment.custom import Lambda as Lambda
from jaxaug.augment.erase import CoarseDropout as CoarseDropout
from jaxaug.augment.erase import GridDropout as GridDropout
from jaxaug.augment.erase import PixelDropout as PixelDropout
from jaxaug.augment.erase import RandomErasing as RandomErasing
from jaxaug.augment.flip import RandomHorizontalFlip as RandomHorizontalFlip
from jaxaug.augment.flip import RandomVerticalFlip as RandomVerticalFlip
from jaxaug.augment.geometry import RandomAffine as RandomAffine
from jaxaug.augment.geometry import RandomPerspective as RandomPerspective
from jaxaug.augment.geometry import RandomRotation as RandomRotation
from jaxaug.augment.mix import CutMix as CutMix
from jaxaug.augment.mix import MixUp as MixUp
from jaxaug.augment.mix import MixUpOrCutMix as MixUpOrCutMix
from jaxaug.augment.mosaic import Mosaic as Mosaic
from jaxaug.augment.output import Normalize as Normalize
from jaxaug.augment.output import ToFloat as ToFloat
from jaxaug.augment.resize import Resize as Resize
from jaxaug.augment.sanitize import SanitizeBoxes as SanitizeBoxes
