"""Opus in Ogg beside libsndfile, and damage, each kind of which is named."""

import struct

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("soundfile")

from jaxaug.decode.audio import ogg
from jaxaug.decode.audio.read import read_window
from jaxaug.decode.audio.read_header import read_header
from jaxaug.errors import DecodeError
from tests.decode.audio.sounds import checksum, decoded, encoded, wave

NOISE = np.random.default_rng(0).uniform(-0.3, 0.3, (240_000, 2))
DATA = encoded("opus", NOISE, 48_000)


def window(data, start=0, stop=None):
    header = read_header(memoryview(data))
    stop = header.frames if stop is None else stop
    return read_window(memoryview(data), header, start, stop, exact=False)


def pages(data):
    return list(ogg.pages(memoryview(data), 0))


def changed(data, number, place, value):
    """Return a file with other bytes at a place of a page, and that page's checksum."""
    page = pages(data)[number]
    found = bytearray(data[page.start : page.end])
    found[place : place + len(value)] = value
    found[22:26] = bytes(4)
    found[22:26] = struct.pack("<I", checksum(found))
    return data[: page.start] + bytes(found) + data[page.end :]


@pytest.mark.parametrize("channels", [1, 2, 3, 6, 8])
def test_samples_are_those_of_libsndfile(channels):
    """Which leaves channels in the order of Vorbis."""
    for rate in (16_000, 48_000):
        data = encoded("opus", wave(1, rate // 2, channels, rate), rate)
        expected = decoded(data)[:, ogg.channel_order(channels)]
        np.testing.assert_allclose(window(data), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("skipped", [0, 1, 311, 700, 5000])
def test_samples_before_the_sound_and_its_gain(skipped):
    for rate in (16_000, 48_000):
        data = encoded("opus", wave(1, rate, 1, rate), rate)
        data = changed(data, 0, 28 + 10, struct.pack("<H", skipped))
        np.testing.assert_allclose(window(data), decoded(data), rtol=0, atol=1e-6)
        louder = changed(data, 0, 28 + 16, struct.pack("<h", -1000))
        np.testing.assert_allclose(window(louder), decoded(louder), rtol=0, atol=1e-6)


def test_windows_have_the_bits_of_the_whole():
    """Of what is coded as music; speech is as after a seek of libsndfile."""
    whole = window(DATA)
    for start in (0, 1, 47_999, 48_000, 99_000, 163_217, 239_999):
        stop = min(start + 2500, len(whole))
        np.testing.assert_array_equal(window(DATA, start, stop), whole[start:stop])


def test_a_stream_that_begins_later():
    """As where a broadcast is joined: its first page has a position beyond its packets."""
    late = DATA
    for number, page in enumerate(pages(DATA)[2:], 2):
        late = changed(late, number, 6, struct.pack("<q", page.position + 1_000_003))
    assert read_header(memoryview(late)).frames == len(NOISE)
    np.testing.assert_array_equal(window(late), window(DATA))
    np.testing.assert_array_equal(window(late, 150_000, 151_000), window(DATA, 150_000, 151_000))


def test_each_changed_byte_is_named():
    rng = np.random.default_rng(1)
    data = encoded("opus", NOISE[:60_000], 48_000)
    for place in (*range(60), *rng.integers(0, len(data), 100).tolist()):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.integers(8)
        with pytest.raises(DecodeError):
            window(bytes(damaged))


def test_missing_pages_and_samples_are_named():
    parts = [DATA[page.start : page.end] for page in pages(DATA)]
    without = b"".join(parts[:3] + parts[4:])
    with pytest.raises(DecodeError, match="page 4 of Ogg follows page 2"):
        window(without)
    with pytest.raises(DecodeError, match="page 2 of Ogg follows page 0"):
        window(b"".join([parts[0], *parts[2:]]))  # sound would be taken for the tags
    with pytest.raises(DecodeError, match=r"page 3 of Ogg follows page 1|several streams"):
        window(b"".join([*parts[:2], parts[3], parts[2], *parts[4:]]))
    position = pages(DATA)[3].position
    late = changed(DATA, 3, 6, struct.pack("<q", position + 960))
    with pytest.raises(DecodeError, match=f"ends at sample {position + 960}, and what was decoded"):
        window(late)
    with pytest.raises(DecodeError, match=r"cut off|decoding ended"):
        window(DATA[:-100])


def test_what_libopus_refuses_is_named():
    page = pages(DATA)[3]
    place = 27 + DATA[page.start + 26]
    code3 = changed(DATA, 3, place, b"\xff\x00")  # of no frames
    with pytest.raises(DecodeError, match="libopus says, corrupted stream"):
        window(code3)
    for family in (2, 3):
        with pytest.raises(DecodeError, match=f"channels are of family {family}"):
            read_header(memoryview(changed(DATA, 0, 28 + 18, bytes([family]))))


def test_packets_over_several_pages():
    """FFmpeg and opusenc end pages with a packet; others fill them."""
    one, two = pages(DATA)[2:4]
    *whole, last = one.parts
    assert len(last) >= 255
    first = head(one, 0, one.position - 960, laced(whole) + b"\xff")
    second = head(two, 1, two.position, laced([last[255:], *two.parts]))
    spread = (
        DATA[: one.start]
        + summed(first + b"".join(whole) + last[:255])
        + summed(second + last[255:] + b"".join(two.parts))
        + DATA[two.end :]
    )
    np.testing.assert_array_equal(window(spread), window(DATA))
    np.testing.assert_array_equal(window(spread, 99_000, 99_100), window(DATA, 99_000, 99_100))
    np.testing.assert_allclose(decoded(spread), decoded(DATA), rtol=0, atol=1e-6)


def laced(packets):
    """Return the lengths of packets as a page tells them."""
    return b"".join(b"\xff" * (len(each) // 255) + bytes([len(each) % 255]) for each in packets)


def head(page, continued, position, lacing):
    """Return the header of a page in place of another one."""
    found = bytearray(DATA[page.start : page.start + 26])
    found[5] |= continued
    found[6:14] = struct.pack("<q", position)
    return bytes(found) + bytes([len(lacing)]) + lacing


def summed(page):
    return page[:22] + struct.pack("<I", checksum(page[:22] + bytes(4) + page[26:])) + page[26:]
