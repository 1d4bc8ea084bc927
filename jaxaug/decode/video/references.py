"""Packets that no other frame refers to: without them the others decode to the same pixels."""

from typing import Any

_MAX_UNITS = 64  # of a packet, looked at: parameter sets and messages stand before the slices


class References:
    """Tells which packets of a stream of H.264 may be left out.

    Every slice of a non-reference picture has nal_ref_idc 0, ITU-T H.264 section 7.4.1.

    Args:
      codec: FFmpeg's name of it.
      extradata: the codec's own header, in MP4 and Matroska an "avcC" (ISO 14496-15).
    """

    def __init__(self, codec: str, extradata: bytes | None):
        self._length_bytes = 0  # of those in front of each NAL unit; 0 where nothing is known
        if codec == "h264" and extradata and extradata[0] == 1 and len(extradata) > 4:
            self._length_bytes = 1 + (extradata[4] & 3)

    def droppable(self, packet: Any) -> bool:
        """Return True if no other frame needs a packet of PyAV."""
        if packet.is_disposable:
            return True
        if not self._length_bytes or packet.is_keyframe:
            return False
        return _no_reference(memoryview(packet), self._length_bytes)


def _no_reference(data: memoryview, length_bytes: int) -> bool:
    """Return True if all slices of a picture have nal_ref_idc 0, the first one standing for all."""
    start = 0
    for _ in range(_MAX_UNITS):
        if start + length_bytes >= len(data):
            break
        header = data[start + length_bytes]
        if 1 <= header & 31 <= 5:  # a slice
            return header >> 5 & 3 == 0
        start += length_bytes + int.from_bytes(data[start : start + length_bytes], "big")
    return False
