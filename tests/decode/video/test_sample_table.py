"""Tables read from those of an MP4 are what demuxing gives, or are left to it."""

import dataclasses
import random
import types

import numpy as np
import pytest

from jaxaug.decode.video import demux
from jaxaug.decode.video.sample_table import read_samples
from jaxaug.decode.video.stream import VideoFile
from jaxaug.errors import DecodeError
from tests.videos import KINDS, edited, kind, turned, video

av = pytest.importorskip("av")
COLUMNS = ("times", "keyframes", "shown", "disposable", "offsets", "sizes")
STUFFED = {
    "g": "8",
    "x264-params": "aud=1:pic-struct=1:nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500",
}
REFRESHED = {"x264-params": "intra-refresh=1:keyint=9"}


def read(data):
    """Return the table of a video, or what is wrong with it."""
    try:
        with VideoFile(memoryview(data), 2**20) as file:
            return file.table, file.whole
    except DecodeError as error:
        return str(error), True


def check(monkeypatch, data):
    """Compare both ways; return True where the tables of the file were enough."""
    told = []

    def watched(*given):
        told.append(read_samples(*given))
        return told[-1]

    read_samples = demux.read_samples
    with monkeypatch.context() as patched:
        patched.setattr(demux, "read_samples", watched)
        found, whole = read(data)
        patched.setattr(demux, "read_samples", lambda *given: None)
        expected, expected_whole = read(data)
    assert whole == expected_whole
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
    else:
        none = dict.fromkeys(COLUMNS)
        assert dataclasses.replace(found, **none) == dataclasses.replace(expected, **none)
        for name in COLUMNS:
            one, other = getattr(found, name), getattr(expected, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other, err_msg=name)
    return any(each is not None for each in told)


@pytest.mark.parametrize(
    "name", ["h264", "hevc", "10 bits", "4:2:2", "variable rate", "later start"]
)
def test_tables_are_those_of_demuxing(monkeypatch, name):
    assert check(monkeypatch, kind(name))


def test_what_tables_do_not_tell_is_demuxed(monkeypatch):
    assert not check(monkeypatch, kind("mpeg4"))
    assert not check(monkeypatch, video(1))  # all have one size
    assert not check(monkeypatch, kind("h264 open"))  # a message marks where decoding may begin
    assert not check(monkeypatch, video(12, **REFRESHED))
    fragments = {"container": "mp4:movflags=frag_keyframe+empty_moov"}
    assert not check(monkeypatch, video(12, **fragments))
    hybrid = {"container": "mp4:movflags=frag_keyframe", "g": "5"}
    assert not check(monkeypatch, video(12, **hybrid))
    for interlaced in ("tff=1", "fake-interlaced=1"):
        assert not check(monkeypatch, video(12, **{"x264-params": interlaced}))
    with_no_keyframes = kind("h264").replace(b"stss", b"free")
    assert not check(monkeypatch, with_no_keyframes)


def test_messages_in_every_packet_and_turned_videos(monkeypatch):
    assert check(monkeypatch, video(20, **STUFFED))
    assert check(monkeypatch, turned(kind("h264"), 90, True))
    assert check(monkeypatch, video(20, container="mov", **KINDS["h264"]))


@pytest.mark.parametrize("name", ["h264", "hevc"])
@pytest.mark.parametrize(
    "edits",
    [
        [(1200, 0)],
        [(400, 3)],
        [(200, -1), (400, 0)],
        [(400, 0), (400, 15)],
        [(400, 14), (400, 2)],
        [(1200, 0), (1200, 0)],
    ],
)
def test_edits_are_followed_or_left_to_demuxing(monkeypatch, name, edits):
    whole = check(monkeypatch, edited(kind(name), *edits))
    assert whole or len(edits) > 1 or edits[0][1] > 0


@pytest.mark.parametrize("name", ["h264", "hevc"])
def test_damaged_tables_are_judged_as_by_demuxing(monkeypatch, name):
    rng = random.Random(name)
    data = kind(name)
    boxes = [b"stts", b"ctts", b"stsc", b"stsz", b"stco", b"stss", b"sdtp", b"elst", b"stsd"]
    enough = 0
    for _ in range(120):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 2])):
            start = data.find(rng.choice([box for box in boxes if box in data]))
            size = int.from_bytes(data[start - 4 : start], "big")
            place = start + rng.randrange(-4, min(size - 4, 120))
            changed[place] = rng.choice([0, 1, 2, 255, changed[place] ^ 1, rng.randrange(256)])
        enough += check(monkeypatch, bytes(changed))
    assert 10 < enough < 110


@pytest.mark.parametrize("start", ["00410118", "00000000"])
def test_lengths_that_cannot_be_are_judged_as_by_demuxing(monkeypatch, start):
    data = bytearray(kind("h264"))
    table, _ = read(data)
    place = int(table.offsets[np.flatnonzero(table.keyframes)[1]])
    damage = bytes.fromhex(start)
    data[place : place + len(damage)] = damage
    check(monkeypatch, bytes(data))


@pytest.mark.parametrize("packet, header", [(12, 0x65), (2, 0x05)])
def test_key_packets_of_predicted_slices_are_judged_as_by_demuxing(monkeypatch, packet, header):
    data = bytearray(kind("h264"))
    table, _ = read(data)
    assert table.keyframes[packet] == (packet == 12)
    start = int(table.offsets[packet]) + 4
    data[start : start + 2] = header, 0b11011111
    check(monkeypatch, bytes(data))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h264", "h264 open", "hevc", "variable rate"])
def test_any_damage_in_front_of_the_packets(monkeypatch, name):
    rng = random.Random(name)
    data = kind(name)
    start = data.find(b"moov")
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 3])):
            place = rng.randrange(start, len(data))
            changed[place] = rng.choice([0, 1, 255, changed[place] ^ 1, rng.randrange(256)])
        check(monkeypatch, bytes(changed))


@pytest.mark.parametrize("size, count", [(1, 10**8), (0, 10**8)])
def test_samples_that_a_file_only_claims_are_not_listed(size, count):
    """An index of them takes seconds and a gigabyte."""
    data = bytearray(video(12, (64, 96)))
    place = data.index(b"stsz") + 4
    data[place + 4 : place + 12] = size.to_bytes(4, "big") + count.to_bytes(4, "big")

    class Opened:
        id = 1

        @property
        def index_entries(self):
            raise AssertionError("the samples were listed")

    references = types.SimpleNamespace(by_lengths=True)
    assert read_samples(memoryview(data), Opened(), None, references) is None
