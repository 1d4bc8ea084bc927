"""One batch, from columns of records to global arrays: decode, one compiled call, relabel."""

import functools
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from jaxaug.iterators.loader.bad_records import BadRecord, decode_batch
from jaxaug.iterators.loader.compile import CompiledBatch
from jaxaug.iterators.loader.decode import ColumnsDecoder
from jaxaug.iterators.loader.kept import RecordStore
from jaxaug.iterators.loader.keys import split_words
from jaxaug.iterators.loader.reader import ReadBatch, Reader
from jaxaug.iterators.loader.rows import RowSchema
from jaxaug.iterators.loader.state import Cursor
from jaxaug.sharding._assemble import RowLayout


class BuiltBatch(NamedTuple):
    """A batch for the consumer; the device may still compute it.

    Attributes:
      arrays: the global batch.
      done: ready when the arrays are, and nobody else can donate or delete it.
      counts: "images", "masked", "replaced", and what decoders count.
      bad: the records that could not be decoded.
      warnings: (record, what is worth a warning of it).
      seconds: "reader", "decoder", "device": at work on this batch.
    """

    arrays: dict[str, Any]
    done: Array
    counts: dict[str, int]
    bad: list[BadRecord]
    warnings: list[tuple[int, Warning]]
    seconds: dict[str, float]


class Notice(NamedTuple):
    """What is told of rows that were decoded and are kept, so that this is not done again.

    Attributes:
      start: the cursor behind which the consumer is told; of a tail that nobody gets, that of the
        next epoch.
      counts: what decoders count.
      warnings: as those of a `BuiltBatch`.
    """

    start: Cursor
    counts: dict[str, int]
    warnings: list[tuple[int, Warning]]


class BatchForm(NamedTuple):
    """A form that batches have.

    Attributes:
      schema: of the rows.
      compiled: the computation.
    """

    schema: RowSchema
    compiled: CompiledBatch


class BatchBuilder:
    """Turns the local rows of a batch into global arrays.

    Args:
      reader: names the records, and reads replacements.
      decoder: of all columns, on the layout's devices, in its order.
      forms: of the batches, by the bound of their bucket; None is that of all others.
      layout: the places of the rows.
      seed: of the keys.
      on_error: "raise", "mask" or "replace".

    Attributes:
      notices: that the consumer has not heard yet, also of batches that it stopped before.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        decoder: ColumnsDecoder,
        forms: Mapping[float | None, BatchForm],
        layout: RowLayout,
        seed: int,
        on_error: str,
    ):
        self._reader = reader
        self._decoder = decoder
        self._forms = forms
        self._layout = layout
        self._on_error = on_error
        self.notices: list[Notice] = []
        self._split = layout.split
        self._seed = jax.device_put(np.array(split_words(seed), np.uint32), layout.replicated)

    def spec(self, bound: float | None = None) -> dict[str, Any]:
        """Return the shapes, dtypes and shardings of a batch, or of one of a bucket."""
        return jax.tree.map(self._layout.global_shape, self._forms[bound].compiled.shapes)

    def build(self, read: ReadBatch) -> BuiltBatch:
        """Return the global arrays of one batch."""
        started = time.perf_counter()
        decoded = decode_batch(read, self._decoder, self._reader, self._on_error)
        decoded_at = time.perf_counter()
        done: Any = ()
        try:
            schema, compiled = self._forms[read.bound]
            rows = schema.arrays(decoded)
            host, device = schema.split(rows)
            packed = jax.device_put(compiled.packing.pack(host), self._split)
            arrays, done = compiled.call(self._seed, self._joined(device), packed)
        finally:
            decoded.release(done)

        waited = max((each.wait_seconds for each in decoded.columns.values()), default=0.0)
        seconds = {
            "reader": read.seconds,
            "decoder": decoded_at - started - waited,
            "device": time.perf_counter() - decoded_at + waited,
        }
        counts = count_rows(decoded.valid, decoded.bad) | decoded.counts
        batch = jax.tree.map(self._layout.assemble, arrays)
        return BuiltBatch(batch, done, counts, decoded.bad, decoded.warnings, seconds)

    def launch(self, read: ReadBatch) -> Iterator[list[BuiltBatch]]:
        """Yield the batches of rows that are kept, those that one call makes together."""
        yield [self.build(read)]

    def _joined(self, device: dict[str, dict[str, list[Array]]]) -> Any:
        """Return the arrays that lie on single devices as arrays over all of them."""

        def join(shards: list[Array]) -> Array:
            shape = (sum(len(shard) for shard in shards), *shards[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, self._split, shards)

        return {
            name: {key: join(shards) for key, shards in arrays.items()}
            for name, arrays in device.items()
        }


class KeepingBuilder(BatchBuilder):
    """Builds batches of records that are kept, and decodes those that are missing.

    Args:
      store: of the records.
      compiled_run: the computation of `store.run` batches, all rows of which are kept.
      parts: see `BatchBuilder`.
    """

    def __init__(self, store: RecordStore, compiled_run: CompiledBatch, **parts: Any):
        super().__init__(**parts)
        self._store = store
        self._compiled_run = compiled_run

    def launch(self, read: ReadBatch) -> Iterator[list[BuiltBatch]]:
        if not read.run:
            return super().launch(read)
        positions, indices = map(self._by_call, (read.positions, read.indices))
        calls = read._replace(positions=positions, indices=indices)
        call = functools.partial(self._call_run, read.indices.shape[1])
        return self._store.launch_each(calls, call)

    def _call_run(self, count: int, *rows: Any) -> list[BuiltBatch]:
        """Return the batches of `count` rows that one call makes."""
        run = self._store.run
        started = time.perf_counter()
        batches, done = self._compiled_run.call(self._seed, *rows)
        batches = jax.tree.map(self._layout.assemble, [batches] if run == 1 else batches)
        seconds = {"device": (time.perf_counter() - started) / run}
        counts = {"images": count, "masked": 0, "replaced": 0}
        return [BuiltBatch(batch, done, counts, [], [], seconds) for batch in batches]

    def _by_call(self, values: np.ndarray) -> np.ndarray:
        """Return int64[batches, rows] as int64[calls, n], in a call device after device."""
        calls = len(values) // self._store.run
        parts = values.reshape(calls, self._store.run, len(self._layout.devices), -1)
        return parts.swapaxes(1, 2).reshape(calls, -1)

    def build(self, read: ReadBatch) -> BuiltBatch:
        started = time.perf_counter()
        indices = read.kept.indices
        bad = read.kept.bad
        if read.kept.missing.any():
            decoded = decode_batch(read, self._decoder, self._reader, self._on_error)
            self._store.put(decoded)
            indices = np.where(read.kept.missing, decoded.read.indices, indices)
            bad = bad + decoded.bad
            start = read.span.after if read.dropped else Cursor(read.span.epoch, read.span.start)
            self.notices.append(Notice(start, decoded.counts, decoded.warnings))

        decoded_at = time.perf_counter()
        valid, _ = self._store.find(indices)
        device, packed = self._store.take(read, indices, valid)
        arrays, done = self._forms[None].compiled.call(self._seed, device, packed)
        seconds = {
            "reader": read.seconds,
            "decoder": decoded_at - started,
            "device": time.perf_counter() - decoded_at,
        }
        batch = jax.tree.map(self._layout.assemble, arrays)
        return BuiltBatch(batch, done, count_rows(valid, bad), bad, [], seconds)


def count_rows(valid: np.ndarray, bad: list[BadRecord]) -> dict[str, int]:
    """Return the counts of a batch: its valid rows, and what became of its bad records."""
    actions = [record["action"] for record in bad]
    return {
        "images": int(np.count_nonzero(valid)),
        "masked": actions.count("masked"),
        "replaced": actions.count("replaced"),
    }
