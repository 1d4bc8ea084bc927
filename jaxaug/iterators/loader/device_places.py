"""The places of kept records on devices, each of which has a share, and how rows get to theirs."""

from typing import NamedTuple

import numpy as np

from jaxaug.iterators.loader.reader import PADDING

_NOWHERE = -1


class RecordPlaces:
    """The device and the slot of each record.

    A record lies on the device that had its row first, as long as there is room: where an order
    gives the same rows to a device in each epoch, no row moves.

    Args:
      length: of the source, in records.
      devices: how many there are.
      room: for how many records they have room together; those behind them get no place.

    Attributes:
      slots: how many records a device has room for.

    Example:
      >>> places = RecordPlaces(6, devices=2, room=6)
      >>> places.assign(np.array([5, 1, 0, 3])).tolist()  # two rows of each device
      [[0, 1, 5, 6], [3, 4, 0, 1]]
      >>> [found.tolist() for found in places.find(np.array([3, 5]))]
      [[1, 0], [1, 0]]
    """

    def __init__(self, length: int, *, devices: int, room: int):
        self.slots = -(-room // devices)
        self._devices = devices
        self._device = np.full(length, _NOWHERE, np.int32)
        self._slot = np.zeros(length, np.uint32)
        self._used = np.zeros(devices, np.int64)

    def assign(self, indices: np.ndarray) -> np.ndarray:
        """Give places to the records of rows int64[n], those of the first device first.

        Returns:
          uint32[devices, n]: the slot of each row on each device; `slots` or more where it is not
          written, because it lies elsewhere, has a place already, gets none, or has `PADDING`.
        """
        records, rows = np.unique(indices, return_index=True)
        new = (records != PADDING) & (self._device[records] == _NOWHERE)
        rows = np.sort(rows[new])
        wanted = rows * self._devices // len(indices)
        late = np.zeros(len(rows), bool)
        for device in range(self._devices):
            own = np.flatnonzero(wanted == device)
            late[own[self.slots - self._used[device] :]] = True
            self._place(indices[rows[(wanted == device) & ~late]], device)
        left = indices[rows[late]]
        for device in range(self._devices):
            room = self.slots - self._used[device]
            self._place(left[:room], device)
            left = left[room:]

        behind = self.slots + np.arange(len(indices))  # no slot occurs twice
        slots = np.tile(behind.astype(np.uint32), (self._devices, 1))
        rows = rows[self.has(indices[rows])]
        slots[self._device[indices[rows]], rows] = self._slot[indices[rows]]
        return slots

    def has(self, indices: np.ndarray) -> np.ndarray:
        """Return bool[n], the records that have places."""
        return (indices != PADDING) & (self._device[indices] != _NOWHERE)

    def find(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the device int32[n] and the slot uint32[n] of records that have places."""
        return self._device[indices], self._slot[indices]

    def _place(self, records: np.ndarray, device: int) -> None:
        first = self._used[device]
        self._device[records] = device
        self._slot[records] = np.arange(first, first + len(records))
        self._used[device] += len(records)


class Moves(NamedTuple):
    """The rows that each device sends to each, in equal numbers, and their order where they arrive.

    Attributes:
      capacity: rows from one device to another, of which the last may be of no use.
      slots: uint32[devices * devices * capacity], by sender, then receiver.
      rows: uint32[n], the place of each row among those that its device receives, by sender.
    """

    capacity: int
    slots: np.ndarray
    rows: np.ndarray


def plan_moves(senders: np.ndarray, slots: np.ndarray, devices: int) -> Moves:
    """Return the moves for rows that lie in slots of senders, in equal shares of the devices.

    Args:
      senders: int32[n], the device that has each row.
      slots: uint32[n], its slot there.
      devices: how many there are.

    Example:
      >>> moves = plan_moves(np.array([0, 1, 1, 1]), np.array([7, 3, 4, 9]), devices=2)
      >>> moves.capacity, moves.slots.tolist(), moves.rows.tolist()
      (2, [7, 0, 0, 0, 3, 0, 4, 9], [0, 2, 2, 3])
    """
    receivers = np.arange(len(senders)) * devices // len(senders)
    pair = senders * devices + receivers
    counts = np.bincount(pair, minlength=devices * devices)
    # A power of two, so that few programs are compiled.
    capacity = 1 << int(counts.max() - 1).bit_length()

    order = np.argsort(pair, kind="stable")
    rank = np.arange(len(pair)) - (np.cumsum(counts) - counts)[pair[order]]
    sent = np.zeros((devices * devices, capacity), np.uint32)
    sent[pair[order], rank] = slots[order]
    rows = np.empty(len(pair), np.uint32)
    rows[order] = senders[order] * capacity + rank
    return Moves(capacity, sent.reshape(-1), rows)
