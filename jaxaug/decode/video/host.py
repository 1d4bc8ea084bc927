"""The frames of a video by FFmpeg, one thread for each video."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.video.planes import Color, Planes, fit_planes, planes_of, write_planes
from jaxaug.decode.video.stream import VideoFile, import_av
from jaxaug.decode.video.table import Run
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


class Shown(NamedTuple):
    """What frames of a video on canvases are.

    Attributes:
      size: (h, w) on the canvases.
      original_size: (h, w), upright.
      color: what their planes mean.
      orientation: the EXIF orientation that turned them.
    """

    size: tuple[int, int]
    original_size: tuple[int, int]
    color: Color
    orientation: int


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
            shown = Shown((height, width), original, planes.color, planes.orientation)
        planes = fit_planes(planes, shown.size, chroma.shape[2:] == canvas)
        for place in np.flatnonzero(numbers == number).tolist():
            write_planes(planes, luma[place], chroma[place])
    assert shown is not None
    return shown


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
    numbered = {packet: number for number, packet in enumerate(table.frames.tolist())}
    for run in table.runs(numbers):
        order = itertools.count()  # of frames that no time tells apart
        try:
            for frame in _decode_run(video, run):
                number = numbered.get(frame.pts, -1)
                yield number if table.timed or number < 0 else next(order), frame
        except import_av().FFmpegError as error:
            reason = error.strerror or str(error)
            raise DecodeError(f"FFmpeg cannot decode it: {reason}") from None


def _decode_run(video: VideoFile, run: Run) -> Iterator[Any]:
    """Yield the frames of PyAV that a run gives; `pts` is the number of the packet of each."""
    table = video.table
    make_packet = import_av().Packet
    try:
        for number, content in video.packets(run):
            packet = make_packet(content)
            packet.pts = packet.dts = number
            packet.is_keyframe = bool(table.keys[number])
            yield from video.context.decode(packet)
        yield from video.context.decode(None)
    finally:  # also where nobody wants the rest
        video.context.flush_buffers()
