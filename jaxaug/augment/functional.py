"""The pure halves: what each transform does to one image, given its parameters.

Names and arguments follow `torchvision.transforms.v2.functional`, on images [H, W, C].
"""

from jaxaug.augment.blur import box_blur as box_blur
from jaxaug.augment.blur import defocus as defocus
from jaxaug.augment.blur import gaussian_blur as gaussian_blur
from jaxaug.augment.blur import median_blur as median_blur
from jaxaug.augment.blur import motion_blur as motion_blur
from jaxaug.augment.channels import adjust_hue_yiq as adjust_hue_yiq
from jaxaug.augment.channels import drop_channels as drop_channels
from jaxaug.augment.channels import permute_channels as permute_channels
from jaxaug.augment.channels import shift_hsv as shift_hsv
from jaxaug.augment.channels import shift_rgb as shift_rgb
from jaxaug.augment.color import adjust_brightness as adjust_brightness
from jaxaug.augment.color import adjust_contrast as adjust_contrast
from jaxaug.augment.color import adjust_hue as adjust_hue
from jaxaug.augment.color import adjust_saturation as adjust_saturation
from jaxaug.augment.color import rgb_to_grayscale as rgb_to_grayscale
from jaxaug.augment.crop import center_crop as center_crop
from jaxaug.augment.crop import crop as crop
from jaxaug.augment.crop import resized_crop as resized_crop
from jaxaug.augment.dihedral import rot90 as rot90
from jaxaug.augment.dihedral import transpose as transpose
from jaxaug.augment.elastic import elastic as elastic
from jaxaug.augment.filters import adjust_sharpness as adjust_sharpness
from jaxaug.augment.filters import dilate as dilate
from jaxaug.augment.filters import downscale as downscale
from jaxaug.augment.filters import erode as erode
from jaxaug.augment.filters import laplacian as laplacian
from jaxaug.augment.flip import horizontal_flip as horizontal_flip
from jaxaug.augment.flip import vertical_flip as vertical_flip
from jaxaug.augment.geometry import affine as affine
from jaxaug.augment.geometry import perspective as perspective
from jaxaug.augment.histogram import autocontrast as autocontrast
from jaxaug.augment.histogram import clahe as clahe
from jaxaug.augment.histogram import equalize as equalize
from jaxaug.augment.jpeg import jpeg as jpeg
from jaxaug.augment.lighting import adjust_temperature as adjust_temperature
from jaxaug.augment.lighting import pca_lighting as pca_lighting
from jaxaug.augment.noise import gaussian_noise as gaussian_noise
from jaxaug.augment.noise import iso_noise as iso_noise
from jaxaug.augment.noise import multiplicative_noise as multiplicative_noise
from jaxaug.augment.noise import salt_and_pepper as salt_and_pepper
from jaxaug.augment.noise import shot_noise as shot_noise
from jaxaug.augment.output import normalize as normalize
from jaxaug.augment.output import to_float as to_float
from jaxaug.augment.pad import pad as pad
from jaxaug.augment.resize import resize as resize
from jaxaug.augment.rotation import rotate as rotate
from jaxaug.augment.tone import adjust_gamma as adjust_gamma
from jaxaug.augment.tone import invert as invert
from jaxaug.augment.tone import lookup_table as lookup_table
from jaxaug.augment.tone import posterize as posterize
from jaxaug.augment.tone import solarize as solarize
from jaxaug.augment.tone import tone_curve as tone_curve
