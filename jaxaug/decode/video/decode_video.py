"""Frames of one video at hand, on the host."""

from collections.abc import Sequence

import numpy as np

from jaxaug.decode._types import view_of
from jaxaug.decode.video.clips import EARLY
from jaxaug.decode.video.color import to_rgb, whole_chroma
from jaxaug.decode.video.host import decode_frames
from jaxaug.decode.video.planes import Planes
from jaxaug.decode.video.pyav import import_av, open_file
from jaxaug.decode.video.stream import VideoFile
from jaxaug.errors import DecodeError

MAX_PIXELS = 2**24  # of a frame: 4,096 x 4,096; 8K has twice as many


def decode_video(
    data: "bytes | bytearray | memoryview",
    *,
    frames: "Sequence[int] | np.ndarray | None" = None,
    times: "Sequence[float] | np.ndarray | None" = None,
    max_pixels: int = MAX_PIXELS,
) -> np.ndarray:
    """Return frames of an encoded video as RGB, upright.

    Only what these frames need is decoded. Needs PyAV, the extra "video".

    Args:
      data: the bytes of a file: MP4, 3GP, MOV, Matroska, WebM, AVI, MPEG-TS or PS, FLV, Ogg, ASF or
        WMV, IVF.
      frames: the numbers of frames in the order in which they are shown, -1 for the last. Without
        these and `times`, all frames.
      times: seconds; the frame that is shown then, by the stream's own clock, which may not start
        at zero.
      max_pixels: more in a frame are refused.

    Returns:
      uint8[n, h, w, 3].

    Raises:
      DecodeError: it is no video, or is damaged.
      ValueError: both `frames` and `times` are given.
      TypeError: `frames` are no whole numbers.
      IndexError: there is no such frame, or no frame at that time.
      ImportError: PyAV is not installed.

    Example:
      >>> import io, av
      >>> file = io.BytesIO()
      >>> with av.open(file, "w", "mp4") as container:
      ...     stream = container.add_stream("mpeg4", 25, width=32, height=16, pix_fmt="yuv420p")
      ...     for level in (0, 100, 200):
      ...         gray = np.full((16, 32, 3), level, np.uint8)
      ...         container.mux(stream.encode(av.VideoFrame.from_ndarray(gray)))
      ...     container.mux(stream.encode(None))
      >>> decode_video(file.getvalue(), frames=[0, -1]).shape
      (2, 16, 32, 3)
    """
    if frames is not None and times is not None:
        raise ValueError("`times` must be left out beside `frames`, got both.")
    view = view_of(data)
    try:
        with VideoFile(view, max_pixels) as video:
            numbers = _numbers(video.table.seconds, frames, times)
            found = {frame.number: _rgb(frame.planes) for frame in decode_frames(video, numbers)}
    except DecodeError as error:
        raise DecodeError(error.reason, medium="video", byte_count=len(view)) from error
    return np.stack([found[number] for number in numbers.tolist()])


def check_video(data: memoryview, max_pixels: int = MAX_PIXELS) -> None:
    """Decode all frames of a video, and keep none.

    Args:
      data: the bytes of a file.
      max_pixels: more in a frame are refused.

    Raises:
      DecodeError: it is no video, or one of the frames that its table tells of is not decoded.
      ImportError: PyAV is not installed.
    """
    with VideoFile(data, max_pixels) as video:
        for _ in decode_frames(video, np.arange(len(video.table.frames))):
            pass


def has_frames(data: memoryview, container: str) -> bool:
    """Return whether a container has a video, not a sound alone, or with a picture attached.

    Args:
      data: the bytes of a file; one that cannot be opened has none.
      container: FFmpeg's name of it.

    Raises:
      ImportError: PyAV is not installed.
    """
    av = import_av()
    try:
        with open_file(data, container, MAX_PIXELS, decodes=False) as file:
            stream = file.streams.best("video")
            attached = av.stream.Disposition.attached_pic
            return stream is not None and not stream.disposition & attached
    except av.FFmpegError:
        return False


def _rgb(planes: Planes) -> np.ndarray:
    color = planes.color
    siting = (color.rows, color.columns)
    cb, cr = whole_chroma(planes.chroma, planes.luma.shape, siting, planes.interlaced)
    return to_rgb(planes.luma, cb, cr, color.matrix, color.full_range)


def _numbers(seconds: np.ndarray, frames: object, times: object) -> np.ndarray:
    """Return the numbers int64[m] of the frames that are asked for."""
    count = len(seconds)
    if frames is None and times is None:
        return np.arange(count)
    if times is not None:
        asked = np.asarray(times, np.float64).reshape(-1)
        found = np.searchsorted(seconds, asked + EARLY, side="right") - 1
        gap = seconds[-1] - seconds[-2] if count > 1 else np.inf
        bad = (found < 0) | ~(asked <= seconds[-1] + gap)  # also NaN
        what = f"within [{seconds[0]:g}, {seconds[-1] + gap:g}] s"
    else:
        asked = np.asarray(frames).reshape(-1)
        if asked.size and asked.dtype.kind not in "iu":
            raise TypeError(
                f"`frames` must be whole numbers, got {asked.dtype}: `times` takes seconds, and "
                "`numpy.flatnonzero` gives the numbers of a mask."
            )
        asked = asked.astype(np.int64)
        found = np.where(asked < 0, asked + count, asked)
        bad = (found < 0) | (found >= count)
        what = f"of {count} frames"
    if bad.any() or not found.size:
        name = "frames" if times is None else "times"
        got = asked[bad][0] if bad.any() else "none"
        raise IndexError(f"`{name}` must be at least one {what}, got {got}.")
    return found
