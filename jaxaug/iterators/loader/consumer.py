"""The consumer's side of a Loader: batches taken one after another, and the place reached."""

import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

from jax import Array

from jaxaug._warn import warn_user
from jaxaug.iterators.loader.bad_records import BadRecordLimit, BadRecordsError
from jaxaug.iterators.loader.builder import BatchBuilder, BuiltBatch
from jaxaug.iterators.loader.decode import ColumnsDecoder
from jaxaug.iterators.loader.lifeline import Seat
from jaxaug.iterators.loader.pipeline import PendingBatch, Pipeline
from jaxaug.iterators.loader.plan import Plan
from jaxaug.iterators.loader.state import Cursor
from jaxaug.iterators.loader.stats import Stats


class Consumer:
    """Takes the batches of a plan in order, from a pipeline that it starts when it needs one.

    Args:
      plan: the parts of the pipeline.
      builder: builds the batches.
      resources: holds the pipeline and the decoder; they end with the consumer.
      seat: tells the other processes what is delivered, and this one whether they go along.

    Attributes:
      delivered: the cursor behind the last delivered batch.
      upcoming: the cursor where the next batch is looked for.
      start: the cursor that `move` set last.
      stats: counts what is delivered.
    """

    def __init__(
        self, plan: Plan, builder: BatchBuilder, resources: "Resources", seat: Seat | None = None
    ):
        self._seat = seat
        self._plan = plan
        self._builder = builder
        self._resources = resources
        self._one_at_a_time = threading.Lock()
        self._iterators = 0  # that were made
        self.delivered = Cursor(0, 0)
        self.upcoming = Cursor(0, 0)
        self.start = Cursor(0, 0)
        self.stats = Stats(plan.builders, plan.counted)
        self._warned = set[type[Warning]]()
        self._limit = BadRecordLimit(plan.options.max_bad)
        # No thread outlives the consumer: when the last reference goes it tells them to end.
        self._finalizer = weakref.finalize(self, resources.abandon)

    def take(self, epoch: int | None = None) -> dict[str, Array] | None:
        """Return the next batch; None at the end of all epochs, or if it is not of `epoch`.

        Raises:
          RuntimeError: another call takes a batch at the same time.
          Exception: the batch failed; the next call takes the one behind it.
        """
        self.check_usable()
        if not self._one_at_a_time.acquire(blocking=False):
            raise RuntimeError(
                "two calls take a batch of this Loader at once: it has one consumer; make one "
                "Loader for each, or hand the batches out from one thread."
            )
        try:
            self.stats.asked()
            return self._take_next(epoch)
        except CancelledError:
            self.check_usable()
            raise
        except BaseException:
            # A failed batch, or Ctrl-C: no thread stays, and the next call starts anew.
            self._stop()
            raise
        finally:
            self._one_at_a_time.release()

    def _take_next(self, epoch: int | None) -> dict[str, Array] | None:
        pending = self._pipeline().peek()
        if pending is not None and epoch in (None, pending.epoch):
            return self._deliver(pending)

        self.stats.pause()
        if pending is None:
            self._stop()
        else:  # the rest of the epoch makes no batch
            self.delivered = self.upcoming = Cursor(pending.epoch, 0)
        return None

    def take_epoch(self, epoch: int) -> Iterator[dict[str, Any]]:
        """Return an iterator of the batches that are left of `epoch`; the older ones end."""
        self._iterators += 1
        return self._rest_of(epoch, self._iterators)

    def take_steps(self, count: int | None) -> Iterator[dict[str, Any]]:
        """Return an iterator of the next `count` batches, of all without it; the older ones end."""
        self._iterators += 1
        return self._steps(count, self._iterators)

    def _check_newest(self, number: int) -> None:
        """Refuse to take a batch for the `number`-th iterator if a newer one was made."""
        if number != self._iterators:
            raise RuntimeError(
                "this iterator of the Loader takes no more batches, as a newer one was made, and "
                "both would share one position (two nested loops, or `zip(loader, loader)`): make "
                "a second Loader for the other loop."
            )

    def _rest_of(self, epoch: int, number: int) -> Iterator[dict[str, Any]]:
        """Yield the batches that are left of `epoch`."""
        self._check_newest(number)
        while self.upcoming.epoch == epoch:
            batch = self.take(epoch)
            if batch is None:
                return
            yield batch
            del batch  # or it would stay alive as long as the next one is awaited
            self._check_newest(number)
        self.stats.pause()

    def _steps(self, count: int | None, number: int) -> Iterator[dict[str, Any]]:
        """Yield the next `count` batches, over the ends of epochs; all of them without a count."""
        self._check_newest(number)
        taken = 0
        while count is None or taken < count:
            batch = self.take()
            if batch is None:
                return
            taken += 1
            yield batch
            del batch  # or it would stay alive as long as the next one is awaited
            self._check_newest(number)
        self.stats.pause()

    def move(self, cursor: Cursor) -> None:
        """Go on at `cursor`."""
        self._stop()
        self.delivered = self.upcoming = self.start = cursor
        if self._seat is not None:
            self._seat.delivered = cursor

    def close(self) -> None:
        """End the threads and wait for them; nothing can be taken any more."""
        self.stats.pause()
        if self._finalizer.detach() is not None:
            self._resources.close()
            if self._plan.store is not None:
                self._plan.store.close()

    def check_usable(self) -> None:
        """Refuse a consumer that was closed, or that was made before a fork.

        Raises:
          ValueError: closed.
          RuntimeError: forked.
        """
        if not self._finalizer.alive:
            raise ValueError("the Loader is closed: make a new one, and `set_state` it to go on.")
        if self._resources.process != os.getpid():
            raise RuntimeError(
                "this Loader was made before the process was forked, and its threads did not come "
                "along: make it after the fork, or start processes with 'spawn'."
            )

    def _deliver(self, pending: PendingBatch[BuiltBatch]) -> dict[str, Array]:
        error = pending.result.exception()
        self.check_usable()  # another thread may have closed the Loader meanwhile
        if self._seat is not None:
            self._seat.check(pending.after)
        self.upcoming = pending.after  # also after an error, while a saved state stands before it
        if error is not None:
            raise self._error_to_raise(error)

        batch = pending.result.result()
        records = batch.counts["images"] + batch.counts["masked"]
        error = self._limit.add(records, batch.bad)
        if error is not None:
            raise self._error_to_raise(error)

        self._tell_notices(pending.after)
        for index, warning in batch.warnings:
            self._warn(index, warning)
        self._resources.take()
        self.delivered = pending.after
        if self._seat is not None:
            self._seat.reach(pending.after)
        self.stats.delivered(batch.counts, batch.bad, batch.seconds)
        self.stats.handed(self._pipeline().when_ready(batch.done))
        return batch.arrays

    def _tell_notices(self, after: Cursor) -> None:
        """Count what was decoded to be kept, of rows before `after`, and warn of it."""
        notices = self._builder.notices
        for notice in sorted(notices, key=lambda notice: notice.start):
            if notice.start < after:
                notices.remove(notice)
                self.stats.count(notice.counts)
                for index, warning in notice.warnings:
                    self._warn(index, warning)

    def _warn(self, index: int, warning: Warning) -> None:
        """Warn of a record, once for each kind of warning."""
        if type(warning) in self._warned:
            return
        self._warned.add(type(warning))
        about = self._plan.source.describe(index)
        file = ", ".join(str(about[name]) for name in ("path", "key") if name in about)
        record = f"record {index} ({file})" if file else f"record {index}"
        warn_user(f"{record} {warning}", type(warning))

    def _error_to_raise(self, error: BaseException) -> BaseException:
        """Return the error that the user meets for the error of a batch."""
        if isinstance(error, BadRecordsError):
            self.stats.add_bad(error.bad)
            return error.error
        if isinstance(error, StopIteration):
            # It would end the consumer's loop as if the data were over.
            wrapped = RuntimeError(
                f"{self._plan.source!r} or a decoder raised StopIteration: {error}"
            )
            wrapped.__cause__ = error
            return wrapped
        return error

    def _pipeline(self) -> Pipeline[BuiltBatch]:
        """Return the running pipeline; start one at `upcoming` if there is none."""
        if self._resources.pipeline is not None:
            return self._resources.pipeline

        plan = self._plan
        pipeline = Pipeline(
            plan.reader.batches(plan.batches, self.upcoming),
            self._builder.build,
            self._builder.launch,
            workers=plan.builders,
            depth=plan.depth,
            is_light=plan.store is not None and plan.store.is_light,
        )
        return self._resources.start(pipeline)

    def _stop(self) -> None:
        self.stats.pause()
        self._resources.stop()


class Resources:
    """The threads of a Loader and the decoders that it made.

    They are held apart from the Loader, so that they can end when it is gone.

    Attributes:
      pipeline: the running pipeline, if there is one.
      decoder: the decoders of the columns, of which it closes those that the Loader made itself.
      process: the process that made them.
      seat: the Loader's place among the processes, if there are others.
    """

    def __init__(self, seat: Seat | None = None):
        self.seat = seat
        self.pipeline: Pipeline[BuiltBatch] | None = None
        self.decoder: ColumnsDecoder | None = None
        self.process = os.getpid()
        self._closed = False

    def start(self, pipeline: Pipeline[BuiltBatch]) -> Pipeline[BuiltBatch]:
        """Keep a pipeline and start it; end it if another thread has closed the Loader."""
        self.pipeline = pipeline  # first: whoever is interrupted stops it
        pipeline.start()
        if self._closed:
            self.abandon()
        return pipeline

    def take(self) -> None:
        """Take the batch that was delivered out of the pipeline."""
        if self.pipeline is not None:
            self.pipeline.pop()

    def stop(self) -> None:
        """End the pipeline and wait for it."""
        pipeline = self.pipeline
        self.pipeline = None
        if pipeline is not None:
            pipeline.stop()
            pipeline.join()

    def close(self) -> None:
        """End everything and wait for it, and say so to the other processes."""
        if self.seat is not None and self.process == os.getpid():
            self.seat.leave()
        pipeline = self.abandon()
        if pipeline is not None:
            pipeline.join()

    def abandon(self) -> Pipeline | None:
        """Tell everything to end, without waiting; return the pipeline that does.

        The collector may call this in a thread that the pipeline itself waits for.
        """
        # A fork has none of the threads, and maybe a lock that one of them held.
        if self.process != os.getpid():
            return None

        self._closed = True
        pipeline = self.pipeline
        self.pipeline = None
        close = None if self.decoder is None else self.decoder.close
        if pipeline is not None:
            pipeline.stop(close)
        elif close is not None:
            close()
        return pipeline
