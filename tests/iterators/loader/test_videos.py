"""Videos through the Loader: clips that depend on nothing but seed, epoch and record."""

import pickle
import tarfile
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.decode import Encoded, Image, Video, decode_video
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators import (
    Concat,
    FileList,
    InMemory,
    Parquet,
    Renamed,
    VideoFolder,
    WebDataset,
)
from jaxaug.iterators.loader.columns import put_rows
from tests.images import jpegs
from tests.iterators.loaders import one_device
from tests.videos import kind, turned, video

NAMES = ("h264", "mpeg4", "vp9", "hevc", "10 bits", "h264 mkv", "mpeg4 avi", "variable rate")


class Videos:
    """Videos in memory."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def read(self, indices):
        return {"video": Encoded.from_bytes([self.files[index] for index in indices])}

    def describe(self, index):
        return {"record": index}

    def fingerprint(self):
        return "videos"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(NAMES):
        path = root / f"class{number % 2}" / f"{number}.mp4"  # whatever it is
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(kind(name))
    return root


def clips(source, batch_size=4, batches=None, state=None, transform=None, **options):
    """{record: its entries} of one epoch, and the state behind it."""
    options = {"seed": 3, "last_batch": "pad", "sharding": one_device(), **options}
    options.setdefault("decode", Video(frames=4, stride=3, canvas=(48, 64)))
    seen = {}
    with Loader(source, batch_size, transform=transform, **options) as loader:
        if state is not None:
            loader.set_state(state)
        for _ in range(batches or -(-len(source) // batch_size)):
            batch = {name: np.asarray(array) for name, array in next(loader).items()}
            for row in np.flatnonzero(batch["valid"]):
                seen[int(batch["index"][row])] = {n: array[row] for n, array in batch.items()}
        return seen, loader.get_state()


def assert_same(found, expected):
    assert set(found) == set(expected)
    for index, entries in expected.items():
        for name, value in entries.items():
            np.testing.assert_array_equal(found[index][name], value, err_msg=f"{index} {name}")


def test_a_clip_is_the_frames_that_it_names(folder):
    source = VideoFolder(folder)
    found, _ = clips(source)
    assert len(found) == len(NAMES)
    for index, entries in found.items():
        with open(source.path(index), "rb") as file:
            data = file.read()
        assert (np.diff(entries["video_frame"]) == 3).all()
        frames = decode_video(data, frames=entries["video_frame"])
        np.testing.assert_array_equal(entries["video"], frames)
        assert entries["video_time"].dtype == np.float32
        assert entries["size"].tolist() == entries["original_size"].tolist() == [48, 64]
        assert entries["label"] == source.labels[index]


@pytest.mark.bits
def test_the_same_clips_for_any_batch_size_devices_and_resume(folder):
    source = VideoFolder(folder)
    expected, _ = clips(source)
    assert_same(clips(source, 6)[0], expected)
    assert_same(clips(source, 8, sharding=None)[0], expected)
    half, state = clips(source, 4, batches=1)
    rest, _ = clips(source, 2, batches=2, state=state)
    assert_same(half | rest, expected)
    other, _ = clips(source, 4, batches=2, state={**state, "epoch": 1, "position": 0})
    frames = [
        entries["video_frame"][0] != expected[k]["video_frame"][0] for k, entries in other.items()
    ]
    assert any(frames)


def test_an_image_beside_a_video_needs_sizes_of_its_own():
    class Posters(Videos):
        def read(self, indices):
            return super().read(indices) | {"image": Encoded.from_bytes(jpegs(len(indices)))}

    source = Posters([kind("h264")] * 4)
    with pytest.raises(ValueError, match=r"'video' and 'image', which both make.*'size', 'orig"):
        Loader(source, 4, sharding=one_device())
    renamed = Renamed(source, {"image": "poster"})
    columns = {"video": Video(frames=2), "poster": Image()}
    with Loader(renamed, 4, decode=columns, sharding=one_device()) as loader:
        assert {"size", "poster_size"} < set(next(loader))


def test_an_array_beside_a_video_does_not_get_its_size():
    class Pictures(Videos):
        def read(self, indices):
            pixels = np.zeros((len(indices), 20, 30, 3), np.float32)
            return super().read(indices) | {"image": pixels}

    source = Pictures([kind("h264")] * 4)
    with pytest.raises(ValueError, match=r"'image' without a size beside 'video', whose 'size'"):
        Loader(source, 4, sharding=one_device())
    with Loader(Renamed(source, {"image": "picture"}), 4, sharding=one_device()) as loader:
        assert {"size", "picture"} < set(next(loader))


def test_interlaced_frames_have_the_colors_of_their_own_field():
    """Beside others, in a batch and in a clip: of two recordings one behind the other."""
    mixed = kind("interlaced mpeg2") + video(4, container="mpegts", codec="mpeg2video")
    source = Videos([kind("interlaced h264"), kind("h264"), mixed, kind("lower first")])
    decode = Video(frames=4, stride=1, start=28, canvas=(48, 64))
    expected, _ = clips(source, decode=decode)
    for index, entries in expected.items():
        frames = decode_video(source.files[index], frames=entries["video_frame"])
        np.testing.assert_array_equal(entries["video"], frames)
    assert_same(clips(source, 8, decode=decode, sharding=None)[0], expected)
    half, state = clips(source, 2, batches=1, decode=decode)
    rest, _ = clips(source, 1, batches=2, state=state, decode=decode)
    assert_same(half | rest, expected)


@pytest.mark.parametrize(
    "name, asked, told",
    [("h264", False, False), ("h264", True, True), ("interlaced h264", False, True)],
)
def test_frames_tell_that_they_are_interlaced_where_a_video_begins_so(name, asked, told):
    values = Encoded.from_bytes([kind(name)])
    column: Any = SimpleNamespace(name="video", example=values, sample=lambda *_: [values])
    fitted = Video(canvas=(48, 64), interlaced=asked).fit(column, {})
    assert ("interlaced" in fitted.forms()) == told


def test_two_clips_and_padding():
    source = Videos([kind("h264"), video(5)])
    found, _ = clips(source, 2, decode=Video(frames=4, stride=2, count=2, pad="mask"))
    assert found[0]["video"].shape == (2, 4, 48, 64, 3)
    short = found[1]
    assert short["video_frame"].tolist() == [[0, 2, 4, -1]] * 2
    assert not short["video"][:, 3].any() and short["video"][:, 2].any()
    last, _ = clips(source, 2, decode=Video(frames=4, stride=2))
    assert last[1]["video_frame"].tolist() == [0, 2, 4, -1]
    np.testing.assert_array_equal(last[1]["video"][3], last[1]["video"][2])


def test_canvases():
    files = [kind("h264"), turned(kind("h264"), 90), kind("odd"), kind("4:4:4")]
    source = Videos(files)
    found, _ = clips(source, 4, decode=Video(frames=1, start=0))
    sizes = [[48, 64], [64, 48], [37, 53], [35, 51]]
    assert [found[k]["size"].tolist() for k in range(4)] == sizes
    assert found[0]["video"].shape == (1, 64, 64, 3)
    for index, data in enumerate(files):
        height, width = sizes[index]
        frame = found[index]["video"][0]
        assert not frame[height:].any() and not frame[:, width:].any()
        expected = decode_video(data, frames=[0])[0].astype(int)
        assert np.abs(frame[:height, :width] - expected).max() <= 2  # chroma of 8 bits for 4:4:4
    small, _ = clips(source, 4, decode=Video(frames=1, start=0, canvas=(24, 32)))
    assert small[1]["size"].tolist() == [24, 18] and small[1]["original_size"].tolist() == [64, 48]


def test_bad_videos_are_masked_named_and_replaced():
    data = kind("h264")
    source = Videos([data, data[:900], b"no video", data])
    with pytest.warns(UserWarning, match="could not be decoded"):
        found, _ = clips(source, on_error="mask")
        replaced, _ = clips(source, on_error="replace", shuffle=False)
    assert set(found) == {0, 3} and set(replaced) == {0, 3}
    with Loader(source, 4, decode=Video(), shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(DecodeError, match=r"record 1 .*the file is cut: it has 900 of"):
            next(loader)
    with Loader(
        source, 4, decode=Video(), on_error="mask", shuffle=False, sharding=one_device()
    ) as loader:
        with pytest.warns(UserWarning):
            batch = next(loader)
        assert batch["valid"].tolist() == [True, False, False, True]
        assert (np.asarray(batch["video_frame"][1]) == -1).all()
        assert not np.asarray(batch["video"][1]).any()
        assert batch["size"][1].tolist() == [48, 64]
        assert loader.stats["frames_decoded"] >= 32


def test_a_start_behind_the_end_is_a_reason():
    source = Videos([video(5)] * 2)
    with Loader(source, 2, decode=Video(start=9), sharding=one_device()) as loader:
        with pytest.raises(DecodeError, match="it has 5 frames, none from `start` on"):
            next(loader)


def test_a_transform_gets_clips_and_compiles_what_it_reads():
    def last(key, sample):
        return {"image": sample["video"][-1].astype(jnp.float32) / 255}

    found, _ = clips(Videos([kind("h264")] * 2), 2, transform=last)
    assert found[0]["image"].shape == (48, 64, 3)


def test_a_chain_over_frames_and_clips(folder):
    chain = augment.Compose([augment.RandomCrop(24), augment.RandomHorizontalFlip()])
    decoder = Video(frames=4, stride=2, count=2, overlap=False)
    found, _ = clips(VideoFolder(folder), decode=decoder, transform=augment.Frames(chain))
    assert found[0]["video"].shape == (2, 4, 24, 24, 3) and "size" not in found[0]
    assert found[0]["video_frame"].shape == (2, 4)
    other, _ = clips(VideoFolder(folder), 8, decode=decoder, transform=augment.Frames(chain))
    assert_same(other, found)


def test_sample_shows_the_first_frame_of_a_part(listed):
    one = {"decode": Video(frames=2), "sharding": one_device()}
    with Loader(listed("a.mp4 0 7 9", spans="frames"), 1, **one) as loader:
        found = loader.sample(0)["original"]
    np.testing.assert_array_equal(found, decode_video(kind("variable rate"), frames=[7])[0])


def test_sample_shows_the_first_frame(folder):
    with Loader(VideoFolder(folder), 4, decode=Video(frames=2), sharding=one_device()) as loader:
        sample = loader.sample(0)
    expected = decode_video(kind("h264"), frames=[0])[0]
    np.testing.assert_array_equal(sample["original"], expected)
    assert sample["sample"]["video"].shape == (2, 48, 64, 3)


def test_folders_without_videos_are_named(tmp_path):
    with pytest.raises(SourceError, match="no videos below"):
        VideoFolder(tmp_path)


def test_other_columns_are_no_videos():
    source = InMemory(np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(TypeError, match="column 'image' must be encoded videos, got ndarray"):
        Loader(source, 2, decode=Video(), sharding=one_device())


def test_videos_in_tar_lists_and_parquet(tmp_path):
    names = ("h264", "vp9", "h264 mkv")
    expected, _ = clips(Videos([kind(name) for name in names]), 3)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number, (name, suffix) in enumerate(zip(names, ("mp4", "webm", "mkv"))):
            (tmp_path / f"{number}.{suffix}").write_bytes(kind(name))
            tar.add(tmp_path / f"{number}.{suffix}", f"{number}.{suffix}")
    (tmp_path / "list.txt").write_text("0.mp4 4\n1.webm 5\n2.mkv 6\n")
    tar = WebDataset(tmp_path / "a.tar", video=("mp4", "webm", "mkv"))
    listed = FileList(tmp_path / "list.txt", column="video")
    for source in (tar, listed):
        found, _ = clips(source, 3)
        for index, entries in expected.items():
            np.testing.assert_array_equal(found[index]["video"], entries["video"])
    assert [found[index]["label"] for index in range(3)] == [4, 5, 6]

    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"clip": [kind(name) for name in names], "label": [1, 2, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    found, _ = clips(Parquet(tmp_path / "a.parquet", image="clip"), 3)
    np.testing.assert_array_equal(found[2]["image"], expected[2]["video"])


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "a.mp4").write_bytes(kind("variable rate"))
    (tmp_path / "b.mkv").write_bytes(kind("h264 mkv"))

    def write(*lines, **options):
        (tmp_path / "list.txt").write_text("\n".join(lines))
        return FileList(tmp_path / "list.txt", column="video", **options)

    return write


def test_clips_lie_in_the_spans_of_their_rows(listed):
    source = listed("a.mp4 0 3 9", "a.mp4 1 12 30", "b.mkv 0 28 inf", spans="frames")
    for epoch in range(3):
        seen, _ = clips(source, decode=Video(frames=3, stride=2, canvas=(48, 64)), seed=epoch)
        for row, (begin, end) in enumerate([(3, 9), (12, 30), (28, 30)]):
            frames = seen[row]["video_frame"]
            shown = frames[frames >= 0]
            assert begin <= shown.min() and shown.max() < end
            names = ("variable rate", "variable rate", "h264 mkv")
            expected = decode_video(kind(names[row]), frames=shown)
            np.testing.assert_array_equal(seen[row]["video"][: len(shown)], expected)
    assert seen[2]["video_frame"].tolist() == [28, -1, -1]
    assert [seen[row]["label"] for row in range(3)] == [0, 1, 0]


def test_a_span_in_seconds_holds_the_frames_that_begin_in_it(listed):
    times = np.array([n * 40 + (n * n * 7) % 31 for n in range(30)]) / 1000
    source = listed("a.mp4 some words 0.3 0.9", "a.mp4 0.9 inf", spans="seconds", dtype=str)
    seen, _ = clips(source, decode=Video(frames=40, stride=1, start=0, canvas=(48, 64)))
    for row, (start, end) in enumerate([(0.3, 0.9), (0.9, 9)]):
        expected = np.flatnonzero((times >= start) & (times < end))
        frames = seen[row]["video_frame"]
        assert frames[frames >= 0].tolist() == expected.tolist()
    seen, _ = clips(source, decode=Video(frames=400, fps=500, start=0, canvas=(48, 64)))
    clock = times[np.argmax(times >= 0.3)] + np.arange(400) / 500
    then = np.searchsorted(times, clock + 1e-6, side="right") - 1
    np.testing.assert_array_equal(seen[0]["video_frame"], np.where(clock < 0.9 - 1e-6, then, -1))
    assert source.texts(np.array([0, 1]), ["text"], missing="")["text"] == ["some words", ""]


def test_spans_stay_with_their_rows_in_parts_and_replacements(listed):
    source = listed("a.mp4 0 1", "a.mp4 70 80", "a.mp4 5 6", spans="frames")
    decode = Video(frames=1, canvas=(48, 64))
    whole = Videos([kind("h264")])
    both = Concat([source, whole])
    with pytest.raises(
        DecodeError, match="no frames from 70 to 80 frames: the last is at number 29"
    ):
        clips(source, decode=decode, on_error="raise")
    seen, _ = clips(both, decode=decode, on_error="mask")
    assert seen.keys() == {0, 2, 3}
    assert [seen[row]["video_frame"].tolist() for row in (0, 2)] == [[0], [5]]
    encoded = both.read(np.array([3, 2, 0]))["video"]
    again = pickle.loads(pickle.dumps(encoded)).take(np.array([1, 0]))
    assert again.span.start.tolist() == [5, 0] and again.span.end.tolist() == [6, np.inf]
    replaced = put_rows(encoded, np.array([0]), encoded.take(np.array([1])))
    assert replaced.span.start.tolist() == [5, 5, 0]
    assert replaced.lengths.tolist() == encoded.lengths[[1, 1, 2]].tolist()


def test_spans_that_are_none_are_refused_and_others_another_data_set(listed):
    for line in ("a.mp4 0", "a.mp4 0 5 5", "a.mp4 0 -1 5", "a.mp4 0 nan 5", "a.mp4 0 1.5 5"):
        with pytest.raises(SourceError, match="line 1: a line must end with start and end"):
            listed(line, spans="frames")
    prints = [
        listed(f"a.mp4 0 {s} 5", spans=u).fingerprint()
        for s, u in ((0, "frames"), (1, "frames"), (0, "seconds"))
    ]
    assert len(set(prints)) == 3
    assert "1 to 5 frames" in listed("a.mp4 0 1 5", spans="frames").describe(0)["span"]


def test_the_memory_of_canvases_is_told_and_bounded(folder):
    decode = Video(frames=4, stride=3, canvas=(48, 64))
    options = {"seed": 3, "decode": decode, "sharding": one_device()}
    with Loader(VideoFolder(folder), 4, **options) as loader:
        for _ in loader.steps(12):
            held = loader.stats["memory"]["video"]["host_bytes"]
            clips = held / (4 * 4 * 48 * 64 * 1.5)
            assert 1 <= clips < 12  # batches: prefetched, under way, and kept for others
        assert loader.stats["memory"]["video"]["device_bytes"] == 0
