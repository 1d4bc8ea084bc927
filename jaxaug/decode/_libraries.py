"""The optional libraries that decode, imported when the first record needs one.

Where one is missing, a message says what needs it and which command installs it.
"""

import functools
import importlib
from typing import Any

from jaxaug._install import install_command

# All that host threads may decode an image with, by the names of their packages.
IMAGE_PACKAGES = ("pillow", "simplejpeg", "imagecodecs", "tifffile", "pillow-heif", "pydicom")


@functools.cache
def library(name: str) -> Any:
    """Return a module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def missing(name: str, what: str, extra: str) -> str:
    """Return why records of a kind cannot be read, or "" where the module is installed.

    Args:
      name: of the module.
      what: the records, in the plural.
      extra: of jaxaug, which installs it.

    Example:
      >>> missing("no_such_module", "pictures", "deep")[:29]
      'pictures need no_such_module:'
    """
    return "" if library(name) is not None else _advice(name, what, extra)


def needed(name: str, what: str, extra: str) -> Any:
    """Return a module without which no record of a kind can be read.

    Args:
      name, what, extra: as of `missing`.

    Raises:
      ImportError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(_advice(name, what, extra)) from error


def _advice(name: str, what: str, extra: str) -> str:
    return f"{what} need {name}: {install_command(extra)}"
