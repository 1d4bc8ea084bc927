"""A session of the engines: a parser and a decoder, which one thread uses for many videos.

Several sessions keep several engines busy. The parser reads the headers of packets and calls back
from within `cuvidParseVideoData`; the pictures between it and the decoder are opaque here.
"""

import time
from collections.abc import Callable, Collection, Iterable
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from typing import Any, NamedTuple

from jaxaug.decode.native import cuda
from jaxaug.decode.native import libnvcuvid as nv
from jaxaug.decode.video.nvdec.engines import EngineError

# Surfaces beyond those that a stream itself needs, and pictures that the parser holds back, so that
# a session need not wait for the picture that it has just given to an engine.
_SPARE = 4
_DELAY = 4
_MAPPED = 4  # surfaces that work on the stream may read at once
_ONLY_ENGINES = 4  # cudaVideoCreate_PreferCUVID
_ALWAYS = 100  # per cent of errors from which on a picture is not decoded: its status tells of them
_POLL_SECONDS = 1e-4  # between looks at a picture that an engine has not finished
_WHOLE_CHROMA = 3  # cudaVideoChromaFormat_444


class Surface(NamedTuple):
    """A decoded picture in device memory, with what its stream tells of it.

    Attributes:
      pointer: of its luma.
      pitch: bytes from one row to the next.
      rows: from one plane to the next.
      format: of its stream.
    """

    pointer: int
    pitch: int
    rows: int
    format: nv.Format


class Session:
    """Decodes packets of one codec on the device that is current in its thread.

    A video of another size reconfigures the decoder; only one that is larger than all before has it
    made anew. After an exception the session is good for nothing but `close`.

    Args:
      codec: one of `libnvcuvid.CODECS`.
      stream: of the device; what reads a surface runs on it.
    """

    def __init__(self, codec: int, stream: int):
        self._library = nv.load()
        self._stream = stream
        self._decoder = c_void_p()
        self._parser = c_void_p()
        self._made = nv.CreateInfo()  # of the decoder
        self._format: nv.Format | None = None  # that it is configured for
        self._shown: nv.Format | None = None  # of this video
        self._wanted: Collection[int] = ()
        self._take: Callable[[int, Surface], None] | None = None
        self._mapped: list[int] = []
        self._unchecked: dict[int, None] = {}  # surfaces whose pictures may have errors
        self._rank = 0  # of the packet that is parsed
        self._ranks: dict[int, int] = {}  # surface -> that of its picture
        # The parser gives pictures that it shows in another order the times of other packets. Those
        # of VP9 may show an earlier picture again, which is decoded with no packet of its own.
        self._reorders = codec in (nv.CODECS["h264"], nv.CODECS["hevc"])
        self._error: BaseException | None = None
        # The library calls them: they live as long as the parser.
        self._callbacks = (
            nv.SequenceCallback(self._guarded(self._on_sequence)),
            nv.DecodeCallback(self._guarded(self._on_decode)),
            nv.ShowCallback(self._guarded(self._on_show)),
        )
        parameters = nv.ParserParameters(
            codec=codec, surfaces=1, max_delay=_DELAY, error_threshold=_ALWAYS
        )
        parameters.on_sequence, parameters.on_decode, parameters.on_show = self._callbacks
        self._library.cuvidCreateVideoParser(byref(self._parser), byref(parameters))

    def decode(
        self,
        packets: Iterable[tuple[int, bytes]],
        wanted: Collection[int],
        take: Callable[[int, Surface], None],
    ) -> None:
        """Decode packets that follow each other from one where decoding may begin.

        Args:
          packets: the rank of each in the order of times, and its content, see `Bitstream`.
          wanted: the ranks of those that are given to `take`.
          take: is called with the rank and the surface, which work that it starts on the stream may
            read.

        Raises:
          EngineError: the engines refuse the packets, or found errors in them.
        """
        self._wanted, self._take, self._shown = wanted, take, None
        packet = nv.Packet(flags=nv.TIMESTAMP | nv.END_OF_PICTURE)
        for rank, content in packets:
            packet.size, packet.payload, packet.timestamp = len(content), content, rank
            self._rank = rank
            self._parse(packet)
        self._parse(nv.Packet(flags=nv.END_OF_STREAM))
        self._finish()

    def close(self) -> None:
        """Free the parser and the decoder; the device is current."""
        if self._parser:
            self._library.cuvidDestroyVideoParser(self._parser)
            self._parser = c_void_p()
        self._destroy()

    def _parse(self, packet: nv.Packet) -> None:
        try:
            self._library.cuvidParseVideoData(self._parser, byref(packet))
        except nv.CuvidError as error:
            self._error = self._error or error
        if isinstance(self._error, nv.CuvidError):
            raise EngineError(str(self._error)) from self._error
        if self._error is not None:
            raise self._error

    def _guarded(self, body: Callable[[Any], None]) -> Callable[[Any, Any], int]:
        """Return a callback that keeps an exception, which must not pass through the library."""

        def callback(user: Any, pointer: Any) -> int:
            del user
            if self._error is not None:
                return 0
            try:
                body(pointer)
            except BaseException as error:
                self._error = error
                return 0
            return max(1, self._made.surfaces)  # more than 1 counts where the headers were read

        return callback

    def _on_sequence(self, pointer: Any) -> None:
        """Have the decoder suit the headers of a video."""
        found = nv.Format.from_buffer_copy(pointer.contents)
        if self._shown is not None and bytes(found) != bytes(self._shown):
            raise EngineError("its headers change")
        self._shown = found
        if not found.progressive:
            raise EngineError("it is interlaced")
        if self._format is None or bytes(found) != bytes(self._format):
            self._finish()
            self._configure(found)
            self._format = found

    def _on_decode(self, pointer: Any) -> None:
        """Give a picture to the engines."""
        surface = pointer.contents.surface
        if surface in self._unchecked:
            self._check(surface)
        self._library.cuvidDecodePicture(self._decoder, pointer)
        self._unchecked[surface] = None
        self._ranks[surface] = self._rank  # END_OF_PICTURE: before the next packet is parsed

    def _on_show(self, pointer: Any) -> None:
        """Give a picture that is wanted to `take`."""
        if not pointer:
            return
        shown = pointer.contents
        rank = self._ranks[shown.surface] if self._reorders else shown.timestamp
        if rank not in self._wanted:
            return
        if len(self._mapped) == _MAPPED:
            self._unmap()
        parameters = nv.MapParameters(
            progressive=shown.progressive,
            top_field_first=shown.top_field_first,
            stream=self._stream,
        )
        address, pitch = c_ulonglong(), c_uint()
        places = byref(address), byref(pitch), byref(parameters)
        self._library.cuvidMapVideoFrame64(self._decoder, shown.surface, *places)
        self._mapped.append(address.value)
        assert self._format is not None and self._take is not None
        rows = (self._format.coded_height + 1) & ~1
        self._take(rank, Surface(address.value, pitch.value, rows, self._format))

    def _configure(self, found: nv.Format) -> None:
        """Make the decoder, or give it another size: surfaces are whole, as they are coded."""
        height, width = found.coded_height, found.coded_width
        sides: dict[str, Any] = {
            "width": width,
            "height": height,
            "target_width": width,
            "target_height": height,
            "surfaces": found.min_surfaces + _SPARE,
            "display_area": nv.Rectangle(0, 0, width, height),
        }
        made = self._made
        like = (found.chroma_format, found.luma_bits_minus8)
        same = bool(self._decoder) and like == (made.chroma_format, made.bits_minus8)
        if same and width <= made.max_width and height <= made.max_height:
            changed = nv.ReconfigureInfo(**sides)
            self._library.cuvidReconfigureDecoder(self._decoder, byref(changed))
            made.surfaces = changed.surfaces
            return
        self._destroy()
        output = nv.YUV444 if found.chroma_format == _WHOLE_CHROMA else nv.NV12
        self._made = nv.CreateInfo(
            **sides,
            codec=found.codec,
            chroma_format=found.chroma_format,
            bits_minus8=found.luma_bits_minus8,
            flags=_ONLY_ENGINES,
            max_width=max(width, made.max_width),
            max_height=max(height, made.max_height),
            output=output + (found.luma_bits_minus8 > 0),
            outputs=_MAPPED,
        )
        self._library.cuvidCreateDecoder(byref(self._decoder), byref(self._made))

    def _finish(self) -> None:
        """Wait for the work that reads surfaces, and look for errors in all pictures."""
        self._unmap()
        for surface in list(self._unchecked):
            self._check(surface)

    def _unmap(self) -> None:
        """Give the surfaces back that `take` has got."""
        if self._mapped:
            cuda.call("cudaStreamSynchronize", self._stream)
        while self._mapped:
            self._library.cuvidUnmapVideoFrame64(self._decoder, self._mapped.pop())

    def _check(self, surface: int) -> None:
        """Raise EngineError if the last picture of a surface was decoded with errors."""
        del self._unchecked[surface]
        found = nv.DecodeStatus(status=nv.IN_PROGRESS)
        while found.status == nv.IN_PROGRESS:
            try:
                self._library.cuvidGetDecodeStatus(self._decoder, surface, byref(found))
            except nv.CuvidError as error:
                if error.status != nv.NOT_SUPPORTED:  # of codecs without a status
                    raise
                return
            if found.status == nv.IN_PROGRESS:
                time.sleep(_POLL_SECONDS)
        if found.status in (nv.ERROR, nv.CONCEALED):
            raise EngineError("the engines found errors")

    def _destroy(self) -> None:
        self._mapped.clear()
        self._unchecked.clear()
        if self._decoder:
            self._library.cuvidDestroyDecoder(self._decoder)
            self._decoder = c_void_p()
