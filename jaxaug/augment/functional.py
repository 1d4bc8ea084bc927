"""The pure halves: what each transform does to one image, given its parameters.

Names and arguments follow `torchvision.transforms.v2.functional`, on images [H, W, C].
"""

from jaxaug.augment._boxes import clamp_bounding_boxes as clamp_bounding_boxes
from jaxaug.augment._boxes import convert_bounding_box_format as convert_bounding_box_format
from jaxaug.augment.color import adjust_brightness as adjust_brightness
from jaxaug.augment.color import adjust_contrast as adjust_contrast
from jaxaug.augment.color import adjust_hue as adjust_hue
from jaxaug.augment.color import adjust_saturation as adjust_saturation
from jaxaug.augment.color import rgb_to_grayscale as rgb_to_grayscale
from jaxaug.augment.crop import center_crop as center_crop
from jaxaug.augment.crop import crop as crop
from jaxaug.augment.crop import resized_crop as resized_crop
from jaxaug.augment.erase import erase as erase
from jaxaug.augment.flip import horizontal_flip as horizontal_flip
from jaxaug.augment.flip import vertical_flip as vertical_flip
from jaxaug.augment.geometry import affine as affine
from jaxaug.augment.geometry import perspective as perspective
from jaxaug.augment.geometry import rotate as rotate
from jaxaug.augment.output import normalize as normalize
from jaxaug.augment.output import to_float as to_float
from jaxaug.augment.resize import resize as resize
