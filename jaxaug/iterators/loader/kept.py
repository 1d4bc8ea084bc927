"""Records that are kept once they are decoded: which there are, and which must still be read."""

import abc
import dataclasses
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug.iterators.loader.bad_records import MAX_REPLACEMENT_TRIES, BadRecord
from jaxaug.iterators.loader.compile import RowGather
from jaxaug.iterators.loader.decode import DecodedBatch
from jaxaug.iterators.loader.reader import (
    NOTHING,
    PADDING,
    BatchPlan,
    ReadBatch,
    ReadTogether,
    RecordReader,
)
from jaxaug.iterators.loader.rows import RowSchema
from jaxaug.iterators.loader.state import BatchSpan, Cursor
from jaxaug.sharding._assemble import RowLayout

_UNKNOWN, KEPT, _BAD = range(3)  # what is known of a record

# Bytes of kept rows that one call takes on a device. Python takes 0.5 ms for a call, in which an
# H200 augments 1,000 images of 64 x 64; the memory of all its batches is taken at once.
_RUN_BYTES = 2**26
_MAX_RUN = 8


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
      layout: the places of a batch's rows.

    Attributes:
      nbytes: of all records, wherever they lie.
      run: how many batches of kept records one call makes.
      gather: how that call finds its rows by itself; None where it is given them.
      is_light: what a call takes is on the device, or as good as there.
    """

    nbytes: int
    gather: RowGather | None = None
    is_light: bool = False

    def __init__(self, rows: RowSchema, length: int, layout: RowLayout):
        self.run = batches_a_call(rows, layout)
        self._rows = rows
        self._layout = layout
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
            rows = self._rows.arrays(decoded)
            indices = decoded.read.indices
            readers = self.write(rows, np.where(decoded.valid, indices, PADDING))
        finally:
            decoded.release(readers)
        self._state[indices[decoded.valid]] = KEPT
        for record in decoded.bad:
            self._bad[record["index"]] = record
            self._state[record["index"]] = _BAD

    @abc.abstractmethod
    def take(self, read: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> Any:
        """Return rows of the records `indices` as a compiled batch, or run of them, takes them.

        They are arrays on the devices, and packed rows.
        """

    def has_for_run(self, indices: np.ndarray) -> np.ndarray:
        """Return bool[...], the records that rows of a run may have."""
        return self.find(indices)[0]

    def launch_each(self, read: ReadBatch, call: Callable[..., Any]) -> Iterator[Any]:
        """Yield what a compiled call gives of kept records int64[calls, n], call after call.

        It takes what `take` returns, or with a `gather` the arrays of that one.
        """
        for positions, indices in zip(read.positions, read.indices):
            part = read._replace(positions=positions, indices=indices)
            yield call(*self.take(part, indices, np.ones(len(indices), bool)))

    @abc.abstractmethod
    def write(self, rows: dict[str, Any], indices: np.ndarray) -> Any:
        """Write rows but those of `PADDING`; return arrays whose computation reads them."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free the memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeepingReader(RecordReader):
    """Reads those records of a batch that are not kept.

    Attributes:
      store: of the records.
      replaces: the next good record of the order takes the place of a bad one.
    """

    store: RecordStore
    replaces: bool

    def _groups(
        self, plan: BatchPlan, cursor: Cursor, first: int, count: int
    ) -> Iterator[list[ReadBatch]]:
        for group in super()._groups(plan, cursor, first, count):
            yield group
            tail = self._tail(plan, group[-1].span)
            if tail is not None:
                yield [tail]

    def _tail(self, plan: BatchPlan, last: BatchSpan) -> ReadBatch | None:
        """Return what an epoch drops behind a batch, if the next epoch has new records of it.

        Else batches of that epoch would have to wait for them, one after the other.
        """
        after, start = last.after, last.start + last.rows
        rows = self.length - start
        ends = plan.ends_before(after.epoch)
        if after.epoch == last.epoch or not rows or ends or self.with_replacement:
            return None
        tail, later = (
            self._found(plan, [BatchSpan(epoch, start, rows, after)])[0]
            for epoch in (last.epoch, after.epoch)
        )
        kept, bad = self.store.find(tail.indices)
        known = kept | bad | np.isin(tail.indices, later.indices)  # which it drops, too, or padding
        failed = tail.error is not None or later.error is not None
        return None if failed or known.all() else tail._replace(dropped=True)

    def _read_each(self, groups: Iterable[list[ReadBatch]]) -> Generator[ReadBatch, None, None]:
        for group in groups:
            has_all = self._have_all(group)
            while group:
                count = len(group) if has_all.all() else int(has_all.argmin())
                count -= count % self.store.run
                if count:
                    yield _joined(group[:count])
                else:
                    yield self._read_batch(self._without_kept(group[0]))
                group = group[max(count, 1) :]
                has_all = has_all[max(count, 1) :]

    def _read_together(self, together: ReadTogether) -> list[ReadBatch]:
        group = [self._without_kept(batch) for batch in together.group]
        if all(batch.is_kept for batch in group):
            return list(self._read_each([together.group]))
        return super()._read_together(together._replace(group=group, waiting=NOTHING))

    def _have_all(self, group: list[ReadBatch]) -> np.ndarray:
        """Return the batches that calls can make at once, as all rows are kept: bool[k]."""
        if any(batch.error is not None or batch.dropped for batch in group):
            return np.zeros(len(group), bool)
        has = self.store.has_for_run(np.stack([batch.indices for batch in group]))
        return np.logical_and.reduce(has, axis=1)

    def _without_kept(self, batch: ReadBatch) -> ReadBatch:
        """Return a batch with padding in the rows that need not be read."""
        if batch.error is not None:
            return batch
        kept = self._look_up(batch.span.epoch, batch.positions, batch.indices)
        read = np.where(kept.missing, kept.indices, PADDING)
        return batch._replace(indices=read, kept=kept)

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


def _joined(group: list[ReadBatch]) -> ReadBatch:
    """Return batches of one epoch, all rows of which are kept."""
    positions = np.stack([batch.positions for batch in group])
    indices = np.stack([batch.indices for batch in group])
    run = tuple(batch.span.after for batch in group)
    return ReadBatch(group[-1].span, positions, indices, run=run)


def batches_a_call(rows: RowSchema, layout: RowLayout) -> int:
    """Return how many batches of kept records one call makes: several where they are small.

    On CPUs a batch takes far longer than what Python does for it.

    Args:
      rows: the form of the rows.
      layout: the places of a batch's rows.
    """
    if layout.devices[0].platform == "cpu":
        return 1
    leaves = jax.tree.leaves(rows.shapes(len(layout.rows)))
    size = sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in leaves)
    return min(max(_RUN_BYTES // (size // len(layout.devices)), 1), _MAX_RUN)


def check_space(
    keep: str,
    size: int,
    length: int,
    free: int | None,
    *,
    where: str = "",
    share: float | None = None,
) -> None:
    """Raise MemoryError unless `size` bytes are free for `length` records.

    Args:
      keep: what the Loader was given.
      size, length: of the records.
      free: bytes; None where nothing tells.
      where: follows the number of bytes, such as " on each device".
      share: of all records, where a smaller one may fit.
    """
    if free is None or size <= free:
        return
    each = size // length
    percent = 0 if share is None else int(90 * share * free / size)  # other arrays want some
    smaller = f" keep='device:{percent / 100}' keeps that share there, the rest on the host."
    raise MemoryError(
        f"`keep`={keep!r} needs {size:,} bytes{where}, "
        f"{each:,} for each of {length:,} records, and {free:,} are free: give `decode` "
        "a smaller canvas, the Loader fewer records (`Subset`), or leave `keep` out."
        f"{smaller if percent else ''}"
    )


def free_host_bytes() -> int | None:
    """Return the bytes of memory that the host has free; None where nothing tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = dict(line.split()[:2] for line in lines)["MemAvailable:"]
    return int(kilobytes) * 1024
