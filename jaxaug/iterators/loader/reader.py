"""Reading: from a source to the columns of one batch after another."""

import abc
import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import Values
from jaxaug.decode import Column, ColumnDecoder
from jaxaug.errors import DecodeError
from jaxaug.iterators.loader.columns import (
    Columns,
    Forms,
    check_forms,
    narrow_columns,
    take_rows,
    without_bytes,
)
from jaxaug.iterators.loader.keys import decode_keys
from jaxaug.iterators.loader.named_error import named_error
from jaxaug.iterators.loader.read_ahead import Keeper, read_ahead, rest_of_runs
from jaxaug.iterators.loader.state import BatchSpan, Cursor, next_span
from jaxaug.iterators.samplers.sampler import Sampler, find_records, permute, sampler_name
from jaxaug.iterators.sources.protocol import Far, Indexed, Partial, Source, Summarized

PADDING = -1  # the index of a row without a record
# Positions that a sampler is asked for at once, those of the next batches, at least of one: its
# numpy calls for a single batch would take two to four times as long for each position.
MAX_POSITIONS = 8192
_WAITING = 8  # times what is read at once: what runs may hold, half of which waits
_CHUNK_RECORDS = 1 << 18  # of an index, looked at at a time
MAX_READ_RECORDS = 64  # read at once to look at their headers: photographs have megabytes each
Known = Callable[[Any], np.ndarray]  # of `Column.sample`


class BatchPlan(NamedTuple):
    """The cut of epochs into batches.

    Attributes:
      batch_size: rows of the global batch.
      local: int64[r], the rows that this process decodes, each in [0, batch_size).
      drop: the tail of an epoch is dropped instead of padded.
      epochs: how many epochs there are; None for no end.
    """

    batch_size: int
    local: np.ndarray
    drop: bool
    epochs: int | None

    @property
    def min_records(self) -> int:
        """The fewest records that make a batch."""
        return self.batch_size if self.drop else 1

    def ends_before(self, epoch: int) -> bool:
        """Return True if `epoch` is not among the epochs."""
        return self.epochs is not None and epoch >= self.epochs


class ReadBatch(NamedTuple):
    """The local rows of one batch: which they are, then what was read, or why it could not be.

    Attributes:
      span: the batch; of a run the last of its batches.
      positions: int64[r], the positions of the rows in the epoch.
      indices: int64[r], the records; padding rows have `PADDING` and no bytes.
      columns: their values by column; none before they are read.
      stored: by column, what the source's index has stored of them.
      seconds: how long reading took.
      error: why there are no columns; None where there are.
      kept: what is known of the rows, of which the others are padding; see `kept`.
      run: the cursors behind batches all rows of which are kept: positions and records are
        int64[k, r].
      bound: of the bucket of the batch, the same on all processes; None where all have one form.
      dropped: it is the tail of an epoch, which is kept and given to nobody.
    """

    span: BatchSpan
    positions: np.ndarray
    indices: np.ndarray
    columns: Mapping[str, Values] = {}
    stored: Mapping[str, Any] = {}
    seconds: float = 0.0
    error: Exception | None = None
    kept: Any = None
    run: tuple[Cursor, ...] = ()
    bound: float | None = None
    dropped: bool = False

    @property
    def is_kept(self) -> bool:
        """True if all rows are kept, so that there is nothing to read or to decode."""
        return bool(self.run) or (self.kept is not None and not self.kept.missing.any())

    @property
    def cursors(self) -> tuple[Cursor, ...]:
        """The cursor behind each batch that the consumer gets."""
        if self.dropped:
            return ()
        return self.run or (self.span.after,)


class ReadTogether(NamedTuple):
    """Batches that are read in one go.

    Attributes:
      group: the batches, without columns.
      waiting: int64[n], the positions whose records come with theirs, and wait for later batches.
      keeper: what they wait for.
    """

    group: list[ReadBatch]
    waiting: np.ndarray
    keeper: Keeper


NOTHING = np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader(abc.ABC):
    """Reads the batches of a source.

    The defaults are those of a stream. Nothing here refers to the user's functions.

    Attributes:
      source: the records.
      forms: those that the columns of all records must have; None while the first is looked at.
      copies: names of columns that are another one once more, as the sound of a video is.
    """

    source: Any
    forms: Forms | None = None
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    @abc.abstractmethod
    def sampler_name(self) -> str:
        """The name by which a state knows the order of the records."""

    @property
    def length(self) -> int | None:
        """Positions in an epoch; None if that shows at its end only."""
        return None

    @property
    def with_replacement(self) -> bool:
        """True if an epoch may hold a record twice."""
        return False

    @property
    def bounded(self) -> str | None:
        """The column that has another form in each bucket of the order; None for none."""
        return None

    @property
    def bounds(self) -> tuple[float, ...]:
        """The bounds of those buckets."""
        return ()

    @property
    def wide_index(self) -> bool:
        """True if the numbers of the records need more than 31 bits."""
        return False

    @abc.abstractmethod
    def read_first(self) -> Columns:
        """Return the columns of the first record."""

    @abc.abstractmethod
    def read_singly(self, name: str, count: int) -> Iterator[Values]:
        """Yield a column of the first `count` records, one at a time."""

    @abc.abstractmethod
    def read_sample(
        self, name: str, count: int, seed: int, known: Known | None = None
    ) -> Iterator[Values]:
        """Yield a column of up to `count` records, see `Column.sample`."""

    @abc.abstractmethod
    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        """Yield the batches from `cursor` on."""

    def read_rows(self, indices: np.ndarray, draws: np.ndarray | None = None) -> Columns:
        """Return records int64[n]; rows with index `PADDING` are those of any other.

        Args:
          indices: the records.
          draws: uint64[n], what their decoders will draw from, where these may need less than all
            bytes; None for whole records.
        """
        raise TypeError(f"{self.source!r} has no random access.")

    def read_positions(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, Columns]:
        """Return the numbers int64[n] of the records at positions of an epoch, and the records."""
        raise TypeError(f"{self.source!r} has no random access.")

    def check_record(self, index: int, position: int | None) -> tuple[int, int]:
        """Return a record's number and position in the form of ints.

        Raises:
          TypeError: the source has no random access.
          IndexError: no such record.
          ValueError: the position is missing.
        """
        raise TypeError("`sample` needs a source with random access, got a stream: take a batch.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordReader(Reader):
    """Reads a source with random access in the order of a sampler.

    Attributes:
      sampler: the order of the records.
      parts: the decoders that may need less than all bytes of a value, by column.
      seed: of what decoders draw.
    """

    source: Source
    sampler: Sampler
    parts: Mapping[str, ColumnDecoder] = dataclasses.field(default_factory=dict)
    seed: int = 0

    @property
    def sampler_name(self) -> str:
        return sampler_name(self.sampler)

    @property
    def length(self) -> int:
        return self.sampler.length

    @property
    def with_replacement(self) -> bool:
        return self.sampler.with_replacement

    @property
    def bounded(self) -> str | None:
        return getattr(self.sampler, "of", None)

    @property
    def bounds(self) -> tuple[float, ...]:
        sampler: Any = self.sampler
        return () if self.bounded is None else tuple(map(float, sampler.bounds))

    def _bound(self, span: BatchSpan) -> float | None:
        """Return the bound of a batch, of two buckets where it was resumed inside of one."""
        if self.bounded is None:
            return None
        sampler: Any = self.sampler
        ends = (span.start, span.start + span.rows - 1)
        return max(float(sampler.bound(span.epoch, place)) for place in ends)

    @property
    def wide_index(self) -> bool:
        return len(self.source) >= 2**31

    def read_first(self) -> Columns:
        return self.read_rows(np.zeros(1, np.int64))

    def read_singly(self, name: str, count: int) -> Iterator[Values]:
        for index in range(min(len(self.source), count)):
            yield self._read_column(name, np.array([index]))

    def read_sample(
        self, name: str, count: int, seed: int, known: Known | None = None
    ) -> Iterator[Values]:
        positions = np.arange(min(count, len(self.source)))
        chosen = np.sort(permute(seed, 0, positions, len(self.source)))
        for first in range(0, len(chosen), MAX_READ_RECORDS):
            rows = chosen[first : first + MAX_READ_RECORDS]
            if known is not None and isinstance(self.source, Indexed):
                stored = self.source.headers(rows).get(name)
                rows = rows if stored is None else rows[~known(stored)]
            if len(rows):
                yield self._read_column(name, rows)

    def _read_column(self, name: str, indices: np.ndarray) -> Values:
        """Return one column of records int64[n], narrowed as in a batch."""
        found = self.source.read(indices)[self.copies.get(name, name)]
        return narrow_columns({name: found}, indices)[name]

    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        ahead = self.source.records_ahead if isinstance(self.source, Far) else 0
        if ahead > 0:
            together = max(1, ahead // len(plan.local))
            groups = self._groups(plan, cursor, 1, together)
            return read_ahead(self._with_runs(groups, plan, ahead), self._read_together)
        count = max(1, MAX_POSITIONS // len(plan.local))
        return self._read_each(self._groups(plan, cursor, count, count))

    def _read_each(self, groups: Iterable[list[ReadBatch]]) -> Generator[ReadBatch, None, None]:
        """Yield batches that are read one by one."""
        for group in groups:
            # In no variable, or the batch would stay alive as long as the next one is read.
            yield from map(self._read_batch, group)

    def _groups(
        self, plan: BatchPlan, cursor: Cursor, first: int, count: int
    ) -> Iterator[list[ReadBatch]]:
        """Yield the next batches, not yet read, as many at a time as are found, or read, together.

        Args:
          plan, cursor: of the batches.
          first, count: how many batches the first time, for which somebody waits, and then.
        """
        while True:
            spans = self._next_spans(plan, cursor, first)
            epoch = spans[0].epoch
            if plan.ends_before(epoch):
                return

            batches = self._found(plan, spans)
            if batches[0].error is not None and len(spans) > 1:
                first = 1  # one by one, as those before the failing one are good
                continue
            yield batches
            cursor = spans[-1].after
            first = count

    def _found(self, plan: BatchPlan, spans: Sequence[BatchSpan]) -> list[ReadBatch]:
        """Return batches of one epoch with their records, or each with an error."""
        starts, rows = np.array([(span.start, span.rows) for span in spans]).T[..., None]
        positions = np.where(plan.local < rows, starts + plan.local, PADDING)
        indices = np.full(positions.shape, PADDING, np.int64)
        real = positions != PADDING
        error = None
        try:
            indices[real] = self._find_records(spans[0].epoch, positions[real])
        except Exception as failure:
            error = failure
        batches = map(ReadBatch, spans, positions, indices)
        return [batch._replace(error=error) for batch in batches]

    def _with_runs(
        self, groups: Iterator[list[ReadBatch]], plan: BatchPlan, ahead: int
    ) -> Iterator[ReadTogether]:
        """Yield batches that are read in one go, and the records that come in the same requests.

        Those of an order with `runs` wait for their batches, which are far behind each other: half
        of what the runs have, on an average.
        """
        lanes = getattr(self.sampler, "lanes", 0)
        runs: Any = getattr(self.sampler, "runs", ())
        holds = bool(runs) and hasattr(self.source, "hold") and not self.parts
        most = max(1, _WAITING * ahead * plan.batch_size // (len(plan.local) * max(lanes, 1)))
        keeper = Keeper()
        before = None  # the epoch of the runs that were begun, from position `since` on
        since = 0
        for number, group in enumerate(groups):
            if not holds or not number:
                yield ReadTogether(group, NOTHING, keeper)
                continue
            epoch, start = group[0].span.epoch, group[0].span.start
            since = start if epoch != before else since
            before = epoch
            positions = np.stack([batch.positions for batch in group])
            found = rest_of_runs(runs, positions, lanes, most, since=since)
            # Not those of other processes, and of a tail that is dropped.
            stop = self.length // plan.batch_size * plan.batch_size if plan.drop else self.length
            mine = np.isin((found - start) % plan.batch_size, plan.local) & (found < stop)
            yield ReadTogether(group, found[mine], keeper)

    def _next_spans(self, plan: BatchPlan, cursor: Cursor, count: int) -> list[BatchSpan]:
        """Return up to `count` batches from `cursor` on, all of one epoch."""
        length = self.length  # an order may have to count it
        spans = [next_span(cursor, length, plan.batch_size, plan.drop)]
        while len(spans) < count and spans[-1].after.epoch == spans[0].epoch:
            spans.append(next_span(spans[-1].after, length, plan.batch_size, plan.drop))
        return spans

    def _read_batch(self, batch: ReadBatch) -> ReadBatch:
        """Return a batch with its columns; or an exception, for the consumer to meet there."""
        if batch.error is not None or batch.is_kept:
            return batch
        started = time.perf_counter()
        try:
            columns = self.read_rows(batch.indices, self._draws([batch]) if self.parts else None)
            stored = self._stored(batch.indices)
            bound = self._bound(batch.span)
        except Exception as error:
            return batch._replace(error=error)
        seconds = time.perf_counter() - started
        return batch._replace(columns=columns, stored=stored, seconds=seconds, bound=bound)

    def _read_together(self, together: ReadTogether) -> list[ReadBatch]:
        """Return batches that were read in one go."""
        started = time.perf_counter()
        group = together.group
        if any(batch.error is not None for batch in group):
            return list(map(self._read_batch, group))
        try:
            if together.waiting.size:
                waiting = self._find_records(group[0].span.epoch, together.waiting)
                self.source.hold(waiting, together.keeper)  # pyright: ignore
            indices = np.concatenate([batch.indices for batch in group])
            columns = self.read_rows(indices, self._draws(group) if self.parts else None)
            told = [(self._stored(batch.indices), self._bound(batch.span)) for batch in group]
        except Exception:  # each meets its own
            return list(map(self._read_batch, group))

        seconds = (time.perf_counter() - started) / len(group)
        count = len(group[0].indices)
        batches = []
        for number, (batch, (stored, bound)) in enumerate(zip(group, told)):
            rows = slice(number * count, (number + 1) * count)
            part = {name: take_rows(values, rows) for name, values in columns.items()}
            cut = {"columns": part, "stored": stored, "seconds": seconds, "bound": bound}
            batches.append(batch._replace(**cut))
        return batches

    def _stored(self, indices: np.ndarray) -> Mapping[str, Any]:
        """Return what an index has stored; a padding row has that of record 0."""
        if not isinstance(self.source, Indexed):
            return {}
        return self.source.headers(np.where(indices == PADDING, 0, indices))

    def _find_records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return find_records(self.sampler, epoch, positions, len(self.source))

    def _draws(self, group: Sequence[ReadBatch]) -> np.ndarray:
        """Return what the decoders of batches will draw from, uint64[r]."""
        return np.concatenate(
            [
                decode_keys(
                    self.seed,
                    batch.span.epoch,
                    batch.indices,
                    batch.positions if self.with_replacement else None,
                )
                for batch in group
            ]
        )

    def read_rows(self, indices: np.ndarray, draws: np.ndarray | None = None) -> Columns:
        # A padding row is a copy of another row, of record 0 where there is no other: a read may
        # take a while.
        padding = indices == PADDING
        is_padded = bool(padding.any())
        records = indices
        if is_padded:
            chosen = ~padding if not padding.all() else np.arange(1)
            records = np.maximum(indices[chosen], 0)
            draws = None if draws is None else draws[chosen]

        if draws is not None and isinstance(self.source, Partial):
            parts = {
                name: partial(decoder.needed_bytes, keys=draws)
                for name, decoder in self.parts.items()
            }
            answer = self.source.read_parts(records, parts)
        else:
            answer = self.source.read(records)
        columns = narrow_columns(answer, records)
        columns |= {name: columns[of] for name, of in self.copies.items() if of in columns}
        if self.forms is not None:
            check_forms(columns, self.forms)
        if not is_padded:
            return columns
        place = np.maximum(np.cumsum(~padding) - 1, 0)
        return {
            name: without_bytes(take_rows(values, place), padding)
            for name, values in columns.items()
        }

    def read_positions(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, Columns]:
        indices = self._find_records(epoch, positions)
        return indices, self.read_rows(indices)

    def check_record(self, index: int, position: int | None) -> tuple[int, int]:
        if not isinstance(index, (int, np.integer)) or not 0 <= index < len(self.source):
            raise IndexError(f"`index` must be an int in [0, {len(self.source)}), got {index!r}.")
        if position is None and self.with_replacement:
            raise ValueError(
                f"`position` must be given with {type(self.sampler).__name__}, which may draw a "
                "record twice in an epoch: each position has a key of its own."
            )
        return int(index), 0 if position is None else int(position)


class SourceColumn(Column):
    """One column of a source, as its decoder may look at it before the first batch.

    Args:
      name: of the column.
      example: the values of the first record.
      reader: of the source.
      seed: of the records that are sampled.
    """

    def __init__(self, name: str, example: Values, reader: Reader, seed: int):
        self.name = name
        self.example = example
        self._reader = reader
        self._seed = seed

    def first(self, count: int) -> Iterator[Values]:
        return self._reader.read_singly(self.name, count)

    def sample(self, count: int, known: Known | None = None) -> Iterator[Values]:
        return self._reader.read_sample(self.name, count, self._seed, known)

    def summary(self) -> Any:
        source = self._reader.source
        return source.summary().get(self.name) if isinstance(source, Summarized) else None

    def error(self, number: int, reason: str) -> DecodeError:
        about = self._reader.source.describe(number)
        return named_error(number, about.get("error", reason), about)

    def stored(self) -> Sequence[Any] | None:
        source = self._reader.source
        if not isinstance(source, Indexed):
            return None
        parts = []
        for start in range(0, len(source), _CHUNK_RECORDS):
            rows = np.arange(start, min(start + _CHUNK_RECORDS, len(source)))
            part = source.headers(rows).get(self.name)
            if part is None:
                return None
            parts.append(part)
        return parts
