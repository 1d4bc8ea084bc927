"""Batches for `jax.pmap`."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxaug._typing import Array
from jaxaug.iterators._loader import Loader
from jaxaug.iterators.export._local import Export


def for_pmap(loader: Loader) -> Export:
    """A Loader's batches as `jax.pmap` takes them: each array is [local devices, rows a device, ...].

    Iterating yields one epoch: exactly the rest of the Loader's current one, then the next. The rows are on their
    devices already; `flax.jax_utils.prefetch_to_device` and `shard` are not needed and would copy them.

    Args:
      loader: a `Loader` whose batch is split over all devices, as it is by default.

    Raises:
      ValueError: its batch is replicated, or not on all local devices in their order.

    Example:
      >>> import io, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> file = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(file, "JPEG")
      >>> with Loader(InMemory([file.getvalue()] * 4), 2 * jax.device_count(), last_batch="pad") as loader:
      ...     images = next(iter(for_pmap(loader)))["image"]
      >>> images.shape == (jax.local_device_count(), 2, 64, 64, 3)
      True
    """
    spec = loader.element_spec["valid"]
    assert spec.sharding is not None
    rows = spec.sharding.addressable_devices_indices_map(spec.shape)
    found = [rows[device] for device in jax.local_devices() if device in rows]
    starts = [index[0].start or 0 for index in found if index]
    if len(starts) != jax.local_device_count() or sorted(set(starts)) != starts:
        raise ValueError(
            f"`loader` must split its batch over all local devices in their order, as jax.pmap does, got "
            f"sharding={spec.sharding}."
        )
    return Export(loader, _to_stacked)


def _to_stacked(shards: list[Array]) -> Array:
    mesh = Mesh(np.array(jax.local_devices()), ("batch",))
    shape = (len(shards) * shards[0].shape[0], *shards[0].shape[1:])
    local = jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, PartitionSpec("batch")), shards)
    return _stack(local, len(shards))


@jax.jit(static_argnums=1)
def _stack(local: Array, count: int) -> Array:
    return local.reshape(count, -1, *local.shape[1:])
