"""Formats of sound files beside libsndfile and FFmpeg, and files that once gave something wrong."""

import fractions
import io
import struct

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("miniaudio")
pytest.importorskip("soundfile")

import av
import PIL.Image
import soundfile

from jaxaug.decode.audio import mp3, ogg
from jaxaug.decode.audio.raw import count_samples, without_tags
from jaxaug.decode.audio.read import read_window
from jaxaug.decode.audio.read_header import read_header
from jaxaug.decode.audio.stream import SoundStream
from jaxaug.errors import DecodeError
from tests.decode.audio.sounds import checksum, decoded, encoded, wave

PLAIN = [
    *[("WAV", kind) for kind in ("ALAW", "ULAW")],
    *[("AIFF", kind) for kind in ("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT")],
    *[("AIFF", kind) for kind in ("DOUBLE", "ALAW", "ULAW")],
    *[("AU", kind) for kind in ("PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "ULAW", "ALAW")],
    *[("CAF", kind) for kind in ("PCM_S8", "PCM_16", "PCM_24", "FLOAT", "DOUBLE", "ULAW", "ALAW")],
    *[("W64", kind) for kind in ("PCM_U8", "PCM_16", "PCM_24", "FLOAT", "ULAW")],
    *[("NIST", kind) for kind in ("PCM_S8", "PCM_16", "PCM_24", "PCM_32", "ULAW", "ALAW")],
    *[(box, kind) for box in ("WAV", "W64") for kind in ("IMA_ADPCM", "MS_ADPCM")],
    ("AIFF", "IMA_ADPCM"),
]

WMA = ("wmav1", "wmav2")


def written(container, subtype, samples, rate=16_000, **options):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=container, subtype=subtype, **options)
    return buffer.getvalue()


def by_ffmpeg(samples, rate, codec, container):
    """Return the bytes of a file of samples [frames, channels] as FFmpeg writes it."""
    if codec not in av.codecs_available:
        pytest.skip(f"PyAV {av.__version__} has no {codec}")
    layout = {1: "mono", 2: "stereo", 8: "7.1(wide)"}[samples.shape[1]]
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout)
        stream.bit_rate = 128_000
        context = stream.codec_context
        packed = np.ascontiguousarray(samples, np.float32).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, 0, fractions.Fraction(1, rate)
        resampler = av.AudioResampler(
            context.format.name, context.layout, rate, frame_size=context.frame_size or None
        )
        for part in (*resampler.resample(frame), *resampler.resample(None), None):
            file.mux(stream.encode(part))
    return buffer.getvalue()


def all_of(data, exact=False):
    header = read_header(memoryview(data))
    return header, read_window(memoryview(data), header, 0, header.frames, exact)


@pytest.mark.parametrize("container, subtype", PLAIN)
def test_formats_are_what_libsndfile_reads(container, subtype):
    for channels in (1, 2):
        data = written(container, subtype, wave(1, 3000, channels))
        expected = decoded(data)
        header, whole = all_of(data)
        assert (header.rate, header.channels, header.frames) == (16_000, channels, len(expected))
        np.testing.assert_array_equal(whole, expected)
        part = read_window(memoryview(data), header, 1234, 2345, exact=False)
        np.testing.assert_array_equal(part, expected[1234:2345])
        if header.exact:
            integers = soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)[0]
            np.testing.assert_array_equal(all_of(data, exact=True)[1], integers)
        for end in (3, 20, 40, len(data) // 2):
            with pytest.raises(DecodeError, match=r"cut off|is damaged|without|no WAV|no samples"):
                header = read_header(memoryview(data[:end]))
                read_window(memoryview(data[:end]), header, 0, header.frames, exact=False)


def test_every_code_of_g711():
    for subtype in ("ALAW", "ULAW"):
        data = bytearray(written("WAV", subtype, np.zeros((256, 1))))
        data[-256:] = bytes(range(256))
        np.testing.assert_array_equal(all_of(bytes(data))[1], decoded(bytes(data)))


@pytest.mark.parametrize("order", [">", "<"])
def test_byte_orders(order):
    endian = {">": "BIG", "<": "LITTLE"}[order]
    for container in ("AIFF", "AU", "CAF", "NIST"):
        for subtype in ("PCM_16", "PCM_24"):
            data = written(container, subtype, wave(1, 500), endian=endian)
            np.testing.assert_array_equal(all_of(data)[1], decoded(data))


def test_what_lies_behind_the_samples_is_no_sound():
    """RF64 says the length of its samples in another chunk; more chunks follow them."""
    for container in ("RF64", "WAV", "AIFF"):
        data = written(container, "PCM_16", wave(1, 1001))
        tail = struct.pack("<4sI" if container != "AIFF" else ">4sI", b"junk", 500) + bytes(500)
        np.testing.assert_array_equal(all_of(data + bytes(len(data) % 2) + tail)[1], decoded(data))


def test_samples_of_wav_may_have_fewer_bits_than_their_bytes():
    for subtype, bits in (("PCM_U8", 7), ("PCM_16", 12), ("PCM_24", 20), ("PCM_32", 28)):
        data = written("WAV", subtype, wave(1, 500))
        place = data.index(b"fmt ") + 22
        fewer = data[:place] + struct.pack("<H", bits) + data[place + 2 :]
        np.testing.assert_array_equal(all_of(fewer)[1], decoded(data))


def test_flac_behind_a_tag():
    data = encoded("flac16", wave(1, 30_000))
    tag = b"ID3\x04\x00\x00\x00\x00\x02\x00" + bytes(256)
    for exact in (True, False):
        np.testing.assert_array_equal(all_of(tag + data, exact)[1], all_of(data, exact)[1])
    header = read_header(memoryview(tag + data))
    window = read_window(memoryview(tag + data), header, 20_000, 21_000, exact=False)
    np.testing.assert_array_equal(window, decoded(data)[20_000:21_000])


def test_flac_without_a_length():
    """As an encoder to a pipe writes it."""
    data = bytearray(encoded("flac16", wave(1, 50_001)))
    expected = decoded(bytes(data))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    header, whole = all_of(bytes(data))
    assert header.frames == len(expected) and header.exact
    np.testing.assert_array_equal(whole, expected)
    for start in (1, 20_000, 49_000):
        window = read_window(memoryview(data), header, start, start + 900, exact=False)
        np.testing.assert_array_equal(window, expected[start : start + 900])
    for end in (len(data) - 5, len(data) // 2):
        with pytest.raises(DecodeError):
            all_of(bytes(data[:end]))


def test_chunks_of_aiff_have_any_order():
    data = written("AIFF", "PCM_16", wave(1, 100))
    form, samples = data.index(b"COMM"), data.index(b"SSND")
    length = 8 + int.from_bytes(data[form + 4 : form + 8], "big")
    swapped = (
        data[:form] + data[samples:] + data[form : form + length] + data[form + length : samples]
    )
    np.testing.assert_array_equal(all_of(swapped)[1], decoded(data))


def lying(container, name, place, value):
    """Return a file of 100 samples with other bytes behind a name in it, and a tail."""
    subtype = "VORBIS" if container == "OGG" else "PCM_24"
    data = bytearray(written(container, subtype, wave(1, 100)))
    begin = data.rindex(name) + place
    data[begin : begin + len(value)] = value
    return memoryview(bytes(data) + bytes(500))


@pytest.mark.parametrize(
    "file, reason",
    [
        (("AIFF", b"SSND", 8, struct.pack(">I", 400)), "damaged: its samples have -100 bytes"),
        (("AIFF", b"COMM", 10, struct.pack(">I", 101)), "cut off: 100 of 101 samples are there"),
        (("AU", b".snd", 4, struct.pack(">I", 20)), "samples begin inside of it, at byte 20"),
        (("W64", b"data", 16, struct.pack("<Q", 5)), "damaged: its samples have -19 bytes"),
        (("CAF", b"data", 4, struct.pack(">q", 3)), "damaged: its samples have -1 bytes"),
        (("CAF", b"desc", 28, struct.pack(">I", 4)), "'lpcm' of 24 bits in 4 bytes is not read"),
        (("OGG", b"OggS", 6, struct.pack("<q", 1 << 62)), "4611686018427387904 samples, more than"),
    ],
)
def test_headers_that_lie_are_named(file, reason):
    with pytest.raises(DecodeError, match=reason):
        read_header(lying(*file))


@pytest.mark.parametrize("codec, container", [("aac", "adts"), ("aac", "ipod"), ("alac", "ipod")])
def test_what_ffmpeg_alone_reads(codec, container):
    data = by_ffmpeg(wave(1, 60_001, 2, 44_100), 44_100, codec, container)
    with av.open(io.BytesIO(data)) as file:
        frames = [frame.to_ndarray() for frame in file.decode(audio=0)]
    expected = np.concatenate(frames, axis=1).T
    if expected.dtype.kind == "i":
        expected = expected / np.float32(2.0 ** (8 * expected.dtype.itemsize - 1))
    header, whole = all_of(data)
    assert (header.rate, header.channels) == (44_100, 2)
    assert len(expected) - 1024 <= header.frames <= len(expected)
    np.testing.assert_array_equal(whole, expected[: header.frames])
    for start in (1, 20_000, 41_234):
        window = read_window(memoryview(data), header, start, start + 9000, exact=False)
        # FFmpeg draws the noise of AAC from a state of its own.
        part = whole[start : start + 9000]
        np.testing.assert_allclose(window, part, rtol=0, atol=2e-4 if codec == "aac" else 0)


@pytest.mark.parametrize(
    "codec, container, rate, added",
    [
        ("libopus", "webm", 48_000, 0),
        ("libopus", "mp4", 48_000, 0),
        ("aac", "matroska", 44_100, 745),  # FFmpeg does not tell what fills the last frame
        ("libmp3lame", "matroska", 44_100, 0),
    ],
)
def test_windows_where_times_are_milliseconds(codec, container, rate, added):
    """Matroska's times are off by up to half of one: 24 samples."""
    count = 4 * rate + 7
    data = by_ffmpeg(wave(1, count, 2, rate), rate, codec, container)
    with av.open(io.BytesIO(data)) as file:
        frames = [frame.to_ndarray() for frame in file.decode(audio=0)]
    expected = np.concatenate(frames, axis=1).T[: count + added]
    header, whole = all_of(data)
    assert header.frames == len(expected) == count + added
    np.testing.assert_array_equal(whole, expected)
    for start in (1000, 2 * rate, 2 * rate + 777, 3 * rate + 100, count - 2000):
        window = read_window(memoryview(data), header, start, start + 1500, exact=False)
        # FFmpeg draws the noise of AAC from a state of its own.
        tolerance = {"aac": 5e-4, "libopus": 1e-6}.get(codec, 0)
        part = whole[start : start + 1500]
        np.testing.assert_allclose(window, part, rtol=0, atol=tolerance)


def with_later_times(data, container, later):
    """Return a file whose packet k has a time that is later(k) ms later, in Matroska."""
    file = io.BytesIO()
    with (
        av.open(io.BytesIO(data), format=container) as source,
        av.open(file, "w", "matroska") as to,
    ):
        stream = to.add_stream_from_template(source.streams.audio[0])
        packets = [each for each in source.demux(audio=0) if each.size and each.pts is not None]
        for number, packet in enumerate(packets):
            packet.pts += round(later(number) / 1000 / packet.time_base)
            packet.stream = stream
            to.mux(packet)
    return file.getvalue(), len(packets)


def test_a_time_that_is_off_alone_is_no_gap():
    """As it comes of what FFmpeg took for the times of Vorbis."""
    data = by_ffmpeg(wave(1, 50_000, 2), 48_000, "flac", "matroska")
    # 96 ms are a frame.
    other, count = with_later_times(data, "matroska", lambda k: 10 * (k == 2) + 96 * (k >= 6))
    (_, samples), (_, whole) = all_of(data), all_of(other)
    gap = np.zeros((4608, 2))
    expected = np.concatenate([samples[: 6 * 4608], gap, samples[6 * 4608 :]])
    np.testing.assert_array_equal(whole, expected[: len(whole)])
    assert count > 8 and len(whole) > len(samples)


def test_late_times_of_vorbis_are_no_gaps():
    """As FFmpeg once wrote them to WebM: for some frames in a row, 20 ms."""
    data = encoded("vorbis", wave(1, 48_000, 1), 48_000)
    whole, late = (
        all_of(with_later_times(data, "ogg", later)[0])[1]
        for later in (lambda k: 0, lambda k: 20 * (k % 12 > 7))
    )
    count = min(len(whole), len(late))
    np.testing.assert_array_equal(late[:count], whole[:count])
    assert count > 40_000 and not late[count:].any()


@pytest.mark.parametrize(
    "codec, container",
    [
        ("mp2", "mpegts"),
        ("mp2", "mpeg"),
        ("ac3", "vob"),
        ("aac", "flv"),
        *[(codec, "asf") for codec in WMA],
        ("flac", "ogg"),
    ],
)
def test_sounds_of_other_containers(codec, container):
    """All begin where their first packet's time is, but for WMA; windows are parts of the whole."""
    data = by_ffmpeg(wave(1, 4 * 48_000, 2, 48_000), 48_000, codec, container)
    with av.open(io.BytesIO(data)) as file:
        stream = file.streams.audio[0]
        first = stream.start_time or 0
        frames = [*file.decode(stream)]
    begin = round((frames[0].pts - first) * frames[0].time_base * 48_000)
    begin = 0 if codec in WMA else begin
    scale = 2.0**15 if "16" in frames[0].format.name else 1.0
    expected = np.concatenate([frame.to_ndarray().reshape(-1, frame.samples).T for frame in frames])
    if not frames[0].format.is_planar:
        expected = np.concatenate([frame.to_ndarray().reshape(-1, 2) for frame in frames])
    header, whole = all_of(data)
    assert (header.rate, header.channels, header.frames) == (48_000, 2, begin + len(expected))
    np.testing.assert_array_equal(whole[begin:], expected / np.float32(scale))
    assert not whole[:begin].any()
    for start in (1, 40_000, 99_999, 170_001):
        window = read_window(memoryview(data), header, start, start + 5000, exact=False)
        # FFmpeg's decoders of AAC and AC-3 draw noise, that of MP2 dithers.
        tolerance = 0 if codec in ("flac", *WMA) else 3e-4
        np.testing.assert_allclose(window, whole[start : start + 5000], rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "codec, container, rate",
    [("ac3", "ac3", 44_100), ("eac3", "eac3", 44_100), ("libopencore_amrnb", "amr", 8000)],
)
def test_streams_without_a_container(codec, container, rate):
    data = by_ffmpeg(wave(1, 3 * rate, 1, rate), rate, codec, container)
    with av.open(io.BytesIO(data)) as file:
        expected = np.concatenate([frame.to_ndarray() for frame in file.decode(audio=0)], axis=1).T
    header, whole = all_of(data)
    assert (header.rate, header.channels, header.frames) == (rate, 1, len(expected))
    scale = np.abs(expected).max() / np.abs(whole).max() if expected.dtype.kind == "i" else 1
    np.testing.assert_allclose(whole * scale, expected, rtol=0, atol=1e-6 * scale)
    for start in (1, rate, 2 * rate + 777):
        window = read_window(memoryview(data), header, start, start + 1500, exact=False)
        np.testing.assert_array_equal(window, whole[start : start + 1500])
    for end in (len(data) - 5, len(data) * 2 // 3 + 20):
        with pytest.raises(DecodeError, match=r"cut off: its frame at byte|FFmpeg cannot read it"):
            all_of(data[:end])


@pytest.mark.parametrize(
    "codec, container", [("ac3", "ac3"), ("eac3", "eac3"), ("libopencore_amrnb", "amr")]
)
def test_headers_of_streams_are_not_decoded(codec, container, monkeypatch):
    rate = 8000 if container == "amr" else 32_000
    data = by_ffmpeg(wave(1, 8000, 1, 8000), rate, codec, container)
    with SoundStream(memoryview(data)) as stream:
        decoded = sum(len(samples) for _, samples in stream._from(0.0))
    behind = bytes([15 << 3]) if container == "amr" else data[: len(data) // 3 + 1]
    for unusual in (data + b"\0" * 9, data + behind):  # is counted by FFmpeg, or refused by it
        assert count_samples(memoryview(unusual), container) is None
    monkeypatch.setattr(SoundStream, "_from", None)
    assert read_header(memoryview(data)).frames == decoded


def test_amr_wb():
    """Any bits are speech: frames of each of the nine modes, of RFC 4867 section 5.3."""
    rng = np.random.default_rng(4)
    lengths = (17, 23, 32, 36, 40, 46, 50, 58, 60)
    frames = [bytes([mode << 3 | 4]) + rng.bytes(lengths[mode]) for mode in [*range(9)] * 10]
    data = b"#!AMR-WB\n" + b"".join(frames)
    with av.open(io.BytesIO(data)) as file:
        expected = np.concatenate([frame.to_ndarray() for frame in file.decode(audio=0)], axis=1).T
    header, whole = all_of(data)
    assert (header.rate, header.channels, header.frames) == (16_000, 1, 90 * 320)
    np.testing.assert_array_equal(whole, expected)
    assert np.abs(whole).max() > 0.01
    window = read_window(memoryview(data), header, 12_345, 13_456, exact=False)
    np.testing.assert_array_equal(window, whole[12_345:13_456])


def test_aac_behind_a_tag():
    data = by_ffmpeg(wave(1, 30_000), 16_000, "aac", "adts")
    tag = b"ID3\x04\x00\x00\x00\x00\x02\x00" + bytes(256)
    header, whole = all_of(tag + data)
    assert header == read_header(memoryview(data))
    np.testing.assert_array_equal(whole, all_of(data)[1])


def test_aac_with_tags_between_its_frames():
    """As where recordings were joined; FFmpeg loses its place there when it seeks."""
    data = by_ffmpeg(wave(1, 200_000), 16_000, "aac", "adts")
    header, whole = all_of(data)
    places = [0]
    while places[-1] < len(data):
        first, second, third = data[places[-1] + 3 : places[-1] + 6]
        places.append(places[-1] + ((first & 3) << 11 | second << 3 | third >> 5))
    for content in (bytes(4000), b"\xff\xf1" * 2000, b"ID3" * 1333 + b"I"):
        tag = b"ID3\x04\x00\x00\x00\x00\x1f\x20" + content
        parts = [data[start:end] for start, end in zip(places[:-1:20], [*places[20::20], None])]
        tagged = tag.join(parts) + tag
        assert read_header(memoryview(tagged)) == header
        np.testing.assert_array_equal(all_of(tagged)[1], whole)
        for start in (1000, 50_000, 150_000):
            window = read_window(memoryview(tagged), header, start, start + 3000, exact=False)
            expected = read_window(memoryview(data), header, start, start + 3000, exact=False)
            np.testing.assert_array_equal(window, expected)
    assert without_tags(memoryview(data)) == data  # and nothing of what only looks like one
    middle = places[9] + 50
    lookalike = data[:middle] + b"ID3\x04\x00\x00\x00\x00\x00\x09" + data[middle + 10 :]
    assert without_tags(memoryview(lookalike)) == lookalike


@pytest.mark.parametrize("late", [1, 1105, 700_000])
def test_flac_in_ogg_whose_positions_begin_late(late):
    """As a stream that was recorded from its middle on: FFmpeg counts from 0 up to the first."""
    data = by_ffmpeg(wave(1, 60_000, 2), 16_000, "flac", "ogg")
    moved = with_late_positions(data, late)
    header, whole = all_of(moved)
    assert header == read_header(memoryview(data)) and header.frames == 60_000
    np.testing.assert_array_equal(whole, all_of(data)[1])
    window = read_window(memoryview(moved), header, 30_000, 31_000, exact=False)
    np.testing.assert_array_equal(window, whole[30_000:31_000])


def with_late_positions(data, late):
    """Return an Ogg whose positions behind 0 are later."""
    found = b""
    for page in ogg.pages(memoryview(data), 0):
        head = bytearray(data[page.start : page.end])
        if page.position > 0:
            head[6:14] = struct.pack("<q", page.position + late)
        head[22:26] = bytes(4)
        head[22:26] = struct.pack("<I", checksum(head))
        found += bytes(head)
    return found


def test_flac_of_32_bits():
    rng = np.random.default_rng(3)
    numbers = rng.integers(-(2**31), 2**31, (2, 5000)).astype(np.int32)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="flac") as file:
        options = {"strict": "experimental"}  # FFmpeg's word for 32 bits
        stream = file.add_stream("flac", rate=48_000, layout="stereo", options=options)
        stream.format = "s32"
        frame = av.AudioFrame.from_ndarray(numbers.T.reshape(1, -1), format="s32", layout="stereo")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, 0, fractions.Fraction(1, 48_000)
        file.mux([*stream.encode(frame), *stream.encode(None)])
    data = buffer.getvalue()
    assert data[20] & 1 and data[21] >> 4 == 15  # 32 bits, less one
    header, whole = all_of(data)
    assert (header.rate, header.channels, header.frames) == (48_000, 2, 5000) and not header.exact
    np.testing.assert_array_equal(whole, numbers.T.astype(np.float32) / np.float32(2**31))
    window = read_window(memoryview(data), header, 4100, 4300, exact=False)
    np.testing.assert_array_equal(window, whole[4100:4300])


@pytest.mark.parametrize(
    "start, name", [(b"ADIF\0", "AAC in ADIF"), (b"\xac\x40\0\5", "AC-4"), (b"\xac\x41", "AC-4")]
)
def test_formats_that_are_not_read_are_named(start, name):
    with pytest.raises(DecodeError, match=f"it is {name}, which is not read: "):
        read_header(memoryview(start + bytes(100)))


def test_no_error_names_an_object():
    data = bytearray(encoded("vorbis", wave(1, 9000)))
    place = data.index(b"\x05vorbis")
    data[place : place + 200] = bytes(200)
    ima = written("WAV", "IMA_ADPCM", wave(1, 9000))
    place = ima.index(b"fmt ") + 18
    blocks = bytearray(ima)
    blocks[place : place + 8] = b"\xff" * 8
    for damaged in (data, blocks):
        with pytest.raises(DecodeError, match="it is damaged") as error:
            all_of(bytes(damaged))
        assert " at 0x" not in str(error.value) and "object" not in str(error.value)


def test_eight_channels_of_ffmpeg():
    """PyAV crashes on arrays of more than seven planes."""
    samples = np.round(wave(1, 9000, 8) * 2**15) / 2**15
    header, whole = all_of(by_ffmpeg(samples, 16_000, "alac", "ipod"))
    assert header.channels == 8
    np.testing.assert_array_equal(whole[:9000], samples)


@pytest.mark.parametrize("channels", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("kind", ["vorbis", "opus"])
def test_channels_of_ogg_are_in_the_order_that_ffmpeg_gives_them(kind, channels):
    """In which they are in all other files. Each channel has a tone of its own."""
    data = encoded(kind, wave(1, 24_000, channels, 48_000), 48_000)
    with av.open(io.BytesIO(data), "r") as file:
        packed = av.AudioResampler("flt")
        frames = [
            part.to_ndarray() for each in file.decode(audio=0) for part in packed.resample(each)
        ]
    expected = np.concatenate(frames, axis=1).reshape(-1, channels)
    _, whole = all_of(data)
    count = min(len(whole), len(expected))  # FFmpeg loses the last samples of Vorbis
    np.testing.assert_allclose(whole[:count], expected[:count], rtol=0, atol=1e-5)
    window = read_window(memoryview(data), read_header(memoryview(data)), 9000, 9500, exact=False)
    np.testing.assert_allclose(window, whole[9000:9500], rtol=0, atol=1e-5)


def test_opus_of_ffmpeg():
    for rate, frames in ((16_000, 5001), (48_000, 300), (48_000, 96_001)):
        data = by_ffmpeg(wave(1, frames, 1, rate), rate, "libopus", "ogg")
        header, whole = all_of(data)
        assert (header.rate, header.frames) == (rate, frames)
        np.testing.assert_allclose(whole, decoded(data), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rate, frames", [(16_000, 50_000), (48_000, 131_568), (44_100, 3000)])
def test_windows_of_vorbis_are_those_of_the_whole(rate, frames):
    """Also in the last page, behind whose last sample there are more in its last packet."""
    rng = np.random.default_rng(rate)
    data = encoded("vorbis", rng.normal(0, 0.1, (frames, 1)), rate)
    header, whole = all_of(data)
    np.testing.assert_array_equal(whole, decoded(data))
    for start in range(0, frames - 500, frames // 50):
        window = read_window(memoryview(data), header, start, start + 500, exact=False)
        np.testing.assert_array_equal(window, whole[start : start + 500])


def test_chained_ogg_is_named():
    for first, second in (("vorbis", "vorbis"), ("opus", "opus"), ("vorbis", "opus")):
        data = encoded(first, wave(1, 9000), 48_000) + encoded(second, wave(2, 5000), 48_000)
        with pytest.raises(DecodeError, match=r"several streams|is not what its header tells"):
            all_of(data)
    twice = 2 * encoded("vorbis", wave(1, 9000), 48_000)
    with pytest.raises(DecodeError, match=r"several streams|is not what its header tells"):
        all_of(twice)


MP3 = encoded("mp3", wave(1, 30_000, 2), 48_000)


def test_mp3_before_something_else_keeps_its_last_frame():
    expected = all_of(MP3)[1]
    assert len(expected) == 30_000
    for tail in (bytes(1000), b"TAG" + bytes(125), b"\xff" * 400, b"\xff\xfb\x90"):
        np.testing.assert_array_equal(all_of(MP3 + tail)[1], expected)
    tag = b"ID3\x04\x00\x00\x00\x00\x02\x00" + bytes(256)
    np.testing.assert_array_equal(all_of(tag + MP3)[1], expected)


def test_mp3_of_a_tag_alone_is_named():
    stream = read_header(memoryview(MP3)).stream
    with pytest.raises(DecodeError, match="cut off: 0 of"):
        read_header(memoryview(MP3[: stream.starts[0]]))
    info = bytearray(MP3[: stream.starts[0]])
    place = info.index(b"Info") if b"Info" in info else info.index(b"Xing")
    info[place + 8 : place + 12] = bytes(4)
    with pytest.raises(DecodeError, match="it holds no samples"):
        read_header(memoryview(bytes(info)))


def test_mp3_full_of_headers_without_frames_is_searched_many_at_a_time(monkeypatch):
    """A header at every fourth byte, none of which a frame follows; then frames between garbage."""
    header = b"\xff\xfb\x90\x00"
    made = []
    format_ = mp3._Format
    monkeypatch.setattr(mp3, "_Format", lambda word: made.append(word) or format_(word))
    assert len(mp3.find_frames(memoryview(header * 5000)).starts) == 1
    assert len(made) < 100
    frame = header + bytes(413)
    broken = (frame * 2 + header + bytes(200)) * 5 + frame
    assert len(mp3.find_frames(memoryview(broken)).starts) == 11


def test_mp3_whose_channels_change_is_named():
    mono = encoded("mp3", wave(1, 30_000), 48_000)
    start = read_header(memoryview(mono)).stream.starts[0]
    with pytest.raises(DecodeError, match="its frames have one channel and two"):
        read_header(memoryview(MP3 + mono[start:]))
    tagged = mono[:start] + MP3[read_header(memoryview(MP3)).stream.starts[0] :]
    assert read_header(memoryview(tagged)).channels == 2  # the mode of a tag is not that of sound


def test_mp3_whose_rate_changes_is_named():
    for rate in (44_100, 24_000):
        other = encoded("mp3", wave(1, 30_000, 2), rate)
        kinds = f"layer 3 at 48000 Hz and layer 3 at {rate} Hz"
        for data in (MP3 + other, MP3 + other[read_header(memoryview(other)).stream.starts[0] :]):
            with pytest.raises(DecodeError, match=f"its frames are of {kinds}: decode it"):
                read_header(memoryview(data))
    middle = read_header(memoryview(MP3)).stream.starts[9]
    with pytest.raises(DecodeError, match="its frames are of layer 3"):
        read_header(memoryview(MP3[:middle] + other + MP3[middle:]))
    noise = np.random.default_rng(0).integers(0, 256, 200_000, np.uint8).tobytes()
    np.testing.assert_array_equal(all_of(MP3 + noise)[1], all_of(MP3)[1])


def test_mp3_that_is_cut_is_named():
    with pytest.raises(DecodeError, match=r"cut off: \d+ of \d+ frames are there"):
        read_header(memoryview(MP3[: len(MP3) // 2]))


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 44_100])
@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_windows_of_mp3_have_the_bits_of_the_whole(rate, mode):
    rng = np.random.default_rng(rate)
    noise = 0.3 * rng.standard_normal((8 * rate, 2)).cumsum(axis=0) % 0.8 - 0.4
    data = written("MP3", "MPEG_LAYER_III", noise, rate, bitrate_mode=mode, compression_level=0.7)
    header, whole = all_of(data, exact=True)
    expected = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)[0]
    assert header.frames == len(expected)
    np.testing.assert_allclose(whole / np.float32(32768), expected, atol=1e-4)
    starts = rng.integers(0, header.frames - 500, 40)
    for start in (0, 1, *starts.tolist()):
        window = read_window(memoryview(data), header, start, start + 500, exact=True)
        np.testing.assert_array_equal(window, whole[start : start + 500])


def test_mp3_cut_out_of_a_longer_one_is_silent_where_data_is_missing():
    """The first frames use the reservoir of frames that are not there."""
    stream = read_header(memoryview(MP3)).stream
    part = MP3[stream.starts[9] :]
    header, found = all_of(part)
    expected = decoded(part)
    assert header.frames == len(expected) == (len(stream.starts) - 9) * 1152
    np.testing.assert_allclose(found[9 * 1152 :], expected[9 * 1152 :], atol=1e-4)
    assert not found[:1152].any()


def test_a_flac_that_ends_early_is_not_decoded_as_the_mp3_in_it():
    """Which may have more channels than the memory for its samples."""
    facts = (16_000 << 44 | 15 << 36 | 40_000).to_bytes(8, "big")  # mono, of 16 bits
    info = b"\0\0\0\x22" + struct.pack(">HH", 4096, 4096) + bytes(6) + facts + bytes(16)
    data = memoryview(b"fLaC" + info + b"\x06\0\0\0" + MP3)
    with pytest.raises(DecodeError, match="no FLAC that can be decoded"):
        read_window(data, read_header(data), 0, 100, exact=True)


def constant(frames):
    """Return MP3 of 128 kbit/s at 44.1 kHz."""
    lengths = np.diff(np.arange(frames + 1) * 128_000 * 1152 // (8 * 44_100)).tolist()
    heads = [bytes([0xFF, 0xFB, 0x90 | (length - 417) << 1, 0xC0]) for length in lengths]
    return b"".join(head + bytes(length - 4) for head, length in zip(heads, lengths))


def test_mp3_of_a_constant_rate_that_ends_or_changes():
    for count in (511, 512, 513, 514, 515):
        assert len(read_header(memoryview(constant(count))).stream.starts) == count
    other = bytearray(constant(600))
    other[read_header(memoryview(bytes(other))).stream.starts[550] + 2] |= 4  # of 48 kHz
    assert len(read_header(memoryview(bytes(other))).stream.starts) == 599


def test_frames_of_a_constant_rate_are_found_many_at_a_time():
    for rate in (44_100, 22_050, 48_000):
        noise = np.random.default_rng(rate).uniform(-0.3, 0.3, (16 * rate, 1))
        options = {"bitrate_mode": "CONSTANT", "compression_level": 0.9}
        data = written("MP3", "MPEG_LAYER_III", noise, rate, **options)
        header = read_header(memoryview(data))
        assert header.frames == len(decoded(data)) and header.stream.ends[-1] == len(data)
        assert len(set(np.diff(header.stream.starts))) <= 2
        frames = [data[start:end] for start, end in zip(header.stream.starts, header.stream.ends)]
        assert all(frame[:2] in (b"\xff\xfb", b"\xff\xf3") for frame in frames)
        for place in (3, len(frames) // 2, len(frames) - 3):  # what is damaged is left out
            start = int(header.stream.starts[place])
            damaged = data[:start] + bytes(7) + data[start + 7 :]
            found = read_header(memoryview(damaged)).stream.starts
            np.testing.assert_array_equal(found, np.delete(header.stream.starts, place))


def test_what_looks_like_a_header_inside_of_a_frame_is_none():
    """Also where headers are looked for in parts of a file."""
    for count, other in ((3, 1), (1500, 1257), (1500, 1258)):
        data = bytearray(constant(count))
        starts = read_header(memoryview(bytes(data))).stream.starts
        data[starts[other] + 100 : starts[other] + 104] = data[:4]
        np.testing.assert_array_equal(read_header(memoryview(bytes(data))).stream.starts, starts)


@pytest.mark.parametrize("kind", ["zeros", "noise", "half a frame"])
def test_mp3_behind_garbage(kind):
    noise = np.random.default_rng(1).integers(0, 256, 60_000, np.uint8).tobytes()
    start = read_header(memoryview(MP3)).stream.starts[0]
    garbage = {"zeros": bytes(60_000), "noise": b"\0" + noise, "half a frame": MP3[start + 9 :]}
    before = garbage[kind] if kind != "half a frame" else garbage[kind][:200]
    header, whole = all_of(before + MP3)
    np.testing.assert_array_equal(whole, all_of(MP3)[1])
    np.testing.assert_allclose(whole, decoded(MP3), rtol=0, atol=1e-4)
    window = read_window(memoryview(before + MP3), header, 9000, 9500, exact=False)
    np.testing.assert_array_equal(window, whole[9000:9500])


@pytest.mark.parametrize("count, found", [(1, False), (2, True), (4, True), (5, True)])
def test_mp3_behind_garbage_has_a_run_of_frames(count, found):
    """Five, or fewer up to the end of the file, but more than one."""
    frames = constant(count)
    if not found:
        with pytest.raises(DecodeError, match="it is no WAV"):
            read_header(memoryview(bytes(99) + frames))
        return
    assert len(read_header(memoryview(bytes(99) + frames)).stream.starts) == count
    behind = memoryview(bytes(99) + frames + bytes(99))
    if count < 5:
        with pytest.raises(DecodeError, match="it is no WAV"):
            read_header(behind)
    else:
        assert len(read_header(behind).stream.starts) == count
    with pytest.raises(DecodeError, match="it is no WAV"):
        read_header(memoryview(bytes(1 << 16) + frames))


def test_what_is_no_mp3_is_not_taken_for_one():
    rng = np.random.default_rng(2)
    picture = io.BytesIO()
    PIL.Image.fromarray(rng.integers(0, 256, (128, 128, 3), np.uint8)).save(picture, "JPEG")
    wav = bytearray(encoded("wav16", rng.uniform(-1, 1, (40_000, 1))))
    wav[:4] = b"RIFX"
    text = ("Frames of sound. " * 4000).encode()
    noise = [b"\0" + rng.integers(0, 256, 70_000, np.uint8).tobytes() for _ in range(20)]
    for data in (picture.getvalue(), bytes(wav), text, bytes(70_000), *noise):
        with pytest.raises(DecodeError, match="it is no WAV"):
            read_header(memoryview(data))


def test_mp3_behind_what_looks_like_a_frame():
    """Of UTF-16 the first bytes are a header of layer 1; others are of the stream's own kind."""
    whole = all_of(MP3)[1]
    for before in (b"\xff\xfbHello, world", b"\xff\xfb\x94\x00" + bytes(300)):
        np.testing.assert_array_equal(all_of(before + MP3)[1], whole)
        np.testing.assert_allclose(whole, decoded(before + MP3), rtol=0, atol=1e-4)
    text = "\ufeff<title of this recording>".encode("utf-16-le")
    np.testing.assert_array_equal(all_of(text + MP3)[1], whole)


def test_mp3_whose_second_frame_is_damaged_keeps_its_tag():
    header = read_header(memoryview(MP3))
    start = int(header.stream.starts[0])
    found = read_header(memoryview(MP3[:start] + bytes(7) + MP3[start + 7 :])).stream
    np.testing.assert_array_equal(found.starts, header.stream.starts[1:])
    assert found.skipped == header.stream.skipped > 0
