"""The pure halves: what each transform does to one image, given its parameters.

Names and arguments follow `torchvision.transforms.v2.functional`, on images [H, W, C].

Of the functions that move pixels there are kernels beside them, by torchvision's names:
`horizontal_flip_bounding_boxes(boxes, canvas_size)`, `rotate_keypoints(points, canvas_size, 30)`,
`resize_mask(mask, (8, 9))` and `crop_video(frames, 0, 0, 8, 9)`, of the others those of videos. The
arguments behind the (height, width) of the image, the mask or the frames are the function's. Boxes
are xyxy, or what `format=` says, and are not clipped; masks take `fill=`, a label.
"""

from collections.abc import Callable
from typing import Any

from jaxaug.augment._ops.anchors import encode_boxes
from jaxaug.augment._ops.blur import box_blur, defocus, gaussian_blur, median_blur, motion_blur
from jaxaug.augment._ops.channels import (
    adjust_hue_yiq,
    drop_channels,
    permute_channels,
    scale_channels,
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
from jaxaug.augment._ops.copy_paste import boxes_of_masks
from jaxaug.augment._ops.crop import center_crop, crop, resized_crop
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
from jaxaug.augment._ops.flip import horizontal_flip, rot90, transpose, vertical_flip
from jaxaug.augment._ops.geometry import affine, perspective
from jaxaug.augment._ops.grid_shuffle import grid_shuffle
from jaxaug.augment._ops.histogram import autocontrast, clahe, equalize
from jaxaug.augment._ops.jpeg import jpeg
from jaxaug.augment._ops.kernels import kernels as _kernels_of
from jaxaug.augment._ops.lighting import adjust_temperature, pca_lighting, vignette
from jaxaug.augment._ops.medical import adjust_stain, bias_field, k_space_spikes
from jaxaug.augment._ops.noise import (
    gaussian_noise,
    iso_noise,
    multiplicative_noise,
    rician_noise,
    salt_and_pepper,
    shot_noise,
)
from jaxaug.augment._ops.of_masks import random_mask_pixel
from jaxaug.augment._ops.optics import (
    chromatic_aberration,
    correlate,
    remap,
    spread_pixels,
    zoom_blur,
)
from jaxaug.augment._ops.output import normalize, to_float
from jaxaug.augment._ops.overlays import gravel, rain, shadow, spatter, sun_flare
from jaxaug.augment._ops.pad import pad
from jaxaug.augment._ops.printing import (
    bayer_matrix,
    colorize,
    dither,
    halftone,
    match_exposure,
    standardize,
    superpixels,
)
from jaxaug.augment._ops.raw import convert_color_space, debayer
from jaxaug.augment._ops.references import (
    match_histogram,
    match_moments,
    overlay,
    swap_low_frequencies,
)
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
from jaxaug.augment._ops.weather import (
    film_grain,
    fog,
    gaussian_illumination,
    linear_illumination,
    plasma_light,
    sepia,
    snow,
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
    "adjust_stain",
    "adjust_temperature",
    "affine",
    "autocontrast",
    "bayer_matrix",
    "bias_field",
    "box_blur",
    "boxes_of_masks",
    "center_crop",
    "chromatic_aberration",
    "clahe",
    "clamp_bounding_boxes",
    "colorize",
    "convert_bounding_box_format",
    "convert_color_space",
    "correlate",
    "crop",
    "debayer",
    "defocus",
    "dilate",
    "dither",
    "downscale",
    "drop_channels",
    "elastic",
    "emboss",
    "encode_boxes",
    "equalize",
    "erase",
    "erode",
    "film_grain",
    "fog",
    "gaussian_blur",
    "gaussian_illumination",
    "gaussian_noise",
    "gravel",
    "grid_shuffle",
    "halftone",
    "horizontal_flip",
    "invert",
    "iso_noise",
    "jpeg",
    "k_space_spikes",
    "laplacian",
    "linear_illumination",
    "lookup_table",
    "match_exposure",
    "match_histogram",
    "match_moments",
    "median_blur",
    "motion_blur",
    "multiplicative_noise",
    "normalize",
    "overlay",
    "pad",
    "pca_lighting",
    "permute_channels",
    "perspective",
    "plasma_light",
    "posterize",
    "rain",
    "random_mask_pixel",
    "remap",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rician_noise",
    "rot90",
    "rotate",
    "salt_and_pepper",
    "scale_channels",
    "sepia",
    "shadow",
    "shift_hsv",
    "shift_rgb",
    "shot_noise",
    "snow",
    "solarize",
    "spatter",
    "spread_pixels",
    "standardize",
    "sun_flare",
    "superpixels",
    "swap_low_frequencies",
    "to_float",
    "tone_curve",
    "transpose",
    "unsharp_mask",
    "vertical_flip",
    "vignette",
    "zoom_blur",
]

_GEOMETRY = (
    affine,
    center_crop,
    crop,
    elastic,
    horizontal_flip,
    pad,
    perspective,
    resize,
    resized_crop,
    rotate,
    vertical_flip,
)
_PIXELS = (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    erase,
    gaussian_blur,
    invert,
    jpeg,
    normalize,
    permute_channels,
    posterize,
    solarize,
)
_KERNELS = _kernels_of(
    {function.__name__: function for function in _GEOMETRY},
    {function.__name__: function for function in _PIXELS},
)


def __getattr__(name: str) -> Callable[..., Any]:
    """Return a kernel by its name."""
    if name in _KERNELS:
        return _KERNELS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
