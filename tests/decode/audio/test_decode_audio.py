"""One sound at hand: windows beside libsndfile, and what is refused."""

import numpy as np
import pytest

pytest.importorskip("miniaudio")
pytest.importorskip("soundfile")

from jaxaug.decode import decode_audio
from jaxaug.errors import DecodeError
from tests.decode.audio.sounds import EXACT, SUBTYPES, decoded, encoded, wave

RATE = 16_000


@pytest.mark.parametrize("kind", SUBTYPES)
def test_windows_are_those_of_libsndfile(kind):
    data = encoded(kind, wave(1, 4000, 2))
    expected = decoded(data)
    tolerance = {"mp3": 1e-4, "opus": 1e-6}.get(kind, 0)  # of another decoder, or build of it
    whole, rate = decode_audio(data)
    assert (rate, whole.dtype) == (RATE, np.float32)
    np.testing.assert_allclose(whole, expected, rtol=0, atol=tolerance)
    part, _ = decode_audio(memoryview(data), start=0.125, seconds=0.05)
    np.testing.assert_allclose(part, expected[2000:2800], rtol=0, atol=tolerance)
    rest, _ = decode_audio(data, start=0.2, seconds=100.0)
    np.testing.assert_allclose(rest, expected[3200:], rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", [*EXACT, "wav24", "vorbis"])
def test_integers(kind):
    data = encoded(kind, wave(1, 1000))
    samples, _ = decode_audio(data, dtype="int16")
    assert samples.dtype == np.int16
    # Half a step of rounding, where there is any.
    expected = 32768 * decoded(data)
    np.testing.assert_allclose(samples, expected, rtol=0, atol=0 if kind in EXACT else 0.5)


def test_what_is_no_sound_is_named():
    with pytest.raises(
        DecodeError, match=r"^cannot decode sound \(15 bytes\): it is no WAV"
    ) as told:
        decode_audio(b"no sound at all")
    assert told.value.byte_count == 15
    with pytest.raises(DecodeError, match="it is empty"):
        decode_audio(b"")
    with pytest.raises(DecodeError, match="it is cut off"):
        decode_audio(encoded("wav16", wave(1, 1000))[:-2])
    with pytest.raises(TypeError, match=r"`data` must be the bytes of a file, got str: read them"):
        decode_audio("a.wav")  # pyright: ignore[reportArgumentType]


def test_a_header_that_promises_too_much_is_refused_before_memory_is_taken():
    data = bytearray(encoded("flac16", wave(1, 1000, 2)))
    data[21] |= 0x0F  # the upper bits of the number of samples
    with pytest.raises(DecodeError, match=r"64\d+ samples of 2 channels, more than `max_samples`"):
        decode_audio(bytes(data))
    short = encoded("wav16", wave(1, 1000, 2))
    decode_audio(short, max_samples=2000)
    with pytest.raises(DecodeError, match="1000 samples of 2 channels, more than `max_samples`"):
        decode_audio(short, max_samples=1999)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"start": -0.1}, ValueError, "`start` must be seconds of at least 0"),
        ({"start": "1"}, ValueError, "`start` must be seconds of at least 0, got '1'"),
        ({"start": 0.0625}, IndexError, r"`start` must be within \[0, 0.0625\) s, got 0.0625"),
        ({"seconds": 0}, ValueError, "`seconds` must be a number of seconds above 0"),
        ({"dtype": "int32"}, ValueError, "`dtype` must be"),
        ({"max_samples": 0}, ValueError, "`max_samples` must be"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        decode_audio(encoded("wav16", wave(1, 1000)), **arguments)
