"""The places of a batch's rows on the devices of this process, and in the global batch.

Local shards are relabeled as global arrays: no computation, and no copy but for replicas.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._cached import cached_property
from jaxaug._typing import Device
from jaxaug.sharding._mesh import (
    RowRange,
    auto_mesh,
    check_batch_sharding,
    count_row_ranges,
    local_row_ranges,
)


def assemble(shards: Sequence[Array], sharding: NamedSharding) -> Array:
    """Return the global array whose local rows are `shards`.

    Args:
      shards: one single-device array [rows, ...] for each range of rows that this process holds, in
        the order of the rows, on one of the devices that hold the range. The others get a copy.
      sharding: the split of the global array [ranges * rows, ...], see `batch_sharding`.

    Raises:
      TypeError: shards that are no arrays on a device, or no NamedSharding.
      ValueError: not one shard for each range, or a shard on a device that does not hold its range;
        a sharding that splits more than the rows.

    Example:
      >>> import numpy as np
      >>> from jaxaug.sharding import batch_sharding
      >>> device = jax.devices()[0]
      >>> assemble([jax.device_put(np.zeros((2, 3)), device)], batch_sharding([device])).shape
      (2, 3)
    """
    for shard in shards:
        _check_shard(shard)
    rows = shards[0].shape[0] if len(shards) else 0
    batch_size, ranges = _local_ranges(sharding, rows)
    if len(ranges) != len(shards):
        raise ValueError(
            f"`shards` must hold one array for each of {len(ranges)} local ranges of rows, "
            f"got {len(shards)}."
        )

    arrays = []
    for each, shard in zip(ranges, shards):
        arrays += _replicate(shard, each)
    shape = (batch_size, *shards[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def _check_shard(shard: Any) -> None:
    """Raise TypeError unless `shard` is an array of rows on a device."""
    if isinstance(shard, jax.Array) and shard.ndim > 0:
        return
    got = f"{shard.dtype}[]" if isinstance(shard, jax.Array) else type(shard).__name__
    raise TypeError(
        f"`shards` must be jax.Arrays [rows, ...], got {got}: put the rows of each device there by "
        "jax.device_put(rows, device), and assemble the arrays of a dict one by one."
    )


def _replicate(shard: Array, rows: RowRange) -> list[Array]:
    """Return the shard itself on its device, and a copy on each other device of its rows."""
    home = next(iter(shard.devices()))
    if home not in rows.devices:
        raise ValueError(
            f"`shards` rows {rows.start}:{rows.stop} must lie on one of {rows.devices}, got {home}."
        )
    return [shard if device == home else jax.device_put(shard, device) for device in rows.devices]


@functools.lru_cache(maxsize=64)
def _local_ranges(sharding: NamedSharding, rows: int) -> tuple[int, list[RowRange]]:
    """Return the size of the global batch and its local ranges.

    A Loader asks for each array of each batch, hence the cache.
    """
    sharding = check_batch_sharding(sharding)
    batch_size = count_row_ranges(sharding) * rows
    return batch_size, local_row_ranges(sharding, batch_size)


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """The local rows of a batch, in equal shares on the devices that compute them.

    Attributes:
      ranges: the rows of the global batch that each device has, in the order of `devices`.
      devices: one for each range.
      sharding: of the global batch.
    """

    ranges: Sequence[RowRange]
    devices: Sequence[Device]
    sharding: NamedSharding

    @property
    def rows(self) -> np.ndarray:
        """The rows of the global batch that this process makes: int64[r], device after device."""
        return np.concatenate([np.arange(each.start, each.stop) for each in self.ranges])

    @cached_property
    def split(self) -> NamedSharding:
        """The sharding that splits the local rows over a mesh of our own."""
        return NamedSharding(auto_mesh(self.devices), PartitionSpec("batch"))

    @cached_property
    def replicated(self) -> NamedSharding:
        """The sharding that holds an array whole on each device of our own mesh."""
        return NamedSharding(auto_mesh(self.devices), PartitionSpec())

    @cached_property
    def output(self) -> NamedSharding:
        """The sharding of what a compiled call gives: the global one where both are the same.

        They are where all rows are local, each on one device, in the order of the mesh. Its axis
        must be named and typed as ours, or JAX would refuse a program that shows devices to its
        primitives, as one with kernels does.
        """
        same = self.sharding.mesh == self.split.mesh and self.ranges == sorted(self.ranges)
        return self.sharding if same else self.split

    def assemble(self, array: Array) -> Array:
        """Return local rows on our mesh as rows of the global batch."""
        if array.sharding == self.sharding:
            return array
        if not array.size:  # XLA holds it whole on the first device, at least in jax 0.10
            array = jax.device_put(np.empty(array.shape, array.dtype), self.split)
        # The data of one device after the other, in the order of `split`.
        order = sorted(range(len(self.ranges)), key=lambda number: self.ranges[number].start)
        return assemble([array.addressable_data(number) for number in order], self.sharding)

    def global_shape(self, local: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """Return the shape that `assemble` gives to an array of the shape `local`."""
        rows = count_row_ranges(self.sharding) * self.ranges[0].length
        return jax.ShapeDtypeStruct((rows, *local.shape[1:]), local.dtype, sharding=self.sharding)


def local_shards(array: Array) -> list[Array]:
    """Return one single-device array for each range of rows on this process, in row order.

    A replicated range lies on several devices; one of them is enough.
    """
    shards = {}
    for shard in array.addressable_shards:
        start = (shard.index[0].start or 0) if shard.index else 0
        shards.setdefault(start, shard.data)
    return [shards[start] for start in sorted(shards)]


def local_array(array: Array) -> np.ndarray:
    """Return all rows of an array that this process holds, in row order."""
    arrays = jax.device_get(local_shards(array))
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
