"""Warnings that point at the user's line, and those that several packages give."""

import sys
import warnings

from jaxaug.errors import PrecisionWarning


def warn_outside(message: str, category: type[Warning]) -> None:
    """Warn with the line outside of jaxaug that led here."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "jaxaug":
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def warn_of_precision(image: str, bits: int) -> None:
    """Warn that an image of more than 8 bits a sample has lost the lower ones.

    Args:
      image: its name, which begins the message.
      bits: a sample.
    """
    warn_outside(
        f"{image} has {bits} bits a sample, of which the upper 8 are kept: of 0 to "
        f"{2 ** (bits - 4) - 1:,} 16 levels are left. Convert such files to 8 bits over the range "
        "that you need, or give the pixels as a feature, an array that "
        'decode_image(data, "unchanged") reads. This is told once, in the category '
        "jaxaug.errors.PrecisionWarning.",
        PrecisionWarning,
    )
