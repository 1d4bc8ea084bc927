"""The decoder of a column of videos: clips on static canvases, as planes and then as RGB."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxaug._checks import check_choice, check_positive_int, check_size
from jaxaug._typing import Array, Device, Values
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, valid_rows
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode._types import Encoded, Span
from jaxaug.decode.image.column import canvas_of
from jaxaug.decode.image.fit import fit_size
from jaxaug.decode.video.clips import EARLY, Clips
from jaxaug.decode.video.color import to_rgb, whole_chroma
from jaxaug.decode.video.container import find_container
from jaxaug.decode.video.decode_video import MAX_PIXELS, decode_video
from jaxaug.decode.video.host import Frame, decode_frames
from jaxaug.decode.video.planes import Planes, fit_planes, write_planes
from jaxaug.decode.video.stream import VideoFile, import_av
from jaxaug.errors import DecodeError

_SAMPLED_VIDEOS = 32  # whose first frames are looked at


@dataclasses.dataclass(frozen=True)
class Video(ColumnDecoder):
    """Clips of videos on static canvases: the description that `Loader(decode=)` takes.

    A column of encoded videos becomes `<name>` uint8[B, T, H, W, 3], upright RGB at the top-left of
    canvases of zeros, [B, count, T, H, W, 3] where `count` is not 1. Beside it are "<name>_frame"
    int32[B, (count,) T], the number of each frame in the order in which the video shows them, -1
    where it has ended, "<name>_time" float32[B, (count,) T], the seconds at which the stream shows
    it, "size" int32[B, 2], the used (height, width), and "original_size", that of the upright video
    before it was shrunk to the canvas. Of a column named otherwise than "video" or "image" the
    latter are called "<name>_size" and "<name>_original_size".

    What a row shows is drawn from (seed, epoch, record), so that it is the same for any batch size,
    number of hosts, and after a resume. Where the source gives spans (`FileList(spans=)`,
    `Encoded.span`), clips lie in the part of the video whose frames begin in [start, end), and
    `start` counts from there; numbers and times are those of the file. Only the packets that these
    frames need are decoded. Needs PyAV, the extra "video".

    Args:
      frames: T, of a clip.
      stride: frames from one of a clip to the next; None for 4, or where `fps` is given.
      fps: frames a second, instead of `stride`: of each time the frame that is shown then.
      count: clips of a row.
      start: where a clip begins, among the frames at which all of it lies in the video: "random";
        "uniform", the middles of `count` equal parts; "center"; or the number of a frame.
      overlap: False cuts the video into `count` equal parts, with a clip in each.
      pad: behind the end of a video that is shorter than a clip: "last" repeats its last frame,
        "mask" leaves zeros.
      canvas: (H, W) in pixels; larger videos are shrunk to it, antialiased, with their aspect kept.
        None: picked as that of images, from the first frames of some.
      max_pixels: a video with more in a frame is a bad record.
      num_threads: of the host; None for one for each CPU.

    Raises:
      ValueError: an argument is wrong, or contradicts another.

    Example:
      >>> Video(frames=8, fps=12.5, start="center").clips.frames
      8
    """

    frames: int = 16
    stride: int | None = None
    _: dataclasses.KW_ONLY
    fps: float | None = None
    count: int = 1
    start: str | int = "random"
    overlap: bool = True
    pad: str = "last"
    canvas: tuple[int, int] | None = None
    max_pixels: int = MAX_PIXELS
    # Not part of what processes compare: hosts may differ.
    num_threads: int | None = dataclasses.field(default=None, repr=False)
    # Set by `fit`: True where a video has chroma of the size of its luma, and so the canvases.
    whole_chroma: bool = dataclasses.field(default=False, repr=False)

    in_flight = 1  # a batch keeps all threads busy
    counted = ("shrunk", "frames_decoded")

    @property
    def draws(self) -> bool:
        """True if clips begin at random."""
        return self.start == "random"

    def __post_init__(self):
        if isinstance(self.canvas, (list, np.ndarray)):
            object.__setattr__(self, "canvas", tuple(int(side) for side in self.canvas))
        if self.canvas is not None:
            check_size("canvas", self.canvas)
        check_choice("pad", self.pad, ("last", "mask"))
        check_positive_int("max_pixels", self.max_pixels)
        if self.num_threads is not None:
            check_positive_int("num_threads", self.num_threads)
        _ = self.clips  # checks the others

    @property
    def clips(self) -> Clips:
        """Which frames a row shows."""
        return Clips(
            frames=self.frames,
            stride=self.stride,
            fps=self.fps,
            count=self.count,
            start=self.start,
            overlap=self.overlap,
        )

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> "Video":
        """Return the decoder with its canvas, and the form of its chroma."""
        del siblings
        if not isinstance(column.example, Encoded):
            raise TypeError(
                f"column {column.name!r} must be encoded videos, got "
                f"{type(column.example).__name__}: frames that are arrays need no decoder."
            )
        import_av()
        found = list(_first_frames(column, self.max_pixels))
        sizes = np.array([frame.planes.luma.shape for frame in found], np.int32).reshape(-1, 2)
        shapes = [(frame.planes.luma.shape, frame.planes.chroma.shape[1:]) for frame in found]
        whole = any(luma == chroma for luma, chroma in shapes)
        canvas = self.canvas or canvas_of(sizes, "Video")[0]
        return dataclasses.replace(self, canvas=canvas, whole_chroma=whole)

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the forms of planes, of the frames' numbers and times, of sizes and colors."""
        assert self.canvas is not None
        height, width = self.canvas
        chroma = self.canvas if self.whole_chroma else (-(-height // 2), -(-width // 2))
        clips = (self.frames,) if self.count == 1 else (self.count, self.frames)
        return {
            "luma": jax.ShapeDtypeStruct((*clips, height, width), np.uint8),
            "chroma": jax.ShapeDtypeStruct((*clips, 2, *chroma), np.uint8),
            "frame": jax.ShapeDtypeStruct(clips, np.int32),
            "time": jax.ShapeDtypeStruct(clips, np.float32),
            "size": jax.ShapeDtypeStruct((2,), np.int32),
            "original_size": jax.ShapeDtypeStruct((2,), np.int32),
            "color": jax.ShapeDtypeStruct((4,), np.int8),  # of `Color`
        }

    def open(self, devices: Sequence[Device], deterministic: bool) -> "VideoReader":
        """Return the host half, with its threads; the same pixels on every host."""
        del devices, deterministic
        return VideoReader(self)

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        """Return the clips in RGB, zero outside of the video and where it has ended."""
        del siblings
        assert self.canvas is not None
        height, width = self.canvas
        size = jnp.where(valid, row["size"], jnp.asarray(self.canvas, jnp.int32))
        color = row["color"].astype(jnp.int32)
        # The barrier has chroma computed once, not for each channel of a pixel.
        chroma = lax.optimization_barrier(whole_chroma(row["chroma"], self.canvas, color[2:]))
        cb, cr = chroma[..., 0, :, :], chroma[..., 1, :, :]
        inside = (jnp.arange(height)[:, None] < size[0]) & (jnp.arange(width)[None] < size[1])
        shown = row["frame"] >= 0 if self.pad == "mask" else jnp.ones_like(row["frame"], bool)
        shown = shown[..., None, None] & lax.broadcast(inside, (1,) * shown.ndim)
        found = (
            to_rgb(row["luma"], cb, cr, color[0], color[1], shown),
            row["frame"],
            row["time"],
            size,
            jnp.where(valid, row["original_size"], 0),
        )
        return dict(zip(self.entries(name), found))

    def entries(self, name: str) -> tuple[str, ...]:
        """Return the names of the clips, of their frames and times, and of the sizes."""
        prefix = "" if name in ("video", "image") else f"{name}_"
        return (name, f"{name}_frame", f"{name}_time", f"{prefix}size", f"{prefix}original_size")

    def blanks(self, name: str) -> Mapping[str, "int | None"]:
        """Return that frames are -1 and sizes the canvas in rows that are not valid."""
        _, frame, _, size, _ = self.entries(name)
        return {frame: -1, size: None}

    def original(self, values: Values) -> np.ndarray:
        """Return the first frame of one record."""
        assert isinstance(values, Encoded)
        return decode_video(values.view(0), frames=[0], max_pixels=self.max_pixels)[0]


def _first_frames(column: Column, max_pixels: int) -> Iterator[Frame]:
    """Yield the first frame of each of some videos that can be decoded."""
    for values in column.sample(_SAMPLED_VIDEOS):
        assert isinstance(values, Encoded)
        for row in range(len(values.lengths)):
            try:
                with VideoFile(values.view(row), max_pixels) as video:
                    yield from decode_frames(video, np.zeros(1, np.int64))
            except DecodeError:  # told where the record is read
                continue


def _part(seconds: np.ndarray, span: Span | None, row: int) -> tuple[int, int]:
    """Return the frames [begin, end) of a video that a record is.

    Raises:
      DecodeError: there are none.
    """
    if span is None:
        return 0, len(seconds)
    bounds = np.array([span.start[row], span.end[row]])
    places = seconds if span.unit == "seconds" else np.arange(len(seconds), dtype=float)
    begin, end = np.searchsorted(places, bounds - EARLY).tolist()
    if begin >= end:
        last = f"{seconds[-1]:g} s" if span.unit == "seconds" else f"number {len(seconds) - 1}"
        raise DecodeError(f"it has no frames from {span.text(row)}: the last is at {last}")
    return begin, end


class VideoReader:
    """The host half of `Video`: a pool of threads, a row for each.

    Args:
      video: fitted.
    """

    in_flight = Video.in_flight

    def __init__(self, video: Video):
        self.running = video
        self._clips = video.clips
        self._pool = ThreadPoolExecutor(
            video.num_threads or usable_cpus(), thread_name_prefix="jaxaug-video"
        )
        self._process = os.getpid()

    def check_rows(self, values: Encoded, stored: Any) -> tuple[None, dict[int, str]]:
        """Return the rows whose bytes are no whole video; see `ColumnDecoder`."""
        del stored
        failures = {}
        for row in range(len(values.lengths)):
            try:
                find_container(values.view(row))
            except DecodeError as error:
                failures[row] = error.reason
        return None, failures

    def decode_rows(
        self,
        values: Encoded,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the clips of n videos; see `ColumnDecoder`."""
        del checked, siblings
        if os.getpid() != self._process:
            raise RuntimeError("this Loader was made before this process was forked: make it anew.")
        forms = self.running.forms().items()
        arrays = {name: np.zeros((len(wanted), *form.shape), form.dtype) for name, form in forms}
        arrays["frame"][:] = -1
        rows = np.flatnonzero(wanted).tolist()
        outcomes = list(self._pool.map(partial(self._decode_row, values, keys, arrays), rows))
        failures = {row: found for row, found in zip(rows, outcomes) if isinstance(found, str)}
        valid = valid_rows(failures, wanted)
        shrunk = (arrays["size"] != arrays["original_size"]).any(axis=1) & valid
        counts = {
            "shrunk": int(shrunk.sum()),
            "frames_decoded": sum(found for found in outcomes if isinstance(found, int)),
        }
        return Decoded(arrays, valid, failures, counts=counts)

    def _decode_row(
        self, values: Encoded, keys: np.ndarray, arrays: Mapping[str, np.ndarray], row: int
    ) -> str | int:
        """Put the clips of a row into the arrays; return what is wrong, or the frames decoded."""
        arrays = {name: array[row : row + 1] for name, array in arrays.items()}
        try:
            with VideoFile(values.view(row), self.running.max_pixels) as video:
                begin, end = _part(video.seconds, values.span, row)
                self._fill(video, (begin, end), keys[row : row + 1], arrays)
                return video.packets_read
        except DecodeError as error:
            for array in arrays.values():
                array[...] = 0
            arrays["frame"][...] = -1
            return error.reason

    def _fill(
        self,
        video: VideoFile,
        part: tuple[int, int],
        key: np.ndarray,
        arrays: dict[str, np.ndarray],
    ) -> None:
        """Decode the clips of the frames [begin, end) of one video."""
        begin, end = part
        clips = self._clips.numbers(video.seconds[begin:end], key)
        if (clips < 0).all():
            raise DecodeError(f"it has {end - begin} frames, none from `start` on")
        clips = np.where(clips < 0, -1, clips + begin)
        arrays["frame"][...] = clips.reshape(arrays["frame"].shape)
        shown = np.where(clips < 0, clips.max(axis=1, keepdims=True), clips)
        arrays["time"][...] = video.seconds[shown].reshape(arrays["time"].shape)
        if self.running.pad == "mask":
            shown = clips

        places = shown.reshape(-1)
        luma = arrays["luma"].reshape(-1, *arrays["luma"].shape[-2:])
        chroma = arrays["chroma"].reshape(-1, *arrays["chroma"].shape[-3:])
        for frame in decode_frames(video, np.unique(places[places >= 0])):
            planes = self._fitted(frame.planes, arrays)
            for place in np.flatnonzero(places == frame.number).tolist():
                write_planes(planes, luma[place], chroma[place])

    def _fitted(self, planes: Planes, arrays: dict[str, np.ndarray]) -> Planes:
        """Return a frame at its size on the canvas; note its sizes and what its values mean."""
        assert self.running.canvas is not None
        original = np.array([planes.luma.shape], np.int32)
        size = fit_size(original, self.running.canvas)
        height, width = size[0].tolist()
        planes = fit_planes(planes, (height, width), self.running.whole_chroma)
        arrays["original_size"][:] = original
        arrays["size"][:] = size
        arrays["color"][:] = planes.color
        return planes

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(cancel_futures=True)
