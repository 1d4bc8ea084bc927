"""The choice between the GPU's JPEG engines and the host threads, and the share of the engines.

All columns are made at once for all GPUs. In the thread of a GPU, a numpy call takes as long for
its images alone, and the threads of the other GPUs wait for it.
"""

import itertools
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.image.nvjpeg.resize_and_orient import RECORD
from jaxaug.decode.image.orientation import FLIP_X, FLIP_Y, TRANSPOSE
from jaxaug.decode.image.parse.headers import BAD, JPEG, Headers
from jaxaug.decode.image.parse.jpeg_rules import GRAY, YCBCR

# Values of `assign_backends`.
ENGINE = 0  # the engines decode the image directly onto its canvas
HOST = 1  # a host thread decodes the image and uploads it
NONE = 2  # a bad image: nobody decodes it
SLOT = 3  # the engines decode the whole image into a slot; a kernel resamples it to its canvas

# Chroma samplings that the engines decode; see `Headers.sampling`.
_GRAY = 0x11000000
_444 = 0x11111100
_420 = 0x22111100
# All, sorted; the other two are 4:4:0 and 4:2:2.
_SAMPLINGS = np.array([_GRAY, _444, 0x12111100, 0x21111100, _420], np.uint32)
USUAL_SAMPLINGS = (_420, _444, _GRAY)  # of ImageNet 20, 78 and 2 per cent

# A chroma sampling of fewer images than one in so many is left to the host threads: it would cost
# the engines a call for a few images.
_MAX_RARITY = 64

# Pixels. Below, nvJPEG interpolates subsampled chroma differently (up to 52 levels, H200).
_MIN_SUBSAMPLED_SIDE = 16

# Pixels, by the number of channels. A narrower image would leave a part of the sentinel's three
# bytes on its canvas.
MIN_ENGINE_WIDTH = {1: 3, 3: 1}

_SLOT_ALIGNMENT = 256  # bytes, as for CUDA's own allocations


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


class Batch(NamedTuple):
    """The rows of a batch, of all GPUs.

    Attributes:
      encoded: n images.
      headers: of the n images.
      size: int32[n, 2], (height, width) on the canvas.
      backends: uint8[n], see `assign_backends`.
    """

    encoded: Encoded
    headers: Headers
    size: np.ndarray
    backends: np.ndarray


def assign_backends(
    headers: Headers, size: np.ndarray, max_slot_bytes: int, channels: int
) -> np.ndarray:
    """Return the backend of each image, uint8[n] of `ENGINE`, `HOST`, `NONE` and `SLOT`.

    Args:
      headers: of n images.
      size: int32[n, 2], (height, width) on the canvas.
      max_slot_bytes: bytes of the largest slot; 0 if there are no slots.
      channels: of a canvas.
    """
    supported = _engines_support(headers) & (size[:, 1] >= MIN_ENGINE_WIDTH[channels])

    # By indexing: for one image, `np.select` takes as long as the check of its bytes.
    backends = np.full(len(headers.kind), HOST, np.uint8)
    backends[supported] = ENGINE
    backends[headers.kind == BAD] = NONE

    moved = (headers.height != size[:, 0]) | (headers.width != size[:, 1])
    moved |= headers.orientation != 1
    rows = (supported & moved).nonzero()[0]
    if rows.size:
        needed = slot_bytes(headers.height[rows], headers.width[rows], channels)
        backends[rows] = np.where(needed <= max_slot_bytes, SLOT, HOST)
    return backends


def _engines_support(headers: Headers) -> np.ndarray:
    """Return bool[n], True for the JPEGs that the engines decode as libjpeg-turbo does."""
    # The factors of a single component mean nothing (T.81 A.2.2), but nvJPEG follows them.
    color = np.where(headers.sampling == _GRAY, GRAY, YCBCR)
    supported = _SAMPLINGS.take(_SAMPLINGS.searchsorted(headers.sampling), mode="clip")
    supported = (supported == headers.sampling) & (headers.color == color)
    supported &= (headers.kind == JPEG) & (headers.coding == 0) & (headers.precision == 8)
    supported &= (headers.scan_components == headers.components) & (headers.plain == 1)

    small = np.minimum(headers.height, headers.width) < _MIN_SUBSAMPLED_SIDE
    if np.count_nonzero(small):
        supported &= ~small | (headers.sampling == _GRAY) | (headers.sampling == _444)
    return supported


def slot_bytes(height: np.ndarray, width: np.ndarray, channels: int) -> np.ndarray:
    """Return int64[n], the bytes of a slot for a whole image with these stored sides."""
    size = height.astype(np.int64) * width.astype(np.int64) * channels
    return -(-size // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT


def leave_rare_samplings(backends: np.ndarray, sampling: np.ndarray) -> np.ndarray:
    """Return `backends` with the engines' rarest samplings left to the host threads.

    Args:
      backends: uint8[n], from `assign_backends`.
      sampling: uint32[n], see `Headers`.
    """
    if len(backends) <= _MAX_RARITY:
        return backends
    rows = engine_rows(backends)
    kind = _SAMPLINGS.searchsorted(sampling[rows])
    counts = np.bincount(kind)
    rare = counts * _MAX_RARITY < counts.sum()
    left = backends.copy()
    left[rows[rare[kind]]] = HOST
    return left


def engine_rows(backends: np.ndarray) -> np.ndarray:
    """Return int64[k], the rows for the engines.

    Args:
      backends: uint8[n], from `assign_backends`.
    """
    return ((backends == ENGINE) | (backends == SLOT)).nonzero()[0]


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
    images = np.zeros(len(rows), IMAGE)
    images["row"] = rows
    images["address"] = batch.encoded.addresses[rows]
    images["length"] = batch.encoded.lengths[rows]
    images["sampling"] = batch.headers.sampling[rows]
    images["pitch"] = canvas_width * channels
    whole = batch.backends[rows] == SLOT
    if np.count_nonzero(whole):
        slots = rows[whole]
        width = batch.headers.width[slots]
        images["record"][whole] = _slot_records(batch, slots)
        images["slot_bytes"][whole] = slot_bytes(batch.headers.height[slots], width, channels)
        images["pitch"][whole] = width * channels
    images["record"]["canvas"] = pointers[rows]
    if num_gpus == 1:
        return [images]
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
