"""The host backend: threads that decode onto canvases in host memory."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from jaxaug._typing import Device
from jaxaug.decode._backend import DecodedPixels
from jaxaug.decode._types import Encoded
from jaxaug.decode.host.decode_image import decode_into
from jaxaug.decode.parse.headers import BAD, Headers
from jaxaug.errors import DecodeError

_ALIGNMENT = 64  # bytes; XLA's CPU client takes memory with this alignment without a copy


class HostBackend:
    """Decodes batches with a pool of host threads.

    Args:
      devices: the rows are divided equally among them, in order.
      canvas_shape: (H, W, channels); 3 channels for RGB, 1 for luma.
      num_threads: at least 1; the threads start with the first batch.
    """

    in_flight = 1  # a batch keeps all threads busy
    counted: tuple[str, ...] = ("host",)
    bytes_held = 0

    def __init__(
        self, devices: Sequence[Device], canvas_shape: tuple[int, int, int], num_threads: int
    ):
        self._devices = devices
        self._canvas_shape = canvas_shape
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="jaxaug-decode")

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedPixels:
        """Decode the good rows; see `Backend`."""
        rows_per_device = len(headers.kind) // len(self._devices)
        canvases = [_zero_canvases(rows_per_device, self._canvas_shape) for _ in self._devices]
        targets = [canvas for block in canvases for canvas in block]
        good = (headers.kind != BAD).nonzero()[0].tolist()
        failures = self._fill(targets, good, encoded, headers, size)

        pixels = [jax.device_put(block, device) for block, device in zip(canvases, self._devices)]
        return DecodedPixels(
            pixels=pixels,
            failures=failures,
            counts={"host": len(good) - len(failures)},
            release=_release_nothing,
            borrowed=False,
        )

    def _fill(
        self,
        targets: list[np.ndarray],
        good: list[int],
        encoded: Encoded,
        headers: Headers,
        size: np.ndarray,
    ) -> dict[int, str]:
        """Decode the good rows, each to its target; return row -> reason for those that fail."""
        rows = iter(good)  # shared: each thread takes the next row when it is free
        failures: dict[int, str] = {}

        def work():
            for row in rows:
                fit = (int(size[row, 0]), int(size[row, 1]))
                try:
                    decode_into(encoded.view(row), headers.row(row), fit, targets[row])
                except DecodeError as error:
                    targets[row][:] = 0
                    failures[row] = error.reason

        num_tasks = min(self._num_threads, len(good))
        for task in [self._pool.submit(work) for _ in range(num_tasks)]:
            task.result()
        return failures

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()


def _release_nothing(outputs: Any) -> None:
    """Do nothing: the canvases are new memory that JAX owns."""
    del outputs


def _zero_canvases(rows: int, canvas_shape: tuple[int, int, int]) -> np.ndarray:
    """Return zeros, uint8[rows, H, W, channels], that a CPU device takes without a copy.

    `np.zeros` is lazy: pages that no image covers are never touched, and large blocks come as huge
    pages.
    """
    shape = (rows, *canvas_shape)
    block = np.zeros(math.prod(shape) + _ALIGNMENT, np.uint8)
    first = -block.ctypes.data % _ALIGNMENT
    return block[first : block.size - _ALIGNMENT + first].reshape(shape)
