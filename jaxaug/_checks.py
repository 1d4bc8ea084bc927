"""Checks of arguments. Each message names the argument, the expectation and the value."""

import inspect
import numbers
from collections.abc import Callable, Collection
from typing import Any

import numpy as np


def is_int(value: Any) -> bool:
    """Return True for ints of Python and NumPy, but not for True and False."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def checked_indices(indices: np.ndarray, count: int) -> np.ndarray:
    """Return numbers of records as int64[n].

    Raises:
      IndexError: one outside of [0, count): NumPy would count a negative one from the end.
    """
    indices = np.asarray(indices, np.int64)
    if indices.size and not (0 <= indices.min() and indices.max() < count):
        found = f"{indices.min()} to {indices.max()}"
        raise IndexError(f"`indices` must lie in [0, {count}), got {found}.")
    return indices


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def dtype_name(name: str, value: Any, choices: Collection[str]) -> str:
    """Return the name of a dtype of NumPy or JAX, or such a name, which is one of `choices`."""
    try:
        found = np.dtype(value).name
    except (TypeError, ValueError):
        found = value
    check_choice(name, found if found in choices else value, choices)
    return found


def check_probability(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a number in [0, 1]."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be a probability in [0, 1], got {value!r}.")


def check_positive_int(name: str, value: int) -> None:
    """Raise ValueError unless `value` is an int of at least 1."""
    if not is_int(value) or value < 1:
        raise ValueError(f"`{name}` must be an int of at least 1, got {value!r}.")


def check_count(name: str, value: int) -> None:
    """Raise ValueError unless `value` is an int of at least 0."""
    if not is_int(value) or value < 0:
        raise ValueError(f"`{name}` must be an int of at least 0, got {value!r}.")


def check_seconds(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    check_amount(name, value, "seconds")


def check_amount(name: str, value: float, unit: str) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not good or not 0 < value < float("inf"):
        raise ValueError(f"`{name}` must be a number of {unit} above 0, got {value!r}.")


def check_range(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> None:
    """Raise ValueError unless `value` is a pair (a, b) with low <= a <= b <= high."""
    good = (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(v, (int, float)) for v in value)
    )
    if not good or not low <= value[0] <= value[1] <= high:
        bounds = "" if (low, high) == (float("-inf"), float("inf")) else f" within [{low}, {high}]"
        raise ValueError(
            f"`{name}` must be a pair (low, high) with low <= high{bounds}, got {value!r}."
        )


def check_size(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a pair (height, width) of ints of at least 1."""
    good = isinstance(value, tuple) and len(value) == 2
    if not good or not all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in value):
        raise ValueError(
            f"`{name}` must be (height, width), two ints of at least 1, got {value!r}."
        )


def takes_two(function: Callable[..., Any]) -> bool:
    """Return False where `function` certainly cannot be called as function(key, value)."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True
