"""The Loader: a source in, global batches out, in an exact order that can be resumed anywhere."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Never, TypeAlias

from jax.sharding import NamedSharding

from jaxaug.decode import ColumnDecoder, Decoder
from jaxaug.iterators.loader.agreement import peers_of
from jaxaug.iterators.loader.arguments import Options, check_known, checked_options
from jaxaug.iterators.loader.batch_function import Transform
from jaxaug.iterators.loader.consumer import Consumer, Resources
from jaxaug.iterators.loader.labels import check_labels
from jaxaug.iterators.loader.plan import make_plan
from jaxaug.iterators.loader.sample import take_sample, texts_of_batch
from jaxaug.iterators.loader.state import Checkpointable, Cursor, from_state, to_state
from jaxaug.iterators.samplers.sampler import Sampler
from jaxaug.iterators.sources.protocol import Source, Stream
from jaxaug.sharding._mesh import ambient_sharding, check_batch_sharding

Decode: TypeAlias = ColumnDecoder | Decoder


class Loader(Checkpointable):
    """Iterates a source: decoded, augmented, sharded batches, prefetched by background threads.

    A batch is a dict of global `jax.Array`s: "image", the source's features ("label" int32[B],
    ...), "valid" bool[B], "index" int32[B] (the record's number, -1 for padding; uint32[B, 2]
    (high, low) for 2^31 records and more). Without `transform`, "image" is the canvas uint8[B, H,
    W, 3] ([B, H, W, 1] of a gray `Decoder`) and "size" int32[B, 2] its used part; "original_size"
    int32[B, 2] is the (height, width) of the upright image before it was shrunk to the canvas. Rows
    that are not valid are blank: zeros, integer "label", "labels", "box_labels", "box_ids" and
    "image_id" -1, masks what their decoder's `fill` says, also in dicts and named tuples of a
    transform's own.

    `for batch in loader` is the rest of the current epoch, a whole one at its start; `next(loader)`
    and `steps()` continue across epochs. If a `for` loop was left early, the next one continues
    from there; `restart()` begins the next epoch. There is one position: an iterator raises
    RuntimeError once a newer one was made, as in nested loops and `zip(loader, loader)`.

    Position p of epoch e is the same record, with the same random parameters, for any batch size,
    number of devices and of processes, and after any resume. Batches never span epochs. One thread
    at a time may take batches.

    Args:
      source: a `Source` (random access) or a `Stream`.
      batch_size: rows of the global batch; a multiple of the number of its shards.
      transform: pure function (key, sample) -> sample of one sample {"image": uint8[H, W, 3],
        "size": int32[2], "original_size", "epoch": int32, features...}; it is mapped over the batch
        and compiled once, when the Loader is made. A `jaxaug.augment.Compose`, or any function of
        your own; it may return any dict of arrays, nested ones too, of which "epoch" is left out.
        Pixels of `InMemory` come without sizes.
      batch_transform: pure function (key, group) -> group of `group_size` consecutive samples (its
        attribute, 2 by default), such as MixUp; the group also holds "valid" bool[group_size].
      seed: of the order and of every key.
      shuffle: True for a global shuffle each epoch, False for the source's order, or a `Sampler`.
      epochs: how many epochs to yield in all; None never ends.
      decode: how columns are decoded: a description such as `decode.Image(canvas=(512, 512))`, for
        "image", or a dict of them by column, {"image": Image(), "right": Image(like="image"),
        "mask": Mask(fill=0)}; None for a column takes it as it is. A running `Decoder` of your own,
        with one device for each local shard, may serve several Loaders, which do not close it.
        Columns that are not named are decoded as the source declares, else by their names.
      max_bad: the largest share of records, among the last 10,000 of this process, that may be
        masked or replaced; where at least 100 exceed it, a DecodeError names ten of them. None sets
        no limit. A warning tells of the first bad record, the tenth, the hundredth, and so on.
      last_batch: "drop" the tail of an epoch, or "pad" it with blank rows.
      on_error: what happens to a record that cannot be decoded: "raise" DecodeError, "mask" (a
        blank row), or "replace" (the next decodable record of the epoch's order takes its place,
        with its own index and key). Each is counted in `stats`, the first 1,000 are named. After an
        exception the next call returns the batch after the one that failed; until then
        `get_state()` is the position before the failed one.
      sharding: a NamedSharding that splits the batch axis over some mesh axes and replicates over
        the rest; by default the mesh of `jax.set_mesh` if that has one axis, else all of
        `jax.devices()`. Where it spans processes, these compare data, order and options when the
        Loader is made.
      prefetch: how many finished batches wait for the consumer.
      keep: where each record stays once it is decoded: later epochs read and decode nothing, and
        have the same batches to the bit. "device": each device of the mesh holds a share, whose
        memory is taken when the Loader is made. "device:0.4": that share of the records is there,
        the rest on the host. "host": in memory. Of several processes each keeps what it has
        decoded. "disk:DIR": in files of a directory, for all processes and later runs; what has
        changed in the source, as its `stamps` say, is decoded again. For sources with random
        access. None keeps nothing.

    Raises:
      ValueError, TypeError: a wrong argument; SourceError: an empty source; MemoryError: the data
        does not fit where it is to be kept.

    Example:
      >>> import io, jax, numpy as np, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> buffer = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(buffer, "JPEG")
      >>> source = InMemory([buffer.getvalue()] * 4, {"label": np.arange(4)})
      >>> with Loader(source, batch_size=2 * jax.device_count(), last_batch="pad") as loader:
      ...     next(loader)["image"].shape[1:]
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
        decode: "Decode | Mapping[str, Decode | None] | None" = None,
        max_bad: float | None = 0.01,
        last_batch: str = "drop",
        on_error: str = "raise",
        sharding: NamedSharding | None = None,
        prefetch: int = 2,
        keep: str | None = None,
        **unknown: Never,
    ):
        check_known(unknown)
        sharding = ambient_sharding() if sharding is None else check_batch_sharding(sharding)
        options = Options(
            source=source,
            batch_size=batch_size,
            transform=transform,
            batch_transform=batch_transform,
            seed=seed,
            shuffle=shuffle,
            epochs=epochs,
            decode=decode,
            max_bad=max_bad,
            last_batch=last_batch,
            on_error=on_error,
            prefetch=prefetch,
            keep=keep,
        )
        self._peers = peers_of(sharding)
        resources = Resources(self._peers.seat)
        try:
            with self._peers.compare("Loader(...)") as facts:
                self._plan = plan = make_plan(checked_options(options), sharding)
                resources.decoder = plan.decoder
                builder = plan.make_batch_builder()
                self.element_spec: dict[str, Any] = builder.spec()
                self.bucket_specs = {bound: builder.spec(bound) for bound in plan.reader.bounds}
                check_labels(plan.function, plan.schema, plan.reader, plan.options.seed)
                facts |= plan.facts(self.element_spec)
        except BaseException:
            resources.close()
            raise

        self._consumer = Consumer(plan, builder, resources, self._peers.seat)
        for note in plan.notes(self.element_spec):
            warnings.warn(note, stacklevel=2)

    def __repr__(self) -> str:
        rows = self._plan.batches.batch_size
        return f"Loader({self.source!r}, batch_size={rows}, order={self._plan.reader.sampler_name})"

    def __reduce__(self):
        raise TypeError(
            "a Loader cannot be pickled or copied, as it holds threads and devices: make it where "
            "it is used, from the same arguments, and `set_state` it to go on."
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rest of the current epoch, the whole of it at its start."""
        self._consumer.check_usable()
        epoch = self._consumer.upcoming.epoch
        if self._plan.batches.ends_before(epoch):
            warnings.warn(
                f"the Loader's epochs={self._plan.batches.epochs} are used up, so this loop yields "
                "nothing: make it with more, or with epochs=None and bound the loop.",
                stacklevel=2,
            )
        return self._consumer.take_epoch(epoch)

    def __next__(self) -> dict[str, Any]:
        batch = self._consumer.take()
        if batch is None:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return self._plan.batches_per_epoch()

    def steps(self, count: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the next `count` batches, across epochs; without it, all that `epochs` allows."""
        return self._consumer.take_steps(count)

    def restart(self) -> None:
        """Begin the next epoch if this Loader has delivered a batch of this one.

        A position that `set_state` gave is kept: the next loop continues from there.
        """
        delivered = self._consumer.delivered  # what failed does not count
        epoch = self._consumer.upcoming.epoch
        begun = delivered.epoch == epoch and delivered.position > 0
        if begun and delivered != self._consumer.start:
            self._consumer.move(Cursor(epoch + 1, 0))

    def sample(self, index: int, epoch: int = 0, *, position: int | None = None) -> dict[str, Any]:
        """Return one record as the Loader delivers it in `epoch`, before `batch_transform`.

        Args:
          index: the record's number in the source.
          epoch: its random parameters are those of this epoch.
          position: of the record in the epoch; needed if the sampler may draw a record twice.

        Returns:
          "original": the whole upright image, uint8[h, w, 3], of a gray decoder [h, w]; "sample":
          dict of numpy arrays, bit-equal to a row of the batches of a deterministic decoder; "key":
          the key that `transform` gets; "describe": a dict that says where the record comes from.

        Raises:
          TypeError: the source is a stream.
          IndexError: no such record.
          DecodeError: it cannot be decoded.
        """
        self._consumer.check_usable()
        return take_sample(self._plan, index, epoch, position)

    def texts(
        self, batch: Mapping[str, Any], names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return texts of a batch's records by name: lists with one for each row, such as captions.

        Batches hold numbers; this reads the texts from the source. Where the batch spans processes,
        they are those of the rows that this process holds, in order, as `to_numpy` gives them.

        Args:
          batch: a batch of this Loader, or what an export or your own code made of it, with its
            "index".
          names: as the source's `texts` takes them: extensions of members and names in JSON of
            `WebDataset`, features of `TFRecord`, columns of `Parquet`, fields of items.
          missing: stands where a record has none; None for an error. Padding rows have "".

        Raises:
          TypeError: the source is a stream, or has no `texts`; `names` is a single text.
          SourceError: a record has no such text.

        Example:
          >>> import numpy as np
          >>> from jaxaug.iterators import InMemory
          >>> source = InMemory([b"..."] * 3, {"text": ["a cat", "a dog", "an owl"]})
          >>> source.texts(np.array([2, 0]), ["text"])
          {'text': ['an owl', 'a cat']}
        """
        return texts_of_batch(self.source, batch, names, missing)

    def get_state(self) -> dict[str, Any]:
        """Return the position reached, as JSON scalars: the same on every process."""
        return to_state(self._consumer.delivered, self._plan.run)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue after the last batch that was delivered before `state` was taken.

        Where the sharding spans processes each of them must call this, with the same state.

        Raises:
          StateError: a damaged state, one of a newer version, of another data set, seed or
            `shuffle`.
          ValueError: another process was given another state.
        """
        with self._peers.compare("Loader.set_state") as facts:
            cursor = from_state(state, self._plan.run)
            facts["state"] = state
        self._consumer.move(self._plan.start_of_batch(cursor))

    @property
    def stats(self) -> dict[str, Any]:
        """The counts, the bad records and the speed of what this process has delivered so far.

        Counts ("batches", "images", "bad", "masked", "replaced", "shrunk"), the first 1,000
        "bad_records" by name, "images_per_second", "seconds" by a clock that is paused from the end
        of an epoch's loop, or an exception, until the next batch is requested, and "shares", the
        share of that time, 0 to 1, in which each stage was busy: "reader" gets bytes; "decoder"
        decodes; "device" is the launch on it, the wait for canvases that it still reads, and the
        time that you held an unfinished batch; "consumer" is the rest of the time between two
        batches: your code, and your steps as far as you wait for them. "bottleneck" is the stage
        with the largest share. "kept_records" are kept, in "kept_bytes" of memory or files.
        "traffic" is what the source has asked of servers so far, also for other Loaders: see
        `iterators.Far`; its "bytes" over "wanted_bytes" say how much more was read. "memory" are by
        column of videos the "host_bytes" of canvases and, with GPUs' engines, of tables of files
        without an index; and the "device_bytes" of these engines.
        """
        store = self._plan.store
        kept = (0, 0) if store is None else (store.count, store.nbytes)
        found = self._consumer.stats.snapshot() | dict(zip(("kept_records", "kept_bytes"), kept))
        traffic = dict(getattr(self.source, "traffic", {}))
        return found | {"traffic": traffic, "memory": self._plan.decoder.memory}

    @property
    def source(self) -> Source | Stream:
        """The source that the Loader reads."""
        return self._plan.source

    @property
    def decoders(self) -> dict[str, Any]:
        """The running decoders by column, a `Decoder` for encoded images, with its own `stats`."""
        return self._plan.running

    def close(self) -> None:
        """Stop the threads; the Loader yields nothing more."""
        self._consumer.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
