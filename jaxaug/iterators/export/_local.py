"""The rows of a Loader's batches that lie on this process's devices, in other libraries' arrays."""

from collections.abc import Callable, Iterator
from typing import Any

from jaxaug._typing import Array
from jaxaug.iterators._loader import Loader


class Export:
    """A Loader's batches with each array converted.

    Iterating yields one epoch: the rest of the Loader's current one, then the next.

    Args:
      loader: a `Loader`; its state, length and close stay its own.
      convert: from the local shards of an array, in row order, to what is yielded for it.
    """

    def __init__(self, loader: Loader, convert: Callable[[list[Array]], Any]):
        self._loader, self._convert = loader, convert

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._loader:
            yield {name: self._convert(local_shards(array)) for name, array in batch.items()}


def local_shards(array: Array) -> list[Array]:
    """One single-device array for each range of rows on this process, in row order.

    A replicated range lies on several devices; one of them is enough.
    """
    shards = {shard.index[0].start or 0 if shard.index else 0: shard for shard in reversed(array.addressable_shards)}
    return [shards[start].data for start in sorted(shards)]


def one_or_list(tensors: list[Any]) -> Any:
    """The only tensor, or all of them: tensors on several devices cannot be one."""
    return tensors[0] if len(tensors) == 1 else tensors
