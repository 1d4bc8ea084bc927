"""From surfaces to canvases, with the memory that the kernels of one thread need."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.native import cuda
from jaxaug.decode.native.staging import Staging
from jaxaug.decode.video.nvdec.place_planes import (
    BLOCK,
    FRAME,
    Kernels,
    pillow_weights,
)
from jaxaug.decode.video.nvdec.session import Surfaces

_RECORDS = 64  # of frames whose kernels may be under way
_AT_ONCE = 16  # frames of a launch
_SCRATCH_BYTES = 2**24  # for those of a launch that are shrunk, but for one frame at least
_MAX_TABLES = 64  # of weights that are kept

Size = tuple[int, int]


class Canvases(NamedTuple):
    """The form of the canvases of a frame.

    Attributes:
      luma: (H, W).
      chroma: (H, W) of each of two.
    """

    luma: Size
    chroma: Size


class Picture(NamedTuple):
    """A surface, and the addresses of the canvases that it is written to."""

    pointer: int
    pitch: int
    luma: int
    chroma: int


class _Table(NamedTuple):
    """The weights of a side in device memory."""

    first: int
    weights: int
    taps: int


class Placer:
    """Starts kernels that write surfaces to canvases, shrunk to fit and upright.

    Args:
      canvases: their form.
      kernels: of the device that is current.
      stream: of the device; the kernels run on it.
    """

    def __init__(self, canvases: Canvases, kernels: Kernels, stream: int):
        self._canvases = canvases
        self._stream = stream
        self._kernels = kernels
        # The device has records of its own: each block would read those of the host across the bus.
        self._records = Staging("for the frames of a launch")
        self._records.reserve(_RECORDS * FRAME.itemsize)
        self._used = 0
        self._frame = np.zeros((), FRAME)  # of the video, but for its addresses
        self._prepared: Any = None  # the last format and turns
        self._sides: Size = (0, 0)  # of luma, upright, whole
        self._size: Size = (0, 0)  # on the canvas
        self._at_once = _AT_ONCE  # frames of a launch
        self._scratch = (0, 0)  # address, bytes
        self._apart = 0  # bytes of the scratch from one frame to the next
        self._tables: dict[Size, _Table] = {}

    @property
    def bytes_held(self) -> int:
        """The device memory for frames that are shrunk."""
        return self._scratch[1]

    def start(self, surfaces: Surfaces, turns: int) -> tuple[Size, Size]:
        """Prepare for the frames of a video; return their size on canvases, and their own.

        Args:
          surfaces: some of them.
          turns: counter-clockwise quarter turns that make them upright.
        """
        form = surfaces.format
        if self._prepared == (form, turns):
            return self._size, self._sides
        self._prepared = form, turns
        area = form.display_area
        height, width = area.bottom - area.top, area.right - area.left
        halved = form.chroma_format == 1
        bits = 8 + form.luma_bits_minus8
        place = (area.left, area.top, height, width, halved, bits, turns, 0)
        self._frame["surface"] = (0, 0, surfaces.rows, *place)
        self._sides = (width, height) if turns % 2 else (height, width)
        found = fit_size(np.array([self._sides], np.int32), self._canvases.luma)
        self._size = (int(found[0, 0]), int(found[0, 1]))
        self._at_once = _AT_ONCE
        shrunk = self._size != self._sides
        sides = (*self._canvases.luma, *self._canvases.chroma)
        self._frame["canvases"][2 if shrunk else 0] = (0, 0, *sides, 1, 0)
        if shrunk:
            self._shrink(_Sides(self._sides, halved), _Sides(self._size, halved))
        return self._size, self._sides

    def put(self, pictures: Sequence[Picture]) -> None:
        """Start writing frames to their canvases, many by one launch."""
        for start in range(0, len(pictures), self._at_once):
            self._launch(pictures[start : start + self._at_once])

    def _launch(self, pictures: Sequence[Picture]) -> None:
        count = len(pictures)
        if self._used + count > _RECORDS:
            self.finish()
        start = self._used * FRAME.itemsize
        self._describe(self._records.memory.view(FRAME)[self._used :][:count], pictures)
        self._records.to_device(count * FRAME.itemsize, self._stream, start)
        address = np.uint64(self._records.pointer + start)
        self._used += count
        height, _ = self._sides
        self._kernels.place.launch(self._stream, _grid(height + 1, 1, count), BLOCK, address)
        if self._size != self._sides:
            small = self._size
            for number, (rows, columns) in enumerate(((height, small[1]), small)):
                grid = _grid(rows + 1, columns + 1, count)
                self._kernels.shrink.launch(self._stream, grid, BLOCK, address, np.int32(number))

    def _describe(self, records: np.ndarray, pictures: Sequence[Picture]) -> None:
        """Fill in the records of frames."""
        records[...] = self._frame
        pointers, pitches, lumas, chromas = zip(*pictures)
        records["surface"]["pointer"], records["surface"]["pitch"] = pointers, pitches
        canvases, shrunk = records["canvases"], self._size != self._sides
        for name, addresses in (("luma", lumas), ("chroma", chromas)):
            if shrunk:
                apart = np.arange(len(pictures), dtype=np.uint64)[:, None] * np.uint64(self._apart)
                canvases[name][:, :2] += apart
            canvases[name][:, 2 if shrunk else 0] = addresses

    def finish(self) -> None:
        """Wait until all frames are on their canvases."""
        if self._used:
            cuda.call("cudaStreamSynchronize", self._stream)
            self._used = 0

    def close(self) -> None:
        """Free the memory; the device is current."""
        cuda.call("cudaStreamSynchronize", self._stream)
        self._forget_tables()
        if self._scratch[0]:
            cuda.call("cudaFree", self._scratch[0])
        self._records.free()

    def _shrink(self, whole: "_Sides", small: "_Sides") -> None:
        """Describe the two passes, across and down, as Pillow goes."""
        if len(self._tables) >= _MAX_TABLES:
            self._forget_tables()
        wide = _Sides((whole.luma[0], small.luma[1]), whole.halved)
        self._apart = whole.bytes + wide.bytes
        self._at_once = min(max(_SCRATCH_BYTES // self._apart, 1), _AT_ONCE)
        address = self._take_scratch(self._apart * self._at_once)
        self._frame["canvases"][0] = whole.canvas(address)
        self._frame["canvases"][1] = wide.canvas(address + whole.bytes)
        for down, (before, after) in enumerate(((whole, wide), (wide, small))):
            axis = 0 if down else 1
            luma = self._table(before.luma[axis], after.luma[axis])
            chroma = self._table(before.chroma[axis], after.chroma[axis])
            outs = (after.luma[axis], after.chroma[axis])
            others = (after.luma[1 - axis], after.chroma[1 - axis])
            tables = (luma.first, luma.weights, chroma.first, chroma.weights)
            taps = (luma.taps, chroma.taps)
            self._frame["axes"][down] = (*tables, *taps, *outs, *others, down, 0)

    def _table(self, inside: int, out: int) -> _Table:
        """Return the weights of a side, on the device."""
        found = self._tables.get((inside, out))
        if found is None:
            first, weights = pillow_weights(inside, out)
            found = _Table(_upload(first), _upload(weights), weights.shape[1])
            self._tables[inside, out] = found
        return found

    def _forget_tables(self) -> None:
        for table in self._tables.values():
            cuda.call("cudaFree", table.first)
            cuda.call("cudaFree", table.weights)
        self._tables.clear()

    def _take_scratch(self, size: int) -> int:
        """Return device memory of at least a size; nothing reads the last one any more."""
        if size > self._scratch[1]:
            old, self._scratch = self._scratch[0], (0, 0)
            if old:
                cuda.call("cudaFree", old)
            self._scratch = (cuda.allocate(size, "for videos that are shrunk"), size)
        return self._scratch[0]


class _Sides(NamedTuple):
    """The sizes of planes that lie behind each other."""

    luma: Size
    halved: bool

    @property
    def chroma(self) -> Size:
        height, width = self.luma
        return (-(-height // 2), -(-width // 2)) if self.halved else self.luma

    @property
    def bytes(self) -> int:
        return math.prod(self.luma) + 2 * math.prod(self.chroma)

    def canvas(self, address: int) -> tuple[int, ...]:
        """Return the record of such planes at an address."""
        return (address, address + math.prod(self.luma), *self.luma, *self.chroma, 0, 0)


def _grid(rows: int, columns: int, frames: int) -> tuple[int, int, int]:
    """Return the blocks of three planes of each frame, each as large as luma."""
    return (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]), 3 * frames)


def _upload(table: np.ndarray) -> int:
    """Return the address of a copy in device memory."""
    kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
    address = cuda.allocate(table.nbytes, "for the weights of videos that are shrunk")
    cuda.call("cudaMemcpy", address, table.ctypes.data, table.nbytes, kind)
    return address
