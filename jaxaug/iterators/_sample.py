"""One record as a Loader delivers it: to look at, or to debug a transform with."""

from typing import Any

import jax
import numpy as np

from jaxaug._checks import check_count
from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Array, Key
from jaxaug.decode import decode_image
from jaxaug.iterators._bad_records import BadRecordsError
from jaxaug.iterators._compile import CompiledBatch, key_words, row_keys
from jaxaug.iterators._plan import Plan
from jaxaug.iterators._protocol import Pixels, Stream
from jaxaug.iterators._reader import EncodedBatch
from jaxaug.sharding._keys import TRANSFORM, split_words


def take_sample(
    plan: Plan, compiled: CompiledBatch, index: int, epoch: int, position: int | None
) -> dict[str, Any]:
    """Return record `index` in `epoch`, see `Loader.sample`.

    Args:
      compiled: the computation without `batch_transform`.
    """
    index, position = _check_record(plan, index, position)
    check_count("epoch", epoch)
    assert plan.read is not None
    rows = len(plan.layout.rows)
    images, features = plan.read(np.full(rows, index))
    positions = np.full(rows, position)
    records = EncodedBatch(epoch, positions, np.full(rows, index), images, features)
    builder = plan.make_builder(compiled, "raise")
    try:
        batch = builder.build_local(records)
    except BadRecordsError as error:
        raise error.error from None

    outputs = {
        name: value for name, value in batch.arrays.items() if name not in ("valid", "index")
    }
    first_row = jax.tree.map(lambda array: array.addressable_shards[0].data, outputs)
    return {
        "original": images.array[0] if isinstance(images, Pixels) else decode_image(images.view(0)),
        "sample": jax.tree.map(lambda array: np.array(array[0]), jax.device_get(first_row)),
        "key": _key(plan, index, epoch, position),
        "describe": plan.source.describe(index),
    }


def _check_record(plan: Plan, index: int, position: int | None) -> tuple[int, int]:
    if isinstance(plan.source, Stream) or plan.sampler is None:
        raise TypeError("`sample` needs a source with random access, got a stream: take a batch.")
    if not isinstance(index, (int, np.integer)) or not 0 <= index < len(plan.source):
        raise IndexError(f"`index` must be an int in [0, {len(plan.source)}), got {index!r}.")
    if position is None and plan.sampler.with_replacement:
        raise ValueError(
            f"`position` must be given with {type(plan.sampler).__name__}, which may draw a record twice in an epoch: "
            "each position has a key of its own."
        )
    return int(index), 0 if position is None else int(position)


def _key(plan: Plan, index: int, epoch: int, position: int) -> Key:
    """Return the key that the transform gets, as the compiled call makes it."""
    assert plan.sampler is not None
    repeats = plan.sampler.with_replacement
    words = key_words(epoch, np.array([index]), np.array([position]) if repeats else None)
    seed, words = jax.device_put(
        (np.array(split_words(plan.seed), np.uint32), words), plan.layout.devices[0]
    )
    with no_mesh():
        return _transform_key(seed, words)


@jax.jit
def _transform_key(seed: Array, words: Array) -> Key:
    return row_keys(seed, TRANSFORM, words)[0]
