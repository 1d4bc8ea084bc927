"""The table of a video by demuxing it, or as an MP4's own tables tell what demuxing would."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.video.fields import SecondFields
from jaxaug.decode.video.mp4_headers import Headers
from jaxaug.decode.video.picture_headers import is_hidden, is_predicted
from jaxaug.decode.video.pyav import import_av, make_packet
from jaxaug.decode.video.references import References
from jaxaug.decode.video.sample_table import read_samples
from jaxaug.decode.video.table import CHROMA_SITES, NONE, TOP_LEFT, Codec, Table
from jaxaug.errors import DecodeError

_MAX_PACKETS = 1_000_000  # of a video: nine hours at 30 frames/s
_MAX_LEAD = 64  # bytes of a container between where it says that a packet is and the packet
# Codecs whose chroma lies on the left of two columns where the stream does not say more: ITU-T
# H.264 and H.265 figure E-1, ISO/IEC 13818-2 section 6.1.1.8, ISO/IEC 14496-2; so has "vpcC".
_CHROMA_LEFT = ("h264", "hevc", "mpeg2video", "mpeg4")
# Of which FFmpeg's parsers, asked in AVI, call every picture one where decoding may begin.
_NEVER_MARKED = ("h261", "h263", "h263i", "h263p")
# Whose pixels are places of a palette that the container has; others have one of their own.
_BY_PALETTE = ("rawvideo", "qtrle", "smc", "8bps", "cinepak", "msrle", "msvideo1", "qpeg", "tscc")


def read_table(
    container: Any, stream: Any, kind: str, data: memoryview, headers: Headers | None
) -> tuple[Table, list[bytes | memoryview]] | None:
    """Return the table of a stream, and the packets if the file does not hold them as they are.

    None where the headers, by which it was opened without decoding, do not tell all.

    Raises:
      DecodeError: there are no frames, or too many, or their palette is not read.
    """
    context = stream.codec_context
    references = References(context.name, context.extradata)
    fields = SecondFields(context.name, context.extradata)
    demuxed = _demux(container, stream, kind)
    first = next(demuxed, None)
    if headers is not None:
        if first is None or not headers.suit(container, stream, bytes(first)):
            return None
        headers.fill(context)

    if kind == "mov" and first is not None and not fields.possible:
        table = _table_of_samples(data, stream, first, references, decodes=headers is None)
        if table is not None:
            return table, []
    if headers is not None:
        return None

    packets = _Packets(data, context, references, fields)
    for packet in itertools.chain([] if first is None else [first], demuxed):
        packets.add(packet)
    table = packets.table(stream, kind)
    table = _that_decode(table, packets.contents, context, references)
    return table, [] if packets.inside else packets.contents


def _table_of_samples(
    data: memoryview, stream: Any, first: Any, references: References, decodes: bool
) -> Table | None:
    """Return the table of a stream by those of its MP4; None where these do not tell all.

    Args:
      data: the file.
      stream: opened with a decoder if `decodes`.
      first: its first packet.
      references: of its codec.
    """
    if len(stream.index_entries) > _MAX_PACKETS:
        return None
    samples = read_samples(data, stream, first, references)
    if samples is None:
        return None
    table = _make_table(stream, "mov", **samples._asdict())
    places = zip(table.offsets.tolist(), table.sizes.tolist())
    contents = [data[at : at + size] for at, size in places]
    if not decodes and (not table.timed or _leading(table, contents, references).any()):
        return None
    return _that_decode(table, contents, stream.codec_context, references)


class _Row(NamedTuple):
    """A packet: when it is shown and decoded, flags as in `Table`, and its place."""

    shown_at: int
    decoded_at: int
    begins: bool
    shown: bool
    disposable: bool
    offset: int
    size: int


class _Packets:
    """The packets of a stream, in the order in which they are demuxed.

    Args:
      data: the file.
      context: of the stream.
      references, fields: of its codec.

    Attributes:
      contents: of each; of two fields together.
      inside: the file holds them as they are.
    """

    def __init__(
        self, data: memoryview, context: Any, references: References, fields: SecondFields
    ):
        self.contents: list[bytes | memoryview] = []
        self.inside = True
        self._rows: list[_Row] = []
        self._palette = b""
        self._begun = False  # decoding may begin with a packet that has come
        self._data = data
        self._context = context
        self._references = references
        self._fields = fields

    def add(self, packet: Any) -> None:
        """Note the next packet.

        Raises:
          DecodeError: there are too many, or a palette that is not read.
        """
        if not packet.size:
            return
        if len(self._rows) == _MAX_PACKETS:
            raise DecodeError(f"it has more than {_MAX_PACKETS:,} frames")
        beside = {each.data_type: bytes(each) for each in packet.iter_sidedata()}
        self._note_palette(beside.get("palette", self._palette))
        content = bytes(packet)
        offset = _place(self._data, packet.pos, content)
        self.inside = self.inside and offset >= 0 and "new_extradata" not in beside
        if self._fields.complete(content) and self._rows:
            self._join(packet, content, offset)
            return
        self._rows.append(self._row(packet, content, offset))
        self.contents.append(content if offset < 0 else self._data[offset : offset + len(content)])

    def _note_palette(self, palette: bytes) -> None:
        """Note the palette of the next packet, which must be that of the packets before."""
        name, number = self._context.name, len(self._rows)
        if palette and (name not in _BY_PALETTE or (number and palette != self._palette)):
            which = f"changes at packet {number}" if number else f"is not that of {name}"
            raise DecodeError(f"its colors are a palette beside the packets, which {which}")
        self._palette = palette

    def _join(self, packet: Any, content: bytes, offset: int) -> None:
        """Note a second field with the first one, as one picture."""
        before = self._rows[-1]
        self.inside = self.inside and offset == before.offset + before.size
        self._rows[-1] = before._replace(
            disposable=before.disposable and self._references.is_disposable(packet),
            size=before.size + len(content),
        )
        self.contents[-1] = b"".join((self.contents[-1], content))

    def _row(self, packet: Any, content: bytes, offset: int) -> _Row:
        """Return what is known of a packet."""
        name = self._context.name
        begins = self._references.begins(packet) and not is_predicted(name, content)
        begins = begins or (packet.is_keyframe and not self._begun)
        self._begun = self._begun or begins
        return _Row(
            shown_at=NONE if packet.pts is None else packet.pts,
            decoded_at=NONE if packet.dts is None else packet.dts,
            begins=begins,
            shown=not (packet.is_discard or is_hidden(name, content)),
            disposable=self._references.is_disposable(packet),
            offset=offset,
            size=len(content),
        )

    def table(self, stream: Any, kind: str) -> Table:
        """Return the table of all packets.

        Raises:
          DecodeError: none of them is shown.
        """
        shown_at, decoded_at, begin, shown, disposable, offsets, sizes = (
            np.array(self._rows, np.int64).reshape(-1, len(_Row._fields)).T
        )
        unordered = self._unordered(kind, shown_at)
        if unordered:
            shown_at = _delayed(decoded_at, self.contents, self._context)
        if self._context.name in _NEVER_MARKED and begin.all():
            begin[1:] = 0
        if not self.inside:
            offsets = np.cumsum(sizes) - sizes
        return _make_table(
            stream,
            kind,
            unordered,
            self._palette,
            times=shown_at,
            keyframes=begin == 1,
            shown=shown == 1,
            disposable=disposable == 1,
            offsets=offsets,
            sizes=sizes,
        )

    def _unordered(self, kind: str, shown_at: np.ndarray) -> bool:
        """Return True where FFmpeg's times are not those of the frames.

        AVI and ASF have times of decoding alone. What FFmpeg makes of them is no order for some
        codecs, nor where packets held several frames.
        """
        if kind not in ("avi", "asf") or not self._context.has_b_frames or not self._rows:
            return False
        name = self._context.name
        return (
            name in ("h264", "hevc")
            or (name == "mpeg4" and not self.inside)
            or bool((np.diff(shown_at) > 0).all())
        )


def _delayed(
    decoded_at: np.ndarray, packets: Sequence[bytes | memoryview], context: Any
) -> np.ndarray:
    """Return the times int64[k] of frames in the order in which a decoder gives them.

    Each comes when the packet is there that follows it by the decoder's delay.
    """
    delay = 0
    while delay < len(packets) - 1 and not context.decode(make_packet(packets[delay])):
        delay += 1
    context.flush_buffers()
    step = int(np.median(np.diff(decoded_at))) if delay else 0
    behind = decoded_at[-1] + step * np.arange(1, delay + 1)
    return np.concatenate([decoded_at, behind])[delay:]


def _make_table(
    stream: Any, kind: str, unordered: bool = False, palette: bytes = b"", **columns: np.ndarray
) -> Table:
    """Return the table of a stream, of the columns that it has.

    Raises:
      DecodeError: no packet is shown.
    """
    if not columns["shown"].any():
        raise DecodeError("it has no frames")
    return Table(
        codec=_codec(stream.codec_context, kind, unordered, palette),
        unit=float(stream.time_base),
        rate=float(stream.average_rate or 25),
        **columns,
    )


def _demux(container: Any, stream: Any, kind: str) -> Iterator[Any]:
    """Yield the packets of a stream, each of which holds a frame or a field."""
    unpack = None
    if kind == "avi" and stream.codec_context.name == "mpeg4":  # a P and a B-frame may be in one
        unpack = import_av().BitStreamFilterContext("mpeg4_unpack_bframes", stream)
    try:
        for packet in container.demux(stream):
            if unpack and packet.size:
                yield from unpack.filter(packet)
            else:
                yield packet
    except IndexError:  # PyAV's, behind the last one, where other streams began within the file
        return


def _that_decode(
    table: Table, packets: Sequence[bytes | memoryview], context: Any, references: References
) -> Table:
    """Return a table without the frames that need those before the first key frame.

    They begin a recording that was not started at a key frame. Where that is a picture which is
    refreshed part by part, FFmpeg alone tells from which frame on all parts are there.
    """
    early = _leading(table, packets, references)
    if not early.any():
        return table
    first = int(table.keyframes.argmax())
    refreshed = references.refreshes(memoryview(packets[first]))
    decoded: list[int] = []
    for number in range(first, np.flatnonzero(early)[-1] + 1):
        packet = make_packet(packets[number])
        packet.pts = packet.dts = number
        decoded += [frame.pts for frame in context.decode(packet)]
    decoded += [frame.pts for frame in context.decode(None)]
    context.flush_buffers()
    shown = table.shown & (~early | np.isin(np.arange(len(early)), decoded))
    if not shown.any():
        raise DecodeError("none of its frames can be decoded")
    codec = dataclasses.replace(table.codec, unordered=refreshed)
    return dataclasses.replace(table, codec=codec, shown=shown)


def _leading(
    table: Table, packets: Sequence[bytes | memoryview], references: References
) -> np.ndarray:
    """Return bool[k], True for frames that may need those before the first key frame."""
    first = int(table.keyframes.argmax())
    if not table.timed or not table.keyframes[first]:
        return np.zeros(len(table.times), bool)
    early = (table.times < table.times[first]) | references.refreshes(memoryview(packets[first]))
    early[:first] = True
    return early & table.shown


def _place(data: memoryview, position: int | None, content: bytes) -> int:
    """Return where a packet is in a file, -1 if it is not there as it is."""
    start = max(0, position or 0)
    if bytes(data[start : start + len(content)]) == content:
        return start
    near = bytes(data[start : start + _MAX_LEAD + len(content)])
    for lead in range(1, _MAX_LEAD):
        if near.startswith(content, lead):
            return start + lead
    return -1


def _chroma_site(context: Any, kind: str) -> tuple[bool, int]:
    """Return where the chroma of a stream lies, (left, row) of `Codec`."""
    location = int(getattr(context, "chroma_sample_location", 0))  # PyAV before 19 does not tell
    if context.name == "dvvideo":  # as FFmpeg has its 4:2:0
        return CHROMA_SITES[TOP_LEFT]
    left = context.name in _CHROMA_LEFT or (context.name == "vp9" and kind == "mov")
    return CHROMA_SITES.get(location, (left, 0))


def _codec(context: Any, kind: str, unordered: bool, palette: bytes) -> Codec:
    """Return what a stream says of how it is decoded."""
    left, row = _chroma_site(context, kind)
    try:
        tag = context.codec_tag
    except UnicodeDecodeError:
        tag = ""
    return Codec(
        name=context.name,
        extradata=context.extradata or b"",
        height=context.height,
        width=context.width,
        tag=tag,
        pixels=context.pix_fmt or "",
        space=int(context.colorspace),
        range=int(context.color_range),
        chroma_left=left,
        chroma_row=row,
        unordered=unordered,
        palette=palette,
    )
