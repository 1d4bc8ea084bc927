"""Device memory for images that the engines decode whole before they are shrunk or oriented.

A slot holds one whole image; a region holds the slots of one call.
"""

import contextlib
import queue
from collections.abc import Iterator

import numpy as np

from jaxaug.decode._orientation import FLIP_X, FLIP_Y, TRANSPOSE
from jaxaug.decode.native import cuda
from jaxaug.decode.nvjpeg.canvas_buffers import SENTINEL
from jaxaug.decode.nvjpeg.dispatch import Batch
from jaxaug.decode.nvjpeg.resample import RECORD, Resampler


class RegionPool:
    """The regions of one GPU.

    Args:
      resampler: the kernels.
      count: number of regions.
      region_bytes: size of a region; the engines cannot decode an image that needs more.
      canvas_shape: (H, W, channels) of each canvas.
    """

    def __init__(
        self,
        resampler: Resampler,
        count: int,
        region_bytes: int,
        canvas_shape: tuple[int, int, int],
    ):
        self.region_bytes = region_bytes
        self._regions = [SlotRegion(resampler, region_bytes, canvas_shape) for _ in range(count)]
        self._free = queue.LifoQueue[SlotRegion]()
        for region in self._regions:
            self._free.put(region)

    @contextlib.contextmanager
    def borrow(self) -> Iterator["SlotRegion"]:
        """Give a free region to the caller, who waits until there is one."""
        region = self._free.get()
        try:
            yield region
        finally:
            self._free.put(region)

    @property
    def bytes_held(self) -> int:
        """The device memory that the regions take now."""
        return sum(region.bytes_held for region in self._regions)

    def close(self) -> None:
        """Free everything; the device is current."""
        for region in self._regions:
            region.close()


class SlotRegion:
    """The slots of one call; the region takes its memory when the first image comes.

    Args:
      resampler: the kernels.
      size: bytes of the region.
      canvas_shape: (H, W, channels) of each canvas.
    """

    def __init__(self, resampler: Resampler, size: int, canvas_shape: tuple[int, int, int]):
        self._resampler = resampler
        self._size = size
        self._pitch = canvas_shape[1] * canvas_shape[2]  # bytes of a row of pixels
        self._pointer = 0
        self._table = 0  # of RECORDs, on the device
        self._records = np.zeros(0, RECORD)  # the same table in page-locked memory
        self._records_address = 0
        self._stream = 0
        self._count = 0

    @property
    def bytes_held(self) -> int:
        """The device memory that the region takes now."""
        return self._size if self._pointer else 0

    def split_to_fit(self, sizes: np.ndarray) -> list[np.ndarray]:
        """Return the numbers of the images, in order, in groups that each fit the region.

        Args:
          sizes: int64[n], from `slot_bytes`; none is larger than the region.
        """
        if sizes.sum() <= self._size:
            return [np.arange(len(sizes))]
        groups: list[list[int]] = [[]]
        used = 0
        for number, size in enumerate(sizes.tolist()):
            if used + size > self._size:
                groups.append([])
                used = 0
            groups[-1].append(number)
            used += size
        return [np.array(group, np.int64) for group in groups]

    def prepare(
        self, batch: Batch, rows: np.ndarray, sizes: np.ndarray, canvases: np.ndarray
    ) -> np.ndarray:
        """Lay out a slot for each row, that begins with the sentinel.

        Args:
          batch: the images.
          rows: int64[k], rows of the batch.
          sizes: int64[k], the bytes of each slot.
          canvases: uint64[k], the address of the canvas of each row.

        Returns:
          uint64[k], the address of each slot.

        Raises:
          MemoryError: the device has no memory left.
        """
        self._take_memory(len(rows))
        self._count = len(rows)
        records = self._records[: self._count]
        offsets = (np.cumsum(sizes) - sizes).astype(np.uint64)
        records["slot"] = np.uint64(self._pointer) + offsets
        records["canvas"] = canvases
        _fill_facts(records, batch, rows)

        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        copy = (self._table, self._records_address, records.nbytes, kind, self._stream)
        cuda.call("cudaMemcpyAsync", *copy)
        self._resampler.write_sentinels(self._table, self._count, SENTINEL, self._stream)
        self._synchronize()  # the engines do not wait for the stream
        return records["slot"].copy()

    def resample(self) -> None:
        """Shrink and orient the prepared images to their canvases.

        Images whose slot still has the sentinel are left out.
        """
        records = self._records[: self._count]
        self._resampler.fill_canvases(self._table, records, self._pitch, SENTINEL, self._stream)
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


def _fill_facts(records: np.ndarray, batch: Batch, rows: np.ndarray) -> None:
    """Fill in the sides and the orientation of each image."""
    headers = batch.headers
    records["height"] = headers.height[rows]
    records["width"] = headers.width[rows]
    out_height, out_width = batch.size[rows].T
    records["out_height"] = out_height
    records["out_width"] = out_width

    orientation = headers.orientation[rows]
    records["transpose"] = TRANSPOSE[orientation]
    records["flip_x"] = FLIP_X[orientation]
    records["flip_y"] = FLIP_Y[orientation]
