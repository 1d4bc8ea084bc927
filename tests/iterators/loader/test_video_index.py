"""Videos whose tables an index keeps: the same clips, without a look at the containers."""

import dataclasses
import os
import pickle
import tarfile
import time
from functools import partial

import av
import numpy as np
import pytest

from jaxaug.__main__ import main
from jaxaug.decode import Encoded, Video
from jaxaug.iterators import (
    Concat,
    FileList,
    Sequential,
    TFRecord,
    VideoFolder,
    WebDataset,
    split,
)
from jaxaug.iterators.loader.reader import RecordReader, SourceColumn
from jaxaug.iterators.sources.packed import facts
from tests.iterators.loader.test_videos import assert_same, clips
from tests.iterators.sources.containers import example, tfrecord
from tests.iterators.sources.packed.test_remote import Server, serving
from tests.videos import GOPS, kind, turned, video

NAMES = ("h264", "vp9", "h264 mkv", "mpeg4 avi", "variable rate", "hevc")


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(NAMES):
        (tmp_path / f"{number}.mp4").write_bytes(kind(name))
    (tmp_path / "6.mp4").write_bytes(turned(kind("h264"), 90))
    return tmp_path


@pytest.fixture
def opened(monkeypatch):
    """How often FFmpeg opened a container."""
    calls = []
    real = av.open
    monkeypatch.setattr(
        av, "open", lambda *args, **options: calls.append(1) or real(*args, **options)
    )
    return calls


@dataclasses.dataclass
class OlderCodec:
    """Of a version that knew less."""

    name: str


DECODE = Video(frames=4, stride=3, canvas=(64, 64))
OPTIONS = {"decode": DECODE, "epochs": 1}


def test_tables_of_a_version_that_told_less_of_codecs_are_made_anew(folder, opened, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(facts, "Codec", OlderCodec)
        assert main(["index", str(folder)]) == 0
    clips(VideoFolder(folder), **OPTIONS)
    assert len(opened) > 2 * len(NAMES)  # once for that index, and once more

    assert main(["index", str(folder)]) == 0
    opened.clear()
    clips(VideoFolder(folder), **OPTIONS)
    assert not opened


def test_an_indexed_folder_gives_the_same_clips_and_opens_no_container(folder, opened, capsys):
    listed = folder / "list.txt"
    listed.write_text("1.mp4 0 3 9\n0.mp4 1 12 30\n")
    expected, _ = clips(VideoFolder(folder), **OPTIONS)
    parts, _ = clips(FileList(listed, column="video", spans="frames"), **OPTIONS)
    assert main(["index", str(folder)]) == 0
    assert "7 videos" in capsys.readouterr().out

    source = VideoFolder(folder)
    counts = []
    for batch_size in (4, 7):
        opened.clear()
        found, _ = clips(source, batch_size, **OPTIONS)
        assert_same(found, expected)
        counts.append(len(opened))
    assert counts == [0, 0]
    assert_same(clips(FileList(listed, column="video", spans="frames"), **OPTIONS)[0], parts)
    assert len(clips(Concat([source, source]), **OPTIONS)[0]) == 2 * len(source)
    assert not opened

    # one that has changed is read anew
    (folder / "0.mp4").write_bytes(kind("4:4:4"))
    opened.clear()
    changed, _ = clips(VideoFolder(folder), **OPTIONS)
    assert changed[0]["original_size"].tolist() == [35, 51]
    assert len(opened) == 2  # its first frame by `Video.fit`, and the clip


def pack(folder, count):
    """Pack the videos of a folder into a tar and a TFRecord; return how each is opened."""
    with tarfile.open(folder / "a.tar", "w") as tar:
        for number in range(count):
            tar.add(folder / f"{number}.mp4", f"{number}.mp4")
    files = [(folder / f"{number}.mp4").read_bytes() for number in range(count)]
    records = [example({"clip": data, "class": np.array([n])}) for n, data in enumerate(files)]
    (folder / "a.tfrecord").write_bytes(tfrecord(records))
    return {
        "tar": partial(WebDataset, folder / "a.tar", video="mp4"),
        "tfrecord": partial(TFRecord, folder / "a.tfrecord", video="clip", label="class"),
    }


@pytest.mark.parametrize("name", ["tar", "tfrecord"])
def test_the_index_of_packed_videos_holds_tables(folder, opened, name):
    opener = pack(folder, 7)[name]
    expected, _ = clips(VideoFolder(folder), **OPTIONS)
    options = {"tar": ["--video", "mp4"], "tfrecord": ["--video", "clip", "--label", "class"]}
    assert main(["index", str(folder / f"a.{name}"), *options[name]]) == 0
    opened.clear()
    source = opener()
    assert "7 videos in 1 files" in repr(source) and not opened
    assert all(source.headers(np.arange(7))["video"].tables)
    found, _ = clips(source, **OPTIONS)
    assert not opened
    for index, entries in expected.items():
        np.testing.assert_array_equal(found[index]["video"], entries["video"])
        assert name == "tar" or found[index]["label"] == index


FITTED = [
    ([kind("h264"), turned(kind("h264"), 90)], (64, 64), False),
    ([turned(kind("h264"), 270)], (64, 48), False),
    ([kind("odd")], (37, 53), False),
    ([turned(video(5, (37, 53), codec="mpeg4"), 180)], (37, 53), True),  # by its odd sides
    ([kind("h264"), kind("4:2:2")], (48, 64), True),
    ([kind("h264 ts"), kind("4:4:4")], (64, 64), True),  # the first has no table
    ([b"no video", video(2, (320, 320))], (512, 512), False),  # and one of more than `max_pixels`
]


@pytest.mark.parametrize(("files", "canvas", "whole"), FITTED)
def test_tables_tell_the_canvas_and_the_chroma_as_first_frames_do(tmp_path, files, canvas, whole):
    for number, data in enumerate(files):
        (tmp_path / f"{number}.mp4").write_bytes(data)
    for _ in range(2):
        source = VideoFolder(tmp_path)
        reader = RecordReader(source=source, sampler=Sequential(len(source)))
        column = SourceColumn("video", source.read(np.arange(1))["video"], reader, 0)
        for threads in (1, 3):
            fitted = Video(max_pixels=100_000, num_threads=threads).fit(column, {})
            assert (fitted.canvas, fitted.whole_chroma) == (canvas, whole)
        main(["index", str(tmp_path)])


def test_a_bad_video_of_an_indexed_folder_is_named_and_replaced(folder):
    (folder / "1.mp4").write_bytes(kind("h264")[:900])
    assert main(["index", str(folder)]) == 0
    source = VideoFolder(folder)
    with pytest.warns(UserWarning, match="the file is cut"):
        found, _ = clips(source, **OPTIONS, on_error="replace", shuffle=False)
    assert set(found) == set(range(7)) - {1}
    os.unlink(folder / "2.mp4")
    with pytest.warns(UserWarning, match="cannot be read: No such file"):
        found, _ = clips(source, **OPTIONS, on_error="mask", shuffle=False)
    assert set(found) == set(range(7)) - {1, 2}


def read_bytes(monkeypatch):
    """The bytes that sources were asked for in parts, by call."""
    seen = []
    real = READ_PARTS

    def counted(self, indices, parts):
        answer = real[type(self)](self, indices, parts)
        if parts:
            seen.append(int(answer["video"].lengths.sum()))
        return answer

    for source in real:
        monkeypatch.setattr(source, "read_parts", counted)
    return seen


READ_PARTS = {each: each.read_parts for each in (VideoFolder, WebDataset, TFRecord, FileList)}


@pytest.fixture
def long_folder(tmp_path):
    data = video(120, (48, 64), **GOPS)
    for number in range(4):
        (tmp_path / f"{number}.mp4").write_bytes(data)
    pack(tmp_path, 4)
    (tmp_path / "list.txt").write_text("0.mp4 0 24 36\n1.mp4 1 30 34\n2.mp4 0 200 300\n")
    return tmp_path, len(data)


def test_only_the_groups_of_pictures_of_a_clip_are_read(long_folder, monkeypatch):
    folder, size = long_folder
    listed = FileList(folder / "list.txt", column="video", spans="frames")
    options = {"decode": Video(frames=4, stride=2, canvas=(48, 64)), "epochs": 1}
    with pytest.warns(UserWarning, match="no frames from 200"):
        parts, _ = clips(listed, on_error="mask", **options)
    expected, _ = clips(VideoFolder(folder), **options)
    assert main(["index", str(folder)]) == 0

    seen = read_bytes(monkeypatch)
    mapped = WebDataset(folder / "a.tar", video="mp4")
    staged = WebDataset(folder / "a.tar", video="mp4", mmap=False)
    records = TFRecord(folder / "a.tfrecord", video="clip", label="class")
    half, rest = split(VideoFolder(folder), 0.5, 0.5)
    for source in (VideoFolder(folder), mapped, staged, records, half, rest):
        seen.clear()
        found, _ = clips(source, 2, **options)
        if len(source) == 4:
            assert all((found[row]["video"] == expected[row]["video"]).all() for row in expected)
        assert 0 < sum(seen) < 0.35 * len(source) * size
    with pytest.warns(UserWarning, match="no frames from 200"):
        assert_same(clips(listed, on_error="mask", **options)[0], parts)
    seen.clear()
    assert clips(VideoFolder(folder), 3, **options)[0].keys() == expected.keys()  # a padded batch

    encoded = VideoFolder(folder).read_parts(
        np.arange(2), {"video": lambda stored, span: np.array([[10, 20], [0, 5]])}
    )["video"]
    again = pickle.loads(pickle.dumps(encoded))
    joined = Encoded.join([VideoFolder(folder).read(np.array([3]))["video"], again.take([0])])
    assert joined.first_bytes.tolist() == [0, 10] and joined.lengths.tolist() == [size, 10]
    assert bytes(joined.view(1)) == (folder / "0.mp4").read_bytes()[10:20]


def test_a_far_shard_gives_the_same_clips_by_ranges_of_their_groups(long_folder, monkeypatch):
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    folder, size = long_folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    options = {"decode": Video(frames=4, stride=2, canvas=(48, 64)), "epochs": 1}
    expected, _ = clips(WebDataset(folder / "a.tar", video="mp4"), 2, **options)

    class Slow(Server):
        def answer(self, body):
            time.sleep(0.02)
            super().answer(body)

    with serving(Slow) as (handler, url):
        handler.contents["/a.tar"] = (folder / "a.tar").read_bytes()
        source = WebDataset(f"{url}/a.tar", video="mp4")
        assert_same(clips(source, 2, **options)[0], expected)
    # the Loader reads an example
    assert 0 < source.traffic["wanted_bytes"] - size < 0.35 * 4 * size
