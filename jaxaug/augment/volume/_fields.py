"""Arguments about three axes, brought to the one form that transforms keep."""

from typing import Annotated, Any, TypeAlias

from jaxaug._typing import Scalar
from jaxaug.augment._base import Converter, as_range_of, as_symmetric_range, plain, setting


def as_size(name: str, value: Any) -> tuple[int, int, int]:
    """Return (depth, height, width) of an int, which means a cube, or of three."""
    sides = plain(value)
    sides = (sides, sides, sides) if isinstance(sides, int) else sides
    good = isinstance(sides, tuple) and len(sides) == 3
    if not good or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError(
            f"`{name}` must be (depth, height, width), three ints of at least 1, or one int, got"
            f" {value!r}."
        )
    return sides


def as_axes(name: str, value: Any) -> tuple[int, ...]:
    """Return some of the three axes."""
    axes = plain(value)
    axes = (axes,) if isinstance(axes, int) else axes
    good = isinstance(axes, tuple) and len(axes) > 0 and len(set(axes)) == len(axes)
    if not good or not all(axis in (0, 1, 2) for axis in axes):
        raise ValueError(
            f"`{name}` must be some of 0 (depth), 1 (height) and 2 (width), got {value!r}."
        )
    return axes


def as_plane(name: str, value: Any) -> tuple[int, ...]:
    """Return two axes."""
    axes = as_axes(name, value)
    if len(axes) != 2:
        raise ValueError(f"`{name}` must be two axes, such as (1, 2), got {value!r}.")
    return axes


def as_ranges(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> tuple[tuple[Scalar, Scalar], ...]:
    """Return three ranges: of v, which means (-v, v), of (low, high), or of three such."""
    given = setting(value)
    each = given if isinstance(given, tuple) and len(given) == 3 else (given,) * 3
    return tuple(as_symmetric_range(name, one, low, high) for one in each)


def as_factors(name: str, value: Any) -> tuple[tuple[Scalar, Scalar], ...]:
    """Return three ranges of factors above 0: of one number f, (f, f); of a pair; or of three."""
    given = setting(value)
    each = given if isinstance(given, tuple) and len(given) == 3 else (given,) * 3
    return tuple(as_range_of(name, one, 1e-3) for one in each)


Size: TypeAlias = Annotated[Any, Converter(as_size)]  # (depth, height, width), or an int for a cube
Ranges: TypeAlias = Annotated[Any, Converter(as_ranges)]  # one for all axes, or three
Axes: TypeAlias = Annotated[Any, Converter(as_axes)]  # some of 0 (depth), 1 (height), 2 (width)
