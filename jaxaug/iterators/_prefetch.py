"""One stage of the pipeline: an iterator that runs in a thread of its own, a few items ahead."""

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Iterates the generator `items` in a background thread, at most `depth` items ahead of the consumer.

    An exception of `items` reaches the consumer at the place of the item, and ends the iteration. `close` stops
    the thread and waits for it; the thread refers to `items` alone, so an owner that is dropped can be collected.
    """

    def __init__(self, items: Generator[T, None, None], depth: int, name: str):
        self._buffer = _Buffer(depth)
        self._thread = threading.Thread(target=_fill, args=(items, self._buffer), name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._buffer.get()

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._buffer.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()


class _Buffer:
    """A bounded queue whose two ends can both be told to stop."""

    def __init__(self, depth: int):
        self._items: deque = deque()
        self._depth = depth
        self._changed = threading.Condition()
        self._stopped = False
        self._end: BaseException | None = None  # raised once the items before it are taken

    def put(self, item) -> bool:
        """Wait for room; False when the consumer has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._items) < self._depth)
            if not self._stopped:
                self._items.append(item)
                self._changed.notify_all()
            return not self._stopped

    def end(self, error: BaseException) -> None:
        with self._changed:
            self._end = error
            self._changed.notify_all()

    def get(self):
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._end or self._stopped)
            if self._items and not self._stopped:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            raise StopIteration if self._end is None else self._end

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()


def _fill(items: Generator, buffer: _Buffer) -> None:
    try:
        for item in items:
            if not buffer.put(item):
                break
            del item  # or the last item would stay alive as long as the next one is being made
        buffer.end(StopIteration())
    except BaseException as error:
        buffer.end(error)
    finally:
        items.close()  # a generator's clean-up runs in the thread that ran it
