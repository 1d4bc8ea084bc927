"""Reading a stream: a process keeps its rows, and a resume skips what was delivered."""

import dataclasses
import itertools
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import numpy as np

from jaxaug._typing import Values
from jaxaug.iterators.loader.columns import Columns, check_forms, stack_columns, without_bytes
from jaxaug.iterators.loader.reader import (
    MAX_READ_RECORDS,
    PADDING,
    BatchPlan,
    Known,
    ReadBatch,
    Reader,
)
from jaxaug.iterators.loader.state import BatchSpan, Cursor
from jaxaug.iterators.sources.protocol import Parted, Stream

_MAX_RECORDS = 2**31  # of an epoch: their numbers are int32 in a batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamReader(Reader):
    """Reads a stream in its own order."""

    source: Stream

    @property
    def sampler_name(self) -> str:
        return "Stream"

    def read_first(self) -> Columns:
        first = next(self.source.iterate(), None)
        if first is None:
            raise ValueError("`source` must yield at least one record, got an empty stream.")
        return stack_columns([first], np.zeros(1, np.int64))

    def read_singly(self, name: str, count: int) -> Iterator[Values]:
        return self._read_parts(name, count, 1)

    def read_sample(
        self, name: str, count: int, seed: int, known: Known | None = None
    ) -> Iterator[Values]:
        del seed, known  # the first records are all that can be had
        return self._read_parts(name, count, MAX_READ_RECORDS)

    def _read_parts(self, name: str, count: int, size: int) -> Iterator[Values]:
        records = itertools.islice(self.source.iterate(), count)
        while part := [{name: record[name]} for record in itertools.islice(records, size)]:
            yield stack_columns(part, np.arange(len(part)))[name]

    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        for epoch in itertools.count(cursor.epoch):
            if plan.ends_before(epoch):
                return

            start = cursor.position if epoch == cursor.epoch else 0
            count = yield from self._read_epoch(plan, Cursor(epoch, start))
            if start == 0 and count < plan.min_records:
                raise ValueError(
                    f"`source` must yield at least {plan.min_records} records an epoch, a batch, "
                    f"got {count}: take a smaller `batch_size`, or last_batch='pad'; an iterable "
                    "that can be run through only once must be made anew."
                )

    def _read_epoch(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, int]:
        """Yield the rest of an epoch; return how many records it had."""
        epoch, position = cursor
        records = self._records(plan, cursor)
        chunk, error = _take(records, plan.batch_size)
        while error is None and len(chunk) >= plan.min_records:
            started = time.perf_counter()
            # One chunk ahead, to know which batch is the last.
            following, error = _take(records, plan.batch_size)
            last = error is None and len(following) < plan.min_records
            after = Cursor(epoch + 1, 0) if last else Cursor(epoch, position + len(chunk))
            batch = self._make_batch(chunk, plan, BatchSpan(epoch, position, len(chunk), after))
            yield batch._replace(seconds=time.perf_counter() - started)

            position += len(chunk)
            chunk = following

        if error is not None:
            raise error
        return position + len(chunk)

    def _records(self, plan: BatchPlan, cursor: Cursor) -> Iterator:
        """Return the records from a position on, None for those of other processes alone."""
        if not isinstance(self.source, Parted):
            return itertools.islice(self.source.iterate(), cursor.position, None)
        wanted = np.zeros(plan.batch_size, bool)
        wanted[plan.local] = True
        wanted[0] |= not plan.drop  # padding rows are copies of it
        return self.source.iterate_from(cursor.epoch, cursor.position, wanted)

    def _make_batch(self, chunk: list, plan: BatchPlan, span: BatchSpan) -> ReadBatch:
        """Return this process's rows of a chunk; an exception, for the consumer to meet there."""
        positions = np.where(plan.local < span.rows, span.start + plan.local, PADDING)
        padding = positions == PADDING
        rows = np.where(padding, 0, plan.local).tolist()
        indices = np.where(padding, span.start, positions)
        try:
            if span.start + span.rows > _MAX_RECORDS:
                raise ValueError(
                    '`source` must yield at most 2^31 records an epoch, as their "index" is int32, '
                    "got more: let it end earlier, and the next epoch begins."
                )
            columns = stack_columns([chunk[row] for row in rows], indices)
            if self.forms is not None:
                check_forms(columns, self.forms)
        except Exception as error:
            return ReadBatch(span, positions, positions, error=error)

        columns = {name: without_bytes(values, padding) for name, values in columns.items()}
        return ReadBatch(span, positions, positions, columns)


def _take(records: Iterator, count: int) -> tuple[list, Exception | None]:
    """Return the next records, and the exception that cut them short."""
    taken: list = []
    try:
        for record in itertools.islice(records, count):
            taken.append(_own(record))
    except Exception as error:
        return taken, error
    return taken, None


def _own(record: Any) -> Any:
    """Return a record with values of its own: its iterator may write into them again."""
    if not isinstance(record, Mapping):
        return record
    return {name: _copy(value) for name, value in record.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return np.array(value) if hasattr(value, "__array__") else value
