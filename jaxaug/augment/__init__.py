"""Random image transforms as pure functions of (key, image), and their composition.

One image a call, batches through `jax.vmap`; a dict sample goes through whole, its masks, boxes and
keypoints moving with the image. See `Compose`; the deterministic halves are in `functional`.
"""

from jaxaug.augment import functional as functional
from jaxaug.augment._base import Geometric as Geometric
from jaxaug.augment._base import ImageInfo as ImageInfo
from jaxaug.augment._base import ImageOp as ImageOp
from jaxaug.augment._base import Output as Output
from jaxaug.augment._base import Transform as Transform
from jaxaug.augment._compose import Compose as Compose
from jaxaug.augment._warp import Warp as Warp
from jaxaug.augment.color import ColorJitter as ColorJitter
from jaxaug.augment.color import Grayscale as Grayscale
from jaxaug.augment.crop import CenterCrop as CenterCrop
from jaxaug.augment.crop import RandomCrop as RandomCrop
from jaxaug.augment.crop import RandomResizedCrop as RandomResizedCrop
from jaxaug.augment.custom import Lambda as Lambda
from jaxaug.augment.flip import RandomHorizontalFlip as RandomHorizontalFlip
from jaxaug.augment.flip import RandomVerticalFlip as RandomVerticalFlip
from jaxaug.augment.geometry import RandomAffine as RandomAffine
from jaxaug.augment.geometry import RandomPerspective as RandomPerspective
from jaxaug.augment.geometry import RandomRotation as RandomRotation
from jaxaug.augment.output import Normalize as Normalize
from jaxaug.augment.output import ToFloat as ToFloat
from jaxaug.augment.resize import Resize as Resize
