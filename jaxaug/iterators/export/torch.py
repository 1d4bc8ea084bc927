"""Batches as PyTorch tensors, without a copy."""

from jaxaug._typing import Array
from jaxaug.iterators._loader import Loader
from jaxaug.iterators.export._local import Export, one_or_list


def to_torch(loader: Loader) -> Export:
    """A Loader's batches as dicts of torch tensors that share the JAX arrays' memory (DLPack).

    Iterating yields one epoch: exactly the rest of the Loader's current one, then the next. Each value is a tensor,
    or, where this process has several local shards, a list with one tensor for each, on its own device, in row order.
    Integers are int32, as JAX has them: a loss that wants int64 labels takes `batch["label"].long()`.
    Leave the tensors unwritten if you also use the JAX arrays: torch ignores that they are read-only.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Example:
      `for batch in to_torch(loader): loss = model(batch["image"], batch["label"])`
    """
    return Export(loader, _to_tensors)


def _to_tensors(shards: list[Array]):
    from torch.utils.dlpack import from_dlpack  # torch is the user's, never ours

    return one_or_list([from_dlpack(shard) for shard in shards])
