"""Records that stay on the devices: decoded once, and gathered there for the compiled call.

The call is that of a Loader without them, so that its results are the same to the bit: XLA would
fuse a gather with the transform, and round that otherwise.

Each device of the Loader holds the whole data, at the places that are the records' numbers. Rows
that move between devices would need a collective in each batch, which a thread beside the training
must not launch: two devices that meet two programs in different orders wait forever.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Array, Device
from jaxaug.iterators.loader.kept import RecordStore, check_space, free_host_bytes
from jaxaug.iterators.loader.packing import RowPacking
from jaxaug.iterators.loader.reader import PADDING, ReadBatch
from jaxaug.iterators.loader.rows import ROW_NAMES, RowSchema
from jaxaug.sharding._layout import RowLayout


class DeviceStore(RecordStore):
    """The records of a source on each device of a layout.

    Args:
      rows: the form of the rows.
      length: of the source, in records.
      layout: the devices.

    Attributes:
      nbytes: on all devices together.

    Raises:
      MemoryError: they do not fit.
    """

    def __init__(self, rows: RowSchema, length: int, layout: RowLayout):
        super().__init__(rows, length, layout)
        # Held while a call is launched: one that writes takes the records from under the others.
        self._launching = threading.Lock()

        count = len(layout.rows)
        host, _ = rows.split(rows.shapes(count))
        self._packing = RowPacking(host)
        self._zeros = jax.tree.map(lambda x: np.zeros((1, *x.shape[1:]), x.dtype), host)
        shapes = self._shapes(length)
        size = sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(shapes))
        check_space("device", size, length, free_bytes(layout.devices))
        self.nbytes = size * len(layout.devices)
        with no_mesh(), jax.disable_jit(False):
            self._write_compiled = self._compile_write(shapes, count)
            counts = {count, count * self.run}
            self._take_compiled = {rows: self._compile_take(shapes, rows) for rows in counts}
            self._records: Any = jax.jit(
                lambda: jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), shapes),
                out_shardings=layout.replicated,
            )()

    def take(self, read: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> Any:
        names = self._rows.names(read, indices, valid)
        numbers = np.where(valid, indices, 0).astype(np.uint32)
        packed = self._packing.pack(self._empty(len(indices)) | names)[0]
        placed = jax.device_put((packed, numbers), self._layout.split)
        with self._launching:
            return self._take_compiled[len(indices)](self._records, *placed)

    def close(self) -> None:
        with self._launching:
            self._records = None

    def _write(self, rows: dict[str, Any], indices: np.ndarray) -> Array:
        host, device = self._rows.split(rows)
        host |= {name: self._empty(len(indices))[name] for name in ROW_NAMES}
        slots = _slots(indices, len(self._state))
        placed = jax.device_put((self._packing.pack(host), slots), self._layout.replicated)
        copies = jax.tree.map(self._everywhere, device, is_leaf=_is_list)
        with self._launching:
            self._records, done = self._write_compiled(self._records, copies, *placed)
        return done

    def _empty(self, count: int) -> dict[str, Any]:
        """Return rows of zeros, which take no memory."""
        return jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape[1:])), self._zeros)

    def _everywhere(self, shards: Sequence[Array]) -> list[Array]:
        """Return arrays of single devices as arrays that each device has, copied one by one."""
        sharding = self._layout.replicated
        return [
            jax.make_array_from_single_device_arrays(
                shard.shape,
                sharding,
                [jax.device_put(shard, device) for device in self._layout.devices],
            )
            for shard in shards
        ]

    def _shapes(self, count: int) -> Any:
        """Return the shapes of `count` rows: arrays on the devices, and packed rows."""
        host, device = self._rows.split(self._rows.shapes(count))
        return device, RowPacking(host).shapes

    def _compile_write(self, records: Any, count: int) -> Callable[..., Any]:
        """Return (records, copies, packed rows, slots) -> (records, ready)."""
        shards = len(self._layout.devices)
        device, packed = self._shapes(count)

        def parts(each: jax.ShapeDtypeStruct) -> list[jax.ShapeDtypeStruct]:
            return [jax.ShapeDtypeStruct((count // shards, *each.shape[1:]), each.dtype)] * shards

        def write(records: Any, copies: Any, packed: Any, slots: Array) -> tuple[Any, Array]:
            device = jax.tree.map(jax.numpy.concatenate, copies, is_leaf=_is_list)
            written = jax.tree.map(
                lambda old, new: old.at[slots].set(new, mode="drop", unique_indices=True),
                records,
                (device, packed),
            )
            return written, slots + np.uint32(1)

        shapes = (records, jax.tree.map(parts, device), packed, _numbers(count))
        return self._compile(write, shapes, (PartitionSpec(),) * 4, PartitionSpec(), donate=0)

    def _compile_take(self, records: Any, count: int) -> Callable[..., Any]:
        """Return (records, packed names, numbers) -> (arrays on the devices, packed rows)."""

        def take(records: Any, names: Array, numbers: Array) -> Any:
            device, packed = jax.tree.map(
                lambda column: column.at[numbers].get(mode="promise_in_bounds"), records
            )
            return device, [packed[0] | names, *packed[1:]]  # the bytes of names are zeros

        names = self._packing.shapes[0]
        names = jax.ShapeDtypeStruct((count, *names.shape[1:]), names.dtype)
        shapes = (records, names, _numbers(count))
        batch = PartitionSpec("batch")
        return self._compile(take, shapes, (PartitionSpec(), batch, batch), batch)

    def _compile(
        self,
        function: Callable[..., Any],
        shapes: tuple[Any, ...],
        specs: tuple[PartitionSpec, ...],
        out_specs: PartitionSpec,
        donate: int | None = None,
    ) -> Callable[..., Any]:
        """Return a function of arrays on the devices, compiled, without collectives."""
        mesh = self._layout.replicated.mesh
        placed = [
            jax.tree.map(
                lambda x, spec=spec: jax.ShapeDtypeStruct(
                    x.shape, x.dtype, sharding=NamedSharding(mesh, spec)
                ),
                each,
            )
            for each, spec in zip(shapes, specs)
        ]
        mapped = jax.shard_map(
            function, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False
        )
        compiled = jax.jit(mapped, donate_argnums=donate).lower(*placed).compile()
        return jax.disable_jit(False)(compiled)


def _numbers(count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count,), np.uint32)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _slots(indices: np.ndarray, length: int) -> np.ndarray:
    """Return the place uint32[n] of each row among `length` records; behind them, it is dropped.

    A record that several rows have is written once. No place occurs twice.
    """
    slots = length + np.arange(len(indices))
    records, rows = np.unique(indices, return_index=True)
    real = records != PADDING
    slots[rows[real]] = records[real]
    return slots.astype(np.uint32)


def free_bytes(devices: Sequence[Device]) -> int | None:
    """Return the bytes that are free on each device at least; None where nothing tells."""
    stats = [device.memory_stats() for device in devices]
    known = [each["bytes_limit"] - each["bytes_in_use"] for each in stats if each]
    if known:
        return min(known)
    free = free_host_bytes()  # CPU devices share it
    return None if free is None else free // len(devices)
