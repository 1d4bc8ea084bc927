"""Arguments as users may write them, brought to the one form that transforms keep.

numpy's scalars and arrays are taken for the Python numbers and tuples that they hold. A transform
converts its arguments once: `store(self, size=as_size("size", self.size))` in `__post_init__`. The
names of types below stand for every form in which an argument may be written and for the one form
in which it is kept, which no static type can say of one field.
"""

import dataclasses
from typing import Any, TypeAlias

from jaxaug._checks import check_probability, check_range

Size: TypeAlias = Any  # (height, width), or an int for a square; kept as (height, width)
Range: TypeAlias = Any  # (low, high), or a number that each argument explains; kept as (low, high)
Color: TypeAlias = Any  # a number in [0, 1], or one per channel
Point: TypeAlias = Any  # (x, y) in pixels from the top left corner
Pair: TypeAlias = Any  # a number, or (x, y); kept as the last
Padding: TypeAlias = Any  # an int, (x, y) or (left, top, right, bottom); kept as the last
Channels: TypeAlias = Any  # a number, or one per channel; kept as a tuple


def store(transform: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass, from its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(transform, name, value)


def repr_in_order(self: Any) -> str:
    """Return the repr of a dataclass, its fields in the order of its arguments."""
    if not dataclasses.is_dataclass(self):
        return object.__repr__(self)
    shown = [field for field in dataclasses.fields(self) if field.repr]
    shown.sort(key=lambda field: bool(field.kw_only))
    written = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in shown)
    return f"{type(self).__qualname__}({written})"


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


def as_point(name: str, value: Any) -> tuple[float, float] | None:
    """Return (x, y) of two numbers, or None."""
    point = plain(value)
    if point is None:
        return None
    if not isinstance(point, tuple) or len(point) != 2 or not all(map(_is_number, point)):
        raise ValueError(f"`{name}` must be (x, y), two numbers of pixels, got {value!r}.")
    return float(point[0]), float(point[1])


def as_xy(name: str, value: Any) -> tuple[float, float]:
    """Return (x, y) of one number of at least 0, or of two."""
    pair = plain(value)
    pair = pair if isinstance(pair, tuple) else (pair, pair)
    if len(pair) != 2 or not all(_is_number(v) and 0 <= v < float("inf") for v in pair):
        raise ValueError(
            f"`{name}` must be a number of at least 0 or a pair (x, y) of them, got {value!r}."
        )
    return float(pair[0]), float(pair[1])


def as_color(name: str, value: Any) -> Color:
    """Return a number in [0, 1], or one per channel where they differ."""
    color = plain(value)
    channels = color if isinstance(color, tuple) else (color,)
    if not channels or not all(_is_number(channel) and 0 <= channel <= 1 for channel in channels):
        raise ValueError(f"`{name}` must be a number in [0, 1] or one per channel, got {value!r}.")
    numbers = tuple(map(float, channels))
    return numbers[0] if len(set(numbers)) == 1 else numbers


def as_channels(name: str, value: Any) -> Channels:
    """Return a number, or one per channel, as a tuple."""
    numbers = plain(value)
    numbers = numbers if isinstance(numbers, tuple) else (numbers,)
    if not numbers or not all(map(_is_number, numbers)):
        raise ValueError(f"`{name}` must be a number or one per channel, got {value!r}.")
    return tuple(map(float, numbers))


def as_padding(name: str, value: Any) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) of all that torchvision takes for a padding."""
    value = plain(value)
    sides = value if isinstance(value, tuple) else (value,)
    if len(sides) not in (1, 2, 4) or not all(
        isinstance(side, int) and side >= 0 for side in sides
    ):
        raise ValueError(f"`{name}` must be 1, 2 or 4 ints of at least 0, got {value!r}.")
    left, top, right, bottom = sides * (4 // len(sides))
    return left, top, right, bottom


def as_names(name: str, value: Any) -> tuple[str, ...]:
    """Return the names of entries of a sample as a tuple."""
    names = plain(value)
    if not isinstance(names, tuple) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"`{name}` must be a list of names of entries, got {value!r}.")
    return names


def plain(value: Any) -> Any:
    """Return numpy scalars as Python numbers, arrays and lists as tuples, others as they are."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
