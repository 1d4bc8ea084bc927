"""Which way each image of a batch goes: to the GPU's JPEG engines or to a host thread."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.parse.headers import BAD, JPEG, Headers
from jaxaug.decode.parse.jpeg import GRAY, YCBCR

# To the engines and from them to the canvas; to the host; nowhere, as a bad image; to the engines
# as a whole, and through a slot to the canvas.
ENGINES = 0
HOST = 1
NONE = 2
SLOT = 3

_GRAY = 0x11000000
_444 = 0x11111100
_SUBSAMPLED = np.array([0x21111100, 0x12111100, 0x22111100], np.uint32)  # 422, 440, 420
# Pixels: below, nvJPEG interpolates chroma in another way (up to 52 levels off on an H200).
_SMALLEST_SIDE = 16
_SLOT_ALIGNMENT = 256  # bytes, as CUDA's own allocations


def routes(headers: Headers, size: np.ndarray, largest_slot: int) -> np.ndarray:
    """Return which way each image can go: uint8[n] of `ENGINES`, `SLOT`, `HOST`, `NONE`.

    Args:
      headers: of n images.
      size: int32[n, 2], (height, width) on the canvas.
      largest_slot: bytes; 0 where there are no slots.
    """
    # Other factors mean nothing for a single component (T.81 A.2.2), but nvJPEG follows them.
    gray = (headers.color == GRAY) & (headers.sampling == _GRAY)
    subsampled = (headers.sampling[:, None] == _SUBSAMPLED).any(1)
    subsampled &= np.minimum(headers.height, headers.width) >= _SMALLEST_SIDE
    color = (headers.color == YCBCR) & ((headers.sampling == _444) | subsampled)
    baseline = (headers.kind == JPEG) & (headers.coding == 0) & (headers.precision == 8)
    one_scan = headers.scan_components == headers.components
    engines = baseline & one_scan & (gray | color) & (headers.plain == 1)

    same_size = (headers.height == size[:, 0]) & (headers.width == size[:, 1])
    direct = same_size & (headers.orientation == 1)
    fits = slot_bytes(headers.height, headers.width) <= largest_slot
    ways = np.select(
        [headers.kind == BAD, engines & direct, engines & fits], [NONE, ENGINES, SLOT], HOST
    )
    return ways.astype(np.uint8)


def slot_bytes(height: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return int64[n], the bytes of a slot for whole images of these stored sides."""
    size = height.astype(np.int64) * width.astype(np.int64) * 3
    return -(-size // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT


def commonest_first(rows: np.ndarray, sampling: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows ordered by how many of them have the same chroma sampling, and that number for each."""
    kinds = sampling[rows]
    counts = Counter(listed := kinds.tolist())
    alike = np.fromiter(map(counts.__getitem__, listed), np.int64, len(listed))
    order = np.lexsort((kinds, -alike))
    return rows[order], alike[order]


class Batch(NamedTuple):
    """The rows of a batch that one GPU decodes."""

    encoded: Encoded
    headers: Headers
    size: np.ndarray
    ways: np.ndarray  # uint8[n], see `routes`

    def part(self, rows: slice) -> "Batch":
        """Some of the rows."""
        headers = Headers(*(column[rows] for column in self.headers))
        return Batch(self.encoded.take(rows), headers, self.size[rows], self.ways[rows])
