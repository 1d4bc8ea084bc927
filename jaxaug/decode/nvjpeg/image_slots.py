"""Memory for images that the engines decode whole before they are shrunk or turned to their
canvases.
"""

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

from jaxaug.decode._orientation import FLIP_X, FLIP_Y, TRANSPOSE
from jaxaug.decode.native import cuda
from jaxaug.decode.nvjpeg.canvas_buffers import MARK
from jaxaug.decode.nvjpeg.dispatch import Batch, slot_bytes
from jaxaug.decode.nvjpeg.resample import RECORD, Resampler


class Slots:
    """The regions of one GPU, one for each call that may run at a time.

    Args:
      resampler: the kernels.
      count: how many regions.
      region_bytes: of each; an image that needs more is not for the engines.
      pitch: bytes of a canvas row.
    """

    def __init__(self, resampler: Resampler, count: int, region_bytes: int, pitch: int):
        self.region_bytes = region_bytes
        self._regions = [Region(resampler, region_bytes, pitch) for _ in range(count)]
        self._free = list(self._regions)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lend(self) -> Iterator["Region"]:
        """Lend a region; there are as many as callers at a time."""
        with self._lock:
            region = self._free.pop()
        try:
            yield region
        finally:
            with self._lock:
                self._free.append(region)

    @property
    def bytes_held(self) -> int:
        """The device memory that is taken by now."""
        return sum(region.bytes_held for region in self._regions)

    def close(self) -> None:
        """Free everything; the device is current."""
        for region in self._regions:
            region.close()


class Region:
    """Slots of one call, one behind the other; memory is taken when the first image comes.

    Args:
      resampler: the kernels.
      size: bytes in all.
      pitch: bytes of a canvas row.
    """

    def __init__(self, resampler: Resampler, size: int, pitch: int):
        self._resampler = resampler
        self._size = size
        self._pitch = pitch
        self._pointer = 0
        self._table = 0  # of RECORDs, on the device
        self._records = np.zeros(0, RECORD)  # the same, in page-locked memory
        self._records_address = 0
        self._stream = 0
        self._count = 0

    @property
    def bytes_held(self) -> int:
        """The device memory that is taken by now."""
        return self._size if self._pointer else 0

    def groups(self, sizes: np.ndarray) -> list[np.ndarray]:
        """Return the images in groups that fit the region, by their numbers, in order.

        Args:
          sizes: int64[n], from `slot_bytes`, none above the region's.
        """
        groups: list[list[int]] = [[]]
        used = 0
        for number, size in enumerate(sizes.tolist()):
            if used + size > self._size:
                groups.append([])
                used = 0
            groups[-1].append(number)
            used += size
        return [np.array(group, np.int64) for group in groups]

    def prepare(self, batch: Batch, rows: np.ndarray, canvases: np.ndarray) -> np.ndarray:
        """Lay out a slot for each of some rows of a batch, with a mark in its first pixel.

        Args:
          batch: the images.
          rows: int64[k], their rows.
          canvases: uint64[k], where their canvases begin.

        Returns:
          uint64[k], where each slot begins.

        Raises:
          MemoryError: no device memory is left.
        """
        self._take_memory(len(rows))
        headers = batch.headers
        sizes = slot_bytes(headers.height[rows], headers.width[rows])
        begins = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.uint64)
        self._count = len(rows)
        records = self._records[: self._count]
        records["slot"] = np.uint64(self._pointer) + begins
        records["canvas"] = canvases
        records["height"] = headers.height[rows]
        records["width"] = headers.width[rows]
        records["out_height"] = batch.size[rows, 0]
        records["out_width"] = batch.size[rows, 1]
        orientation = headers.orientation[rows]
        records["transpose"] = TRANSPOSE[orientation]
        records["flip_x"] = FLIP_X[orientation]
        records["flip_y"] = FLIP_Y[orientation]

        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        cuda.call(
            "cudaMemcpyAsync",
            self._table,
            self._records_address,
            records.nbytes,
            kind,
            self._stream,
        )
        self._resampler.mark_slots(self._table, self._count, MARK, self._stream)
        self._synchronize()  # the engines do not wait for the stream
        return records["slot"].copy()

    def resample(self) -> None:
        """Shrink and turn the prepared images to their canvases; those that still bear the mark are
        left out.
        """
        records = self._records[: self._count]
        self._resampler.fill_canvases(self._table, records, self._pitch, MARK, self._stream)
        self._synchronize()

    def close(self) -> None:
        """Free everything; the device is current."""
        self._free_table()
        if self._pointer:
            cuda.call("cudaFree", self._pointer)
            cuda.call("cudaStreamDestroy", self._stream)
        self._pointer = 0

    def _take_memory(self, count: int) -> None:
        if not self._pointer:
            self._pointer = cuda.allocate(self._size, "for whole images larger than their canvases")
            self._stream = cuda.create_stream()
        if count > len(self._records):
            self._free_table()
            size = count * RECORD.itemsize
            self._table = cuda.allocate(size, "for a table of images")
            memory, self._records_address = cuda.pinned_array((size,))
            self._records = memory.view(RECORD)

    def _free_table(self) -> None:
        if self._table:
            cuda.call("cudaFree", self._table)
            cuda.call("cudaFreeHost", self._records_address)
        self._table = 0
        self._records = np.zeros(0, RECORD)

    def _synchronize(self) -> None:
        cuda.call("cudaStreamSynchronize", self._stream)
