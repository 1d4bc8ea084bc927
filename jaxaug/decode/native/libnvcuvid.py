"""The functions of NVIDIA's video decoder that jaxaug calls, with status codes as exceptions.

Names, layouts and meanings: https://docs.nvidia.com/video-technologies/video-codec-sdk/, the
interface of version 9 and later. The library comes with the driver. ctypes releases the GIL during
each call, and takes it for each callback.
"""

import ctypes
import functools
from ctypes import (
    POINTER,
    Structure,
    c_int,
    c_longlong,
    c_short,
    c_ubyte,
    c_uint,
    c_ulong,
    c_ulonglong,
    c_ushort,
    c_void_p,
)
from typing import Any

from jaxaug.decode.native.load_library import declare, load_library

# cudaVideoCodec by FFmpeg's names
CODECS = {"mpeg1video": 0, "mpeg2video": 1, "mpeg4": 2, "vc1": 3, "h264": 4, "hevc": 8}
CODECS |= {"vp8": 9, "vp9": 10, "av1": 11}
# cudaVideoSurfaceFormat
NV12, P016, YUV444, YUV444_16 = 0, 1, 2, 3
# CUvideopacketflags
END_OF_STREAM, TIMESTAMP, END_OF_PICTURE = 1, 2, 8
# cuvidDecodeStatus
IN_PROGRESS, SUCCESS, ERROR, CONCEALED = 1, 2, 8, 9

NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Rectangle(Structure):
    """A part of a frame, as a decoder takes it."""

    _fields_ = _fields(c_short, "left top right bottom")


class _Area(Structure):
    _fields_ = _fields(c_int, "left top right bottom")


class Format(Structure):
    """CUVIDEOFORMAT: what the headers of a stream tell."""

    _fields_ = [
        *_fields(c_int, "codec"),
        *_fields(c_uint, "rate_numerator rate_denominator"),
        *_fields(c_ubyte, "progressive luma_bits_minus8 chroma_bits_minus8 min_surfaces"),
        *_fields(c_uint, "coded_width coded_height"),
        ("display_area", _Area),
        *_fields(c_int, "chroma_format"),
        *_fields(c_uint, "bitrate"),
        *_fields(c_int, "aspect_x aspect_y"),
        *_fields(c_ubyte, "signal primaries transfer matrix"),
        *_fields(c_uint, "header_length"),
    ]


class Capabilities(Structure):
    """CUVIDDECODECAPS: what the engines decode; the first three are asked."""

    _fields_ = [
        *_fields(c_int, "codec chroma_format"),
        *_fields(c_uint, "bits_minus8"),
        ("reserved1", c_uint * 3),
        *_fields(c_ubyte, "supported engines"),
        *_fields(c_ushort, "outputs"),
        *_fields(c_uint, "max_width max_height max_macroblocks"),
        *_fields(c_ushort, "min_width min_height"),
        *_fields(c_ubyte, "histogram counter_bits"),
        *_fields(c_ushort, "histogram_bins"),
        ("reserved2", c_uint * 10),
    ]


class CreateInfo(Structure):
    """CUVIDDECODECREATEINFO."""

    _fields_ = [
        *_fields(c_ulong, "width height surfaces"),
        *_fields(c_int, "codec chroma_format"),
        *_fields(c_ulong, "flags bits_minus8 intra_only max_width max_height reserved1"),
        ("display_area", Rectangle),
        *_fields(c_int, "output deinterlace"),
        *_fields(c_ulong, "target_width target_height outputs"),
        ("lock", c_void_p),
        ("target", Rectangle),
        *_fields(c_ulong, "histogram"),
        ("reserved2", c_ulong * 4),
    ]


class ReconfigureInfo(Structure):
    """CUVIDRECONFIGUREDECODERINFO."""

    _fields_ = [
        *_fields(c_uint, "width height target_width target_height surfaces"),
        ("reserved1", c_uint * 12),
        ("display_area", Rectangle),
        ("target", Rectangle),
        ("reserved2", c_uint * 11),
    ]


class MapParameters(Structure):
    """CUVIDPROCPARAMS: how a surface is made readable."""

    _fields_ = [
        *_fields(c_int, "progressive second_field top_field_first unpaired_field"),
        *_fields(c_uint, "reserved1 reserved2"),
        *_fields(c_ulonglong, "raw_input"),
        *_fields(c_uint, "raw_input_pitch raw_input_format"),
        *_fields(c_ulonglong, "raw_output"),
        *_fields(c_uint, "raw_output_pitch reserved3"),
        ("stream", c_void_p),
        ("reserved4", c_uint * 46),
        ("histogram", c_void_p),
        ("reserved5", c_void_p * 1),
    ]


class DecodeStatus(Structure):
    """CUVIDGETDECODESTATUS."""

    _fields_ = [("status", c_int), ("reserved1", c_uint * 31), ("reserved2", c_void_p * 8)]


class Packet(Structure):
    """CUVIDSOURCEDATAPACKET."""

    _fields_ = [
        *_fields(c_ulong, "flags size"),
        ("payload", c_void_p),
        ("timestamp", c_longlong),
    ]


class Picture(Structure):
    """The start of CUVIDPICPARAMS; the rest is between the parser and the decoder."""

    _fields_ = _fields(c_int, "width_in_macroblocks height_in_macroblocks surface")


class Shown(Structure):
    """CUVIDPARSERDISPINFO: a picture that the stream shows now."""

    _fields_ = [
        *_fields(c_int, "surface progressive top_field_first repeat_first_field"),
        ("timestamp", c_longlong),
    ]


SequenceCallback = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Format))
DecodeCallback = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Picture))
ShowCallback = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Shown))


class ParserParameters(Structure):
    """CUVIDPARSERPARAMS."""

    _fields_ = [
        *_fields(c_int, "codec"),
        *_fields(c_uint, "surfaces clock_rate error_threshold max_delay flags"),
        ("reserved1", c_uint * 4),
        ("user", c_void_p),
        ("on_sequence", SequenceCallback),
        ("on_decode", DecodeCallback),
        ("on_show", ShowCallback),
        ("on_operating_point", c_void_p),
        ("on_message", c_void_p),
        ("reserved2", c_void_p * 5),
        ("extended", c_void_p),
    ]


_OUT = POINTER(c_void_p)  # receives a new object
_PROTOTYPES: dict[str, tuple] = {
    "cuvidGetDecoderCaps": (POINTER(Capabilities),),
    "cuvidCreateVideoParser": (_OUT, POINTER(ParserParameters)),
    "cuvidParseVideoData": (c_void_p, POINTER(Packet)),
    "cuvidDestroyVideoParser": (c_void_p,),
    "cuvidCreateDecoder": (_OUT, POINTER(CreateInfo)),
    "cuvidReconfigureDecoder": (c_void_p, POINTER(ReconfigureInfo)),
    "cuvidDestroyDecoder": (c_void_p,),
    "cuvidDecodePicture": (c_void_p, c_void_p),
    "cuvidGetDecodeStatus": (c_void_p, c_int, POINTER(DecodeStatus)),
    "cuvidMapVideoFrame64": (
        c_void_p,
        c_int,
        POINTER(c_ulonglong),
        POINTER(c_uint),
        POINTER(MapParameters),
    ),
    "cuvidUnmapVideoFrame64": (c_void_p, c_ulonglong),
}


class CuvidError(RuntimeError):
    """A function of the video decoder did not succeed; `status` is its CUresult."""

    def __init__(self, function: str, status: int):
        self.status = status
        super().__init__(f"{function}: CUresult {status}")


@functools.cache
def _find() -> tuple[ctypes.CDLL, str]:
    return load_library(
        names=("libnvcuvid.so.1",),
        folders=(),
        variable="JAXAUG_NVCUVID",
        advice="It comes with NVIDIA's driver; containers need the driver capability `video`.",
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Return libnvcuvid with its prototypes set; it is loaded once.

    Raises:
      LibraryError: it is not installed, or too old.
    """
    loaded, found_at = _find()
    update = "Update the driver."
    declare(loaded, _PROTOTYPES, check=_check, found_at=found_at, update=update)
    return loaded


def path() -> str:
    """Return the path of the loaded library."""
    return _find()[1]


def _check(status: int, function: Any, arguments: tuple) -> int:
    if status:
        raise CuvidError(function.__name__, status)
    return status
