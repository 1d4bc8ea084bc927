"""Decoding: the columns of a batch, one after the other, by the host halves of their decoders."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode import ColumnDecoder, Decoded, RowError
from jaxaug.iterators.loader.columns import Columns
from jaxaug.iterators.loader.keys import decode_keys
from jaxaug.iterators.loader.reader import PADDING, ReadBatch

Failures = dict[int, tuple[str, str]]  # row -> the column, the reason


class DecodedBatch(NamedTuple):
    """The decoded columns of a batch.

    Attributes:
      read: the batch as it was read, with replacements in the places of bad records.
      columns: by name.
      valid: bool[n], the rows that hold a decoded record.
      failures: of the rows that hold a record which cannot be decoded.
      bad: the records that could not be decoded, also those that were replaced.
    """

    read: ReadBatch
    columns: Mapping[str, Decoded]
    valid: np.ndarray
    failures: Failures
    bad: list[dict[str, Any]]

    def release(self, readers: Any) -> None:
        """Give the memory of all columns back; `readers` are arrays whose computation reads it."""
        for decoded in self.columns.values():
            decoded.release(readers)

    @property
    def warnings(self) -> list[tuple[int, Warning]]:
        """What is worth a warning, with the record; the first of each column."""
        found = []
        for decoded in self.columns.values():
            for row, warning in list(decoded.warnings.items())[:1]:
                found.append((int(self.read.indices[row]), warning))
        return found

    @property
    def counts(self) -> dict[str, int]:
        """What the columns add to the Loader's counts."""
        counts: dict[str, int] = {}
        for decoded in self.columns.values():
            for name, count in decoded.counts.items():
                counts[name] = counts.get(name, 0) + count
        return counts


@dataclasses.dataclass(frozen=True)
class ColumnsDecoder:
    """The running decoders of all columns.

    Attributes:
      decoders: what `ColumnDecoder.open` gave, by column, each behind the one that it follows.
      seed: of what they draw.
      with_replacement: positions are part of the keys that they draw from.
      lent: the columns whose decoders are the user's own, and stay open.
    """

    decoders: Mapping[str, Any]
    seed: int
    with_replacement: bool
    lent: Sequence[str] = ()

    @property
    def in_flight(self) -> int:
        """How many batches at once keep the decoders and the device busy."""
        slowest = [decoder.in_flight for decoder in self.decoders.values()]
        return min(slowest, default=ColumnDecoder.in_flight)

    @property
    def memory(self) -> dict[str, dict[str, int]]:
        """What decoders that tell it hold, in bytes, by column."""
        told = {name: getattr(each, "memory", None) for name, each in self.decoders.items()}
        return {name: held for name, held in told.items() if held is not None}

    def check(self, columns: Columns, stored: Mapping[str, Any]) -> tuple[dict[str, Any], Failures]:
        """Return what the bytes of each column tell, and the rows that are bad by it."""
        checked = {}
        failures: Failures = {}
        for name, decoder in self.decoders.items():
            checked[name], found = decoder.check_rows(columns[name], stored.get(name))
            for row, reason in found.items():
                failures.setdefault(row, (name, reason))
        return checked, failures

    def decode(self, read: ReadBatch, checked: Mapping[str, Any] | None = None) -> DecodedBatch:
        """Return the decoded columns of a batch; a row needs all of them to be valid.

        Args:
          read: the batch.
          checked: what `check` has told of its columns; None to look at them now.
        """
        wanted = read.indices != PADDING
        positions = read.positions if self.with_replacement else None
        # What they draw from, one word for each record: its columns draw from the same.
        keys = decode_keys(self.seed, read.span.epoch, read.indices, positions)
        decoded: dict[str, Decoded] = {}
        failures: Failures = {}
        name = ""
        try:
            for name, decoder in self.decoders.items():
                values = read.columns[name]
                if checked is None:
                    told, _ = decoder.check_rows(values, read.stored.get(name))
                else:
                    told = checked[name]
                found = decoder.decode_rows(values, told, decoded, wanted, keys)
                decoded[name] = found
                for row, reason in found.failures.items():
                    failures.setdefault(row, (name, reason))
                wanted = wanted & found.valid
        except BaseException as error:
            for each in decoded.values():
                each.release(())
            if isinstance(error, RowError):
                index = int(read.indices[error.row])
                reason = error.reason.format(index=index)
                raise ValueError(f"feature {name!r} {reason}") from None
            raise
        return DecodedBatch(read, decoded, wanted, failures, [])

    def close(self) -> None:
        """Close all of them but those that are lent."""
        for name, decoder in self.decoders.items():
            if name not in self.lent:
                decoder.close()
