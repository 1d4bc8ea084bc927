"""The Loader: a source in, global batches out, in an exact order that can be resumed anywhere."""

import os
import threading
import warnings
import weakref
from collections.abc import Awaitable, Iterator
from concurrent.futures import CancelledError
from typing import Any

from jax.sharding import NamedSharding

from jaxaug._typing import Array
from jaxaug.decode import Decoder
from jaxaug.iterators._agreement import peers_of
from jaxaug.iterators._arguments import Options, check_options
from jaxaug.iterators._bad_records import BadRecordsError
from jaxaug.iterators._builder import BuiltBatch
from jaxaug.iterators._compile import CompiledBatch, Transform
from jaxaug.iterators._pipeline import Item, Pipeline
from jaxaug.iterators._plan import make_plan
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._reader import read_batches, read_stream
from jaxaug.iterators._sample import take_sample
from jaxaug.iterators._sampler import Sampler
from jaxaug.iterators._state import (
    Cursor,
    batches_per_epoch,
    from_state,
    load_state,
    start_of_batch,
    to_state,
    write_state,
)
from jaxaug.iterators._stats import Stats
from jaxaug.sharding._mesh import ambient_sharding, check_batch_sharding


class Loader:
    """Iterates a source: decoded, augmented, sharded batches, prefetched by background threads.

    A batch is a dict of global `jax.Array`s: "image", the source's features ("label" int32[B],
    ...), "valid" bool[B], "index" int32[B] (the record's number, -1 for padding; uint32[B, 2]
    (high, low) for 2^31 records and more). Without `transform`, "image" is the canvas uint8[B, H,
    W, 3] and "size" int32[B, 2] its used part. Rows
    that are not valid are blank: zeros, integer "label" and "labels" -1, "mask" `mask_fill`.

    `for batch in loader` is the rest of the current epoch, a whole one at its start; `next(loader)`
    and `steps()` go on over epochs. A `for` that was left early goes on where it was; `restart()`
    begins the next epoch.

    Position p of epoch e is the same record, with the same random parameters, for any batch size,
    number of devices and of processes, and after any resume. Batches never span epochs. One thread
    at a time may take batches.

    Args:
      source: a `Source` (random access) or a `Stream`.
      batch_size: rows of the global batch; a multiple of the number of its shards.
      transform: pure function (key, sample) -> sample of one sample {"image": uint8[H, W, 3],
        "size": int32[2], features...}; it is vmapped and compiled, here and once. A
        `jaxaug.augment.Compose`, or any function of your own; it may return any dict of arrays,
        nested ones too. Pixels of `InMemory` come without "size".
      batch_transform: pure function (key, group) -> group of `group_size` consecutive samples (its
        attribute, 2 by default), such as MixUp; the group also holds "valid" bool[group_size].
      seed: of the order and of every key.
      shuffle: True for a global shuffle each epoch, False for the source's order, or a `Sampler` of
        your own.
      epochs: how many epochs to yield in all; None never ends.
      canvas: (H, W) that images are decoded to. By default the size of the images where all have
        one, else what fits 95 per cent of them on each side, at most 1,024.
      mask_fill: what a "mask" of integers [n, Hm, Wm(, C)] holds outside of its image; bool has
        False, float 0.
      last_batch: "drop" the tail of an epoch, or "pad" it with blank rows.
      on_error: what a record that cannot be decoded does: "raise" DecodeError, "mask" (a blank
        row), or "replace" (the next decodable record of the epoch's order takes its place, with its
        own index and key). Each is counted and named in `stats`. After an exception the next batch
        is the one behind the batch that failed, while `get_state()` stands before it.
      sharding: a NamedSharding that splits the batch axis over some mesh axes and replicates over
        the rest; by default the mesh of `jax.set_mesh` if that has one axis, else all of
        `jax.devices()`. Where it spans processes, these compare data, order and options when the
        Loader is made.
      decoder: a `Decoder` of your own, with one device for each local shard; the Loader does not
        close it. Where several processes hold the same rows it must be deterministic, so that
        replicas are equal; the default then is.
      prefetch: how many finished batches wait for the consumer.

    Raises:
      ValueError, TypeError: a wrong argument; SourceError: an empty source.

    Example:
      >>> import io, jax, numpy as np, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> buffer = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(buffer, "JPEG")
      >>> source = InMemory([buffer.getvalue()] * 4, {"label": np.arange(4)})
      >>> with Loader(source, batch_size=2 * jax.device_count(), last_batch="pad") as loader:
      ...     shapes = [batch["image"].shape[1:] for batch in loader]
      >>> shapes[0]
      (30, 40, 3)
    """

    def __init__(
        self,
        source: Source | Stream,
        batch_size: int,
        *,
        transform: Transform | None = None,
        batch_transform: Transform | None = None,
        seed: int = 0,
        shuffle: bool | Sampler = True,
        epochs: int | None = None,
        canvas: tuple[int, int] | None = None,
        mask_fill: int = 255,
        last_batch: str = "drop",
        on_error: str = "raise",
        sharding: NamedSharding | None = None,
        decoder: Decoder | None = None,
        prefetch: int = 2,
    ):
        sharding = ambient_sharding() if sharding is None else check_batch_sharding(sharding)
        options = Options(
            source,
            batch_size,
            transform,
            batch_transform,
            seed,
            shuffle,
            epochs,
            canvas,
            mask_fill,
            last_batch,
            on_error,
            decoder,
            prefetch,
        )
        self._resources = _Resources()
        self._peers = peers_of(sharding)
        try:
            with self._peers.compare("Loader(...)") as facts:
                self._make(options, sharding, facts)
        except BaseException:
            self._resources.close()
            raise

        if note := self._plan.note(self.element_spec):
            warnings.warn(note, stacklevel=2)
        self._one_consumer = threading.Lock()
        self._cursor = Cursor(0, 0)  # behind the last delivered batch
        self._next = Cursor(0, 0)  # where the next one is looked for
        # No thread outlives the Loader: when the last reference goes it tells them to end.
        self._finalizer = weakref.finalize(self, self._resources.abandon)

    def _make(self, options: Options, sharding: NamedSharding, facts: dict[str, Any]) -> None:
        check_options(options)
        plan = make_plan(options, sharding)
        self._plan = plan
        self._resources.decoder = plan.own_decoder
        self._stats = Stats(plan.builders)
        self._compiled = plan.compile()
        self._compiled_sample: CompiledBatch | None = None
        self._builder = plan.make_builder(self._compiled, options.on_error)
        self.element_spec: dict[str, Any] = self._builder.spec()
        facts |= plan.facts()
        facts["element_spec"] = self.element_spec
        self._fingerprint: str = facts["fingerprint"]

    def __repr__(self) -> str:
        rows = self._plan.batches.batch_size
        return f"Loader({self.source!r}, batch_size={rows}, order={self._plan.sampler_name})"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rest of the current epoch, the whole of it at its start."""
        self._check_usable()
        epochs = self._plan.batches.epochs
        if epochs is not None and self._next.epoch >= epochs:
            warnings.warn(
                f"the Loader's epochs={epochs} are used up, so this loop yields nothing: make it with more, or with "
                "epochs=None and bound the loop.",
                stacklevel=2,
            )
        return self._batches_of(self._next.epoch)

    def __next__(self) -> dict[str, Any]:
        batch = self._take(None)
        if batch is None:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        sampler = self._plan.sampler
        if sampler is None:
            raise TypeError(
                "a Loader of a stream has no length: how many records it holds shows at its end."
            )
        return batches_per_epoch(
            sampler.length, self._plan.batches.batch_size, self._plan.batches.drop
        )

    def steps(self, count: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the next `count` batches, over the ends of epochs; without a count all that
        `epochs` leaves.
        """
        taken = 0
        while count is None or taken < count:
            batch = self._take(None)
            if batch is None:
                return
            taken += 1
            yield batch
            del batch  # or it would stay alive as long as the next one is awaited
        self._stats.pause()

    def restart(self) -> None:
        """Begin the next epoch if any batch of this one was delivered."""
        if self._next.position > 0:
            self._stop()
            self._cursor = self._next = Cursor(self._next.epoch + 1, 0)

    def sample(self, index: int, epoch: int = 0, *, position: int | None = None) -> dict[str, Any]:
        """Return one record as the Loader delivers it in `epoch`, before `batch_transform`.

        Args:
          index: the record's number in the source.
          epoch: its random parameters are those of this epoch.
          position: where it stands in the epoch; needed where the order may draw a record twice.

        Returns:
          "original": the whole upright image, uint8[h, w, 3]; "sample": dict of numpy arrays,
          bit-equal to a row of the batches of a deterministic decoder; "key": the key that
          `transform` gets; "describe": what names it.

        Raises:
          TypeError: the source is a stream.
          IndexError: no such record.
          DecodeError: it cannot be decoded.
        """
        self._check_usable()
        if self._compiled_sample is None:
            mixes = self._plan.function.batch_transform is not None
            self._compiled_sample = (
                self._plan.compile(batch_transform=False) if mixes else self._compiled
            )
        return take_sample(self._plan, self._compiled_sample, index, epoch, position)

    def get_state(self) -> dict[str, Any]:
        """Return where the consumer stands, as JSON scalars: the same on every process, for any
        batch size.
        """
        return to_state(self._cursor, self._plan.seed, self._fingerprint, self._plan.sampler_name)

    async def save(self, directory: Any) -> Awaitable[None]:
        """Write `get_state()` into a checkpoint: Orbax v1's `StatefulCheckpointable`, to be awaited
        by it.

        The first process writes: the state is that of all.
        """
        return write_state(self.get_state(), directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        """Restore what `save` wrote: Orbax v1's `StatefulCheckpointable`, to be awaited by it."""
        return load_state(self, directory)

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on after the last batch that was delivered before `state` was taken.

        Where the sharding spans processes each of them must call this, with the same state.

        Raises:
          StateError: a damaged state, one of a newer version, of another data set, seed or
            `shuffle`.
          ValueError: another process was given another state.
        """
        plan = self._plan
        length = None if plan.sampler is None else plan.sampler.length
        with self._peers.compare("Loader.set_state") as facts:
            cursor = from_state(state, plan.seed, self._fingerprint, plan.sampler_name, length)
            facts["state"] = state
        if length is not None:
            cursor = start_of_batch(cursor, length, plan.batches.batch_size, plan.batches.drop)
        self._stop()
        self._cursor = self._next = cursor

    @property
    def stats(self) -> dict[str, Any]:
        """What this process has delivered so far.

        Counts ("batches", "images", "bad", "masked", "replaced", "shrunk"), "bad_records" by name,
        "seconds" by a clock that stands from the end of an epoch's loop, or an exception, until the
        next batch is asked for, "images_per_second", and "shares", how much of the time each stage
        was at work, 0 to 1:

        - "reader" gets bytes.
        - "decoder" decodes.
        - "device" is the hand-over to it, the wait for canvases that it still reads, and the time
          that you held a
          batch which it had not finished: for the transform, or for what you had given it to do
          before.
        - "consumer" is the rest of the time between two batches: your code, and your steps on the
          device as far as you wait for them.

        The stage that is at work all the time is the "bottleneck".
        """
        return self._stats.snapshot()

    @property
    def source(self) -> Source | Stream:
        """The source that the Loader reads."""
        return self._plan.source

    @property
    def decoder(self) -> Decoder | None:
        """The decoder, with its canvas and its own `stats`; None where the source has pixels."""
        return self._plan.decoder

    def close(self) -> None:
        """Stop the threads; the Loader yields nothing more."""
        self._stats.pause()
        if self._finalizer.detach() is not None:
            self._resources.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _batches_of(self, epoch: int) -> Iterator[dict[str, Any]]:
        while self._next.epoch == epoch:
            batch = self._take(epoch)
            if batch is None:
                return
            yield batch
            del batch  # or it would stay alive as long as the next one is awaited
        self._stats.pause()

    def _take(self, epoch: int | None) -> dict[str, Array] | None:
        """Return the next batch; None at the end of all epochs, or where the next one is not of
        `epoch`.
        """
        self._check_usable()
        if not self._one_consumer.acquire(blocking=False):
            raise RuntimeError(
                "two calls take a batch of this Loader at once: it has one consumer; make one Loader for each, or "
                "hand the batches out from one thread."
            )
        try:
            self._stats.asked()
            item = self._pipeline().peek()
            if item is not None and epoch in (None, item.epoch):
                return self._deliver(item)
            if item is not None:  # the rest of the epoch makes no batch
                self._cursor = self._next = Cursor(item.epoch, 0)
            self._stats.pause()
            if item is None:
                self._stop()
            return None
        except CancelledError:
            self._check_usable()
            raise
        except (
            BaseException
        ):  # a failed batch, or Ctrl-C: no thread stays, and the next call starts anew
            self._stop()
            raise
        finally:
            self._one_consumer.release()

    def _deliver(self, item: Item[BuiltBatch]) -> dict[str, Array]:
        error = item.result.exception()
        self._check_usable()  # another thread may have closed the Loader meanwhile
        self._next = (
            item.after
        )  # after an error the next batch, while a saved state stands before it
        if isinstance(error, BadRecordsError):
            self._stats.add_bad(error.bad)
            raise error.error
        if isinstance(
            error, StopIteration
        ):  # it would end the consumer's loop as if the data were over
            raise RuntimeError(
                f"{self.source!r} or a decoder raised StopIteration: {error}"
            ) from error
        if error is not None:
            raise error

        batch = item.result.result()
        self._resources.take()
        self._cursor = item.after
        self._stats.delivered(batch.counts, batch.bad, batch.seconds)
        self._stats.handed(self._pipeline().when_ready(batch.done))
        return batch.arrays

    def _pipeline(self) -> Pipeline[BuiltBatch]:
        if self._resources.pipeline is None:
            plan = self._plan
            if isinstance(plan.source, Stream):
                reads = read_stream(
                    plan.source, plan.batches, plan.features, plan.mask_fill, self._next
                )
            else:
                assert plan.sampler is not None and plan.read is not None
                reads = read_batches(
                    plan.read, len(plan.source), plan.sampler, plan.batches, self._next
                )
            return self._resources.start(
                Pipeline(
                    reads,
                    self._builder.build,
                    plan.builders,
                    self._plan.options.prefetch + plan.builders,
                )
            )
        return self._resources.pipeline

    def _stop(self) -> None:
        self._stats.pause()
        self._resources.stop()

    def _check_usable(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("the Loader is closed: make a new one, and `set_state` it to go on.")
        if self._resources.process != os.getpid():
            raise RuntimeError(
                "this Loader was made before the process was forked, and its threads did not come along: make it "
                "after the fork, or start processes with 'spawn'."
            )


class _Resources:
    """The threads of a Loader and the decoder that it made: held apart, so that they end when it is
    gone.
    """

    def __init__(self):
        self.pipeline: Pipeline[BuiltBatch] | None = None
        self.decoder: Decoder | None = None
        self.process = os.getpid()
        self._closed = False

    def start(self, pipeline: Pipeline[BuiltBatch]) -> Pipeline[BuiltBatch]:
        """Keep a pipeline; end it at once if another thread has closed the Loader meanwhile."""
        self.pipeline = pipeline
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
        """End everything and wait for it."""
        pipeline = self.abandon()
        if pipeline is not None:
            pipeline.join()

    def abandon(self) -> Pipeline | None:
        """Tell everything to end, without waiting; return the pipeline that does.

        The collector may call this in a thread that the pipeline itself waits for.
        """
        if (
            self.process != os.getpid()
        ):  # a fork has none of the threads, and maybe a lock that one of them held
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
