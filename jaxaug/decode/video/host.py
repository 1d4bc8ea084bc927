"""The host backend: the frames of a video by FFmpeg, one thread for each.

Another backend has the same door: a function of a `VideoFile` and of the frames that are asked for,
which yields their planes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.video.planes import Planes, planes_of
from jaxaug.decode.video.stream import Run, VideoFile, import_av
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
            yield Frame(number, planes_of(frame, video.chroma_left))
        if not missing:
            return
    raise DecodeError(f"frame {min(missing)} of {len(video.frames)} cannot be decoded")


def _pictures(video: VideoFile, numbers: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Yield what FFmpeg decodes of the packets that frames need, with the number of each."""
    times = video.table.times[video.frames]
    for run in video.runs(numbers):
        try:
            for count, frame in enumerate(_decode_run(video, run)):
                number = count
                if video.table.timed:
                    number = int(np.searchsorted(times, frame.pts))
                yield number, frame
        except import_av().FFmpegError as error:
            reason = error.strerror or str(error)
            raise DecodeError(f"FFmpeg cannot decode it: {reason}") from None


def _decode_run(video: VideoFile, run: Run) -> Iterator[Any]:
    for packet in video.packets(run):
        yield from packet.decode()
    context = video.stream.codec_context
    yield from context.decode(None)
    context.flush_buffers()
