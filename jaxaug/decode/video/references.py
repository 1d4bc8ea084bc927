"""Packets that no other frame refers to: without them the others decode to the same pixels."""

from typing import Any

_MAX_UNITS = 64  # of a packet, looked at: parameter sets and messages stand before the slices
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
        self._length_bytes = 0  # of those in front of each NAL unit; 0 where nothing is known
        self._layers = 0  # temporal sub-layers of HEVC; 0 where they are not known
        place = _LENGTH_PLACES.get(codec)
        if place is not None and extradata and extradata[0] == 1 and len(extradata) > place:
            self._length_bytes = 1 + (extradata[place] & 3)
            self._layers = extradata[place] >> 3 & 7

    def droppable(self, packet: Any) -> bool:
        """Return True if no other frame needs a packet of PyAV."""
        if packet.is_disposable:
            return True
        if not self._length_bytes or packet.is_keyframe:
            return False
        return self._no_reference(memoryview(packet))

    def _no_reference(self, data: memoryview) -> bool:
        """Return True if no frame refers to a picture, its first slice standing for all."""
        start = 0
        for _ in range(_MAX_UNITS):
            first = start + self._length_bytes
            if first + 1 >= len(data):
                break
            idle = self._hevc_idle if self._hevc else _h264_idle
            found = idle(data[first], data[first + 1])
            if found is not None:
                return found
            start = first + int.from_bytes(data[start:first], "big")
        return False

    def _hevc_idle(self, header: int, second: int) -> bool | None:
        """Return True for a slice to which no frame refers; None for no slice."""
        kind = header >> 1 & 63
        if kind > 31:
            return None
        return kind < 16 and kind % 2 == 0 and 0 < self._layers <= second & 7


def _h264_idle(header: int, second: int) -> bool | None:
    """Return True for a slice to which no frame refers; None for no slice."""
    del second
    return header >> 5 & 3 == 0 if 1 <= header & 31 <= 5 else None
