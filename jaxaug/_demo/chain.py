"""A chain of the user's own, named on the command line."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from jaxaug.augment import GroupCompose


def load_chain(text: str) -> Callable:
    """Return the transform that `module:name` names.

    Args:
      text: a module that can be imported, from the current folder too, and what it holds: a
        transform, a function of (key, sample), a tuple of a transform and a batch transform, or a
        function without required arguments that returns one of them, such as a recipe.

    Raises:
      ValueError: there is no such module or name, or what it holds transforms no sample.

    Example:
      >>> load_chain("jaxaug.augment.recipes:imagenet_eval").transforms[0]
      Resize(size=256, canvas=None, interpolation='bilinear')
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise ValueError(f"must be module:name, such as train:chain, got {text!r}")

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the command `jaxaug`, unlike `python -m`, has it not
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # one that the user's module imports
        where = f"in {os.getcwd()!r} or installed"
        raise ValueError(f"there is no module {error.name!r} {where}") from None

    if not hasattr(module, name):
        raise ValueError(f"the module {module_name!r} has no {name!r}")
    return _as_transform(getattr(module, name), text)


def _as_transform(value: Any, text: str) -> Callable:
    """Return the value, or what it returns if it is a function without required arguments.

    A transform and a batch transform become one.
    """
    if _makes_one(value):
        value = value()
    if isinstance(value, tuple):
        try:
            value = GroupCompose(value)
        except TypeError as error:
            raise ValueError(f"{text!r}: {error}") from None
    if not callable(value) or inspect.isclass(value):
        raise ValueError(
            f"{text!r} must be a transform, a function of (key, sample), or a function without"
            f" required arguments that returns one, got {value!r}"
        )
    return value


def _makes_one(value: Any) -> bool:
    """Return True for a class or a function that can be called without arguments."""
    if not inspect.isclass(value) and not inspect.isroutine(value):
        return False
    try:
        inspect.signature(value).bind()
    except TypeError:
        return False
    return True
