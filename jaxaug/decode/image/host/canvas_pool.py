"""Host memory for the canvases of batches, taken again once nobody can read it."""

import math
import threading
import weakref
from collections import deque
from typing import NamedTuple

import numpy as np

_ALIGNMENT = 64  # bytes; XLA's CPU client takes memory with this alignment without a copy


class Canvas(NamedTuple):
    """The canvas of one image.

    Attributes:
      pixels: [H, W, channels].
      covered: int32[2], the (height, width) at the top left that may hold an image; the rest is
        zero.
    """

    pixels: np.ndarray
    covered: np.ndarray

    def make_room(self, size: tuple[int, int]) -> None:
        """Fill all but the top left of a size (height, width) with zeros.

        Until the caller sets it, `covered` is the whole canvas, as an image may be half written.

        Example:
          >>> canvas = Canvas(np.ones((2, 3, 1), np.uint8), np.array([2, 3]))
          >>> canvas.make_room((1, 2))
          >>> canvas.pixels[..., 0].tolist()
          [[1, 1, 0], [0, 0, 0]]
        """
        height, width = size
        covered_height, covered_width = self.covered
        self.pixels[height:covered_height, :covered_width] = 0
        self.pixels[:height, width:covered_width] = 0
        self.covered[:] = self.pixels.shape[:2]

    def clear(self) -> None:
        """Fill the canvas with zeros."""
        self.make_room((0, 0))
        self.covered[:] = 0


class Canvases(NamedTuple):
    """The canvases of one batch on one device.

    Attributes:
      pixels: [n, H, W, channels]; the memory is free for another batch when the last array
        that views it is gone, and JAX's arrays with it.
      covered: int32[n, 2], see `Canvas`.
    """

    pixels: np.ndarray
    covered: np.ndarray

    def rows(self) -> list[Canvas]:
        """Return each canvas."""
        return list(map(Canvas, self.pixels, self.covered))


class CanvasPool:
    """The memory of canvases, of which no more than an earlier image has left is cleared.

    New memory costs the kernel a fault for each page and zeros for whole canvases: on CPU hosts a
    tenth of all the time of a Loader.

    A block comes back where its memory would be freed otherwise, in the destructor of what owns it.
    So it is written again only when nothing refers to it any more, whoever had it: arrays of JAX,
    which keep the NumPy array that they view, computations, or views of users.

    Args:
      canvas_shape: (H, W, channels), or another.
      max_free: blocks that may wait for a batch.
      dtype: of the pixels.
    """

    def __init__(self, canvas_shape: tuple[int, ...], max_free: int, dtype: str = "uint8"):
        self._canvas_shape = canvas_shape
        self._dtype = np.dtype(dtype)
        # Only its atomic operations are used: a destructor may run in the midst of any line.
        self._free = deque[_Block](maxlen=max_free)
        self._made: list[
            weakref.ref[_Block]
        ] = []  # replaced, never changed: it may be read any time
        self._making = threading.Lock()
        self._closed = False

    @property
    def bytes_held(self) -> int:
        """The memory of the blocks, those that batches have included."""
        blocks = (each() for each in self._made)
        return sum(block.nbytes for block in blocks if block is not None)

    def take(self, rows: int) -> Canvases:
        """Return canvases for so many rows."""
        block = self._find(rows) or self._make(rows)
        return Canvases(np.asarray(_Lease(self, block)), block.covered)

    def give_back(self, block: "_Block") -> None:
        """Have the memory ready for another batch; of too many blocks the oldest is freed."""
        if not self._closed:
            self._free.append(block)

    def close(self) -> None:
        """Free what is not in use; what is will be freed when it comes back."""
        self._closed = True
        self._free.clear()

    def _make(self, rows: int) -> "_Block":
        block = _Block(rows, self._canvas_shape, self._dtype)
        with self._making:
            living = [each for each in self._made if each() is not None]
            self._made = [*living, weakref.ref(block)]
        return block

    def _find(self, rows: int) -> "_Block | None":
        """Return a free block of so many rows; others are freed."""
        while True:
            try:
                block = self._free.popleft()
            except IndexError:
                return None
            if block.shape[0] == rows:
                return block


class _Block:
    """The memory of a batch, all zeros at first; untouched pages take no memory.

    Args:
      rows: canvases.
      canvas_shape: (H, W, channels) of each.
      dtype: of the pixels.
    """

    def __init__(self, rows: int, canvas_shape: tuple[int, ...], dtype: np.dtype):
        self.shape = (rows, *canvas_shape)
        self.dtype = dtype
        self.covered = np.zeros((rows, 2), np.int32)
        self._memory = np.zeros(math.prod(self.shape) * dtype.itemsize + _ALIGNMENT, np.uint8)
        self.nbytes = self._memory.nbytes
        address = self._memory.ctypes.data
        self.address = address + -address % _ALIGNMENT


class _Lease:
    """The owner of the arrays that view a block; its end gives the block back.

    NumPy keeps the object whose interface it has read alive for all views, and views of views.
    """

    def __init__(self, pool: CanvasPool, block: _Block):
        self._pool = pool
        self._block = block
        self.__array_interface__ = {
            "version": 3,
            "typestr": block.dtype.str,
            "data": (block.address, False),
            "shape": block.shape,
        }

    def __del__(self):
        self._pool.give_back(self._block)
