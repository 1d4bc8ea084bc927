"""Sound files: what their bytes tell, windows beside libsndfile, and the decoder of a column."""

import struct

import numpy as np
import pytest

pytest.importorskip("miniaudio")
pytest.importorskip("soundfile")

from jaxaug import decode
from jaxaug.decode.audio.read import read_window
from jaxaug.decode.audio.read_header import read_header
from jaxaug.errors import DecodeError
from tests.decode.audio.sounds import EXACT, SUBTYPES, decoded, encoded, wave


@pytest.mark.parametrize("kind", SUBTYPES)
@pytest.mark.parametrize("channels", [1, 2])
def test_windows_are_those_of_libsndfile(kind, channels):
    data = encoded(kind, wave(1, 48_000, channels), 48_000)
    header = read_header(memoryview(data))
    expected = decoded(data)
    assert (header.rate, header.channels, header.frames) == (48_000, channels, len(expected))
    assert header.exact == (kind in (*EXACT, "mp3"))
    tolerance = {"mp3": 1e-4, "opus": 1e-6}.get(kind, 0)  # of another decoder, or build of it
    for start, stop in ((0, len(expected)), (20_000, 20_100), (-50, 30), (47_990, 48_050)):
        window = read_window(memoryview(data), header, start, stop, exact=False)
        inside = slice(max(start, 0), min(stop, len(expected)))
        padded = np.zeros_like(window)
        padded[inside.start - start : inside.stop - start] = expected[inside]
        np.testing.assert_allclose(window, padded, rtol=0, atol=tolerance)


@pytest.mark.parametrize("rate", [8000, 12_000, 16_000, 24_000])
def test_opus_has_the_rate_and_the_length_that_libsndfile_gives_it(rate):
    data = encoded("opus", wave(1, 5001, 1, rate), rate)
    header = read_header(memoryview(data))
    assert (header.rate, header.frames) == (rate, len(decoded(data)))
    whole = read_window(memoryview(data), header, 0, header.frames, exact=False)
    np.testing.assert_allclose(whole, decoded(data), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", EXACT)
def test_integers_stay_integers(kind):
    data = encoded(kind, wave(1, 1000))
    window = read_window(memoryview(data), read_header(memoryview(data)), 10, 990, exact=True)
    assert window.dtype == np.int16
    np.testing.assert_array_equal(window / np.float32(32768), decoded(data)[10:990])


def test_a_recording_to_a_pipe_ends_with_the_file():
    data = bytearray(encoded("wav16", wave(1, 1000)))
    place = data.index(b"data") + 4
    for length in (0, 0xFFFFFFFF):
        data[place : place + 4] = struct.pack("<I", length)
        assert read_header(memoryview(bytes(data))).frames == 1000


def patched(data, place, value):
    return data[:place] + value + data[place + len(value) :]


WAV = encoded("wav16", wave(1, 4000))
BAD = {
    "empty": (b"", "it is empty"),
    "text": (b"hello world", "it is no WAV, .* or AMR: it begins with b'hell'"),
    "cut": (WAV[:5000], r"it is cut off: 4956 of 8000 bytes of samples are there"),
    "header": (WAV[:30], "its header is cut off|without samples"),
    "no rate": (patched(WAV, 24, bytes(4)), "its rate is 0 Hz"),
    "gsm": (patched(WAV, 20, b"\x31\x00"), "its encoding 0x31 of 16 bits is not read"),
    "no samples": (encoded("wav16", np.zeros((0, 1))), "it holds no samples"),
    "flac": (encoded("flac16", wave(1, 4000))[:20], "its header is cut off"),
    "ogg": (encoded("vorbis", wave(1, 4000))[:40], "neither Vorbis nor Opus|holds no samples|cut"),
    "mp3": (b"\xff\xfb" + bytes(200), "it is no MP3 that can be decoded"),
    "sphere": (
        b"NIST_1A\n-1024  \nchannel_count -i 1\nsample_rate -i 8000\n".ljust(2048, b"\n"),
        "its header is damaged: it has -1024 bytes",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named(name):
    data, reason = BAD[name]
    with pytest.raises(DecodeError, match=reason):
        read_header(memoryview(data))


@pytest.mark.parametrize("kind", ["flac16", "vorbis", "opus"])
def test_damage_inside_is_named_when_it_is_decoded(kind):
    rng = np.random.default_rng(0)
    noise = rng.uniform(-0.5, 0.5, (30_000, 1))
    data = encoded(kind, noise, 48_000)
    header = read_header(memoryview(data))
    cut = data[: len(data) // 3]
    with pytest.raises(DecodeError, match=r"it is damaged|holds no samples|is cut off"):
        read_window(memoryview(cut), header, 0, header.frames, exact=False)


@pytest.mark.parametrize("kind", SUBTYPES)
def test_mutations_never_crash(kind):
    data = encoded(kind, wave(1, 6000), 48_000)
    rng = np.random.default_rng(1)
    for _ in range(40):
        damaged = bytearray(data)
        for place in rng.integers(0, len(data), 8):
            damaged[place] = rng.integers(0, 256)
        try:
            header = read_header(memoryview(bytes(damaged)))
            window = read_window(memoryview(bytes(damaged)), header, 100, 1100, exact=False)
        except DecodeError:
            continue
        assert window.shape == (1000, header.channels)


def rows(audio, files, keys=None):
    """Return the decoded rows of files."""

    class Files:
        name = "audio"
        example = decode.Encoded.from_bytes(files[:1])

        def sample(self, count):
            yield decode.Encoded.from_bytes(files[:count])

    fitted = audio.fit(Files(), {})
    reader = fitted.open([], True)
    values = decode.Encoded.from_bytes(files)
    checked, reasons = reader.check_rows(values, None)
    wanted = np.array([row not in reasons for row in range(len(files))])
    keys = np.arange(1, len(files) + 1, dtype=np.uint64) if keys is None else keys
    found = reader.decode_rows(values, checked, {}, wanted, keys)
    reader.close()
    return fitted, found, reasons


def placed(audio, files, keys=None):
    fitted, found, reasons = rows(audio, files, keys)
    entries = []
    for row in range(len(files)):
        given = {name: array[row] for name, array in found.arrays.items()}
        entries.append(fitted.place("audio", given, {}, np.True_))
    return fitted, entries, reasons | found.failures


def test_a_clip_is_a_window_of_its_file():
    files = [encoded("wav16", wave(seed, 16_000 * (2 + seed))) for seed in range(4)]
    fitted, entries, _ = placed(decode.Audio(seconds=1.0), files)
    assert fitted.exact and not fitted.resampled
    starts = []
    for file, entry in zip(files, entries):
        start = round(float(entry["audio_start"]) * 16_000)
        np.testing.assert_array_equal(entry["audio"], decoded(file)[start : start + 16_000, 0])
        assert int(entry["audio_length"]) == 16_000 and int(entry["audio_rate"]) == 16_000
        starts.append(start)
    assert len(set(starts)) == 4


def test_random_starts_are_uniform():
    file = encoded("wav16", wave(0, 1000))
    keys = np.random.default_rng(0).integers(0, 2**63, 500).astype(np.uint64)
    _, found, _ = rows(decode.Audio(samples=990), [file] * 500, keys)
    starts = np.round(found.arrays["start"] * 16_000).astype(int)
    counts = np.bincount(starts, minlength=11)
    assert len(counts) == 11 and counts.min() > 25


def test_clips_lie_evenly():
    file = encoded("wav16", wave(0, 1000))
    audio = decode.Audio(samples=200, start="uniform", count=5)
    _, (entry,), _ = placed(audio, [file])
    assert np.round(entry["audio_start"] * 16_000).tolist() == [0, 200, 400, 600, 800]
    np.testing.assert_array_equal(entry["audio"].reshape(-1), decoded(file)[:, 0])
    _, (entry,), _ = placed(decode.Audio(samples=200, start="uniform"), [file])
    assert round(float(entry["audio_start"]) * 16_000) == 400


def test_what_is_short_is_padded():
    file = encoded("wav16", wave(0, 300))
    _, (entry,), _ = placed(decode.Audio(samples=1000), [file])
    assert int(entry["audio_length"]) == 300 and not np.any(entry["audio"][300:])
    _, (entry,), _ = placed(decode.Audio(samples=1000, pad="repeat"), [file])
    np.testing.assert_array_equal(entry["audio"], np.tile(decoded(file)[:, 0], 4)[:1000])
    assert int(entry["audio_length"]) == 1000


def test_channels():
    mono, stereo = encoded("wav16", wave(0, 400)), encoded("wav16", wave(0, 400, 2))
    files = [mono, stereo]
    _, entries, _ = placed(decode.Audio(start=0), files)
    np.testing.assert_array_equal(entries[0]["audio"], decoded(mono)[:, 0])
    np.testing.assert_allclose(entries[1]["audio"], decoded(stereo).mean(axis=1), atol=1e-7)
    _, entries, _ = placed(decode.Audio(start=0, channels="stereo"), files)
    np.testing.assert_array_equal(entries[0]["audio"], np.tile(decoded(mono), 2))
    np.testing.assert_array_equal(entries[1]["audio"], decoded(stereo))
    many = encoded("wav16", wave(0, 400, 16))
    _, (entry,), _ = placed(decode.Audio(start=0, channels="as stored"), [many])
    np.testing.assert_array_equal(entry["audio"], decoded(many))
    _, _, bad = placed(decode.Audio(start=0, channels="as stored"), files)
    assert bad == {0: "it has 1 channels, others 2"}
    _, _, bad = placed(decode.Audio(channels="stereo"), [many])
    assert "16 channels" in bad[0]


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 48_000])
def test_another_rate_is_resampled_with_what_lies_around_the_clip(rate):
    """The clip of a tone is that tone from its first sample to its last."""
    time = np.arange(2 * rate)[:, None] / rate
    files = [encoded("wavf32", 0.5 * np.sin(2 * np.pi * 440 * time), rate)]
    files.append(encoded("wav16", wave(0, 16_000)))
    audio = decode.Audio(seconds=0.25, start="uniform")
    _, entries, _ = placed(audio, files)
    start = float(entries[0]["audio_start"])
    expected = 0.5 * np.sin(2 * np.pi * 440 * (start + np.arange(4000) / 16_000))
    np.testing.assert_allclose(entries[0]["audio"], expected, atol=2e-4)
    assert int(entries[0]["audio_length"]) == 4000 and int(entries[0]["audio_rate"]) == rate
    first = round(float(entries[1]["audio_start"]) * 16_000)
    np.testing.assert_array_equal(  # one of the right rate is not touched
        entries[1]["audio"], decoded(files[1])[first : first + 4000, 0]
    )


def test_a_rate_that_nobody_expected_is_named():
    files = [encoded("wav16", wave(0, 400)), encoded("wav16", wave(0, 400), 96_000)]

    class First(decode.Audio):
        def fit(self, column, siblings):
            column.sample = lambda count: [decode.Encoded.from_bytes(files[:1])]
            return super().fit(column, siblings)

    _, _, bad = placed(First(start=0), files)
    assert bad == {
        1: "its rate is 96000 Hz, those of the records looked at are at most 16000: give"
        " Audio(max_rate=96000)"
    }


def test_a_ratio_beyond_32_bits_is_named():
    files = [encoded("wav16", wave(0, 4000, 1, 47_999), 47_999)]
    _, _, bad = placed(decode.Audio(rate=48_000, seconds=0.1, start=0), files)
    assert bad == {
        0: "its rate, 47999 Hz, has no small ratio to 48000, that of the clips: resample the file"
    }


def test_a_file_of_24_hours_takes_the_memory_of_its_clip(tmp_path):
    frames = 24 * 3600 * 16_000
    path = tmp_path / "day.wav"
    header = encoded("wav16", np.zeros((0, 1)))
    head = patched(header, header.index(b"data") + 4, struct.pack("<I", 2 * frames))
    path.write_bytes(head)
    with path.open("r+b") as file:
        file.truncate(len(head) + 2 * frames)  # a hole: nothing is on the disk
    mapped = np.memmap(path, np.uint8, mode="r")
    _, (entry,), _ = placed(decode.Audio(seconds=2.0), [mapped])
    assert entry["audio"].shape == (32_000,) and float(entry["audio_start"]) > 60


def test_a_start_beyond_the_end_is_named():
    _, _, bad = placed(decode.Audio(seconds=1.0, start=3.0), [encoded("wav16", wave(0, 16_000))])
    assert bad == {0: "it ends after 1 seconds, before `start`, 3"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"start": "middle"}, '`start` must be "random", "uniform" or seconds'),
        ({"start": -1}, "`start` must be"),
        ({"seconds": 0}, "`seconds` must be a number of seconds above 0"),
        ({"seconds": "1"}, "`seconds` must be a number of seconds above 0, got '1'"),
        ({"seconds": 1.0, "samples": 5}, "say the same"),
        ({"channels": "left"}, "`channels` must be"),
        ({"pad": "edge"}, "`pad` must be"),
        ({"rate": 0}, "`rate` must be"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        decode.Audio(**arguments)
