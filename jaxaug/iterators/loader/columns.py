"""Columns of records: what may be done with one whatever it holds, and the dtypes of numbers."""

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxaug._typing import Features, Values
from jaxaug.decode import Encoded, Ragged

# Class numbers: -1 in blank rows, so that no loss or metric takes such a row for class 0.
LABELS = ("label", "labels")
# -1 means no box, as behind the last box of an image, and no image.
BLANK_LABELS = (*LABELS, "box_labels", "box_ids", "image_id")

_INT32 = np.iinfo(np.int32)
_BYTES = (bytes, bytearray, memoryview)

Columns = Mapping[str, Values]


class Form(NamedTuple):
    """The form of a column: of one record's value.

    Attributes:
      kind: "array", "Encoded" or "Ragged".
      dtype: of an array, or of ragged values.
      shape: of a record's array; of ragged values that of one of them.
      max_length: of ragged values, and of lists of encoded ones; 0 for no lists.
    """

    kind: str
    dtype: np.dtype | None = None
    shape: tuple[int, ...] = ()
    max_length: int = 0

    def __str__(self) -> str:
        if self.kind == "Encoded":
            many = f"lists of up to {self.max_length} " if self.max_length else ""
            return f"{many}encoded bytes"
        most = f"up to {self.max_length} x " if self.kind == "Ragged" else ""
        return f"{most}{self.dtype}{list(self.shape)}"


Forms = Mapping[str, Form]


def form_of(values: Values) -> Form:
    """Return the form of a column.

    Example:
      >>> str(form_of(np.zeros((2, 3), np.int32)))
      'int32[3]'
    """
    if isinstance(values, Encoded):
        return Form("Encoded")
    if isinstance(values, Ragged):
        each = values.values
        if isinstance(each, Encoded):
            return Form("Encoded", max_length=values.max_length)
        return Form("Ragged", each.dtype, each.shape[1:], values.max_length)
    return Form("array", values.dtype, values.shape[1:])


def count_rows(values: Values) -> int:
    """Return how many records a column holds."""
    return len(values) if isinstance(values, np.ndarray) else len(values.lengths)


def take_rows(values: Values, rows: "np.ndarray | slice") -> Values:
    """Return some records of a column."""
    return values[rows] if isinstance(values, np.ndarray) else values.take(rows)


def put_rows(values: Values, rows: np.ndarray, others: Values) -> Values:
    """Return a column with the records `others` in its `rows`."""
    if isinstance(values, Encoded) and isinstance(others, Encoded):
        return Encoded.join([values, others]).take(_places(values, rows))

    if isinstance(values, Ragged) and isinstance(others, Ragged):
        return Ragged.join([values, others]).take(_places(values, rows))

    assert isinstance(values, np.ndarray) and isinstance(others, np.ndarray)
    values = values.copy()
    values[rows] = others
    return values


def _places(values: Values, rows: np.ndarray) -> np.ndarray:
    """Return where each record is, with those that replace `rows` behind all others."""
    place = np.arange(count_rows(values))
    place[rows] = len(place) + np.arange(len(rows))
    return place


def without_bytes(values: Values, rows: np.ndarray) -> Values:
    """Return a column whose encoded values have length 0 where `rows` (bool[n]) is True."""
    if isinstance(values, Ragged) and isinstance(values.values, Encoded):
        of_lists = without_bytes(values.values, np.repeat(rows, values.lengths))
        return values._replace(values=of_lists)
    if not isinstance(values, Encoded):
        return values
    return values._replace(lengths=np.where(rows, np.uint64(0), values.lengths))


def join_columns(encoded: Columns, features: Features) -> dict[str, Values]:
    """Return the columns of a source: its encoded ones, or pixels, and its numbers.

    Raises:
      ValueError: a feature has the name of another column.
    """
    taken = sorted(encoded.keys() & features.keys())
    if taken:
        raise ValueError(
            f"`source` must not have a feature named {', '.join(map(repr, taken))}, as another "
            "column is. Rename it, or leave it out."
        )
    return {**encoded, **features}


def narrow_columns(answer: Any, indices: np.ndarray) -> dict[str, Values]:
    """Return the columns of records `indices` (int64[n]), the numbers narrowed by `narrow`.

    Args:
      answer: what `source.read` returned.
      indices: the records that it was asked for.

    Raises:
      TypeError: the answer is no dict of columns.
      ValueError: a column has not one row for each record.
    """
    is_mapping = isinstance(answer, Mapping)
    if not is_mapping or not answer or not all(isinstance(name, str) for name in answer):
        got = f"{dict(answer)!r}" if is_mapping else type(answer).__name__
        raise TypeError(
            "`source.read` must return a dict of columns by name, NumPy arrays [n, ...], `Encoded` "
            f"or `Ragged`, got {got}: write {{'image': Encoded.from_bytes(files), 'label': "
            "labels}."
        )

    narrowed: dict[str, Values] = {}
    for name, values in answer.items():
        if not isinstance(values, (Encoded, Ragged)):
            values = np.atleast_1d(np.asarray(values))
        count = len(values if isinstance(values, np.ndarray) else values.lengths)
        if count != indices.size:
            raise ValueError(
                f"`source` must give one row of column {name!r} for each of {indices.size} "
                f"records, got {count}."
            )
        if isinstance(values, Ragged) and not isinstance(values.values, Encoded):
            records = np.repeat(indices, values.lengths)
            values = values._replace(values=narrow(name, values.values, records))
        elif isinstance(values, np.ndarray):
            values = narrow(name, values, indices)
        narrowed[name] = values
    return narrowed


def check_forms(columns: Columns, forms: Forms) -> None:
    """Refuse columns of another form than those that the Loader saw at its construction.

    Raises:
      ValueError: a column is missing, new, or of another form.
    """
    if columns.keys() != forms.keys():
        raise ValueError(
            "`source` must give the same columns in every read, got "
            f"{sorted(columns)} after {sorted(forms)}."
        )
    for name, values in columns.items():
        found = form_of(values)
        if found != forms[name]:
            raise ValueError(
                f"`source` must give column {name!r} as {forms[name]} in every read, as in the "
                f"first, got {found}."
            )


def stack_columns(rows: Sequence[Mapping[str, Any]], indices: np.ndarray) -> dict[str, Values]:
    """Return the columns of records, one dict of bytes, scalars and arrays for each of `indices`.

    Bytes become an encoded column; numbers are narrowed.

    Raises:
      ValueError: records differ in names or shapes.
    """
    names = rows[0].keys() if rows else ()
    for row in rows:
        if row.keys() != names:
            raise ValueError(
                "`source` must give the same columns for every record, got "
                f"{sorted(row)} after {sorted(names)}."
            )

    columns: dict[str, Values] = {}
    for name in names:
        values = [row[name] for row in rows]
        if isinstance(values[0], _BYTES):
            encoded = [value if isinstance(value, _BYTES) else b"" for value in values]
            columns[name] = Encoded.from_bytes(encoded)
            continue
        arrays = [np.asarray(value) for value in values]
        shapes = {array.shape for array in arrays}
        if len(shapes) > 1:
            raise ValueError(
                f"`source` must give feature {name!r} in one shape, got {sorted(shapes)}: pad it "
                "to the largest."
            )
        columns[name] = narrow(name, np.stack(arrays), indices)
    return columns


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
    if not holds_numbers(dtype):
        raise TypeError(
            f"feature {name!r} must be numbers, got dtype {dtype}{_REMEDIES.get(dtype.kind, '')}."
        )

    if dtype.kind in "iu" and (dtype.itemsize == 8 or name in LABELS):
        outside = (column < _INT32.min) | (column > _INT32.max)
        if outside.any():
            remedy = "split it into two, or hash it"
            raise _misfit(name, column, outside, indices, expected="fit int32", remedy=remedy)
        return column.astype(np.int32)

    if dtype.kind == "f" and dtype.itemsize > 4:
        rounded, infinite, changed = round_floats(column, np.dtype(np.float32))
        if infinite.any():
            expected = "fit float32"
            raise _misfit(name, column, infinite, indices, expected=expected, remedy="scale it")
        if changed.any():
            expected, remedy = "be exact in float32", "pass whole numbers as integers"
            raise _misfit(name, column, changed, indices, expected=expected, remedy=remedy)
        return rounded

    return column.astype(dtype.newbyteorder("="), copy=False)


def holds_numbers(dtype: np.dtype) -> bool:
    """Return True for bools, integers and floats, of which a column of a batch may be."""
    if dtype.kind in "biuf":
        return True
    # Floats like bfloat16, which NumPy takes for no numbers, are some; not those of 4 bits.
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


def _misfit(
    name: str,
    column: np.ndarray,
    wrong: np.ndarray,
    indices: np.ndarray,
    *,
    expected: str,
    remedy: str,
) -> ValueError:
    """Return the error of the first value of a column where `wrong` is True."""
    place = tuple(axis[0] for axis in np.nonzero(wrong))
    record = int(indices[place[0]])
    return ValueError(
        f"feature {name!r} must {expected}, got {column[place]} in record {record}: {remedy}, or "
        "leave it out."
    )


def column_bytes(column: np.ndarray) -> memoryview:
    """Return the bytes of a column, without a copy where they are in order: it may be a memmap."""
    return np.ascontiguousarray(column).reshape(-1).view(np.uint8).data


def hash_features(digest: Any, features: Columns) -> None:
    """Add the names and the columns of features to a digest of hashlib, in the order of names."""
    for name, column in sorted(features.items(), key=lambda item: item[0]):
        digest.update(name.encode())
        if isinstance(column, Ragged):
            digest.update(column.lengths.tobytes())
            column = column.values
        if isinstance(column, Encoded):
            column = column.lengths
        assert isinstance(column, np.ndarray)
        digest.update(column_bytes(column))


def name_on_path(path: Sequence[Any], names: Container[str]) -> str:
    """Return the innermost key or field on a leaf's path that is one of `names`, "" if none is.

    A transform may put its entries into dicts and named tuples of its own, such as {"target":
    {"label": 3}}.
    """
    keys = [getattr(step, "key", getattr(step, "name", "")) for step in reversed(path)]
    return next((key for key in keys if key in names), "")


def blank_value(name: str, dtype: Any) -> int:
    """Return the value of an entry in a row that is not valid: -1 in integer labels, else 0."""
    return -1 if name in BLANK_LABELS and jnp.issubdtype(dtype, np.signedinteger) else 0
