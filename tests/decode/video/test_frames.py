"""Frames of videos: the planes, numbers and times that a decoding of the whole file gives."""

import ctypes
import dataclasses
import hashlib
import io
import re
import struct
import subprocess
from fractions import Fraction

import av
import numpy as np
import pytest

from jaxaug.decode import Encoded, decode_video
from jaxaug.decode.video import references
from jaxaug.decode.video.fields import SecondFields
from jaxaug.decode.video.host import decode_frames
from jaxaug.decode.video.planes import planes_of
from jaxaug.decode.video.pyav import make_packet
from jaxaug.decode.video.references import References
from jaxaug.decode.video.stored import read_videos
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Codec, Table
from jaxaug.errors import DecodeError
from tests.decode.video.fields import copied, fields, parameters, written
from tests.videos import (
    CONTAINERS,
    GOPS,
    INTERLACED,
    KINDS,
    all_frames,
    edited,
    kind,
    turned,
    video,
)

MAX_PIXELS = 2**20


def decoded(data, numbers):
    """{number: planes} of some frames, and how many packets that took."""
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        frames = {each.number: each.planes for each in decode_frames(file, np.array(numbers))}
        return frames, file.packets_read


@pytest.mark.parametrize("name", [*KINDS, *CONTAINERS, *INTERLACED])
def test_any_frames_are_those_of_the_whole_video(name):
    assert len(all_frames(kind(name))) == 30
    check_frames(kind(name))


def check_frames(data):
    """Compare any frames with those that PyAV decodes from the start."""
    expected = all_frames(data)
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 8, len(expected)):
        numbers = rng.choice(len(expected), count, replace=False)
        found, _ = decoded(data, numbers)
        assert set(found) == set(numbers.tolist())
        for number, planes in found.items():
            whole = planes_of(expected[number], Codec())
            np.testing.assert_array_equal(planes.luma, whole.luma)
            np.testing.assert_array_equal(planes.chroma, whole.chroma)
            assert planes.interlaced == whole.interlaced


def test_zeros_follow_a_packet_whatever_its_file_holds_there():
    """FFmpeg reads up to 64 bytes more: those of the next packet cost MPEG-4 a picture."""
    packet = make_packet(memoryview(bytes([255] * 100))[:10])
    found = ctypes.string_at(packet.buffer_ptr, 10 + 64)
    assert (packet.size, found) == (10, bytes([255] * 10) + bytes(64))


@pytest.mark.parametrize("name", ["h264 ts", "mpeg2 ts", "hevc ts"])
def test_a_recording_may_begin_between_key_frames(name):
    """Its frames are those that FFmpeg decodes, from the first key frame on."""
    packets = np.frombuffer(kind(name), np.uint8).reshape(-1, 188)
    data = packets[len(packets) // 4 :].tobytes()
    assert len(all_frames(data)) < 30
    check_frames(data)
    check_times(data)
    assert len(decode_video(data)) == len(all_frames(data))


def test_decoding_begins_at_no_picture_that_needs_others_whatever_is_marked():
    data = kind("h263 3gp")
    place = data.index(b"stss") + 16  # the second key frame, from 1
    assert data[place : place + 4] == struct.pack(">I", 9)
    check_frames(data[:place] + struct.pack(">I", 11) + data[place + 4 :])


def test_hidden_frames_of_vp9_are_no_frames():
    """In packets of their own; mostly they are joined with one that is shown."""
    data = bytearray(kind("vp9 ivf"))
    place = 32  # behind the file's header
    for _ in range(9):
        place += 12 + int.from_bytes(data[place : place + 4], "little")
    assert data[place + 12] == 0b10000010  # a key frame of profile 0 that is shown
    data[place + 12] ^= 0b10
    hidden = bytes(data)
    assert len(all_frames(hidden)) == 29
    assert len(decode_video(hidden)) == 29
    check_frames(hidden)
    check_times(hidden)


@pytest.mark.parametrize("container", ["mp4", "matroska", "mpegts"])
def test_what_old_encoders_wrote_is_decoded_so_from_any_key_frame(container):
    """The first packet alone tells of them: before build 151 x264 had its own way of 4:4:4."""
    lossless = {"qp": "0", "x264-params": "cabac=0:scenecut=0"}  # of which only pixels differ
    data = video(container=container, **{**KINDS["4:4:4"], "size": (64, 96), **lossless})
    new = next(re.finditer(rb"x264 - core (\d+)", data))[1]
    old = data.replace(b"x264 - core " + new, b"x264 - core 142")
    assert any(
        (planes_of(a, Codec()).luma != planes_of(b, Codec()).luma).any()
        for a, b in zip(all_frames(data), all_frames(old))
    )
    check_frames(old)
    with VideoFile(memoryview(old), MAX_PIXELS) as file:
        message = file.table.codec.message
        assert b"core 142" in message
        assert Table.from_bytes(file.table.to_bytes()).codec.message == message
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        assert not file.table.codec.message


def test_joined_recordings_whose_clock_jumps_back_stay_in_order():
    later = video(container="mpegts", times=[50_000 + 40 * n for n in range(30)], **GOPS)
    check_frames(later + video(20, container="mpegts", **GOPS))


class Late:
    """A container of PyAV that fails behind the last packet, as where others' streams came late."""

    def __init__(self, container):
        self._container = container

    def __getattr__(self, name):
        return getattr(self._container, name)

    def demux(self, stream):
        yield from self._container.demux(stream)
        raise IndexError("list index out of range")


def test_streams_that_begin_within_a_file_are_other_ones(monkeypatch):
    data = kind("h264 ts")
    opened = av.open
    monkeypatch.setattr(av, "open", lambda *args, **options: Late(opened(*args, **options)))
    assert len(decode_video(data, frames=[0, -1])) == 2


@pytest.mark.parametrize("name", [*KINDS, *CONTAINERS])
def test_times_are_those_of_the_stream(name):
    check_times(kind(name))


def check_times(data):
    """Compare the times of all frames with PyAV's."""
    expected = [frame.time for frame in all_frames(data)]
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        np.testing.assert_allclose(file.table.seconds, expected, rtol=0, atol=1e-9)


def test_a_later_start_and_a_variable_rate_are_what_was_written():
    for name in ("variable rate", "later start", "later start mkv"):
        with VideoFile(memoryview(kind(name)), MAX_PIXELS) as file:
            times = np.array(KINDS[name]["times"]) / 1000
            np.testing.assert_allclose(file.table.seconds, times, rtol=0, atol=1e-4)


def test_only_packets_of_wanted_groups_are_decoded_and_no_idle_b_frames():
    data = kind("h264")  # a key frame each 12 frames, two of three others are non-reference
    assert decoded(data, [0])[1] == 1
    assert decoded(data, [12])[1] == 1
    assert decoded(data, [0, 24])[1] == 2
    assert decoded(data, range(30))[1] == 30
    _, packets = decoded(data, [11])
    assert packets <= 9  # of twelve


def test_key_frames_of_open_groups_are_not_where_leading_frames_begin():
    # in decoding order, shown at: I0 P3 B1 B2 | I6 B4 B5
    times = np.array([0, 3, 1, 2, 6, 4, 5])
    keyframes = np.array([1, 0, 0, 0, 1, 0, 0], bool)
    none = np.zeros(7, np.int64)
    flags = {"keyframes": keyframes, "shown": np.ones(7, bool), "disposable": np.zeros(7, bool)}
    table = Table(times=times, **flags, offsets=none, sizes=none)
    assert table.frames.tolist() == [0, 2, 3, 1, 5, 6, 4]
    (run,) = table.runs(np.array([4]))  # B4
    assert run.tolist() == [0, 1, 2, 3, 4, 5]
    runs = table.runs(np.array([6, 1]))  # I6 and B1
    assert [run.tolist() for run in runs] == [[0, 1, 2], [4]]
    some = dataclasses.replace(table, disposable=np.isin(np.arange(7), (2, 3, 5)))
    assert [run.tolist() for run in some.runs(np.array([2, 6]))] == [[0, 1, 3], [4]]
    # Where a packet that is decoded later lies in front, and one amid the others is the largest.
    places = {"offsets": np.array([0, 90, 40, 20, 60, 50, 70]), "sizes": np.arange(10, 80, 10)}
    assert dataclasses.replace(table, **places).bytes_of(np.array([1])) == (0, 110)
    with pytest.raises(DecodeError, match="no key frame comes before"):
        dataclasses.replace(table, keyframes=np.zeros(7, bool)).runs(np.array([0]))


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("name", ["h264", "4:4:4"])
def test_turned_videos_are_upright(name, degrees):
    found, _ = decoded(turned(kind(name), degrees), [7])
    stored = planes_of(all_frames(kind(name))[7], Codec())
    np.testing.assert_array_equal(found[7].luma, np.rot90(stored.luma, -degrees // 90))
    chroma = np.rot90(stored.chroma, -degrees // 90, axes=(1, 2))
    np.testing.assert_array_equal(found[7].chroma, chroma)
    siting = {0: (0, -1), 90: (-1, 0), 180: (0, 1), 270: (1, 0)}[degrees]
    assert found[7].color[2:] == (siting if name == "h264" else (0, 0))


@pytest.mark.parametrize("degrees, orientation", [(0, 4), (90, 5), (180, 2), (270, 7)])
def test_mirrored_videos_are_upright(degrees, orientation):
    data = turned(kind("h264"), degrees, mirrored=True)
    planes = decoded(data, [7])[0][7]
    stored = planes_of(all_frames(kind("h264"))[7], Codec())
    np.testing.assert_array_equal(planes.luma, np.rot90(stored.luma[::-1], -degrees // 90))
    chroma = np.rot90(stored.chroma[:, ::-1], -degrees // 90, axes=(1, 2))
    np.testing.assert_array_equal(planes.chroma, chroma)
    assert planes.orientation == orientation
    (table,) = read_videos(Encoded.from_bytes([data])).tables
    with VideoFile(memoryview(data), MAX_PIXELS, Table.from_bytes(table)) as file:
        (again,) = decode_frames(file, np.array([7]))
    np.testing.assert_array_equal(again.planes.luma, planes.luma)


def test_a_last_box_that_is_cut_within_its_long_size():
    data = kind("h264")
    place = data.index(b"moov") - 4
    size = int.from_bytes(data[place : place + 4], "big")
    assert place + size == len(data)
    longer = data[:place] + (size + 12).to_bytes(4, "big") + data[place + 4 :]
    cut = longer + (1).to_bytes(4, "big") + b"free" + bytes(4)
    np.testing.assert_array_equal(decode_video(cut), decode_video(data))


@pytest.mark.parametrize("degrees, mirrored", [(180, False), (0, True), (90, False)])
def test_turned_interlaced_videos_have_the_colors_of_their_fields(degrees, mirrored):
    data = kind("interlaced h264")
    upright = (
        decode_video(data, frames=[7])[:, ::-1] if mirrored else decode_video(data, frames=[7])
    )
    found = decode_video(turned(data, degrees, mirrored), frames=[7])
    wanted = np.rot90(upright, -degrees // 90, axes=(1, 2)).astype(int)
    assert np.abs(found - wanted).mean() < 3


@pytest.mark.parametrize("degrees, mirrored", [(180, False), (0, True), (90, False)])
def test_turned_videos_of_odd_sides_have_the_colors_of_their_pixels(degrees, mirrored):
    """A row of chroma that has one row of luma is the last of a frame, not the first."""
    data = video(3, (37, 53), codec="libvpx-vp9", deadline="realtime")
    upright = decode_video(data)[:, ::-1] if mirrored else decode_video(data)
    found = decode_video(turned(data, degrees, mirrored))
    wanted = np.rot90(upright, -degrees // 90, axes=(1, 2)).astype(int)
    assert np.abs(found - wanted).mean() < 3


@pytest.mark.parametrize("space, name", [(8, "YCgCo"), (10, "BT.2020 with constant luminance")])
def test_colors_of_a_matrix_of_another_kind_are_refused(space, name):
    frame = av.VideoFrame.from_ndarray(np.zeros((48, 32), np.uint8), format="yuv420p")
    frame.colorspace = space
    with pytest.raises(DecodeError, match=f"the matrix of its colors is {name}, which is not read"):
        planes_of(frame, Codec())


REFRESHED = {"x264-params": "intra-refresh=1:keyint=6"}


def test_decoding_does_not_begin_where_a_picture_is_refreshed_part_by_part():
    data = video(24, (64, 96), **REFRESHED)
    expected = all_frames(data)
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        assert np.flatnonzero(file.table.keyframes).tolist() == [0]  # the container says four
    for numbers in ([7], [23], [6, 13], range(24)):
        for number, planes in decoded(data, numbers)[0].items():
            np.testing.assert_array_equal(planes.luma, planes_of(expected[number], Codec()).luma)


@pytest.mark.parametrize(
    "codec, container",
    [("libx264", "avi"), ("mpeg4", "avi"), ("libx264", "asf"), ("mpeg2video", "asf")],
)
def test_frames_without_times_of_presentation_are_in_the_order_of_their_decoder(codec, container):
    """AVI and ASF have times of decoding alone."""
    data = video(15, codec=codec, container=container, bf="2")
    expected = all_frames(data)
    for numbers in ([4], [14], [3, 9], range(len(expected))):
        found = decoded(data, numbers)[0]
        assert found.keys() == set(numbers)
        for number, planes in found.items():
            np.testing.assert_array_equal(planes.luma, planes_of(expected[number], Codec()).luma)


@pytest.mark.parametrize("container", ["mpegts", "matroska"])
def test_a_recording_may_begin_while_pictures_are_refreshed_part_by_part(container):
    """No key frame comes then, nor later; FFmpeg tells where all parts have come."""
    data = video(40, container="mpegts", **{"x264-params": "intra-refresh=1:keyint=10:bframes=2"})
    packets = np.frombuffer(data, np.uint8).reshape(-1, 188)
    data = packets[len(packets) // 4 :].tobytes()
    if container != "mpegts":
        data = copied(container, data)
    expected = all_frames(data)
    assert 5 < len(expected) < 30
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        times = [frame.time for frame in expected]
        np.testing.assert_allclose(file.table.seconds, times, atol=1e-6)
    for numbers in ([4], [0, len(expected) - 1], range(len(expected))):
        found = decoded(data, numbers)[0]
        assert found.keys() == set(numbers)
        for number, planes in found.items():
            np.testing.assert_array_equal(planes.luma, planes_of(expected[number], Codec()).luma)


def test_an_avi_with_b_frames_keeps_the_gaps_between_its_frames():
    """All of them later by what the decoder waits for; a table of an index knows them."""
    times = [40 * (n + 10 * (n > 4) + 15 * (n > 11)) for n in range(15)]
    data = video(15, container="avi", bf="2", times=times)
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        table = file.table
    late = table.seconds - np.array(times) / 1000
    np.testing.assert_allclose(late, 0.08, atol=0.002)
    np.testing.assert_array_equal(Table.from_bytes(table.to_bytes()).seconds, table.seconds)


@pytest.mark.parametrize("codec", ["h261", "h263"])
def test_decoding_begins_with_the_first_frame_where_parsers_mark_every_one(codec):
    data = video(20, (144, 176), codec=codec, container="avi", g="8")
    expected = all_frames(data)
    for numbers in ([10], [19], [3, 14], range(20)):
        for number, planes in decoded(data, numbers)[0].items():
            np.testing.assert_array_equal(planes.luma, planes_of(expected[number], Codec()).luma)


def test_an_edit_list_hides_frames():
    """Twice as long a group of pictures, cut by an edit list to begin at its fifth frame."""
    data = bytearray(kind("h264"))
    start = data.index(b"elst") + 4
    # version and flags, count, duration, media time, rate: ISO 14496-12 section 8.6.6
    before = int.from_bytes(data[start + 12 : start + 16], "big")
    ticks = 12800 // 25
    data[start + 12 : start + 16] = (before + 5 * ticks).to_bytes(4, "big")
    cut = bytes(data)
    expected = all_frames(cut)
    assert len(expected) == 25
    with VideoFile(memoryview(cut), MAX_PIXELS) as file:
        assert len(file.table.frames) == 25
        assert file.table.seconds[0] == expected[0].time
    found, _ = decoded(cut, [0, 3])
    for number in (0, 3):
        luma = planes_of(all_frames(kind("h264"))[number + 5], Codec()).luma
        np.testing.assert_array_equal(found[number].luma, luma)


@pytest.mark.parametrize(
    "edits",
    [
        [(400, -1), (1200, 0)],
        [(320, 2), (480, 15)],
        [(320, 0), (400, -1), (480, 15)],
        [(480, 15), (320, 2)],
        [(400, 0), (400, 0)],
    ],
)
def test_edits_are_shown_one_after_the_other(edits):
    """Also those of which a later one begins with packets that an earlier one has shown."""
    data = edited(kind("h264"), *edits)
    assert 10 < len(all_frames(data)) <= 30
    check_frames(data)
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        # FFmpeg shows a frame at the end of an edit twice at one time.
        times = sorted(frame.time for frame in all_frames(data))
        np.testing.assert_allclose(file.table.seconds, times, rtol=0, atol=1e-9)


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize(
    "container, together", [("mpegts", True), ("mpegts", False), ("mp4", False)]
)
def test_two_fields_are_a_frame(container, together, high):
    data = fields(container, together, high)
    assert len(all_frames(data)) == 18
    check_frames(data)
    check_times(data)


def test_fields_need_the_parameters_of_their_sequence():
    with av.open(io.BytesIO(fields("mpegts", False))) as source:
        first, second = (bytes(packet) for _, packet in zip(range(2), source.demux(video=0)))
    first = first.replace(parameters(False), b"")
    assert [SecondFields("h264", None).complete(each) for each in (first, second)] == [False, False]
    told = SecondFields("h264", parameters(False))
    assert [told.complete(each) for each in (first, second, first, second)] == [
        False,
        True,
        False,
        True,
    ]
    assert not SecondFields("hevc", parameters(False)).complete(second)


def test_a_frame_is_disposable_if_both_of_its_fields_are():
    with av.open(io.BytesIO(fields("mpegts", False))) as source:
        packets = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    kept = [packet.replace(b"\0\0\0\1\x61", b"\0\0\0\1\x01") for packet in packets[1::2]]
    assert sum(old != new for old, new in zip(packets[1::2], kept, strict=True)) == 9
    packets[1::2] = kept
    data = written("mpegts", [(each, 20 * number) for number, each in enumerate(packets)])
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        assert file.table.disposable.tolist() == [False, True] * 9


def test_frames_that_come_many_in_a_packet_are_at_a_constant_rate():
    """The container tells the time of the first one alone."""
    with av.open(io.BytesIO(kind("h264 ts"))) as source:
        packets = [packet for packet in source.demux(video=0) if packet.size]
        groups = [packets[start : start + 5] for start in range(0, 30, 5)]
        ticks = [int(group[0].pts * 1000 * packets[0].time_base) for group in groups]
    joined = [b"".join(map(bytes, group)) for group in groups]
    data = written("mpegts", [(each, 10_000 + tick) for each, tick in zip(joined, ticks)])
    expected = all_frames(data)
    check_frames(data)
    with VideoFile(memoryview(data), MAX_PIXELS) as file:
        for frame, second in zip(expected, file.table.seconds, strict=True):
            assert frame.pts is None or frame.time == pytest.approx(second, abs=1e-9)


def test_a_packed_b_frame_is_a_frame_of_its_own():
    """As DivX and Xvid write AVI: a P and a B-frame in a packet, and one of few bytes in place of
    the next."""
    whole = video(15, codec="mpeg4", container="avi", bf="1", sc_threshold="1000000000")
    with av.open(io.BytesIO(whole)) as source:
        contents = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    kinds = [content[content.index(VOP) + 4] >> 6 for content in contents]
    assert 2 in kinds
    packed = list(contents)
    for place in range(len(kinds) - 1):
        if kinds[place : place + 2] == [1, 2]:
            packed[place] = contents[place] + contents[place + 1]
            packed[place + 1] = VOP + b"\x50\0"
    data = written("avi", [(each, 40 * place) for place, each in enumerate(packed)], "mpeg4")
    expected = all_frames(whole)
    for numbers in ([0], [7, 3], range(len(expected))):
        for number, planes in decoded(data, numbers)[0].items():
            np.testing.assert_array_equal(planes.luma, planes_of(expected[number], Codec()).luma)
    assert len(decode_video(data)) == len(expected)


VOP = b"\0\0\1\xb6"  # begins a frame of MPEG-4, ISO/IEC 14496-2 table 6-3


@pytest.mark.parametrize("name", ["h264", "h264 open", "mpeg4", "hevc", "vp9", "odd"])
def test_planes_have_the_hashes_of_ffmpeg(name, tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "video"
    path.write_bytes(kind(name))
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-noautorotate", "-i", str(path)]
    command += ["-an", "-fps_mode", "passthrough", "-f", "framemd5", "-"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = [line.split(",")[-1].strip() for line in listed.splitlines() if line[0] != "#"]
    found, _ = decoded(kind(name), range(30))
    for number, planes in found.items():
        data = planes.luma.tobytes() + planes.chroma.tobytes()
        assert hashlib.md5(data).hexdigest() == expected[number]


def test_a_path_is_not_its_bytes():
    with pytest.raises(TypeError, match=r"`data` must be the bytes of a file, got str: read them"):
        decode_video("a.mp4")  # pyright: ignore[reportArgumentType]


def test_a_change_of_size_is_named():
    small = video(4, (48, 64), container="matroska", g="2", bf="0")
    large = video(4, (64, 96), container="matroska", g="2", bf="0")
    joined = mixed_sizes(small, large)
    with pytest.raises(DecodeError, match="size changes from 48 x 64 to 64 x 96 pixels in frame 4"):
        decoded(joined, range(8))


def mixed_sizes(*videos: bytes) -> bytes:
    """Return one stream of the packets of several, each with its own parameter sets."""
    file = io.BytesIO()
    with av.open(file, "w", "avi") as output:
        stream = output.add_stream("libx264", 25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        count = 0
        for data in videos:
            with av.open(io.BytesIO(data)) as source:
                bsf = av.BitStreamFilterContext("h264_mp4toannexb", source.streams.video[0])
                for packet in source.demux(video=0):
                    for each in bsf.filter(packet if packet.size else None):
                        each.pts = each.dts = count
                        each.time_base = Fraction(1, 25)
                        each.stream = stream
                        output.mux(each)
                        count += 1
    return file.getvalue()


HEVC = "bframes=3:b-adapt=0:keyint=12:min-keyint=12:scenecut=0:log-level=none:pools=1"


@pytest.mark.parametrize("container", ["mp4", "matroska"])
@pytest.mark.parametrize("layers", ["", ":temporal-layers=1"])
def test_idle_b_frames_of_hevc_are_not_decoded(container, layers, monkeypatch):
    options = {"codec": "libx265", "container": container, "x265-params": HEVC + layers}
    data = video(24, (64, 96), **options)
    expected = all_frames(data)
    numbers = [4, 11, 20]
    found, packets = decoded(data, numbers)
    for number in numbers:
        whole = planes_of(expected[number], Codec())
        np.testing.assert_array_equal(found[number].luma, whole.luma)
        np.testing.assert_array_equal(found[number].chroma, whole.chroma)
    monkeypatch.setattr(Table, "_run", lambda self, first, wanted: np.arange(first, wanted[-1] + 1))
    assert packets < decoded(data, numbers)[1]


def test_pictures_that_higher_layers_may_need_are_kept():
    def disposable(kind, layer, layers):
        header = bytes([1, *bytes(20), layers << 3 | 3])  # an "hvcC", lengths of four bytes
        unit = bytes([kind << 1, layer + 1, 0, 0])
        message = bytes([39 << 1, 1, 0])
        data = b"".join(len(each).to_bytes(4, "big") + each for each in (message, unit))
        return References("hevc", header).is_disposable(av.Packet(data))

    assert disposable(0, 0, 1) and disposable(8, 0, 1) and disposable(0, 1, 2)
    assert not disposable(1, 0, 1)  # TRAIL_R
    assert not disposable(0, 0, 2)  # of the lower of two layers
    assert not disposable(0, 0, 0)  # layers are not known
    assert not disposable(16, 0, 1)  # BLA_W_LP


def test_messages_end_where_their_packets_do(monkeypatch):
    """A length beyond that would have each packet read all that follows it."""
    read = []
    monkeypatch.setattr(references, "has_message", lambda unit, kind: bool(read.append(len(unit))))
    packet = (2**31).to_bytes(4, "big") + bytes([6, *bytes(19)])
    data = memoryview(packet * 100)
    sizes = np.full(100, len(packet))
    header = bytes([1, 100, 0, 31, 255])  # an "avcC", lengths of four bytes
    found = References("h264", header).first_slices(data, np.cumsum(sizes) - sizes, sizes)
    assert read == [19] * 100
    assert not found.whole.any()
