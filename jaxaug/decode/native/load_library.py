"""Finding a shared library: where an environment variable says, where pip put it, where the system
looks.
"""

import ctypes
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path


class LibraryError(ImportError):
    """A native library is missing, too old, or does not run on this machine; the message says what
    to do.
    """


def load_library(
    names: Sequence[str], folders: Sequence[str], variable: str, advice: str
) -> tuple[ctypes.CDLL, str]:
    """Load the first library that can be.

    Args:
      names: file names, the preferred one first, as in ("libnvjpeg.so.13", "libnvjpeg.so.12").
      folders: where wheels put them, relative to the `nvidia` package, as in ("cu13/lib",).
      variable: an environment variable that holds the library's path and goes before everything
        else.
      advice: what to install when none is found.

    Returns:
      (library, path it was loaded from).

    Raises:
      LibraryError: none can be loaded; names each place and what happened there.
    """
    chosen = os.environ.get(variable)
    candidates = [chosen] if chosen else [*_in_wheels(names, folders), *names]
    tried = []
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate), candidate
        except OSError as error:
            tried.append(f"  {candidate}: {error}")
    raise LibraryError(
        f"cannot load {' or '.join(names)}; tried\n" + "\n".join(tried) + f"\n{advice}"
    )


def _in_wheels(names: Sequence[str], folders: Sequence[str]) -> list[str]:
    spec = importlib.util.find_spec("nvidia")  # a namespace package: one folder a site-packages
    roots = [] if spec is None else list(spec.submodule_search_locations or [])
    return [str(Path(root, folder, name)) for name in names for folder in folders for root in roots]
