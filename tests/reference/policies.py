"""The operations of torchvision's and timm's policies, as PIL does them on 8-bit images.

Reference: torchvision/transforms/v2/_auto_augment.py; timm/data/auto_augment.py.
"""

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

ENHANCEMENTS = ("Brightness", "Color", "Contrast", "Sharpness")
FIXED = ("Identity", "AutoContrast", "Equalize", "Invert")


def torchvision_magnitudes(policy, bins, height, width):
    """Return {name: (magnitudes, signed)} of "RandAugment", "TrivialAugmentWide" or "AugMix"."""
    shear, share, degrees, enhance, bits = {
        "RandAugment": (0.3, 150.0 / 331.0, 30.0, 0.9, (8, 4)),
        "TrivialAugmentWide": (0.99, None, 135.0, 0.99, (8, 6)),
        "AugMix": (0.3, 1 / 3.0, 30.0, 0.9, (4, 4)),
    }[policy]
    across = 32.0 if share is None else share * width
    down = 32.0 if share is None else share * height
    line = np.linspace
    table = {
        "ShearX": (line(0, shear, bins), True),
        "ShearY": (line(0, shear, bins), True),
        "TranslateX": (np.trunc(line(0, across, bins) + 1e-6), True),
        "TranslateY": (np.trunc(line(0, down, bins) + 1e-6), True),
        "Rotate": (line(0, degrees, bins), True),
        "Posterize": (np.round(bits[0] - np.arange(bins) / ((bins - 1) / bits[1])), False),
        "Solarize": (line(1, 0, bins), False),
    }
    for name in ENHANCEMENTS:
        table[name] = (line(0, enhance, bins), True)
    for name in FIXED:
        table[name] = (np.zeros(bins), False)
    return table


def timm_magnitude(name, level, height, width):
    """Return the magnitude of an increasing operation at a level of 10."""
    scale = {"TranslateX": 0.45 * width, "TranslateY": 0.45 * height, "Rotate": 30.0}
    scale |= {"ShearX": 0.3, "ShearY": 0.3} | {name: 0.9 for name in ENHANCEMENTS}
    if name == "Posterize":
        return 4 - int(level / 10 * 4)
    if name == "Solarize":
        return (256 - min(256, level / 10 * 256)) / 255
    if name == "SolarizeAdd":
        return min(128, int(level / 10 * 110))
    return level / 10 * scale.get(name, 0.0)


def pull(name, magnitude, height, width):
    """Return the (x, y) in the source of each pixel's center, float64[H, W] each."""
    y, x = np.mgrid[:height, :width] + 0.5
    if name == "ShearX":
        return x + magnitude * y, y
    if name == "ShearY":
        return x, y + magnitude * x
    if name == "TranslateX":
        return x - magnitude, y
    if name == "TranslateY":
        return x, y - magnitude
    if name == "Rotate":
        cos, sin = np.cos(np.radians(magnitude)), np.sin(np.radians(magnitude))
        x, y = x - width / 2, y - height / 2
        return cos * x - sin * y + width / 2, sin * x + cos * y + height / 2
    return x, y


def between_two_pixels(name, magnitude, height, width):
    """Return bool[H, W], True on the edge of two pixels: PIL computes places in steps of 2^-16."""
    places = np.stack(pull(name, magnitude, height, width))
    return (np.abs(places - np.round(places)) < 2e-3).any(axis=0)


def operate(pixels, name, magnitude):
    """Return uint8[H, W, 3] after an operation with a signed magnitude."""
    image = Image.fromarray(pixels)
    moved = {
        "ShearX": (1, magnitude, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, magnitude, 1, 0),
        "TranslateX": (1, 0, -magnitude, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, -magnitude),
    }
    if name in moved:
        affine = Image.Transform.AFFINE
        out = image.transform(image.size, affine, moved[name], Image.Resampling.NEAREST)
    elif name == "Rotate":
        out = image.rotate(magnitude, Image.Resampling.NEAREST)
    elif name in ENHANCEMENTS:
        out = getattr(ImageEnhance, name)(image).enhance(1.0 + magnitude)
    elif name == "Posterize" and magnitude == 0:  # which Pillow 13 refuses
        return np.zeros_like(pixels)
    elif name == "Posterize":
        out = ImageOps.posterize(image, int(magnitude))
    elif name == "Solarize":
        # Rounded: 255 * 2/3 may come out just above 170, in torch too.
        out = ImageOps.solarize(image, round(255.0 * magnitude, 6))
    elif name == "SolarizeAdd":
        table = [min(255, level + int(magnitude)) if level < 128 else level for level in range(256)]
        out = image.point(table * 3)
    else:
        function = {
            "Identity": lambda image: image,
            "AutoContrast": ImageOps.autocontrast,
            "Equalize": ImageOps.equalize,
            "Invert": ImageOps.invert,
        }[name]
        out = function(image)
    return np.asarray(out)
