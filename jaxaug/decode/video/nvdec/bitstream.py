"""Packets as the parser of the engines reads them: NAL units behind start codes, with headers."""

from collections.abc import Iterator

from jaxaug.decode.video.nvdec.engines import EngineError
from jaxaug.decode.video.table import Codec

_START = b"\0\0\0\1"
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

    def packet(self, content: "bytes | memoryview", key: bool) -> bytes:
        """Return a packet; `key` if decoding may begin with it."""
        parts: list[bytes | memoryview] = [self.header] if key else []
        if not self._length_bytes:
            return b"".join([*parts, content])
        for unit in _units(memoryview(content), self._length_bytes):
            parts += (_START, unit)
        return b"".join(parts)

    def _read(self, data: bytes, hevc: bool) -> None:
        place = 21 if hevc else 4
        self._length_bytes = 1 + (data[place] & 3)
        sets = _hevc_sets(data) if hevc else _h264_sets(data)
        self.header = b"".join(_START + each for each in sets)


def _units(data: memoryview, length_bytes: int) -> Iterator[memoryview]:
    """Yield the NAL units of a packet.

    Raises:
      EngineError: one is cut, of which FFmpeg tells in its own way.
    """
    start = 0
    while start < len(data):
        first = start + length_bytes
        start = first + int.from_bytes(data[start:first], "big")
        if start > len(data):
            raise EngineError("a packet is cut")
        yield data[first:start]


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
