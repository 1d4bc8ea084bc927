"""Second fields of interlaced H.264, where a container has each field in a packet of its own."""

from typing import NamedTuple

from jaxaug.decode.video.references import length_bytes_of, nal_units

_SLICES, _SEQUENCE, _PICTURE = (1, 2, 5), 7, 8  # types of NAL units, ITU-T H.264 table 7-1
_IDR = 5
_MAX_SLICE_HEADER = 32  # bytes, of which the first few numbers are read
_MAX_SET = 1024  # bytes of parameters
_MAX_CYCLE = 255  # of the orders of pictures, section 7.4.2.1.1
# Profiles whose sequences tell the form of chroma, section 7.3.2.1.1.
_HIGH = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)


class SecondFields:
    """Tells which packets of a stream complete the picture of the packet before.

    Args:
      codec: FFmpeg's name of it.
      extradata: the codec's own header, in MP4 and Matroska an "avcC".
    """

    def __init__(self, codec: str, extradata: bytes | None):
        self._known = codec == "h264"
        self._length_bytes = length_bytes_of(codec, extradata)
        self._sequences: dict[int, _Sequence] = {}
        self._pictures: dict[int, int] = {}  # the sequence of each picture parameter set
        self._field: tuple[int, int] | None = None  # the number and parity of the last field
        self._interlaced = False  # a sequence has pictures that may be fields
        self._paired = False  # the last field is a second one
        if self._known and extradata:
            for unit in _parameter_sets(extradata, self._length_bytes):
                self._read(unit)

    @property
    def possible(self) -> bool:
        """True if packets may be fields, by the codec's own header."""
        return self._interlaced

    def complete(self, content: bytes) -> bool:
        """Return True if a packet begins with a second field; packets come in their order."""
        # Behind lengths no parameters come but those of the header: ISO/IEC 14496-15 section 5.4.2.
        if not self._known or (self._length_bytes and not self._interlaced):
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
        if kind == _SEQUENCE:
            bits = _Bits(unit[1:])
            number, sequence = _read_sequence(bits)
            self._sequences[number] = sequence
            self._interlaced |= sequence.fields
        elif kind == _PICTURE:
            bits = _Bits(unit[1:_MAX_SLICE_HEADER])
            number = bits.code()
            self._pictures[number] = bits.code()

    def _second(self, unit: bytes) -> bool:
        """Return True if a slice begins a second field: section 7.3.3, section 7.4.1.2.4."""
        bits = _Bits(unit[1:])
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
        self._paired = second and unit[0] & 31 != _IDR
        return self._paired


class _Sequence(NamedTuple):
    """What a sequence parameter set tells.

    Attributes:
      frame_bits: of the number of a frame.
      fields: pictures may be fields.
      separate: color planes are coded apart.
    """

    frame_bits: int
    fields: bool
    separate: bool


def _parameter_sets(extradata: bytes, length_bytes: int) -> list[bytes]:
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


def _read_sequence(bits: "_Bits") -> tuple[int, _Sequence]:
    """Return the number of a sequence parameter set and what it tells, section 7.3.2.1.1."""
    profile = bits.take(8)
    bits.take(16)  # constraints, level
    number = bits.code()
    separate = False
    if profile in _HIGH:
        chroma = bits.code()
        separate = chroma == 3 and bool(bits.take(1))
        bits.skip(2)  # depths
        bits.take(1)  # without loss
        if bits.take(1):
            for place in range(12 if chroma == 3 else 8):
                if bits.take(1):
                    _skip_scaling(bits, 16 if place < 6 else 64)
    frame_bits = 4 + bits.code()
    order = bits.code()
    if order == 0:
        bits.code()
    elif order == 1:
        bits.take(1)
        bits.skip(2)
        bits.skip(min(bits.code(), _MAX_CYCLE))
    bits.skip(1)  # references
    bits.take(1)  # gaps
    bits.skip(2)  # width, height
    return number, _Sequence(frame_bits, not bits.take(1), separate)


def _skip_scaling(bits: "_Bits", size: int) -> None:
    """Pass over a list of scales, section 7.3.2.1.1.1."""
    last = following = 8
    for _ in range(size):
        if following:
            code = bits.code()
            delta = (code + 1) // 2 if code % 2 else -(code // 2)
            following = (last + delta) % 256
        last = following or last


class _Bits:
    """Reads bits of a NAL unit; zeros behind its end.

    Args:
      data: what follows the unit's header, with the bytes that prevent start codes.
    """

    def __init__(self, data: bytes):
        content = data.replace(b"\0\0\3", b"\0\0")
        self._value = int.from_bytes(content, "big") << 64
        self._left = 8 * len(content) + 64

    def take(self, count: int) -> int:
        """Return the next so many bits as a number."""
        self._left = max(0, self._left - count)
        return self._value >> self._left & (1 << count) - 1

    def skip(self, count: int) -> None:
        """Pass over so many numbers of variable length."""
        for _ in range(count):
            self.code()

    def code(self) -> int:
        """Return the next number of variable length, section 9.1; a signed one as its code."""
        zeros = 0
        while self._left and not self.take(1):
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)
