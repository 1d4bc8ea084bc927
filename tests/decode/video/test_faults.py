"""Damaged, cut and strange videos: each is a reason, and never a hang or a crash."""

import ctypes
import io
import pickle
import sys

import av
import numpy as np
import pytest

from jaxaug.decode import decode_video
from jaxaug.decode.video.container import find_container
from jaxaug.errors import DecodeError
from tests.decode.video.fields import copied
from tests.videos import CONTAINERS, GOPS, all_frames, kind, video


def sound_only() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", "mp4") as output:
        stream = output.add_stream("aac", 16000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 16000
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def sound_with_picture() -> bytes:
    """As a player shows it: the cover of an album."""
    file = io.BytesIO()
    with av.open(file, "w", "mp4") as output, av.open(io.BytesIO(sound_only())) as sound:
        stream = output.add_stream_from_template(sound.streams.audio[0])
        cover = output.add_stream("mjpeg", 1, width=32, height=16, pix_fmt="yuvj420p")
        cover.disposition = av.stream.Disposition.attached_pic
        picture = av.VideoFrame.from_ndarray(np.zeros((16, 32, 3), np.uint8))
        output.mux(cover.encode(picture))
        output.mux(cover.encode(None))
        for packet in sound.demux(audio=0):
            if packet.size:
                packet.stream = stream
                output.mux(packet)
    return file.getvalue()


def no_moov() -> bytes:
    data = kind("h264")
    return data.replace(b"moov", b"free")


def reason(data: bytes, **options) -> str:
    with pytest.raises(DecodeError) as caught:
        decode_video(data, **options)
    assert str(caught.value).startswith(f"cannot decode video ({len(data)} bytes): ")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return caught.value.reason


def test_each_fault_has_its_reason():
    assert reason(b"") == "the file is empty"
    assert reason(b"\x89PNG\r\n\x1a\n" + bytes(100)).startswith("it is no video: neither MP4")
    assert reason(b"GIF89a" + bytes(400)).startswith("it is no video")  # as MPEG-TS begins
    assert reason(b"#EXTM3U\nhttp://example.org/a.ts\n").startswith("it is no video")
    assert "never finished" in reason(no_moov())
    assert reason(sound_with_picture()) == "it is a sound with a picture attached, not a video"
    assert reason(sound_only()) == "it has no video stream that can be decoded"
    assert reason(kind("h264"), max_pixels=3000) == "48 x 64 pixels are more than max_pixels=3000"


@pytest.mark.parametrize("codec", ["mpeg4", "mpeg2video", "libvpx", "libvpx-vp9"])
@pytest.mark.parametrize("size", [(37, 53), (150, 3)])
def test_a_frame_may_have_as_many_pixels_as_are_allowed(codec, size):
    """FFmpeg counts its padding, and rows that it works on."""
    pixels = size[0] * size[1]
    data = video(2, size, codec=codec, container="matroska")
    assert decode_video(data, max_pixels=pixels).shape == (2, *size, 3)
    assert reason(data, max_pixels=pixels - 1).startswith(f"{size[0]} x {size[1]} pixels are more")


@pytest.mark.parametrize("name", ["h264", "h264 mkv", "mpeg4 avi", "vp9"])
def test_a_cut_file_is_bad_wherever_it_is_cut(name):
    data = kind(name)
    assert find_container(memoryview(data)) in ("mov", "matroska", "avi")
    for share in (0.02, 0.3, 0.7, 0.95, 0.999):
        cut = data[: int(len(data) * share)]
        assert "cut" in reason(cut) or "never finished" in reason(cut)


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_of_parts_is_bad_wherever_it_is_cut(name):
    """But between two parts, which is where none is missing: not at two places side by side."""
    data = kind(name)
    for share in (0.02, 0.3, 0.7, 0.95, 0.999):
        told = ""
        for end in (int(len(data) * share), int(len(data) * share) + 1):
            try:
                find_container(memoryview(data)[:end])
            except DecodeError as error:
                told += error.reason
        assert "cut" in told or "never finished" in told


def tables_first(data, mdat_more=0):
    """Return an MP4 with its "moov" before its "mdat", which claims so many bytes more."""
    moov, mdat = (data.index(name) - 4 for name in (b"moov", b"mdat"))
    table = bytearray(data[moov:])
    start = table.index(b"stco") + 8  # the number of chunks, ISO 14496-12 section 8.7.5
    for at in range(start + 4, start + 4 + 4 * int.from_bytes(table[start : start + 4], "big"), 4):
        table[at : at + 4] = (int.from_bytes(table[at : at + 4], "big") + len(table)).to_bytes(4)
    size = (moov - mdat + mdat_more).to_bytes(4, "big")
    return data[:mdat] + bytes(table) + size + data[mdat + 4 : moov]


def test_lengths_of_boxes_behind_all_samples_do_not_matter():
    data = kind("h264")
    expected = decode_video(data)
    noise = np.random.default_rng(0).integers(1, 256, 100, np.uint8).tobytes()
    for form in (
        tables_first(data, 100),
        tables_first(data, 10**9),
        tables_first(data) + noise,
        data + noise,
        data + (1000).to_bytes(4, "big") + b"free" + bytes(10),
        data + (3).to_bytes(4, "big") + b"free" + bytes(10),
    ):
        np.testing.assert_array_equal(decode_video(form), expected)


def test_a_file_without_its_last_samples_is_cut_whatever_its_boxes_say():
    whole = tables_first(kind("h264"), 100)
    first = whole.index(b"mdat") + 4
    for end in [*range(first, len(whole), 50), len(whole) - 1]:
        with pytest.raises(DecodeError, match="the file is cut"):
            find_container(memoryview(whole[:end]))
    find_container(memoryview(whole))
    for name, place, number in [
        (b"stsz", 8, 10**6),
        (b"stco", 4, 10**6),
        (b"stsc", 8, 10**6),
        (b"stsc", 4, 2),
        (b"stsz", 0, 7),
    ]:
        with pytest.raises(DecodeError, match="the file is cut"):
            find_container(memoryview(changed(whole, (name, place, number))))


def test_a_fragment_that_is_cut_may_have_been_followed_by_others():
    data = video(12, (64, 96), container="mp4:movflags=frag_keyframe+empty_moov")
    with pytest.raises(DecodeError, match="the file is cut"):
        find_container(memoryview(data + b"\0\0\1\0mdat"))


def test_parts_that_are_none_are_damage():
    for name in ("vp8 ogg", "mpeg2 ps", "wmv"):
        assert "damaged at byte" in reason(kind(name) + bytes(100)), name


def test_a_fragmented_file_that_is_cut_is_bad_and_a_whole_one_is_read():
    data = fragmented()
    assert len(decode_video(data, frames=[0, 29])) == 2
    assert "cut" in reason(data[:-300])


def fragmented() -> bytes:
    return copied("mp4", kind("h264"), movflags="frag_keyframe+empty_moov")


def test_a_video_without_frames_is_bad():
    file = io.BytesIO()
    with av.open(file, "w", "matroska") as output:
        stream = output.add_stream("mpeg4", 25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        output.start_encoding()
    assert reason(file.getvalue()) in ("it has no frames", "FFmpeg cannot read it: End of file")


@pytest.mark.parametrize("name", ["h264", "h264 mkv", "mpeg4 avi", "vp9", "hevc"])
def test_changed_bytes_give_frames_or_a_reason(name):
    rng = np.random.default_rng(0)
    data = np.frombuffer(kind(name), np.uint8)
    good = 0
    for _ in range(40):
        damaged = data.copy()
        places = rng.integers(0, len(data), rng.integers(1, 30))
        damaged[places] = rng.integers(0, 256, len(places), np.uint8)
        try:
            frames = decode_video(damaged.tobytes(), frames=[0, 20], max_pixels=2**16)
            assert frames.dtype == np.uint8 and frames.shape[0] == 2
            good += 1
        except (DecodeError, IndexError):
            pass
    assert 0 < good < 40


def test_frames_and_times_of_a_video_at_hand():
    data = kind("h264")
    frames = decode_video(data)
    assert frames.shape == (30, 48, 64, 3)
    some = decode_video(memoryview(data), frames=[-1, 3, 3])
    np.testing.assert_array_equal(some, frames[[29, 3, 3]])
    at = decode_video(data, times=[0.0, 0.039, 0.04, 1.19])
    np.testing.assert_array_equal(at, frames[[0, 0, 1, 29]])
    for wrong in ({"frames": [30]}, {"frames": []}, {"times": [-0.1]}, {"times": [5.0]}):
        with pytest.raises(IndexError, match="must be at least one"):
            decode_video(data, **wrong)
    with pytest.raises(IndexError, match=r"`times` must be at least one within .* got nan"):
        decode_video(data, times=[0.0, np.nan])
    for kind_of, wrong in (("float64", [1.5]), ("bool", np.arange(30) == 7)):
        with pytest.raises(TypeError, match=f"`frames` must be whole numbers, got {kind_of}: "):
            decode_video(data, frames=wrong)
    with pytest.raises(ValueError, match="`times` must be left out beside `frames`"):
        decode_video(data, frames=[0], times=[0.0])


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's malloc_trim")
def test_many_openings_leave_nothing():
    """Memory of FFmpeg is not Python's: the process is asked, once it has given back what is free.

    What leaks grows each time; what other threads of this process take, or had taken, does not.
    """
    psutil = pytest.importorskip("psutil")
    process = psutil.Process()
    data = video(3, (32, 32), **GOPS)
    broken = data[: len(data) // 2] + bytes(len(data) - len(data) // 2)

    def resident_after(count):
        for _ in range(count):
            decode_video(data, frames=[1])
            with pytest.raises(DecodeError):
                decode_video(broken, frames=[1])
        ctypes.CDLL(None).malloc_trim(0)
        return process.memory_info().rss

    readings = [resident_after(50) for _ in range(6)]
    assert np.diff(readings)[1:].min() < 2**18


def test_an_encrypted_video_has_a_reason():
    """Its packets are noise, under the name that ISO 23001-7 gives encrypted video."""
    data = kind("h264")
    start = data.index(b"mdat") + 4
    noise = np.random.default_rng(0).integers(0, 256, len(data) - start, np.uint8).tobytes()
    moov = data.index(b"moov")
    noisy = data[:start] + noise[: moov - 4 - start] + data[moov - 4 :]
    assert reason(noisy)
    for whole in (data, noisy):
        name = whole.rindex(b"avc1")  # "ftyp" has it, too
        encrypted = whole[:name] + b"encv" + whole[name + 4 :]
        assert reason(encrypted) == "it is encrypted: decrypt it, as by `ffmpeg -decryption_key`"


def by_palette(codec, container, palettes, form="pal8"):
    """Return a video of noise, of a frame for each palette uint8[256, 4]."""
    rng = np.random.default_rng(0)
    file = io.BytesIO()
    with av.open(file, "w", container) as output:
        stream = output.add_stream(codec, 25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, form
        for number, palette in enumerate(palettes):
            frame = av.VideoFrame(64, 48, form)
            frame.planes[0].update(rng.integers(0, 256, 48 * 64, np.uint8).tobytes())
            if form == "pal8":
                frame.planes[1].update(palette.tobytes())
            frame.pts = number
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(
    "codec, container, form",
    [("rawvideo", "mov", "gray"), ("qtrle", "mov", "gray"), ("rawvideo", "avi", "pal8")],
)
def test_colors_of_a_palette_in_the_container(codec, container, form):
    """Packets alone would give them in black; grays of QuickTime are one from white to black."""
    palette = np.random.default_rng(1).integers(0, 256, (256, 4), np.uint8)
    data = by_palette(codec, container, [palette] * 4, form)
    expected = np.stack([frame.to_ndarray(format="rgb24") for frame in all_frames(data)])
    assert len(np.unique(expected)) > 200
    for numbers in ([0, 1, 2, 3], [2]):  # chroma is rounded on the way, and grays with it
        found = decode_video(data, frames=numbers)
        assert np.abs(found - expected[numbers].astype(int)).max() <= 2


def test_palettes_that_change_and_those_of_other_codecs_are_refused():
    palettes = np.random.default_rng(1).integers(0, 256, (2, 256, 4), np.uint8)
    changes = by_palette("rawvideo", "avi", palettes)
    assert reason(changes) == (
        "its colors are a palette beside the packets, which changes at packet 1"
    )
    other = by_palette("targa", "mov", palettes)
    assert reason(other) == (
        "its colors are a palette beside the packets, which is not that of targa"
    )


def test_times_that_repeat_or_run_backwards_give_each_frame_once():
    data = bytearray(kind("h264"))
    start = data.index(b"ctts") + 12  # of composition offsets, ISO 14496-12 section 8.6.1.3
    for place in range(3):
        data[start + 8 * place + 4 : start + 8 * place + 8] = (0).to_bytes(4, "big")
    frames = decode_video(bytes(data))  # the edit list hides those that are early now
    assert frames.shape == (28, 48, 64, 3)
    whole = decode_video(kind("h264"))
    assert all((frame == whole).all(axis=(1, 2, 3)).any() for frame in frames)


def changed(data, *numbers):
    """Return an MP4 with other numbers of 32 bits in tables, at bytes behind their flags."""
    data = bytearray(data)
    for name, place, number in numbers:
        start = data.index(name) + 8 + place
        data[start : start + 4] = number.to_bytes(4, "big")
    return bytes(data)


def test_samples_that_a_file_cannot_hold_are_refused_before_they_are_listed():
    data = video(12, (64, 96))
    claims = changed(data, (b"stsz", 0, 1), (b"stsz", 4, 10**7), (b"stsc", 8, 10**7))
    with pytest.raises(
        DecodeError, match=f"claim 10,000,000 samples, more than its {len(claims):,} b"
    ):
        find_container(memoryview(claims))
    find_container(memoryview(changed(data, (b"stsz", 0, 1), (b"stsz", 4, len(data)))))
    fragmented = video(12, (64, 96), container="mp4:movflags=frag_keyframe+empty_moov")
    start = fragmented.index(b"trun") + 4
    claims = fragmented[:start] + bytes(4) + (10**7).to_bytes(4, "big") + fragmented[start + 8 :]
    with pytest.raises(DecodeError, match="tables claim 10,000,000 samples"):
        find_container(memoryview(claims))


def test_sound_of_samples_of_one_size_is_as_long_as_it_is():
    """Its table claims as many samples as there are, in chunks."""
    target = io.BytesIO()
    with av.open(target, "w", format="mov") as container:
        stream = container.add_stream("pcm_u8", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.uint8), "u8", "mono")
        frame.sample_rate = 8000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    data = target.getvalue()
    assert find_container(memoryview(data)) == "mov"
    packed = changed(data, (b"stsz", 4, 6 * 8000))  # as old codecs of QuickTime count
    assert find_container(memoryview(packed)) == "mov"
    with pytest.raises(DecodeError, match="tables claim"):
        find_container(memoryview(changed(data, (b"stsc", 8, 2**32 - 1))))


def test_more_packets_than_are_allowed_are_refused(monkeypatch):
    monkeypatch.setattr("jaxaug.decode.video.demux._MAX_PACKETS", 20)
    assert reason(kind("h264")) == "it has more than 20 frames"


@pytest.mark.slow
def test_ten_thousand_clips_leave_nothing(tmp_path):
    psutil = pytest.importorskip("psutil")
    from jaxaug import Loader
    from jaxaug.decode import Video
    from jaxaug.iterators import VideoFolder
    from tests.iterators.loaders import one_device

    for number in range(4):
        (tmp_path / f"{number}.mp4").write_bytes(video(12, (32, 32), **GOPS))
    process = psutil.Process()
    with Loader(VideoFolder(tmp_path), 4, decode=Video(frames=2), sharding=one_device()) as loader:
        for _ in loader.steps(500):
            pass
        before = process.memory_info().rss
        for _ in loader.steps(2500):
            pass
    assert process.memory_info().rss - before < 32 * 2**20
