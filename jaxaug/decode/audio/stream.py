"""Sound that FFmpeg reads: AAC, M4A, Matroska, WMA, and the sound of a video, by the times of its
packets.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from jaxaug._cached import cached_property
from jaxaug.decode._ffmpeg import decode_error, open_container
from jaxaug.decode.audio.header import Header
from jaxaug.decode.audio.libraries import av
from jaxaug.decode.audio.mp3 import behind_tags
from jaxaug.decode.audio.raw import check_last_frame, count_samples, raw_stream, without_tags
from jaxaug.decode.video.container import find_container
from jaxaug.errors import DecodeError

_MAX_PACKETS = 20_000_000  # of a sound: days of it
_LEAD = (0.1, 4096)  # seconds and samples before a window that codecs need
_LEAD_OF_OPUS = (1.0, 0)  # see `opus.py`
_READ_FROM_START = ("mpeg", "ogg")  # a seek may end within a packet, or tell wrong times
# Codecs the times of whose packets are not those of the samples that come of them, as parts of a
# frame lie in the packet before it: these samples are counted from the first one.
_COUNTED = ("wmav1", "wmav2", "wmapro", "wmalossless", "wmavoice")
# Streams that are decoded from the start: the times of AC-3 are rounded, each from the one before,
# and AMR keeps a state.
_RAW_COUNTED = ("ac3", "eac3", "amr")
_MAX_PLANES = 7  # behind more of them PyAV takes what lies there for another one, and crashes
_LOOKED_AT = 4  # frames, whose length is that of all but the first
# Seconds within which packets follow each other, by container and codec: Matroska rounds to 1 ms,
# of the frames that share a packet of MPEG-PS one may have the time of its neighbor, and FFmpeg
# once wrote Vorbis to WebM with times that are 10 or 20 ms late for long frames, or for those
# before short ones.
_SAME_TIME = {"mpeg": 0.05, "vorbis": 0.05}
_ROUNDED = 0.003
_SCALES = {"u8": 2.0**-7, "s16": 2.0**-15, "s32": 2.0**-31, "s64": 2.0**-63}


def container_of(data: memoryview) -> str:
    """Return FFmpeg's name of the container of a sound or a video.

    Raises:
      DecodeError: it is none, or is cut.
    """
    if name := raw_stream(bytes(data[:16])):
        check_last_frame(data, name)
        return name
    return find_container(data)


def stream_header(data: memoryview) -> Header:
    """Return the header of a file that FFmpeg reads.

    Raises:
      DecodeError: it has no sound, or none that can be decoded.
    """
    with SoundStream(data) as stream:
        bits = 16 if stream.kind == "s16" else 0
        return Header("av", stream.rate, stream.channels, stream.frames, bits)


class SoundStream:
    """The main sound of a file; a context manager.

    Samples are counted from the first one that is played. FFmpeg leaves out what an encoder put
    before it.

    Args:
      data: the bytes of the file, which must stay as they are until `close`.

    Attributes:
      rate, channels: of the sound.
      kind: of FFmpeg's samples: "flt", "s16", ...

    Raises:
      DecodeError: it has no sound, or none that can be decoded.
      ImportError: PyAV is not installed.
    """

    def __init__(self, data: memoryview):
        data = data[behind_tags(data) :]
        self._format = container_of(data)
        self._data = without_tags(data) if self._format == "aac" else data
        self._failures = av().FFmpegError
        self._open()
        context = self._stream.codec_context
        self.rate, self.channels = context.sample_rate, context.channels
        self.kind = context.format.name.removesuffix("p") if context.format else ""
        self._step = float(self._stream.time_base)
        codec = context.codec.canonical_name
        # FFmpeg's times are from 0 up to the first position that Ogg tells, and go on from there.
        self._joined = codec == "flac" and self._format == "ogg"
        self._counted = self._joined or codec in _COUNTED or self._format in _RAW_COUNTED
        self._same_time = _SAME_TIME.get(self._format) or _SAME_TIME.get(codec, _ROUNDED)

    def _open(self) -> None:
        try:
            self._container = open_container(av(), self._data, self._format)
        except self._failures as error:
            raise decode_error(error) from None
        self._stream = self._container.streams.best("audio")
        if self._stream is None or self._stream.codec_context is None:
            self.close()
            raise DecodeError("it has no sound that can be decoded")
        self._stream.codec_context.thread_count = 1  # rows are decoded side by side

    def __enter__(self) -> "SoundStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what FFmpeg holds."""
        self._container.close()

    @property
    def first(self) -> float:
        """The time of the first sample, in seconds of the file's clock."""
        return (self._stream.start_time or 0) * self._step

    @cached_property
    def frames(self) -> int:
        """The samples of each channel."""
        found = count_samples(self._data, self._format)
        if found is not None:
            return found
        found = 0
        if self._joined:
            found = sum(packet.duration or 0 for packet in self._packets())
            return round(found * self._step * self.rate)
        if not self._counted:
            found = self._frames_by_times()
            if self._grid is None:
                return found
        try:
            parts = self._from(found / self.rate - _LEAD_OF_OPUS[0])
            return max((start + len(part) for start, part in parts), default=0)
        except self._failures as error:
            raise decode_error(error) from None

    @cached_property
    def _grid(self) -> tuple[int, int] | None:
        """Where frames begin, (place of one, distance), where the file's times are too coarse to
        tell, as in Matroska; None where they are not, or frames differ in length.
        """
        if self._step * self.rate <= 1:
            return None
        self._open_again()
        try:
            frames = islice(self._container.decode(self._stream), _LOOKED_AT)
            first, *others = [*frames] or [None]
        except self._failures as error:
            raise decode_error(error) from None
        lengths = {frame.samples for frame in others}
        if len(lengths) != 1:
            return None
        (length,) = lengths
        return (self._place(first) + first.samples) % length, length

    def _frames_by_times(self) -> int:
        """Return the samples of each channel by the times of all packets."""
        end = 0.0
        for packet in self._packets():
            if packet.pts is not None:
                end = max(end, (packet.pts + (packet.duration or 0)) * self._step)
        return max(0, round((end - self.first) * self.rate))

    def _packets(self) -> Iterator[Any]:
        """Yield the packets of the sound, without their contents' being decoded."""
        try:
            for number, packet in enumerate(self._container.demux(self._stream)):
                if number > _MAX_PACKETS:
                    raise DecodeError(f"it has more than {_MAX_PACKETS:,} packets")
                if packet.size:
                    yield packet
        except self._failures as error:
            raise decode_error(error) from None

    def read(self, first: int, count: int) -> np.ndarray:
        """Return samples float32[count, channels] from one on, zero where there are none.

        Raises:
          DecodeError: they cannot be decoded.
        """
        samples = np.zeros((count, self.channels), np.float32)
        try:
            opus = self._stream.codec_context.codec.canonical_name == "opus"
            seconds, lead = _LEAD_OF_OPUS if opus else _LEAD
            for start, found in self._from((first - lead) / self.rate - seconds):
                if start >= first + count:
                    break
                skipped = max(0, first - start)
                found = found[skipped:]
                start = max(start - first, 0)
                found = found[: count - start]
                samples[start : start + len(found)] = found
        except self._failures as error:
            raise decode_error(error) from None
        return samples

    def check(self, frames: int) -> None:
        """Decode the sound up to a sample, and keep nothing.

        Raises:
          DecodeError: it cannot be decoded.
        """
        try:
            for start, _ in self._from(0.0):
                if start >= frames:
                    break
        except self._failures as error:
            raise decode_error(error) from None

    def _open_again(self) -> None:
        """Go to the beginning: what an encoder put there lies before the first time."""
        self.close()
        self._open()

    def _from(self, seconds: float) -> Iterator[tuple[int, np.ndarray]]:
        """Yield what is decoded from a packet at or before a time of the sound on, with the number
        of the first sample of each.
        """
        whole = self._counted or self._format in _READ_FROM_START
        sought = seconds > 0 and not whole
        grid = self._grid if sought else None
        if sought:
            self._seek(seconds)
        else:
            self._open_again()
        frames = self._container.decode(self._stream)
        following = None
        if sought and self._same_time > _ROUNDED:
            begin = [*islice(frames, _LOOKED_AT)]
            following, frames = self._beginning(begin), chain(begin, frames)
        frame = next(frames, None)
        while frame is not None:
            if frame.layout.nb_channels != self.channels or frame.sample_rate != self.rate:
                raise DecodeError("it is damaged: its rate or its channels change")
            place, after = following, None
            if frame.pts is not None and not self._counted:
                if place is None and grid is not None:
                    place = grid[0] + round((self._place(frame) - grid[0]) / grid[1]) * grid[1]
                if not self._is_at(frame, place):
                    after = next(frames, None)
                    # What was made of Vorbis may have its late times, too, one at a time.
                    if place is None or not self._is_at(after, place + frame.samples):
                        place = self._place(frame)
            found = _samples_of(frame)
            following = (place or 0) + len(found)
            yield place or 0, found
            frame = after or next(frames, None)

    def _seek(self, seconds: float) -> None:
        """Go to a packet at or before a time of the sound."""
        place = round((self.first + seconds) / self._step)
        try:
            self._container.seek(place, stream=self._stream, backward=True)
        except self._failures:  # FLAC's finds no frame near the end
            self._open_again()

    def _beginning(self, frames: Sequence[Any]) -> int | None:
        """Return the number of the first sample of frames by the times of most of them."""
        behind, found = 0, []
        for frame in frames:
            if frame.pts is not None:
                found.append(self._place(frame) - behind)
            behind += frame.samples
        return sorted(found)[len(found) // 2] if found else None

    def _is_at(self, frame: Any, place: int | None) -> bool:
        """Return True where the time of a frame is that of a sample, as containers round times."""
        if frame is None or frame.pts is None or place is None:
            return False
        return abs(self._place(frame) - place) <= self._same_time * self.rate

    def _place(self, frame: Any) -> int:
        """Return the number of the first sample of a frame by its time."""
        return round(((frame.pts or 0) * float(frame.time_base) - self.first) * self.rate)


def _samples_of(frame: Any) -> np.ndarray:
    """Return the samples float32[n, channels] of a frame, in [-1, 1]."""
    channels = frame.layout.nb_channels
    if frame.format.is_planar and channels > _MAX_PLANES:
        (frame,) = av().AudioResampler(frame.format.packed).resample(frame)
    values = frame.to_ndarray()
    values = values.T if frame.format.is_planar else values.reshape(-1, channels)
    kind = frame.format.name.removesuffix("p")
    if kind == "u8":
        values = values.astype(np.float32) - 128
    return values.astype(np.float32) * np.float32(_SCALES.get(kind, 1.0))
