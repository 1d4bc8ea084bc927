"""Arguments as users may write them, brought to the one form that transforms keep.

numpy's scalars and arrays are taken for the Python numbers and tuples that they hold. A JAX array
stays one where a continuous setting is meant, in float32: it may be traced, and nothing static is
derived from it. What is known of its value is checked. The type of a field names its converter,
`factor: Annotated[Range, Converter(as_range, 0.0)]`, and the base class applies it once, after
`__init__`. Types such as `Size` name theirs at the end of this file. They stand for every form in
which an argument may be written, which no static type can say of what is kept.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxaug._checks import check_choice, check_range, is_int
from jaxaug._typing import Scalar
from jaxaug.augment._base.axis import INTERPOLATIONS, PADDING_MODES
from jaxaug.augment.matrix import is_static

Range: TypeAlias = Any  # (low, high), or a number that each argument explains; kept as (low, high)
SMALLEST = float(np.finfo(np.float32).tiny)  # of what must be above 0
LARGEST = float(np.finfo(np.float32).max)  # of what must be finite


class Converter:
    """What a field keeps of its argument, `Annotated[Range, Converter(as_range, 0.0)]`."""

    def __init__(self, convert: Callable[..., Any], *bounds: Any):
        self.convert = convert
        self.bounds = bounds

    def __call__(self, name: str, value: Any) -> Any:
        return self.convert(name, value, *self.bounds)

    def __repr__(self) -> str:
        bounds = (getattr(bound, "__name__", repr(bound)) for bound in self.bounds)
        return f"{self.convert.__name__}({', '.join(bounds)})"


def convert_fields(transform: Any) -> None:
    """Convert the fields of a frozen dataclass, once, after its `__init__`."""
    for field in dataclasses.fields(transform):
        convert = _converter_of(type(transform), field.name)
        if convert is not None:
            store(transform, **{field.name: convert(field.name, getattr(transform, field.name))})


def _converter_of(cls: type, name: str) -> Converter | None:
    """Return the converter of a field; a subclass that gives it another default keeps it."""
    for base in cls.__mro__:
        declared = base.__dict__.get("__dataclass_fields__", {}).get(name)
        notes = getattr(declared.type, "__metadata__", ()) if declared is not None else ()
        for note in reversed(notes):  # the innermost type stands first
            if isinstance(note, Converter):
                return note
    return None


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


def as_number(name: str, value: Any, low: Scalar, high: Scalar) -> Scalar:
    """Return one number, checked to lie within the bounds."""
    number = setting(value)
    if not is_number(number) or not ordered(low, number, high):
        raise ValueError(f"`{name}` must be a number in [{low}, {high}], got {value!r}.")
    return floating(number)


def as_probability(name: str, value: Any) -> Scalar:
    """Return a number in [0, 1]."""
    number = setting(value)
    if not is_number(number) or not ordered(0, number, 1):
        raise ValueError(f"`{name}` must be a probability in [0, 1], got {value!r}.")
    return floating(number)


def as_range(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> tuple[Scalar, Scalar]:
    """Return (low, high) of a pair of numbers, checked to lie within the bounds."""
    pair = setting(value)
    good = isinstance(pair, tuple) and len(pair) == 2 and all(map(is_number, pair))
    if not good or not ordered(low, *pair, high):
        check_range(name, plain(value), low, high)
    return (floating(pair[0]), floating(pair[1]))


def as_range_of(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> tuple[Scalar, Scalar]:
    """Return `as_range` of a pair, or of one number for both ends."""
    value = setting(value)
    return as_range(name, (value, value) if is_number(value) else value, low, high)


def as_static_range(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> tuple[float, float]:
    """Return `as_range` of numbers that are known while tracing: a shape depends on them."""
    first, last = as_range(name, static(name, value), low, high)
    return float(first), float(last)


def as_range_to(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> tuple[Scalar, float]:
    """Return `as_range` with an upper end that is known while tracing: a shape depends on it."""
    first, last = as_range(name, value, low, high)
    if not isinstance(last, float):
        raise TypeError(
            f"`{name}` must end in a number, which fixes the size of the kernel, got {value!r}: let"
            " the lower end alone be an array."
        )
    return first, last


def as_symmetric_range(
    name: str, value: Any, low: float = float("-inf"), high: float = float("inf")
) -> tuple[Scalar, Scalar]:
    """Return (-v, v) of one number v >= 0, or a pair as it is, checked to lie within the bounds."""
    value = setting(value)
    if is_number(value) and not ordered(0, value):
        raise ValueError(
            f"`{name}` must be one number of at least 0 or a pair (low, high), got {value!r}."
        )
    return as_range(name, (-value, value) if is_number(value) else value, low, high)


def as_point(name: str, value: Any) -> tuple[Scalar, Scalar] | None:
    """Return (x, y) of two numbers, or None."""
    point = setting(value)
    if point is None:
        return None
    if not isinstance(point, tuple) or len(point) != 2 or not all(map(is_number, point)):
        raise ValueError(f"`{name}` must be (x, y), two numbers of pixels, got {value!r}.")
    return floating(point[0]), floating(point[1])


def as_xy(name: str, value: Any) -> tuple[Scalar, Scalar]:
    """Return (x, y) of one number of at least 0, or of two."""
    pair = setting(value)
    pair = pair if isinstance(pair, tuple) else (pair, pair)
    good = len(pair) == 2 and all(map(is_number, pair))
    if not good or not all(ordered(0, v, LARGEST) for v in pair):
        raise ValueError(
            f"`{name}` must be a number of at least 0 or a pair (x, y) of them, got {value!r}."
        )
    return floating(pair[0]), floating(pair[1])


def as_color(name: str, value: Any) -> Any:
    """Return a number in [0, 1], or one per channel where they differ."""
    color = setting(value)
    channels = color if isinstance(color, tuple) else (color,)
    good = channels and all(map(is_number, channels))
    if not good or not all(ordered(0, channel, 1) for channel in channels):
        raise ValueError(f"`{name}` must be a number in [0, 1] or one per channel, got {value!r}.")
    numbers = tuple(map(floating, channels))
    if all(isinstance(number, float) for number in numbers) and len(set(numbers)) == 1:
        return numbers[0]
    return numbers if isinstance(color, tuple) else numbers[0]


def as_channels(name: str, value: Any) -> tuple[Scalar, ...]:
    """Return a number, or one per channel, as a tuple."""
    numbers = setting(value)
    numbers = numbers if isinstance(numbers, tuple) else (numbers,)
    if not numbers or not all(map(is_number, numbers)):
        raise ValueError(f"`{name}` must be a number or one per channel, got {value!r}.")
    return tuple(map(floating, numbers))


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


def as_choice(name: str, value: Any, choices: Collection[Any]) -> Any:
    """Return one of `choices`."""
    check_choice(name, value, choices)
    return value


def as_flag(name: str, value: Any) -> bool:
    """Return True or False."""
    return as_choice(name, value, (True, False))


def as_int(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return an int of at least `low`, and at most `high` where there is one."""
    if not is_int(value) or value < low or (high is not None and value > high):
        bounds = f"of at least {low}" if high is None else f"of {low} to {high}"
        raise ValueError(f"`{name}` must be an int {bounds}, got {value!r}.")
    return plain(value)


def as_pair(value: Any) -> Any:
    """Return (v, v) of a number, or a pair as it is."""
    value = setting(value)
    return (value, value) if is_number(value) else value


def as_int_range(name: str, value: Any, low: int, high: float = float("inf")) -> tuple[int, int]:
    """Return (low, high) of one or two ints within the bounds."""
    first, last = as_static_range(name, as_pair(static(name, value)), low, high)
    if first != int(first) or last != int(last):
        raise ValueError(f"`{name}` must be one or two ints, got {value!r}.")
    return int(first), int(last)


def as_class_index(name: str, value: Any) -> int:
    """Return an int of Python, of any value: what a mask holds where there is no image."""
    if not is_int(value):
        raise ValueError(f"`{name}` must be an int, a class index, got {value!r}.")
    return plain(value)


def as_optional(name: str, value: Any, convert: Callable[..., Any], *bounds: Any) -> Any:
    """Return None as it is, and `convert` of another value."""
    return None if value is None else convert(name, value, *bounds)


def plain(value: Any) -> Any:
    """Return scalars as Python numbers, arrays and lists as tuples, others as they are.

    What is traced has no numbers yet and stays as it is, for the check of the argument to refuse.
    """
    if hasattr(value, "tolist") and not isinstance(value, Tracer):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def static(name: str, value: Any) -> Any:
    """Return `plain` of what decides a shape; raise where it is traced."""
    numbers = plain(value)
    if any(isinstance(number, Tracer) for number in jax.tree.leaves(numbers)):
        raise TypeError(
            f"`{name}` must be known while tracing, for the shape of an array depends on it, got"
            f" {value!r}: write a number of Python."
        )
    return numbers


def setting(value: Any) -> Any:
    """Return `plain` of a continuous setting, in which the numbers of JAX's arrays stay arrays."""
    if isinstance(value, (list, tuple)):
        return tuple(map(setting, value))
    if hasattr(value, "__jax_array__"):  # a variable of flax
        value = jnp.asarray(value)
    if not isinstance(value, jax.Array):
        return plain(value)
    real = jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(value.dtype, jnp.floating)
    if real and value.dtype != jnp.float32:
        value = value.astype(jnp.float32)
    return value if value.ndim == 0 else tuple(map(setting, value))


def is_number(value: Any) -> bool:
    """Return True for one number, of Python or in an array of JAX."""
    if isinstance(value, jax.Array):
        return value.ndim == 0 and value.dtype == jnp.float32
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def ordered(*values: Any) -> bool:
    """Return False where numbers are known not to rise; what is traced is not known."""
    known = [float(value) for value in values if not isinstance(value, Tracer)]
    return all(low <= high for low, high in itertools.pairwise(known))


def floating(number: Any) -> Scalar:
    """Return a number as a float, one in an array of JAX as it is."""
    return number if isinstance(number, jax.Array) else float(number)


def log(number: Scalar) -> Scalar:
    """Return the natural logarithm of a number; of a float it is one, too."""
    return math.log(number) if is_static(number) else jnp.log(number)


Channels: TypeAlias = Annotated[Any, Converter(as_channels)]  # a number, or one per channel
Color: TypeAlias = Annotated[Any, Converter(as_color)]  # a number in [0, 1], or one per channel
Flag: TypeAlias = Annotated[bool, Converter(as_flag)]
Interpolation: TypeAlias = Annotated[str, Converter(as_choice, INTERPOLATIONS)]
Names: TypeAlias = Annotated[Sequence[str], Converter(as_names)]  # of entries of a sample
Padding: TypeAlias = Annotated[Any, Converter(as_padding)]  # (left, top, right, bottom), or fewer
PaddingMode: TypeAlias = Annotated[str, Converter(as_choice, PADDING_MODES)]
Pair: TypeAlias = Annotated[Any, Converter(as_xy)]  # (x, y), or a number for both
Point: TypeAlias = Annotated[Any, Converter(as_point)]  # (x, y) in pixels; None for a default
PositiveInt: TypeAlias = Annotated[int, Converter(as_int, 1)]
Size: TypeAlias = Annotated[Any, Converter(as_size)]  # (height, width), or an int for a square
SymmetricRange: TypeAlias = Annotated[Any, Converter(as_symmetric_range)]  # v means (-v, v)
UnitRange: TypeAlias = Annotated[Any, Converter(as_range, 0.0, 1.0)]  # (low, high)
