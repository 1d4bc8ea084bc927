"""The pure halves: what each transform does to one image, given its parameters.

Names and arguments follow `torchvision.transforms.v2.functional`, on images [H, W, C].
"""

from jaxaug.augment._ops.blur import box_blur, defocus, gaussian_blur, median_blur, motion_blur
from jaxaug.augment._ops.channels import (
    adjust_hue_yiq,
    drop_channels,
    permute_channels,
    shift_hsv,
    shift_rgb,
)
from jaxaug.augment._ops.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    rgb_to_grayscale,
)
from jaxaug.augment._ops.crop import center_crop, crop, resized_crop
from jaxaug.augment._ops.dihedral import rot90, transpose
from jaxaug.augment._ops.elastic import elastic
from jaxaug.augment._ops.erase import erase
from jaxaug.augment._ops.filters import (
    adjust_sharpness,
    dilate,
    downscale,
    emboss,
    erode,
    laplacian,
    unsharp_mask,
)
from jaxaug.augment._ops.flip import horizontal_flip, vertical_flip
from jaxaug.augment._ops.geometry import affine, perspective
from jaxaug.augment._ops.grid_shuffle import grid_shuffle
from jaxaug.augment._ops.histogram import autocontrast, clahe, equalize
from jaxaug.augment._ops.jpeg import jpeg
from jaxaug.augment._ops.lighting import adjust_temperature, pca_lighting, vignette
from jaxaug.augment._ops.noise import (
    gaussian_noise,
    iso_noise,
    multiplicative_noise,
    salt_and_pepper,
    shot_noise,
)
from jaxaug.augment._ops.output import normalize, to_float
from jaxaug.augment._ops.pad import pad
from jaxaug.augment._ops.resize import resize
from jaxaug.augment._ops.rotation import rotate
from jaxaug.augment._ops.tone import (
    adjust_gamma,
    invert,
    lookup_table,
    posterize,
    solarize,
    tone_curve,
)
from jaxaug.augment._warp.boxes import clamp_bounding_boxes, convert_bounding_box_format

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_hue_yiq",
    "adjust_saturation",
    "adjust_sharpness",
    "adjust_temperature",
    "affine",
    "autocontrast",
    "box_blur",
    "center_crop",
    "clahe",
    "clamp_bounding_boxes",
    "convert_bounding_box_format",
    "crop",
    "defocus",
    "dilate",
    "downscale",
    "drop_channels",
    "elastic",
    "emboss",
    "equalize",
    "erase",
    "erode",
    "gaussian_blur",
    "gaussian_noise",
    "grid_shuffle",
    "horizontal_flip",
    "invert",
    "iso_noise",
    "jpeg",
    "laplacian",
    "lookup_table",
    "median_blur",
    "motion_blur",
    "multiplicative_noise",
    "normalize",
    "pad",
    "pca_lighting",
    "permute_channels",
    "perspective",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rot90",
    "rotate",
    "salt_and_pepper",
    "shift_hsv",
    "shift_rgb",
    "shot_noise",
    "solarize",
    "to_float",
    "tone_curve",
    "transpose",
    "unsharp_mask",
    "vertical_flip",
    "vignette",
]
