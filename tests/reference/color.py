"""Color operations pixel by pixel, hue by Python's colorsys."""

import colorsys

import numpy as np

_GRAY = np.array([0.2989, 0.587, 0.114])


def brightness(image, factor):
    """Clipped blend with black."""
    return np.clip(image * factor, 0, 1)


def contrast(image, factor):
    """Clipped blend with the mean gray."""
    return np.clip(factor * image + (1 - factor) * (image @ _GRAY).mean(), 0, 1)


def saturation(image, factor):
    """Clipped blend with gray."""
    return np.clip(factor * image + (1 - factor) * (image @ _GRAY)[..., None], 0, 1)


def hue(image, turns):
    """Hue shifted in HSV."""
    shifted = np.empty_like(image)
    for place in np.ndindex(image.shape[:2]):
        h, s, v = colorsys.rgb_to_hsv(*image[place])
        shifted[place] = colorsys.hsv_to_rgb((h + turns) % 1.0, s, v)
    return shifted
