"""A session of the engines: a parser and a decoder, which one thread uses for many videos.

Several sessions keep several engines busy. The parser reads the headers of packets and calls back
from within `cuvidParseVideoData`; the pictures between it and the decoder are opaque here.
"""

from collections.abc import Callable
from ctypes import addressof, byref, c_void_p, cast, pointer
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.native import libnvcuvid as nv
from jaxaug.decode.native import nvcuvid_loop as loop
from jaxaug.decode.video.nvdec.engines import EngineError
from jaxaug.decode.video.nvdec.python_loop import PythonLoop

# Surfaces beyond those that a stream itself needs, and pictures that the parser holds back, so that
# a session need not wait for the picture that it has just given to an engine.
_SPARE = 4
_DELAY = 4
# Surfaces that work on the stream may read at once: of large videos fewer, as each takes memory.
_MAPPED_BYTES = 2**24
_MIN_MAPPED = 4
_PACKET: np.dtype = np.dtype(nv.Packet)
_MAPPED: np.dtype = np.dtype(loop.Mapped)
_ONLY_ENGINES = 4  # cudaVideoCreate_PreferCUVID
_ALWAYS = 100  # per cent of errors from which on a picture is not decoded: its status tells of them
_WHOLE_CHROMA = 3  # cudaVideoChromaFormat_444


class Packets(NamedTuple):
    """Packets that follow each other in decoding and in memory.

    Attributes:
      content: uint8[bytes], see `Bitstream`.
      sizes: int64[k], the bytes of each.
      ranks: int64[k], the place of each in the order of times; -1 for an end, without bytes, behind
        which decoding begins anew.
    """

    content: np.ndarray
    sizes: np.ndarray
    ranks: np.ndarray


class Surfaces(NamedTuple):
    """Decoded pictures in device memory, with what their stream tells of them.

    Attributes:
      ranks: of each picture.
      pointers: of its luma.
      pitches: bytes from one row to the next.
      rows: from one plane to the next.
      format: of the stream.
    """

    ranks: list[int]
    pointers: list[int]
    pitches: list[int]
    rows: int
    format: nv.Format


Take = Callable[[Surfaces], None]


class Session:
    """Decodes packets of one codec on the device that is current in its thread.

    A video of another size reconfigures the decoder; only one that is larger than all before has it
    made anew. After an exception the session is good for nothing but `close`.

    Args:
      codec: one of `libnvcuvid.CODECS`.
      stream: of the device; what reads a surface runs on it.
      at_decoder: called when it has made a decoder, for which the driver takes some 25 ms.
    """

    def __init__(self, codec: int, stream: int, at_decoder: Callable[[], None] = lambda: None):
        library = self._library = nv.load()
        self._stream = stream
        self._at_decoder = at_decoder
        self._decoder = c_void_p()
        self._parser = c_void_p()
        self._made = nv.CreateInfo()  # of the decoder
        self._format: nv.Format | None = None  # that it is configured for
        self._take: Take | None = None
        self._error: BaseException | None = None
        self._parameters = nv.MapParameters(stream=stream)
        # The parser gives pictures that it shows in another order the times of other packets. Those
        # of VP9 may show an earlier picture again, which is decoded with no packet of its own.
        reorders = codec in (nv.CODECS["h264"], nv.CODECS["hevc"])
        # The library calls them: they live as long as the parser.
        self._callbacks = (
            nv.SequenceCallback(self._on_headers),
            loop.ReadCallback(self._guarded(self._read)),
        )
        suit, read = self._callbacks
        self._state = loop.State(
            parameters=pointer(self._parameters), reorders=reorders, suit=suit, read=read
        )
        self._mapped = np.frombuffer(self._state.mapped, _MAPPED)
        for name, function in _CALLED.items():
            setattr(self._state, name, _address(getattr(library, function)))
        compiled = loop.compiled()
        self._loop = compiled if compiled is not None else PythonLoop(library)
        parameters = nv.ParserParameters(
            codec=codec, surfaces=1, max_delay=_DELAY, error_threshold=_ALWAYS
        )
        parameters.user = addressof(self._state)
        parameters.on_sequence = nv.SequenceCallback(_address(self._loop.on_sequence))
        parameters.on_decode = nv.DecodeCallback(_address(self._loop.on_decode))
        parameters.on_show = nv.ShowCallback(_address(self._loop.on_show))
        library.cuvidCreateVideoParser(byref(self._parser), byref(parameters))
        self._state.parser = self._parser.value

    def decode(self, packets: Packets, wanted: np.ndarray, take: Take) -> None:
        """Decode the packets of a video, the first of which is one where decoding may begin.

        Args:
          packets: of the video.
          wanted: int64[m], the ranks of those that are given to `take`, at least one.
          take: reads surfaces; they are decoded into again once it has returned.

        Raises:
          EngineError: the engines refuse the packets, or found errors in them.
        """
        content, sizes, ranks = packets
        array = np.zeros(len(sizes), _PACKET)
        array["flags"] = np.where(ranks < 0, nv.END_OF_STREAM, nv.TIMESTAMP | nv.END_OF_PICTURE)
        array["size"] = sizes
        array["payload"] = content.ctypes.data + np.cumsum(sizes) - sizes
        array["timestamp"] = ranks
        mask = np.zeros(wanted.max() + 1, np.uint8)
        mask[wanted] = 1
        state, self._take = self._state, take
        state.wanted, state.count, state.begun = mask.ctypes.data, len(mask), 0
        self._check(self._loop.run(byref(state), array.ctypes.data, len(array)))

    @property
    def bytes_held(self) -> int:
        """The device memory of the surfaces that were asked for, those to be read included."""
        made = self._made if self._decoder else nv.CreateInfo()
        return (made.surfaces + made.outputs) * _surface_bytes(made)

    def close(self) -> None:
        """Free the parser and the decoder; the device is current."""
        if self._parser:
            self._library.cuvidDestroyVideoParser(self._parser)
            self._parser = c_void_p()
        self._destroy()

    def _check(self, error: int) -> None:
        """Raise what went wrong in a callback, or what `State.error` says."""
        if self._error is not None:
            raise self._error
        if error:
            code = f"CUresult {error}"
            raise EngineError("the engines found errors" if error == loop.ERRORS_FOUND else code)

    def _guarded(self, body: Callable[..., None]) -> Callable[..., None]:
        """Return a callback that keeps an exception, which must not pass through the library."""

        def callback(*given: Any) -> None:
            try:
                body(*given)
            except BaseException as error:
                self._error = error
                self._state.error = loop.ERRORS_FOUND

        return callback

    def _on_headers(self, user: Any, found: Any) -> int:
        """Return how many surfaces the decoder has, which suits the headers of a video then."""
        self._guarded(self._suit)(nv.Format.from_buffer_copy(found.contents))
        return 0 if self._state.error else self._state.surfaces

    def _suit(self, found: nv.Format) -> None:
        """Have the decoder suit the headers of a video, which are not those of the last."""
        state = self._state
        if state.begun:
            raise EngineError("its headers change")
        if not found.progressive:
            raise EngineError("it is interlaced")
        self._check(self._loop.finish(byref(state)))
        self._configure(found)
        self._format = state.format = found
        state.surfaces, state.begun = self._made.surfaces, 1

    def _configure(self, found: nv.Format) -> None:
        """Make the decoder, or give it another size: surfaces are whole, as they are coded.

        To even sides: VP9 tells odd ones, and engines that are made for them predict from the wrong
        pixels (seen on an H100, driver 580.159, on six of eight sizes of odd width).
        """
        height, width = (side + side % 2 for side in (found.coded_height, found.coded_width))
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
        deep, whole = found.luma_bits_minus8 > 0, found.chroma_format == _WHOLE_CHROMA
        largest = max(width, made.max_width), max(height, made.max_height)
        self._made = nv.CreateInfo(
            **sides,
            codec=found.codec,
            chroma_format=found.chroma_format,
            bits_minus8=found.luma_bits_minus8,
            flags=_ONLY_ENGINES,
            max_width=largest[0],
            max_height=largest[1],
            output=(nv.YUV444 if whole else nv.NV12) + deep,
        )
        mapped = _MAPPED_BYTES // _surface_bytes(self._made)
        self._made.outputs = min(max(mapped, _MIN_MAPPED), loop.MAX_MAPPED)
        self._library.cuvidCreateDecoder(byref(self._decoder), byref(self._made))
        self._at_decoder()
        self._state.decoder = self._decoder.value
        self._state.outputs = self._made.outputs

    def _read(self) -> None:
        """Give the surfaces that are mapped to `take`."""
        assert self._format is not None and self._take is not None
        rows = (self._format.coded_height + 1) & ~1
        mapped = self._mapped[: self._state.used]
        ranks, pointers, pitches = (mapped[name].tolist() for name in ("rank", "pointer", "pitch"))
        self._take(Surfaces(ranks, pointers, pitches, rows, self._format))

    def _destroy(self) -> None:
        self._state.used = self._state.surfaces = 0
        self._state.unchecked[:] = [0] * loop.MAX_SURFACES
        if self._decoder:
            self._library.cuvidDestroyDecoder(self._decoder)
            self._decoder = c_void_p()


_CALLED = {
    "parse": "cuvidParseVideoData",
    "decode": "cuvidDecodePicture",
    "status": "cuvidGetDecodeStatus",
    "map": "cuvidMapVideoFrame64",
    "unmap": "cuvidUnmapVideoFrame64",
}


def _surface_bytes(made: nv.CreateInfo) -> int:
    """Return the bytes of the largest surface of a decoder."""
    halves = 6 if made.chroma_format == _WHOLE_CHROMA else 3  # planes, in halves of luma
    return made.max_width * made.max_height * halves // 2 * (2 if made.bits_minus8 else 1)


def _address(function: Any) -> int:
    """Return where a function is that ctypes has loaded, or made."""
    return cast(function, c_void_p).value or 0
