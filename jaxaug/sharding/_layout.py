"""The places of a batch's rows: in the global batch, and on the devices of this process."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxaug._typing import Array, Device
from jaxaug.sharding._assemble import assemble
from jaxaug.sharding._mesh import auto_mesh
from jaxaug.sharding._split import RowRange, count_row_ranges


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

        They are where all rows are local, each on one device, in the order of the mesh.
        """
        mesh = self.sharding.mesh
        same_devices = isinstance(mesh, Mesh) and list(mesh.devices.flat) == list(self.devices)
        return self.sharding if same_devices and self.ranges == sorted(self.ranges) else self.split

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
