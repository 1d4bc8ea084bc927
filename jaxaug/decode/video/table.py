"""What is known of a video: how its packets are decoded, where they lie, and which a frame needs.

It is read from the file once, and may be kept in an index.
"""

import dataclasses
import json
import struct
import zlib
from typing import Any

import numpy as np

from jaxaug._cached import cached_property
from jaxaug.errors import DecodeError

NONE = np.iinfo(np.int64).min  # of a packet without a time
# (chroma_left, chroma_row) of `Codec` by FFmpeg's AVChromaLocation, where it is told.
CHROMA_SITES = {1: (True, 0), 2: (False, 0), 3: (True, -1)}
CHROMA_SITES |= {4: (False, -1), 5: (True, 1), 6: (False, 1)}
TOP_LEFT = 3
_HEAD = struct.Struct("<I")  # the length of the JSON in front of the packets
_MAX_DELAY = 16  # pictures: max_num_reorder_frames, ITU-T H.264 section E.2.1
_CODEC_BYTES = ("extradata", "message", "palette")  # of a codec, in hexadecimal
_FLAGS = ("keyframes", "shown", "disposable")  # of a packet, a bit each


@dataclasses.dataclass(frozen=True)
class Codec:
    """How the packets of a stream are decoded.

    Attributes:
      name: of FFmpeg's decoder.
      extradata: the codec's own header, in MP4 and Matroska an "avcC" or "hvcC".
      height, width: in pixels, as they are stored.
      tag, pixels: the container's name of the codec, and FFmpeg's of the format of the pixels.
      space, range: FFmpeg's AVColorSpace and AVColorRange as the container has them.
      rotation: counter-clockwise degrees that make frames upright; None where each of them tells.
      mirrored: frames are mirrored top to bottom before they are turned.
      chroma_left: chroma of half the size lies on the left of two columns, not between them.
      chroma_row: where it lies among two rows: -1 on the first, 0 between them, 1 on the second.
      unordered: the container has times of decoding alone, and frames come in another order.
      message: NAL unit of an encoder with its own standard, in front of where decoding begins.
      palette: the container's, uint8[256, 4] of (B, G, R, A); empty for none.
      interlaced: rows of a frame, the first one of the video, are of two fields in turn.
    """

    name: str = ""
    extradata: bytes = b""
    height: int = 0
    width: int = 0
    tag: str = ""
    pixels: str = ""
    space: int = 2
    range: int = 0
    rotation: int | None = None
    mirrored: bool = False
    chroma_left: bool = False
    chroma_row: int = 0
    unordered: bool = False
    message: bytes = b""
    palette: bytes = b""
    interlaced: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The packets of a video, in the order in which they are decoded.

    Attributes:
      codec: how they are decoded.
      unit: seconds of a unit of `times`.
      rate: frames a second, by which frames are timed that have no times of their own.
      times: int64[k], when each is shown.
      keyframes: bool[k], True where decoding may begin.
      shown: bool[k], False for packets that an edit list or the codec hides.
      disposable: bool[k], True for packets to which no other refers.
      offsets, sizes: int64[k], the place of each in the file, in bytes.
    """

    codec: Codec = Codec()
    unit: float = 1.0
    rate: float = 25.0
    times: np.ndarray
    keyframes: np.ndarray
    shown: np.ndarray
    disposable: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray

    @cached_property
    def clocked(self) -> bool:
        """True if all frames have times, which do not jump back where recordings are joined."""
        times = self.times[self.shown]
        # What is decoded before a key frame is shown before it.
        behind = times < np.maximum.accumulate(times)
        return bool((times != NONE).all()) and not (behind & self.keyframes[self.shown]).any()

    @cached_property
    def timed(self) -> bool:
        """True if every frame has a time of its own, by which it can be found."""
        distinct = len(np.unique(self.times[self.shown])) == self.shown.sum()
        return self.clocked and bool(distinct) and not self.codec.unordered

    @cached_property
    def frames(self) -> np.ndarray:
        """The packet int64[n] of each frame, in the order in which they are shown."""
        packets = np.flatnonzero(self.shown)
        return packets[np.argsort(self.times[packets], kind="stable")] if self.timed else packets

    @cached_property
    def ranks(self) -> np.ndarray:
        """The place int64[k] of each packet in the order of times, also of those not shown."""
        found = np.empty(len(self.times), np.int64)
        found[np.argsort(self.times, kind="stable")] = np.arange(len(found))
        return found

    @cached_property
    def delay(self) -> int:
        """How many pictures of H.264 a decoder must have before it knows the next to show.

        Headers may tell less, and FFmpeg then drops what comes late.
        """
        if self.codec.name != "h264" or not self.timed:
            return 0
        # The picture that is shown most places before its place in decoding follows as many others.
        late = int((np.arange(len(self.times)) - self.ranks).max())
        return min(late, _MAX_DELAY)

    @cached_property
    def seconds(self) -> np.ndarray:
        """The time float64[n] of each frame."""
        if self.clocked:  # where containers tell times of decoding alone, they are a bit early
            return np.sort(self.times[self.shown]) * self.unit
        begin = int(self.times[self.frames[0]])
        return (0 if begin == NONE else begin) * self.unit + np.arange(len(self.frames)) / self.rate

    def runs(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return the packets that frames int64[m] need, in runs int64[r] from key frames on.

        Those that are disposable and not asked for are left out. A frame that comes in decoding
        after a key frame and is shown before it belongs to the key frame before: in an open group
        of pictures it refers to that group.

        Raises:
          DecodeError: there is no key frame before one of them.
        """
        if not self.timed:
            # No packet tells which frame it will be: all are needed, until the last has come.
            return [np.arange(len(self.times))]
        packets = np.unique(self.frames[numbers])
        keyframes = np.flatnonzero(self.keyframes)
        begun = np.searchsorted(keyframes, packets, side="right")
        if not begun.all():
            raise DecodeError("frames cannot be decoded: no key frame comes before them")
        latest = np.maximum.accumulate(self.times[keyframes])
        earlier = np.searchsorted(latest, self.times[packets], side="right")
        groups = np.maximum(np.minimum(begun, earlier) - 1, 0)  # the first also has what it leads
        return [
            self._run(int(keyframes[group]), packets[groups == group])
            for group in np.unique(groups).tolist()
        ]

    def _run(self, first: int, wanted: np.ndarray) -> np.ndarray:
        """Return the packets from a key frame to the last of those that are wanted."""
        needed = ~self.disposable[first : wanted[-1] + 1]
        needed[wanted - first] = True
        return first + np.flatnonzero(needed)

    def bytes_of(self, numbers: np.ndarray) -> tuple[int, int]:
        """Return the bytes [begin, end) of the file in which all lies that frames int64[m] need."""
        packets = np.concatenate(self.runs(numbers))
        offsets = self.offsets[packets]
        return int(offsets.min()), int((offsets + self.sizes[packets]).max())

    def to_bytes(self) -> bytes:
        """Return the table for an index; `from_bytes` is its inverse.

        Behind the codec as JSON are, by packet, differences of times, gaps between packets, sizes
        and flags, which mostly repeat, compressed.
        """
        codec = dataclasses.asdict(self.codec)
        codec |= {name: codec[name].hex() for name in _CODEC_BYTES}
        head = json.dumps([codec, self.unit, self.rate]).encode()
        flags = sum(getattr(self, name).astype(np.int64) << k for k, name in enumerate(_FLAGS))
        times = np.diff(self.times, prepend=0)  # wraps around `NONE`, and back
        gaps = np.diff(self.offsets, prepend=0) - np.append(0, self.sizes[:-1])
        rows = np.stack([times, gaps, self.sizes, flags]).astype("<i8")
        return _HEAD.pack(len(head)) + head + zlib.compress(rows.tobytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Table":
        """Return what `to_bytes` gave."""
        (length,) = _HEAD.unpack_from(data)
        start = _HEAD.size + length
        codec, unit, rate = json.loads(data[_HEAD.size : start])
        codec |= {name: bytes.fromhex(codec.get(name, "")) for name in _CODEC_BYTES}
        codec = Codec(**codec)
        rows = np.frombuffer(zlib.decompress(data[start:]), "<i8").reshape(4, -1)
        times, gaps, sizes, flags = rows
        packets: dict[str, Any] = {name: (flags >> k & 1 == 1) for k, name in enumerate(_FLAGS)}
        packets |= {"times": np.cumsum(times), "sizes": sizes}
        packets["offsets"] = np.cumsum(gaps + np.append(0, sizes[:-1]))
        return cls(codec=codec, unit=unit, rate=rate, **packets)
