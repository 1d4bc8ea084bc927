"""The frames of a video by FFmpeg, one thread for each video."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxaug._typing import Device
from jaxaug.decode._ffmpeg import decode_error
from jaxaug.decode._row_threads import RowThreads
from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.image.host.canvas_pool import CanvasPool
from jaxaug.decode.video.planes import (
    Color,
    Planes,
    completed,
    fit_planes,
    planes_of,
    write_planes,
)
from jaxaug.decode.video.pyav import check_pixels, import_av, make_packet
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Codec
from jaxaug.errors import DecodeError

_FREE_BATCHES = 3  # whose memory waits for others
PLANES = ("luma", "chroma")
T = TypeVar("T")


class Frame(NamedTuple):
    """A decoded frame.

    Attributes:
      number: of the video's frames, in the order in which they are shown.
      planes: upright.
    """

    number: int
    planes: Planes


def decode_frames(video: VideoFile, numbers: np.ndarray) -> Iterator[Frame]:
    """Yield frames of a video, each number once, in no order.

    Args:
      video: where they are.
      numbers: int64[m], at least one.

    Raises:
      DecodeError: one of them cannot be decoded.
    """
    for number, frame in _wanted(video, numbers):
        yield Frame(number, planes_of(frame, video.table.codec))


class Shown(NamedTuple):
    """What frames of a video on canvases are.

    Attributes:
      size: (h, w) on the canvases.
      original_size: (h, w), upright.
      color: what their planes mean.
      orientation: the EXIF orientation that turned them.
      interlaced: bool[k], see `Planes`.
    """

    size: tuple[int, int]
    original_size: tuple[int, int]
    color: Color
    orientation: int
    interlaced: np.ndarray


def write_frames(
    video: VideoFile, numbers: np.ndarray, luma: np.ndarray, chroma: np.ndarray
) -> Shown:
    """Write frames of a video to canvases, shrunk to fit.

    Args:
      video: where they are.
      numbers: int64[k], the frame of each canvas; -1 for none, at least one is another.
      luma: uint8[k, H, W].
      chroma: uint8[k, 2, ceil(H / 2), ceil(W / 2)] or uint8[k, 2, H, W].

    Raises:
      DecodeError: one of them cannot be decoded.
    """
    canvas = luma.shape[1:]
    shown = None
    for number, planes in decode_frames(video, np.unique(numbers[numbers >= 0])):
        if shown is None:
            original = planes.luma.shape
            height, width = fit_size(np.array([original], np.int32), canvas)[0].tolist()
            frames = np.zeros(len(numbers), bool)
            shown = Shown((height, width), original, planes.color, planes.orientation, frames)
        planes = fit_planes(planes, shown.size, chroma.shape[2:] == canvas)
        for place in np.flatnonzero(numbers == number).tolist():
            write_planes(planes, luma[place], chroma[place])
            shown.interlaced[place] = planes.interlaced
    assert shown is not None
    return shown


def first_frame(video: VideoFile) -> Any:
    """Return the first frame as PyAV has it.

    Raises:
      DecodeError: it cannot be decoded.
    """
    _, frame = next(_wanted(video, np.zeros(1, np.int64)))
    return frame


def _wanted(video: VideoFile, numbers: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Yield frames of PyAV, each number once.

    What was opened without a look at its pictures is opened anew where some are not shown.

    Raises:
      DecodeError: one of them cannot be decoded.
    """
    missing = set(numbers.tolist())
    size = None
    while True:
        try:
            for number, frame in _pictures(video, numbers):
                if size is None:  # which the container may have told wrong
                    size = frame.height, frame.width
                    check_pixels(*size, video.max_pixels)
                if (frame.height, frame.width) != size:
                    raise DecodeError(
                        f"its size changes from {size[0]} x {size[1]} to {frame.height} x "
                        f"{frame.width} pixels in frame {number}"
                    )
                if number in missing:
                    missing.remove(number)
                    yield number, frame
                if not missing:
                    return
            count = len(video.table.frames)
            raise DecodeError(f"frame {min(missing)} of {count} cannot be decoded")
        except DecodeError:
            if not video.reopen():
                raise


def completed_codec(video: VideoFile) -> Codec:
    """Return the codec of a video, `completed` by its first frame where that must be asked.

    Raises:
      DecodeError: its first frame, which alone tells how it is turned, cannot be decoded.
    """
    if video.completed is None:
        video.completed = video.table.codec
        if video.completed.rotation is None:
            read = video.packets_read
            video.completed = completed(video.completed, first_frame(video))
            video.packets_read = read
    return video.completed


def _pictures(video: VideoFile, numbers: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Yield what FFmpeg decodes of the packets that frames need, with the number of each."""
    table = video.table
    numbered = {packet: number for number, packet in enumerate(table.frames.tolist())}
    for run in table.runs(numbers):
        order = itertools.count()  # of frames that no time tells apart
        try:
            for frame in _decode_run(video, run):
                number = numbered.get(frame.pts, -1)
                yield number if table.timed or number < 0 else next(order), frame
        except import_av().FFmpegError as error:
            raise decode_error(error, "decode") from None


def _decode_run(video: VideoFile, run: np.ndarray) -> Iterator[Any]:
    """Yield the frames of PyAV that a run gives; `pts` is the number of the packet of each."""
    table, context = video.table, video.context
    context.reorder_depth = max(context.reorder_depth, table.delay)
    try:
        for number, content in video.packets(run):
            if table.codec.message and number == run[0]:
                content = table.codec.message + content
            packet = make_packet(content)
            packet.pts = packet.dts = number
            packet.is_keyframe = bool(table.keyframes[number])
            yield from context.decode(packet)
        yield from context.decode(None)
    finally:  # also where nobody wants the rest
        context.flush_buffers()


class HostFrames:
    """A pool of threads, and memory for canvases.

    Args:
      forms: of the planes of a row, by `PLANES`.
      num_threads: of the pool.
      devices: the canvases are put on them, a part on each; None to leave them where they are.
    """

    in_flight = 1  # a batch keeps all threads busy
    open = staticmethod(VideoFile)

    def __init__(
        self,
        forms: dict[str, jax.ShapeDtypeStruct],
        num_threads: int,
        devices: Sequence[Device] | None = None,
    ):
        # Outside of a frame's size is what an earlier one has left: it is never shown.
        self._memory = {name: CanvasPool(forms[name].shape, _FREE_BATCHES) for name in PLANES}
        self._pool = RowThreads(num_threads, "jaxaug-video")
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
        pool: Executor,
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
