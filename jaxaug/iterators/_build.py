"""One batch: encoded rows to global arrays. Decode, one compiled call, relabel."""

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._typing import Array, Key
from jaxaug.decode import Decoded, Decoder, Encoded
from jaxaug.errors import DecodeError
from jaxaug.iterators._cursor import Cursor
from jaxaug.iterators._labels import place_features
from jaxaug.iterators._order import Order, find_records
from jaxaug.iterators._prefetch import Prefetch
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._records import PADDING, Records, RecordsOrError, read_rows
from jaxaug.iterators._stats import Stats
from jaxaug.sharding._assemble import assemble
from jaxaug.sharding._keys import BATCH_TRANSFORM, TRANSFORM, fold_words, seed_key, split_words
from jaxaug.sharding._mesh import auto_mesh
from jaxaug.sharding._split import Part, count_parts

_REPLACEMENT_TRIES = 32

Transform = Callable[[Key, dict[str, Any]], dict[str, Any]]


class Built(NamedTuple):
    """A batch for the consumer; the device may still compute it."""

    arrays: dict[str, Array]
    done: Array  # ready when the arrays are, and nobody else can donate or delete it


BatchOrError = tuple[Cursor, Built | Exception]


class BatchBuilder:
    """Turns the local rows of a batch into global arrays; owns the compiled call.

    Args:
      source: names the records, and reads the replacements of broken ones.
      order: the order of the records; None for a stream.
      decoder: has one device for each part, in the order of `parts`.
      parts: the rows this process holds.
      sharding: of the global batch.
      transform, batch_transform: see `Loader`.
      seed: of the keys.
      on_error: "raise", "mask" or "replace".
      stats: counts what happens.
    """

    def __init__(
        self,
        source: Source | Stream,
        order: Order | None,
        decoder: Decoder,
        parts: list[Part],
        sharding: NamedSharding,
        transform: Transform | None,
        batch_transform: Transform | None,
        seed: int,
        on_error: str,
        stats: Stats,
    ):
        self._source, self._order, self._decoder, self._parts = source, order, decoder, parts
        self._sharding, self._on_error, self._stats = sharding, on_error, stats
        mesh = auto_mesh(decoder.devices)
        self._split = NamedSharding(mesh, PartitionSpec("batch"))
        seed_words = np.array(split_words(seed), np.uint32)
        self._seed = jax.device_put(seed_words, NamedSharding(mesh, PartitionSpec()))
        self._wide_index = isinstance(source, Source) and len(source) >= 2**31  # an order may be shorter, or longer
        self._compiled = jax.jit(
            jax.shard_map(
                make_batch_function(transform, batch_transform),
                mesh=mesh,
                in_specs=(PartitionSpec(), PartitionSpec("batch")),
                out_specs=PartitionSpec("batch"),
                check_vma=False,  # per-sample mathematics: nothing varies or is shared across devices
            )
        )

    def batches(self, records: Prefetch[RecordsOrError]) -> Generator[BatchOrError, None, None]:
        """Each batch, or what went wrong with it, with the cursor once it is delivered; closes `records`.

        As many batches are built at once as the decoder has in flight; a batch is built to its end, so that a
        decoder shared with another Loader is never held by batches that wait for their consumer.
        """
        window: deque[tuple[Cursor, Future]] = deque()
        with ThreadPoolExecutor(self._decoder.in_flight, thread_name_prefix="jaxaug-build") as pool:
            try:
                for after, batch in records:
                    window.append((after, pool.submit(self._build_or_error, batch)))
                    if len(window) == self._decoder.in_flight:
                        yield _result(*window.popleft())
                while window:
                    yield _result(*window.popleft())
            finally:
                records.close()

    def _build_or_error(self, records: Records | Exception) -> Built | Exception:
        if isinstance(records, Exception):
            return records
        try:
            return self.build(records)
        except Exception as error:  # handed to the consumer in its place
            return error

    def build(self, records: Records) -> Built:
        """The global arrays of one batch."""
        started = time.perf_counter()
        records, decoded = self._decode(records)
        decoded_at = time.perf_counter()
        readers: Any = ()
        try:
            rows, index = jax.device_put(self._host_rows(records, decoded), self._split)
            shape = (len(index), *decoded.pixels[0].shape[1:])
            rows["sample"]["image"] = jax.make_array_from_single_device_arrays(shape, self._split, decoded.pixels)
            outputs, readers = self._compiled(self._seed, rows)
        finally:
            decoded.release(readers)
        outputs |= {"valid": rows["valid"], "index": index}
        batch = {name: self._assemble(array) for name, array in outputs.items()}
        self._stats.add_seconds("decoder", decoded_at - started - decoded.waited)
        self._stats.add_seconds("device", time.perf_counter() - decoded_at + decoded.waited)
        self._count(records, decoded)
        return Built(batch, readers)

    def _host_rows(self, records: Records, decoded: Decoded) -> tuple[dict[str, Any], np.ndarray]:
        """What the compiled call takes besides the pixels, and the index column."""
        valid = decoded.valid & (records.indices != PADDING)
        size = np.where(valid[:, None], decoded.size, np.array(self._decoder.canvas)).astype(np.int32)
        features = place_features(records.features, decoded.size, decoded.original_size, decoded.orientation)
        rows = {"words": self._words(records), "valid": valid, "sample": {**features, "size": size}}
        return rows, self._index(records.indices)

    def _count(self, records: Records, decoded: Decoded) -> None:
        valid = decoded.valid & (records.indices != PADDING)
        shrunk = (decoded.original_size != decoded.size).any(axis=1) & valid
        self._stats.count(batches=1, images=int(valid.sum()), shrunk=int(shrunk.sum()))

    def spec(self, features: dict[str, np.ndarray]) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes, dtypes and shardings of a batch, from the features of one record."""
        height, width = self._decoder.canvas
        rows = self._parts[0].stop - self._parts[0].start
        n = rows * len(self._parts)
        one = np.ones((1, 2), np.int32)
        features = place_features(features, one, one, np.ones(1, np.uint8))
        columns = {name: ((n, *column.shape[1:]), column.dtype) for name, column in features.items()}
        columns |= {
            "size": ((n, 2), np.dtype(np.int32)),
            "image": ((n, height, width, 3), np.dtype(np.uint8)),
        }
        local = {k: jax.ShapeDtypeStruct(s, d, sharding=self._split) for k, (s, d) in columns.items()}
        words = jax.ShapeDtypeStruct((n, self._word_count()), np.uint32, sharding=self._split)
        valid = jax.ShapeDtypeStruct((n,), np.bool_, sharding=self._split)
        out, _ = jax.eval_shape(self._compiled, self._seed, {"words": words, "valid": valid, "sample": local})
        if "image" not in out:
            raise TypeError(f"`transform` must return a dict with an 'image', got one with {sorted(out)}.")
        out |= {"valid": valid, "index": self._index(np.zeros(n, np.int64))}
        total = count_parts(self._sharding) * rows
        return {
            name: jax.ShapeDtypeStruct((total, *leaf.shape[1:]), leaf.dtype, sharding=self._sharding)
            for name, leaf in out.items()
        }

    def _decode(self, records: Records) -> tuple[Records, Decoded]:
        """Decode, and deal with what cannot be decoded."""
        decoded, failures = self._attempt(records)
        if not failures:
            return records, decoded
        if self._on_error == "raise":
            self._note(failures, "raised")
            raise failures[min(failures)]
        if self._on_error == "mask":
            self._note(failures, "masked")
            self._stats.count(masked=len(failures))
            return records, decoded
        return self._replace(records, failures)

    def _attempt(self, records: Records) -> tuple[Decoded, dict[int, DecodeError]]:
        """Decode, and name the failures; canvases that nobody will use are released."""
        decoded = self._decoder.decode_rows(records.encoded)
        try:
            failures = self._failures(records, decoded)
        except BaseException:
            decoded.release(())
            raise
        if failures and self._on_error != "mask":
            decoded.release(())
        return decoded, failures

    def _replace(self, records: Records, failures: dict[int, DecodeError]) -> tuple[Records, Decoded]:
        """Put the next decodable record of the epoch's order in the place of each broken one."""
        assert self._order is not None and isinstance(self._source, Source)  # the Loader has refused streams
        self._note(failures, "replaced")
        self._stats.count(replaced=len(failures))
        for attempt in range(1, _REPLACEMENT_TRIES + 1):
            rows = np.array(sorted(failures))
            positions = (records.positions[rows] + attempt) % self._order.length
            indices = records.indices.copy()
            indices[rows] = find_records(self._order, records.epoch, positions, len(self._source))
            records = _substitute(records, rows, indices, *read_rows(self._source, indices[rows]))
            decoded, failures = self._attempt(records)
            if not failures:
                return records, decoded
        error = failures[min(failures)]
        raise DecodeError(
            f"{error.reason}, and none of the next {_REPLACEMENT_TRIES} records of the order can be decoded either",
            index=error.index,
            file=error.file,
            byte_count=error.byte_count,
        )

    def _failures(self, records: Records, decoded: Decoded) -> dict[int, DecodeError]:
        """The decoder's facts with the name of each record; padding is no failure."""
        errors = {}
        for row, reason in decoded.failures.items():
            index = int(records.indices[row])
            if index != PADDING:
                about = self._source.describe(index)
                byte_count = int(records.encoded.lengths[row])
                reason = about.get("error", reason) if byte_count == 0 else reason
                file = ", ".join(about[name] for name in ("path", "key") if name in about) or None
                errors[row] = DecodeError(reason, index=index, file=file, byte_count=byte_count)
        return errors

    def _note(self, failures: dict[int, DecodeError], action: str) -> None:
        for _, error in sorted(failures.items()):
            self._stats.add_bad({"index": error.index, "file": error.file, "reason": error.reason, "action": action})

    def _words(self, records: Records) -> np.ndarray:
        """uint32[n, k] to fold into the keys: epoch, record, and the position where a record may come twice."""
        columns = [np.full(len(records.indices), records.epoch, np.int64), *split_words(records.indices)]
        if self._word_count() > 3:
            columns += split_words(records.positions)
        return np.stack(columns, axis=1).astype(np.uint32)

    def _word_count(self) -> int:
        return 5 if self._order is not None and self._order.with_replacement else 3

    def _index(self, indices: np.ndarray) -> np.ndarray:
        if self._wide_index:
            return np.stack(split_words(indices), axis=1).astype(np.uint32)
        return indices.astype(np.int32)

    def _assemble(self, array: Array) -> Array:
        """The rows of `array` on our mesh as rows of the global batch."""
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        in_row_order = sorted(zip(self._parts, self._decoder.devices), key=lambda pair: pair[0].start)
        return assemble([shards[device] for _, device in in_row_order], self._sharding)


def make_batch_function(transform: Transform | None, batch_transform: Transform | None) -> Callable:
    """The whole computation on the rows of one device: pure, per sample, without collectives."""

    def one(key: Key, words: Array, valid: Array, sample: dict[str, Array]) -> dict[str, Array]:
        output = sample if transform is None else transform(fold_words(key, words), sample)
        if not isinstance(output, dict):
            raise TypeError(f"`transform` must return a dict, as it is given one, got {type(output).__name__}.")
        # Also what makes the output a fresh buffer where there is no transform.
        return {k: v if k == "size" else jnp.where(valid, v, jnp.zeros_like(v)) for k, v in output.items()}

    def rows(seed: Array, rows: dict[str, Any]) -> tuple[dict[str, Array], Array]:
        # The second output is ready when the first is: what decode buffers and statistics wait for.
        return mix(seed, rows, augment(seed, rows)), jnp.logical_not(rows["valid"])

    def augment(seed: Array, rows: dict[str, Any]) -> dict[str, Array]:
        key = jax.random.fold_in(seed_key(seed), TRANSFORM)
        return jax.vmap(one, in_axes=(None, 0, 0, 0))(key, rows["words"], rows["valid"], rows["sample"])

    def mix(seed: Array, rows: dict[str, Any], batch: dict[str, Array]) -> dict[str, Array]:
        if batch_transform is None:
            return batch
        key = jax.random.fold_in(seed_key(seed), BATCH_TRANSFORM)
        size = group_size(batch_transform)
        groups = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), batch | {"valid": rows["valid"]})
        first = rows["words"].reshape(-1, size, rows["words"].shape[1])[:, 0]
        keys = jax.vmap(lambda words: fold_words(key, words))(first)
        mixed = jax.vmap(batch_transform)(keys, groups)
        mixed.pop("valid", None)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), mixed)

    return rows


def group_size(batch_transform: Transform) -> int:
    """How many consecutive samples a batch transform mixes: its `group_size`, 2 where it has none."""
    return getattr(batch_transform, "group_size", 2)


def _result(after: Cursor, future: "Future[Built | Exception]") -> BatchOrError:
    return after, future.result()


def _substitute(
    records: Records, rows: np.ndarray, indices: np.ndarray, encoded: Encoded, features: dict[str, np.ndarray]
) -> Records:
    """`records` with other records in `rows`."""
    addresses, lengths, owner = records.encoded
    addresses, lengths = addresses.copy(), lengths.copy()
    addresses[rows], lengths[rows] = encoded.addresses, encoded.lengths
    columns = {name: column.copy() for name, column in records.features.items()}
    for name, column in columns.items():
        column[rows] = features[name]
    return records._replace(
        indices=indices, encoded=Encoded(addresses, lengths, (owner, encoded.owner)), features=columns
    )
