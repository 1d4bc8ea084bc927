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
    packets: list[bytes | memoryview]
    if kind == "mov" and first is not None and len(stream.index_entries) <= _MAX_PACKETS:
        samples = None if fields.possible else read_samples(data, stream, first, references)
        if samples is not None:
            places = zip(samples.offsets.tolist(), samples.sizes.tolist())
            table = _make_table(stream, kind, **samples._asdict())
            packets = [data[at : at + size] for at, size in places]
            sure = table.timed and not _leading(table, packets, references).any()
            if headers is None or sure:
                return _that_decode(table, packets, context, references), []
    if headers is not None:
        return None
    rows: list[_Row] = []
    packets = []
    inside = True
    begun = False
    palette = b""
    for packet in itertools.chain([] if first is None else [first], demuxed):
        if not packet.size:
            continue
        if len(rows) == _MAX_PACKETS:
            raise DecodeError(f"it has more than {_MAX_PACKETS:,} frames")
        beside = {each.data_type: bytes(each) for each in packet.iter_sidedata()}
        found = beside.get("palette", palette)
        if found and (context.name not in _BY_PALETTE or (rows and found != palette)):
            which = f"changes at packet {len(rows)}" if rows else f"is not that of {context.name}"
            raise DecodeError(f"its colors are a palette beside the packets, which {which}")
        palette = found
        content = bytes(packet)
        offset = _place(data, packet.pos, content)
        inside = inside and offset >= 0 and "new_extradata" not in beside
        hidden = packet.is_discard or is_hidden(context.name, content)
        disposable = references.is_disposable(packet)
        if fields.complete(content) and rows:
            inside = inside and offset == rows[-1].offset + rows[-1].size
            rows[-1] = rows[-1].joined(disposable, len(content))
            packets[-1] = b"".join((packets[-1], content))
            continue
        pts, dts = (NONE if time is None else time for time in (packet.pts, packet.dts))
        begins = references.begins(packet) and not is_predicted(context.name, content)
        begins = begins or (packet.is_keyframe and not begun)
        begun = begun or begins
        rows.append(_Row(pts, dts, begins, not hidden, disposable, offset, len(content)))
        packets.append(content if offset < 0 else data[offset : offset + len(content)])
    shown_at, decoded_at, keys, shown, disposable, offsets, sizes = (
        np.array(rows, np.int64).reshape(-1, 7).T
    )
    # AVI and ASF have times of decoding alone. What FFmpeg makes of them is no order for some
    # codecs, nor where packets held several frames.
    unordered = bool(kind in ("avi", "asf") and context.has_b_frames and len(rows)) and (
        context.name in ("h264", "hevc")
        or (context.name == "mpeg4" and not inside)
        or bool((np.diff(shown_at) > 0).all())
    )
    if context.name in _NEVER_MARKED and keys.all():
        keys[1:] = 0
    if not inside:
        offsets = np.cumsum(sizes) - sizes
    table = _make_table(
        stream,
        kind,
        unordered,
        times=_delayed(decoded_at, packets, context) if unordered else shown_at,
        offsets=offsets,
        sizes=sizes,
        keys=keys == 1,
        shown=shown == 1,
        disposable=disposable == 1,
    )
    if palette:
        table = dataclasses.replace(table, codec=dataclasses.replace(table.codec, palette=palette))
    return _that_decode(table, packets, context, references), [] if inside else packets


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


def _make_table(stream: Any, kind: str, unordered: bool = False, **columns: np.ndarray) -> Table:
    """Return the table of a stream, of the columns that it has.

    Raises:
      DecodeError: no packet is shown.
    """
    if not columns["shown"].any():
        raise DecodeError("it has no frames")
    return Table(
        codec=_codec(stream.codec_context, kind, unordered),
        unit=float(stream.time_base),
        rate=float(stream.average_rate or 25),
        **columns,
    )


class _Row(NamedTuple):
    """A packet: when it is shown and decoded, flags as in `Table`, and its place."""

    shown_at: int
    decoded_at: int
    begins: bool
    shown: bool
    disposable: bool
    offset: int
    size: int

    def joined(self, disposable: bool, size: int) -> "_Row":
        """Return the picture of which this is one field, and a packet behind it the other."""
        return self._replace(disposable=self.disposable and disposable, size=self.size + size)


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
    first = int(table.keys.argmax())
    refreshed = references.refreshes(memoryview(packets[first]))
    seen: list[int] = []
    for number in range(first, np.flatnonzero(early)[-1] + 1):
        packet = make_packet(packets[number])
        packet.pts = packet.dts = number
        seen += [frame.pts for frame in context.decode(packet)]
    seen += [frame.pts for frame in context.decode(None)]
    context.flush_buffers()
    shown = table.shown & (~early | np.isin(np.arange(len(early)), seen))
    if not shown.any():
        raise DecodeError("none of its frames can be decoded")
    codec = dataclasses.replace(table.codec, unordered=refreshed)
    return dataclasses.replace(table, codec=codec, shown=shown)


def _leading(
    table: Table, packets: Sequence[bytes | memoryview], references: References
) -> np.ndarray:
    """Return bool[k], True for frames that may need those before the first key frame."""
    first = int(table.keys.argmax())
    if not table.timed or not table.keys[first]:
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


def _codec(context: Any, kind: str, unordered: bool) -> Codec:
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
    )
