"""The part that all sources of packed files share: an index, a storage, reading by indexing."""

import abc
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._checks import check_amount, check_choice, check_count, check_seconds
from jaxaug._typing import Features, PathLike, Values
from jaxaug.decode import ColumnDecoder, Headers
from jaxaug.decode.image.parse.headers import no_reasons
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import join_columns
from jaxaug.iterators.sources._boxes_of import BOXES_OF, annotated_on
from jaxaug.iterators.sources._findings import without_rows
from jaxaug.iterators.sources._indices import checked_indices
from jaxaug.iterators.sources._items import TEXTS
from jaxaug.iterators.sources._texts import columns_of_texts
from jaxaug.iterators.sources.packed.columns import (
    FACTS,
    HEADER,
    NULLS,
    ColumnBuilder,
    MaxLength,
    check_lengths_used,
    check_max_length,
    fill_absent,
    ragged_names,
    take_features,
)
from jaxaug.iterators.sources.storage.files import is_remote, list_files, local_path
from jaxaug.iterators.sources.storage.index import open_index, write_extra
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader
from jaxaug.iterators.sources.storage.storage import choose_storage

FINDINGS = "bad_records"  # the name in an index of what a verification found
_AHEAD_BYTES = 384 << 20  # of one read of remote files; three of them may be in memory
_DESCRIBE_BYTES = 64 << 10  # bytes read to describe one record


class PackedSource(abc.ABC):
    """Records inside a few large files; a format knows how to scan a file and name a record.

    Args:
      paths: as `TFRecord` and `WebDataset` say.
      index: the file of the index; None for one beside the data or in the cache folder.
      mmap: map the files (local ones only), or read them.
      boxes_of: the image that boxes and keypoints are of, as `TFRecord` says.
      nulls: what records without a number have, as `TFRecord` says.
      max_length: of columns of lists, as `TFRecord` says.
      timeout, retries: of reading, as `Staged` says.
      cache, cache_bytes: the folder of blocks that are kept, and its bound, as `TFRecord` says.
      options: what else the index depends on; JSON values.
    """

    _main = "image"  # the column of encoded bytes

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        options: dict[str, Any],
        *,
        index: PathLike | None,
        boxes_of: str,
        nulls: str,
        max_length: MaxLength,
        mmap: bool,
        timeout: float,
        retries: int,
        cache: PathLike | None,
        cache_bytes: float,
    ):
        check_choice("boxes_of", boxes_of, BOXES_OF)
        check_choice("nulls", nulls, NULLS)
        check_max_length(max_length)
        if max_length is not None:
            length = dict(max_length) if isinstance(max_length, Mapping) else max_length
            options = options | {"max_length": length}
        check_seconds("timeout", timeout)
        check_count("retries", retries)
        check_amount("cache_bytes", cache_bytes, "bytes")
        self._files = list_files(paths)
        self._options = options
        self._trusting = True
        self._boxes_of = boxes_of
        self._nulls = nulls
        self._index_place = None if index is None else local_path(index)
        self._reading: dict[str, Any] = {"mapped": mmap, "timeout": timeout, "retries": retries}
        if cache is not None:
            self._reading |= {"cache": local_path(cache), "cache_bytes": cache_bytes}
        self._open()

    def _open(self) -> None:
        self._index = open_index(
            self._files, type(self).__name__, self._options, self._scan, self._index_place
        )
        self._storage = choose_storage(self._files, **self._reading)
        self._columns = self._index.columns
        self._features = fill_absent(self._columns, self._nulls, self._place)
        self._ragged = ragged_names(self._columns)
        check_lengths_used(self._options.get("max_length"), self._features)
        found = self._index.extra.get(FINDINGS, {}) if self._trusting else {}
        self._bad = {int(index): str(reason) for index, reason in found.items()}
        # The errors of records that could not be read when they were last asked for.
        self._failures: dict[int, str] = {}

    def _check_found(self, names: Mapping[str, str] | None, label: str | None) -> None:
        """Raise SourceError where no record has a wanted feature."""
        wanted = {} if names is None else names
        unknown = [key for key in wanted if key != label and wanted[key] not in self._features]
        if unknown:
            found = f"found were {sorted(self._features)}"
            raise SourceError(
                f"`features`: no record has numbers called {sorted(unknown)}; {found}. {TEXTS}."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy, also one in another process, opens the same state of the files by."""
        opened = ("_index", "_storage", "_columns", "_features", "_ragged", "_failures", "_bad")
        return {name: value for name, value in vars(self).items() if name not in opened}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __len__(self) -> int:
        return int(self._index.row_starts[-1])

    def __repr__(self) -> str:
        images = "images with masks" if "mask_offset" in self._columns else "images"
        found = f"{len(self)} {images} in {len(self._files)} files, {sorted(self._features)}"
        return f"{type(self).__name__}({found})"

    @property
    def index_path(self) -> str:
        """The file that holds the index: beside the data, or in the cache folder."""
        return self._index.path

    @property
    def decoders(self) -> dict[str, ColumnDecoder]:
        """How boxes and keypoints are decoded."""
        return annotated_on(self._boxes_of)

    @property
    def features(self) -> Features:
        """All columns of features by name, known without reading an image.

        `Weighted(balanced_weights(source.features["label"]))` draws all classes equally often.
        """
        return dict(self._features)

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read the images, their masks, and their features; what cannot be read has length 0.

        Raises:
          IndexError: an index outside [0, len).
        """
        indices = checked_indices(indices, len(self))
        files = np.searchsorted(self._index.row_starts, indices, side="right") - 1
        offsets = self._columns["offset"][indices]
        lengths = self._columns["length"][indices]
        masked = "mask_offset" in self._columns
        if masked:  # in one read with the images, which mostly lie beside them
            files = np.concatenate([files, files])
            offsets = np.concatenate([offsets, self._columns["mask_offset"][indices]])
            lengths = np.concatenate([lengths, self._columns["mask_length"][indices]])

        encoded, failures = self._storage.read(
            files, offsets.astype(np.int64), lengths.astype(np.int64)
        )
        self._note(indices, failures)
        if self._bad:
            encoded = without_rows(encoded, [*self._bad], np.resize(indices, len(files)))
        rows = len(indices)
        found = {self._main: encoded.take(slice(rows))}
        if masked:
            found["mask"] = encoded.take(slice(rows, None))
        columns = take_features(self._features, self._ragged, indices)
        return join_columns(found, columns)

    def _note(self, indices: np.ndarray, failures: dict[int, str]) -> None:
        """Remember why images, and behind them masks, of `indices` could not be read."""
        if not failures and not self._failures:
            return
        rows = len(indices)
        for row, index in enumerate(indices.tolist()):
            failure = failures.get(row, failures.get(row + rows))
            if failure is None:
                self._failures.pop(index, None)
            else:  # in one step: another thread may describe the record
                self._failures[index] = failure

    def untrusting(self) -> "PackedSource":
        """Return a copy that also reads what a verification found bad; see `verify`."""
        other = copy.copy(self)
        other._trusting = False
        other._bad = {}
        return other

    def findings_place(self) -> str:
        """Return the file that `keep_findings` writes: the index."""
        return self.index_path

    def keep_findings(self, findings: Mapping[int, str]) -> str:
        """Keep record -> reason, which later sources take for bad, in the index."""
        write_extra(self.index_path, FINDINGS, {str(index): findings[index] for index in findings})
        return self.index_path

    @property
    def records_ahead(self) -> int:
        """The records of one read ahead of their batches; 0 unless all files are remote."""
        if not all(is_remote(file.path) for file in self._files):
            return 0
        total = sum(file.size for file in self._files)
        return max(1, _AHEAD_BYTES * len(self) // total)

    def headers(self, indices: np.ndarray) -> dict[str, Headers]:
        """Return the headers of images that the index knows; `reason` stays empty."""
        if self._main != "image":
            return {}
        facts = {name: self._columns[HEADER + name][indices] for name in FACTS}
        facts |= {name: facts[name].astype(np.int32) for name in ("height", "width")}
        return {"image": Headers(**facts, reason=no_reasons(len(indices)))}

    def describe(self, index: int) -> dict[str, Any]:
        """Return the file, the number in it, the record's strings, and "error" if unreadable."""
        number, place = self._in_file(index)
        file = self._files[number]
        found = {"record": index, "path": file.name, "record_in_file": place}
        failure = self._failures.get(index)  # one look: the reader changes it at the same time
        if failure is not None:
            return found | {"error": failure}
        start = int(self._columns["offset"][index]) - int(self._columns["lead"][index])
        try:
            found |= self._strings(BlockReader(FileReader(), file, _DESCRIBE_BYTES), start)
            return found | ({"error": self._bad[index]} if index in self._bad else {})
        except SourceError as error:
            return found | {"error": str(error)}

    def texts(
        self, indices: np.ndarray, names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return texts of records `indices` by name: a list of one for each record.

        Args:
          indices: int64[n].
          names: as the source's own docstring says.
          missing: stands where a record has none; None for an error.

        Raises:
          IndexError: an index outside [0, len).
          SourceError: a record without a text, or that cannot be read.
        """
        indices = checked_indices(indices, len(self))
        return columns_of_texts(self._rows_of_texts(indices, names), indices, names, missing)

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the texts of each record, those among `names` at least."""
        starts = self._starts_of(indices)
        files = np.searchsorted(self._index.row_starts, indices, side="right") - 1
        last = indices + 1 == self._index.row_starts[files + 1]
        following = self._starts_of(np.where(last, indices, indices + 1))
        sizes = np.array([file.size for file in self._files], np.int64)
        stops = np.where(last, sizes[files], following)
        encoded, failures = self._storage.read(files, starts, stops - starts)
        for row, reason in failures.items():
            raise SourceError(f"record {indices[row]}: {reason}")
        read = FileReader()
        for row, (number, start) in enumerate(zip(files.tolist(), starts.tolist())):
            known = np.frombuffer(encoded.view(row), np.uint8)
            reader = BlockReader(
                read, self._files[number], _DESCRIBE_BYTES, known=known, start=start
            )
            yield self._texts(reader, start, start + known.size, names)

    def _starts_of(self, indices: np.ndarray) -> np.ndarray:
        """Return where records begin in their files, int64[n]."""
        offsets = self._columns["offset"][indices].astype(np.int64)
        return offsets - self._columns["lead"][indices].astype(np.int64)

    def _in_file(self, index: int) -> tuple[int, int]:
        """Return the number of the file of a record, and the record's number in it."""
        number = int(np.searchsorted(self._index.row_starts, index, side="right")) - 1
        return number, index - int(self._index.row_starts[number])

    def _place(self, index: int) -> str:
        number, place = self._in_file(index)
        return f"number {place} in {self._files[number].name!r}"

    def fingerprint(self) -> str:
        """Return a hash of the files' names and sizes, the images' places, and the features."""
        return self._index.fingerprint

    @abc.abstractmethod
    def _scan(
        self, reader: BlockReader, columns: ColumnBuilder, report: Callable[[int], None]
    ) -> dict[str, Any]:
        """Add every record of a file to `columns`; return what else the format keeps."""

    @abc.abstractmethod
    def _texts(
        self, reader: BlockReader, start: int, stop: int, names: Sequence[str]
    ) -> dict[str, Any]:
        """Return what the record in bytes [start, stop) has under `names`, text or other."""

    @abc.abstractmethod
    def _strings(self, reader: BlockReader, start: int) -> dict[str, Any]:
        """Return the names and texts of the record that begins at byte `start`."""
