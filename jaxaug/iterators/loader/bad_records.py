"""Records that cannot be decoded: raise for them, mask them, replace them, and limit them.

A masked record is one that stays: its row is not valid, and `_batch_function` blanks it, as it does
with the rows that fill up a last batch.
"""

import collections
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from jaxaug._typing import Values
from jaxaug._warn import warn_user
from jaxaug.decode import Encoded, Ragged
from jaxaug.errors import DecodeError
from jaxaug.iterators.loader.columns import put_rows
from jaxaug.iterators.loader.decode import ColumnsDecoder, DecodedBatch, Failures
from jaxaug.iterators.loader.named_error import named_error
from jaxaug.iterators.loader.reader import PADDING, ReadBatch, Reader
from jaxaug.iterators.sources.protocol import Source, Stream

MAX_REPLACEMENT_TRIES = 32
_WINDOW_RECORDS = 10_000  # the last records, among which bad ones are limited
_MIN_BAD = 100  # fewer bad records never end a run
_NAMED_RECORDS = 10  # in the error

BadRecord = dict[str, Any]  # "index", "file", "reason", "action"


class BadRecordsError(Exception):
    """A batch fails because of its bad records.

    Args:
      error: the error to raise, that of the first bad record.
      bad: all bad records of the batch.
    """

    def __init__(self, error: DecodeError, bad: Sequence[BadRecord]):
        super().__init__(error, bad)
        self.error = error
        self.bad = list(bad)


def decode_batch(
    read: ReadBatch, decoder: ColumnsDecoder, reader: Reader, on_error: str
) -> DecodedBatch:
    """Decode a batch and treat the records that cannot be decoded.

    Args:
      read: the rows.
      decoder: decodes their columns.
      reader: names the records, and reads replacements.
      on_error: "raise", "mask" or "replace".

    Raises:
      BadRecordsError: with "raise"; with "replace" where none of 32 records can stand in.
    """
    if on_error == "replace":
        return _Replacement(read, decoder, reader).decode()

    decoded = decoder.decode(read)
    if not decoded.failures:
        return decoded
    try:
        errors = _name_failures(read, decoded.failures, reader.source)
        if errors and on_error == "raise":
            raise BadRecordsError(errors[min(errors)], _notes(errors, "raised"))
    except BaseException:
        decoded.release(())
        raise
    return decoded._replace(bad=_notes(errors, "masked"))


class _Replacement:
    """Puts the next decodable record of the epoch's order in the place of each bad one.

    Rows whose bytes are bad are replaced before anything is decoded; damage that only decoding
    shows costs another decode of the batch.
    """

    def __init__(self, read: ReadBatch, decoder: ColumnsDecoder, reader: Reader):
        assert reader.length is not None
        self._length = reader.length
        self._read = read
        self._decoder = decoder
        self._reader = reader
        self._tries = np.zeros(len(read.indices), np.int64)
        self._bad: list[BadRecord] = []
        self._first: dict[int, DecodeError] = {}  # by row, of the record that is replaced

    def decode(self) -> DecodedBatch:
        """Return the decoded batch, all of its rows good."""
        checked, failures = self._decoder.check(self._read.columns, self._read.stored)
        while True:
            while failures := self._without_padding(failures):
                checked, failures = self._replace(failures, checked)
            decoded = self._decoder.decode(self._read, checked)
            failures = self._without_padding(decoded.failures)
            if not failures:
                return decoded._replace(bad=self._bad)
            decoded.release(())

    def _without_padding(self, failures: Failures) -> Failures:
        indices = self._read.indices
        return {row: found for row, found in failures.items() if indices[row] != PADDING}

    def _replace(
        self, failures: Failures, checked: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Failures]:
        """Put the next record into each row that failed; return what was checked, with theirs."""
        errors = _name_failures(self._read, failures, self._reader.source)
        rows = np.array(sorted(errors))
        self._note(errors)
        self._tries[rows] += 1

        read = self._read
        positions = (read.positions[rows] + self._tries[rows]) % self._length
        indices, others = self._reader.read_positions(read.span.epoch, positions)
        all_indices = read.indices.copy()
        all_indices[rows] = indices
        columns = {name: put_rows(old, rows, others[name]) for name, old in read.columns.items()}
        self._read = read._replace(indices=all_indices, columns=columns, stored={})

        found, failed = self._decoder.check(others, {})
        merged = {name: _put_told(told, rows, found[name]) for name, told in checked.items()}
        return merged, {int(rows[place]): reason for place, reason in failed.items()}

    def _note(self, errors: dict[int, DecodeError]) -> None:
        """Remember the rows that fail for the first time; raise for one that was tried enough."""
        first = {row: error for row, error in errors.items() if self._tries[row] == 0}
        self._bad += _notes(first, "replaced")
        self._first |= first
        for row in sorted(errors):
            if self._tries[row] == MAX_REPLACEMENT_TRIES:
                raise BadRecordsError(_exhausted(self._first[row]), self._bad)


def _put_told(told: Any, rows: np.ndarray, others: Any) -> Any:
    """Return what `ColumnDecoder.check_rows` told, with that of others in the places `rows`."""
    if told is None:
        return None
    if isinstance(told, tuple):
        return type(told)(*map(put_rows, told, repeat(rows), others))
    told = list(told)
    for row, other in zip(rows.tolist(), others):
        told[row] = other
    return told


def _exhausted(error: DecodeError) -> DecodeError:
    return DecodeError(
        f"{error.reason}, and none of the next {MAX_REPLACEMENT_TRIES} records of the order can "
        "be decoded either",
        index=error.index,
        file=error.file,
        byte_count=error.byte_count,
    )


def _name_failures(
    read: ReadBatch, failures: Failures, source: Source | Stream
) -> dict[int, DecodeError]:
    """Return the failures with the name of each record; padding is no failure."""
    encoded = [name for name, values in read.columns.items() if isinstance(values, Encoded)]
    errors = {}
    for row, (column, reason) in failures.items():
        index = int(read.indices[row])
        if index == PADDING:
            continue
        about = source.describe(index)
        if len(encoded) > 1:
            reason = f"{column!r}: {reason}"
        if any(_lacks_bytes(values, row) for values in read.columns.values()):
            reason = about.get("error", reason)
        values = read.columns[column]
        byte_count = int(values.lengths[row]) if isinstance(values, Encoded) else None
        errors[row] = named_error(index, reason, about, byte_count)
    return errors


def _lacks_bytes(values: Values, row: int) -> bool:
    """Return True where a record's file, or one of its list, is empty or could not be read."""
    if isinstance(values, Ragged):
        end = int(values.lengths[: row + 1].sum())
        each = values.values
        files = slice(end - int(values.lengths[row]), end)
        return isinstance(each, Encoded) and bool((each.lengths[files] == 0).any())
    return isinstance(values, Encoded) and values.lengths[row] == 0


def _notes(errors: dict[int, DecodeError], action: str) -> list[BadRecord]:
    return [
        {"index": error.index, "file": error.file, "reason": error.reason, "action": action}
        for _, error in sorted(errors.items())
    ]


class BadRecordLimit:
    """Tells of the bad records of a run, and ends it where they are too many.

    Args:
      max_bad: the largest share of bad records among the last 10,000; None for no limit.
    """

    def __init__(self, max_bad: float | None):
        self._max_bad = max_bad
        self._total_records = 0
        self._total_bad = 0
        self._start_window()

    def _start_window(self) -> None:
        self._window: collections.deque[tuple[int, list[BadRecord]]] = collections.deque()
        self._window_records = 0
        self._window_bad = 0

    def add(self, records: int, bad: list[BadRecord]) -> BadRecordsError | None:
        """Count a batch; return the error that ends the run, after which the window begins anew.

        Args:
          records: the records of the batch, good and bad.
          bad: the bad ones, masked or replaced.
        """
        self._total_records += records
        self._total_bad += len(bad)
        self._move_window(records, bad)
        # The number of digits grows with the first bad record, the tenth, the hundredth ...
        if bad and _digits(self._total_bad) > _digits(self._total_bad - len(bad)):
            self._warn(bad[-1])

        if self._max_bad is None or self._window_bad < _MIN_BAD:
            return None
        if self._window_bad <= self._max_bad * self._window_records:
            return None
        error = self._error()
        self._start_window()
        return BadRecordsError(error, bad)

    def _move_window(self, records: int, bad: list[BadRecord]) -> None:
        """Take a batch into the window, and drop the batches that lie behind its 10,000 records."""
        self._window.append((records, bad))
        self._window_records += records
        self._window_bad += len(bad)
        while self._window_records - self._window[0][0] >= _WINDOW_RECORDS:
            old_records, old_bad = self._window.popleft()
            self._window_records -= old_records
            self._window_bad -= len(old_bad)

    def _warn(self, record: BadRecord) -> None:
        warn_user(
            f"{self._total_bad} of {self._total_records} records could not be decoded and were "
            f'{record["action"]}; `loader.stats["bad_records"]` names them. The last: '
            f"{_describe(record)}"
        )

    def _error(self) -> DecodeError:
        names = [record for _, bad in self._window for record in bad][:_NAMED_RECORDS]
        listed = "; ".join(map(_describe, names))
        return DecodeError(
            f"{names[0]['reason']}, and {self._window_bad:,} of the last {self._window_records:,} "
            f"records are bad, more than `max_bad`={self._max_bad:g} of them. The first ten: "
            f"{listed}. Mend the data, or give a larger `max_bad`; max_bad=None sets no limit.",
            index=names[0]["index"],
            file=names[0]["file"],
        )


def _digits(number: int) -> int:
    """Return the number of decimal digits, 0 for 0."""
    return len(str(number)) if number else 0


def _describe(record: BadRecord) -> str:
    file = f" ({record['file']})" if record["file"] else ""
    return f"record {record['index']}{file}: {record['reason']}"
