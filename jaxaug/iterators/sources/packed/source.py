"""The part that all sources of packed files share: an index, a storage, reading by indexing."""

import abc
import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._checks import (
    check_amount,
    check_choice,
    check_count,
    check_positive_int,
    check_seconds,
    checked_indices,
)
from jaxaug._typing import PathLike, Values
from jaxaug.decode import Encoded, Sides
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import join_columns
from jaxaug.iterators.sources._base import OpenedSource, check_boxes_of, note_failures
from jaxaug.iterators.sources._findings import without_rows
from jaxaug.iterators.sources._items import TEXTS
from jaxaug.iterators.sources.packed.columns import (
    FORM,
    NULLS,
    ColumnBuilder,
    MaxLength,
    check_lengths_used,
    check_max_length,
    fill_absent,
    ragged_names,
    take_features,
)
from jaxaug.iterators.sources.packed.facts import Shared, facts_of, table_starts
from jaxaug.iterators.sources.protocol import Parts
from jaxaug.iterators.sources.stamps import data_stamps
from jaxaug.iterators.sources.storage.files import (
    Unpack,
    hide_secrets,
    is_remote,
    list_files,
    local_path,
    named_paths,
)
from jaxaug.iterators.sources.storage.index import (
    Format,
    ends_behind,
    index_files,
    open_index,
    trusted_files,
)
from jaxaug.iterators.sources.storage.index_file import write_extra
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader
from jaxaug.iterators.sources.storage.storage import choose_storage
from jaxaug.iterators.sources.storage.unpacked import open_blocks

FINDINGS = "bad_records"  # the name in an index of what a verification found
# Of one read of remote files, two or three of which are in memory; 4,096 of ImageNet have 450 MB.
_AHEAD_BYTES = 256 << 20
_DESCRIBE_BYTES = 64 << 10  # bytes read to describe one record


class PackedSource(OpenedSource):
    """Records inside a few large files; a format knows how to scan a file and name a record.

    Args:
      paths: as `TFRecord` and `WebDataset` say.
      index: the file of the index, or a folder; None for beside the data or the cache folder.
      trust_index: take the files as the index knows them, as `TFRecord` says.
      mmap: map the files (local ones only), or read them.
      boxes_of: the image that boxes and keypoints are of, as `TFRecord` says.
      nulls: what records without a number have, as `TFRecord` says.
      max_length: of columns of lists, as `TFRecord` says.
      timeout, retries: of reading, as `Staged` says.
      cache, cache_bytes: the folder of blocks that are kept, and its bound, as `TFRecord` says.
      packed: how files are unpacked that are compressed as a whole, and the most that is in each.
      options: what else the index depends on; JSON values.
    """

    _main = "image"  # the column of encoded bytes

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        options: dict[str, Any],
        *,
        index: PathLike | None,
        trust_index: bool,
        boxes_of: str,
        nulls: str,
        max_length: MaxLength,
        mmap: bool,
        timeout: float,
        retries: int,
        cache: PathLike | None,
        cache_bytes: float,
        packed: tuple[Unpack, Sequence[int]] | None = None,
    ):
        check_boxes_of(boxes_of)
        check_choice("nulls", nulls, NULLS)
        check_max_length(max_length)
        if max_length is not None:
            length = dict(max_length) if isinstance(max_length, Mapping) else max_length
            options = options | {"max_length": length}
        check_seconds("timeout", timeout)
        check_count("retries", retries)
        check_amount("cache_bytes", cache_bytes, "bytes")
        self._options = options
        self._trusting = True
        self._boxes_of = boxes_of
        self._nulls = nulls
        self._index_place = None if index is None else _index_place(index)
        self._trust_index = trust_index
        if trust_index:
            self._files = trusted_files(named_paths(paths), self._index_place)
        else:
            self._files = list_files(paths)
        if packed is not None:
            unpack, sizes = packed
            pairs = zip(self._files, sizes)
            self._files = [file._replace(size=size, unpack=unpack) for file, size in pairs]
        folder = None if cache is None else local_path(cache)
        self._reading: dict[str, Any] = {"mapped": mmap, "timeout": timeout, "retries": retries}
        self._reading |= {"cache": folder, "cache_bytes": cache_bytes}
        self._open_as_given()

    def _open(self) -> None:
        self._facts = facts_of(self._main)
        made = not self._trust_index
        self._index = open_index(self._files, self._format(), self._index_place, made=made)
        self._storage = choose_storage(self._files, **self._reading)
        self._sizes = np.array([file.size for file in self._files], np.uint64)
        self._columns: dict[str, Any] = dict(self._index.columns)
        if FORM in self._columns:
            codes = self._columns.pop(FORM)
            for name, values in zip(self._facts.shared, self._index.forms.T):
                self._columns[name] = Shared(codes, values)
        self._table_starts = table_starts(self._columns)
        self._features = fill_absent(self._columns, self._nulls, self._place)
        self._ragged = ragged_names(self._columns)
        check_lengths_used(self._options.get("max_length"), self._features)
        found = self._index.extra.get(FINDINGS, {}) if self._trusting else {}
        self._bad = {int(index): str(reason) for index, reason in found.items()}
        # The errors of records that could not be read when they were last asked for.
        self._failures: dict[int, str] = {}

    @classmethod
    def index_shards(
        cls,
        paths: PathLike | Sequence[PathLike],
        part: int = 0,
        parts: int = 1,
        **options: Any,
    ) -> tuple[int, int]:
        """Make the index of each file of a share, which whoever opens all files finds and joins.

        Any number of processes may do so side by side; one that was stopped goes on where it was.
        Files are found again by a source with the same `options`, and the same `index` or none.

        Args:
          paths: all files, as the source takes them.
          part, parts: take every `parts`-th file from number `part` on.
          options: those of the source.

        Returns:
          The number of files of the share, and of those that had an index.

        Raises:
          SourceError: a damaged file, or an index can be written nowhere.

        Example:
          One task of 64, each of which takes every 64th shard:

          >>> shards = "gs://bucket/train-{00000..09999}.tar"
          >>> WebDataset.index_shards(shards, 3, 64, index="index/")  # doctest: +SKIP
          (157, 0)
        """
        check_count("part", part)
        check_positive_int("parts", parts)
        if part >= parts:
            raise ValueError(f"`part` must be less than `parts`, got {part} of {parts}.")
        # A source that opens nothing: its constructor knows what the options mean.
        unopened = type(cls.__name__, (cls,), {"_open": lambda self: None})
        source = unopened(paths, **options)
        return index_files(source._files, source._format(), source._index_place, part, parts)

    def _format(self) -> Format:
        return Format(type(self).__name__, self._options, self._scan, facts_of(self._main))

    def _check_found(self, names: Mapping[str, str] | None, label: str | None) -> None:
        """Raise SourceError where no record has a wanted feature."""
        wanted = {} if names is None else names
        unknown = [key for key in wanted if key != label and wanted[key] not in self._features]
        if unknown:
            found = f"found were {sorted(self._features)}"
            raise SourceError(
                f"`features`: no record has numbers called {sorted(unknown)}; {found}. {TEXTS}."
            )

    def __len__(self) -> int:
        return int(self._index.row_starts[-1])

    def __repr__(self) -> str:
        masks = " with masks" if "mask_offset" in self._columns else ""
        what = f"{len(self)} {self._main}s{masks} in {len(self._files)} files"
        return f"{type(self).__name__}({what}, {sorted(self._features)})"

    @property
    def index_path(self) -> str:
        """The file, or its URL, that holds the index."""
        return hide_secrets(self._index.path)

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read the images, their masks, and their features; what cannot be read has length 0.

        Raises:
          IndexError: an index outside [0, len).
        """
        return self.read_parts(indices, {})

    def read_parts(self, indices: np.ndarray, parts: Mapping[str, Parts]) -> dict[str, Values]:
        """Read records as `read` does, of videos the bytes that are needed, see `Partial`."""
        indices = checked_indices(indices, len(self))
        count = len(indices)
        rows, offsets, lengths = self._ranges(indices)
        begins = None
        if self._main in parts:
            ranges = parts[self._main](self.headers(indices)[self._main], None)
            begins, ends = np.minimum(ranges, lengths[:count].astype(np.int64)[:, None]).T
            offsets[:count] += begins.astype(np.uint64)
            lengths[:count] = ends - begins

        encoded = self._read_encoded(indices, rows, offsets, lengths)
        found: dict[str, Values] = {self._main: encoded.take(slice(count))._replace(begins=begins)}
        if rows.size > count:
            found["mask"] = encoded.take(slice(count, None))
        columns = take_features(self._features, self._ragged, indices)
        return join_columns(found, columns)

    def _read_encoded(
        self, indices: np.ndarray, rows: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> Encoded:
        """Read several encoded values of records; what cannot be read has length 0.

        Args:
          indices: int64[n], the records.
          rows: int64[k], the row of `indices` of each value.
          offsets, lengths: int64[k], their places in the file of the record.

        Raises:
          SourceError: the index has places outside of their files.
        """
        files = self._files_of(indices)[rows]
        if ends_behind(self._sizes[files], offsets, lengths).any():
            raise SourceError(
                f"the index {self.index_path!r} has records outside of their files: remove it, and "
                "it is made anew."
            )
        encoded, failures = self._storage.read(
            files, offsets.astype(np.int64), lengths.astype(np.int64)
        )
        reasons: dict[int, str] = {}
        for place, reason in sorted(failures.items()):
            reasons.setdefault(int(rows[place]), reason)
        note_failures(self._failures, indices, reasons)
        return without_rows(encoded, [*self._bad], indices[rows]) if self._bad else encoded

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
        write_extra(self._index.path, FINDINGS, {str(index): findings[index] for index in findings})
        return self.index_path

    @property
    def records_ahead(self) -> int:
        """The records of one read ahead of their batches; 0 unless all files are remote."""
        if not all(is_remote(file.path) for file in self._files):
            return 0
        total = sum(file.size for file in self._files)
        return max(1, _AHEAD_BYTES * len(self) // total)

    def hold(self, indices: np.ndarray, keeper: object) -> None:
        """Read records whole that will be wanted, see `Far`."""
        rows, offsets, lengths = self._ranges(indices)
        files = self._files_of(indices)[rows]
        if not ends_behind(self._sizes[files], offsets, lengths).any():  # which `read` tells
            places = (files, offsets.astype(np.int64), lengths.astype(np.int64))
            self._storage.hold(*places, keeper)

    def _ranges(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row of each encoded value of records, and its offset and length.

        Masks come behind all images, in one read with them, as they mostly lie beside them.
        """
        rows = np.arange(len(indices))
        masked = "mask_offset" in self._columns
        names = [("offset", "mask_offset")[: 1 + masked], ("length", "mask_length")[: 1 + masked]]
        offsets, lengths = (
            np.concatenate([self._columns[name][indices] for name in each]).astype(np.uint64)
            for each in names
        )
        return np.tile(rows, 1 + masked), offsets, lengths

    @property
    def traffic(self) -> dict[str, int]:
        """What was asked of servers, see `Far`."""
        return self._storage.traffic

    def headers(self, indices: np.ndarray) -> dict[str, Any]:
        """Return what the index knows of the images or videos."""
        return {self._main: self._facts.stored(self._columns, self._table_starts, indices)}

    def summary(self) -> dict[str, Sides]:
        """Return how many images have which sides, as the index knows."""
        return {"image": self._index.sides} if self._main == "image" else {}

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
            found |= self._strings(open_blocks(FileReader(), file, block=_DESCRIBE_BYTES), start)
            return found | ({"error": self._bad[index]} if index in self._bad else {})
        except SourceError as error:
            return found | {"error": str(error)}

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the texts of each record, those among `names` at least."""
        starts = self._starts_of(indices)
        files = self._files_of(indices)
        last = indices + 1 == self._index.row_starts[files + 1]
        following = self._starts_of(np.where(last, indices, indices + 1))
        stops = np.where(last, self._sizes[files].astype(np.int64), following)
        begins, ends = _around(starts, stops, self._encoded_at(indices))
        pieces = begins.shape[1]
        encoded, failures = self._storage.read(
            np.repeat(files, pieces), begins.reshape(-1), (ends - begins).reshape(-1)
        )
        for place, reason in failures.items():
            raise SourceError(f"record {indices[place // pieces]}: {reason}")
        read = FileReader()
        for row, (number, start, stop) in enumerate(zip(files, starts.tolist(), stops.tolist())):
            known = np.zeros(stop - start, np.uint8)
            for piece, (begin, end) in enumerate(zip(begins[row] - start, ends[row] - start)):
                known[begin:end] = np.frombuffer(encoded.view(row * pieces + piece), np.uint8)
            reader = BlockReader(
                read, self._files[number], _DESCRIBE_BYTES, known=known, start=start
            )
            yield self._texts(reader, start, stop, names)

    def _encoded_at(self, indices: np.ndarray) -> np.ndarray:
        """Return offset and length of the k encoded values of each record, int64[n, k, 2]."""
        masks = ["mask_"] if "mask_offset" in self._columns else []
        names = [f"{each}{end}" for each in ["", *masks] for end in ("offset", "length")]
        columns = [self._columns[name][indices].astype(np.int64) for name in names]
        return np.stack(columns, axis=-1).reshape(len(indices), 1 + len(masks), 2)

    def _starts_of(self, indices: np.ndarray) -> np.ndarray:
        """Return where records begin in their files, int64[n]."""
        offsets = self._columns["offset"][indices].astype(np.int64)
        return offsets - self._columns["lead"][indices].astype(np.int64)

    def _files_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the numbers of the files of records, in the shape of `indices`."""
        return np.searchsorted(self._index.row_starts, indices, side="right") - 1

    def _in_file(self, index: int) -> tuple[int, int]:
        """Return the number of the file of a record, and the record's number in it."""
        number = int(self._files_of(np.array(index)))
        return number, index - int(self._index.row_starts[number])

    def _place(self, index: int) -> str:
        number, place = self._in_file(index)
        return f"number {place} in {self._files[number].name!r}"

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return stamps of sizes and times of the records' files as they were opened."""
        return data_stamps(self._files)[self._files_of(indices)]

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
        """Return what the record in bytes [start, stop) has under `names`, text or other.

        The reader has zeros for the bytes of its encoded values.
        """

    @abc.abstractmethod
    def _strings(self, reader: BlockReader, start: int) -> dict[str, Any]:
        """Return the names and texts of the record that begins at byte `start`."""


def _around(
    starts: np.ndarray, stops: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return begins and ends of what records have around some places, int64[n, k + 1] each.

    Args:
      starts, stops: int64[n], of the records.
      places: int64[n, k, 2], offsets and lengths that do not overlap.
    """
    inside = np.cumsum(places, axis=2).reshape(len(places), 2 * places.shape[1])
    edges = np.concatenate([starts[:, None], inside, stops[:, None]], axis=1)
    edges = np.sort(np.clip(edges, starts[:, None], stops[:, None]), axis=1)
    return edges[:, ::2], edges[:, 1::2]


def _index_place(index: PathLike) -> str:
    """Return the path of the file or folder of an index; a folder ends with "/" or is there."""
    name = os.fspath(index).removeprefix("file://")  # fsspec would show readers half of a file
    if is_remote(name):
        return name
    place = local_path(name)
    if name.endswith("/"):
        os.makedirs(place, exist_ok=True)
    return place
