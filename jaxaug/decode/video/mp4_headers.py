"""What the headers of an MP4 of H.264 tell, so that FFmpeg need not decode a picture to open it."""

import dataclasses
import struct
from typing import Any, NamedTuple

from jaxaug.decode.video.mp4_boxes import (
    MOVIE_MATRIX,
    TRACK_MATRIX,
    Box,
    boxes_in,
    inner_boxes,
    read_matrix,
    tables_of,
)
from jaxaug.decode.video.nal import (
    MESSAGES,
    SEQUENCE,
    first_units,
    has_message,
    length_bytes_of,
    parameter_sets,
)
from jaxaug.decode.video.sequence import Parameters, read_sequence
from jaxaug.decode.video.table import CHROMA_SITES, Codec

_ONE_ENTRY = struct.pack(">I", 1)
_ENTRY = 8  # bytes of a "stsd" before its first entry
_FIELDS = 86  # bytes of an entry of a video before its boxes: ISO/IEC 14496-12 section 12.1.3.2
_ONE = 1 << 16  # of a matrix
_UPRIGHT = (_ONE, 0, 0, _ONE)
# Counter-clockwise degrees by (a, b, c, d) of a matrix, section 8.3.2.3.
_ROTATIONS = {_UPRIGHT: 0, (0, -_ONE, _ONE, 0): 90, (-_ONE, 0, 0, -_ONE): -180}
_ROTATIONS |= {(0, _ONE, -_ONE, 0): -90}
_ORIENTATION = 47  # a message, section D.1
_FORMS = {1: "420", 2: "422", 3: "444"}
_DEPTHS = {(8, 8): "", (10, 10): "10le"}
_SPACES = range(1, 10)  # of FFmpeg's AVColorSpace; 0 is RGB, for which FFmpeg has other formats
_WIDE, _NARROW = 2, 1  # of FFmpeg's AVColorRange


class Headers(NamedTuple):
    """Of the video track.

    Attributes:
      extradata: its "avcC".
      unit: the parameters of its sequence, as a NAL unit.
      sequence: the same, read.
      rotation: counter-clockwise degrees by its matrix, None for others than quarter turns.
    """

    extradata: bytes
    unit: bytes
    sequence: Parameters
    rotation: int | None

    def suit(self, container: Any, stream: Any, first: bytes) -> bool:
        """Return True if a decoder would find nothing else in a stream of PyAV.

        Args:
          container: that of the stream, in which FFmpeg would choose by more than headers.
          stream: opened without a decoder.
          first: its first packet.
        """
        context = stream.codec_context
        alone = len(container.streams.video) == 1 and context.name == "h264"
        units = _units(first, self.extradata)
        return (
            alone
            and bytes(context.extradata or b"") == self.extradata
            and (context.height, context.width) == (self.sequence.height, self.sequence.width)
            and all(unit == self.unit for unit in units if unit[0] & 31 == SEQUENCE)
        )

    def fill(self, context: Any) -> None:
        """Note in a context of PyAV what a decoder would."""
        sequence = self.sequence
        if sequence.full_range is not None:
            context.color_range = _WIDE if sequence.full_range else _NARROW
        if sequence.space is not None:
            context.colorspace = sequence.space
        depth = _DEPTHS[sequence.depths]
        full = not depth and int(context.color_range) == _WIDE
        context.pix_fmt = f"yuv{'j' if full else ''}{_FORMS[sequence.chroma]}p{depth}"

    def sited(self, codec: Codec) -> Codec:
        """Return a codec with the place of chroma, where the headers tell it."""
        site = CHROMA_SITES.get(self.sequence.chroma_location)
        if site is None:
            return codec
        return dataclasses.replace(codec, chroma_left=site[0], chroma_row=site[1])

    def turned(self, codec: Codec, first: bytes | memoryview) -> Codec | None:
        """Return a codec with its rotation; None where the first packet may tell another."""
        units = _units(first, self.extradata)
        messages = (unit for unit in units if unit[0] & 31 == MESSAGES)
        if self.rotation is None or any(has_message(unit[1:], _ORIENTATION) for unit in messages):
            return None
        return dataclasses.replace(codec, rotation=self.rotation)


def read_headers(data: memoryview) -> Headers | None:
    """Return what the headers of a file tell; None where they are not all that counts."""
    moov = boxes_in(data, (0, len(data))).get(b"moov", (0, 0))
    movie = boxes_in(data, moov)
    if b"mvhd" not in movie or b"mvex" in movie:  # fragments have tables of their own
        return None
    found = []
    for kind, *place in inner_boxes(data, *moov):
        boxes = boxes_in(data, place) if kind == b"trak" else {}
        tables = tables_of(data, boxes)
        if b"stsd" in tables and b"stss" in tables and b"tkhd" in boxes:
            turn = _rotation(data, movie[b"mvhd"], boxes[b"tkhd"])
            found.append(_read_entry(data, tables[b"stsd"], turn))
    tracks = [each for each in found if each is not None]
    return tracks[0] if len(tracks) == 1 else None


def _read_entry(data: memoryview, place: Box, rotation: int | None) -> Headers | None:
    """Return what the one description of samples tells that a "stsd" has."""
    begin, end = place
    if bytes(data[begin + 4 : begin + 8]) != _ONE_ENTRY or data[begin + 12 : begin + 16] != b"avc1":
        return None
    header = boxes_in(data, (begin + _ENTRY + _FIELDS, end)).get(b"avcC", (0, 0))
    extradata = bytes(data[slice(*header)])
    length_bytes = length_bytes_of("h264", extradata)
    units = parameter_sets(extradata, length_bytes) if length_bytes else []
    sequences = [unit for unit in units if unit and unit[0] & 31 == SEQUENCE]
    if len(sequences) != 1:
        return None
    _, sequence = read_sequence(sequences[0][1:])
    plain = sequence.whole and not (sequence.fields or sequence.separate)
    supported = sequence.chroma in _FORMS and sequence.depths in _DEPTHS
    if not (plain and supported) or (sequence.space is not None and sequence.space not in _SPACES):
        return None
    return Headers(extradata, sequences[0], sequence, rotation)


def _rotation(data: memoryview, movie: Box, track: Box) -> int | None:
    """Return the degrees by the matrices of a movie and a track; None for no quarter turns."""
    if read_matrix(data, movie, MOVIE_MATRIX) != _UPRIGHT:
        return None
    own = read_matrix(data, track, TRACK_MATRIX)
    return None if own is None else _ROTATIONS.get(own)


def _units(content: bytes | memoryview, extradata: bytes) -> list[bytes]:
    """Return the first NAL units of a packet."""
    return [unit for _, unit in first_units(content, length_bytes_of("h264", extradata))]
