"""Videos for tests, encoded by PyAV, and what its own decoding of all frames gives."""

import functools
import io
import math
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

av = pytest.importorskip("av")


def picture(number: int, height: int, width: int) -> np.ndarray:
    """Smooth colors that move, and a bar as bright as the number of the frame."""
    y, x = np.mgrid[:height, :width]
    phases = (x / 9 + number / 3, y / 7 - number / 5, (x + y) / 11 + number / 4)
    image = np.stack([127 + 90 * np.sin(phase) for phase in phases], axis=-1)
    image[: height // 4] = 16 + 4 * number % 200
    return image.astype(np.uint8)


def woven(number: int, height: int, width: int) -> np.ndarray:
    """Planes of 4:2:0, below each other, whose rows are of two pictures in turn.

    The channels of `picture` are luma and chroma here. The height is a multiple of four.
    """
    fields = [picture(2 * number + field, height, width) for field in range(2)]
    luma = np.stack([fields[k][k::2, :, 0] for k in range(2)], axis=1)
    chroma = np.stack([fields[k][k::4, ::2, 1:] for k in range(2)], axis=1)
    planes = (luma, chroma[..., 0], chroma[..., 1])
    return np.concatenate([plane.reshape(-1, width) for plane in planes])


def video(
    count: int = 30,
    size: tuple[int, int] = (48, 64),
    *,
    codec: str = "libx264",
    container: str = "mp4",
    pix_fmt: str = "yuv420p",
    times: "Sequence[int] | None" = None,
    rate: int = 25,
    interlaced: bool = False,
    **options: str,
) -> bytes:
    """Return an encoded video, of frames at `times` / 1000 s or at a rate.

    If `interlaced`, frames are `woven`, and the options have the encoder say so. The container's
    name may be followed by an option of its own, "name:option=value".
    """
    file = io.BytesIO()
    container, _, option = container.partition(":")
    with av.open(
        file, "w", container, options=dict([option.split("=")] if option else [])
    ) as output:
        stream = output.add_stream(codec, rate, options=options)
        stream.width, stream.height, stream.pix_fmt = size[1], size[0], pix_fmt
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(count):
            image, form = (woven, "yuv420p") if interlaced else (picture, "rgb24")
            frame = av.VideoFrame.from_ndarray(image(number, *size), form)
            frame.pts = number if times is None else times[number]
            frame.time_base = Fraction(1, rate) if times is None else Fraction(1, 1000)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


GOPS = {"g": "12", "bf": "3", "preset": "medium", "x264-params": "scenecut=0"}
KINDS = {
    "h264": {**GOPS},
    "h264 open": {**GOPS, "x264-params": "open-gop=1:b-pyramid=normal:scenecut=0"},
    "h264 mkv": {"container": "matroska", **GOPS},
    "h264 avi": {"container": "avi", "g": "10", "bf": "0"},
    "mpeg4 avi": {"codec": "mpeg4", "container": "avi", "g": "8"},
    "mpeg4": {"codec": "mpeg4", "g": "6", "bf": "2"},
    "hevc": {"codec": "libx265", "g": "10", "x265-params": "log-level=none"},
    "vp9": {"codec": "libvpx-vp9", "container": "webm", "g": "9", "deadline": "realtime"},
    "odd": {"codec": "libvpx-vp9", "container": "webm", "size": (37, 53), "deadline": "realtime"},
    "10 bits": {"pix_fmt": "yuv420p10le", **GOPS},
    "4:4:4": {"pix_fmt": "yuv444p", "size": (35, 51), **GOPS},
    "4:2:2": {"pix_fmt": "yuv422p", **GOPS},
    "full range": {"pix_fmt": "yuvj420p", **GOPS},
    "variable rate": {"times": [n * 40 + (n * n * 7) % 31 for n in range(30)], **GOPS},
    "later start": {"times": [5000 + 40 * n for n in range(30)], **GOPS},
    "later start mkv": {"container": "matroska", "times": [5000 + 40 * n for n in range(30)]},
}

_X265 = {"codec": "libx265", "g": "10", "x265-params": "log-level=none"}
# Of containers that FFmpeg reads as a whole but for FLV and IVF, which hold packets as they are.
CONTAINERS = {
    "h264 ts": {"container": "mpegts", **KINDS["h264 open"]},
    "h264 m2ts": {"container": "mpegts:mpegts_m2ts_mode=1", **GOPS},
    "variable rate ts": {"container": "mpegts", **KINDS["variable rate"]},
    "refreshed ts": {"container": "mpegts", "x264-params": "intra-refresh=1:keyint=9"},
    "hevc ts": {"container": "mpegts", **_X265},
    "mpeg2 ts": {"container": "mpegts", "codec": "mpeg2video", "g": "8", "bf": "2"},
    "h264 flv": {"container": "flv", **GOPS},
    "variable rate flv": {"container": "flv", **KINDS["variable rate"]},
    "flv1 flv": {"container": "flv", "codec": "flv", "g": "8"},
    "mpeg2 ps": {"container": "vob", "codec": "mpeg2video", "g": "8", "bf": "2"},
    "mpeg1 ps": {"container": "mpeg", "codec": "mpeg1video", "g": "8", "bf": "2"},
    "vp8 ogg": {"container": "ogg", "codec": "libvpx", "g": "8", "deadline": "realtime"},
    "wmv": {"container": "asf", "codec": "wmv2", "g": "8"},
    "vp9 ivf": {"container": "ivf", "codec": "libvpx-vp9", "g": "9", "deadline": "realtime"},
    "h263 3gp": {"container": "3gp", "codec": "h263", "size": (144, 176), "g": "8"},
}
_MPEG2 = {"codec": "mpeg2video", "g": "8", "bf": "2"}
INTERLACED = {
    "interlaced h264": {"x264-params": "tff=1", "g": "12", "bf": "3"},
    "lower first": {"x264-params": "bff=1", "container": "matroska"},
    "interlaced mpeg2": {"container": "mpegts", "flags": "+ildct+ilme", **_MPEG2},
    "interlaced mpeg4": {"container": "avi", "codec": "mpeg4", "flags": "+ildct+ilme"},
}


@functools.cache
def kind(name: str) -> bytes:
    """Return the video of a kind of KINDS, CONTAINERS or INTERLACED, 30 frames."""
    if name in INTERLACED:
        return video(interlaced=True, **INTERLACED[name])
    return video(**(KINDS | CONTAINERS)[name])


def turned(data: bytes, degrees: int, mirrored: bool = False) -> bytes:
    """Return an MP4 whose "tkhd" mirrors it top to bottom or not, then turns it clockwise."""
    start = data.index(b"tkhd") + 4 + 40
    cos, sin = round(math.cos(math.radians(degrees))), round(math.sin(math.radians(degrees)))
    one = 1 << 16
    down = -one if mirrored else one
    matrix = (cos * one, sin * one, 0, -sin * down, cos * down, 0, 0, 0, 1 << 30)
    return data[:start] + struct.pack(">9i", *matrix) + data[start + 36 :]


def edited(data: bytes, *edits: tuple[int, int]) -> bytes:
    """Return an MP4 of these edits: milliseconds, and the frame that is shown first, -1 for none.

    Its first edit tells when its first frame is shown: ISO 14496-12 section 8.6.6.
    """
    box = data.index(b"elst") - 4
    end = box + int.from_bytes(data[box : box + 4], "big")
    (first,) = struct.unpack_from(">i", data, box + 20)
    places = [(ticks, -1 if frame < 0 else first + 512 * frame) for ticks, frame in edits]
    entries = b"".join(struct.pack(">IiHH", *place, 1, 0) for place in places)
    content = b"elst" + struct.pack(">II", 0, len(edits)) + entries
    made = bytearray(data[:box] + struct.pack(">I", 4 + len(content)) + content + data[end:])
    for name in (b"edts", b"trak", b"moov"):
        start = data.index(name) - 4
        size = int.from_bytes(data[start : start + 4], "big") + len(made) - len(data)
        made[start : start + 4] = struct.pack(">I", size)
    return bytes(made)


@functools.cache
def all_frames(data: bytes) -> list:
    """Return all frames as PyAV decodes them from the start."""
    with av.open(io.BytesIO(data)) as container:
        return list(container.decode(container.streams.video[0]))
