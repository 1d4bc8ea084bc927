"""Columns of an index, made from records that are found one by one in a container file."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxaug._checks import check_positive_int
from jaxaug._typing import Values
from jaxaug.decode import Encoded, Ragged, Sides
from jaxaug.decode.image.canvas import join_sides
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import round_floats
from jaxaug.iterators.sources.packed.facts import Facts

# Limits of the images whose headers are read in one call.
_MAX_CHUNK_IMAGES = 256
_MAX_CHUNK_BYTES = 32 << 20
_MAX_FEATURE_BYTES = 4 << 30  # of one padded feature
# Prefixes of the names of such columns.
FEATURE = "feature/"
LENGTH = "length/"  # of the lists in a padded feature
ABSENT = "absent/"  # bool[n], True for records without a number of the feature
NULLS = ("error", "nan", "count")
# Places of an image, and of its mask if it has one: the offset in the file, the length, and "lead",
# the bytes from the beginning of the record to the image.
PLACES = ("offset", "length", "lead", "mask_offset", "mask_length")
FORM = "form"  # the row of a table of the values that `Facts.shared` names
_VALUES = "values/"  # of a feature in the index of one file, one record after the other
_COUNTS = "counts/"  # how many of them each record has

Numbers = Sequence[int] | Sequence[float] | np.ndarray
MaxLength = int | Mapping[str, int] | None


class Place(NamedTuple):
    """A range of bytes in a file."""

    offset: int
    length: int


class FileColumns(NamedTuple):
    """The records of one file."""

    rows: int
    columns: dict[str, np.ndarray]  # those of `PLACES`, of `Facts`, and `FORM`
    forms: np.ndarray  # int64[k, shared facts]
    sides: Sides  # of the good images
    features: dict[str, tuple[np.ndarray, np.ndarray]]  # (all values, how many each record has)

    def named(self) -> dict[str, np.ndarray]:
        """Return all columns by the names that the index of one file has them under."""
        columns = dict(self.columns)
        for name, (values, counts) in self.features.items():
            columns[_VALUES + name] = values
            columns[_COUNTS + name] = counts
        return columns


def from_named(
    rows: int, named: Mapping[str, np.ndarray], forms: np.ndarray, sides: Sides
) -> FileColumns:
    """Return the records of one file by what `FileColumns.named` returned."""
    prefixes = (_VALUES, _COUNTS)
    columns = {name: named[name] for name in named if not name.startswith(prefixes)}
    names = [name.removeprefix(_VALUES) for name in named if name.startswith(_VALUES)]
    features = {name: (named[_VALUES + name], named[_COUNTS + name]) for name in names}
    return FileColumns(rows, columns, forms, sides, features)


class ColumnBuilder:
    """Collects the records of one file.

    Args:
      facts: what an index keeps of the encoded values.
    """

    def __init__(self, facts: Facts):
        self._facts = facts
        self.count = 0
        self._columns: dict[str, list[np.ndarray]] = defaultdict(list)
        self._features: dict[str, _Values] = {}
        self._sides: list[Sides] = []
        self._start_chunk()

    def add(
        self,
        image: np.ndarray,
        offset: int,
        lead: int,
        features: Mapping[str, Numbers],
        mask: Place | None = None,
    ) -> None:
        """Add one record.

        Args:
          image: uint8[length], its encoded image.
          offset: the place of the image in the file, in bytes.
          lead: bytes from the beginning of the record to the image.
          features: its numbers by name.
          mask: the place of its encoded mask; all records have one or none has.
        """
        self._places.append((offset, image.size, lead, *(mask or ())))
        self._images.append(image)
        for name, numbers in features.items():
            self._features.setdefault(name, _Values(name)).add(self.count, numbers)
        self._bytes += image.size
        self.count += 1
        if len(self._images) == _MAX_CHUNK_IMAGES or self._bytes >= _MAX_CHUNK_BYTES:
            self._end_chunk()

    def finish(self) -> FileColumns:
        """Return the columns of all records added."""
        self._end_chunk()
        columns = {name: np.concatenate(chunks) for name, chunks in self._columns.items()}
        names = [name for name in self._facts.shared if name in columns]
        forms = np.zeros((0, len(names)), np.int64)
        if names:
            shared = np.stack([columns.pop(name) for name in names], axis=1, dtype=np.int64)
            forms, columns[FORM] = np.unique(shared, axis=0, return_inverse=True)
            columns[FORM] = columns[FORM].reshape(-1)
        columns = {name: _smallest(column) for name, column in columns.items()}
        features = {name: found.columns(self.count) for name, found in self._features.items()}
        return FileColumns(self.count, columns, forms, join_sides(self._sides), features)

    def _start_chunk(self) -> None:
        self._places: list[tuple[int, ...]] = []
        self._images: list[np.ndarray] = []
        self._bytes = 0

    def _end_chunk(self) -> None:
        for values in self._features.values():
            values.end_chunk()
        if not self._images:
            return
        places = np.array(self._places, np.int64)
        for name, column in zip(PLACES, places.T):
            self._columns[name].append(column.copy())
        facts = self._facts.read(Encoded.from_bytes(self._images))
        for name, column in facts.items():
            self._columns[name].append(column)
        self._sides.append(self._facts.sides(facts))
        self._start_chunk()


class _Values:
    """The numbers of one feature, or rows of them [k, ...], and the records that have them.

    Numbers wait as they come for the end of a chunk, which makes one array of them: Python objects
    would take many times their memory.
    """

    def __init__(self, name: str):
        self._name = name
        self._waiting: list[Numbers] = []
        self._records: list[int] = []
        self._chunks: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []

    def add(self, record: int, numbers: Numbers) -> None:
        self._waiting.append(numbers)
        self._records.append(record)

    def end_chunk(self) -> None:
        if not self._waiting:
            return
        lengths = [len(numbers) for numbers in self._waiting]
        arrays = [np.asarray(numbers) for numbers in self._waiting]
        # An empty list says nothing of dtype and shape: NumPy takes it for floats.
        rows = [each for each in arrays if each.size or each.ndim > 1]
        if rows:
            _check_rows(self._name, [*self._chunks[:1], *rows])
            self._chunks.append(np.concatenate(rows))
        self._lengths.append(np.array([self._records, lengths], np.int64))
        self._waiting = []
        self._records = []

    def columns(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all values, and the number of them in each of `count` records."""
        records, lengths = np.concatenate(self._lengths, axis=1)
        counts = np.zeros(count, np.int64)
        counts[records] = lengths
        values = np.concatenate(self._chunks or [_NO_VALUES])
        return _narrowed(values), _smallest(counts)


def _narrowed(values: np.ndarray) -> np.ndarray:
    """Return integers in the narrowest signed dtype, and other numbers as they are."""
    if values.dtype != np.int64 or not values.size:
        return values
    widest = max(values.max(), -1 - values.min())
    return values.astype(np.min_scalar_type(-1 - int(widest)))


def _check_rows(name: str, arrays: Sequence[np.ndarray]) -> None:
    """Raise SourceError where arrays [k, ...] of a feature differ behind their first axis."""
    first = arrays[0].shape[1:]
    other = next((each.shape[1:] for each in arrays if each.shape[1:] != first), first)
    if other != first:
        both = " and ".join(f"[{', '.join(map(str, ('k', *each)))}]" for each in (first, other))
        raise SourceError(
            f"feature {name!r} has arrays {both}: a column holds those that differ in their first "
            "axis alone."
        )


def join(
    parts: Sequence[FileColumns], max_length: MaxLength = None
) -> tuple[np.ndarray, Iterator[tuple[str, np.ndarray]]]:
    """Return the forms of all files, and an iterator over the names and columns of all records.

    Args:
      parts: of the files, one file after the other.
      max_length: of columns of lists, as `WebDataset` says.
    """
    filled = [part for part in parts if part.rows]
    forms, codes = _join_forms(filled)
    return forms, _join_columns(filled, codes, max_length)


def feature_widths(parts: Sequence[FileColumns], max_length: MaxLength) -> dict[str, int]:
    """Return how many numbers a record has in the column of each feature; others are cut off."""
    widths = {}
    for name in sorted({name for part in parts for name in part.features}):
        found = [part.features[name][1] if name in part.features else _NONE for part in parts]
        ends = np.array([end for counts in found for end in (counts.min(), counts.max())], np.int64)
        length = length_of(name, max_length, ends)
        widths[name] = int(ends.max()) if length is None else length
    return widths


def _join_columns(
    parts: Sequence[FileColumns], codes: Sequence[np.ndarray], max_length: MaxLength
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and columns, one in memory at a time; `codes` has the new forms of each file."""
    for name in parts[0].columns:
        columns = [part.columns[name] for part in parts]
        if name == FORM:
            columns = [code[column] for code, column in zip(codes, columns)]
        yield name, _smallest(np.concatenate(columns))

    names = {name for part in parts for name in part.features}
    for name in sorted(names):
        values, counts = _join_feature(name, parts)
        length = length_of(name, max_length, counts)
        fill = -1 if name == "label" else 0
        made = feature_columns(name, values, counts, fill=fill, length=length)
        if made and made[FEATURE + name].ndim == 1:
            made = with_absent(name, made)
        if name == "label":
            _check_label(made)
        check_length_name(name, made, names)
        yield from made.items()


def _join_forms(parts: Sequence[FileColumns]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the table of all files, and of each file the rows in it of the file's own forms."""
    rows: dict[tuple[int, ...], int] = {}
    codes = []
    for part in parts:
        numbers = [rows.setdefault(tuple(form), len(rows)) for form in part.forms.tolist()]
        codes.append(np.array(numbers, np.min_scalar_type(len(rows))))
    return np.array([*rows], np.int64), codes


def check_max_length(max_length: MaxLength) -> None:
    """Raise ValueError unless lengths are positive integers."""
    lengths = max_length if isinstance(max_length, Mapping) else {"": max_length}
    for name, length in lengths.items():
        if length is not None:
            check_positive_int(f"max_length[{name!r}]" if name else "max_length", length)


def length_of(name: str, max_length: MaxLength, counts: np.ndarray) -> int | None:
    """Return the length that the lists of a column get; None for that of the longest.

    A number for all is for lists that differ in length, and for no labels.
    """
    if isinstance(max_length, Mapping):
        return max_length.get(name)
    varies = int(counts.max()) > 1 and counts.min() < counts.max()
    return max_length if varies and name != "label" else None


def check_lengths_used(max_length: MaxLength, features: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError where a length was given for a column that there is not."""
    given = max_length if isinstance(max_length, Mapping) else {}
    unknown = sorted(given.keys() - features.keys())
    if unknown:
        raise ValueError(
            f"`max_length` must name columns, got {unknown}; found were {sorted(features)}."
        )


def with_absent(name: str, made: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns of a feature, with the rows that have none instead of their counts."""
    length = made.pop(LENGTH + name, None)
    return made if length is None else made | {ABSENT + name: length == 0}


def fill_absent(
    columns: Mapping[str, np.ndarray], nulls: str, place: Callable[[int], str]
) -> dict[str, np.ndarray]:
    """Return the features among some columns by name, where all have their numbers.

    Args:
      columns: of features, and of records without them.
      nulls: "error", "nan" or "count", as `Parquet` says.
      place: returns the file and the row of a record, for messages.

    Raises:
      SourceError: a record has no number, and `nulls` does not say what to do.
    """
    chosen = [name for name in columns if name.startswith(FEATURE)]
    features = {name.removeprefix(FEATURE): columns[name] for name in chosen}
    for name in [name for name in columns if name.startswith(LENGTH)]:
        features[f"{name.removeprefix(LENGTH)}_length"] = columns[name]
    for name in [name for name in columns if name.startswith(ABSENT)]:
        absent = columns[name]
        name = name.removeprefix(ABSENT)
        column = features[name]
        first = int(np.argmax(absent))
        whose = (
            f"{int(absent.sum())} of {absent.size} records, the first of which is record {first}, "
            f"{place(first)}"
        )
        if name == "label":
            raise SourceError(
                f"`label`: no single number in {whose}: leave these out, or pass label=None."
            )
        if nulls == "count":
            _check_free(f"{name}_count", name, features)
            features[f"{name}_count"] = (~absent).astype(np.int32)
        elif nulls == "nan" and column.dtype.kind == "f":
            rows = absent.reshape(-1, *[1] * (column.ndim - 1))
            features[name] = np.where(rows, column.dtype.type(np.nan), column)
        else:
            raise SourceError(
                f"feature {name!r} has no number in {whose}: leave it out by naming the "
                "`features` that you need, or pass nulls='nan' for NaN in floats"
                f"{'' if nulls == 'error' else f' (it is {column.dtype})'}, or 'count' for 0 and "
                f"the column '{name}_count'."
            )
    return features


def check_length_name(name: str, made: Mapping[str, np.ndarray], names: Collection[str]) -> None:
    """Raise SourceError where the lengths of a feature would be called as another feature is."""
    if LENGTH + name in made:
        _check_free(f"{name}_length", name, names)


def _check_free(taken: str, name: str, names: Collection[str]) -> None:
    if taken in names:
        raise SourceError(
            f"feature {name!r} differs between records, so that a column beside it would be called "
            f"{taken!r}, as another feature is: rename that one, or leave one out by naming the "
            "`features` that you need."
        )


def ragged_names(columns: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the names of the features whose lists differ in length."""
    names = [name.removeprefix(LENGTH) for name in columns if name.startswith(LENGTH)]
    return tuple(name for name in names if columns[FEATURE + name].ndim > 1)


def take_features(
    features: Mapping[str, np.ndarray], ragged: Collection[str], indices: np.ndarray
) -> dict[str, Values]:
    """Return the features of some records, those of lists of different lengths as `Ragged`."""
    columns: dict[str, Values] = {name: column[indices] for name, column in features.items()}
    for name in ragged:
        columns[name] = Ragged.from_padded(columns[name], columns.pop(f"{name}_length"))
    return columns


def _join_feature(name: str, parts: Sequence[FileColumns]) -> tuple[np.ndarray, np.ndarray]:
    """Return all values of a feature, and the number of them in each record."""
    values = []
    counts = []
    for part in parts:
        found = part.features.get(name)
        if found is None:
            counts.append(np.zeros(part.rows, np.uint8))
            continue
        if found[0].size:
            values.append(found[0])
        counts.append(found[1])
    if values:
        _check_rows(name, values)
    return np.concatenate(values or [_NO_VALUES]), np.concatenate(counts)


def _check_label(columns: dict[str, np.ndarray]) -> None:
    """Refuse labels but integers; rows of several need no count, as -1 ends them."""
    label = columns[FEATURE + "label"]
    columns.pop(LENGTH + "label", None)
    if label.dtype != np.int32:
        with np.errstate(invalid="ignore"):
            changed = label.astype(np.int32) != label
        # None changes where they are bools.
        place = np.unravel_index(int(np.argmax(changed)), label.shape)
        raise SourceError(
            f"`label` must be class numbers (int32), got {label[place]} in record {place[0]}: take "
            'other numbers as a column, by label=None and features={"label": "target"}.'
        )


_NO_VALUES = np.zeros(0, np.int64)
_NONE = np.zeros(1, np.int64)


def feature_columns(
    name: str,
    values: np.ndarray,
    counts: np.ndarray,
    fill: int,
    dtype: type | None = None,
    length: int | None = None,
) -> dict[str, np.ndarray]:
    """Return the columns of one feature.

    With a length [n, length], cut and padded with `fill`, and the lengths before beside it. Else
    [n] where each record has one number, [n, k] where each has k; else padded with `fill`, and a
    column of lengths beside it. Of rows [k, ...] the other axes follow.

    Args:
      name: of the feature.
      values: the numbers or rows of all records, one record after the other.
      counts: int64[n], how many of them each record has.
      fill: the padding.
      dtype: of the column; None for the one that users get.
      length: of the lists; None for that of the longest.
    """
    most = int(counts.max())
    if most == 0:
        return {}
    if length is not None:
        counts = counts.astype(np.int64)  # sums of them may be large
        place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
        values = values[place < length]
    values = values.astype(dtype or _user_dtype(values), copy=False)
    rest = values.shape[1:]
    single = most == 1 and not rest and length is None
    if counts.min() == most and length is None:
        return {FEATURE + name: values if single else values.reshape(-1, most, *rest)}
    most = most if length is None else length
    if counts.size * most * values[:1].nbytes > _MAX_FEATURE_BYTES:
        raise SourceError(
            f"feature {name!r} has up to {most} numbers a record, too many to pad "
            f"{counts.size} records to: give a `max_length`, or leave it out by naming the "
            "`features` that you need."
        )
    signed = np.int32 if fill < 0 and values.dtype == np.uint8 else values.dtype
    padded = np.full((counts.size, most, *rest), fill, signed)
    padded[np.arange(most) < counts[:, None]] = values
    return {
        FEATURE + name: padded[:, 0] if single else padded,
        LENGTH + name: counts.astype(np.int32),
    }


def _user_dtype(values: np.ndarray) -> type:
    """Return the dtype that users get: int32 or float32, bytes and bools as they are.

    Values that these would change keep 64 bits, and the Loader names the first of them.
    """
    if values.dtype.kind == "f" and values.dtype.itemsize <= 4:
        return np.float32
    if values.dtype.kind == "f":
        _, infinite, changed = round_floats(values, np.dtype(np.float32))
        return np.float64 if (infinite | changed).any() else np.float32
    if values.dtype in (np.uint8, np.bool_):
        return values.dtype.type
    limits = np.iinfo(np.int32)
    if limits.min <= values.min() and values.max() <= limits.max:
        return np.int32
    return np.uint64 if values.dtype == np.uint64 else np.int64


def _smallest(column: np.ndarray) -> np.ndarray:
    """Return the column in the narrowest unsigned dtype, for an index that is small in memory."""
    if not column.size:
        return column
    assert column.min() >= 0
    return column.astype(np.min_scalar_type(int(column.max())))
