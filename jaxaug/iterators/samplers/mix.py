"""Orders over several sources, and orders that repeat records: pure functions of the position."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jaxaug._cached import cached_property
from jaxaug._checks import check_positive_int
from jaxaug.iterators.samplers.sampler import check_seed, check_weights, permute

# The epoch's own draws are those of a permutation that no source uses.
_OFFSETS = -1
_GRID = 1 << 32


@dataclass(frozen=True, eq=False)
class Mix:
    """Records of several sources in fixed shares, each source without replacement.

    In an epoch of n positions, source s has n weights[s] / sum(weights) of them, rounded, at places
    that each epoch shuffles. The records of a source come in a shuffle of their own, which
    continues across epochs: at the end of each epoch, all have come equally often or some once more
    than others, however small or large the share. Within an epoch one may come again before all
    have come. Position p of epoch e is a pure function of (seed, e, p): a resume is exact.

    Args:
      lengths: int[k], the records of each source, `Concat.lengths`.
      weights: float[k], at least 0 and not all 0.
      seed: another seed gives other mixes.
      num_samples: positions in an epoch; all records of all sources, counted, when None.

    Raises:
      ValueError: `lengths` or `weights` are no such numbers, or `num_samples` is below 1.

    Example:
      >>> order = Mix([100, 4], [0.9, 0.1], num_samples=20)
      >>> records = order.records(0, np.arange(20))
      >>> int((records >= 100).sum()), len(set(records.tolist()))
      (2, 20)
    """

    lengths: Sequence[int]
    weights: Sequence[float]
    seed: int = 0
    num_samples: int | None = None
    with_replacement: ClassVar[bool] = True  # a small source may have to repeat in an epoch

    def __post_init__(self):
        lengths = np.asarray(self.lengths)
        ints = lengths.ndim == 1 and lengths.size > 0 and lengths.dtype.kind in "iu"
        if not ints or lengths.min() < 1:
            raise ValueError(
                "`lengths` must be ints [k] of at least 1, got"
                f" {reprlib.repr(self.lengths)}: give `lengths` of Concat(sources)."
            )
        weights = check_weights("weights", self.weights, lengths.size)
        if self.num_samples is not None:
            check_positive_int("num_samples", self.num_samples)
        check_seed(self.seed)
        # Lists are the same orders as their arrays.
        object.__setattr__(self, "lengths", lengths.astype(np.int64))
        object.__setattr__(self, "weights", weights)

    @property
    def length(self) -> int:
        """Positions in an epoch."""
        return int(self.num_samples or self.source_length)

    @property
    def source_length(self) -> int:
        """The records that the order is for."""
        return int(np.sum(self.lengths))

    @cached_property
    def _slots(self) -> np.ndarray:
        """int64[k + 1], the bounds of the sources' slots in an epoch."""
        shares = np.cumsum(self.weights) / np.sum(self.weights)
        return np.concatenate([[0], np.rint(shares * self.length)]).astype(np.int64)

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the record at each of `positions` (int64[k] in [0, length)) of `epoch`."""
        slots = permute(self.seed, epoch, positions, self.length)
        sources = np.searchsorted(self._slots, slots, side="right") - 1
        starts = np.cumsum(self.lengths) - self.lengths
        records = np.empty(slots.size, np.int64)
        for source in np.unique(sources).tolist():
            chosen = sources == source
            # Draws of a source are counted over all epochs; each run through it is a shuffle.
            share = int(self._slots[source + 1] - self._slots[source])
            draws = epoch * share + slots[chosen] - self._slots[source]
            length = int(self.lengths[source])
            passes, places = np.divmod(draws, length)
            seed = int(self.seed) + (source + 1) * _GRID
            records[chosen] = starts[source] + permute(seed, passes, places, length)
        return records


@dataclass(frozen=True, eq=False)
class Repeat:
    """A shuffle in which record i occurs factors[i] times per epoch, without replacement.

    A fraction is the probability of one more occurrence: each epoch, a record occurs as often as
    its factor rounded down or up, and an epoch always has round(sum(factors)) positions. With
    max(1, sqrt(t / f)) for the share f of the record's rarest class it is the repeat factor
    sampling of LVIS.

    Args:
      factors: float[n], at least 0, of a sum of at least 1.
      seed: another seed gives other shuffles.

    Raises:
      ValueError: `factors` are no such numbers.

    Example:
      >>> order = Repeat([1, 0, 2.5, 0.5])
      >>> np.bincount(order.records(0, np.arange(order.length)), minlength=4)[:2].tolist()
      [1, 0]

    Reference: Gupta, Dollár and Girshick, "LVIS", CVPR 2019, section 5; systematic sampling.
    """

    factors: Sequence[float]
    seed: int = 0
    with_replacement: ClassVar[bool] = True

    def __post_init__(self):
        factors = check_weights("factors", self.factors)
        if round(factors.sum()) < 1:
            raise ValueError(f"`factors` must be of a sum of at least 1, got {factors.sum()}.")
        check_seed(self.seed)
        object.__setattr__(self, "factors", factors)

    @property
    def length(self) -> int:
        """Positions in an epoch."""
        return round(np.sum(self.factors))

    @property
    def source_length(self) -> int:
        """The records that the order is for."""
        return len(self.factors)

    @cached_property
    def _stops(self) -> np.ndarray:
        """float64[n], the ends of the records' stretches on a line as long as the epoch."""
        stops = np.cumsum(_with_whole_sum(np.asarray(self.factors), self.length))
        return stops * (self.length / stops[-1])  # corrects rounding alone

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the record at each of `positions` (int64[k] in [0, length)) of `epoch`."""
        draw = permute(int(self.seed) + _OFFSETS, epoch, np.zeros(1, np.int64), _GRID)
        offset = float(draw[0]) / _GRID
        points = permute(self.seed, epoch, positions, self.length) + offset
        return np.searchsorted(self._stops, points, side="right").astype(np.int64)


def _with_whole_sum(factors: np.ndarray, total: int) -> np.ndarray:
    """Return the factors with fractions changed so that they sum to `total`, their sum rounded.

    None leaves the two integers next to it: to scale the factors would give less than one
    occurrence to a factor of 1.
    """
    whole = np.floor(factors)
    fractions = factors - whole
    found = fractions.sum()
    wanted = total - whole.sum()
    if wanted <= found:
        return whole + fractions * (wanted / found if found else 0.0)
    gaps = np.where(fractions > 0, 1 - fractions, 0)
    return whole + fractions + gaps * ((wanted - found) / gaps.sum())
