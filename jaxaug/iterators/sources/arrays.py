"""Records that are rows of large arrays, or files beside each other."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._checks import checked_indices
from jaxaug._typing import Values
from jaxaug.decode import Encoded, zarr_reference
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import holds_numbers
from jaxaug.iterators.sources.stamps import file_stamps, joined, row_stamps
from jaxaug.iterators.sources.storage.files import local_path
from jaxaug.iterators.sources.storage.loose import LooseFiles

_MAX_HASHED_ROWS = 16  # of an array: one may be larger than the memory


class Arrays:
    """Columns by name, each an array with a row for each record, or a list of files.

    An array is anything with `shape`, `dtype` and slices: NumPy's, one that `numpy.load` maps
    (`mmap_mode="r"`), an array of an NPZ, a dataset of h5py, an array of zarr. Rows are read when
    they are asked for, in the order of the file, and go to the devices without a decoder.

    A list of paths is a column of encoded files, one for each record, of which
    `Loader(decode={name: ...})` tells the decoder: `decode.Volume`, `decode.Image`. A path of a
    folder is a Zarr array, of which `decode.Volume` reads a window.

    Args:
      columns: name -> an array [n, ...], or n paths.

    Raises:
      TypeError: a column is neither.
      ValueError: columns have other numbers of rows.
      SourceError: there is no record.

    Example:
      >>> source = Arrays({"x": np.arange(12).reshape(4, 3), "label": np.array([0, 1, 0, 1])})
      >>> source.read(np.array([2, 0]))["x"].tolist()
      [[6, 7, 8], [0, 1, 2]]
    """

    def __init__(self, columns: Mapping[str, Any]):
        if not isinstance(columns, Mapping) or not columns:
            raise TypeError(f"`columns` must be a dict of arrays, got {type(columns).__name__}.")
        self._columns = {name: _column(name, column) for name, column in columns.items()}
        counts = {name: column.count for name, column in self._columns.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"`columns` must have one row for each record, got {counts}.")
        self._count = next(iter(counts.values()))
        if not self._count:
            raise SourceError("`columns` must hold at least one record, got none.")

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Arrays({len(self)} records, {sorted(self._columns)})"

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read rows of the arrays, and the bytes of files; what cannot be read has length 0."""
        indices = checked_indices(indices, len(self))
        return {name: column.read(indices) for name, column in self._columns.items()}

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return checksums of all bytes of the rows, with sizes and times of the files.

        See `Stamped`.
        """
        return joined(*(column.stamps(indices) for column in self._columns.values()))

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's number, the paths of its files, and "error" if one cannot be read.

        "path" is of the first column of files, "<name>_path" of another.
        """
        found: dict[str, Any] = {"record": index}
        for name, column in self._columns.items():
            if not isinstance(column, _Files):
                continue
            about = column.describe(index)
            is_first = "path" not in found
            found["path" if is_first else f"{name}_path"] = about["path"]
            if "error" in about:
                whose = "" if is_first else f"its {name} "
                found.setdefault("error", whose + about["error"])
        return found

    def fingerprint(self) -> str:
        """Return a hash of the paths, of the arrays' forms, and of 16 of their rows."""
        digest = hashlib.blake2b(digest_size=8)
        for name, column in sorted(self._columns.items()):
            digest.update(f"{name}:{column.fingerprint()};".encode())
        return digest.hexdigest()


class _Rows:
    """A column of an array."""

    def __init__(self, array: Any):
        self._array = array
        self.count = int(array.shape[0])

    def read(self, indices: np.ndarray) -> np.ndarray:
        """Return rows; h5py and others take numbers that rise, each once."""
        if isinstance(self._array, np.ndarray):
            return self._array[indices]
        rows, places = np.unique(indices, return_inverse=True)
        if not len(rows):
            found = self._array[0:0]
        elif rows[-1] - rows[0] + 1 == len(rows):
            found = self._array[int(rows[0]) : int(rows[-1]) + 1]
        else:
            found = np.stack([np.asarray(self._array[row]) for row in rows.tolist()])
        return np.asarray(found)[places]

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        return row_stamps({"": self.read(indices)}, len(indices))

    def fingerprint(self) -> str:
        spread = np.linspace(0, self.count - 1, min(self.count, _MAX_HASHED_ROWS))
        rows = np.unique(spread.astype(np.int64))
        found = self.read(rows)
        text = f"{found.dtype}{tuple(self._array.shape)}".encode()
        return hashlib.blake2b(text + found.tobytes(), digest_size=8).hexdigest()


class _Files:
    """A column of files, or of folders that are Zarr arrays."""

    def __init__(self, paths: Sequence[Any]):
        self.count = len(paths)
        if not paths:
            raise SourceError("`columns` must hold at least one record, got no paths.")
        whole = [local_path(path) for path in paths]
        root = os.path.commonpath([os.path.dirname(path) for path in whole])
        self._files = LooseFiles(root, [os.path.relpath(path, root) for path in whole])
        folders = [zarr_reference(path) if os.path.isdir(path) else b"" for path in whole]
        self._folders = Encoded.from_bytes(folders)
        self._is_folder = self._folders.lengths > 0
        self._paths = whole

    def __reduce__(self):
        # Another process opens only folders that it was asked for.
        return _Files, (self._paths,)

    def read(self, indices: np.ndarray) -> Encoded:
        """Return the bytes of files, and what stands for Zarr arrays."""
        is_folder = self._is_folder[indices]
        if is_folder.all():
            return self._folders.take(indices)
        if not is_folder.any():
            return self._files.read(indices)
        both = [self._files.read(indices[~is_folder]), self._folders.take(indices[is_folder])]
        places = np.argsort(np.argsort(is_folder, kind="stable"), kind="stable")
        return Encoded.join(both).take(places)

    def describe(self, index: int) -> dict[str, Any]:
        if self._is_folder[index]:
            return {"path": self._files.path(index)}
        return self._files.describe(index)

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        return file_stamps(map(self._files.path, indices.tolist()))

    def fingerprint(self) -> str:
        return self._files.fingerprint()


def _column(name: str, column: Any) -> "_Rows | _Files":
    if isinstance(column, (list, tuple)) and all(
        isinstance(each, (str, os.PathLike)) for each in column
    ):
        return _Files(column)
    if isinstance(column, (list, tuple)):
        column = np.asarray(column)
    if not (hasattr(column, "shape") and hasattr(column, "dtype")) or not column.shape:
        raise TypeError(
            f"`columns[{name!r}]` must be an array with a row for each record, or a list of paths,"
            f" got {type(column).__name__}."
        )
    if not holds_numbers(np.dtype(column.dtype)):
        raise TypeError(
            f"`columns[{name!r}]` must be numbers, got {column.dtype}: texts and objects are none."
        )
    return _Rows(column)
