"""The order of a stream: its parts in lanes, each through a seeded buffer."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxaug._splitmix import fold, uniform
from jaxaug.errors import SourceError
from jaxaug.iterators.samplers.sampler import permute

_DRAWS = 1024  # made at a time

SKIPPED = object()  # stands where an item is not wanted

Opened = Callable[[], Iterable]


@dataclass(frozen=True)
class Parts:
    """The order in which the items of several iterables come, a function of (seed, epoch).

    Parts are dealt out to `lanes`, and these take turns: first an item of each, then the next of
    each, as long as they have some. So it is known, without reading, which items come at which
    positions. With a buffer the parts come in another order each epoch, and within a part an item
    is drawn from the next `buffer` ones.

    Attributes:
      opened: gives a fresh iterator of each part.
      lengths: how many items each has; None for a single part of unknown length.
      lanes: parts that are read at a time.
      buffer: items that one is drawn from; 0 for the order as it is.
      seed: another seed gives other orders.
    """

    opened: Sequence[Opened]
    lengths: Sequence[int] | None
    lanes: int
    buffer: int
    seed: int

    def dealt(self, epoch: int) -> list[list[int]]:
        """Return the parts of each lane."""
        count = len(self.opened)
        order = np.arange(count)
        if self.buffer:
            order = permute(self.seed, epoch, order, count)
        lanes = min(self.lanes, count)
        return [order[lane::lanes].tolist() for lane in range(lanes)]

    def schedule(self, epoch: int, start: int) -> Iterator[tuple[int, int]]:
        """Yield the lane of each position from `start` on, and the number of the item in it."""
        if self.lengths is None:
            yield from zip(itertools.repeat(0), itertools.count(start))
            return
        sizes = np.array([sum(self.lengths[part] for part in lane) for lane in self.dealt(epoch)])
        turn, passed = _turn_of(sizes, start)
        while (alive := np.flatnonzero(sizes > turn)).size:
            yield from ((lane, turn) for lane in alive[passed:].tolist())
            turn, passed = turn + 1, 0

    def items(
        self, epoch: int, start: int, wanted: np.ndarray, share: tuple[int, int] = (0, 1)
    ) -> Iterator[Any]:
        """Yield the item of each position from `start` on, or `SKIPPED`.

        Args:
          epoch, start: of the first position.
          wanted: bool[k], whether position start + i is, by i % k.
          share: (number, count), of which the lanes number, number + count, ... alone are read.

        Raises:
          SourceError: a part has fewer items, or more, than it was said to have.
        """
        dealt = self.dealt(epoch)
        lanes = [Lane(self, epoch, numbers) for numbers in dealt]
        for (lane, ordinal), use in zip(self.schedule(epoch, start), self.uses(wanted)):
            if not use or lane % share[1] != share[0]:
                yield SKIPPED
                continue
            try:
                item = lanes[lane].take(ordinal)
            except StopIteration:  # a part of unknown length is at its end
                return
            yield item
        for lane in lanes:
            lane.check_end()

    def uses(self, wanted: np.ndarray) -> Iterator[bool]:
        """Return whether each position is wanted: all of them where the end must be found."""
        return itertools.repeat(True) if self.lengths is None else itertools.cycle(wanted.tolist())

    def items_of(self, epoch: int, part: int) -> Iterator:
        """Yield the items of a part in the order of an epoch.

        A data set with a shuffle of its own, as those of Hugging Face, is told the epoch.
        """
        opened: Any = self.opened[part]()
        if callable(getattr(opened, "set_epoch", None)):
            opened.set_epoch(epoch)
        found = iter(opened)
        if not self.buffer:
            return found
        key = np.zeros(1, np.uint64)
        for word in (self.seed, epoch, part):
            key = fold(key, word)
        return _shuffled(found, self.buffer, key)


class Lane:
    """Items of some parts, one part after the other; those that are not taken are skipped.

    Args:
      parts: of the stream.
      epoch: of the order.
      numbers: the parts of this lane.
    """

    def __init__(self, parts: Parts, epoch: int, numbers: list[int]):
        self._parts = parts
        self._epoch = epoch
        self._numbers = numbers
        lengths = parts.lengths
        self._ends = None if lengths is None else np.cumsum([lengths[each] for each in numbers])
        self._at = -1  # the open part, by its place in the lane
        self._next = 0  # the item that it gives next
        self._items: Iterator = iter(())

    def take(self, ordinal: int) -> Any:
        """Return an item by its number in the lane, which grows from call to call.

        Raises:
          StopIteration: a stream of unknown length has no more.
          SourceError: a part has fewer items, or more, than it was said to have.
        """
        place, first = 0, 0
        if self._ends is not None:
            place = int(np.searchsorted(self._ends, ordinal, side="right"))
            first = int(self._ends[place - 1]) if place else 0
        if place != self._at:
            if self._at + 1 == place:
                self.check_end()
            self._items = self._parts.items_of(self._epoch, self._numbers[place])
            self._at, self._next = place, first
        for _ in range(self._next, ordinal):
            self._take_next()
        self._next = ordinal + 1
        return self._take_next()

    def _take_next(self) -> Any:
        if self._ends is None:
            return next(self._items)
        for item in self._items:
            return item
        raise self._wrong("fewer")

    def check_end(self) -> None:
        """Raise SourceError where the open part was read to its end, and has more items."""
        if self._ends is None or self._at < 0 or self._next < self._ends[self._at]:
            return
        if next(self._items, self) is not self:
            raise self._wrong("more")

    def _wrong(self, how: str) -> SourceError:
        part = self._numbers[self._at]
        assert self._parts.lengths is not None
        return SourceError(
            f"`lengths`: part {part} has {how} items than {self._parts.lengths[part]}: count them "
            "anew."
        )


def _turn_of(sizes: np.ndarray, start: int) -> tuple[int, int]:
    """Return the turn of a position, and how many lanes have had theirs in it."""
    low, high = 0, int(sizes.max(initial=0))
    while low < high:  # the last turn before which at most `start` items came
        middle = (low + high + 1) // 2
        if np.minimum(sizes, middle).sum() <= start:
            low = middle
        else:
            high = middle - 1
    return low, start - int(np.minimum(sizes, low).sum())


def _shuffled(items: Iterator, buffer: int, key: np.ndarray) -> Iterator:
    """Yield items in an order of the key: each is drawn from the next `buffer` ones."""
    draws = _draws(key)
    waiting = list(itertools.islice(items, buffer))
    for item in items:
        place = int(next(draws) * len(waiting))
        yield waiting[place]
        waiting[place] = item
    while waiting:
        place = int(next(draws) * len(waiting))
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        yield waiting.pop()


def _draws(key: np.ndarray) -> Iterator[float]:
    """Yield numbers in [0, 1)."""
    for start in itertools.count(0, _DRAWS):
        yield from uniform(key, np.arange(start, start + _DRAWS, dtype=np.uint64)).tolist()
