"""Records that stay on the devices: decoded once, and gathered there for the compiled call.

Its results are those of a Loader without them to the bit: XLA would fuse a gather with the
transform, and round that otherwise. So the gather is a call of its own, or lies behind a barrier.

Each device has a share of the records. Rows of another device are gathered there and copied from
device to device. A collective in each batch would do the same, but a thread beside the training
must not launch one: two devices that meet two programs in different orders wait forever.
"""

import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Device
from jaxaug.iterators.loader.compile import RowGather, compile_rows
from jaxaug.iterators.loader.device_places import Moves, RecordPlaces, plan_moves
from jaxaug.iterators.loader.kept import RecordStore, check_space, free_host_bytes
from jaxaug.iterators.loader.reader import MAX_POSITIONS, ReadBatch
from jaxaug.iterators.loader.rows import ROW_NAMES, RowPacking, RowSchema
from jaxaug.iterators.loader.tiles import Tiling
from jaxaug.sharding._assemble import RowLayout

_FUSES = "cpu"  # where no barrier holds: a gather in the same call would be fused, and round

# Whose words go to the device together: XLA takes 2 s for a program that gives 256 arrays.
_MAX_CALLS = 16
# Of rows that are gathered for several calls at once on CPUs, so that they stay in the cache.
_GATHERED_BYTES = 2**24


class DeviceStore(RecordStore):
    """The records of a source, in shares on the devices of a layout.

    Args:
      rows: the form of the rows.
      length: of the source, in records.
      layout: the devices.
      expected: the extents of the rows, as `RowSchema.expected_extents` has them.
      room: for how many records.
      share: of all records, which they are.
      keep: what the Loader was given.

    Attributes:
      nbytes: on all devices together.
      is_tight: rows take what they use, so that some may find no room.

    Raises:
      MemoryError: they do not fit.
    """

    def __init__(
        self,
        rows: RowSchema,
        length: int,
        layout: RowLayout,
        *,
        expected: Any,
        room: int,
        share: float,
        keep: str,
    ):
        super().__init__(rows, length, layout)
        # Held while a call is launched: one that writes takes the records from under the others.
        self._launching = threading.Lock()

        self._devices = len(layout.devices)
        self._moving: dict[tuple[int, int], tuple[Callable[..., Any], Callable[..., Any]]] = {}
        count = len(layout.rows)
        host, device = rows.split(rows.shapes(count))
        self._packing = RowPacking(host)
        self._tree = jax.tree.structure(device)
        self._tilings = self._cut(expected)
        self.is_tight = any(each is not None for each in self._tilings)
        records = -(-room // self._devices)
        # With tiles a device of small rows holds some more: what finds no room goes to the host.
        slots = min(records + -(-records // 16), room) if self.is_tight else records
        tiles = [
            each and -(-each.expected(room, length) // self._devices) + each.most
            for each in self._tilings
        ]
        self._places = RecordPlaces(
            length, devices=self._devices, slots=slots, tiles=list(filter(None, tiles))
        )
        shapes = self._record_shapes(slots, tiles)
        size = _size(shapes)
        free = free_bytes(layout.devices)
        check_space(keep, size, records, free, where=" on each device", share=share)
        self.nbytes = size * self._devices
        self._numbers = 1 + sum(each is not None for each in self._tilings)
        self._held = jax.tree.map(self._split_shape, shapes)
        self._firsts: Array | None = None  # a copy of those of the places, once it is needed
        self._taken: Any = None  # rows of the last calls on CPUs, whose memory is used again
        self._write_compiled = self._compile_write(count)
        counts = {count, count * self.run}
        self._take_compiled = {rows: self._compile_take(rows) for rows in counts}
        self.is_light = self._devices == 1
        if self.is_light:
            self._compile_kept(count * self.run, layout.devices[0].platform)
        self._records: Any = self._new_arrays(self._held)

    def has(self, indices: np.ndarray) -> np.ndarray:
        """Return bool[n], the records for which there was room."""
        return self._places.has(indices)

    def take(self, read: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> Any:
        """Return rows of the records `indices`; of those without room only the names."""
        packed = self._packed_names(read, indices, valid)
        own = np.arange(len(indices)) * self._devices // len(indices)
        here = valid & self.has(indices)
        devices, slots = self._places.find(np.where(here, indices, 0))
        devices, slots = np.where(here, devices, own), np.where(here[:, None], slots, np.uint32(0))
        if not np.array_equal(devices, own):
            return self._take_moved(packed, plan_moves(devices, slots, self._devices))
        numbers = np.concatenate([packed, slots.view(np.uint8)], 1)
        numbers = jax.device_put(numbers, self._layout.split)  # a transfer guard lets it pass
        with self._launching:
            return self._take_compiled[len(indices)](self._records, numbers)

    def launch_each(self, read: ReadBatch, call: Callable[..., Any]) -> Iterator[Any]:
        if not self.is_light:  # rows of other devices move as the host plans it
            return super().launch_each(read, call)
        several = self._words_of_calls(read)
        if self.gather is not None:
            each = [words for part in several for words in self._split_words(part)]
            launched = (self._with_records(call, words) for words in each)
        else:
            launched = (call(*rows) for part in several for rows in self._take_kept(part))
        return itertools.islice(launched, len(read.indices))

    def _words_of_calls(self, read: ReadBatch) -> list[Array]:
        """Return the words of kept records int64[calls, n] on the device, of several calls in each.

        They take hardly longer than those of one, in NumPy, on the way and there.
        """
        indices = read.indices.reshape(-1)
        words = self._rows.words(read.span.epoch, read.positions.reshape(-1), indices)
        most = self._words.shape[0]
        padded = np.zeros((-(-len(words) // most) * most, words.shape[1]), np.uint32)
        padded[: len(words)] = words
        return [
            jax.device_put(padded[start : start + most], self._layout.split)
            for start in range(0, len(words), most)
        ]

    def _take_kept(self, words: Array) -> list[Any]:
        """Return what `take` gives of kept records, of several calls by their words.

        They lie in the memory of those before, of which all calls must have been launched: new
        memory takes longer than the gather, as the system fills it with zeros page by page.
        """
        spare, self._taken = self._taken, None
        if spare is None:
            spare = self._new_arrays(self._taken_shapes)
        self._taken = self._with_records(self._take_kept_compiled, words, spare)
        return self._taken

    def _with_records(self, call: Callable[..., Any], *rest: Any) -> Any:
        """Return what a call gives that takes what `_kept_rows` does, and maybe more."""
        with self._launching:
            if self._firsts is None:
                self._firsts = jax.device_put(self._places.firsts, self._layout.split)
            return call(self._records, self._firsts, *rest)

    def _new_arrays(self, shapes: Any) -> Any:
        """Return arrays of zeros, of which each device has a share."""
        with no_mesh(), jax.disable_jit(False):
            return jax.jit(
                lambda: jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), shapes),
                out_shardings=self._layout.split,
            )()

    def _packed_names(self, read: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> np.ndarray:
        names = self._rows.names(read, indices, valid)
        return self._packing.pack(self._zeros(len(indices)) | names)[0]

    def _take_moved(self, packed: np.ndarray, moves: Moves) -> Any:
        """Return rows of which some lie on other devices."""
        key = (len(packed), moves.capacity)
        if key not in self._moving:
            self._moving[key] = self._compile_send(moves.capacity), self._compile_receive(*key)
        send, receive = self._moving[key]
        names, slots, rows = jax.device_put((packed, *moves[1:]), self._layout.split)
        with self._launching:
            sent = send(self._records, slots)
        return receive(self._exchanged(sent), names, rows)

    def _exchanged(self, sent: list[Any]) -> list[Any]:
        """Return what each device sends to all, by sender, from what all send to each."""
        leaves, tree = zip(*map(jax.tree.flatten, sent))
        devices = self._layout.devices
        shards = [
            [array.addressable_data(sender) for array in column]
            for sender in range(self._devices)
            for column in zip(*leaves)
        ]
        copies = jax.device_put(shards, [list(devices)] * len(shards))
        arrays = [
            jax.make_array_from_single_device_arrays(
                (self._devices * len(column[0]), *column[0].shape[1:]), self._layout.split, column
            )
            for column in copies
        ]
        count = len(leaves[0])
        return [
            tree[0].unflatten(arrays[sender * count : (sender + 1) * count])
            for sender in range(self._devices)
        ]

    def close(self) -> None:
        with self._launching:
            self._records = self._firsts = self._taken = None

    def write(self, rows: dict[str, Any], indices: np.ndarray) -> Array:
        host, device = self._rows.split(rows)
        zeros = self._zeros(len(indices))
        host |= {name: zeros[name] for name in ROW_NAMES}
        placed = jax.device_put(self._packing.pack(host), self._layout.replicated)
        copies = jax.tree.map(self._everywhere, device, is_leaf=_is_list)
        counts = self._counts(host)
        with self._launching:
            slots = jax.device_put(self._places.assign(indices, counts), self._layout.split)
            self._firsts = None
            self._records, done = self._write_compiled(self._records, copies, placed, slots)
        return done

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

    def _split_shape(self, share: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """Return the shape of an array of which each device has a share."""
        return jax.ShapeDtypeStruct((self._devices * share.shape[0], *share.shape[1:]), share.dtype)

    def _compile_write(self, count: int) -> Callable[..., Any]:
        """Return (records, copies, packed rows, slots) -> (records, ready)."""
        shards = self._devices
        device, packed = self._shapes(count)

        def parts(each: jax.ShapeDtypeStruct) -> list[jax.ShapeDtypeStruct]:
            return [jax.ShapeDtypeStruct((count // shards, *each.shape[1:]), each.dtype)] * shards

        def write(records: Any, copies: Any, packed: Any, slots: Array) -> tuple[Any, Array]:
            device = jax.tree.map(jax.numpy.concatenate, copies, is_leaf=_is_list)
            return self._written(records, (device, packed), slots[0]), slots + np.uint32(1)

        slots = jax.ShapeDtypeStruct((shards, count, self._numbers), np.uint32)
        shapes = (self._held, jax.tree.map(parts, device), packed, slots)
        return compile_rows(write, self._layout, shapes, replicated=(1, 2), donate=0)

    def _compile_take(self, count: int) -> Callable[..., Any]:
        """Return (records, packed names and slots) -> (arrays on the devices, packed rows)."""

        def take(records: Any, packed: Array) -> Any:
            width = 4 * self._numbers
            names, slots = packed[:, :-width], packed[:, -width:]
            slots = slots.reshape(len(slots), self._numbers, 4)
            slots = jax.lax.bitcast_convert_type(slots, np.uint32)
            return _named(self._rows_at(records, slots), names)

        names = self._names(count)
        packed = jax.ShapeDtypeStruct((count, names.shape[1] + 4 * self._numbers), names.dtype)
        return compile_rows(take, self._layout, (self._held, packed))

    def _kept_rows(self, records: Any, firsts: Array, words: Array) -> dict[str, Any]:
        """Return rows that are kept, by the first numbers of all records and their words."""
        device, packed = self._rows_at(records, _gathered(firsts, words[:, 2]))
        host = self._packing.unpack(packed) | self._rows.kept_names(words)
        return self._rows.join(host, device)

    def _compile_kept(self, count: int, platform: str) -> None:
        """Compile what gives several calls of `count` kept rows what each of them takes."""
        shape = self._rows.shapes(count)["words"]
        firsts = _uint32(*self._places.firsts.shape)
        rows = self._shapes(count)
        calls = min(max(1, MAX_POSITIONS // count), _MAX_CALLS)
        if platform == _FUSES:
            most = max(1, _GATHERED_BYTES // _size(rows))
            calls = -(-calls // -(-calls // most))  # in equal parts
        self._words = _uint32(calls * count, *shape.shape[1:])
        split = functools.partial(jax.numpy.split, indices_or_sections=calls)
        if platform != _FUSES:
            self.gather = RowGather(self._kept_rows, (self._held, firsts, shape))
            self._split_words = compile_rows(split, self._layout, (self._words,))
            return

        def take(records: Any, firsts: Array, words: Array, taken: Any) -> list[Any]:
            del taken  # its memory alone is used
            return [self._packed_rows(records, firsts, each) for each in split(words)]

        self._taken_shapes = [rows] * calls
        shapes = (self._held, firsts, self._words, self._taken_shapes)
        self._take_kept_compiled = compile_rows(take, self._layout, shapes, donate=3)

    def _packed_rows(self, records: Any, firsts: Array, words: Array) -> Any:
        """Return `_kept_rows` as `take` does."""
        host, device = self._rows.split(self._kept_rows(records, firsts, words))
        return device, self._packing.pack_on_device(host)

    def _compile_send(self, capacity: int) -> Callable[..., Any]:
        """Return (records, slots) -> for each receiver the rows that the devices send to it."""

        def send(records: Any, slots: Array) -> list[Any]:
            shape = (self._devices, capacity, self._numbers)
            return [self._rows_at(records, each) for each in slots.reshape(shape)]

        shapes = (self._held, _uint32(self._devices**2 * capacity, self._numbers))
        return compile_rows(send, self._layout, shapes)

    def _compile_receive(self, count: int, capacity: int) -> Callable[..., Any]:
        """Return (rows by sender, packed names, places) -> what `take` gives."""

        def receive(parts: list[Any], names: Array, rows: Array) -> Any:
            received = jax.tree.map(lambda *each: jax.numpy.concatenate(each), *parts)
            return _named(_gathered(received, rows), names)

        part = jax.tree.map(self._split_shape, self._shapes(capacity))
        shapes = ([part] * self._devices, self._names(count), _uint32(count))
        return compile_rows(receive, self._layout, shapes)

    def _rows_at(self, records: Any, slots: Array) -> Any:
        """Return what a device holds of rows in these slots, and of their first tiles."""
        device, packed = records
        packed = _gathered(packed, slots[:, 0])
        leaves, tree = jax.tree.flatten(device)
        firsts = iter(slots.T[1:])
        rows = [
            _gathered(leaf, slots[:, 0])
            if tiling is None
            else tiling.gather(leaf, next(firsts), extents)
            for leaf, tiling, extents in zip(
                leaves, self._tilings, self._extents(self._packing.unpack(packed))
            )
        ]
        return tree.unflatten(rows), packed

    def _written(self, records: Any, rows: Any, slots: Array) -> Any:
        """Return what a device holds with rows in these slots."""

        def put(old: Array, new: Array) -> Array:
            return old.at[slots[:, 0]].set(new, mode="drop", unique_indices=True)

        (device, packed), (values, packed_values) = records, rows
        leaves, tree = jax.tree.flatten(device)
        extents = self._extents(self._packing.unpack(packed_values))
        written = slots[:, 0] < np.uint32(len(packed[0]))
        firsts = iter(slots.T[1:])
        held = [
            put(leaf, row)
            if tiling is None
            else tiling.scatter(leaf, row, next(firsts), extent, written)
            for leaf, row, tiling, extent in zip(
                leaves, tree.flatten_up_to(values), self._tilings, extents
            )
        ]
        return tree.unflatten(held), jax.tree.map(put, packed, packed_values)

    def _counts(self, host: dict[str, Any]) -> np.ndarray:
        """Return the slots and tiles that rows take, int64[n, 1 + k]."""
        counts = [
            tiling.counts(extents)
            for tiling, extents in zip(self._tilings, self._extents(host))
            if tiling is not None
        ]
        return np.stack([np.ones(len(host["valid"]), np.int64), *counts], axis=1)

    def _extents(self, host: dict[str, Any]) -> list[Any]:
        """Return how far the arrays on the devices are used, by what else rows have."""
        values = self._rows.join(host, {name: {} for name in self._rows.decoders})
        return self._tree.flatten_up_to(self._rows.split(self._rows.extents(values))[1])

    def _cut(self, expected: Any) -> list[Tiling | None]:
        """Return how the arrays on the devices are cut, None of those that are kept as they are."""
        _, shapes = self._rows.split(self._rows.shapes(1))
        used = self._tree.flatten_up_to(self._rows.split(expected)[1])
        tilings: list[Tiling | None] = []
        for row, extents in zip(jax.tree.leaves(shapes), used):
            tiling = None
            if extents is not None and len(extents):
                tiling = Tiling(jax.ShapeDtypeStruct(row.shape[1:], row.dtype), extents)
            tilings.append(tiling if tiling and tiling.worthwhile else None)
        return tilings

    def _record_shapes(self, slots: int, tiles: list[int | None]) -> Any:
        """Return the shapes of what a device holds."""
        device, packed = self._shapes(slots)
        leaves, tree = jax.tree.flatten(device)
        held = [
            leaf
            if tiling is None
            else jax.ShapeDtypeStruct((count, *tiling.tile.shape), leaf.dtype)
            for leaf, tiling, count in zip(leaves, self._tilings, tiles)
        ]
        return tree.unflatten(held), packed

    def _zeros(self, count: int) -> Any:
        """Return what rows have on the host as zeros, which take no memory."""
        host, _ = self._rows.split(self._rows.shapes(count))
        return jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), host)

    def _names(self, count: int) -> jax.ShapeDtypeStruct:
        """Return the shape of packed rows that hold nothing but names."""
        names = self._packing.shapes[0]
        return jax.ShapeDtypeStruct((count, *names.shape[1:]), names.dtype)


def _gathered(records: Any, numbers: Array) -> Any:
    return jax.tree.map(lambda column: column.at[numbers].get(mode="promise_in_bounds"), records)


def _named(rows: Any, names: Array) -> Any:
    """Return rows with their names, whose bytes are zeros."""
    device, packed = rows
    return device, [packed[0] | names, *packed[1:]]


def _size(shapes: Any) -> int:
    """Return the bytes of arrays of these shapes."""
    leaves = jax.tree.leaves(shapes)
    return sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in leaves)


def _uint32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.uint32)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def free_bytes(devices: Sequence[Device]) -> int | None:
    """Return the bytes that are free on each device at least; None where nothing tells."""
    stats = [device.memory_stats() for device in devices]
    known = [each["bytes_limit"] - each["bytes_in_use"] for each in stats if each]
    if known:
        return min(known)
    free = free_host_bytes()  # CPU devices share it
    return None if free is None else free // len(devices)
