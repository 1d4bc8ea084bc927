"""Samplers: the record at each position of an epoch, a pure function of (seed, epoch, position).

A sampler keeps no state and no list of records: any process computes any part of any epoch, so that
a resumed run, or one on another number of hosts, sees exactly the records it should.
"""

import contextlib
import dataclasses
import hashlib
import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from jaxaug._cached import cached_property
from jaxaug._checks import check_positive_int, is_int
from jaxaug._splitmix import fold, mix, stream, uniform

# Alternating Feistel rounds. Four make a strong pseudo-random permutation of a large domain (Luby
# and Rackoff 1988); on a tiny one (n = 10 is a table of 4 x 3) a round mixes less, and twelve are
# chi-square clean.
_ROUNDS = 12
_GRID = 1 << 16
_GOLDEN = 40503  # 2^16 over the golden ratio


def permute(seed: int, epoch: "int | np.ndarray", positions: np.ndarray, n: int) -> np.ndarray:
    """Return the records at `positions` in the shuffle of `range(n)` by (seed, epoch).

    A keyed Feistel network permutes a nearly square table of rows and columns that covers n; a
    value that falls outside `range(n)`, about one in sqrt(n) at most, is permuted again until it
    falls inside ("cycle walking"). Nothing is stored, so n = 10^12 costs as much as n = 1000: some
    200 us for 256 positions, under 0.2 us per position for many.

    Args:
      seed: any int; its low 64 bits count.
      epoch: any int; its low 64 bits count. int64[k] where the positions differ in it.
      positions: int64[k] in [0, n).
      n: number of records, 1 to 2^62.

    Returns:
      int64[k], the record at each position.

    Raises:
      ValueError: a position lies outside [0, n).

    Example:
      >>> sorted(permute(0, 0, np.arange(6), 6).tolist())
      [0, 1, 2, 3, 4, 5]

    Reference: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
    """
    positions = np.asarray(positions, np.int64)
    if not 1 <= n <= 1 << 62:
        raise ValueError(
            f"`n`, the number of records, must be within [1, 2^62], got {n}: leave out a "
            "`repeat()` of Grain without end, as a Loader begins each epoch by itself."
        )
    _check_positions(positions, n)

    keys = stream(_keys(seed, epoch), _ROUNDS)
    rows = math.isqrt(n - 1) + 1  # rows * columns covers n and exceeds it by less than one row
    columns = -(-n // rows)

    permuted = _feistel(rows, columns, keys, positions.size)
    records = permuted(positions.astype(np.uint64))
    outside = np.flatnonzero(records >= np.uint64(n))
    while outside.size:
        if keys.shape[1] > 1:
            permuted = _feistel(rows, columns, keys[:, outside], outside.size)
        records[outside] = permuted(records[outside])
        outside = outside[records[outside] >= np.uint64(n)]
    return records.astype(np.int64)


@runtime_checkable
class Sampler(Protocol):
    """The order of a source's records.

    Make a sampler of your own a dataclass, and a resume checks its fields too: numbers, texts and
    arrays of NumPy, and tuples, lists and dataclasses of them.

    One with `of`, the name of a column, `bounds` and `bound(epoch, position)` gives batches of a
    few forms, as `Buckets` does: no record of that column there is longer than its bound.

    Attributes:
      with_replacement: an epoch may hold a record twice, so its key depends on the position too.

    Example:
      >>> @dataclass(frozen=True)
      ... class Backwards:
      ...     length: int
      ...     with_replacement = False
      ...     def records(self, epoch, positions):
      ...         return self.length - 1 - positions
      >>> isinstance(Backwards(5), Sampler), Backwards(5).records(0, np.array([0, 4])).tolist()
      (True, [4, 0])
    """

    with_replacement: ClassVar[bool]

    @property
    def length(self) -> int:
        """The number of positions in an epoch."""
        ...

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the record int64[k] at each of `positions`, int64[k] in [0, length)."""
        ...


@dataclass(frozen=True)
class Sequential:
    """Records in the order of the source, the same every epoch.

    Args:
      length: number of records, at least 1.

    Example:
      >>> Sequential(5).records(0, np.array([4, 0])).tolist()
      [4, 0]
    """

    length: int
    with_replacement: ClassVar[bool] = False

    def __post_init__(self):
        check_positive_int("length", self.length)

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the positions themselves."""
        del epoch  # every epoch is the same
        positions = np.asarray(positions, np.int64)
        _check_positions(positions, self.length)
        return positions


@dataclass(frozen=True)
class Shuffled:
    """A global shuffle, another one each epoch.

    Position p of epoch e is record `permute(seed, e, p)`.

    Args:
      length: number of records, at least 1.
      seed: another seed gives other shuffles.

    Example:
      >>> sampler = Shuffled(5, seed=0)
      >>> sorted(sampler.records(epoch=3, positions=np.arange(5)).tolist())
      [0, 1, 2, 3, 4]
    """

    length: int
    seed: int = 0
    with_replacement: ClassVar[bool] = False

    def __post_init__(self):
        check_positive_int("length", self.length)
        check_seed(self.seed)

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the records at `positions` of this epoch's shuffle."""
        return permute(self.seed, epoch, positions, self.length)


@dataclass(frozen=True)
class Blocks:
    """A shuffle of runs of neighbors, another one each epoch, for records that are far away.

    A global shuffle asks a server for every record by itself. Here `run` neighbors come in one
    request, and yet not in one batch: `lanes` runs are dealt out in turn, so that position p is a
    record of lane p % lanes, and `lanes` consecutive positions hold one record from each of as many
    runs, from all over the data. Lanes begin at different steps of their runs: at any time half of
    `run * lanes` records wait in memory, and requests come evenly. The first and the last run of a
    lane are of other lengths. Each epoch cuts the data into runs at other places. Position p of
    epoch e is a pure function of (seed, e, p).

    A request of 8 MB costs a server and a client least: `run` is best 8 MB over the size of a
    record. A Loader asks for less at a time where more than 1 GiB would wait.

    Args:
      length: number of records, at least 1.
      run: neighbors that come one after the other in a lane, at least 1.
      lanes: at least 1. The batch size, or a multiple of it, keeps each run in one process and
        neighbors out of a batch.
      seed: another seed gives other shuffles.

    Raises:
      ValueError: one of them is no such number.

    Example:
      >>> order = Blocks(1000, run=5, lanes=4)
      >>> records = order.records(0, np.arange(1000))
      >>> np.array_equal(np.sort(records), np.arange(1000))
      True
      >>> np.diff(records[0:20:4]).tolist()  # the first run
      [1, 1, 1, 1]
    """

    length: int
    run: int = 100
    lanes: int = 256
    seed: int = 0
    with_replacement: ClassVar[bool] = False

    def __post_init__(self):
        check_positive_int("length", self.length)
        check_positive_int("run", self.run)
        check_positive_int("lanes", self.lanes)
        check_seed(self.seed)

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the records at `positions` of this epoch's shuffle."""
        positions = np.asarray(positions, np.int64)
        _check_positions(positions, self.length)
        steps, windows = self._steps, self._windows
        step, lane = np.divmod(positions, self.lanes)
        head = self._head(lane)
        inner = step - head
        whole = (inner >= 0) & (inner < windows * self.run)
        rest = step == steps
        short = ~whole & ~rest

        # The data are `lanes` parts, each of `windows` runs and one more, which begins with the
        # head of a lane and ends with its tail; and a rest, which no lane has in full.
        place = np.empty_like(positions)
        window, within = np.divmod(inner[whole], self.run)
        slot = self._permute(epoch, window * self.lanes + lane[whole], windows * self.lanes)
        part, number = np.divmod(slot, max(windows, 1))
        place[whole] = part * steps + number * self.run + within
        part = self._permute(epoch, lane[short], self.lanes)
        begun = inner[short] < 0
        place[short] = part * steps + step[short] + np.where(begun, windows * self.run, 0)
        first = steps * self.lanes
        place[rest] = first + self._permute(epoch, lane[rest], self.length - first)
        start = int(_keys(self.seed, epoch)[0] % np.uint64(self.length))
        return (start + place) % self.length

    def runs(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many records of its run are before each position, and how many from it on.

        The record that follows in the run is `lanes` positions on.
        """
        step, lane = np.divmod(np.asarray(positions, np.int64), self.lanes)
        inner = step - self._head(lane)
        middle = self._windows * self.run
        before = np.where(
            inner < 0, step, np.where(inner < middle, inner % self.run, inner - middle)
        )
        behind = np.where(inner < middle, self.run - inner % self.run, self._steps - step)
        behind = np.where(inner < 0, np.minimum(-inner, self._steps - step), behind)
        rest = step == self._steps
        return np.where(rest, 0, before), np.where(rest, 1, behind)

    @property
    def _steps(self) -> int:
        """Records of a lane."""
        return self.length // self.lanes

    @property
    def _windows(self) -> int:
        """Whole runs of a lane."""
        return max(self._steps // self.run - 1, 0)

    def _head(self, lane: np.ndarray) -> np.ndarray:
        """Return the records of lanes before their first whole run; those of neighbors differ.

        Multiples of the golden ratio, without what is before the point: Knuth, "The art of computer
        programming", volume 3, section 6.4, theorem S.
        """
        return ((lane % _GRID * _GOLDEN % _GRID) * self.run) // _GRID

    def _permute(self, epoch: int, values: np.ndarray, n: int) -> np.ndarray:
        return permute(self.seed, epoch, values, max(n, 1))  # of none there are no values


@dataclass(frozen=True, eq=False)
class Weighted:
    """Draws with replacement: record i with probability weights[i] / sum(weights).

    Each position is drawn independently.

    Args:
      weights: float[n], at least 0 and not all 0; `balanced_weights(labels)` draws every class
        equally often.
      seed: another seed gives other draws; the Loader's own seed then makes the keys alone.
      num_samples: positions in an epoch; the number of records when None.

    Example:
      >>> sampler = Weighted(np.array([0.0, 1.0, 3.0]), seed=0, num_samples=4000)
      >>> counts = np.bincount(sampler.records(0, np.arange(4000)))
      >>> bool(counts[0] == 0 and 900 < counts[1] < 1100)
      True
    """

    weights: np.ndarray
    seed: int = 0
    num_samples: int | None = None
    with_replacement: ClassVar[bool] = True

    def __post_init__(self):
        weights = check_weights("weights", self.weights)
        if self.num_samples is not None:
            check_positive_int("num_samples", self.num_samples)
        check_seed(self.seed)
        object.__setattr__(self, "weights", weights)  # a list is the same as its array

    @property
    def length(self) -> int:
        """The number of positions in an epoch."""
        return self.num_samples or self.source_length

    @property
    def source_length(self) -> int:
        """The records that the order is for."""
        return len(self.weights)

    @cached_property
    def _cumulative(self) -> np.ndarray:
        return np.cumsum(self.weights, dtype=np.float64)

    def records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the records drawn for `positions` of this epoch."""
        positions = np.asarray(positions, np.int64)
        _check_positions(positions, self.length)

        draws = uniform(_keys(self.seed, epoch), positions.astype(np.uint64)) * self._cumulative[-1]
        # side="right" finds the first record whose cumulative weight exceeds the draw: never one of
        # weight 0.
        records = np.searchsorted(self._cumulative, draws, side="right")
        return records.astype(np.int64)


def balanced_weights(labels: np.ndarray) -> np.ndarray:
    """Return weights with which `Weighted` draws every class that occurs equally often.

    Args:
      labels: int[n], the class of each record, such as `source.features["label"]`.

    Returns:
      float64[n], 1 / (number of records of the same class).

    Example:
      >>> balanced_weights(np.array([7, 7, 7, 7, 2])).tolist()
      [0.25, 0.25, 0.25, 0.25, 1.0]
    """
    _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return 1.0 / counts[inverse]


def check_seed(seed: object) -> None:
    """Raise ValueError unless a seed is an int."""
    if not is_int(seed):
        raise ValueError(f"`seed` must be an int, got {seed!r}.")


def as_floats(values: object) -> np.ndarray:
    """Return a vector of numbers as float64[n], a copy; an empty one for what is none."""
    array = np.zeros(0)
    with contextlib.suppress(TypeError, ValueError):
        array = np.array(values, np.float64)
    return array if array.ndim == 1 else np.zeros(0)


def check_weights(name: str, values: object, count: int | None = None) -> np.ndarray:
    """Return finite numbers of at least 0, not all 0, as float64[count]."""
    array = as_floats(values)
    good = array.size > 0 and count in (None, array.size) and array.min() >= 0
    if not good or not 0 < array.sum() < np.inf:
        each = "finite numbers, one for each record,"
        wanted = each if count is None else f"{count} finite numbers"
        raise ValueError(
            f"`{name}` must be {wanted} of at least 0 with a positive sum, got"
            f" {reprlib.repr(values)}."
        )
    return array


def check_sampler(sampler: Sampler, count: int) -> None:
    """Refuse a sampler that was made for another source than one of `count` records.

    The records of a sampler of the user's own are checked as it goes, by `find_records`.
    """
    check_positive_int("shuffle.length", sampler.length)
    wanted = getattr(sampler, "source_length", count)
    if wanted != count:
        raise ValueError(
            f"`shuffle` must be for {count} records, those of the source, got "
            f"{type(sampler).__name__} for {wanted}: make it for this source."
        )
    if isinstance(sampler, (Sequential, Shuffled, Blocks)) and sampler.length > count:
        raise ValueError(
            f"`shuffle` must order at most {count} records, those of the source, got {sampler}: "
            f"give it length={count}."
        )


def find_records(sampler: Sampler, epoch: int, positions: np.ndarray, count: int) -> np.ndarray:
    """Return the records int64[k] at `positions`, each in [0, count).

    Raises:
      ValueError: the sampler gave anything else.
    """
    records = np.asarray(sampler.records(epoch, positions))
    integers = records.dtype.kind in "iu" or not records.size
    found = None
    if not integers or records.shape != positions.shape:
        found = f"{records.dtype}{list(records.shape)}"
    elif records.size and not (0 <= records.min() and records.max() < count):
        found = f"{records.min()} to {records.max()}"

    if found is not None:
        raise ValueError(
            f"`shuffle`: {sampler_name(sampler)}.records must give int64[{positions.size}] in "
            f"[0, {count}), the records of the source, got {found} in epoch {epoch}."
        )
    return records.astype(np.int64, copy=False)


def sampler_name(sampler: object) -> str:
    """Return the name by which a state knows a sampler.

    It is the kind, and the parameters if it is a dataclass, arrays, tuples and lists as a hash.

    Example:
      >>> sampler_name(Shuffled(5, seed=1))
      'Shuffled(length=5, seed=1)'
      >>> sampler_name(Weighted(np.ones(3)))
      'Weighted(weights=float64[3] 1244ffc7, seed=0, num_samples=None)'
    """
    kind = type(sampler).__name__
    if not dataclasses.is_dataclass(sampler):
        return kind
    parameters = [
        f"{field.name}={_value_name(getattr(sampler, field.name))}"
        for field in dataclasses.fields(sampler)
    ]
    return f"{kind}({', '.join(parameters)})"


def _value_name(value: object) -> str:
    """Return a text that is the same in every process: the type's name where no value prints so."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufUS":
        return f"{value.dtype}{list(value.shape)} {_digest(value.tobytes())}"
    if isinstance(value, (tuple, list)):
        names = ", ".join(map(_value_name, value))
        return f"{type(value).__name__}[{len(value)}] {_digest(names.encode())}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    return type(value).__name__ if isinstance(value, type) else sampler_name(value)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=4).hexdigest()


def _keys(seed: int, epoch: "int | np.ndarray") -> np.ndarray:
    """Return uint64[1], a key of a seed and an epoch; of epochs int64[k], uint64[k]."""
    seed_key = fold(np.zeros(1, np.uint64), seed)
    return fold(seed_key, epoch)


def _feistel(
    rows: int, columns: int, keys: np.ndarray, count: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a permutation of `range(rows * columns)` by keys [rounds, k or 1], for `count` values.

    Row and column in turn are shifted by a keyed hash of the other.
    """
    counts = np.uint64(rows), np.uint64(columns)
    of_columns = _hashes(keys[::2], counts[1], counts[0], count)
    of_rows = _hashes(keys[1::2], counts[0], counts[1], count)

    def permuted(values: np.ndarray) -> np.ndarray:
        row, column = np.divmod(values, counts[1])
        for number in range(_ROUNDS // 2):
            row = _wrapped(row + of_columns(number, column), counts[0])
            column = _wrapped(column + of_rows(number, row), counts[1])
        return row * counts[1] + column

    return permuted


def _hashes(
    keys: np.ndarray, domain: np.uint64, limit: np.uint64, count: int
) -> Callable[[int, np.ndarray], np.ndarray]:
    """Return a function of a number of `keys` and values below `domain`: hashes below `limit`.

    Those of one epoch are looked up where there are fewer values than the `count` that are asked.
    """

    def hashed(values: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return (mix(values + keys) >> np.uint64(1)) % limit

    if keys.shape[1] > 1 or domain > count:
        return lambda number, values: hashed(values, keys[number])
    table = hashed(np.arange(domain, dtype=np.uint64), keys)
    return lambda number, values: table[number].take(values.view(np.int64))


def _wrapped(sums: np.ndarray, limit: np.uint64) -> np.ndarray:
    """Return sums of two numbers below `limit`, modulo `limit`: below zero they would be huge."""
    return np.minimum(sums, sums - limit)


def _check_positions(positions: np.ndarray, n: int) -> None:
    if positions.size and not (0 <= positions.min() and positions.max() < n):
        raise ValueError(
            f"`positions` must lie in [0, {n}), got {positions.min()} to {positions.max()}."
        )
