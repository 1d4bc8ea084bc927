"""A video opened by PyAV: the table of its frames, and the packets that some of them need."""

import dataclasses
import importlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jaxaug._install import install_command
from jaxaug.decode.video.container import find_container
from jaxaug.decode.video.references import References
from jaxaug.errors import DecodeError

_MAX_PACKETS = 1_000_000  # of a video: nine hours at 30 frames/s
_IO_BYTES = 1 << 18  # read at a time
# Codecs whose chroma lies on the left of two columns where the stream does not say more: ITU-T
# H.264 and H.265 figure E-1, ISO/IEC 13818-2 section 6.1.1.8, ISO/IEC 14496-2; so has "vpcC".
_CHROMA_LEFT = ("h264", "hevc", "mpeg2video", "mpeg4")
_NONE = np.iinfo(np.int64).min  # of a packet without a time


@dataclasses.dataclass(frozen=True)
class Table:
    """The packets of a video, in the order in which they are decoded.

    Attributes:
      times: int64[k], when each is shown, in units of the stream.
      starts: int64[k], when each is decoded, by which containers seek.
      keys: bool[k], True where decoding may begin.
      shown: bool[k], False for packets that an edit list or the codec hides.
    """

    times: np.ndarray
    starts: np.ndarray
    keys: np.ndarray
    shown: np.ndarray

    @cached_property
    def timed(self) -> bool:
        """True if every frame has a time of its own, by which it can be found."""
        times = self.times[self.shown]
        return bool((times != _NONE).all()) and len(np.unique(times)) == len(times)

    def frames(self) -> np.ndarray:
        """Return the packet int64[n] of each frame, in the order in which they are shown."""
        packets = np.flatnonzero(self.shown)
        return packets[np.argsort(self.times[packets], kind="stable")] if self.timed else packets


class Run(NamedTuple):
    """Packets that follow each other, from one where decoding may begin.

    Attributes:
      first, last: numbers of packets.
      wanted: of those whose frames are asked for.
    """

    first: int
    last: int
    wanted: frozenset[int]


def plan_runs(table: Table, packets: np.ndarray) -> list[Run]:
    """Return the runs of packets, one for each key packet, that frames with these packets need.

    A frame that comes in decoding after a key packet and is shown before it belongs to the key
    packet before: in an open group of pictures it refers to that group.

    Args:
      table: all packets.
      packets: int64[m], of the frames that are asked for.

    Raises:
      DecodeError: there is no key packet before one of them.
    """
    keys = np.flatnonzero(table.keys)
    groups: dict[int, list[int]] = {}
    for packet in sorted(set(packets.tolist())):
        before = keys[keys <= packet]
        if table.timed:
            before = before[table.times[before] <= table.times[packet]]
        if not len(before):
            raise DecodeError("frames cannot be decoded: no key frame comes before them")
        groups.setdefault(int(before[-1]), []).append(packet)
    return [Run(key, wanted[-1], frozenset(wanted)) for key, wanted in sorted(groups.items())]


class VideoFile:
    """The main video stream of a file, that which FFmpeg finds best; a context manager.

    Args:
      data: the bytes of the file, which must stay as they are until `close`.
      max_pixels: more in a frame are refused.

    Attributes:
      table: of its packets.
      seconds: float64[n], the time of each frame.
      packets_read: how many `packets` gave, all in all.
      stream: of PyAV.

    Raises:
      DecodeError: no video, more pixels or packets than allowed, or none.
      ImportError: PyAV is not installed.
    """

    def __init__(self, data: memoryview, max_pixels: int):
        self.packets_read = 0
        self._data = data
        self._kind = find_container(data)
        self._limit = {"max_pixels": str(max_pixels)}
        self._open()
        try:
            context = self.stream.codec_context
            if context.width * context.height > max_pixels:
                raise DecodeError(
                    f"{context.height} x {context.width} pixels are more than "
                    f"max_pixels={max_pixels}"
                )
            self.table = self._read_table()
            self.frames = self.table.frames()
            if not len(self.frames):
                raise DecodeError("it has no frames")
            self.seconds = self._seconds()
            self._references = References(context.name, context.extradata)
        except BaseException as error:
            self.close()
            raise _as_decode_error(error) from None

    def __enter__(self) -> "VideoFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what FFmpeg holds."""
        self.container.close()

    @property
    def chroma_left(self) -> bool:
        """True where chroma lies on the left of two columns, as the codec has it by default."""
        codec = self.stream.codec_context.name
        return codec in _CHROMA_LEFT or (codec == "vp9" and self._kind == "mov")

    def _open(self) -> None:
        file = _File(self._data)
        av = import_av()
        options: dict[str, Any] = {"format": self._kind, "options": self._limit}
        if int(av.__version__.split(".")[0]) < 19:  # later ones decode metadata when asked for it
            options["metadata_errors"] = "replace"
        try:
            self.container = av.open(file, buffer_size=_IO_BYTES, **options)
        except Exception as error:
            raise _as_decode_error(error) from None
        self.stream = self.container.streams.best("video")
        if self.stream is None or self.stream.codec_context is None:
            self.container.close()
            raise DecodeError("it has no video stream that can be decoded")
        self.stream.codec_context.thread_count = 1  # rows are decoded side by side

    def _read_table(self) -> Table:
        times: list[int] = []
        starts: list[int] = []
        keys: list[bool] = []
        shown: list[bool] = []
        hides = self.stream.codec_context.name == "vp8"
        for packet in self._demux():
            if len(times) == _MAX_PACKETS:
                raise DecodeError(f"it has more than {_MAX_PACKETS:,} frames")
            times.append(_NONE if packet.pts is None else packet.pts)
            starts.append(times[-1] if packet.dts is None else packet.dts)
            keys.append(packet.is_keyframe)
            hidden = hides and not memoryview(packet)[0] & 16  # show_frame, RFC 6386 section 9.1
            shown.append(not (packet.is_discard or hidden))
        return Table(
            np.array(times, np.int64),
            np.array(starts, np.int64),
            np.array(keys, bool),
            np.array(shown, bool),
        )

    def _demux(self) -> Iterator[Any]:
        """Yield the packets of the stream that hold something."""
        return (packet for packet in self.container.demux(self.stream) if packet.size)

    def _seconds(self) -> np.ndarray:
        if self.table.timed:
            return self.table.times[self.frames] * float(self.stream.time_base)
        rate = self.stream.average_rate or 25
        return np.arange(len(self.frames)) / float(rate)

    def runs(self, numbers: np.ndarray) -> list[Run]:
        """Return the runs of packets that frames int64[m] need."""
        packets = self.frames[numbers]
        if self.table.timed:
            return plan_runs(self.table, packets)
        # No packet tells which frame it will be: all that come before the last one, in order.
        last = int(packets.max())
        return [Run(0, len(self.table.times) - 1, frozenset(range(last + 1)))]

    def packets(self, run: Run) -> Iterator[Any]:
        """Yield the packets of a run that its wanted frames need, of PyAV.

        Those to which no frame refers are left out.
        """
        for number, packet in self._numbered(run.first):
            if number > run.last:
                return
            if number in run.wanted or not self._references.droppable(packet):
                self.packets_read += 1
                yield packet

    def _numbered(self, first: int) -> Iterator[tuple[int, Any]]:
        """Yield the packets from one on, with their numbers."""
        if self.table.timed:
            time = int(self.table.times[first])
            self.container.seek(int(self.table.starts[first]), stream=self.stream, backward=True)
            packets = self._demux()
            for packet in packets:
                if packet.is_keyframe and packet.pts >= time:
                    break
            else:
                packet = None
            if packet is not None and packet.pts == time:
                yield first, packet
                yield from enumerate(packets, first + 1)
                return
        # Some containers cannot seek: from the start.
        self.container.close()
        self._open()
        yield from ((n, packet) for n, packet in enumerate(self._demux()) if n >= first)


def import_av() -> Any:
    """Return PyAV.

    Raises:
      ImportError: it is not installed.
    """
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise ImportError(f"videos need PyAV: {install_command('video')}.") from error


def _as_decode_error(error: BaseException) -> BaseException:
    """Return an error of FFmpeg as what it says about the bytes."""
    if isinstance(error, import_av().FFmpegError):
        return DecodeError(f"FFmpeg cannot read it: {getattr(error, 'strerror', None) or error}")
    return error


class _File:
    """Bytes in memory as a file, without a copy of all of them."""

    def __init__(self, data: memoryview):
        self._data = data
        self._place = 0

    def read(self, size: int) -> bytes:
        chunk = bytes(self._data[self._place : self._place + size])
        self._place += len(chunk)
        return chunk

    def seek(self, offset: int, whence: int = 0) -> int:
        start = (0, self._place, len(self._data))[whence]
        self._place = max(0, start + offset)
        return self._place

    def tell(self) -> int:
        return self._place
