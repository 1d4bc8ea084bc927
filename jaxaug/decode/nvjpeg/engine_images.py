"""The images of a batch that the engines decode, in their order and ready for their calls.

All columns are made at once for all GPUs. In the thread of a GPU, a numpy call takes as long for
its images alone, and the threads of the other GPUs wait for it.
"""

from typing import NamedTuple

import numpy as np

from jaxaug.decode._orientation import FLIP_X, FLIP_Y, TRANSPOSE
from jaxaug.decode._types import Encoded
from jaxaug.decode.nvjpeg.dispatch import SLOT, Batch, count_samplings, slot_bytes
from jaxaug.decode.nvjpeg.resample import RECORD


class EngineImages(NamedTuple):
    """k images of one GPU; those for slots come first.

    Attributes:
      rows: int64[k], the row of each among those of the GPU.
      encoded: the k images.
      sampling: uint32[k], see `Headers`.
      slot_bytes: int64[k], of the slot of each; 0 for an image that lies on its canvas at once.
      pitches: uint64[k], bytes from one row of pixels to the next, in the slot or on the canvas.
      records: `RECORD`[k], the facts of the images for slots, without addresses.
    """

    rows: np.ndarray
    encoded: Encoded
    sampling: np.ndarray
    slot_bytes: np.ndarray
    pitches: np.ndarray
    records: np.ndarray

    def take(self, chosen: slice | np.ndarray) -> "EngineImages":
        """Return some of the images."""
        return EngineImages(
            self.rows[chosen],
            self.encoded.take(chosen),
            self.sampling[chosen],
            self.slot_bytes[chosen],
            self.pitches[chosen],
            self.records[chosen],
        )


def images_for_engines(
    batch: Batch, num_gpus: int, canvas_shape: tuple[int, int, int]
) -> list[EngineImages]:
    """Return the images for the engines of each GPU.

    Args:
      batch: the rows of all GPUs, of each an equal number.
      num_gpus: number of GPUs.
      canvas_shape: (H, W, channels).
    """
    _, canvas_width, channels = canvas_shape
    rows_per_gpu = len(batch.backends) // num_gpus
    rows = order_for_engines(batch, rows_per_gpu)
    height = batch.headers.height[rows]
    width = batch.headers.width[rows]
    whole = batch.backends[rows] == SLOT

    records = np.zeros(len(rows), RECORD)
    if whole.any():
        records[whole] = _slot_records(batch, rows[whole])
    images = EngineImages(
        rows=rows % rows_per_gpu,
        encoded=batch.encoded.take(rows),
        sampling=batch.headers.sampling[rows],
        slot_bytes=slot_bytes(height, width, channels) * whole,
        pitches=np.where(whole, width, canvas_width).astype(np.uint64) * np.uint64(channels),
        records=records,
    )
    counts = np.bincount(rows // rows_per_gpu, minlength=num_gpus)
    stops = np.cumsum(counts)
    return [images.take(slice(*bounds)) for bounds in zip(stops - counts, stops)]


def order_for_engines(batch: Batch, rows_per_gpu: int) -> np.ndarray:
    """Return int64[k], the rows for the engines, GPU after GPU.

    The engines take the images from the start, so that they get what only they do well. Images for
    slots come first, then the most common chroma sampling, of each the largest: a host thread that
    takes a large image last holds up its batch.
    """
    headers = batch.headers
    rows, kind, counts = count_samplings(batch.backends, headers.sampling)
    place = np.empty(counts.size, np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(counts.size)

    direct = batch.backends[rows] != SLOT
    group = (rows // rows_per_gpu * 2 + direct) * counts.size + place[kind]
    pixels = headers.height[rows].astype(np.int64) * headers.width[rows]
    return rows[((group << 32) - pixels).argsort()]  # a side has at most 16 bits


def _slot_records(batch: Batch, rows: np.ndarray) -> np.ndarray:
    """Return the sides and the orientation of some images."""
    records = np.zeros(len(rows), RECORD)
    records["height"] = batch.headers.height[rows]
    records["width"] = batch.headers.width[rows]
    out_height, out_width = batch.size[rows].T
    records["out_height"] = out_height
    records["out_width"] = out_width

    orientation = batch.headers.orientation[rows]
    records["transpose"] = TRANSPOSE[orientation]
    records["flip_x"] = FLIP_X[orientation]
    records["flip_y"] = FLIP_Y[orientation]
    return records
