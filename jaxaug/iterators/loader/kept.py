"""Records that are kept once they are decoded: which there are, and which must still be read."""

import abc
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaug.iterators.loader.bad_records import MAX_REPLACEMENT_TRIES, BadRecord
from jaxaug.iterators.loader.decode import DecodedBatch
from jaxaug.iterators.loader.reader import PADDING, AskedBatch, ReadBatch, RecordReader
from jaxaug.iterators.loader.rows import RowSchema

_UNKNOWN, KEPT, _BAD = range(3)  # what is known of a record


class KeptRows(NamedTuple):
    """What is known of the rows of a batch before it is read.

    Attributes:
      indices: int64[r], their records; in the places of known bad ones their replacements.
      missing: bool[r], the rows that must be read.
      bad: what is known of bad records in other rows.
    """

    indices: np.ndarray
    missing: np.ndarray
    bad: list[BadRecord]


class RecordStore(abc.ABC):
    """The decoded records of a source; a subclass says where they lie.

    Args:
      rows: the form of the rows.
      length: of the source, in records.

    Attributes:
      nbytes: of all records, wherever they lie.
    """

    nbytes: int

    def __init__(self, rows: RowSchema, length: int):
        self._rows = rows
        self._state = np.full(length, _UNKNOWN, np.uint8)
        self._bad: dict[int, BadRecord] = {}

    @property
    def count(self) -> int:
        """The number of records that are kept, as far as they were asked for."""
        return int(np.count_nonzero(self._state == KEPT))

    def find(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bool[...] twice: the records that are kept, and those that are known to be bad."""
        state = np.where(indices == PADDING, _UNKNOWN, self._state[indices])
        return state == KEPT, state == _BAD

    def bad_record(self, index: int) -> BadRecord:
        """Return what is known of a bad record."""
        return self._bad[index]

    def put(self, decoded: DecodedBatch) -> None:
        """Keep the valid rows of a batch, and the names of the bad ones; release its memory."""
        readers: Any = ()
        try:
            rows = self._rows.arrays(decoded.read, decoded.columns, decoded.valid)
            indices = decoded.read.indices
            readers = self._write(rows, np.where(decoded.valid, indices, PADDING))
        finally:
            decoded.release(readers)
        self._state[indices[decoded.valid]] = KEPT
        for record in decoded.bad:
            self._bad[record["index"]] = record
            self._state[record["index"]] = _BAD

    @abc.abstractmethod
    def take(self, read: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> Any:
        """Return rows of the records `indices` as a compiled batch takes them.

        They are arrays on the devices, and packed rows.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Free the memory."""

    @abc.abstractmethod
    def _write(self, rows: dict[str, Any], indices: np.ndarray) -> Any:
        """Keep rows but those of `PADDING`; return arrays whose computation reads them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeepingReader(RecordReader):
    """Reads those records of a batch that are not kept.

    Attributes:
      store: of the records.
      replaces: the next good record of the order takes the place of a bad one.
    """

    store: RecordStore
    replaces: bool

    def _without_kept(self, asked: AskedBatch) -> AskedBatch:
        if isinstance(asked.indices, Exception):
            return asked
        kept = self._look_up(asked.span.epoch, asked.positions, asked.indices)
        read = np.where(kept.missing, kept.indices, PADDING)
        return asked._replace(indices=read, kept=kept)

    def _look_up(self, epoch: int, positions: np.ndarray, indices: np.ndarray) -> KeptRows:
        kept, bad = self.store.find(indices)
        names = indices
        if self.replaces and bad.any():
            others = self._replacements(epoch, positions[bad])
            indices = indices.copy()
            indices[bad] = np.where(others == PADDING, indices[bad], others)
            bad[bad] = others != PADDING  # else it is read again, and what follows it
        missing = (indices != PADDING) & ~kept & ~bad
        return KeptRows(indices, missing, [self.store.bad_record(i) for i in names[bad].tolist()])

    def _replacements(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the next good record behind each position; `PADDING` where that is not known."""
        behind = np.arange(1, MAX_REPLACEMENT_TRIES + 1)
        places = (positions[:, None] + behind) % self.length
        records = self._find_records(epoch, places.reshape(-1)).reshape(places.shape)
        kept, bad = self.store.find(records)
        rows = np.arange(len(positions))
        first = np.argmin(bad, axis=1)
        return np.where(kept[rows, first], records[rows, first], PADDING)


def check_space(keep: str, size: int, length: int, free: int | None) -> None:
    """Raise MemoryError unless `size` bytes are free for `length` records."""
    if free is None or size <= free:
        return
    raise MemoryError(
        f"`keep`={keep!r} needs {size:,} bytes{' on each device' if keep == 'device' else ''}, "
        f"{size // length:,} for each of {length:,} records, and {free:,} are free: give `decode` "
        "a smaller canvas, the Loader fewer records (`Subset`), or leave `keep` out."
    )


def free_host_bytes() -> int | None:
    """Return the bytes of memory that the host has free; None where nothing tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = dict(line.split()[:2] for line in lines)["MemAvailable:"]
    return int(kilobytes) * 1024
