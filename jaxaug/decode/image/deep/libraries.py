"""The optional libraries that decode deep images, imported when the first file needs one."""

import functools
import importlib
from typing import Any

from jaxaug._install import install_command

# All that host threads may decode an image with, by the names of their packages.
PACKAGES = ("pillow", "simplejpeg", "imagecodecs", "tifffile", "pillow-heif", "pydicom")


@functools.cache
def library(name: str) -> Any:
    """Return a module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def missing(name: str, what: str) -> str:
    """Return why files of a kind cannot be read, or "" where the module is installed.

    Example:
      >>> missing("no_such_module", "pictures")[:29]
      'pictures need no_such_module:'
    """
    if library(name) is not None:
        return ""
    return f"{what} need {name}: {install_command('deep')}"
