"""Packets that no other frame refers to, without which the others decode to the same pixels, and
those from which decoding cannot begin although a container says so.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

_MAX_UNITS = 64  # of a packet, looked at: parameter sets and messages stand before the slices
_START_CODE = b"\0\0\1"  # ITU-T H.264 and H.265, annex B
# Where "avcC" and "hvcC" tell the bytes of a length: ISO/IEC 14496-15 sections 5.3.3 and 8.3.3.
_LENGTH_PLACES = {"h264": 4, "hevc": 21}


class References:
    """Tells which packets of a stream of H.264 or HEVC may be left out.

    Every slice of a non-reference picture of H.264 has nal_ref_idc 0, ITU-T H.264 section 7.4.1. A
    sub-layer non-reference picture of HEVC has an even type below 16, and pictures of higher
    sub-layers alone may refer to it, ITU-T H.265 section 7.4.2.2: of the highest one, none does.

    Args:
      codec: FFmpeg's name of it.
      extradata: the codec's own header, in MP4 and Matroska an "avcC" or "hvcC".
    """

    def __init__(self, codec: str, extradata: bytes | None):
        self._hevc = codec == "hevc"
        self._known = codec in _LENGTH_PLACES
        self._length_bytes = length_bytes_of(codec, extradata)
        self._layers = 0  # temporal sub-layers of HEVC; 0 where they are not known
        if self._length_bytes and extradata:
            self._layers = extradata[_LENGTH_PLACES[codec]] >> 3 & 7

    def droppable(self, packet: Any) -> bool:
        """Return True if no other frame needs a packet of PyAV."""
        if packet.is_disposable:
            return True
        if not self._known or packet.is_keyframe:
            return False
        return self._no_reference(memoryview(packet))

    def begins(self, packet: Any) -> bool:
        """Return True if decoding may begin with a packet of PyAV.

        Encoders that refresh a picture part by part mark where that starts, ITU-T H.264 section
        D.2.8; its slices are predicted, and FFmpeg shows nothing until all parts have come.
        """
        if not packet.is_keyframe or self._hevc or not self._known:
            return packet.is_keyframe
        return not self._first(memoryview(packet), _h264_predicted)

    def _no_reference(self, data: memoryview) -> bool:
        """Return True if no frame refers to a picture, its first slice standing for all."""
        return self._first(data, self._hevc_idle if self._hevc else _h264_idle)

    def _first(self, data: memoryview, asked: Callable[[int, int], bool | None]) -> bool:
        """Return what is said of the first slice, from its first two bytes; False without one."""
        for first in itertools.islice(nal_units(data, self._length_bytes), _MAX_UNITS):
            if first + 1 >= len(data):
                break
            found = asked(data[first], data[first + 1])
            if found is not None:
                return found
        return False

    def _hevc_idle(self, header: int, second: int) -> bool | None:
        """Return True for a slice to which no frame refers; None for no slice."""
        kind = header >> 1 & 63
        if kind > 31:
            return None
        return kind < 16 and kind % 2 == 0 and 0 < self._layers <= second & 7


def length_bytes_of(codec: str, extradata: bytes | None) -> int:
    """Return the bytes of the length in front of each NAL unit; 0 where start codes are."""
    place = _LENGTH_PLACES.get(codec)
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


def _h264_idle(header: int, second: int) -> bool | None:
    """Return True for a slice to which no frame refers; None for no slice."""
    return header >> 5 & 3 == 0 if 1 <= header & 31 <= 5 else None


def _h264_predicted(header: int, second: int) -> bool | None:
    """Return True for a slice of type P or B that begins a picture; None for no slice.

    Behind the header are first_mb_in_slice, 0 in one bit, and slice_type, both of variable length:
    ITU-T H.264 section 7.3.3, tables 7-6 and 9-2.
    """
    if not 1 <= header & 31 <= 5:
        return None
    p, b = second >> 6 == 0b11, second >> 4 == 0b1010
    return p or b or second >> 2 in (0b100110, 0b100111)  # all slices of the picture are so
