"""Records that stay on the devices: decoded once, gathered from there by the compiled call.

Each device of the Loader holds the whole data, at the places that are the records' numbers. Rows
that move between devices would need a collective in each batch, which a thread beside the training
must not launch: two devices that meet two programs in different orders wait forever.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Array, Device
from jaxaug.iterators.loader.bad_records import MAX_REPLACEMENT_TRIES, BadRecord
from jaxaug.iterators.loader.decode import DecodedBatch
from jaxaug.iterators.loader.packing import RowPacking
from jaxaug.iterators.loader.reader import PADDING, AskedBatch, RecordReader
from jaxaug.iterators.loader.rows import RowSchema
from jaxaug.sharding._layout import RowLayout

_UNKNOWN, _KEPT, _BAD = range(3)  # what is known of a record


@dataclasses.dataclass(frozen=True)
class ResidentSchema:
    """The form of rows whose records lie on the devices; see `RowSchema`, in whose place it stands.

    Attributes:
      rows: the form of the rows.
      length: of the source, in records.
    """

    rows: RowSchema
    length: int

    device_spec: ClassVar[PartitionSpec] = PartitionSpec()

    def shapes(self, count: int) -> dict[str, Any]:
        """Return the tree of the shapes of `count` rows."""
        return self.rows.shapes(count)

    def split(self, rows: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the host gives of a tree of rows, and the shapes of all records."""
        host = {name: rows[name] for name in ("words", "valid", "index")}
        return host, _values(self.rows.shapes(self.length))

    def join(self, host: dict[str, Any], records: dict[str, Any]) -> dict[str, Any]:
        """Return the tree of rows, gathered by the numbers of their records."""
        numbers = jax.numpy.where(host["valid"], host["words"][:, 2], np.uint32(0))
        taken = jax.tree.map(
            lambda column: column.at[numbers].get(mode="promise_in_bounds"), records
        )
        # Without it XLA would fuse the gather with the transform, and round that otherwise.
        return host | lax.optimization_barrier(taken)


def _values(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a tree of rows that is the same in every epoch."""
    return {"plain": rows["plain"], "decoded": rows["decoded"]}


class KeptRows(NamedTuple):
    """What is known of the rows of a batch before it is read.

    Attributes:
      indices: int64[r], their records; in the places of known bad ones their replacements.
      missing: bool[r], the rows that must be read.
      bad: what is known of bad records in other rows.
    """

    indices: np.ndarray
    missing: np.ndarray
    bad: list[BadRecord]


class DeviceStore:
    """The records of a source on each device of a layout.

    Args:
      rows: the form of the rows.
      length: of the source, in records.
      layout: the devices.

    Attributes:
      schema: of the batches that are gathered.
      nbytes: on all devices together.

    Raises:
      MemoryError: they do not fit.
    """

    def __init__(self, rows: RowSchema, length: int, layout: RowLayout):
        self.schema = ResidentSchema(rows, length)
        self._rows = rows
        self._layout = layout
        shapes = _values(rows.shapes(length))
        size = sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(shapes))
        _check_memory(size, length, layout.devices)
        self.nbytes = size * len(layout.devices)
        self._state = np.full(length, _UNKNOWN, np.uint8)
        self._bad: dict[int, BadRecord] = {}
        self._packing, self._write = self._compile(shapes)
        # Held while a call is launched: one that writes takes the records from under the others.
        self._launching = threading.Lock()
        zeros = jax.jit(
            lambda: jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), shapes),
            out_shardings=layout.replicated,
        )
        with no_mesh(), jax.disable_jit(False):
            self._records: Any = zeros()

    @property
    def count(self) -> int:
        """The number of records that are kept."""
        return int(np.count_nonzero(self._state == _KEPT))

    def find(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bool[...] twice: the records that are kept, and those that are known to be bad."""
        state = np.where(indices == PADDING, _UNKNOWN, self._state[indices])
        return state == _KEPT, state == _BAD

    def bad_record(self, index: int) -> BadRecord:
        """Return what is known of a bad record."""
        return self._bad[index]

    def put(self, decoded: DecodedBatch) -> None:
        """Keep the valid rows of a batch, and the names of the bad ones; release its memory."""
        done: Any = ()
        try:
            indices = decoded.read.indices
            values = _values(self._rows.arrays(decoded.read, decoded.columns, decoded.valid))
            host, device = self._rows.split(values)
            slots = _slots(np.where(decoded.valid, indices, PADDING), len(self._state))
            packed = self._packing.pack({"slots": slots, "values": host})
            packed = jax.device_put(packed, self._layout.replicated)
            copies = jax.tree.map(self._everywhere, device, is_leaf=_is_list)
            with self._launching:
                self._records, done = self._write(self._records, copies, packed)
        finally:
            decoded.release(done)
        self._state[indices[decoded.valid]] = _KEPT
        for record in decoded.bad:
            self._bad[record["index"]] = record
            self._state[record["index"]] = _BAD

    def launch(self, call: Callable[..., Any], seed: Array, packed: list[Array]) -> Any:
        """Return what a compiled call makes of the records."""
        with self._launching:
            return call(seed, self._records, packed)

    def close(self) -> None:
        """Free the memory."""
        with self._launching:
            self._records = None

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

    def _compile(self, records: dict[str, Any]) -> tuple[RowPacking, Callable[..., Any]]:
        """Return the packing of rows that are kept, and the compiled call that writes them.

        It is (records, arrays on the devices, packed rows) -> (records, ready).
        """
        count = len(self._layout.rows)
        shards = len(self._layout.devices)
        slots = jax.ShapeDtypeStruct((count,), np.uint32)
        host, device = self._rows.split(_values(self._rows.shapes(count)))
        packing = RowPacking({"slots": slots, "values": host})

        def parts(each: jax.ShapeDtypeStruct) -> list[jax.ShapeDtypeStruct]:
            return [jax.ShapeDtypeStruct((count // shards, *each.shape[1:]), each.dtype)] * shards

        def write(records: Any, copies: Any, packed: list[Array]) -> tuple[Any, Array]:
            unpacked = packing.unpack(packed)
            device = jax.tree.map(jax.numpy.concatenate, copies, is_leaf=_is_list)
            rows = self._rows.join(unpacked["values"], device)
            slots = unpacked["slots"]
            kept = jax.tree.map(
                lambda old, new: old.at[slots].set(new, mode="drop", unique_indices=True),
                records,
                rows,
            )
            return kept, slots + np.uint32(1)

        shapes = (records, jax.tree.map(parts, device), packing.shapes)
        sharding = self._layout.replicated
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shapes
        )
        spec = PartitionSpec()
        mapped = jax.shard_map(
            write, mesh=sharding.mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        with no_mesh(), jax.disable_jit(False):
            compiled = jax.jit(mapped, donate_argnums=0).lower(*shapes).compile()
        return packing, jax.disable_jit(False)(compiled)


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


def _check_memory(size: int, length: int, devices: Sequence[Device]) -> None:
    """Raise MemoryError unless each device has `size` bytes free."""
    free = free_bytes(devices)
    if free is None or size <= free:
        return
    raise MemoryError(
        f"`keep`='device' needs {size:,} bytes on each device, {size // length:,} for each of "
        f"{length:,} records, and {free:,} are free: give `decode` a smaller canvas, the Loader "
        "fewer records (`Subset`), or leave `keep` out."
    )


def free_bytes(devices: Sequence[Device]) -> int | None:
    """Return the bytes that are free on each device at least; None where nothing tells."""
    stats = [device.memory_stats() for device in devices]
    known = [each["bytes_limit"] - each["bytes_in_use"] for each in stats if each]
    if known:
        return min(known)
    try:  # CPU devices share the memory of the host
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = dict(line.split()[:2] for line in lines)["MemAvailable:"]
    return int(kilobytes) * 1024 // len(devices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResidentReader(RecordReader):
    """Reads those records of a batch that are not kept.

    Attributes:
      store: of the records.
      replaces: the next good record of the order takes the place of a bad one.
    """

    store: DeviceStore
    replaces: bool

    def _without_kept(self, asked: AskedBatch) -> AskedBatch:
        if isinstance(asked.indices, Exception):
            return asked
        kept = self._look_up(asked.span.epoch, asked.positions, asked.indices)
        read = np.where(kept.missing, kept.indices, PADDING)
        return asked._replace(indices=read, kept=kept)

    def _look_up(self, epoch: int, positions: np.ndarray, indices: np.ndarray) -> KeptRows:
        kept, bad = self.store.find(indices)
        names = indices
        if self.replaces and bad.any():
            others = self._replacements(epoch, positions[bad])
            indices = indices.copy()
            indices[bad] = np.where(others == PADDING, indices[bad], others)
            bad[bad] = others != PADDING  # else it is read again, and what follows it
        missing = (indices != PADDING) & ~kept & ~bad
        return KeptRows(indices, missing, [self.store.bad_record(i) for i in names[bad].tolist()])

    def _replacements(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the next good record behind each position; `PADDING` where that is not known."""
        behind = np.arange(1, MAX_REPLACEMENT_TRIES + 1)
        places = (positions[:, None] + behind) % self.length
        records = self._find_records(epoch, places.reshape(-1)).reshape(places.shape)
        kept, bad = self.store.find(records)
        rows = np.arange(len(positions))
        first = np.argmin(bad, axis=1)
        return np.where(kept[rows, first], records[rows, first], PADDING)
