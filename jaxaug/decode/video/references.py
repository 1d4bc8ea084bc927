"""Packets that no other frame refers to, without which the others decode to the same pixels, and
those from which decoding cannot begin although a container says so.
"""

import itertools
import re
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.video.nal import (
    IDR,
    LENGTH_PLACES,
    MAX_UNITS,
    MESSAGES,
    first_units,
    has_message,
    length_bytes_of,
    nal_units,
)

_RECOVERY_POINT = 6  # of a message, section D.1
_X264 = re.compile(rb"x264 - core (\d+)")  # in a message of its own
# Builds that wrote 4:4:4, or direct predictions, in another way than the standard: FFmpeg decodes
# theirs as they were meant (libavcodec/h264_mb.c and h264_direct.c).
_X264_WHOLE_CHROMA, _X264_DIRECT = 151, 34


class Slices(NamedTuple):
    """What the first slices of packets tell.

    Attributes:
      present: bool[k], True where there is a slice.
      whole: bool[k], it and those before it lie within the packet and have bytes, by their lengths.
      header, second: int64[k], its first two bytes.
      recovers: bool[k], a message before it says that decoding may begin here, of H.264.
    """

    present: np.ndarray
    whole: np.ndarray
    header: np.ndarray
    second: np.ndarray
    recovers: np.ndarray


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
        self._supported = codec in LENGTH_PLACES
        self._length_bytes = length_bytes_of(codec, extradata)
        self._layers = 0  # temporal sub-layers of HEVC; 0 where they are not known
        if self._length_bytes and extradata:
            self._layers = extradata[LENGTH_PLACES[codec]] >> 3 & 7

    @property
    def by_lengths(self) -> bool:
        """True where a length stands in front of each NAL unit."""
        return self._length_bytes > 0

    def is_disposable(self, packet: Any) -> bool:
        """Return True if no other frame needs a packet of PyAV."""
        if packet.is_disposable:
            return True
        if not self._supported or packet.is_keyframe:
            return False
        found = self._first_slice(memoryview(packet))
        return found is not None and bool(self._disposable(*found))

    def begins(self, packet: Any) -> bool:
        """Return True if decoding may begin with a packet of PyAV.

        Encoders that refresh a picture part by part mark where that starts, ITU-T H.264 section
        D.2.8; its slices are predicted, and FFmpeg shows nothing until all parts have come.
        """
        return packet.is_keyframe and not self.refreshes(memoryview(packet))

    def refreshes(self, content: memoryview) -> bool:
        """Return True if the first slice of a packet of H.264 is predicted."""
        found = self._first_slice(content) if self._supported and not self._hevc else None
        return found is not None and bool(_predicted(found[1]))

    def encoder_message(self, content: bytes | memoryview, whole_chroma: bool) -> bytes:
        """Return the NAL unit of a first packet that tells of an encoder with its own standard.

        It stands there alone, and must be in front of each packet with which decoding begins: by it
        FFmpeg decodes what old builds of x264 wrote. b"" without one.
        """
        if self._hevc or not self._supported:
            return b""
        before = _X264_WHOLE_CHROMA if whole_chroma else _X264_DIRECT
        for lead, unit in first_units(content, self._length_bytes):
            if unit[0] & 31 == MESSAGES and (found := _X264.search(unit)):
                return lead + unit if int(found[1]) < before else b""
        return b""

    def first_slices(self, data: memoryview, offsets: np.ndarray, sizes: np.ndarray) -> Slices:
        """Return what is known of packets in a file, in which lengths stand before NAL units.

        Args:
          data: the file.
          offsets, sizes: int64[k], the place of each packet.
        """
        content = np.frombuffer(data, np.uint8)
        present, broken, header, second, recovers = np.zeros((5, len(offsets)), np.int64)
        starts, ends, left = offsets.copy(), offsets + sizes, np.arange(len(offsets))
        for _ in range(MAX_UNITS):
            firsts = starts[left] + self._length_bytes
            inside = firsts + 1 < ends[left]
            left, firsts = left[inside], firsts[inside]
            if not len(left):
                break
            lengths = np.zeros(len(left), np.int64)
            for place in range(-self._length_bytes, 0):
                lengths = lengths << 8 | content[firsts + place]
            broken[left] |= (lengths < 1) | (firsts + lengths > ends[left])
            found = content[firsts].astype(np.int64)
            slices = self._is_slice(found)
            present[left[slices]] = 1
            header[left[slices]] = found[slices]
            second[left[slices]] = content[firsts + 1][slices]
            for place in np.flatnonzero(not self._hevc and found & 31 == MESSAGES):
                first, row = int(firsts[place]), left[place]
                last = min(first + int(lengths[place]), int(ends[row]))
                recovers[row] |= has_message(data[first + 1 : last], _RECOVERY_POINT)
            starts[left] = firsts + lengths
            left = left[~slices]
        return Slices(present == 1, broken == 0, header, second, recovers == 1)

    def keyframes(self, found: Slices, marked: np.ndarray) -> np.ndarray | None:
        """Return bool[k], True for packets that FFmpeg says decoding may begin with.

        Those of HEVC are those that the container marks. Of H.264 it looks itself, up to a length
        that cannot be, and where a message says so, at parameters, too: then nothing is said here,
        nor where slices are predicted, see `begins`.

        Args:
          found: of `first_slices`.
          marked: bool[k], by the container.
        """
        if self._hevc:
            return marked
        begin = found.present & found.whole & (found.header & 31 == IDR)
        doubtful = np.where(begin, _predicted(found.second), found.recovers)
        return None if doubtful.any() else begin

    def disposable(self, found: Slices, keyframes: np.ndarray) -> np.ndarray:
        """Return bool[k], True for packets that no other frame needs, by their slices."""
        return ~keyframes & found.present & self._disposable(found.header, found.second)

    def _first_slice(self, data: memoryview) -> tuple[int, int] | None:
        """Return the first two bytes of the first slice; None without one."""
        for first in itertools.islice(nal_units(data, self._length_bytes), MAX_UNITS):
            if first + 1 >= len(data):
                break
            if self._is_slice(data[first]):
                return data[first], data[first + 1]
        return None

    def _is_slice(self, header: Any) -> Any:
        """Return True for the first bytes of slices."""
        if self._hevc:
            return header >> 1 & 63 <= 31
        return (1 <= header & 31) & (header & 31 <= 5)

    def _disposable(self, header: Any, second: Any) -> Any:
        """Return True for slices to which no frame refers, the first standing for its picture."""
        if not self._hevc:
            return header >> 5 & 3 == 0
        kind, layers = header >> 1 & 63, self._layers
        return (kind < 16) & (kind % 2 == 0) & (layers > 0) & (layers <= second & 7)


def _predicted(second: Any) -> Any:
    """Return True for slices of H.264 of type P or B that begin a picture, by their second byte.

    Behind the header are first_mb_in_slice, 0 in one bit, and slice_type, both of variable length:
    ITU-T H.264 section 7.3.3, tables 7-6 and 9-2.
    """
    p, b = second >> 6 == 0b11, second >> 4 == 0b1010
    # All slices of the picture are so.
    return p | b | (second >> 2 == 0b100110) | (second >> 2 == 0b100111)
