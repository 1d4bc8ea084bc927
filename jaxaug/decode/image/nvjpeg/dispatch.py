"""The choice between the GPU's JPEG engines and the host threads, for each image of a batch."""

from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded
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
_SUBSAMPLED = np.array([0x12111100, 0x21111100, 0x22111100], np.uint32)  # 4:4:0, 4:2:2, 4:2:0
_SAMPLINGS = np.array([_GRAY, _444, *_SUBSAMPLED], np.uint32)  # all, sorted

# A chroma sampling of fewer images than one in so many is left to the host threads: it would cost
# the engines a call for a few images.
_MAX_RARITY = 64

# Pixels. Below, nvJPEG interpolates subsampled chroma differently (up to 52 levels, H200).
_MIN_SUBSAMPLED_SIDE = 16

# Pixels, by the number of channels. A narrower image would leave a part of the sentinel's three
# bytes on its canvas.
MIN_ENGINE_WIDTH = {1: 3, 3: 1}

_SLOT_ALIGNMENT = 256  # bytes, as for CUDA's own allocations


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

    same_size = (headers.height == size[:, 0]) & (headers.width == size[:, 1])
    direct = supported & same_size & (headers.orientation == 1)
    fits_slot = slot_bytes(headers.height, headers.width, channels) <= max_slot_bytes

    # By indexing: for one image, `np.select` takes as long as the check of its bytes.
    backends = np.full(len(headers.kind), HOST, np.uint8)
    backends[supported & fits_slot] = SLOT
    backends[direct] = ENGINE
    backends[headers.kind == BAD] = NONE
    return backends


def _engines_support(headers: Headers) -> np.ndarray:
    """Return bool[n], True for the JPEGs that the engines decode as libjpeg-turbo does."""
    # The factors of a single component mean nothing (T.81 A.2.2), but nvJPEG follows them.
    gray = (headers.color == GRAY) & (headers.sampling == _GRAY)

    subsampled = (headers.sampling == _SUBSAMPLED[:, None]).any(0)
    subsampled &= np.minimum(headers.height, headers.width) >= _MIN_SUBSAMPLED_SIDE
    color = (headers.color == YCBCR) & ((headers.sampling == _444) | subsampled)

    baseline = (headers.kind == JPEG) & (headers.coding == 0) & (headers.precision == 8)
    one_scan = headers.scan_components == headers.components
    return baseline & one_scan & (gray | color) & (headers.plain == 1)


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
