"""Arguments as users may write them, brought to the one form that transforms keep.

numpy's scalars and arrays are taken for the Python numbers and tuples that they hold.
"""

from typing import Any

from jaxaug._checks import check_probability, check_range


def as_size(name: str, value: Any) -> tuple[int, int]:
    """Return (height, width) of an int, which means a square, or of a pair."""
    value = plain(value)
    size = (value, value) if isinstance(value, int) else value
    good = isinstance(size, tuple) and len(size) == 2
    if not good or not all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in size):
        expected = "(height, width), two ints of at least 1, or one int"
        raise ValueError(f"`{name}` must be {expected}, got {value!r}.")
    return size


def as_number(name: str, value: Any, low: float, high: float) -> float:
    """Return one number, checked to lie within the bounds."""
    number = plain(value)
    if not _is_number(number) or not low <= number <= high:
        raise ValueError(f"`{name}` must be a number in [{low}, {high}], got {value!r}.")
    return float(number)


def as_probability(name: str, value: Any) -> float:
    """Return a number in [0, 1]."""
    value = plain(value)
    check_probability(name, value)
    return float(value)


def as_range(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> tuple[float, float]:
    """Return (low, high) of a pair of numbers, checked to lie within the bounds."""
    pair = plain(value)
    check_range(name, pair, low, high)
    return (float(pair[0]), float(pair[1]))


def as_symmetric_range(name: str, value: Any) -> tuple[float, float]:
    """Return (-v, v) of one number v >= 0, or a pair as it is."""
    value = plain(value)
    if _is_number(value) and value < 0:
        raise ValueError(
            f"`{name}` must be one number of at least 0 or a pair (low, high), got {value!r}."
        )
    return as_range(name, (-value, value) if _is_number(value) else value)


def as_color(name: str, value: Any) -> float | tuple[float, ...]:
    """Return a number in [0, 1], or three that differ (red, green, blue)."""
    color = plain(value)
    channels = color if isinstance(color, tuple) else (color,)
    good = len(channels) == 3 or not isinstance(color, tuple)
    if not good or not all(_is_number(channel) and 0 <= channel <= 1 for channel in channels):
        raise ValueError(f"`{name}` must be a number in [0, 1] or three of them, got {value!r}.")
    numbers = tuple(map(float, channels))
    return numbers[0] if len(set(numbers)) == 1 else numbers


def as_channels(name: str, value: Any) -> tuple[float, ...]:
    """Return one or three numbers as a tuple."""
    numbers = plain(value)
    numbers = numbers if isinstance(numbers, tuple) else (numbers,)
    if len(numbers) not in (1, 3) or not all(map(_is_number, numbers)):
        raise ValueError(f"`{name}` must be a number or three (red, green, blue), got {value!r}.")
    return tuple(map(float, numbers))


def plain(value: Any) -> Any:
    """Return numpy scalars as Python numbers, arrays and lists as tuples, others as they are."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
