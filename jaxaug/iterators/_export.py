"""A Loader's batches in the arrays of other libraries, and for `jax.pmap`."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Array
from jaxaug.iterators._features import LABELS
from jaxaug.iterators._loader import Loader
from jaxaug.sharding._mesh import auto_mesh

# torch's `ignore_index`: its losses leave such rows out.
_IGNORED_LABEL = -100

Batch = dict[str, Any]


class Export:
    """A Loader's batches, each array converted.

    Iterating yields the rest of the Loader's current epoch, a whole one at its start, as the Loader
    itself does.

    Args:
      loader: a `Loader`; its state, length and close stay its own.
      name: the name of the function that made this.
      convert: a function of the local shards of an array, in row order, whose result is yielded in
        the place of the array.
      finish: a function that changes a converted batch.
    """

    def __init__(
        self,
        loader: Loader,
        name: str,
        convert: Callable[[list[Array]], Any],
        finish: Callable[[Batch], Batch] | None = None,
    ):
        if not isinstance(loader, Loader):
            raise TypeError(
                f"`loader` must be a jaxaug.Loader, got {type(loader).__name__}: write "
                f"{name}(Loader(source, batch_size))."
            )
        self._loader = loader
        self._name = name
        self._convert = convert
        self._finish = finish

    def __repr__(self) -> str:
        return f"{self._name}({self._loader!r})"

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loader:
            converted = jax.tree.map(lambda array: self._convert(local_shards(array)), batch)
            del batch  # so that the consumer alone keeps it alive
            yield converted if self._finish is None else self._finish(converted)
            del converted


def local_shards(array: Array) -> list[Array]:
    """Return one single-device array for each range of rows on this process, in row order.

    A replicated range lies on several devices; one of them is enough.
    """
    shards = {}
    for shard in array.addressable_shards:
        start = (shard.index[0].start or 0) if shard.index else 0
        shards.setdefault(start, shard.data)
    return [shards[start] for start in sorted(shards)]


def to_numpy(loader: Loader) -> Export:
    """Return a Loader's batches as dicts of numpy arrays: the rows of this process, in order.

    Iterating yields the rest of the current epoch. The arrays may be read-only: on the CPU they
    share the JAX arrays' memory.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Raises:
      TypeError: `loader` is no Loader.

    Example:
      >>> import io, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> file = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(file, "JPEG")
      >>> source = InMemory([file.getvalue()] * 4, {"label": np.arange(4)})
      >>> with Loader(source, 2 * jax.device_count(), shuffle=False, last_batch="pad") as loader:
      ...     [batch["label"][:2].tolist() for batch in to_numpy(loader)][0]
      [0, 1]
    """
    return Export(loader, "to_numpy", _to_array)


def _to_array(shards: list[Array]) -> np.ndarray:
    arrays = jax.device_get(shards)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def to_torch(loader: Loader) -> Export:
    """Return a Loader's batches as dicts of torch tensors.

    They share the JAX arrays' memory (DLPack). Iterating yields the rest of the current epoch. Each
    value is a tensor, or, where this process has several local shards, a list with one tensor for
    each, on its own device, in row order.

    Integers are int32, as JAX has them: a loss that wants int64 labels takes
    `batch["label"].long()`. Integer "label" and "labels" of rows that are not valid are -100, which
    torch's losses leave out; so they are copies. Leave the other tensors unwritten if you also use
    the JAX arrays: torch ignores that they are read-only.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Raises:
      TypeError: `loader` is no Loader.

    Example:
      `for batch in to_torch(loader): loss = cross_entropy(model(batch["image"]),
      batch["label"].long())`
    """
    return Export(loader, "to_torch", _to_torch_tensors, _ignore_blank_labels)


def _to_torch_tensors(shards: list[Array]) -> Any:
    from torch.utils.dlpack import from_dlpack  # torch is the user's, never ours

    return _one_or_list([from_dlpack(shard) for shard in shards])


def _ignore_blank_labels(batch: Batch) -> Batch:
    """Return the batch with labels that torch's losses leave out in rows that are not valid."""
    for name in LABELS:
        labels = batch.get(name)
        if isinstance(labels, list):
            batch[name] = [_ignore(*each) for each in zip(labels, batch["valid"])]
        elif hasattr(labels, "masked_fill"):
            batch[name] = _ignore(labels, batch["valid"])
    return batch


def _ignore(labels: Any, valid: Any) -> Any:
    """Return integer labels with -100 in the rows that are not valid; floats stay."""
    if labels.is_floating_point():
        return labels
    blank = ~valid.reshape(-1, *[1] * (labels.dim() - 1))
    return labels.masked_fill(blank, _IGNORED_LABEL)


def to_tf(loader: Loader) -> Export:
    """Return a Loader's batches as dicts of eager TensorFlow tensors.

    They share the JAX arrays' memory (DLPack). Iterating yields the rest of the current epoch. Each
    value is a tensor, or, where this process has several local shards, a list with one tensor for
    each, on its own device, in row order.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Raises:
      TypeError: `loader` is no Loader.

    Example:
      `for batch in to_tf(loader): model.train_on_batch(batch["image"], batch["label"])`
    """
    return Export(loader, "to_tf", _to_tf_tensors)


def _to_tf_tensors(shards: list[Array]) -> Any:
    import tensorflow as tf  # the user's, never ours  # pyright: ignore[reportMissingImports]

    from_dlpack = tf.experimental.dlpack.from_dlpack
    return _one_or_list([from_dlpack(shard.__dlpack__()) for shard in shards])


def _one_or_list(tensors: list[Any]) -> Any:
    """Return the only tensor, or all of them: tensors on several devices cannot be one."""
    return tensors[0] if len(tensors) == 1 else tensors


def for_pmap(loader: Loader) -> Export:
    """Return a Loader's batches in the form that `jax.pmap` takes.

    Each array is [local devices, rows per device, ...]. Iterating yields the rest of the current
    epoch. The rows are on their devices already; `flax.jax_utils.prefetch_to_device` and `shard`
    are not needed and would copy them.

    Args:
      loader: a `Loader` whose batch is split over all devices, as it is by default.

    Raises:
      TypeError: `loader` is no Loader.
      ValueError: its batch is replicated, or not on all local devices in their order.

    Example:
      >>> import io, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> file = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(file, "JPEG")
      >>> source = InMemory([file.getvalue()] * 4)
      >>> with Loader(source, 2 * jax.device_count(), last_batch="pad") as loader:
      ...     images = next(iter(for_pmap(loader)))["image"]
      >>> images.shape == (jax.local_device_count(), 2, 30, 40, 3)
      True
    """
    export = Export(loader, "for_pmap", _to_stacked)
    spec = loader.element_spec["valid"]
    rows = spec.sharding.addressable_devices_indices_map(spec.shape)
    found = [rows[device] for device in jax.local_devices() if device in rows]
    starts = [index[0].start or 0 for index in found if index]
    if len(starts) != jax.local_device_count() or sorted(set(starts)) != starts:
        raise ValueError(
            "`loader` must split its batch over all local devices in their order, as jax.pmap "
            f"does, got sharding={spec.sharding}."
        )
    return export


def _to_stacked(shards: list[Array]) -> Array:
    mesh = auto_mesh(jax.local_devices())
    shape = (len(shards) * shards[0].shape[0], *shards[0].shape[1:])
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    local = jax.make_array_from_single_device_arrays(shape, sharding, shards)
    with no_mesh():
        return _stack(local, len(shards))


@jax.jit(static_argnums=1)
def _stack(local: Array, count: int) -> Array:
    return local.reshape(count, -1, *local.shape[1:])
