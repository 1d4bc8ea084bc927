"""The images of a batch that the engines decode, in their order and ready for their calls.

All columns are made at once for all GPUs. In the thread of a GPU, a numpy call takes as long for
its images alone, and the threads of the other GPUs wait for it.
"""

import itertools

import numpy as np

from jaxaug.decode.image.nvjpeg.dispatch import SLOT, Batch, engine_rows, slot_bytes
from jaxaug.decode.image.nvjpeg.resize_and_orient import RECORD
from jaxaug.decode.image.orientation import FLIP_X, FLIP_Y, TRANSPOSE

# An image for the engines.
IMAGE = np.dtype(
    [
        ("row", np.int64),  # of the batch
        ("address", np.uint64),  # of the file
        ("length", np.uint64),
        ("sampling", np.uint32),  # see `Headers`
        ("slot_bytes", np.int64),  # of its slot; 0 if it is decoded onto its canvas at once
        ("pitch", np.uint64),  # bytes from one row of pixels to the next, in slot or on canvas
        ("record", RECORD),  # without the address of the slot; of other images the canvas alone
    ]
)


def images_for_engines(
    batch: Batch, pointers: np.ndarray, num_gpus: int, canvas_shape: tuple[int, int, int]
) -> list[np.ndarray]:
    """Return the images for the engines of each GPU: `IMAGE`[k], see `order_for_engines`.

    Args:
      batch: the rows of all GPUs, of each an equal number.
      pointers: uint64[n], the address of each canvas.
      num_gpus: number of GPUs.
      canvas_shape: (H, W, channels).
    """
    _, canvas_width, channels = canvas_shape
    rows_per_gpu = len(batch.backends) // num_gpus
    rows = order_for_engines(batch, rows_per_gpu)
    height = batch.headers.height[rows]
    width = batch.headers.width[rows]
    whole = batch.backends[rows] == SLOT

    images = np.zeros(len(rows), IMAGE)
    if whole.any():
        images["record"][whole] = _slot_records(batch, rows[whole])
    images["record"]["canvas"] = pointers[rows]
    images["row"] = rows
    images["address"] = batch.encoded.addresses[rows]
    images["length"] = batch.encoded.lengths[rows]
    images["sampling"] = batch.headers.sampling[rows]
    images["slot_bytes"] = slot_bytes(height, width, channels) * whole
    images["pitch"] = np.where(whole, width, canvas_width) * channels
    bounds = (rows // rows_per_gpu).searchsorted(np.arange(num_gpus + 1)).tolist()
    return [images[start:stop] for start, stop in itertools.pairwise(bounds)]


def order_for_engines(batch: Batch, rows_per_gpu: int) -> np.ndarray:
    """Return int64[k], the rows for the engines, GPU after GPU.

    Images for slots come first, as a call needs them, and of both kinds the largest. Helpers take
    the first ones, which spare the engines the most. The engines end together if the largest images
    of a call come first, and so do the helpers.
    """
    rows = engine_rows(batch.backends)
    pixels = batch.headers.height[rows].astype(np.int64) * batch.headers.width[rows]
    group = rows // rows_per_gpu * 2 + (batch.backends[rows] != SLOT)
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
    records["eighths"] = 8
    return records
