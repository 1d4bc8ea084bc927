"""Loading a shared library from an environment variable's path, a wheel, or the system."""

import ctypes
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class LibraryError(ImportError):
    """A native library is missing, too old, or does not run here; the message says what to do."""


class NotDecodedError(RuntimeError):
    """A library did not decode an image: the host does, or tells its damage."""


def load_library(
    names: Sequence[str], folders: Sequence[str], variable: str, advice: str
) -> tuple[ctypes.CDLL, str]:
    """Load the first library that can be loaded.

    Args:
      names: file names, the preferred one first, as in ("libnvjpeg.so.13", "libnvjpeg.so.12").
      folders: folders of wheels, relative to the `nvidia` package, as in ("cu13/lib",).
      variable: an environment variable with the library's path; no other place is tried if it is
        set.
      advice: the end of the error message, such as the package to install.

    Returns:
      (library, path it was loaded from).

    Raises:
      LibraryError: none can be loaded; the message names each place and its error.
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


def declare(
    library: ctypes.CDLL,
    prototypes: Mapping[str, tuple],
    *,
    check: Callable[[int, Any, tuple], int],
    found_at: str,
    update: str,
) -> None:
    """Set the types of functions that return a status.

    Args:
      library: of the functions.
      prototypes: the types of the arguments of each function, by its name.
      check: gets the status, the function and its arguments after each call.
      found_at: the path of the library.
      update: the end of the error message: how to get a newer one.

    Raises:
      LibraryError: the library has not all of the functions.
    """
    for name, arguments in prototypes.items():
        function = getattr(library, name, None)
        if function is None:
            raise LibraryError(f"{found_at} is too old: it has no {name}. {update}")
        function.argtypes = arguments
        function.restype = ctypes.c_int
        function.errcheck = check


def check_decoded(status: int, function: Any, arguments: tuple) -> int:
    """Return a status of 0; a `check` of `declare` for libraries that decode for host threads.

    Raises:
      NotDecodedError: it is another.
    """
    if status:
        raise NotDecodedError(f"{function.__name__}: status {status}")
    return status


def create(function: Any, *arguments: Any) -> ctypes.c_void_p:
    """Return the handle that a function writes to its last argument."""
    made = ctypes.c_void_p()
    function(*arguments, ctypes.byref(made))
    return made


def _in_wheels(names: Sequence[str], folders: Sequence[str]) -> list[str]:
    spec = importlib.util.find_spec("nvidia")  # a namespace package: one folder per site-packages
    roots = [] if spec is None else list(spec.submodule_search_locations or [])
    return [str(Path(root, folder, name)) for name in names for folder in folders for root in roots]
