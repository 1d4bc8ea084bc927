"""Records that cannot be decoded: raise for them, mask them, replace them, and limit them.

A masked record is one that stays: its row is not valid, and `_batch_function` blanks it, as it does
with the rows that fill up a last batch.
"""

import collections
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode import DecodedBatch, Decoder, Encoded, Headers, read_headers
from jaxaug.decode.parse.headers import BAD
from jaxaug.decode.parse.stored_headers import confirm_headers
from jaxaug.errors import DecodeError
from jaxaug.iterators._masks import MaskDecoder
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._reader import PADDING, EncodedBatch, Reader, Rows

_MAX_REPLACEMENT_TRIES = 32
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


class DecodedRows(NamedTuple):
    """The rows of a batch as they are delivered.

    Attributes:
      records: the rows that were read, with the replacements in their places, and with the decoded
        "mask" among their features.
      decoded: their images.
      bad: the records that could not be decoded.
    """

    records: EncodedBatch
    decoded: DecodedBatch
    bad: list[BadRecord]


def decode_batch(
    records: EncodedBatch,
    decoder: Decoder,
    masks: MaskDecoder | None,
    reader: Reader,
    on_error: str,
) -> DecodedRows:
    """Decode a batch and treat the records that cannot be decoded.

    Args:
      records: the encoded rows.
      decoder: decodes their images.
      masks: decodes their masks, if they have encoded ones.
      reader: names the records, and reads replacements.
      on_error: "raise", "mask" or "replace".

    Raises:
      BadRecordsError: with "raise"; with "replace" where none of 32 records can stand in.
    """
    if on_error == "replace":
        return _Replacement(records, decoder, masks, reader).decode()

    records, decoded = _decode(records, decoder, masks, records.headers)
    try:
        errors = _name_failures(records, decoded.failures, reader.source)
        if errors and on_error == "raise":
            raise BadRecordsError(errors[min(errors)], _notes(errors, "raised"))
    except BaseException:
        decoded.release(())
        raise
    return DecodedRows(records, decoded, _notes(errors, "masked"))


def _decode(
    records: EncodedBatch,
    decoder: Decoder,
    masks: MaskDecoder | None,
    headers: Headers | None,
) -> tuple[EncodedBatch, DecodedBatch]:
    """Return the batch with its masks decoded, and its images; a row needs both to be valid."""
    assert isinstance(records.images, Encoded)
    decoded = decoder.decode_rows(records.images, headers, records.indices == PADDING)
    if masks is None:
        return records, decoded

    assert records.masks is not None
    try:
        mask, failures = masks.decode(records.masks, decoded)
    except BaseException:
        decoded.release(())
        raise
    valid = decoded.valid.copy()
    valid[list(failures)] = False
    records = records._replace(features={**records.features, "mask": mask})
    return records, decoded._replace(valid=valid, failures=decoded.failures | failures)


class _Replacement:
    """Puts the next decodable record of the epoch's order in the place of each bad one.

    Rows whose headers are bad are replaced before anything is decoded; damage that only decoding
    shows costs another decode of the batch.
    """

    def __init__(
        self,
        records: EncodedBatch,
        decoder: Decoder,
        masks: MaskDecoder | None,
        reader: Reader,
    ):
        assert reader.length is not None
        self._length = reader.length
        self._records = records
        self._decoder = decoder
        self._masks = masks
        self._reader = reader
        self._tries = np.zeros(len(records.indices), np.int64)
        self._bad: list[BadRecord] = []
        self._first: dict[int, DecodeError] = {}  # by row, of the record that is replaced

    def decode(self) -> DecodedRows:
        """Return the decoded batch, all of its rows good."""
        stored = self._records.headers
        decoder = self._decoder
        headers = confirm_headers(self._images, stored, decoder.max_pixels, decoder.truncated)
        while True:
            headers = self._replace_bad_headers(headers)
            records, decoded = _decode(self._records, self._decoder, self._masks, headers)
            if not self._without_padding(decoded.failures):
                return DecodedRows(records, decoded, self._bad)
            decoded.release(())
            headers = self._replace(decoded.failures, headers)

    @property
    def _images(self) -> Encoded:
        assert isinstance(self._records.images, Encoded)
        return self._records.images

    def _without_padding(self, failures: dict[int, str]) -> dict[int, str]:
        indices = self._records.indices
        return {row: reason for row, reason in failures.items() if indices[row] != PADDING}

    def _replace_bad_headers(self, headers: Headers) -> Headers:
        while True:
            rows = np.flatnonzero((headers.kind == BAD) & (self._records.indices != PADDING))
            if not rows.size:
                return headers
            failures = {row: str(headers.reason[row]) for row in rows.tolist()}
            headers = self._replace(failures, headers)

    def _replace(self, failures: dict[int, str], headers: Headers) -> Headers:
        """Put the next record into each row that failed; return the headers with theirs."""
        errors = _name_failures(self._records, failures, self._reader.source)
        rows = np.array(sorted(errors))
        self._note(errors)
        self._tries[rows] += 1

        records = self._records
        positions = (records.positions[rows] + self._tries[rows]) % self._length
        indices, others = self._reader.read_positions(records.epoch, positions)
        assert isinstance(others.images, Encoded)
        self._records = _substitute(records, rows, indices, others)
        decoder = self._decoder
        found = read_headers(others.images, decoder.max_pixels, decoder.truncated)
        return _with_rows(headers, rows, found)

    def _note(self, errors: dict[int, DecodeError]) -> None:
        """Remember the rows that fail for the first time; raise for one that was tried enough."""
        first = {row: error for row, error in errors.items() if self._tries[row] == 0}
        self._bad += _notes(first, "replaced")
        self._first |= first
        for row in sorted(errors):
            if self._tries[row] == _MAX_REPLACEMENT_TRIES:
                raise BadRecordsError(_exhausted(self._first[row]), self._bad)


def _exhausted(error: DecodeError) -> DecodeError:
    return DecodeError(
        f"{error.reason}, and none of the next {_MAX_REPLACEMENT_TRIES} records of the order can "
        "be decoded either",
        index=error.index,
        file=error.file,
        byte_count=error.byte_count,
    )


def _name_failures(
    records: EncodedBatch, failures: dict[int, str], source: Source | Stream
) -> dict[int, DecodeError]:
    """Return the failures with the name of each record; padding is no failure."""
    assert isinstance(records.images, Encoded)
    errors = {}
    for row, reason in failures.items():
        index = int(records.indices[row])
        if index == PADDING:
            continue
        about = source.describe(index)
        byte_count = int(records.images.lengths[row])
        if byte_count == 0 or (records.masks is not None and records.masks.lengths[row] == 0):
            reason = about.get("error", reason)
        names = [about.get(name) for name in ("path", "key", "mask_path")]
        file = ", ".join(str(name) for name in names if name is not None)
        errors[row] = DecodeError(reason, index=index, file=file or None, byte_count=byte_count)
    return errors


def _notes(errors: dict[int, DecodeError], action: str) -> list[BadRecord]:
    return [
        {"index": error.index, "file": error.file, "reason": error.reason, "action": action}
        for _, error in sorted(errors.items())
    ]


def _substitute(
    records: EncodedBatch,
    rows: np.ndarray,
    indices: np.ndarray,
    others: Rows,
) -> EncodedBatch:
    """Return the batch with other records in `rows`."""
    assert isinstance(records.images, Encoded) and isinstance(others.images, Encoded)
    masks = records.masks
    if masks is not None:
        assert others.masks is not None
        masks = _with_encoded(masks, rows, others.masks)

    columns = {
        name: _with_values(column, rows, others.features[name])
        for name, column in records.features.items()
    }
    return records._replace(
        indices=_with_values(records.indices, rows, indices),
        images=_with_encoded(records.images, rows, others.images),
        features=columns,
        masks=masks,
        headers=None,
    )


def _with_encoded(encoded: Encoded, rows: np.ndarray, others: Encoded) -> Encoded:
    """Return encoded images with others in `rows`."""
    return Encoded(
        _with_values(encoded.addresses, rows, others.addresses),
        _with_values(encoded.lengths, rows, others.lengths),
        (encoded.owner, others.owner),
    )


def _with_rows(headers: Headers, rows: np.ndarray, others: Headers) -> Headers:
    """Return the headers with those of other images in `rows`."""
    return Headers(*(_with_values(old, rows, new) for old, new in zip(headers, others)))


def _with_values(column: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return a copy of the column with other values in `rows`."""
    column = column.copy()
    column[rows] = values
    return column


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
        warnings.warn(
            f"{self._total_bad} of {self._total_records} records could not be decoded and were "
            f'{record["action"]}; `loader.stats["bad_records"]` names them. The last: '
            f"{_describe(record)}",
            # _warn, add, _deliver, _take_next, take, the Loader or its generator, the caller
            stacklevel=7,
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
