"""Records of which the devices hold as many as they have room for, and the host the others."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxaug.iterators.loader.compile import compile_rows
from jaxaug.iterators.loader.device_store import DeviceStore
from jaxaug.iterators.loader.host_store import HostStore
from jaxaug.iterators.loader.kept import RecordStore
from jaxaug.iterators.loader.reader import PADDING, ReadBatch
from jaxaug.iterators.loader.rows import RowSchema
from jaxaug.sharding._assemble import RowLayout

_PARTS = 8  # a copy from the host has some eighths of a batch, so that few programs are compiled


class MixedStore(RecordStore):
    """The records of a source, the first that come on devices and the others on the host.

    A batch is gathered on the devices. Its rows that the host has are copied there, and put in
    their places.

    Args:
      device: the store of the first.
      host: the store of the others.
      rows: the form of the rows.
      length: of the source, in records.
      layout: the devices.
    """

    def __init__(
        self,
        device: DeviceStore,
        host: HostStore,
        *,
        rows: RowSchema,
        length: int,
        layout: RowLayout,
    ):
        super().__init__(rows, length, layout)
        self.nbytes = device.nbytes + host.nbytes
        self.gather = device.gather
        self.is_light = device.gather is not None  # then runs have no rows of the host
        self._device = device
        self._host = host
        self._merging: dict[tuple[int, int], Callable[..., Any]] = {}

    def take(self, read: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> Any:
        # Asked once: another thread that has read a record, too, may find room for it meanwhile.
        here = self._device.has(indices)
        taken = self._device.take(read, indices, valid & here)
        elsewhere = valid & ~here
        if not elsewhere.any():
            return taken

        rows, places = compacted(elsewhere, len(self._layout.devices))
        used = rows >= 0
        some = read._replace(positions=read.positions[rows])
        copied = self._host.take(some, np.where(used, indices[rows], PADDING), used)
        key = (len(places), len(rows))
        if key not in self._merging:
            self._merging[key] = compile_rows(_merged, self._layout, (taken, copied, places))
        return self._merging[key](taken, copied, jax.device_put(places, self._layout.split))

    def has_for_run(self, indices: np.ndarray) -> np.ndarray:
        kept = super().has_for_run(indices)
        return kept if self.gather is None else kept & self._device.has(indices)

    def launch_each(self, read: ReadBatch, call: Callable[..., Any]) -> Iterator[Any]:
        if self._device.has(read.indices).all():
            return self._device.launch_each(read, call)
        return super().launch_each(read, call)

    def close(self) -> None:
        self._device.close()
        self._host.close()

    def write(self, rows: dict[str, Any], indices: np.ndarray) -> Any:
        readers = self._device.write(rows, indices)
        self._host.write(rows, np.where(self._device.has(indices), PADDING, indices))
        return readers


def _merged(rows: Any, some: Any, places: Array) -> Any:
    """Return rows, those of `some` in the places of them, int32[n], that are not -1."""

    def put(row: Array, other: Array) -> Array:
        here = places.reshape(-1, *[1] * (row.ndim - 1)) < 0
        return jax.numpy.where(here, row, other[places])

    return jax.tree.map(put, rows, some)


def compacted(asked: np.ndarray, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a batch that are asked for, in equal numbers for each device.

    Args:
      asked: bool[n], in equal shares of the devices.
      devices: how many there are.

    Returns:
      int64[k], the number of each row, -1 for padding; int32[n], the place of each row among those
      of its device, -1 where it is not among them.

    Example:
      >>> rows, places = compacted(np.array([False, True, True, True]), devices=2)
      >>> rows.tolist(), places.tolist()
      ([1, -1, 2, 3], [-1, 0, 0, 1])
    """
    shares = asked.reshape(devices, -1)
    share = shares.shape[1]
    step = -(-share // _PARTS)
    count = -(-int(shares.sum(1).max()) // step) * step
    rows = np.full((devices, count), -1)
    places = np.full((devices, share), -1, np.int32)
    for device, each in enumerate(shares):
        found = np.flatnonzero(each)
        rows[device, : len(found)] = device * share + found
        places[device, found] = np.arange(len(found))
    return rows.reshape(-1), places.reshape(-1)
