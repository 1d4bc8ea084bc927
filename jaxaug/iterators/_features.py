"""The columns of features: their dtypes, their fixed spec, and their values in blank rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxaug._typing import Features

# Class numbers: -1 in blank rows, so that no loss or metric takes such a row for class 0.
LABELS = ("label", "labels")
# -1 means no box, as behind the last box of an image, and no image.
_BLANK_LABELS = (*LABELS, "box_labels", "box_ids", "image_id")

_INT32 = np.iinfo(np.int32)


class Column(NamedTuple):
    """The form of a feature: the dtype and the shape of one record's value."""

    dtype: np.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


FeatureSpec = Mapping[str, Column]


def feature_spec(columns: Features) -> dict[str, Column]:
    """Return the form of a record's features, from columns that went through `narrow`."""
    return {name: Column(column.dtype, column.shape[1:]) for name, column in columns.items()}


def narrow_features(columns: Features, indices: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of records `indices` (int64[n]), each of them narrowed by `narrow`.

    Raises:
      ValueError: a column has not one row for each record.
    """
    narrowed = {}
    for name, column in columns.items():
        shape = np.shape(column)
        if shape[:1] != indices.shape:
            raise ValueError(
                f"`source` must give one row of feature {name!r} for each of {indices.size} "
                f"records, got shape {list(shape)}."
            )
        narrowed[name] = narrow(name, column, indices)
    return narrowed


def narrow(name: str, column: Any, indices: np.ndarray) -> np.ndarray:
    """Return a column in a dtype of at most 32 bits, whether or not x64 is on.

    64-bit integers become int32, "label" and "labels" of any integer dtype too; wider floats are
    rounded to float32.

    Args:
      name: the feature's name, for messages.
      column: one row for each record.
      indices: int64[n], the records, for messages.

    Raises:
      TypeError: no numbers.
      ValueError: an integer outside of int32; a finite float that becomes infinite, a whole number
        beyond 2^24 that float32 would change.
    """
    column = np.asarray(column)
    dtype = column.dtype
    if dtype.kind not in "biuf" and not _has_whole_bytes(dtype):
        raise TypeError(
            f"feature {name!r} must be numbers, got dtype {dtype}{_REMEDIES.get(dtype.kind, '')}."
        )

    if dtype.kind in "iu" and (dtype.itemsize == 8 or name in LABELS):
        outside = (column < _INT32.min) | (column > _INT32.max)
        _check_values(name, column, outside, indices, "fit int32", "split it into two, or hash it")
        return column.astype(np.int32)

    if dtype.kind == "f" and dtype.itemsize > 4:
        rounded, infinite, changed = round_floats(column, np.dtype(np.float32))
        _check_values(name, column, infinite, indices, "fit float32", "scale it")
        _check_values(
            name, column, changed, indices, "be exact in float32", "pass whole numbers as integers"
        )
        return rounded

    return column.astype(dtype.newbyteorder("="), copy=False)


def _has_whole_bytes(dtype: np.dtype) -> bool:
    """Return True for floats like bfloat16, which NumPy takes for no numbers; not of 4 bits."""
    return jnp.issubdtype(dtype, np.floating) and jnp.finfo(dtype).bits % 8 == 0


def round_floats(numbers: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers in a floating dtype, and bool arrays of their shape that show the damage.

    The first is True where a finite number becomes infinite, the second where a whole number (for
    float32: one beyond 2^24) becomes another one.
    """
    with np.errstate(over="ignore"):
        rounded = numbers.astype(dtype, copy=False)
    infinite = np.isinf(rounded) & np.isfinite(numbers)
    changed = (numbers == np.trunc(numbers)) & (rounded != numbers)
    return rounded, infinite, changed


# By numpy's kind of dtype.
_REMEDIES = {
    "U": ": leave text to `source.texts(indices, names)` and `source.describe(index)`",
    "S": ": leave text to `source.texts(indices, names)` and `source.describe(index)`",
    "O": ": its rows differ in shape or are no numbers; pad them to one shape, or leave them to "
    "`source.describe(index)`",
    "M": ": pass times as float seconds, or as two integers",
    "m": ": pass durations as float seconds",
    "c": ": pass real and imaginary parts as two features",
}


def _check_values(
    name: str,
    column: np.ndarray,
    wrong: np.ndarray,
    indices: np.ndarray,
    expected: str,
    remedy: str,
) -> None:
    """Refuse a column in which `wrong` is True anywhere, with the first such value."""
    if not wrong.any():
        return
    place = tuple(axis[0] for axis in np.nonzero(wrong))
    record = int(indices[place[0]])
    raise ValueError(
        f"feature {name!r} must {expected}, got {column[place]} in record {record}: {remedy}, or "
        "leave it out."
    )


def check_features(columns: Features, spec: FeatureSpec) -> None:
    """Refuse columns of another form than those that the Loader saw at its construction.

    Raises:
      ValueError: a feature is missing, new, or of another dtype or shape.
    """
    if columns.keys() != spec.keys():
        raise ValueError(
            "`source` must give the same features in every read, got "
            f"{sorted(columns)} after {sorted(spec)}."
        )
    for name, column in columns.items():
        found = Column(column.dtype, column.shape[1:])
        if found != spec[name]:
            raise ValueError(
                f"`source` must give feature {name!r} as {spec[name]} in every read, as in the "
                f"first, got {found}."
            )


def column_bytes(column: np.ndarray) -> memoryview:
    """Return the bytes of a column, without a copy where they are in order: it may be a memmap."""
    return np.ascontiguousarray(column).reshape(-1).view(np.uint8).data


def hash_features(digest: Any, features: Features) -> None:
    """Add the names and the columns of features to a digest of hashlib, in the order of names."""
    for name, column in sorted(features.items()):
        digest.update(name.encode())
        digest.update(column_bytes(column))


def stack_features(rows: Sequence[Features], indices: np.ndarray) -> dict[str, np.ndarray]:
    """Return narrowed columns of dicts of scalars and arrays, one dict for each of `indices`.

    Raises:
      ValueError: records differ in names or shapes.
    """
    names = rows[0].keys() if rows else ()
    for row in rows:
        if row.keys() != names:
            raise ValueError(
                "`source` must give the same features for every record, got "
                f"{sorted(row)} after {sorted(names)}."
            )

    columns = {}
    for name in names:
        values = [np.asarray(row[name]) for row in rows]
        shapes = {value.shape for value in values}
        if len(shapes) > 1:
            raise ValueError(
                f"`source` must give feature {name!r} in one shape, got {sorted(shapes)}: pad it "
                "to the largest."
            )
        columns[name] = narrow(name, np.stack(values), indices)
    return columns


def blank_value(name: str, dtype: Any, mask_fill: int) -> int:
    """Return the value of a blank row: -1 in integer labels, `mask_fill` in masks, else 0."""
    if name == "mask":
        return mask_blank_value(dtype, mask_fill)
    if name in _BLANK_LABELS and jnp.issubdtype(dtype, np.signedinteger):
        return -1
    return 0


def mask_blank_value(dtype: Any, mask_fill: int) -> int:
    """Return the value of a mask where there is no image.

    It is `mask_fill` for integers, else False or 0.

    Raises:
      ValueError: the dtype cannot hold `mask_fill`.
    """
    if not jnp.issubdtype(dtype, np.integer):
        return 0
    limits = np.iinfo(dtype)
    if not limits.min <= mask_fill <= limits.max:
        raise ValueError(
            f"`mask_fill` must fit the mask's {np.dtype(dtype)}, {limits.min} to {limits.max}, "
            f"got {mask_fill}: give another, or a mask of a wider dtype."
        )
    return mask_fill


def blank_rows(columns: Features, rows: np.ndarray, mask_fill: int) -> dict[str, np.ndarray]:
    """Return the columns with blank values where `rows` (bool[n]) is True."""
    blanked = {}
    for name, column in columns.items():
        column = column.copy()
        column[rows] = blank_value(name, column.dtype, mask_fill)
        blanked[name] = column
    return blanked
