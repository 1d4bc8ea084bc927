"""What a Loader shows beside its batches: one record as it delivers it, and texts of a batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxaug._checks import check_count
from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Key
from jaxaug.iterators.loader.bad_records import BadRecordsError
from jaxaug.iterators.loader.batch_function import row_keys
from jaxaug.iterators.loader.columns import Columns, take_rows
from jaxaug.iterators.loader.keys import TRANSFORM, split_words
from jaxaug.iterators.loader.plan import Plan
from jaxaug.iterators.loader.reader import PADDING, ReadBatch
from jaxaug.iterators.loader.state import BatchSpan, Cursor
from jaxaug.iterators.sources.protocol import Stream
from jaxaug.sharding._assemble import local_array, local_shards


def take_sample(plan: Plan, index: int, epoch: int, position: int | None) -> dict[str, Any]:
    """Return record `index` in `epoch`, see `Loader.sample`."""
    index, position = plan.reader.check_record(index, position)
    check_count("epoch", epoch)

    count = len(plan.layout.rows)
    row = int(plan.layout.rows.argmin())  # the first one here of the global batch
    indices = np.full(count, PADDING)
    indices[row] = index
    columns = plan.reader.read_rows(indices)
    span = BatchSpan(epoch, position, 1, Cursor(epoch, 0))
    read = ReadBatch(span, np.full(count, position), indices, columns)
    builder = plan.make_builder(plan.compiled_rows, "raise")
    try:
        batch = builder.build(read)
    except BadRecordsError as error:
        raise error.error from None

    outputs = dict(batch.arrays)
    del outputs["valid"], outputs["index"]
    first_shards = jax.tree.map(lambda array: local_shards(array)[0], outputs)
    sample = jax.tree.map(lambda array: np.array(array[0]), jax.device_get(first_shards))
    return {
        "original": _original(plan, columns, row),
        "sample": sample,
        "key": _key(plan, read, row),
        "describe": plan.source.describe(index),
    }


def _original(plan: Plan, columns: Columns, row: int) -> np.ndarray | None:
    """Return the whole value of the first column that has one to show."""
    for name, decoder in plan.schema.decoders.items():
        original = decoder.original(take_rows(columns[name], slice(row, row + 1)))
        if original is not None:
            return original
    return None


def _key(plan: Plan, read: ReadBatch, row: int) -> Key:
    """Return the key that the transform gets for a row, as the compiled call makes it."""
    names = plan.schema.names(read, read.indices, read.indices != PADDING)
    words = names["words"][row : row + 1]
    seed = np.array(split_words(plan.options.seed), np.uint32)
    seed, words = jax.device_put((seed, words), plan.layout.devices[0])
    with no_mesh():
        return _transform_key(seed, words)


@jax.jit
def _transform_key(seed: Array, words: Array) -> Key:
    return row_keys(seed, TRANSFORM, words)[0]


def texts_of_batch(
    source: Any, batch: Mapping[str, Any], names: Sequence[str], missing: str | None
) -> dict[str, list[str]]:
    """Return the texts of the rows of a batch that this process holds, see `Loader.texts`."""
    read = getattr(source, "texts", None)
    if read is None:
        remedy = "take them from `source.describe(index)`"
        if isinstance(source, Stream):
            remedy = "turn texts into numbers where the items of a stream are made"
        raise TypeError(
            f"`source` must have a method `texts(indices, names, missing)`, got "
            f"{type(source).__name__}, which has none: {remedy}."
        )
    if not isinstance(batch, Mapping) or "index" not in batch:
        got = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
        raise TypeError(
            f'`batch` must be a dict with "index", got {got}: keep that entry of a batch, and give '
            '{"index": index}.'
        )
    indices = record_numbers(batch["index"])
    known = indices != PADDING
    found = read(indices[known], names, missing)
    places = np.where(known, np.cumsum(known) - 1, -1).tolist()
    texts = {}
    for name, column in found.items():
        texts[name] = [column[place] if place >= 0 else "" for place in places]
    return texts


def record_numbers(index: Any) -> np.ndarray:
    """Return the entry "index" of a batch as int64[n], -1 for padding.

    Its rows may be lists of shards, as `to_torch` gives them, or lie by device, as in `for_pmap`.
    Only pairs (high, low) are uint32.
    """
    if isinstance(index, (list, tuple)):
        return np.concatenate([record_numbers(shard) for shard in index])
    numbers = local_array(index) if isinstance(index, jax.Array) else np.asarray(index)
    if numbers.dtype != np.uint32:
        return numbers.reshape(-1).astype(np.int64)
    high, low = numbers.reshape(-1, 2).astype(np.uint64).T
    return (high << np.uint64(32) | low).astype(np.int64)
