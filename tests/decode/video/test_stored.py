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
from tests.videos import KINDS, kind, turned

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
        with pytest.raises(DecodeError, match="cannot decode"):
            next(decode_frames(video, np.array([0])))
