"""The places of kept records on devices, each of which has a share, and how rows get to theirs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxaug.iterators.loader.reader import PADDING

_NOWHERE = -1


class RecordPlaces:
    """The device of each record, its slot there, and the first of its tiles.

    A record lies on the device that had its row first, as long as there is room: where an order
    gives the same rows to a device in each epoch, no row moves.

    Args:
      length: of the source, in records.
      devices: how many there are.
      slots: for how many records a device has room; what finds none gets no place.
      tiles: how many tiles of each kind it has, of which a record takes some that lie together.

    Example:
      >>> places = RecordPlaces(6, devices=2, slots=3)
      >>> places.assign(np.array([5, 1, 0, 3]))[..., 0].tolist()  # two rows of each device
      [[0, 1, 5, 6], [3, 4, 0, 1]]
      >>> [found.tolist() for found in places.find(np.array([3, 5]))]
      [[1, 0], [[1], [0]]]
    """

    def __init__(self, length: int, *, devices: int, slots: int, tiles: Sequence[int] = ()):
        self._room = np.array([slots, *tiles])
        self._devices = devices
        self._device = np.full(length, _NOWHERE, np.int32)
        self._first = np.zeros((length, 1 + len(tiles)), np.uint32)
        self._used = np.zeros((devices, 1 + len(tiles)), np.int64)

    def assign(self, indices: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        """Give places to the records of rows int64[n], those of the first device first.

        Args:
          indices: the records.
          counts: int64[n, 1 + k], the slots and the tiles that each takes; a slot by default.

        Returns:
          uint32[devices, n, 1 + k]: the slot of each row on each device, and its first tiles; a
          slot behind all where it is not written, because it lies elsewhere, has a place already,
          gets none, or has `PADDING`.
        """
        if counts is None:
            counts = np.ones((len(indices), 1), np.int64)
        records, rows = np.unique(indices, return_index=True)
        new = (records != PADDING) & (self._device[records] == _NOWHERE)
        rows = np.sort(rows[new])
        wanted = rows * self._devices // len(indices)
        late = [
            self._place(indices, counts, rows[wanted == device], device)
            for device in range(self._devices)
        ]
        left = np.concatenate(late)
        for device in range(self._devices):
            left = self._place(indices, counts, left, device)

        firsts = np.zeros((self._devices, len(indices), len(self._room)), np.uint32)
        firsts[..., 0] = self._room[0] + np.arange(len(indices))  # no slot occurs twice
        rows = rows[self.has(indices[rows])]
        firsts[self._device[indices[rows]], rows] = self._first[indices[rows]]
        return firsts

    @property
    def firsts(self) -> np.ndarray:
        """The slot and first tiles of all records, uint32[length, 1 + k]."""
        return self._first.copy()

    def has(self, indices: np.ndarray) -> np.ndarray:
        """Return bool[n], the records that have places."""
        return (indices != PADDING) & (self._device[indices] != _NOWHERE)

    def find(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the device int32[n], the slot and first tiles uint32[n, 1 + k] of records."""
        return self._device[indices], self._first[indices]

    def _place(
        self, indices: np.ndarray, counts: np.ndarray, rows: np.ndarray, device: int
    ) -> np.ndarray:
        """Place rows on a device, in order; return those for which it has no room."""
        ends = self._used[device] + np.cumsum(counts[rows], axis=0)
        fits = (ends <= self._room).all(axis=1)  # of each row, if of those before it
        placed = rows[fits]
        self._first[indices[placed]] = (ends - counts[rows])[fits]
        self._device[indices[placed]] = device  # from here on other threads find them
        if len(placed):
            self._used[device] = ends[fits][-1]
        return rows[~fits]


class Moves(NamedTuple):
    """The rows that each device sends to each, in equal numbers, and their order where they arrive.

    Attributes:
      capacity: rows from one device to another, of which the last may be of no use.
      slots: uint32[devices * devices * capacity, k], by sender, then receiver.
      rows: uint32[n], the place of each row among those that its device receives, by sender.
    """

    capacity: int
    slots: np.ndarray
    rows: np.ndarray


def plan_moves(senders: np.ndarray, slots: np.ndarray, devices: int) -> Moves:
    """Return the moves for rows that lie in slots of senders, in equal shares of the devices.

    Args:
      senders: int32[n], the device that has each row.
      slots: uint32[n, k], its slot there, and its first tiles.
      devices: how many there are.

    Example:
      >>> slots = np.array([[7], [3], [4], [9]])
      >>> moves = plan_moves(np.array([0, 1, 1, 1]), slots, devices=2)
      >>> moves.capacity, moves.slots[:, 0].tolist(), moves.rows.tolist()
      (2, [7, 0, 0, 0, 3, 0, 4, 9], [0, 2, 2, 3])
    """
    receivers = np.arange(len(senders)) * devices // len(senders)
    pair = senders * devices + receivers
    counts = np.bincount(pair, minlength=devices * devices)
    # A power of two, so that few programs are compiled.
    capacity = 1 << int(counts.max() - 1).bit_length()

    order = np.argsort(pair, kind="stable")
    rank = np.arange(len(pair)) - (np.cumsum(counts) - counts)[pair[order]]
    sent = np.zeros((devices * devices, capacity, slots.shape[1]), np.uint32)
    sent[pair[order], rank] = slots[order]
    rows = np.empty(len(pair), np.uint32)
    rows[order] = senders[order] * capacity + rank
    return Moves(capacity, sent.reshape(-1, slots.shape[1]), rows)
