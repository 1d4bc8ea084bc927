"""Records that stay in the memory of the host, or in files that it maps."""

import hashlib
import itertools
import json
import math
import shutil
import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxaug
from jaxaug._mesh_context import no_mesh
from jaxaug.decode._cpus import usable_cpus
from jaxaug.iterators.loader import staging
from jaxaug.iterators.loader.device_places import RecordPlaces
from jaxaug.iterators.loader.kept import KEPT, RecordStore, check_space, free_host_bytes
from jaxaug.iterators.loader.reader import PADDING, ReadBatch
from jaxaug.iterators.loader.row_slots import RowSlots, used_bytes, used_parts
from jaxaug.iterators.loader.rows import MAX_COLUMN_BYTES, ROW_NAMES, RowPacking, RowSchema
from jaxaug.iterators.loader.tight_rows import TightRows
from jaxaug.iterators.sources.protocol import Source
from jaxaug.iterators.sources.stamps import stamps_of
from jaxaug.sharding._assemble import RowLayout

# One thread copies some 10 GB/s, the bus to a GPU takes 50.
_THREADS = 8
_THREAD_BYTES = 2**22  # of a thread's share at least
_PARTS = 8  # rows come from a device in eighths of a batch, so that few programs are compiled


class HostStore(RecordStore):
    """The records of a source in the memory of the host, as far as this process has decoded them.

    Args:
      rows: the form of the rows.
      length: of the source, in records.
      layout: the devices that rows are copied to.
      expected: the extents of the rows, as `RowSchema.expected_extents` has them.
      room: for how many records, in the order in which they come; None for all of them.
      planned: how many of these are expected; all by default.
      keep: what the Loader was given.

    Raises:
      MemoryError: the planned ones do not fit.
    """

    def __init__(
        self,
        rows: RowSchema,
        length: int,
        layout: RowLayout,
        *,
        expected: Any,
        room: int | None = None,
        planned: int | None = None,
        keep: str = "host",
    ):
        super().__init__(rows, length, layout)
        self._keep = keep
        self._places = None if room is None else RecordPlaces(length, devices=1, slots=room)
        self._placing = threading.Lock()
        room = length if room is None else room
        self._planned = room if planned is None else planned
        self._packing = RowPacking(rows.split(rows.shapes(len(layout.rows)))[0])
        leaves, self._tree = jax.tree.flatten(_values(rows.shapes(1)))
        each = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        extents = self._tree.flatten_up_to(expected)
        self.nbytes = math.ceil(sum(map(used_bytes, each, extents)) * self._planned)
        self._slots = self._allocate(
            [jax.ShapeDtypeStruct((room, *row.shape), row.dtype) for row in each],
            [extent is not None for extent in extents],
        )
        self._tight = [
            TightRows(row, layout) if slots.tight and TightRows.suits(row, layout) else None
            for row, slots in zip(each, self._slots)
        ]
        self._threads = min(_THREADS, usable_cpus())
        self._staging = staging.Staging(layout) if staging.suits(layout) else None
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="jaxaug-gather")

    def take(self, read: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> Any:
        values = self._values_at(np.where(valid, self._places_of(indices), 0))
        host, device = self._rows.split(values | self._rows.names(read, indices, valid))
        return self._sent((device, self._packing.pack(host)))

    def close(self) -> None:
        self._slots = []
        if self._staging is not None:
            self._staging.close()
        self._pool.shutdown()

    def write(self, rows: dict[str, Any], indices: np.ndarray) -> tuple[()]:
        good = np.flatnonzero(indices != PADDING)
        if not good.size:  # all lie on devices
            return ()
        if self._places is not None:
            with self._placing:
                self._places.assign(indices)
        places = self._places_of(indices[good])
        values = _values(rows)
        extents = self._tree.flatten_up_to(self._rows.extents(values))
        columns = zip(self._slots, self._tree.flatten_up_to(values), extents, self._tight)
        for slots, value, extent, tight in columns:
            start = 0
            for part in _on_host(value, good, extent, tight):
                self._write(slots, places[start : start + len(part)], part)
                start += len(part)
        return ()

    def _write(self, slots: RowSlots, places: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        """Write rows of a column."""

        def copy(part: slice) -> None:
            slots.write(places[part], rows[part])

        self._copy_in_threads(copy, len(places), len(places) * slots.rows[:1].nbytes)

    def _values_at(self, places: np.ndarray) -> Any:
        """Return the values of rows; those that are used in full tell the extents of the others."""
        values: list[Any] = [
            None if each.tight else self._gathered(each, places, None) for each in self._slots
        ]
        extents = self._tree.flatten_up_to(self._rows.extents(self._tree.unflatten(values)))
        for number, (slots, tight) in enumerate(zip(self._slots, self._tight)):
            if slots.tight:
                found = (slots, places, extents[number])
                values[number] = self._spread(tight, *found) if tight else self._gathered(*found)
        return self._tree.unflatten(values)

    def _gathered(
        self, slots: RowSlots, places: np.ndarray, extents: np.ndarray | None
    ) -> np.ndarray:
        """Return rows of a column."""
        rows = self._empty(slots, len(places))

        def copy(part: slice) -> None:
            slots.read(places[part], None if extents is None else extents[part], rows[part])

        self._copy_in_threads(copy, len(places), rows.nbytes)
        return rows

    def _spread(
        self, tight: TightRows, slots: RowSlots, places: np.ndarray, extents: np.ndarray
    ) -> jax.Array:
        """Return rows of a column on the devices, to which goes what is used of them."""
        starts, ends, room = tight.places(extents)
        values = self._staged((room,), slots.rows.dtype)

        def copy(part: slice) -> None:
            for place, start, end in zip(places[part], starts[part], ends[part]):
                values[start:end] = slots.first(place, end - start)

        self._copy_in_threads(copy, len(places), values.nbytes)
        return tight.spread(*self._sent((values, extents.astype(np.int32))))

    def _copy_in_threads(self, copy: Callable[[slice], None], count: int, size: int) -> None:
        """Copy `count` rows, in parts by several threads where they are many bytes."""
        threads = min(self._threads, size // _THREAD_BYTES)
        if threads < 2:
            copy(slice(None))
            return
        bounds = np.linspace(0, count, threads + 1).astype(int).tolist()
        parts = [slice(*each) for each in itertools.pairwise(bounds)]
        deque(self._pool.map(copy, parts), maxlen=0)

    def _empty(self, slots: RowSlots, count: int) -> np.ndarray:
        """Return rows to read to, which are zeros where they are tight."""
        if slots.tight or slots.rows[:1].nbytes <= MAX_COLUMN_BYTES:  # which others are packed with
            return slots.empty(count)
        return self._staged((count, *slots.rows.shape[1:]), slots.rows.dtype)

    def _sent(self, arrays: Any) -> Any:
        """Return a tree of arrays on the devices."""
        if self._staging is not None:
            return self._staging.copy(arrays)
        return jax.device_put(arrays, self._layout.split)

    def _staged(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array to read to, page-locked where that is of use."""
        return np.empty(shape, dtype) if self._staging is None else self._staging.rows(shape, dtype)

    def _places_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the places of records in the columns."""
        if self._places is None:
            return indices
        _, slots = self._places.find(indices)
        return slots[:, 0].astype(np.int64)

    def _allocate(self, columns: list[jax.ShapeDtypeStruct], tight: list[bool]) -> list[RowSlots]:
        """Return slots for each column."""
        where = "" if self._keep == "host" else " on the host"
        check_space(self._keep, self.nbytes, self._planned, free_host_bytes(), where=where)
        return [RowSlots(each, tight=is_tight) for each, is_tight in zip(columns, tight)]


def _on_host(
    values: Any, rows: np.ndarray, extents: np.ndarray | None, tight: TightRows | None
) -> list[Any]:
    """Return some rows of a column as slots take them, those of a device behind those of another.

    Args:
      values: of NumPy, or a list of an array for each device.
      rows: their numbers, in order.
      extents: of all rows; None where they are used in full.
      tight: joins what is used of rows on the devices; None where they come in full.
    """
    if tight is not None and extents is not None and isinstance(values, list):
        wanted = np.zeros_like(extents)
        wanted[rows] = extents[rows]
        used = tight.join(values, wanted)
        return [[used[row] for row in rows.tolist()]]
    found = _rows_of(values, rows) if isinstance(values, list) else [values[rows]]
    if extents is None:
        return found
    bounds = np.cumsum([len(each) for each in found])[:-1]
    return list(map(used_parts, found, np.split(extents[rows], bounds)))


def _rows_of(shards: list[jax.Array], rows: np.ndarray) -> list[np.ndarray]:
    """Return some rows of devices' arrays of equal length, which follow each other, on the host.

    They come from arrays of their own: JAX keeps what it has copied to the host beside the array,
    and an array of canvases is the same one when engines have written the next batch.
    """
    length = len(shards[0])
    bounds = rows.searchsorted(length * np.arange(len(shards) + 1))
    parts = [
        (shard, rows[start:stop] - length * number)
        for number, (shard, (start, stop)) in enumerate(zip(shards, itertools.pairwise(bounds)))
        if stop > start
    ]
    found = staging.to_host(list(itertools.starmap(_rows_of_shard, parts)))
    return [each[: len(numbers)] for each, (_, numbers) in zip(found, parts)]


def _rows_of_shard(values: jax.Array, rows: np.ndarray) -> jax.Array:
    """Return some rows of an array on its device, and others behind them."""
    part = -(-len(values) // _PARTS)
    numbers = np.zeros(-(-len(rows) // part) * part, np.int32)
    numbers[: len(rows)] = rows
    with no_mesh():
        return _gathered(values, jax.device_put(numbers, values.sharding))


@jax.jit
def _gathered(values: jax.Array, rows: jax.Array) -> jax.Array:
    return values.at[rows].get(mode="promise_in_bounds")


def _values(rows: dict[str, Any]) -> dict[str, Any]:
    """Return rows, or their shapes, without their names."""
    return {name: tree for name, tree in rows.items() if name not in ROW_NAMES}


class DiskStore(HostStore):
    """The records of a source in mapped files, which other processes and later runs find again.

    A record counts once the checksum of its bytes and of its stamp is there and right: what a
    process that was killed has left half written is decoded anew, and so is a record that has
    changed in the source. Other versions of jaxaug, and of what decodes, begin a folder of their
    own.

    Args:
      rows: the form of the rows.
      layout: the devices that rows are copied to.
      directory: holds a folder for each source and way of decoding it.
      source: of the records.
      expected: the extents of the rows, as `RowSchema.expected_extents` has them.

    Raises:
      MemoryError: they do not fit; OSError: the files cannot be made, or the disk is full later.
    """

    def __init__(
        self, rows: RowSchema, layout: RowLayout, directory: Path, source: Source, *, expected: Any
    ):
        self._directory = directory
        self._source = source
        self._stamps = np.zeros(len(source), np.uint32)  # 0 where none was taken
        super().__init__(rows, len(source), layout, expected=expected)

    def find(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept, bad = super().find(indices)
        unknown = np.unique(indices[(indices != PADDING) & ~kept & ~bad])
        if not unknown.size:
            return kept, bad
        self._take_stamps(unknown)
        written = unknown[self._checksums[unknown] != 0]
        self._state[written[self._checksums[written] == self._checksums_of(written)]] = KEPT
        return super().find(indices)

    def has_for_run(self, indices: np.ndarray) -> np.ndarray:
        # Those that were looked at: the first batch does not wait for the checksums of a group.
        return super().find(indices)[0]

    def write(self, rows: dict[str, Any], indices: np.ndarray) -> tuple[()]:
        try:
            super().write(rows, indices)
        except OSError as error:
            raise OSError(
                error.errno,
                f"`keep`='disk:{self._directory}' must have room for all {len(self._state):,} "
                f"records, got {error.strerror!r} behind {self.count:,}: free some and go on, "
                "what is there stays, or leave `keep` out.",
            ) from error
        written = indices[indices != PADDING]
        self._checksums[written] = self._checksums_of(written)
        return ()

    def _checksums_of(self, indices: np.ndarray) -> list[int]:
        """Return the checksums of records and of their stamps in the source, which are not 0."""
        self._take_stamps(indices)
        return list(map(self._checksum, indices.tolist(), self._stamps[indices].tolist()))

    def _take_stamps(self, indices: np.ndarray) -> None:
        """Take the stamps of records that have none.

        It is done before they are read: one that changes between its read and its write has the
        stamp of what was read, or of what was there before.
        """
        new = indices[self._stamps[indices] == 0]
        if new.size:
            self._stamps[new] = stamps_of(self._source, new)

    def _checksum(self, index: int, checksum: int) -> int:
        full = [None if each.tight else each.rows[index : index + 1] for each in self._slots]
        extents = self._tree.flatten_up_to(self._rows.extents(self._tree.unflatten(full)))
        for slots, extent in zip(self._slots, extents):
            checksum = zlib.crc32(slots.used(index, extent).data, checksum)
        return checksum or 1

    def _allocate(self, columns: list[jax.ShapeDtypeStruct], tight: list[bool]) -> list[RowSlots]:
        folder = self._make_folder(columns)
        checksums = jax.ShapeDtypeStruct((len(self._state),), np.uint32)
        paths = [folder / f"{number}.bin" for number in range(len(columns) + 1)]
        taken = sum(path.stat().st_blocks * 512 for path in paths if path.exists())
        free = shutil.disk_usage(folder).free
        check_space(f"disk:{self._directory}", self.nbytes - taken, len(self._state), free)
        *slots, sums = (
            RowSlots(each, tight=is_tight, path=path)
            for each, is_tight, path in zip([*columns, checksums], [*tight, False], paths)
        )
        self._checksums = sums.rows
        return slots

    def _make_folder(self, columns: list[jax.ShapeDtypeStruct]) -> Path:
        """Return the folder of these records, decoded in this way."""
        decoders = {name: repr(each) for name, each in self._rows.decoders.items()}
        platform = self._layout.devices[0].platform
        versions: dict[str, str] = {}
        for each in self._rows.decoders.values():
            versions |= each.made_by(platform)
        facts = {
            "source": self._source.fingerprint(),
            "platform": platform,  # engines and host differ by rounding
            "decoders": decoders,
            "versions": {"jaxaug": jaxaug.__version__} | versions,
            "columns": [f"{np.dtype(each.dtype)} {each.shape}" for each in columns],
            "slots": "tight",  # of what rows use, at their starts
            "version": 3,  # 1 had pixels of earlier batches where engines decode, 2 no stamps
        }
        described = json.dumps(facts, indent=2)
        name = hashlib.blake2b(described.encode(), digest_size=8).hexdigest()
        folder = self._directory.expanduser() / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "description.json").write_text(described)
        except OSError as error:
            raise type(error)(
                f"`keep`='disk:{self._directory}' must name a directory that can be written to: "
                f"{folder}: {error.strerror}."
            ) from error
        return folder
