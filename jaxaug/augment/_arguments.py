"""What users may write for a size, a range or a colour, brought to the one form that transforms keep."""

from typing import Any

from jaxaug._checks import check_range, check_size


def as_size(name: str, value: Any) -> tuple[int, int]:
    """(height, width) of an int, which means a square, or of a pair."""
    size = (value, value) if isinstance(value, int) else _tuple(value)
    check_size(name, size)
    return size


def as_range(name: str, value: Any, low: float = float("-inf"), high: float = float("inf")) -> tuple[float, float]:
    """(low, high) of a pair of numbers, checked to lie within the bounds."""
    pair = _tuple(value)
    check_range(name, pair, low, high)
    return (float(pair[0]), float(pair[1]))


def as_symmetric_range(name: str, value: Any) -> tuple[float, float]:
    """(-v, v) of one number v >= 0, or a pair as it is."""
    if isinstance(value, (int, float)) and value < 0:
        raise ValueError(f"`{name}` must be one number of at least 0 or a pair (low, high), got {value!r}.")
    return as_range(name, (-value, value) if isinstance(value, (int, float)) else value)


def as_colour(name: str, value: Any) -> float | tuple[float, ...]:
    """A number in [0, 1], or a tuple of three of them (red, green, blue)."""
    colour = _tuple(value)
    for channel in colour if isinstance(colour, tuple) else (colour,):
        if not isinstance(channel, (int, float)) or not 0 <= channel <= 1:
            raise ValueError(f"`{name}` must be a number in [0, 1] or three of them, got {value!r}.")
    if not isinstance(colour, tuple):
        return float(colour)
    if len(colour) != 3:
        raise ValueError(f"`{name}` must be a number in [0, 1] or three of them, got {value!r}.")
    return tuple(map(float, colour))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
