"""One record as a Loader delivers it: to look at, or to debug a transform with."""

from typing import Any

import jax
import numpy as np

from jaxaug._checks import check_count
from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Array, Key
from jaxaug.decode import decode_image
from jaxaug.iterators._bad_records import BadRecordsError
from jaxaug.iterators._batch_function import key_words, row_keys
from jaxaug.iterators._plan import Plan
from jaxaug.iterators._protocol import Pixels
from jaxaug.iterators._reader import PADDING, EncodedBatch
from jaxaug.sharding._keys import TRANSFORM, split_words


def take_sample(plan: Plan, index: int, epoch: int, position: int | None) -> dict[str, Any]:
    """Return record `index` in `epoch`, see `Loader.sample`."""
    index, position = plan.reader.check_record(index, position)
    check_count("epoch", epoch)

    count = len(plan.layout.rows)
    indices = np.full(count, PADDING)
    indices[0] = index
    rows = plan.reader.read_rows(indices)
    records = EncodedBatch(epoch, np.full(count, position), indices, *rows)
    builder = plan.make_builder(plan.compiled_rows, "raise")
    try:
        batch = builder.build_local(records)
    except BadRecordsError as error:
        raise error.error from None

    outputs = dict(batch.arrays)
    del outputs["valid"], outputs["index"]
    first_shards = jax.tree.map(lambda array: array.addressable_shards[0].data, outputs)
    sample = jax.tree.map(lambda array: np.array(array[0]), jax.device_get(first_shards))
    images = rows.images
    if isinstance(images, Pixels):
        original = images.array[0]
    else:
        assert plan.decoder is not None
        mode = "rgb" if plan.function.channels == 3 else "gray"
        original = decode_image(
            images.view(0), mode, plan.decoder.max_pixels, truncated=plan.decoder.truncated
        )
    return {
        "original": original,
        "sample": sample,
        "key": _key(plan, index, epoch, position),
        "describe": plan.source.describe(index),
    }


def _key(plan: Plan, index: int, epoch: int, position: int) -> Key:
    """Return the key that the transform gets, as the compiled call makes it."""
    positions = np.array([position]) if plan.reader.with_replacement else None
    words = key_words(epoch, np.array([index]), positions)
    seed = np.array(split_words(plan.seed), np.uint32)
    seed, words = jax.device_put((seed, words), plan.layout.devices[0])
    with no_mesh():
        return _transform_key(seed, words)


@jax.jit
def _transform_key(seed: Array, words: Array) -> Key:
    return row_keys(seed, TRANSFORM, words)[0]
