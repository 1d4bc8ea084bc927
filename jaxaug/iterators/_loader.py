"""The Loader: a source in, global batches out, in an exact order that can be resumed anywhere."""

import contextlib
import time
import weakref
from collections.abc import Awaitable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxaug._checks import check_choice, check_positive_int
from jaxaug._typing import Array
from jaxaug.decode import Decoder
from jaxaug.iterators._build import BatchBuilder, Transform, group_size
from jaxaug.iterators._canvas import pick_canvas
from jaxaug.iterators._checkpoint import load_state, write_state
from jaxaug.iterators._cursor import Cursor, batches_per_epoch, from_state, to_state
from jaxaug.iterators._order import Order, Sequential, Shuffled, check_order, order_name
from jaxaug.iterators._prefetch import Prefetch
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._records import Rows, read_batches, read_rows, read_stream, stack_features
from jaxaug.iterators._stats import Stats
from jaxaug.sharding._mesh import batch_sharding, check_batch_sharding
from jaxaug.sharding._split import Part, local_parts, spans_processes

_RESERVED = {"image", "size", "valid", "index"}  # what the Loader itself puts into a batch
_READ_AHEAD = 2  # batches of encoded bytes that wait for the decoder


class Loader:
    """Iterates a source: decoded, augmented, sharded batches, prefetched by a background thread.

    A batch is a dict of global `jax.Array`s: "image", the source's features ("label" int32[B], ...), "valid"
    bool[B], "index" int32[B] (the record's number, -1 for padding; uint32[B, 2] (high, low) for 2^31 records and
    more). Without `transform`, "image" is the canvas uint8[B, H, W, 3] and "size" int32[B, 2] its used part.

    Position p of epoch e is the same record, with the same random parameters, for any batch size, number of
    devices and of processes, and after any resume. Batches never span epochs.

    Args:
      source: a `Source` (random access) or a `Stream`.
      batch_size: rows of the global batch; a multiple of the number of its shards.
      transform: pure function (key, sample) -> sample of one sample {"image": uint8[H, W, 3], "size": int32[2],
        features...}; it is vmapped and compiled. A `jaxaug.augment.Compose`, or any function of your own.
      batch_transform: pure function (key, group) -> group of `group_size` consecutive samples (its attribute, 2 by
        default), such as MixUp; the group also holds "valid" bool[group_size].
      seed: of the order and of every key.
      shuffle: True for a global shuffle each epoch, False for the source's order, or an `Order` of your own.
      epochs: how many epochs to yield in all; None never ends.
      last_batch: "drop" the tail of an epoch, or "pad" it with zero rows whose "valid" is False.
      on_error: what a record that cannot be decoded does: "raise" DecodeError, "mask" (a zero row with "valid"
        False), or "replace" (the next decodable record of the epoch's order takes its place, with its own index and
        key). Each is counted and named in `stats`. After an exception the next batch is the one behind the batch
        that failed, while `get_state()` stands before it.
      sharding: a NamedSharding that splits the batch axis over some mesh axes and replicates over the rest; all of
        `jax.devices()` on one axis by default.
      decoder: a `Decoder` of your own, with one device for each local shard; the Loader does not close it. By default
        one whose canvas fits 95 per cent of the images. Where several processes hold the same rows it must be
        deterministic, so that replicas are equal; the default then is.
      prefetch: how many finished batches wait for the consumer.

    Raises:
      ValueError, TypeError: a wrong argument; SourceError: an empty source.

    Example:
      >>> import io, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> buffer = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(buffer, "JPEG")
      >>> source = InMemory([buffer.getvalue()] * 4, {"label": np.arange(4)})
      >>> with Loader(source, batch_size=2 * jax.device_count(), last_batch="pad", epochs=1) as loader:
      ...     shapes = {name: array.shape[1:] for name, array in next(loader).items()}
      >>> shapes["image"]
      (64, 64, 3)
    """

    def __init__(
        self,
        source: Source | Stream,
        batch_size: int,
        *,
        transform: Transform | None = None,
        batch_transform: Transform | None = None,
        seed: int = 0,
        shuffle: bool | Order = True,
        epochs: int | None = None,
        last_batch: str = "drop",
        on_error: str = "raise",
        sharding: NamedSharding | None = None,
        decoder: Decoder | None = None,
        prefetch: int = 2,
    ):
        check_positive_int("batch_size", batch_size)
        check_positive_int("prefetch", prefetch)
        check_choice("last_batch", last_batch, ("drop", "pad"))
        check_choice("on_error", on_error, ("raise", "mask", "replace"))
        if epochs is not None:
            check_positive_int("epochs", epochs)
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
            raise ValueError(f"`seed` must be an int in [0, 2^64), got {seed!r}.")
        if not isinstance(shuffle, (bool, Order)):
            raise TypeError(f"`shuffle` must be True, False or an `Order`, got {shuffle!r}.")
        if not isinstance(decoder, (Decoder, type(None))):
            raise TypeError(f"`decoder` must be a jaxaug.Decoder or None, got {decoder!r}.")
        _check_function("transform", transform)
        _check_function("batch_transform", batch_transform)
        self._source, self._seed, self._prefetch = source, int(seed), prefetch
        self._order = _make_order(source, shuffle, self._seed)
        self._order_name = "Stream" if self._order is None else order_name(self._order)
        if self._order is None and on_error == "replace":
            raise ValueError(
                "`on_error` must be 'raise' or 'mask' for a stream, got 'replace': it has no other records."
            )
        sharding = batch_sharding() if sharding is None else check_batch_sharding(sharding)
        parts = local_parts(sharding, batch_size)
        _check_groups(batch_transform, parts)
        drop = last_batch == "drop"
        if self._order is not None and batches_per_epoch(self._order.length, batch_size, drop) == 0:
            raise ValueError(
                f"`batch_size` must be at most {self._order.length}, the records of an epoch, got {batch_size}: "
                "take a smaller one, or last_batch='pad'."
            )
        self._fingerprint = source.fingerprint()
        own = decoder is None
        shared = spans_processes(sharding)
        if decoder is None:
            devices = [part.devices[0] for part in parts]
            decoder = Decoder(pick_canvas(source, self._seed), devices=devices, deterministic=shared)
        elif shared:
            _check_replicas(decoder)
        parts = _order_parts(parts, decoder)
        local = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        self._rows = Rows(batch_size, local, drop, epochs)
        self._stats = Stats(decoder.in_flight)
        self._builder = BatchBuilder(
            source,
            self._order,
            decoder,
            parts,
            sharding,
            transform,
            batch_transform,
            self._seed,
            on_error,
            self._stats,
        )
        self._running = _Running()
        # Runs at close, when the last reference goes, and at exit: no thread outlives the Loader.
        self._finalizer = weakref.finalize(self, _finish, self._running, decoder if own else None)
        try:
            self.element_spec: dict[str, jax.ShapeDtypeStruct] = self._builder.spec(_feature_columns(source))
        except BaseException:
            self.close()
            raise
        self._cursor = self._next = Cursor(0, 0)  # behind the last delivered batch; where the next one is looked for

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> dict[str, Array]:
        if not self._finalizer.alive:
            raise ValueError("the Loader is closed: make a new one, and `set_state` it to go on.")
        if self._running.stage is None:
            self._running.stage = self._start()
        self._stats.asked()
        try:
            after, batch = next(self._running.stage)
        except BaseException:  # the end, a failed stage, or Ctrl-C: no thread stays, and the next call starts anew
            self._stop()
            raise
        self._next = after
        if isinstance(batch, Exception):
            self._stop()  # the next call goes on behind the batch that failed, a saved state before it
            raise batch
        self._cursor = after
        self._stats.handed(self._running.when_ready(batch.done))
        return batch.arrays

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        if self._order is None:
            raise TypeError("a Loader of a stream has no length: how many records it holds shows at its end.")
        return batches_per_epoch(self._order.length, self._rows.batch_size, self._rows.drop)

    def epoch(self) -> Iterator[dict[str, Array]]:
        """Exactly the rest of the current epoch, the whole of it at its start."""
        epoch = self._next.epoch
        while self._next.epoch == epoch:
            try:
                batch = next(self)
            except StopIteration:
                return
            yield batch
        self._stats.pause()

    def get_state(self) -> dict[str, Any]:
        """Where the consumer stands, as JSON scalars: the same on every process, whatever the batch size."""
        return to_state(self._cursor, self._seed, self._fingerprint, self._order_name)

    async def save(self, directory: Any) -> Awaitable[None]:
        """Orbax v1's `StatefulCheckpointable`: `get_state()`, as it is now, into a checkpoint.

        The first process writes: the state is that of all.
        """
        return write_state(self.get_state(), directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        """Orbax v1's `StatefulCheckpointable`: `set_state()` of what a checkpoint holds."""
        return load_state(self, directory)

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on behind the last batch that was delivered before `state` was taken.

        Raises:
          StateError: a damaged state, one of a newer version, of another data set, seed or `shuffle`.
        """
        length = None if self._order is None else self._order.length
        cursor = from_state(state, self._seed, self._fingerprint, self._order_name, length)
        self._stop()
        self._cursor = self._next = cursor

    @property
    def stats(self) -> dict[str, Any]:
        """What this process has done so far.

        Counts ("batches", "images", "bad", "masked", "replaced", "shrunk"), "bad_records" by name, "seconds" by a
        clock that stands from the end of `epoch()`, or an exception, until the next batch is asked for,
        "images_per_second", and "shares", how much of the time each stage was at work, 0 to 1:

        - "reader" gets bytes.
        - "decoder" decodes.
        - "device" is the hand-over to it, compilation included, the wait for canvases that it still reads, and the
          time that you held a batch which it had not finished: for the transform, or for what you had given it to do
          before.
        - "consumer" is the rest of the time between two batches: your code, and your steps on the device as far as
          you wait for them.

        The stage that is at work all the time is the "bottleneck".
        """
        return self._stats.snapshot()

    @property
    def source(self) -> Source | Stream:
        """What the Loader reads."""
        return self._source

    def close(self) -> None:
        """Stop the threads; the Loader yields nothing more."""
        self._stats.pause()
        self._finalizer()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _stop(self) -> None:
        self._stats.pause()
        self._running.stop()

    def _start(self) -> Prefetch:
        """Reader thread -> builder thread -> consumer."""
        if isinstance(self._source, Stream):
            records = read_stream(self._source, self._rows, self._next, self._stats)
        else:
            assert self._order is not None
            records = read_batches(self._source, self._order, self._rows, self._next, self._stats)
        reader = Prefetch(records, _READ_AHEAD, "jaxaug-reader")
        return Prefetch(self._builder.batches(reader), self._prefetch, "jaxaug-builder")


class _Running:
    """The pipeline while it runs: held apart from the Loader, so that it can be stopped when that is gone."""

    def __init__(self):
        self.stage: Prefetch | None = None
        self._waiter: ThreadPoolExecutor | None = None

    def when_ready(self, done: Any) -> "Future[float] | None":
        """When the device has computed `done`: a thread waits for that, unless it already has."""
        if done.is_ready():
            return None
        self._waiter = self._waiter or ThreadPoolExecutor(1, thread_name_prefix="jaxaug-device")
        return self._waiter.submit(_wait_until_ready, done)

    def stop(self) -> None:
        stage, self.stage = self.stage, None
        waiter, self._waiter = self._waiter, None
        if stage is not None:
            stage.close()
        if waiter is not None:
            waiter.shutdown(cancel_futures=True)


def _wait_until_ready(done: Any) -> float:
    """The time at which it is."""
    with contextlib.suppress(Exception):  # what failed on the device is told to whoever uses the batch
        done.block_until_ready()
    return time.perf_counter()


def _finish(running: _Running, decoder: Decoder | None) -> None:
    running.stop()
    if decoder is not None:
        decoder.close()


def _make_order(source: Source | Stream, shuffle: bool | Order, seed: int) -> Order | None:
    """The order of the records, None for a stream."""
    if isinstance(source, Stream):
        if shuffle is not False:
            raise ValueError("`shuffle` must be False for a stream, which has an order of its own, got True.")
        return None
    if not isinstance(source, Source):
        raise TypeError(
            f"`source` must have __len__, read, describe and fingerprint, got {type(source).__name__}: "
            "see jaxaug.iterators.Source, or wrap lists in InMemory and iterables in FromIterable."
        )
    if isinstance(shuffle, bool):
        return Shuffled(len(source), seed) if shuffle else Sequential(len(source))
    check_order(shuffle, len(source))
    return shuffle


def _check_function(name: str, value: Any) -> None:
    if isinstance(value, type):
        raise TypeError(f"`{name}` must be a transform, got the class {value.__name__}: write {value.__name__}(...).")
    if value is not None and not callable(value):
        raise TypeError(
            f"`{name}` must be a function (key, sample) -> sample, got {value!r}: `Compose` makes one of several."
        )


def _order_parts(parts: list[Part], decoder: Decoder) -> list[Part]:
    """The parts in the order of the decoder's devices."""
    by_device = {device: part for part in parts for device in part.devices}
    chosen = [by_device.get(device) for device in decoder.devices]
    if None in chosen or len(chosen) != len(parts) or len(set(chosen)) != len(parts):
        raise ValueError(
            f"`decoder` must have one device for each of {len(parts)} local shards, such as "
            f"{[part.devices[0] for part in parts]}, got {list(decoder.devices)}."
        )
    return [part for part in chosen if part is not None]


def _check_replicas(decoder: Decoder) -> None:
    """Engines and host threads differ by a level: who decodes the same rows as another process must choose alike."""
    if decoder.backend == "nvjpeg" and not decoder.deterministic:
        raise ValueError(
            "`decoder` must be deterministic where several processes hold the same rows, or their replicas would "
            "differ, got one that is not: make it with Decoder(..., deterministic=True)."
        )


def _check_groups(batch_transform: Transform | None, parts: list[Part]) -> None:
    rows = parts[0].stop - parts[0].start
    if batch_transform is not None and rows % group_size(batch_transform):
        raise ValueError(
            f"`batch_size` must give each shard a multiple of {group_size(batch_transform)} rows, the group of "
            f"`batch_transform`, got {rows} rows a shard."
        )


def _feature_columns(source: Source | Stream) -> dict[str, np.ndarray]:
    """The features of one record, as columns."""
    if isinstance(source, Stream):
        first = next(source.iterate(), None)
        if first is None:
            raise ValueError("`source` must yield at least one record, got an empty stream.")
        columns = stack_features([first[1]])
    else:
        columns = read_rows(source, np.zeros(1, np.int64))[1]
    if taken := sorted(columns.keys() & _RESERVED):
        raise ValueError(
            f"`source` must not have a feature named {', '.join(map(repr, taken))}: a batch's own entries are "
            f"{', '.join(map(repr, sorted(_RESERVED)))}. Rename it, or leave it out."
        )
    return columns
