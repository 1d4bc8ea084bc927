"""The host backend: the frames of a video by FFmpeg, one thread for each.

Another backend has the same door: a function of a `VideoFile` and of the frames that are asked for,
which yields their planes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.video.planes import Planes, planes_of
from jaxaug.decode.video.stream import VideoFile, import_av
from jaxaug.decode.video.table import NONE, Run
from jaxaug.errors import DecodeError


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
    missing = set(numbers.tolist())
    size = None
    for number, frame in _pictures(video, numbers):
        size = size or (frame.height, frame.width)
        if (frame.height, frame.width) != size:
            raise DecodeError(
                f"its size changes from {size[0]} x {size[1]} to {frame.height} x {frame.width} "
                f"pixels in frame {number}"
            )
        if number in missing:
            missing.remove(number)
            yield Frame(number, planes_of(frame, video.table.codec))
        if not missing:
            return
    raise DecodeError(f"frame {min(missing)} of {len(video.table.frames)} cannot be decoded")


def first_frame(video: VideoFile) -> Any:
    """Return the first frame as PyAV has it.

    Raises:
      DecodeError: it cannot be decoded.
    """
    for number, frame in _pictures(video, np.zeros(1, np.int64)):
        if number == 0:
            return frame
    raise DecodeError("its first frame cannot be decoded")


def _pictures(video: VideoFile, numbers: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Yield what FFmpeg decodes of the packets that frames need, with the number of each."""
    table = video.table
    numbered = {time: number for number, time in enumerate(table.times[table.frames].tolist())}
    for run in table.runs(numbers):
        try:
            for count, frame in enumerate(_decode_run(video, run)):
                yield numbered.get(frame.pts, -1) if table.timed else count, frame
        except import_av().FFmpegError as error:
            reason = error.strerror or str(error)
            raise DecodeError(f"FFmpeg cannot decode it: {reason}") from None


def _decode_run(video: VideoFile, run: Run) -> Iterator[Any]:
    table = video.table
    make_packet = import_av().Packet
    for number, content in video.packets(run):
        packet = make_packet(content)
        time = int(table.times[number])
        packet.pts = packet.dts = None if time == NONE else time
        packet.is_keyframe = bool(table.keys[number])
        yield from video.context.decode(packet)
    yield from video.context.decode(None)
    video.context.flush_buffers()
