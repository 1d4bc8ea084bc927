"""What becomes of records that cannot be decoded: raise, mask, or replace."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode import Decoded, Decoder, Encoded, Headers, read_headers
from jaxaug.decode.parse.headers import BAD
from jaxaug.errors import DecodeError
from jaxaug.iterators._features import Features
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._reader import PADDING, EncodedBatch, ReadRecords
from jaxaug.iterators._sampler import Sampler, find_records

_REPLACEMENT_TRIES = 32

BadRecord = dict[str, Any]  # "index", "file", "reason", "action"


class BadRecordsError(Exception):
    """A batch that fails for its bad records: the error to raise, and all of their names.

    Args:
      error: of the first.
      bad: all of the batch.
    """

    def __init__(self, error: DecodeError, bad: Sequence[BadRecord]):
        super().__init__(error, bad)
        self.error = error
        self.bad = list(bad)


class DecodedRows(NamedTuple):
    """The rows of a batch as they are delivered: with replacements in it, or with rows that are not
    valid.
    """

    records: EncodedBatch
    decoded: Decoded
    bad: list[BadRecord]


def decode_batch(
    records: EncodedBatch,
    decoder: Decoder,
    source: Source | Stream,
    sampler: Sampler | None,
    on_error: str,
    read: ReadRecords | None,
) -> DecodedRows:
    """Decode a batch, and deal with what cannot be decoded.

    Args:
      order, read: the order of the records, and how to read them; None for a stream.
      on_error: "raise", "mask" or "replace".

    Raises:
      BadRecordsError: with "raise"; with "replace" where none of 32 records can stand in.
    """
    if on_error == "replace":
        assert sampler is not None and read is not None and isinstance(source, Source)
        return _Replacement(records, decoder, source, sampler, read).decode()

    assert isinstance(records.images, Encoded)
    decoded = decoder.decode_rows(records.images)
    try:
        errors = _name_failures(records, decoded.failures, source)
    except BaseException:
        decoded.release(())
        raise
    if not errors:
        return DecodedRows(records, decoded, [])

    if on_error == "mask":
        return DecodedRows(records, decoded, _notes(errors, "masked"))
    decoded.release(())
    raise BadRecordsError(errors[min(errors)], _notes(errors, "raised"))


class _Replacement:
    """Puts the next decodable record of the epoch's order in the place of each broken one.

    Rows whose headers are bad are replaced before anything is decoded; damage that only decoding
    shows costs another decode of the batch.
    """

    def __init__(
        self,
        records: EncodedBatch,
        decoder: Decoder,
        source: Source,
        sampler: Sampler,
        read: ReadRecords,
    ):
        self._records = records
        self._decoder = decoder
        self._source = source
        self._sampler = sampler
        self._read = read
        self._tries = np.zeros(len(records.indices), np.int64)
        self._bad: list[BadRecord] = []

    def decode(self) -> DecodedRows:
        headers = read_headers(self._images, self._decoder.max_pixels)
        while True:
            headers = self._replace_bad_headers(headers)
            decoded = self._decoder.decode_rows(self._images, headers)
            if not self._failures(decoded.failures):
                return DecodedRows(self._records, decoded, self._bad)
            decoded.release(())
            headers = self._replace(decoded.failures, headers)

    @property
    def _images(self) -> Encoded:
        assert isinstance(self._records.images, Encoded)
        return self._records.images

    def _failures(self, failures: dict[int, str]) -> dict[int, str]:
        return {
            row: reason for row, reason in failures.items() if self._records.indices[row] != PADDING
        }

    def _replace_bad_headers(self, headers: Headers) -> Headers:
        while True:
            rows = np.flatnonzero((headers.kind == BAD) & (self._records.indices != PADDING))
            if not rows.size:
                return headers
            headers = self._replace(
                {row: str(headers.reason[row]) for row in rows.tolist()}, headers
            )

    def _replace(self, failures: dict[int, str], headers: Headers) -> Headers:
        """Put the next record of the order into the rows that failed; return the headers with
        theirs.
        """
        errors = _name_failures(self._records, failures, self._source)
        rows = np.array(sorted(errors))
        first = rows[self._tries[rows] == 0]
        self._bad += _notes({row: errors[row] for row in first.tolist()}, "replaced")
        if exhausted := [row for row in rows.tolist() if self._tries[row] == _REPLACEMENT_TRIES]:
            raise BadRecordsError(_none_of_the_next(errors[exhausted[0]]), self._bad)

        self._tries[rows] += 1
        records = self._records
        positions = (records.positions[rows] + self._tries[rows]) % self._sampler.length
        indices = find_records(self._sampler, records.epoch, positions, len(self._source))
        images, features = self._read(indices)
        assert isinstance(images, Encoded)
        self._records = _substitute(records, rows, indices, images, features)
        return _with_rows(headers, rows, read_headers(images, self._decoder.max_pixels))


def _none_of_the_next(error: DecodeError) -> DecodeError:
    return DecodeError(
        f"{error.reason}, and none of the next {_REPLACEMENT_TRIES} records of the order can be decoded either",
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
        if byte_count == 0:
            reason = about.get("error", reason)
        file = ", ".join(about[name] for name in ("path", "key") if name in about) or None
        errors[row] = DecodeError(reason, index=index, file=file, byte_count=byte_count)
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
    images: Encoded,
    features: Features,
) -> EncodedBatch:
    """Return the batch with other records in `rows`."""
    assert isinstance(records.images, Encoded)
    addresses, lengths, owner = records.images
    addresses = addresses.copy()
    lengths = lengths.copy()
    addresses[rows] = images.addresses
    lengths[rows] = images.lengths
    columns = {name: column.copy() for name, column in records.features.items()}
    for name, column in columns.items():
        column[rows] = features[name]

    all_indices = records.indices.copy()
    all_indices[rows] = indices
    return records._replace(
        indices=all_indices,
        images=Encoded(addresses, lengths, (owner, images.owner)),
        features=columns,
    )


def _with_rows(headers: Headers, rows: np.ndarray, others: Headers) -> Headers:
    """Return the headers with those of other images in `rows`."""
    columns = []
    for column, other in zip(headers, others):
        column = column.copy()
        column[rows] = other
        columns.append(column)
    return Headers(*columns)
