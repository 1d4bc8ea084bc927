"""Packets as the parser of the engines reads them: NAL units behind start codes, with headers."""

from collections.abc import Iterator, Sequence

import numpy as np

from jaxaug.decode.video.nvdec.engines import EngineError
from jaxaug.decode.video.table import Codec

_START = b"\0\0\0\1"
_LENGTH_BYTES = 4  # of a NAL unit's length, whose place a start code takes
_MAX_UNITS = 1000  # of a packet: slices and messages
_VPS, _PPS = 32, 34  # the first and last type of a parameter set, ITU-T H.265 table 7-1


class Bitstream:
    """The packets of a stream, as a decoder reads them that knows no container.

    "avcC" and "hvcC" (ISO/IEC 14496-15 sections 5.3.3 and 8.3.3) hold the parameter sets and tell
    how many bytes the length in front of each NAL unit has; start codes take its place (ITU-T H.264
    and H.265, annex B). Other codecs are as they are, with their header in front.

    Args:
      codec: of the stream.

    Attributes:
      header: what is put in front of packets where decoding may begin.

    Raises:
      EngineError: the header is cut.
    """

    def __init__(self, codec: Codec):
        data = codec.extradata
        self.header = data
        self._length_bytes = 0  # of those in front of each NAL unit; 0 behind start codes
        if codec.name in ("h264", "hevc") and data and data[0] == 1:
            try:
                self._read(data, codec.name == "hevc")
            except IndexError:
                raise EngineError("the header of its codec is cut") from None

    def packets(
        self, contents: Sequence[bytes | memoryview], keyframes: Sequence[bool] | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return packets behind each other, uint8[bytes], and the size int64[k] of each.

        Args:
          contents: of the packets.
          keyframes: of each, True if decoding may begin with it.

        Raises:
          EngineError: one is cut, of which FFmpeg tells in its own way.
        """
        if self._length_bytes not in (0, _LENGTH_BYTES):
            contents = [_widened(each, self._length_bytes) for each in contents]
        parts: list[bytes | memoryview] = []
        for content, is_keyframe in zip(contents, keyframes):
            parts += (self.header if is_keyframe else b"", content)
        joined = np.frombuffer(bytearray().join(parts), np.uint8)
        heads = np.where(keyframes, len(self.header), 0)
        sizes = heads + [len(content) for content in contents]
        if self._length_bytes:
            ends = np.cumsum(sizes)
            _begin_units(joined, ends - sizes + heads, ends)
        return joined, sizes

    def _read(self, data: bytes, hevc: bool) -> None:
        place = 21 if hevc else 4
        self._length_bytes = 1 + (data[place] & 3)
        sets = _hevc_sets(data) if hevc else _h264_sets(data)
        self.header = b"".join(_START + each for each in sets)


def _begin_units(joined: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
    """Write start codes over the lengths of NAL units, one unit of each packet at a time.

    Args:
      joined: uint8[bytes], with all packets.
      starts, ends: int64[k], the place of each packet.

    Raises:
      EngineError: one is cut, or has a great many units.
    """
    for _ in range(_MAX_UNITS):
        left = starts < ends
        starts, ends = starts[left], ends[left]
        if not len(starts):
            return
        if (starts + _LENGTH_BYTES > ends).any():
            raise EngineError("a packet is cut")
        places = starts[:, None] + np.arange(_LENGTH_BYTES)
        starts = starts + _LENGTH_BYTES + joined[places].view(">u4")[:, 0]
        if (starts > ends).any():
            raise EngineError("a packet is cut")
        joined[places] = np.frombuffer(_START, np.uint8)
    raise EngineError("a packet has too many units")


def _widened(packet: bytes | memoryview, length_bytes: int) -> bytes:
    """Return a packet with lengths of `_LENGTH_BYTES` in front of its NAL units."""
    parts, start = [], 0
    while start < len(packet):
        first = start + length_bytes
        start = first + int.from_bytes(packet[start:first], "big")
        parts += ((start - first).to_bytes(_LENGTH_BYTES, "big"), packet[first:start])
    return b"".join(parts)


def _h264_sets(data: bytes) -> Iterator[bytes]:
    """Yield the parameter sets of an "avcC"."""
    place = 5
    for mask in (31, 255):  # bits of the numbers of sequence and of picture parameter sets
        count = data[place] & mask
        place += 1
        for _ in range(count):
            unit, place = _sized(data, place)
            yield unit


def _hevc_sets(data: bytes) -> Iterator[bytes]:
    """Yield the parameter sets of an "hvcC"."""
    place = 23
    for _ in range(data[22]):
        kind = data[place] & 63
        count = data[place + 1] << 8 | data[place + 2]
        place += 3
        for _ in range(count):
            unit, place = _sized(data, place)
            if _VPS <= kind <= _PPS:
                yield unit


def _sized(data: bytes, place: int) -> tuple[bytes, int]:
    """Return what lies behind a length of two bytes, and the place behind it."""
    size = data[place] << 8 | data[place + 1]
    end = place + 2 + size
    if end > len(data):
        raise IndexError
    return data[place + 2 : end], end
