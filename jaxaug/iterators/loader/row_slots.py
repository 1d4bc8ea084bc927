"""Rows of an array on the host, of which no more than what is used takes memory."""

import contextlib
import math
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import jax
import numpy as np

_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class RowSlots:
    """A slot for each row of an array, with what is used of the row at its start.

    The kernel gives memory, and a disk blocks, to what is written: what lies behind takes none.

    Args:
      form: the shape and dtype of all rows.
      tight: rows have extents, int[n, k]: how far each is used in its first k sides, behind which
        it is zeros.
      path: of the file that they are mapped from; None for memory of this process.

    Attributes:
      rows: the slots.

    Raises:
      OSError: the disk is full.

    Example:
      >>> slots = RowSlots(jax.ShapeDtypeStruct((4, 3, 3), np.uint8), tight=True)
      >>> row = np.array([[1, 2, 0], [3, 4, 0], [0, 0, 0]], np.uint8)
      >>> slots.write(np.array([2]), used_parts(row[None], np.array([[2, 2]])))
      >>> slots.used(2, np.array([[2, 2]])).tolist()
      [1, 2, 3, 4]
    """

    def __init__(self, form: jax.ShapeDtypeStruct, *, tight: bool, path: Path | None = None):
        self.tight = tight
        self._path = path
        if not bytes_of(form):
            self.rows = np.zeros(form.shape, form.dtype)  # which nothing can be mapped to
        elif path is None:
            self.rows = _in_memory(form, tight)
        else:
            with path.open("ab") as file:
                file.truncate(bytes_of(form))
                if not tight:
                    _reserve(file, 0, bytes_of(form))
            self.rows = np.asarray(np.memmap(path, form.dtype, "r+", shape=form.shape))

    def empty(self, count: int) -> np.ndarray:
        """Return rows to read to, which are zeros where they are tight."""
        make = np.zeros if self.tight else np.empty
        return make((count, *self.rows.shape[1:]), self.rows.dtype)

    def write(self, places: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        """Write rows, of tight ones what is `used_parts` of them, in any shape."""
        if not self.tight:
            self.rows[places] = rows
            return
        with contextlib.nullcontext() if self._path is None else self._path.open("ab") as file:
            for place, part in zip(places.tolist(), rows):
                if file is not None:
                    _reserve(file, place * self.rows[:1].nbytes, part.nbytes)
                self.first(place, part.size)[:] = part.reshape(-1)

    def read(self, places: np.ndarray, extents: np.ndarray | None, out: np.ndarray) -> None:
        """Read rows as they were written; `out` is zeros where they are tight."""
        if extents is None or (extents == out.shape[1 : 1 + extents.shape[1]]).all():
            # Without the GIL. "raise" would copy once more, in case that a number is wrong.
            self.rows.take(places, axis=0, out=out, mode="clip")
            return
        for place, row, extent in zip(places.tolist(), out, extents):
            part = row[_sides(extent)]
            part[...] = self.first(place, part.size).reshape(part.shape)

    def used(self, place: int, extents: np.ndarray | None) -> np.ndarray:
        """Return the bytes uint8[n] of a row, as far as its `extents` [1, k] say."""
        slot = self._slot(place)
        if extents is not None:
            sides = self.rows.shape[1:]
            known = np.minimum(
                np.maximum(extents[0], 0), sides[: extents.shape[1]]
            )  # a file holds anything
            slot = slot[: math.prod([*known.tolist(), *sides[extents.shape[1] :]])]
        return slot.view(np.uint8)

    def first(self, place: int, count: int) -> np.ndarray:
        """Return the first values of a slot, [count]."""
        return self._slot(place)[:count]

    def _slot(self, place: int) -> np.ndarray:
        return self.rows[place : place + 1].reshape(-1)


def bytes_of(form: jax.ShapeDtypeStruct) -> int:
    """Return the bytes of an array of this form."""
    return math.prod(form.shape) * np.dtype(form.dtype).itemsize


def used_parts(rows: np.ndarray, extents: np.ndarray) -> list[np.ndarray]:
    """Return what is used of rows [n, ...] with these extents, int[n, k]."""
    return [row[_sides(extent)] for row, extent in zip(rows, extents)]


def used_bytes(row: jax.ShapeDtypeStruct, extents: np.ndarray | None) -> float:
    """Return the bytes of a row, of tight ones the mean of those with these extents.

    Args:
      row: its shape and dtype.
      extents: int[n, k]; with none a row is used in full.
    """
    if extents is None or not len(extents):
        return bytes_of(row)
    rest = math.prod(row.shape[extents.shape[1] :]) * np.dtype(row.dtype).itemsize
    return float(extents.astype(np.int64).prod(1).mean()) * rest


def _reserve(file: IO[bytes], start: int, count: int) -> None:
    """Take blocks of a disk: a write to a map on a full one would kill the process."""
    if count:  # the kernel refuses none
        os.posix_fallocate(file.fileno(), start, count)


def _sides(extent: np.ndarray) -> tuple[slice, ...]:
    return tuple(map(slice, extent.tolist()))


def _in_memory(form: jax.ShapeDtypeStruct, tight: bool) -> np.ndarray:
    """Return an array whose memory is taken as it is written, even if it exceeds the host's."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    memory = mmap.mmap(-1, bytes_of(form), flags=flags)
    if tight and hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)  # one of 2 MiB would hold what is behind, too
    return np.frombuffer(memory, form.dtype).reshape(form.shape)
