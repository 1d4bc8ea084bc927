"""Memory for canvases on the host, used again once no array refers to it."""

import ctypes
import math
import weakref
from collections import deque
from typing import NamedTuple

import numpy as np

_ALIGNMENT = 64  # bytes; XLA's CPU client takes memory with this alignment without a copy
_MAX_FREE = 4  # blocks that wait to be used again


class Block(NamedTuple):
    """Canvases of one device.

    Attributes:
      pixels: uint8[rows, H, W, C], zero beyond `used`.
      used: int32[rows, 2], the (height, width) that may hold something else.
    """

    pixels: np.ndarray
    used: np.ndarray


class CanvasMemory:
    """Blocks of canvases that come back by themselves.

    New memory costs a page fault for each of its pages, which may take as long as to decode.
    `take` lends a block to an array. A `jax.Array` that shares its memory, and every view of it,
    keeps the loan alive; when the last of them is gone, the block is free again.

    Args:
      canvas_shape: (H, W, C).
    """

    def __init__(self, canvas_shape: tuple[int, int, int]):
        self._canvas_shape = canvas_shape
        self._free: deque[Block] = deque(maxlen=_MAX_FREE)

    def take(self, rows: int) -> Block:
        """Return a block of `rows` canvases, to be cleared by `clear_beyond`."""
        block = self._free_block(rows) or _new_block(rows, self._canvas_shape)
        loan = (ctypes.c_uint8 * block.pixels.nbytes).from_buffer(block.pixels.data)
        # The loan keeps the memory, and the finalizer brings it back.
        weakref.finalize(loan, self._free.append, block).atexit = False
        lent = np.frombuffer(memoryview(loan), np.uint8).reshape(block.pixels.shape)
        return Block(lent, block.used)

    def _free_block(self, rows: int) -> Block | None:
        """Return a free block of that size; those of another size are dropped."""
        while True:
            try:
                block = self._free.pop()
            except IndexError:
                return None
            if len(block.pixels) == rows:
                return block


def clear_beyond(block: Block, row: int, size: tuple[int, int]) -> None:
    """Zero what a row may hold beyond `size`, which is going to be written."""
    height, width = size
    used_height, used_width = block.used[row].tolist()
    canvas = block.pixels[row]
    if used_height > height:
        canvas[height:used_height, :used_width] = 0
    if used_width > width:
        canvas[:height, width:used_width] = 0
    block.used[row] = size


def _new_block(rows: int, canvas_shape: tuple[int, int, int]) -> Block:
    """Return zeros. `np.zeros` is lazy: pages that no image covers are never touched."""
    shape = (rows, *canvas_shape)
    count = math.prod(shape)
    memory = np.zeros(count + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return Block(memory[first : first + count].reshape(shape), np.zeros((rows, 2), np.int32))
