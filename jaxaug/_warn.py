"""Warnings that point at the user's line, and those that several packages give."""

import functools
import sys
import warnings

from jaxaug.errors import PrecisionWarning


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the line outside of jaxaug, and of the standard library, that led here."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back and _is_inside(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


@functools.cache
def warn_once(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn as `warn_user` does, the first time that the process says this."""
    warn_user(message, category)


def _is_inside(module: str) -> bool:
    """Return True for modules of jaxaug, and for those that call its generators and contexts."""
    return module.split(".")[0] in ("jaxaug", "contextlib", "functools", "concurrent", "threading")


def precision_warning(bits: int) -> PrecisionWarning:
    """Return the warning for an image of more than 8 bits a sample, whose name goes before it."""
    return PrecisionWarning(
        f"has {bits} bits a sample, of which the upper 8 are kept: of 0 to "
        f"{2 ** (bits - 4) - 1:,} 16 levels are left. Take decode.Image(dtype='uint16') or "
        "'float32', which keep all of them, or convert such files to 8 bits over the range that "
        "you need. This is told once, in the category jaxaug.errors.PrecisionWarning."
    )
