"""A video at hand: its table, and the packets that some of its frames need."""

import dataclasses
import importlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug._install import install_command
from jaxaug.decode._memory_file import MemoryFile
from jaxaug.decode.video.container import find_container
from jaxaug.decode.video.fields import SecondFields
from jaxaug.decode.video.mp4_boxes import is_encrypted, is_mirrored
from jaxaug.decode.video.mp4_headers import Headers, read_headers
from jaxaug.decode.video.picture_headers import is_hidden, is_predicted
from jaxaug.decode.video.references import References
from jaxaug.decode.video.sample_table import read_samples
from jaxaug.decode.video.table import CHROMA_SITES, NONE, TOP_LEFT, Codec, Table
from jaxaug.errors import DecodeError

_MAX_PACKETS = 1_000_000  # of a video: nine hours at 30 frames/s
_IO_BYTES = 1 << 18  # read at a time
# Of libavcodec/mpegpicture.c: 4 x 70 rows, of at most 2**15 pixels.
_WORK_PIXELS = 4 * 70 * 2**15
_MAX_LEAD = 64  # bytes of a container between where it says that a packet is and the packet
# Codecs whose chroma lies on the left of two columns where the stream does not say more: ITU-T
# H.264 and H.265 figure E-1, ISO/IEC 13818-2 section 6.1.1.8, ISO/IEC 14496-2; so has "vpcC".
_CHROMA_LEFT = ("h264", "hevc", "mpeg2video", "mpeg4")
# Of which FFmpeg's parsers, asked in AVI, call every picture one where decoding may begin.
_NEVER_MARKED = ("h261", "h263", "h263i", "h263p")
# Whose pixels are places of a palette that the container has; others have one of their own.
_BY_PALETTE = ("rawvideo", "qtrle", "smc", "8bps", "cinepak", "msrle", "msvideo1", "qpeg", "tscc")


class VideoFile:
    """The main video stream of a file, that which FFmpeg finds best; a context manager.

    Args:
      data: the bytes of the file, which must stay as they are until `close`.
      max_pixels: more in a frame are refused.
      table: what is known of it; None to have it read from the file.
      begin: the byte of the file that `data` begins with; another than 0 needs a table.
      known: the table is that of an opening before, not of an index.

    Attributes:
      max_pixels: see above; what decodes the packets must see to it, too.
      told: its codec with what its first frame tells; None where nobody has asked.
      table: of its packets.
      packets_read: how many `packets` gave, all in all.
      whole: False where the file does not hold the packets as they are decoded.

    Raises:
      DecodeError: no video, more pixels or packets than allowed, or none.
      ImportError: PyAV is not installed.
    """

    def __init__(
        self,
        data: memoryview,
        max_pixels: int,
        table: Table | None = None,
        begin: int = 0,
        known: bool = False,
    ):
        self.packets_read = 0
        self.told: Codec | None = None
        self.max_pixels = max_pixels
        self.whole = True
        self._data = data
        self._begin = begin
        self._probed = not known
        self._container: Any = None
        self._context: Any = None
        try:
            if table is None:
                table = self._read(max_pixels)
            else:
                check_pixels(table.codec.height, table.codec.width, max_pixels)
            self.table = table
        except BaseException as error:
            self.close()
            raise as_decode_error(error) from None

    def __enter__(self) -> "VideoFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what FFmpeg holds."""
        self._context = None
        if self._container is not None:
            self._container.close()

    @property
    def context(self) -> Any:
        """PyAV's context that decodes the packets, the same each time."""
        if self._context is None:
            self._context = make_context(self.table.codec, self.max_pixels)
        return self._context

    def reopen(self) -> bool:
        """Have FFmpeg open the file and probe it; return False where it has, or the table is given.

        Its context may know more then, as how many pictures come late, where the stream itself says
        it wrong.

        Raises:
          DecodeError: it cannot be opened.
        """
        if self._probed:
            return False
        try:
            self.table = self._read(self.max_pixels, probe=True)
        except Exception as error:
            raise as_decode_error(error) from None
        return True

    def packets(self, run: np.ndarray) -> Iterator[tuple[int, memoryview]]:
        """Yield the packets of a run of `Table.runs`, with their numbers.

        Raises:
          DecodeError: the bytes end before one of them.
        """
        starts = self.table.offsets[run] - self._begin
        stops = starts + self.table.sizes[run]
        for number, start, stop in zip(run.tolist(), starts.tolist(), stops.tolist()):
            if start < 0 or stop > len(self._data):
                raise DecodeError("its bytes are not those that were indexed")
            self.packets_read += 1
            yield number, self._data[start:stop]

    def _read(self, max_pixels: int, probe: bool = False) -> Table:
        """Open the file and return its table.

        Args:
          max_pixels: see the class.
          probe: let FFmpeg decode what it wants to, whatever the headers tell.
        """
        kind = find_container(self._data)
        if kind == "mov" and is_encrypted(self._data):
            raise DecodeError("it is encrypted: decrypt it, as by `ffmpeg -decryption_key`")
        headers = read_headers(self._data) if kind == "mov" and not probe else None
        self._probed = headers is None
        stream = self._open(kind, max_pixels)
        found = read_table(self._container, stream, kind, self._data, headers)
        if found is None:
            return self._read(max_pixels, probe=True)
        table, packets = found
        first = packets[0] if packets else self._data[table.offsets[0] :][: table.sizes[0]]
        references = References(table.codec.name, table.codec.extradata)
        message = references.encoder_message(first, "444" in table.codec.pixels)
        mirrored = kind == "mov" and is_mirrored(self._data, stream.id)
        codec = dataclasses.replace(table.codec, mirrored=mirrored, message=message)
        if headers is not None:
            codec = headers.sited(codec)
        table = dataclasses.replace(table, codec=codec)
        self.told = headers.turned(table.codec, first) if headers else None
        if packets:  # the container changes them: Matroska may leave out how each of them begins
            self.whole = False
            self._data = memoryview(b"".join(packets))
        return table

    def _open(self, kind: str, max_pixels: int) -> Any:
        """Have FFmpeg open the file, and return the stream.

        Raises:
          DecodeError: no video, or more pixels than allowed.
        """
        self.close()
        av = import_av()
        options: dict[str, Any] = {"format": kind, "options": limits(max_pixels)}
        if not self._probed:
            options["container_options"] = {"codec_whitelist": "none"}
        if int(av.__version__.split(".")[0]) < 19:  # later ones decode metadata when asked for it
            options["metadata_errors"] = "replace"
        self._container = av.open(MemoryFile(self._data), buffer_size=_IO_BYTES, **options)
        stream = self._container.streams.best("video")
        if stream is None or stream.codec_context is None:
            raise DecodeError("it has no video stream that can be decoded")
        if stream.disposition & av.stream.Disposition.attached_pic:
            raise DecodeError("it is a sound with a picture attached, not a video")
        self._context = stream.codec_context
        self._context.thread_count = 1  # rows are decoded side by side
        self._context.options = limits(max_pixels)  # the stream may say more later
        check_pixels(self._context.height, self._context.width, max_pixels)
        return stream


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


def make_context(codec: Codec, max_pixels: int) -> Any:
    """Return a context of PyAV for packets of a codec, as the container would have made it.

    Raises:
      DecodeError: this FFmpeg has no such decoder.
    """
    av = import_av()
    try:
        context = av.CodecContext.create(codec.name, "r")
    except ValueError as error:
        raise DecodeError(f"FFmpeg has no decoder {codec.name!r}") from error
    if codec.extradata:
        context.extradata = codec.extradata
    context.width, context.height = codec.width, codec.height
    if codec.tag:
        context.codec_tag = codec.tag
    if codec.pixels:
        context.pix_fmt = codec.pixels
    context.colorspace, context.color_range = codec.space, codec.range
    context.thread_count = 1  # rows are decoded side by side
    context.options = limits(max_pixels)
    return context


def make_packet(content: bytes | memoryview) -> Any:
    """Return a packet of PyAV, behind which are the zeros that FFmpeg's decoders may read.

    One of PyAV's that refers to the content is followed by what follows that.
    """
    packet = import_av().Packet(len(content))
    packet.update(content)
    return packet


def limits(max_pixels: int) -> dict[str, str]:
    """Return FFmpeg's options by which a stream cannot ask for much more memory than a frame has.

    FFmpeg counts rows that are padded to its alignment, and what some decoders work on, so that it
    would refuse small frames of as many pixels as are allowed: `check_pixels` is exact.
    """
    return {"max_pixels": str(2 * max_pixels + _WORK_PIXELS)}


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    """Raise DecodeError where a frame has more pixels than are allowed."""
    if height * width > max_pixels:
        raise DecodeError(f"{height} x {width} pixels are more than max_pixels={max_pixels}")


def import_av() -> Any:
    """Return PyAV.

    Raises:
      ImportError: it is not installed.
    """
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise ImportError(f"videos need PyAV: {install_command('video')}.") from error


def as_decode_error(error: BaseException) -> BaseException:
    """Return an error of FFmpeg as what it says about the bytes."""
    if isinstance(error, import_av().FFmpegError):
        return DecodeError(f"FFmpeg cannot read it: {getattr(error, 'strerror', None) or error}")
    return error
