"""From records found one by one in a container file to the columns of an index."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxaug.decode import Encoded, Headers, read_headers
from jaxaug.errors import SourceError

# images whose headers are read in one call
_MAX_CHUNK_IMAGES = 256
_MAX_CHUNK_BYTES = 32 << 20
_MAX_FEATURE_BYTES = 4 << 30  # bytes of one padded feature
# what the names of such columns begin with
HEADER = "header/"
FEATURE = "feature/"
FACTS = [
    name for name in Headers._fields if name != "reason"
]  # an index with other ones is built anew

Numbers = Sequence[int] | Sequence[float] | np.ndarray


class FileColumns(NamedTuple):
    """The records of one file."""

    rows: int
    columns: dict[str, np.ndarray]  # "offset", "length", "lead", and "header/..." ones
    features: dict[str, tuple[np.ndarray, np.ndarray]]  # (all values, how many each record has)


class ColumnBuilder:
    """Collects the records of one file."""

    def __init__(self):
        self.count = 0
        self._columns: dict[str, list[np.ndarray]] = defaultdict(list)
        self._features: dict[str, tuple[list[np.ndarray], list[np.ndarray]]] = defaultdict(
            lambda: ([], [])
        )
        self._start_chunk()

    def add(
        self, image: np.ndarray, offset: int, lead: int, features: Mapping[str, Numbers]
    ) -> None:
        """One more record.

        Args:
          image: uint8[length], its encoded image.
          offset: where in the file the image begins.
          lead: how many bytes earlier the record itself begins.
          features: its numbers by name.
        """
        self._places.append((offset, image.size, lead))
        self._images.append(image)
        for name, numbers in features.items():
            self._numbers[name].append((len(self._images) - 1, numbers))
        self._bytes += image.size
        self.count += 1
        if len(self._images) == _MAX_CHUNK_IMAGES or self._bytes >= _MAX_CHUNK_BYTES:
            self._end_chunk()

    def finish(self) -> FileColumns:
        """The columns of all records added."""
        self._end_chunk()
        columns = {name: np.concatenate(chunks) for name, chunks in self._columns.items()}
        features = {}
        for name, (values, counts) in self._features.items():
            features[name] = np.concatenate(values), _pad_end(np.concatenate(counts), self.count)
        return FileColumns(self.count, columns, features)

    def _start_chunk(self) -> None:
        self._places: list[tuple[int, int, int]] = []
        self._images: list[np.ndarray] = []
        self._numbers: dict[str, list[tuple[int, Numbers]]] = defaultdict(list)
        self._bytes = 0

    def _end_chunk(self) -> None:
        if not self._images:
            return
        places = np.array(self._places, np.int64)
        headers = read_headers(Encoded.from_bytes(self._images))
        facts = {HEADER + name: getattr(headers, name) for name in FACTS}
        for name, column in zip(("offset", "length", "lead"), places.T):
            self._columns[name].append(column.copy())
        for name, column in facts.items():
            self._columns[name].append(column)
        done = self.count - len(self._images)
        for name, rows in self._numbers.items():
            values, counts = self._features[name]
            chunk = np.zeros(len(self._images), np.int64)
            chunk[[row for row, _ in rows]] = [len(numbers) for _, numbers in rows]
            missing = done - sum(
                map(len, counts)
            )  # earlier chunks in which no record had this feature
            counts += [np.zeros(missing, np.int64), chunk]
            values.append(np.concatenate([np.asarray(numbers) for _, numbers in rows]))
        self._start_chunk()


def join(parts: Sequence[FileColumns]) -> dict[str, np.ndarray]:
    """The columns of the records of all files, one file after the other."""
    filled = [part for part in parts if part.rows]
    columns = {
        name: _smallest(np.concatenate([part.columns[name] for part in filled]))
        for name in filled[0].columns
    }
    names = {name for part in filled for name in part.features}
    for name in sorted(names):
        found = [
            part.features.get(name, (_NO_VALUES, np.zeros(part.rows, np.int64))) for part in filled
        ]
        values = np.concatenate([values for values, _ in found if values.size] or [_NO_VALUES])
        counts = np.concatenate([counts for _, counts in found])
        made = _feature_columns(name, values, counts, fill=-1 if name == "label" else 0)
        if f"{FEATURE}{name}_count" in made and f"{name}_count" in names:
            raise SourceError(
                f"feature {name!r} varies in length, so that its counts would be called '{name}_count', as another "
                f"feature is: rename that one, or leave one out by naming the `features` that you need."
            )
        columns |= made
    if "label" in names:
        _check_label(columns)
    return columns


def _check_label(columns: dict[str, np.ndarray]) -> None:
    """One label a record; or several, where -1 says that there are no more, as in `FileList`."""
    label = columns[FEATURE + "label"]
    count = columns.pop(f"{FEATURE}label_count", None)
    if count is not None and label.ndim == 1:
        raise SourceError(
            f"{int((count != 1).sum())} of {count.size} records have no single label."
        )
    if label.dtype != np.int32:
        raise SourceError(f"labels must be int32, got {label.dtype} {label.shape}.")


_NO_VALUES = np.zeros(0, np.int64)


def _feature_columns(
    name: str, values: np.ndarray, counts: np.ndarray, fill: int
) -> dict[str, np.ndarray]:
    """[n] where each record has one number, [n, k] where each has k, else padded with `fill`, with
    counts.
    """
    most = int(counts.max())
    if most == 0:
        return {}
    values = values.astype(_user_dtype(values), copy=False)
    if counts.min() == most:
        return {FEATURE + name: values if most == 1 else values.reshape(-1, most)}
    if counts.size * most * values.itemsize > _MAX_FEATURE_BYTES:
        raise SourceError(
            f"feature {name!r} has up to {most} numbers a record, too many to pad {counts.size} records to: "
            f"leave it out by naming the `features` that you need."
        )
    padded = np.full((counts.size, most), fill, values.dtype)
    padded[np.arange(most) < counts[:, None]] = values
    return {
        FEATURE + name: padded[:, 0] if most == 1 else padded,
        f"{FEATURE}{name}_count": counts.astype(np.int32),
    }


def _user_dtype(values: np.ndarray) -> type:
    """What users get: int32 where it holds all values, else int64; float32."""
    if values.dtype.kind == "f":
        return np.float32
    limits = np.iinfo(np.int32)
    return np.int32 if limits.min <= values.min() and values.max() <= limits.max else np.int64


def _smallest(column: np.ndarray) -> np.ndarray:
    """The narrowest unsigned dtype that holds the column, for an index that is small in memory."""
    assert column.min() >= 0
    return column.astype(np.min_scalar_type(int(column.max())))


def _pad_end(counts: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([counts, np.zeros(size - counts.size, np.int64)])
