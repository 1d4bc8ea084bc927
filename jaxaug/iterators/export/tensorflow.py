"""Batches as TensorFlow tensors, without a copy."""

from jaxaug._typing import Array
from jaxaug.iterators._loader import Loader
from jaxaug.iterators.export._local import Export, one_or_list


def to_tf(loader: Loader) -> Export:
    """A Loader's batches as dicts of eager TensorFlow tensors that share the JAX arrays' memory (DLPack).

    Iterating yields one epoch: exactly the rest of the Loader's current one, then the next. Each value is a tensor,
    or, where this process has several local shards, a list with one tensor for each, on its own device, in row order.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Example:
      `for batch in to_tf(loader): model.train_on_batch(batch["image"], batch["label"])`
    """
    return Export(loader, _to_tensors)


def _to_tensors(shards: list[Array]):
    import tensorflow as tf  # the user's, never ours  # pyright: ignore[reportMissingImports]

    return one_or_list([tf.experimental.dlpack.from_dlpack(shard.__dlpack__()) for shard in shards])
