"""NAL units, of which streams of H.264 and HEVC are made: where they are, and their bits."""

import itertools
from collections.abc import Iterator

_START_CODE = b"\0\0\1"  # ITU-T H.264 and H.265, annex B
IDR, MESSAGES, SEQUENCE, PICTURE = 5, 6, 7, 8  # types of units, ITU-T H.264 table 7-1
# Where "avcC" and "hvcC" tell the bytes of a length: ISO/IEC 14496-15 sections 5.3.3 and 8.3.3.
LENGTH_PLACES = {"h264": 4, "hevc": 21}
MAX_UNITS = 64  # of a packet, looked at: parameter sets and messages stand before the slices
_PADDING = 64  # zero bits behind what is read


def length_bytes_of(codec: str, extradata: bytes | None) -> int:
    """Return the bytes of the length in front of each NAL unit; 0 where start codes are."""
    place = LENGTH_PLACES.get(codec)
    if place is None or not extradata or extradata[0] != 1 or len(extradata) <= place:
        return 0
    return 1 + (extradata[place] & 3)


def nal_units(data: bytes | memoryview, length_bytes: int) -> Iterator[int]:
    """Yield where NAL units begin, behind lengths or start codes."""
    if not length_bytes:
        content = bytes(data)
        first = content.find(_START_CODE) + len(_START_CODE)
        while first >= len(_START_CODE):
            yield first
            first = content.find(_START_CODE, first) + len(_START_CODE)
        return
    start = 0
    while start < len(data):
        first = start + length_bytes
        yield first
        start = first + int.from_bytes(data[start:first], "big")


def first_units(content: bytes | memoryview, length_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the first NAL units of a packet: the length or start code of each, and the unit."""
    lead = length_bytes or len(_START_CODE)
    begins = list(itertools.islice(nal_units(content, length_bytes), MAX_UNITS))
    for begin, after in itertools.pairwise([*begins, len(content) + lead]):
        unit = bytes(content[begin : after - lead])
        if unit:
            yield bytes(content[begin - lead : begin]), unit


def parameter_sets(extradata: bytes, length_bytes: int) -> list[bytes]:
    """Return the NAL units of a codec's own header: ISO/IEC 14496-15 section 5.3.3, or annex B."""
    if not length_bytes:
        return [extradata[first:] for first in nal_units(extradata, 0)]
    units = []
    place = 5
    for mask in (31, 255):  # of sequences, of pictures
        if place >= len(extradata):
            break
        count = extradata[place] & mask
        place += 1
        for _ in range(count):
            size = int.from_bytes(extradata[place : place + 2], "big")
            units.append(extradata[place + 2 : place + 2 + size])
            place += 2 + size
    return units


def has_message(unit: bytes | memoryview, kind: int) -> bool:
    """Return True if one of the messages behind a NAL unit's header is of a kind, section D.1.

    Also where they are cut, so that nothing is said of them.
    """
    content = bytes(unit).replace(b"\0\0\3", b"\0\0")
    place = 0
    while place + 2 < len(content):  # behind the last one are the bits that end the unit
        numbers = [0, 0]  # the kind of a message, its bytes
        for each in range(2):
            while place < len(content) and content[place] == 255:
                numbers[each] += 255
                place += 1
            if place == len(content):
                return True
            numbers[each] += content[place]
            place += 1
        if numbers[0] == kind:
            return True
        place += numbers[1]
    return place > len(content)


class Bits:
    """Reads bits of a NAL unit; zeros behind its end.

    Args:
      data: what follows the unit's header, with the bytes that prevent start codes.
    """

    def __init__(self, data: bytes):
        content = data.replace(b"\0\0\3", b"\0\0")
        value = int.from_bytes(content, "big")
        self._end = _PADDING + (value & -value).bit_length()  # a one, and zeros, end the unit
        self._value = value << _PADDING
        self._left = 8 * len(content) + _PADDING

    @property
    def whole(self) -> bool:
        """True if nothing was read that is not there."""
        return self._left >= self._end

    def take(self, count: int) -> int:
        """Return the next so many bits as a number."""
        count = min(count, self._left)  # damaged sequences ask for any number
        self._left -= count
        return self._value >> self._left & (1 << count) - 1

    def skip(self, count: int) -> None:
        """Pass over so many numbers of variable length."""
        for _ in range(count):
            self.code()

    def code(self) -> int:
        """Return the next number of variable length, section 9.1; a signed one as its code."""
        zeros = self._left - (self._value & (1 << self._left) - 1).bit_length()
        self.take(zeros + 1)
        return (1 << zeros) - 1 + self.take(zeros)
