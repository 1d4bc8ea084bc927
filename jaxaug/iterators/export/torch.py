"""Batches as PyTorch tensors, without a copy."""

from collections.abc import Iterator
from typing import Any

from jaxaug.iterators._loader import Loader


class to_torch:
    """A Loader's batches as dicts of torch tensors that share the JAX arrays' memory (DLPack).

    Iterating yields one epoch: exactly the rest of the Loader's current one, then the next. Each value is a tensor,
    or, where this process has several local shards, a list with one tensor for each, on its own device, in row order.
    Leave the tensors unwritten if you also use the JAX arrays: torch ignores that they are read-only.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Example:
      `for batch in to_torch(loader): loss = model(batch["image"], batch["label"])`
    """

    def __init__(self, loader: Loader):
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._loader.epoch():
            yield {name: _export(array) for name, array in batch.items()}


def _export(array) -> Any:
    from torch.utils.dlpack import from_dlpack  # torch is the user's, never ours

    # A replicated row range lies on several devices; one of them is enough.
    shards = {shard.index[0].start or 0 if shard.index else 0: shard for shard in reversed(array.addressable_shards)}
    tensors = [from_dlpack(shards[start].data) for start in sorted(shards)]
    return tensors[0] if len(tensors) == 1 else tensors
