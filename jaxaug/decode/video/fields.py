"""Second fields of interlaced H.264, where a container has each field in a packet of its own."""

from jaxaug.decode.video.nal import (
    IDR,
    PICTURE,
    SEQUENCE,
    Bits,
    length_bytes_of,
    nal_units,
    parameter_sets,
)
from jaxaug.decode.video.sequence import Parameters, read_sequence

_SLICES = (1, 2, 5)  # types of NAL units, ITU-T H.264 table 7-1
_MAX_SLICE_HEADER = 32  # bytes, of which the first few numbers are read
_MAX_SET = 1024  # bytes of parameters


class SecondFields:
    """Tells which packets of a stream complete the picture of the packet before.

    Args:
      codec: FFmpeg's name of it.
      extradata: the codec's own header, in MP4 and Matroska an "avcC".
    """

    def __init__(self, codec: str, extradata: bytes | None):
        self._is_h264 = codec == "h264"
        self._length_bytes = length_bytes_of(codec, extradata)
        self._sequences: dict[int, Parameters] = {}
        self._pictures: dict[int, int] = {}  # the sequence of each picture parameter set
        self._field: tuple[int, int] | None = None  # the number and parity of the last field
        self._interlaced = False  # a sequence has pictures that may be fields
        self._paired = False  # the last field is a second one
        if self._is_h264 and extradata:
            for unit in parameter_sets(extradata, self._length_bytes):
                self._read(unit)

    @property
    def possible(self) -> bool:
        """True if packets may be fields, by the codec's own header."""
        return self._interlaced

    def complete(self, content: bytes) -> bool:
        """Return True if a packet begins with a second field; packets come in their order."""
        # Behind lengths no parameters come but those of the header: ISO/IEC 14496-15 section 5.4.2.
        if not self._is_h264 or (self._length_bytes and not self._interlaced):
            return False
        found = None
        for first in nal_units(content, self._length_bytes):
            if first < len(content) and content[first] & 31 in _SLICES:
                if not self._interlaced:
                    return False
                began = self._second(content[first : first + _MAX_SLICE_HEADER])
                found = began if found is None else found
            else:
                self._read(content[first : first + _MAX_SET])
        return bool(found)

    def _read(self, unit: bytes) -> None:
        """Note the parameters of a NAL unit that has some."""
        kind = unit[0] & 31 if unit else 0
        if kind == SEQUENCE:
            number, sequence = read_sequence(bytes(unit[1:]))
            self._sequences[number] = sequence
            self._interlaced |= sequence.fields
        elif kind == PICTURE:
            bits = Bits(unit[1:_MAX_SLICE_HEADER])
            number = bits.code()
            self._pictures[number] = bits.code()

    def _second(self, unit: bytes) -> bool:
        """Return True if a slice begins a second field: section 7.3.3, section 7.4.1.2.4."""
        bits = Bits(unit[1:])
        bits.skip(2)  # the first macroblock, the type
        sequence = self._sequences.get(self._pictures.get(bits.code(), -1))
        if sequence is None or not sequence.fields:
            self._field = None
            return False
        bits.take(2 * sequence.separate)
        frame = bits.take(sequence.frame_bits)
        field = (frame, bits.take(1)) if bits.take(1) else None
        if field is None or field == self._field:  # a frame, or another slice
            self._field = field
            return False
        before, self._field = self._field, field
        second = before is not None and not self._paired and before[0] == frame
        self._paired = second and unit[0] & 31 != IDR
        return self._paired
