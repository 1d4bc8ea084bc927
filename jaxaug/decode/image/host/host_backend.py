"""The host backend: threads that decode onto canvases in host memory."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from jaxaug._typing import Device
from jaxaug.decode._column import release_nothing
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.backend import DecodedPixels
from jaxaug.decode.image.deep.read import to_form
from jaxaug.decode.image.deep.tiff_several import decode_several, shares
from jaxaug.decode.image.form import PixelForm
from jaxaug.decode.image.host.canvas_pool import Canvas, CanvasPool
from jaxaug.decode.image.host.decode_image import decode_into
from jaxaug.decode.image.parse.headers import BAD, Headers
from jaxaug.errors import DecodeError

# Batches whose memory may wait for the next one: a Loader has two or three in use by turns.
_FREE_BATCHES = 2
_ALONE = (None,)  # pixels of a row that is not decoded with others


class HostBackend:
    """Decodes batches with a pool of host threads.

    Args:
      devices: the rows are divided equally among them, in order.
      canvas: (H, W).
      num_threads: at least 1; the threads start with the first batch.
      form: of the pixels.
      begin: called by each thread when it starts.
    """

    in_flight = 1  # a batch keeps all threads busy
    counted: tuple[str, ...] = ("host",)
    bytes_held = 0

    def __init__(
        self,
        devices: Sequence[Device],
        canvas: tuple[int, int],
        num_threads: int,
        form: PixelForm,
        begin: Callable[[], None] | None = None,
    ):
        self._devices = devices
        self._form = form
        shape = (*canvas, form.count)
        self._memory = CanvasPool(shape, _FREE_BATCHES * len(devices), form.dtype)
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, "jaxaug-decode", begin)

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedPixels:
        """Decode the good rows; see `Backend`."""
        rows_per_device = len(headers.kind) // len(self._devices)
        blocks = [self._memory.take(rows_per_device) for _ in self._devices]
        canvases = [canvas for block in blocks for canvas in block.rows()]
        is_bad = headers.kind == BAD
        for row in is_bad.nonzero()[0].tolist():
            canvases[row].clear()
        good = (~is_bad).nonzero()[0].tolist()
        failures = self._fill(canvases, good, encoded, headers, size)

        shards = zip(blocks, self._devices)
        pixels = [jax.device_put(block.pixels, device) for block, device in shards]
        return DecodedPixels(
            pixels=pixels,
            failures=failures,
            counts={"host": len(good) - len(failures)},
            release=release_nothing,
        )

    def _fill(
        self,
        canvases: list[Canvas],
        good: list[int],
        encoded: Encoded,
        headers: Headers,
        size: np.ndarray,
    ) -> dict[int, str]:
        """Decode the good rows, each to its canvas; return row -> reason for those that fail."""
        layouts = headers.layout.tolist()
        parts = shares({row: layouts[row] for row in good}, self._num_threads)
        left = iter(parts)  # shared: each thread takes the next part when it is free
        failures: dict[int, str] = {}
        asked = None if self._form.is_usual else self._form

        def several(rows: list[int]) -> Sequence[np.ndarray | None]:
            files = [encoded.view(row) for row in rows]
            return decode_several(files, [layouts[row] for row in rows])

        def work():
            for rows in left:
                for row, stored in zip(rows, _ALONE if len(rows) == 1 else several(rows)):
                    canvas = canvases[row]
                    fit = (int(size[row, 0]), int(size[row, 1]))
                    canvas.make_room(fit)
                    try:
                        if stored is None:
                            header = headers.row(row)
                            decode_into(encoded.view(row), header, fit, canvas.pixels, asked)
                        else:
                            pixels = to_form(stored, layouts[row], self._form, fit)
                            canvas.pixels[: fit[0], : fit[1]] = pixels
                        canvas.covered[:] = fit
                    except DecodeError as error:
                        canvas.clear()
                        failures[row] = error.reason

        num_tasks = min(self._num_threads, len(parts))
        for task in [self._pool.submit(work) for _ in range(num_tasks)]:
            task.result()
        return failures

    def close(self) -> None:
        """Stop the threads and free the memory that nobody uses."""
        self._pool.shutdown()
        self._memory.close()
