"""What headers of H.264 in MP4 tell is what FFmpeg finds when it decodes to open a file."""

import dataclasses
import random

import numpy as np
import pytest

from jaxaug.decode.video import host, stream
from jaxaug.decode.video.host import completed_codec, decode_frames
from jaxaug.decode.video.mp4_headers import read_headers
from jaxaug.decode.video.nal import Bits
from jaxaug.decode.video.stream import VideoFile
from jaxaug.errors import DecodeError
from tests.videos import GOPS, kind, turned, video

pytest.importorskip("av")
FEW = 4  # frames looked at
COLORS = "colormatrix=bt709:colorprim=bt709:transfer=bt709:fullrange=on:scenecut=0"
BUFFERED = "nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500:pic-struct=1:scenecut=0"


def opened(monkeypatch, data, probe):
    """Return what is known of a video and of its first frames, and whether FFmpeg probed it."""
    with monkeypatch.context() as patched:
        if probe:
            patched.setattr(stream, "read_headers", lambda data: None)
        try:
            with VideoFile(memoryview(data), 2**20) as file:
                probed = file._probed
                table = {
                    f.name: getattr(file.table, f.name) for f in dataclasses.fields(file.table)
                }
                return {"probed": probed, **table, "frames": frames(file), "completed": said(file)}
        except DecodeError as error:
            return {"error": str(error)}


def said(file):
    try:
        return completed_codec(file)
    except DecodeError as error:
        return str(error)


def frames(file):
    try:
        numbers = np.arange(min(FEW, len(file.table.frames)))
        return sorted(
            (number, *(plane.tobytes() for plane in planes[:2]), *planes[2:])
            for number, planes in decode_frames(file, numbers)
        )
    except DecodeError as error:
        return str(error)


def check(monkeypatch, data, without=()):
    """Compare both ways of opening; return True where headers were enough."""
    found, expected = (opened(monkeypatch, data, probe) for probe in (False, True))
    assert found.keys() == expected.keys()
    for name in found.keys() - {"probed", *without}:
        np.testing.assert_equal(found[name], expected[name], err_msg=name)
    return not found.get("probed", True)


FILES = {
    "h264": lambda: kind("h264"),
    "4:4:4": lambda: kind("4:4:4"),
    "4:2:2": lambda: kind("4:2:2"),
    "10 bits": lambda: kind("10 bits"),
    "full range": lambda: kind("full range"),
    "variable rate": lambda: kind("variable rate"),
    "odd": lambda: video(4, (50, 70)),
    "colors": lambda: video(4, **{**GOPS, "x264-params": COLORS}),
    "buffered": lambda: video(4, **{**GOPS, "x264-params": BUFFERED}),
    "in each packet": lambda: video(4, **{**GOPS, "x264-params": "repeat-headers=1"}),
    "baseline": lambda: video(4, profile="baseline"),
    "90": lambda: turned(kind("h264"), 90),
    "180": lambda: turned(kind("h264"), 180),
    "270": lambda: turned(kind("h264"), 270),
}


@pytest.mark.parametrize("name", FILES)
def test_headers_tell_what_a_decoder_does(monkeypatch, name):
    assert check(monkeypatch, FILES[name]())


def test_what_headers_do_not_tell_is_probed(monkeypatch):
    interlaced = video(4, **{**GOPS, "x264-params": "interlaced=1"})
    fragmented = video(8, container="mp4:movflags=frag_keyframe", **GOPS)
    for data in (interlaced, fragmented, kind("hevc"), kind("h264 open"), kind("mpeg4")):
        assert not check(monkeypatch, data)


def test_a_first_packet_may_tell_otherwise():
    headers = read_headers(memoryview(kind("h264")))
    assert headers is not None
    with VideoFile(memoryview(kind("h264")), 2**20) as file:
        codec = file.table.codec

    def packet(*unit):
        return len(unit).to_bytes(4, "big") + bytes(unit)

    upright, lying = packet(6, 5, 1, 0, 128), packet(6, 47, 3, 0, 0, 0, 128)
    assert headers.turned(codec, upright) == dataclasses.replace(codec, rotation=0)
    assert headers.turned(codec, upright + lying) is None
    assert headers._replace(rotation=None).turned(codec, upright) is None


def test_frames_that_are_not_shown_have_the_file_probed(monkeypatch):
    """As where the order of pictures is told wrong: what FFmpeg learns by decoding helps."""
    pictures, seen = host._pictures, []

    def late(file, numbers):
        seen.append(file._probed)
        found = list(pictures(file, numbers))
        return iter(found if file._probed else found[: len(found) // 2])

    monkeypatch.setattr(host, "_pictures", late)
    assert check(monkeypatch, kind("h264")) is True
    assert seen[:2] == [False, True]


def test_damage_is_judged_as_by_probing(monkeypatch):
    data, rng = kind("h264"), random.Random(0)
    described, packets = data.rindex(b"avc1"), data.index(b"mdat")
    for _ in range(40):
        damaged = bytearray(data)
        first, size = rng.choice([(described - 20, 180), (packets + 4, 900)])
        damaged[first + rng.randrange(size)] ^= 1 << rng.randrange(8)
        # What is damaged has no color, until a frame has been decoded.
        check(monkeypatch, bytes(damaged), without=("codec",))


def test_damaged_sequences_may_ask_for_any_number_of_bits():
    bits = Bits(bytes([0b1011_0000]))
    assert bits.take(3) == 0b101
    bits.take(2**40)
    assert bits.take(5) == 0 and not bits.whole
