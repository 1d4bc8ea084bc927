"""Tables of videos, as an index keeps them: they are enough to decode."""

import dataclasses
import hashlib

import numpy as np
import pytest

from jaxaug.decode import Encoded
from jaxaug.decode.video.host import decode_frames
from jaxaug.decode.video.stored import read_videos
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Table
from jaxaug.errors import DecodeError
from tests.videos import GOPS, KINDS, kind, turned, video

MAX_PIXELS = 2**20


def stored(data: bytes) -> Table:
    return Table.from_bytes(read_videos(Encoded.from_bytes([data])).tables[0])


def hashes(data, numbers, table=None, begin=0):
    """{number: hash of its planes} of some frames, and the packets that it took."""
    with VideoFile(memoryview(data), MAX_PIXELS, table, begin) as video:
        found = {}
        for number, planes in decode_frames(video, np.array(numbers)):
            content = planes.luma.tobytes() + planes.chroma.tobytes() + repr(planes.color).encode()
            found[number] = hashlib.md5(content).hexdigest()
        return found, video.packets_read


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_table_gives_the_same_frames_without_the_container(name):
    data = kind(name)
    table = stored(data)
    assert len(table.frames) == 30
    for numbers in ([0], [29], [3, 17, 18], range(30)):
        assert hashes(data, numbers, table) == hashes(data, numbers)
    # of nothing but the packets
    bare = bytearray(len(data))
    for start, size in zip(table.offsets.tolist(), table.sizes.tolist()):
        bare[start : start + size] = data[start : start + size]
    assert hashes(bytes(bare), [7, 23], table) == hashes(data, [7, 23])


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_stored_table_knows_how_frames_are_turned(degrees):
    data = turned(kind("h264"), degrees)
    assert hashes(data, [7], stored(data)) == hashes(data, [7])


def understated(data: bytes) -> bytes:
    """Return x264's MP4 with max_num_reorder_frames 0 in its header for 2, as long as before.

    It is the last number but one of the parameters: ITU-T H.264 section E.1.1.
    """
    first = data.index(b"avcC") + 12
    header = data[first : first + int.from_bytes(data[first - 2 : first], "big")]
    bits = "".join(f"{byte:08b}" for byte in header)
    numbers = bits.rstrip("0").removesuffix("1")
    assert numbers.endswith("01100101")  # Exp-Golomb codes of 2 and, for pictures held, 4
    numbers = numbers.removesuffix("01100101") + "10001001"  # of 0 and 8
    changed = int((numbers + "1").ljust(len(bits), "0"), 2).to_bytes(len(header), "big")
    return data.replace(header, changed)


def test_headers_that_tell_too_small_a_delay_cost_no_frames():
    right = video(**GOPS)
    data = understated(right)
    table = stored(data)
    assert table.delay == 1
    for numbers in ([3], [7, 23], range(30)):
        expected = hashes(right, numbers)
        assert hashes(data, numbers) == hashes(data, numbers, table) == expected


@pytest.mark.parametrize("name", ["h264", "h264 open", "h264 mkv", "variable rate", "hevc"])
def test_the_delay_is_how_many_pictures_are_decoded_before_and_shown_behind_one(name):
    table = stored(kind(name))
    late = [int((table.times[:place] > time).sum()) for place, time in enumerate(table.times)]
    assert table.delay == (max(late) if table.codec.name == "h264" else 0)


def test_a_part_of_the_file_is_enough_and_less_is_an_error():
    data = kind("h264")
    table = stored(data)
    (packets,) = table.runs(np.array([13, 15]))
    begin = int(table.offsets[packets].min())
    end = int((table.offsets + table.sizes)[packets].max())
    assert end - begin < len(data) // 2
    assert hashes(data[begin:end], [13, 15], table, begin) == hashes(data, [13, 15])
    with pytest.raises(DecodeError, match="not those that were indexed"):
        hashes(data[begin : end - 1], [13, 15], table, begin)
    with pytest.raises(DecodeError, match="not those that were indexed"):
        hashes(data[begin + 1 :], [13, 15], table, begin + 1)


def test_bad_videos_have_no_table_and_large_ones_are_refused():
    data = kind("h264")
    found = read_videos(Encoded.from_bytes([data[:900], b"", b"no video", data]))
    assert [len(each) > 0 for each in found.tables] == [False, False, False, True]
    table = stored(data)
    with pytest.raises(DecodeError, match="48 x 64 pixels are more than max_pixels=3000"):
        VideoFile(memoryview(data), 3000, table)
    small = dataclasses.replace(table, codec=dataclasses.replace(table.codec, height=8))
    with VideoFile(memoryview(data), 3000, small) as video:  # whose stream has more than it says
        with pytest.raises(DecodeError, match="48 x 64 pixels are more than max_pixels=3000"):
            next(decode_frames(video, np.array([0])))
