"""An order whose batches hold records of like lengths."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from jaxaug._cached import cached_property
from jaxaug._checks import check_positive_int
from jaxaug.iterators.samplers.sampler import as_floats, check_seed, permute

_BATCHES = -1  # the epoch's order of batches is that of a seed that no bucket has
_GRID = 1 << 32


@dataclass(frozen=True, eq=False)
class Buckets:
    """A shuffle in which each batch holds records of one bucket of lengths, each record once.

    A record belongs to the first bound that its length does not exceed. In each epoch the records
    of a bucket are shuffled and cut into batches; those that are left, fewer than a batch, go to
    the next bucket, where they fit, too. The batches are shuffled, and only the last one of an
    epoch may be partial. Position p of epoch e is a pure function of (seed, e, p): a resume is
    exact.

    With `of`, that column of a batch, and those that follow it, have the form of the bucket, one of
    a few static shapes: each is compiled when its first batch comes. Without it, all batches have
    the form of the longest record.

    The unit of lengths and bounds is the column's: seconds of `Audio` (`Manifest.durations`),
    numbers of `Tokenized` and of arrays of different lengths, and of `Image` height over width,
    since a canvas that holds the widest is cut below.

    Args:
      lengths: float[n], of each record.
      bounds: float[k], the longest of each bucket, ascending; no record is longer than the last.
      batch_size: that of the Loader, or a multiple of it.
      seed: another seed gives other shuffles.
      of: the column whose lengths they are; None leaves the batches at their longest form.

    Raises:
      ValueError: one of them is no such number, or a record is longer than all bounds.

    Example:
      >>> order = Buckets([1, 9, 2, 8, 3, 7], bounds=[4, 10], batch_size=2)
      >>> records = order.records(0, np.arange(6))
      >>> sorted(records.tolist()), [order.bound(0, place) for place in (0, 2, 4)].count(4.0)
      ([0, 1, 2, 3, 4, 5], 1)
    """

    lengths: Sequence[float]
    bounds: Sequence[float]
    batch_size: int
    seed: int = 0
    of: str | None = None
    with_replacement: ClassVar[bool] = False

    def __post_init__(self):
        lengths = as_floats(self.lengths)
        bounds = as_floats(self.bounds)
        check_positive_int("batch_size", self.batch_size)
        check_seed(self.seed)
        if not lengths.size or not np.isfinite(lengths).all():
            raise ValueError(
                "`lengths` must be a finite number for each record, float[n], got"
                f" {reprlib.repr(self.lengths)}: a Manifest has `durations`; find the lengths of"
                " other records first."
            )
        if not bounds.size or not (np.diff(bounds) > 0).all():
            raise ValueError(f"`bounds` must be ascending numbers, got {self.bounds!r}.")
        if not lengths.max() <= bounds[-1]:
            longer = int((lengths > bounds[-1]).sum())
            raise ValueError(
                f"`bounds` must reach the longest record, {lengths.max():g}, got {bounds[-1]:g}:"
                f" {longer} records are longer. Leave them out by Subset, or add a bound."
            )
        # Lists are the same orders as their arrays.
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "bounds", bounds)

    @property
    def length(self) -> int:
        """Positions in an epoch: the number of records."""
        return len(self.lengths)

    @property
    def source_length(self) -> int:
        """The records that the order is for."""
        return len(self.lengths)

    def bound(self, epoch: int, position: int) -> float:
        """Return the bound of the batch at a position of an epoch: none of its records is longer.

        It is the same on every process. The state of a Loader has epoch and position of the next
        batch.
        """
        if not 0 <= position < self.length:
            raise ValueError(f"`position` must lie in [0, {self.length}), got {position!r}.")
        bucket, _ = self._places(epoch, np.array([position], np.int64))
        return float(np.asarray(self.bounds)[bucket[0]])

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the record at each of `positions` (int64[k] in [0, length)) of `epoch`."""
        cut = self._cut
        bucket, place = self._places(epoch, np.asarray(positions, np.int64))
        records = np.empty(bucket.size, np.int64)
        for number in reversed(range(len(cut.own))):
            rows = np.flatnonzero(bucket == number)
            if not rows.size:
                continue
            seed = int(self.seed) + (number + 1) * _GRID
            places = permute(seed, epoch, place[rows], int(cut.total[number]))
            mine = places < cut.own[number]
            records[rows[mine]] = cut.order[cut.first[number] + places[mine]]
            # The others are what the bucket before had left: its last places.
            rows, places = rows[~mine], places[~mine] - cut.own[number]
            bucket[rows] = number - 1
            place[rows] = places + cut.whole[number - 1] * self.batch_size
        return records

    def _places(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bucket of each position, and its place among the bucket's records."""
        cut = self._cut
        batch, row = np.divmod(positions, self.batch_size)
        ends = np.cumsum(cut.whole)
        batches = int(ends[-1])
        full = batch < batches
        batch[full] = permute(int(self.seed) + _BATCHES, epoch, batch[full], max(batches, 1))
        last = len(cut.own) - 1  # of the partial batch
        bucket = np.where(full, np.searchsorted(ends, batch, side="right"), last)
        first = (ends - cut.whole)[bucket]
        return bucket, (batch - first) * self.batch_size + row

    @cached_property
    def _cut(self) -> "_Cut":
        lengths, bounds = np.asarray(self.lengths), np.asarray(self.bounds)
        bucket = np.searchsorted(bounds, lengths, side="left")
        own = np.bincount(bucket, minlength=len(bounds))
        total = own.copy()
        for number in range(1, len(own)):
            total[number] += total[number - 1] % self.batch_size
        order = np.argsort(bucket, kind="stable")
        return _Cut(order, np.cumsum(own) - own, own, total, total // self.batch_size)


class _Cut(NamedTuple):
    """Buckets cut into batches.

    Attributes:
      order: int64[n], the records by bucket.
      first, own: int64[k], where those of a bucket begin, and how many there are.
      total: with those that the bucket before had left.
      whole: the batches of a bucket.
    """

    order: np.ndarray
    first: np.ndarray
    own: np.ndarray
    total: np.ndarray
    whole: np.ndarray
