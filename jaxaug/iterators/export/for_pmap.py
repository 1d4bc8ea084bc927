"""A Loader's batches in the form that `jax.pmap` takes."""

import jax
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Device
from jaxaug.iterators.export.to_numpy import Batch, Export
from jaxaug.iterators.loader.loader import Loader
from jaxaug.sharding._assemble import local_shards
from jaxaug.sharding._mesh import auto_mesh


def for_pmap(loader: Loader) -> Export:
    """Return a Loader's batches in the form that `jax.pmap` takes.

    Each array is [local devices, rows per device, ...], with the rows of this process in their
    order. Iterating yields the rest of the current epoch. Where the Loader splits its batch over
    all local devices in their order, as it does by default, the rows are on their devices already;
    another mesh moves them. `flax.jax_utils.prefetch_to_device` and `shard` are not needed and
    would copy them.

    Args:
      loader: a `Loader` over any mesh.

    Raises:
      TypeError: `loader` is no Loader.
      ValueError: the rows of this process are no multiple of its devices, or several processes hold
        the same rows, which would count twice.

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
    _check_rows(spec.sharding, spec.shape)
    return export


def _check_rows(sharding: NamedSharding, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the rows of each process are its own and fill its devices."""
    owners: dict[int, set[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        start = (index[0].start or 0) if index else 0
        owners.setdefault(start, set()).add(device.process_index)
    if any(len(processes) > 1 for processes in owners.values()):
        raise ValueError(
            "`loader` must give each process rows of its own, as jax.pmap sums over all processes, "
            f"got sharding={sharding}, which gives several processes the same rows."
        )

    local = sum(jax.process_index() in processes for processes in owners.values())
    rows = local * sharding.shard_shape(shape)[0]
    if rows == 0 or rows % jax.local_device_count() != 0:
        raise ValueError(
            f"`loader` must give this process a multiple of {jax.local_device_count()} rows, the "
            f"number of its devices, got {rows} of batch_size={shape[0]}."
        )


def _to_stacked(batch: Batch) -> Batch:
    with no_mesh():
        return jax.tree.map(_stack, batch)


def _stack(array: Array) -> Array:
    """Return the local rows of an array as [local devices, rows per device, ...]."""
    devices = jax.local_devices()
    stacked = _add_axis(_spread(array), len(devices))
    # Moves nothing, but XLA holds an array without numbers whole on each device.
    return jax.device_put(stacked, _split_over(devices))


def _spread(array: Array) -> Array:
    """Return the local rows of an array, split over the local devices in their order."""
    shards = local_shards(array)
    shape = (len(shards) * shards[0].shape[0], *shards[0].shape[1:])
    owners = [next(iter(shard.devices())) for shard in shards]
    local = jax.make_array_from_single_device_arrays(shape, _split_over(owners), shards)
    return jax.device_put(local, _split_over(jax.local_devices()))  # moves none that lies there


def _split_over(devices: list[Device]) -> NamedSharding:
    return NamedSharding(auto_mesh(devices), PartitionSpec("batch"))


@jax.jit(static_argnums=1)
def _add_axis(local: Array, count: int) -> Array:
    return local.reshape(count, len(local) // count, *local.shape[1:])
