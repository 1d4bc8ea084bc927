"""The decoder of a column of videos: clips on static canvases, as planes and then as RGB."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._checks import check_choice, check_positive_int, check_size
from jaxaug._install import install_gpu_command, installed_versions
from jaxaug._typing import Device, Values
from jaxaug._warn import warn_once
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, valid_rows
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode._types import Encoded, Span
from jaxaug.decode.image.canvas import canvas_of
from jaxaug.decode.video.clips import EARLY, Clips, shown_until
from jaxaug.decode.video.container import find_container
from jaxaug.decode.video.convert import frames_to_rgb
from jaxaug.decode.video.decode_video import MAX_PIXELS, decode_video
from jaxaug.decode.video.host import PLANES, HostCanvases, HostFrames, completed_codec
from jaxaug.decode.video.planes import color_of, plane_sizes
from jaxaug.decode.video.pyav import import_av
from jaxaug.decode.video.stored import StoredVideos, table_of
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Codec, Table
from jaxaug.errors import DecodeError

if TYPE_CHECKING:
    from jaxaug.decode.video.nvdec.nvdec_frames import NvdecCanvases, NvdecFrames

_SAMPLED_VIDEOS = 32  # looked at


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
      overlap: False cuts the video into `count` equal parts, with a clip in each; a part has a
        frame at least, so those of a video of fewer frames share them.
      pad: behind the end of a video that is shorter than a clip: "last" repeats its last frame,
        "mask" leaves zeros.
      canvas: (H, W) in pixels; larger videos are shrunk to it, antialiased, with their aspect kept.
        None: picked as that of images, by an index or the first frames of 32.
      max_pixels: a video with more in a frame is a bad record.
      interlaced: chroma of interlaced 4:2:0 is interpolated within its own field, in frames that
        say that they are interlaced. False: where one of 32 videos begins with such a frame;
        without one, chroma of both fields is mixed.
      backend: "host" decodes with threads on the CPU, "nvdec" with the video engines of NVIDIA
        GPUs, and with the host what they refuse. "auto" takes the engines for H.264 and HEVC where
        the devices are GPUs and most of the videos are of these codecs, and the host for the
        others; it warns where engines cannot be used. All give the same planes.
      num_threads: of "host"; None for one for each CPU. With engines there are three for each.

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
    interlaced: bool = False
    # Not part of what processes compare: hosts may differ.
    backend: str = dataclasses.field(default="auto", repr=False)
    num_threads: int | None = dataclasses.field(default=None, repr=False)
    # Set by `fit`: True where a video has chroma of the size of its luma, and so the canvases.
    whole_chroma: bool = dataclasses.field(default=False, repr=False)
    # Set by `fit`: True where GPUs have engines, and so the planes.
    engines: bool = dataclasses.field(default=False, repr=False)

    reads_parts = True
    counted = ("shrunk", "frames_decoded", "on_engines")

    @property
    def on_device(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The planes, where the engines write them."""
        return PLANES if self.engines else ()

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
        check_choice("backend", self.backend, ("auto", "nvdec", "host"))
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

    @property
    def clip_shape(self) -> tuple[int, ...]:
        """The shape of a row's frames, (T,) or (count, T)."""
        return (self.frames,) if self.count == 1 else (self.count, self.frames)

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> "Video":
        """Return the decoder with its canvas, and the form of its chroma."""
        if not isinstance(column.example, Encoded):
            raise TypeError(
                f"column {column.name!r} must be encoded videos, got "
                f"{type(column.example).__name__}: frames that are arrays need no decoder."
            )
        import_av()
        found = _some_codecs(column, self.max_pixels, self.num_threads)
        planes = [plane_sizes(codec) for codec in found]
        sizes = np.array([luma for luma, _ in planes], np.int32).reshape(-1, 2)
        whole = any(luma == chroma for luma, chroma in planes)
        canvas = self.canvas or canvas_of(sizes, "Video")[0]
        engines = _takes_engines(self.backend, [codec.name for codec in found])
        interlaced = self.interlaced or any(codec.interlaced for codec in found)
        return dataclasses.replace(
            self, canvas=canvas, interlaced=interlaced, whole_chroma=whole, engines=engines
        )

    def needed_bytes(
        self, stored: StoredVideos | None, span: Span | None, keys: np.ndarray
    ) -> np.ndarray:
        """Return the bytes of the groups of pictures that the clips need, where that is known."""
        found = super().needed_bytes(stored, span, keys)
        if stored is None:
            return found
        for row in range(len(keys)):
            table = table_of(stored.tables[row])
            if table is None:
                continue
            try:
                part = _part(table.seconds, span, row)
                clips = _shown(self.clips, table, part, keys[row : row + 1])
                found[row] = table.bytes_of(np.unique(clips[clips >= 0]))
            except DecodeError:  # told when it is decoded
                continue
        return found

    def made_by(self, platform: str) -> dict[str, str]:
        """Return the versions of PyAV, and of Pillow, which shrinks frames."""
        return installed_versions("av", "pillow")

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the forms of planes, of the frames' numbers and times, of sizes and colors."""
        assert self.canvas is not None
        height, width = self.canvas
        chroma = self.canvas if self.whole_chroma else (-(-height // 2), -(-width // 2))
        clips = self.clip_shape
        fields = {"interlaced": jax.ShapeDtypeStruct(clips, np.bool_)}
        return {
            "luma": jax.ShapeDtypeStruct((*clips, height, width), np.uint8),
            "chroma": jax.ShapeDtypeStruct((*clips, 2, *chroma), np.uint8),
            "frame": jax.ShapeDtypeStruct(clips, np.int32),
            "time": jax.ShapeDtypeStruct(clips, np.float32),
            "end": jax.ShapeDtypeStruct((), np.float32),  # seconds: a sound beside it ends there
            "size": jax.ShapeDtypeStruct((2,), np.int32),
            "original_size": jax.ShapeDtypeStruct((2,), np.int32),
            "color": jax.ShapeDtypeStruct((4,), np.int8),  # of `Color`
            "orientation": jax.ShapeDtypeStruct((), np.uint8),
        } | (fields if self.interlaced and not self.whole_chroma else {})

    def open(self, devices: Sequence[Device], deterministic: bool) -> "VideoReader":
        """Return the host half, with its threads; every backend gives the same planes."""
        return VideoReader(self, _make_backend(self, devices))

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        """Return the clips in RGB, zero outside of the video and where it has ended."""
        size = jnp.where(valid, row["size"], jnp.asarray(self.canvas, jnp.int32))
        shown = row["frame"] >= 0 if self.pad == "mask" else jnp.ones_like(row["frame"], bool)
        color = row["color"].astype(jnp.int32)
        planes = row["luma"], row["chroma"]
        found = (
            frames_to_rgb(*planes, shown, size, color, row.get("interlaced")),
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
        data, begin = values.view(0), 0
        if values.span is not None:
            with VideoFile(data, self.max_pixels) as video:
                begin = _part(video.table.seconds, values.span, 0).begin
        return decode_video(data, frames=[begin], max_pixels=self.max_pixels)[0]


def _takes_engines(backend: str, codecs: Sequence[str]) -> bool:
    """Return True where NVIDIA's engines decode, if they can, videos of which some have `codecs`.

    Beside engines the host has a few threads alone: where most videos would be left to these,
    "auto" takes all of the host's.
    """
    if backend == "auto" and jax.default_backend() == "gpu":
        from jaxaug.decode.video.nvdec.engines import REPORTED

        return sum(codec in REPORTED for codec in codecs) * 2 > len(codecs)
    return backend == "nvdec"


def _make_backend(video: Video, devices: Sequence[Device]) -> "HostFrames | NvdecFrames":
    """Return what decodes the frames of a fitted description."""
    on_gpus = all(device.platform == "gpu" for device in devices)
    if video.backend == "nvdec" and not on_gpus:
        raise ValueError(
            f"the devices must be NVIDIA GPUs for backend='nvdec', got {devices}: where there is "
            f"one, {install_gpu_command()}; else take 'auto' or 'host'."
        )
    if video.engines and on_gpus:
        from jaxaug.decode.native.cuda import CudaError
        from jaxaug.decode.native.libnvcuvid import CuvidError
        from jaxaug.decode.native.load_library import LibraryError
        from jaxaug.decode.video.nvdec.nvdec_frames import NvdecFrames

        try:
            return NvdecFrames(video.forms(), devices, silent=video.backend == "nvdec")
        except (LibraryError, CuvidError, CudaError) as error:
            if video.backend == "nvdec":
                raise
            warn_once(
                "jaxaug decodes videos on the host, because the GPU's video engines cannot be "
                f"used: {error}"
            )
    threads = video.num_threads or usable_cpus()
    return HostFrames(video.forms(), threads, devices if video.engines else None)


def _some_codecs(column: Column, max_pixels: int, num_threads: int | None) -> list[Codec]:
    """Return the codecs of some videos, by what an index tells, else by their first frames."""
    found: list[Codec | None] = []

    def indexed(stored: StoredVideos) -> np.ndarray:
        tables = [table_of(each) for each in stored.tables]
        found.extend(table.codec for table in tables if table is not None)
        return np.array([table is not None for table in tables])

    with ThreadPoolExecutor(num_threads or usable_cpus()) as threads:
        for values in column.sample(_SAMPLED_VIDEOS, indexed):
            assert isinstance(values, Encoded)
            rows = range(len(values.lengths))
            found += threads.map(partial(_codec_of, values, max_pixels), rows)
    codecs = [codec for codec in found if codec is not None]
    return [codec for codec in codecs if codec.height * codec.width <= max_pixels]


def _codec_of(values: Encoded, max_pixels: int, row: int) -> Codec | None:
    """Return the codec of a video, with what its frames tell; None of a bad one."""
    with (
        contextlib.suppress(DecodeError),  # told where the record is read
        VideoFile(values.view(row), max_pixels) as video,
    ):
        codec = completed_codec(video)
        color_of(codec)  # an error where they are not read
        return codec
    return None


class _Part(NamedTuple):
    """The part of a video that a record is.

    Attributes:
      begin, end: its frames are [begin, end).
      ends_at: the second at which it ends, `inf` for the end of the video.
    """

    begin: int
    end: int
    ends_at: float


def _part(seconds: np.ndarray, span: Span | None, row: int) -> _Part:
    """Return the part of a video that a record is.

    Raises:
      DecodeError: it has no frames.
    """
    if span is None:
        return _Part(0, len(seconds), np.inf)
    bounds = np.array([span.start[row], span.end[row]])
    places = seconds if span.unit == "seconds" else np.arange(len(seconds), dtype=float)
    begin, end = np.searchsorted(places, bounds - EARLY).tolist()
    if begin >= end:
        last = f"{seconds[-1]:g} s" if span.unit == "seconds" else f"number {len(seconds) - 1}"
        raise DecodeError(f"it has no frames from {span.text(row)}: the last is at {last}")
    if span.unit == "seconds":
        return _Part(begin, end, float(span.end[row]))
    return _Part(begin, end, float(seconds[end]) if end < len(seconds) else np.inf)


def _shown(clips: Clips, table: Table, part: _Part, key: np.ndarray) -> np.ndarray:
    """Return the frames that a row shows, int64[count, frames], -1 behind the end of its part.

    Raises:
      DecodeError: there are none.
    """
    begin, end, ends_at = part
    seconds = table.seconds
    until = seconds[end] if end < len(seconds) else shown_until(seconds)
    found = clips.numbers(seconds[begin:end], key, min(until, ends_at))
    if (found < 0).all():
        raise DecodeError(f"it has {end - begin} frames, none from `start` on")
    return np.where(found < 0, -1, found + begin)


class VideoReader:
    """The host half of `Video`: a row for each thread of a backend.

    Args:
      video: fitted.
      backend: decodes the frames.
    """

    def __init__(self, video: Video, backend: "HostFrames | NvdecFrames"):
        self.running = video
        self.in_flight = backend.in_flight
        self._clips = video.clips
        self._backend = backend
        self._process = os.getpid()

    @property
    def memory(self) -> dict[str, int]:
        """What is held: "host_bytes" of canvases, and "device_bytes" of canvases and engines."""
        return self._backend.memory

    def check_rows(
        self, values: Encoded, stored: StoredVideos | None
    ) -> tuple[StoredVideos, dict[int, str]]:
        """Return what is stored, and the rows whose bytes are no whole video.

        A video was whole when its table was made.
        """
        count = len(values.lengths)
        stored = stored or StoredVideos(np.full(count, b"", object))
        failures = {}
        for row in range(count):
            if stored.tables[row] and values.lengths[row]:
                continue
            try:
                if values.first_bytes[row]:
                    raise DecodeError("it has changed since it was indexed")
                find_container(values.view(row))
            except DecodeError as error:
                failures[row] = error.reason
        return stored, failures

    def decode_rows(
        self,
        values: Encoded,
        checked: StoredVideos,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the clips of n videos; see `ColumnDecoder`."""
        if os.getpid() != self._process:
            raise RuntimeError("this Loader was made before this process was forked: make it anew.")
        count = len(wanted)
        arrays = {
            name: np.zeros((count, *form.shape), form.dtype)
            for name, form in self.running.forms().items()
            if name not in PLANES
        }
        arrays["frame"][:] = -1
        canvases = self._backend.take(count)
        try:
            decode = partial(self._decode_row, values, checked, keys, arrays, canvases)
            rows = np.flatnonzero(wanted).tolist()
            outcomes = canvases.map(decode, rows)
            planes = canvases.planes()
        except BaseException:
            canvases.release(())
            raise
        failures = {row: found for row, found in zip(rows, outcomes) if isinstance(found, str)}
        valid = valid_rows(failures, wanted)
        shrunk = (arrays["size"] != arrays["original_size"]).any(axis=1) & valid
        counts = {
            "shrunk": int(shrunk.sum()),
            "frames_decoded": sum(found for found in outcomes if isinstance(found, int)),
            "on_engines": canvases.on_engines,
        }
        return Decoded(arrays | planes, valid, failures, counts=counts, release=canvases.release)

    def _decode_row(
        self,
        values: Encoded,
        stored: StoredVideos,
        keys: np.ndarray,
        arrays: Mapping[str, np.ndarray],
        canvases: "HostCanvases | NvdecCanvases",
        row: int,
    ) -> str | int:
        """Put the clips of a row into the arrays; return what is wrong, or the frames decoded."""
        arrays = {name: array[row : row + 1] for name, array in arrays.items()}
        try:
            table = table_of(stored.tables[row])
            begin, pixels = int(values.first_bytes[row]), self.running.max_pixels
            with self._backend.open(values.view(row), pixels, table, begin) as video:
                part = _part(video.table.seconds, values.span, row)
                clips = _shown(self._clips, video.table, part, keys[row : row + 1])
                arrays["end"][...] = part.ends_at
                found = canvases.decode(row, video, self._fill(video.table, clips, arrays))
                facts = found._asdict()
                for name in facts.keys() & arrays.keys():
                    arrays[name][:] = np.reshape(facts[name], arrays[name].shape[1:])
                return video.packets_read
        except DecodeError as error:
            for array in arrays.values():
                array[...] = 0
            arrays["frame"][...] = -1
            return error.reason

    def _fill(
        self, table: Table, clips: np.ndarray, arrays: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Note which frames are shown when; return those of each canvas, -1 for none.

        Args:
          table: of the video.
          clips: int64[count, frames], -1 behind the video's end.
          arrays: of the row.
        """
        arrays["frame"][...] = clips.reshape(arrays["frame"].shape)
        shown = np.where(clips < 0, clips.max(axis=1, keepdims=True), clips)
        arrays["time"][...] = table.seconds[shown].reshape(arrays["time"].shape)
        return (clips if self.running.pad == "mask" else shown).reshape(-1)

    def close(self) -> None:
        """Stop the threads, and free the memory that no batch holds."""
        self._backend.close()
