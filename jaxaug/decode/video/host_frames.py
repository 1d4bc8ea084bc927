"""The host backend: a thread decodes a row to canvases in host memory, whose pages are kept."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np

from jaxaug._typing import Device
from jaxaug.decode.image.host.canvas_pool import CanvasPool
from jaxaug.decode.video.host import Shown, write_frames
from jaxaug.decode.video.stream import VideoFile

_FREE_BATCHES = 3  # whose memory waits for others
PLANES = ("luma", "chroma")
T = TypeVar("T")


class HostFrames:
    """A pool of threads, and memory for canvases.

    Args:
      forms: of the planes of a row, by `PLANES`.
      num_threads: of the pool.
      devices: the canvases are put on them, a part on each; None to leave them where they are.
    """

    in_flight = 1  # a batch keeps all threads busy

    def __init__(
        self,
        forms: dict[str, jax.ShapeDtypeStruct],
        num_threads: int,
        devices: Sequence[Device] | None = None,
    ):
        # Outside of a frame's size is what an earlier one has left: it is never shown.
        self._memory = {name: CanvasPool(forms[name].shape, _FREE_BATCHES) for name in PLANES}
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="jaxaug-video")
        self._devices = devices

    @property
    def memory(self) -> dict[str, int]:
        """The bytes of canvases in host memory, and on devices."""
        held = sum(pool.bytes_held for pool in self._memory.values())
        return {"host_bytes": held, "device_bytes": 0}

    def take(self, rows: int) -> "HostCanvases":
        """Return canvases for the rows of a batch."""
        arrays = {name: pool.take(rows).pixels for name, pool in self._memory.items()}
        return HostCanvases(arrays, self._pool, self._devices)

    def close(self) -> None:
        """Stop the threads, and free the memory that no batch holds."""
        self._pool.shutdown(cancel_futures=True)
        for pool in self._memory.values():
            pool.close()


class HostCanvases:
    """The canvases of a batch.

    Attributes:
      on_engines: videos that engines decoded.
    """

    on_engines = 0

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        pool: ThreadPoolExecutor,
        devices: Sequence[Device] | None,
    ):
        self._arrays = arrays
        self._pool = pool
        self._devices = devices

    def map(self, function: Callable[[int], T], rows: Sequence[int]) -> list[T]:
        """Return what a function returns of each row, called in the threads."""
        return list(self._pool.map(function, rows))

    def decode(self, row: int, video: VideoFile, numbers: np.ndarray) -> Shown:
        """Write frames int64[k] to the canvases of a row; see `write_frames`."""
        luma, chroma = (self._arrays[name][row] for name in PLANES)
        luma, chroma = (
            luma.reshape(-1, *luma.shape[-2:]),
            chroma.reshape(-1, *chroma.shape[-3:]),
        )
        return write_frames(video, numbers, luma, chroma)

    def planes(self) -> dict[str, Any]:
        """Return the canvases, or a list with those of each device."""
        if self._devices is None:
            return dict(self._arrays)
        parts = {name: np.split(each, len(self._devices)) for name, each in self._arrays.items()}
        return {name: jax.device_put(each, list(self._devices)) for name, each in parts.items()}

    def release(self, readers: Any) -> None:
        """Do nothing: the arrays keep their own memory."""
