"""Engines made of FFmpeg, and a GPU of host memory, for the tests of the NVDEC backend."""

import collections
import ctypes
import heapq
import itertools
import threading
import traceback
from ctypes import POINTER, c_void_p
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug.decode.native import libnvcuvid as nv
from jaxaug.decode.video.nvdec.place_planes import FRAME

av = pytest.importorskip("av")
_NAMES = {number: name for name, number in nv.CODECS.items()}
_DEEP = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10, "yuv444p": 8, "yuv444p10le": 10}


class FakeNvcuvid:
    """The functions of libnvcuvid; pictures are decoded by FFmpeg, from start codes on.

    Args:
      current: the `CurrentDevice` of the threads that call; each parser and decoder has its own.

    Attributes:
      calls: how often each function was called.
      status: what the pictures of each packet number have, `nv.SUCCESS` where nothing is said.
      supported, engines: what `cuvidGetDecoderCaps` says.
      decode_error: what `cuvidDecodePicture` returns.
    """

    def __init__(self, current):
        self._current = current
        self._devices = {}  # by handle
        self.calls = collections.Counter()
        self.status = {}
        self.supported, self.engines = 1, 2
        self.decode_error = 0
        self.live = {}  # handles of parsers and decoders
        self.mapped = {}
        self._handles = itertools.count(1)
        self._now = threading.local()  # the video of a thread: a session has one
        # Functions that C may call, too.
        self.cuvidParseVideoData = _native(self._parse, c_void_p, POINTER(nv.Packet))
        self.cuvidDecodePicture = _native(self._decode, c_void_p, c_void_p)
        self.cuvidGetDecodeStatus = _native(
            self._status, c_void_p, ctypes.c_int, POINTER(nv.DecodeStatus)
        )
        self.cuvidMapVideoFrame64 = _native(
            self._map,
            c_void_p,
            ctypes.c_int,
            POINTER(ctypes.c_ulonglong),
            POINTER(ctypes.c_uint),
            POINTER(nv.MapParameters),
        )
        self.cuvidUnmapVideoFrame64 = _native(self._unmap, c_void_p, ctypes.c_ulonglong)

    def _make(self, out, thing):
        handle = next(self._handles)
        self.live[handle] = thing
        self._devices[handle] = self._current.chosen()
        out._obj.value = handle
        return 0

    def _of(self, handle):
        """Return a parser or a decoder, whose device must be current."""
        self._current.check(self._devices[_value(handle)])
        return self.live[_value(handle)]

    def cuvidGetDecoderCaps(self, asked):
        self._current.chosen()
        found = asked._obj
        found.supported, found.engines = self.supported, self.engines
        found.max_width = found.max_height = 4096
        found.max_macroblocks = 65536
        found.min_width = found.min_height = 16
        return 0

    def cuvidCreateVideoParser(self, out, parameters):
        given = parameters._obj
        self.calls["parser"] += 1
        return self._make(
            out,
            SimpleNamespace(
                codec=given.codec,
                on_sequence=given.on_sequence,
                on_decode=given.on_decode,
                on_show=given.on_show,
                user=given.user,
                context=None,
                count=0,
            ),
        )

    def _parse(self, parser, packet):
        self.calls["parse"] += 1
        parser, packet = self._of(parser), packet.contents
        if packet.flags & nv.END_OF_STREAM:
            if parser.context is not None:
                for frame in parser.context.decode(None):
                    self._show(parser, frame)
            parser.context = None
            return 0
        address = ctypes.c_void_p.from_buffer(packet, nv.Packet.payload.offset).value
        content = av.Packet(ctypes.string_at(address, packet.size))
        content.pts = content.dts = packet.timestamp
        first = parser.context is None
        if first:
            parser.context = av.CodecContext.create(_NAMES[parser.codec], "r")
            parser.context.thread_count = 1
        try:
            frames = parser.context.decode(content)
        except av.FFmpegError:
            return 1
        if first and not self._sequence(parser):
            return 1
        surface = parser.count % self._now.surfaces
        parser.count += 1
        self._now.pictures[packet.timestamp] = surface
        heapq.heappush(self._now.times, packet.timestamp)
        self._now.packet = packet.timestamp
        if not parser.on_decode(parser.user, ctypes.pointer(nv.Picture(surface=surface))):
            return 1
        return 0 if all([self._show(parser, frame) for frame in frames]) else 1

    def _sequence(self, parser):
        context = parser.context
        found = nv.Format(codec=parser.codec, progressive=1, min_surfaces=3)
        found.coded_width = -(-context.width // 16) * 16
        found.coded_height = -(-context.height // 16) * 16
        found.display_area.right, found.display_area.bottom = context.width, context.height
        found.chroma_format = 3 if "444" in context.pix_fmt else 1
        found.luma_bits_minus8 = _DEEP[context.pix_fmt] - 8
        self._now.pictures, self._now.stamps, self._now.frames = {}, {}, {}
        self._now.under_way = set()  # surfaces whose pictures an engine has not finished
        self._now.times = []
        self._now.surfaces = parser.on_sequence(parser.user, ctypes.pointer(found))
        return self._now.surfaces

    def _show(self, parser, frame):
        surface = self._now.pictures[frame.pts]
        self._now.frames[surface] = frame
        time = heapq.heappop(self._now.times)
        shown = nv.Shown(surface=surface, progressive=1, timestamp=time)
        return parser.on_show(parser.user, ctypes.pointer(shown))

    def cuvidDestroyVideoParser(self, parser):
        self._of(parser)
        del self.live[_value(parser)]
        return 0

    def cuvidCreateDecoder(self, out, info):
        self.calls["create"] += 1
        copy = nv.CreateInfo.from_buffer_copy(info._obj)
        return self._make(out, copy)

    def cuvidReconfigureDecoder(self, decoder, info):
        self.calls["reconfigure"] += 1
        made = self._of(decoder)
        assert info._obj.width <= made.max_width and info._obj.height <= made.max_height
        return 0

    def cuvidDestroyDecoder(self, decoder):
        self._of(decoder)
        del self.live[_value(decoder)]
        return 0

    def _decode(self, decoder, picture):
        self.calls["decode"] += 1
        self._of(decoder)
        surface = nv.Picture.from_address(picture).surface
        self._now.stamps[surface] = self._now.packet
        self._now.under_way.add(surface)
        return self.decode_error

    def _status(self, decoder, surface, out):
        done = surface not in self._now.under_way
        self._now.under_way.discard(surface)  # the second look finds it finished
        status = self.status.get(self._now.stamps.get(surface), nv.SUCCESS)
        out.contents.status = status if done else nv.IN_PROGRESS
        return 0

    def _map(self, decoder, surface, address, pitch, parameters):
        self.calls["map"] += 1
        made = self._of(decoder)
        assert surface not in self._now.under_way  # else it waits, and holds up the process
        assert sum(owner is made for owner, _ in list(self.mapped.values())) < made.outputs
        memory = surface_of(self._now.frames[surface])
        self.mapped[memory.ctypes.data] = made, memory
        address[0], pitch[0] = memory.ctypes.data, memory.shape[1]
        return 0

    def _unmap(self, decoder, address):
        self.mapped.pop(address)[1][...] = 99
        return 0


def _native(method, *arguments):
    """Return a method as a function that C may call; Python gets exceptions, as of the library."""

    def called(*given):
        try:
            return method(*given)
        except BaseException:
            traceback.print_exc()
            return 998

    def check(status, function, given):
        if status:
            raise nv.CuvidError(method.__name__, status)
        return status

    function = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(called)
    function.errcheck = check
    return function


def surface_of(frame):
    """Return a surface uint8[rows, pitch] with a frame of PyAV, as the engines lay it out."""
    bits = _DEEP[frame.format.name]
    whole = "444" in frame.format.name
    rows, columns = (-(-side // 16) * 16 for side in (frame.height, frame.width))
    dtype = np.uint8 if bits == 8 else np.uint16
    memory = np.full((3 * rows if whole else rows * 3 // 2, columns + 32), 77, dtype)
    luma, cb, cr = (
        np.frombuffer(plane, dtype).reshape(plane.height, -1)[:, : plane.width]
        << np.array(0 if bits == 8 else 16 - bits, dtype)
        for plane in frame.planes[:3]
    )
    memory[: frame.height, : frame.width] = luma
    for number, chroma in enumerate((cb, cr)):
        height, width = chroma.shape
        if whole:
            memory[(number + 1) * rows :][:height, :width] = chroma
        else:
            memory[rows : rows + height, number : 2 * width : 2] = chroma
    return memory.view(np.uint8)


def _value(handle):
    return handle.value if hasattr(handle, "value") else int(handle)


def view(address, shape, strides, dtype=np.uint8):
    """Return an array over memory."""
    size = sum((side - 1) * stride for side, stride in zip(shape, strides))
    size += np.dtype(dtype).itemsize
    memory = (ctypes.c_uint8 * size).from_address(int(address))
    return np.ndarray(shape, dtype, memory, strides=strides)


class FakeKernel:
    """A kernel of `place_planes` in NumPy, by the same records."""

    def __init__(self, name, current):
        self.name = name
        self._current = current

    def launch(self, stream, grid, block, address, number=None):
        self._current.check_stream(stream)
        count, planes = divmod(grid[2], 3)
        assert count > 0 and planes == 0
        memory = (ctypes.c_uint8 * (count * FRAME.itemsize)).from_address(int(address))
        for frame in np.frombuffer(memory, FRAME):
            self._run(grid, block, frame, number)

    def _run(self, grid, block, frame, number):
        for z in range(3):
            if self.name == "place":
                values, canvas = self._placed(frame["surface"], z), frame["canvases"][0]
            else:
                canvas = frame["canvases"][int(number) + 1]
                values = self._shrunk(frame["canvases"][number], frame["axes"][number], z)
            if z and canvas["edge"]:
                values = np.pad(values, ((0, 1), (0, 1)), mode="edge")
            out = plane_of(canvas, z)
            out[: values.shape[0], : values.shape[1]] = values[: out.shape[0], : out.shape[1]]
        assert grid[1] * block[1] >= values.shape[0]
        # `place` goes along a row block by block
        assert self.name == "place" or grid[0] * block[0] >= values.shape[1]

    def _placed(self, surface, z):
        halved = bool(z and surface["halved"])
        step = 2 if surface["bits"] > 8 else 1
        height, width = (-(-int(surface[s]) // (1 + halved)) for s in ("height", "width"))
        row = (int(surface["top"]) >> halved) + int(surface["rows"]) * (1 if halved else z)
        left = int(surface["left"]) >> halved
        column = 2 * left + z - 1 if halved else left
        pitch = int(surface["pitch"])
        start = int(surface["pointer"]) + row * pitch + column * step
        strides = (pitch, step * (2 if halved else 1))
        values = view(start, (height, width), strides, np.uint8 if step == 1 else np.uint16)
        bits = int(surface["bits"])
        if bits > 8:
            values = ((values >> (16 - bits)).astype(int) + (1 << bits - 9)) >> (bits - 8)
        return np.rot90(np.minimum(values, 255).astype(np.uint8), int(surface["turns"]))

    def _shrunk(self, source, axis, z):
        name = "chroma" if z else "luma"
        out, taps = int(axis[f"{name}_out"]), int(axis[f"{name}_taps"])
        first = view(axis[f"{name}_first"], (out,), (4,), np.int32)
        weights = view(axis[f"{name}_weights"], (out, taps), (4 * taps, 4), np.int32)
        values = plane_of(source, z).astype(np.int64)
        values = values if axis["down"] else values.T
        values = np.pad(values, ((0, taps), (0, 0)))
        rows = [
            np.clip((weights[i] @ values[first[i] : first[i] + taps] + (1 << 21)) >> 22, 0, 255)
            for i in range(out)
        ]
        found = np.array(rows, np.uint8)[:, : int(axis[f"{name}_other"])]
        return found if axis["down"] else found.T


def plane_of(canvas, z):
    """Return a plane of a canvas record."""
    if not z:
        shape = int(canvas["luma_rows"]), int(canvas["luma_pitch"])
        return view(canvas["luma"], shape, (shape[1], 1))
    rows, pitch = int(canvas["chroma_rows"]), int(canvas["chroma_pitch"])
    start = int(canvas["chroma"]) + (z - 1) * rows * pitch
    return view(start, (rows, pitch), (pitch, 1))
