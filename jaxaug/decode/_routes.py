"""Which way each image of a batch goes: to the GPU's JPEG engines or to a host thread."""

import threading

import numpy as np

from jaxaug.decode._header import BAD, JPEG, Headers
from jaxaug.decode._jpeg import GRAY, YCBCR

ENGINES, HOST, NONE = 0, 1, 2

_SAMPLINGS = np.array([0x11111100, 0x21111100, 0x12111100, 0x22111100], np.uint32)  # 444, 422, 440, 420
_FEW = 8  # images: about as many as there are engines (7 on an H200)


def routes(headers: Headers, size: np.ndarray) -> np.ndarray:
    """Which way each image can go: uint8[n] of engines 0, host 1, none 2 (a bad image)."""
    same_size = (headers.height == size[:, 0]) & (headers.width == size[:, 1]) & (headers.orientation == 1)
    gray = (headers.color == GRAY) & (headers.components == 1)
    colour = (headers.color == YCBCR) & (headers.sampling[:, None] == _SAMPLINGS).any(1)
    baseline = (headers.kind == JPEG) & (headers.coding == 0) & (headers.precision == 8)
    one_scan = headers.scan_components == headers.components
    engines = baseline & one_scan & same_size & (gray | colour)
    return np.where(headers.kind == BAD, NONE, np.where(engines, ENGINES, HOST)).astype(np.uint8)


class Balance:
    """How many of the engines' images the host threads take, so that both finish together.

    Both sides' seconds an image are averaged: no speed need be known beforehand, a host that gets busy with other
    work loses its share, and engines that stand behind a training lose theirs. Engines that have nothing to do are
    tried again now and then.

    Args:
      num_threads: host threads; a share that does not keep all of them busy only delays the batch.
    """

    _STEP, _RETRY = 0.2, 64  # of the way to what a batch has shown; batches between tries

    def __init__(self, num_threads: int):
        self._num_threads, self._lock, self._batches = num_threads, threading.Lock(), 0
        self._engines, self._threads = 40e-6, 160e-6  # seconds an image; at first the threads take a fifth
        self._last_end = 0.0

    def divide(self, ways: np.ndarray, sampling: np.ndarray) -> np.ndarray:
        """`ways` with a part of the engines' rows given to the host: rare samplings first, the rest evenly spread."""
        rows = (ways == ENGINES).nonzero()[0]
        count = self._count(len(rows), int((ways == HOST).sum()))
        if not count:
            return ways
        _, kind, counts = np.unique(sampling[rows], return_inverse=True, return_counts=True)
        rare = counts[kind] < _FEW  # a batched call of few images keeps few engines busy
        chosen, rows = rows[rare][:count], rows[~rare]
        spread = np.linspace(0, max(len(rows) - 1, 0), count - len(chosen)).astype(np.int64)
        ways = ways.copy()
        ways[chosen] = ways[rows[spread]] = HOST
        return ways

    def _count(self, images: int, others: int) -> int:
        """How many of `images` the threads take beside the `others` that only they can decode."""
        with self._lock:
            self._batches += 1
            share = self._engines / (self._engines + self._threads)
            count = min(max(round(share * images - (1 - share) * others), 0), images)
            if count < self._num_threads:
                count = 0
            elif share > 0.9 or images - count < _FEW:
                count = images
            return images // 2 if count == images and self._batches % self._RETRY == 0 else count

    def learn_engines(self, started: float, ended: float, images: int) -> None:
        """Take in a batched call; of two at once, each has the engines from the end of the other on."""
        with self._lock:
            seconds = max(ended - max(started, self._last_end), 0.0) / images
            self._last_end = ended
            if images >= _FEW:
                # The first call allocates: no batch alone changes the picture. Beyond 20 times the threads' they get
                # nothing anyway, and are to come back soon.
                seconds = min(seconds, 4 * self._engines, 20 * self._threads)
                self._engines += self._STEP * (seconds - self._engines)

    def learn_threads(self, seconds: float, images: int) -> None:
        """Take in a batch's seconds, summed over the threads."""
        if images:
            with self._lock:
                self._threads += self._STEP * (seconds / images / self._num_threads - self._threads)
