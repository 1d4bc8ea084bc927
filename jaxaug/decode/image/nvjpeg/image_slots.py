"""Device memory for images that the engines decode whole before they are shrunk or oriented.

A slot holds one whole image; a region holds the slots of one call.
"""

import contextlib
import itertools
import queue
from collections.abc import Iterator

import numpy as np

from jaxaug.decode.image.nvjpeg.canvas_buffers import SENTINEL
from jaxaug.decode.image.nvjpeg.resize_and_orient import RECORD, Resampler
from jaxaug.decode.native import cuda

MIN_REGION = 64 * 2**20  # bytes: what a batch of 256 photographs of ImageNet needs
_MIN_RECORDS = 1024


class RegionPool:
    """The regions of one GPU.

    Args:
      resampler: the kernels.
      count: number of regions.
      region_bytes: size of a region at most; the engines cannot decode an image that needs more.
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
    """The slots of one call; the region takes memory as its calls need it.

    Args:
      resampler: the kernels.
      size: bytes of the region at most.
      canvas_shape: (H, W, channels) of each canvas.
    """

    def __init__(self, resampler: Resampler, size: int, canvas_shape: tuple[int, int, int]):
        self._resampler = resampler
        self._size = size
        self._held = 0  # bytes
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
        return self._held

    def split_to_fit(self, sizes: np.ndarray) -> list[slice]:
        """Return the places of the images, in order, in parts that each fit the region.

        Args:
          sizes: int64[k], the bytes of the slot of each; none is larger than the region.
        """
        ends = sizes.cumsum()
        bounds = [0]
        while bounds[-1] < len(sizes):
            before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
            bounds.append(int(ends.searchsorted(before + self._size, side="right")))
        return [slice(*each) for each in itertools.pairwise(bounds)]

    def prepare(self, images: np.ndarray) -> np.ndarray:
        """Lay out a slot for each image that needs one; the slot begins with the sentinel.

        Args:
          images: `IMAGE`[k], those for slots first.

        Returns:
          uint64[k], the address to which the engines decode each.

        Raises:
          MemoryError: the device has no memory left.
        """
        self._count = int(np.count_nonzero(images["slot_bytes"]))
        sizes = images["slot_bytes"][: self._count]
        ends = sizes.cumsum()
        self._take_memory(self._count, int(ends[-1]))
        slots = (ends - sizes + self._pointer).astype(np.uint64)
        records = self._records[: self._count]
        records[:] = images["record"][: self._count]
        records["slot"] = slots

        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        copy = (self._table, self._records_address, records.nbytes, kind, self._stream)
        cuda.call("cudaMemcpyAsync", *copy)
        self._resampler.write_sentinels(self._table, self._count, SENTINEL, self._stream)
        self._synchronize()  # the engines do not wait for the stream
        return np.concatenate([slots, images["record"]["canvas"][self._count :]])

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
        self._free_slots()
        if self._stream:
            cuda.call("cudaStreamDestroy", self._stream)
        self._stream = 0

    def _take_memory(self, count: int, slot_bytes: int) -> None:
        """Take memory for so many records, and for slots of so many bytes together."""
        if not self._stream:
            self._stream = cuda.create_stream()

        # Freeing makes the host wait for the device, and all threads that call CUDA with it: 40 to
        # 100 ms beside a training. By doubling it happens a few times only.
        if slot_bytes > self._held:
            self._free_slots()
            size = min(self._size, max(MIN_REGION, 1 << (slot_bytes - 1).bit_length()))
            self._pointer = cuda.allocate(size, "for whole images larger than their canvases")
            self._held = size

        if count > len(self._records):
            self._free_table()
            size = max(_MIN_RECORDS, 1 << (count - 1).bit_length()) * RECORD.itemsize
            self._table = cuda.allocate(size, "for a table of images")
            memory, self._records_address = cuda.pinned_array((size,))
            self._records = memory.view(RECORD)

    def _free_slots(self) -> None:
        if self._pointer:
            cuda.call("cudaFree", self._pointer)
        self._pointer = 0
        self._held = 0

    def _free_table(self) -> None:
        if self._table:
            cuda.call("cudaFree", self._table)
        if self._records_address:
            cuda.call("cudaFreeHost", self._records_address)
        self._table = 0
        self._records_address = 0
        self._records = np.zeros(0, RECORD)

    def _synchronize(self) -> None:
        cuda.call("cudaStreamSynchronize", self._stream)
