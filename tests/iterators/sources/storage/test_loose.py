"""Loose files: how they are read, and the sources on top of them."""

import csv
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import SourceError
from jaxaug.iterators import Coco, FileList, ImageFolder, Source
from jaxaug.iterators.sources.storage import libc, loose
from jaxaug.sharding import batch_sharding
from tests.images import jpegs

NAN = float("nan")


@pytest.fixture
def files(tmp_path):
    """(folder, names, contents): 150 files of odd sizes, an empty one and one larger than a chunk
    among them.
    """
    generator = np.random.default_rng(0)
    sizes = [*generator.integers(1, 5000, 147), 0, loose._CHUNK_BYTES + 17, loose._CHUNK_BYTES]
    contents = [generator.bytes(int(size)) for size in generator.permutation(sizes)]
    names = [f"{number:03d}.jpg" for number in range(len(contents))]
    for name, content in zip(names, contents):
        (tmp_path / name).write_bytes(content)
    return tmp_path, names, contents


@pytest.mark.parametrize("count", [1, 5, 150])
def test_files_are_read_byte_for_byte_in_any_order_and_any_number_of_threads(files, count):
    folder, names, contents = files
    original = loose.LooseFiles(str(folder), names)
    indices = np.random.default_rng(count).integers(0, len(names), count)
    for source in (original, pickle.loads(pickle.dumps(original))):
        encoded = source.read(indices)
        assert [bytes(encoded.view(row)) for row in range(count)] == [contents[i] for i in indices]
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("jaxaug-files")
    ]


@pytest.mark.parametrize("cached", [0, 1, 40, 70, 150])
def test_threads_read_what_the_page_cache_does_not_hold(files, monkeypatch, cached):
    folder, names, contents = files
    preadv = os.preadv
    read_cached = libc.read_cached
    threads = set()
    descriptors = set()
    held = []

    def read(descriptor, buffers, offset):
        threads.add(threading.current_thread())
        return preadv(descriptor, buffers, offset)

    def read_some(opened, offsets, addresses, lengths):
        descriptors.update(opened.tolist())
        done = read_cached(opened, offsets, addresses, lengths)
        rows = range(len(done))
        done[[row for row in rows if len(held) + row >= cached]] = -11  # EAGAIN
        held.extend(rows)
        return done

    monkeypatch.setattr(os, "preadv", read)
    monkeypatch.setattr(libc, "read_cached", read_some)
    source = loose.LooseFiles(str(folder), names)
    small = np.array([i for i, content in enumerate(contents) if 0 < len(content) < 5000] * 2)[:150]
    encoded = source.read(small)
    assert [bytes(encoded.view(row)) for row in range(150)] == [contents[i] for i in small]
    assert bool(threads) == (cached < 150) and threading.current_thread() not in threads
    # After a group of which less than half is held, no other is tried.
    assert len(held) == {0: 64, 1: 64, 40: 128, 70: 128, 150: 150}[cached]
    assert all(not is_open(descriptor) for descriptor in descriptors)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a file system in memory")
def test_files_in_memory_are_read_without_threads(monkeypatch):
    """A file system such as tmpfs refuses reads that may not wait, although its files never do."""
    monkeypatch.setattr(os, "preadv", lambda *arguments: 1 / 0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        contents = [bytes([number]) * (1 + 100 * number) for number in range(100)]
        for number, content in enumerate(contents):
            Path(folder, str(number)).write_bytes(content)
        encoded = loose.LooseFiles(folder, [str(number) for number in range(100)]).read(
            np.arange(99, -1, -1)
        )
        assert [bytes(encoded.view(row)) for row in range(100)] == contents[::-1]


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_files_of_network_disks_are_opened_by_threads(files, monkeypatch):
    folder, names, contents = files
    monkeypatch.setattr(libc, "file_system", lambda path: 0x6969)  # NFS
    monkeypatch.setattr(libc, "open_cached", lambda path: 1 / 0)
    encoded = loose.LooseFiles(str(folder), names).read(np.arange(100))
    assert [bytes(encoded.view(row)) for row in range(100)] == contents[:100]


def test_a_file_that_grows_or_shrinks_while_it_is_read_is_read_again(files, monkeypatch):
    folder, names, contents = files
    status = libc.file_status
    row = next(i for i in range(60) if 100 < len(contents[i]) < 5000)

    def lies(change, opened, local):
        found = status(opened, local)
        found[row, 0] += change
        return found

    for change in (-7, 7):
        monkeypatch.setattr(libc, "file_status", partial(lies, change))
        encoded = loose.LooseFiles(str(folder), names).read(np.arange(60))
        assert [bytes(encoded.view(each)) for each in range(60)] == contents[:60]


def test_no_file_is_read_over_another(tmp_path, monkeypatch):
    """A byte more than a file has is asked for, to see that it has ended."""
    sizes = [64, 128, 63, 65, 0, 1, 64]
    for number, size in enumerate(sizes):
        (tmp_path / f"{number}.jpg").write_bytes(bytes(size))
    asked = []
    read_cached = libc.read_cached

    def noting(descriptors, offsets, addresses, lengths):
        asked.append(np.stack([addresses, addresses + lengths], axis=1))
        return read_cached(descriptors, offsets, addresses, lengths)

    monkeypatch.setattr(libc, "read_cached", noting)
    source = loose.LooseFiles(str(tmp_path), [f"{number}.jpg" for number in range(len(sizes))])
    assert source.read(np.arange(len(sizes))).lengths.tolist() == sizes
    (ranges,) = asked
    assert (ranges[1:, 0] >= ranges[:-1, 1]).all()


def test_buffers_of_large_files_are_not_kept(files, monkeypatch):
    folder, names, _ = files
    monkeypatch.setattr(loose, "_CHUNK_BYTES", 2048)
    source = loose.LooseFiles(str(folder), names)
    source._free = loose._BufferPool()
    source.read(np.arange(len(names)))
    gc.collect()
    assert source._free and {chunk.size for chunk in source._free} == {2048}


def test_bytes_live_as_long_as_their_owner_and_their_memory_is_used_again(files):
    folder, names, contents = files
    source = loose.LooseFiles(str(folder), names)
    first = source.read(np.arange(10))
    start = int(first.addresses[0])
    kept = first.take(slice(3, 4))  # holds the owner
    del first
    others = [source.read(np.arange(20, 30)) for _ in range(3)]
    assert bytes(kept.view(0)) == contents[3]
    assert all(bytes(other.view(5)) == contents[25] for other in others)
    chunks = {int(other.addresses[0]) for other in others}
    assert len(chunks) == 3 and not chunks & {start}
    del others, kept
    gc.collect()
    assert chunks | {start} <= {chunk.ctypes.data for chunk in source._free}
    assert int(source.read(np.arange(20, 30)).addresses[0]) in chunks | {start}


def test_buffers_go_with_the_last_files_and_batches(files):
    folder, names, contents = files
    first = loose.LooseFiles(str(folder), names)
    second = pickle.loads(pickle.dumps(first))
    assert second._free is first._free  # one stock a process
    batch = second.read(np.arange(10))
    stock = weakref.ref(second._free)
    first.read(np.arange(10))
    assert len(stock()) == 1
    del first, second
    gc.collect()
    assert stock() is not None and bytes(batch.view(3)) == contents[3]
    del batch
    gc.collect()
    assert stock() is None


def test_a_file_that_cannot_be_read_has_length_0_and_a_reason(files):
    folder, names, _ = files
    source = loose.LooseFiles(str(folder), names)
    (folder / names[1]).unlink()
    (folder / names[2]).unlink()
    (folder / names[2]).mkdir()
    lengths = source.read(np.arange(4)).lengths
    assert lengths[1] == lengths[2] == 0 and lengths[3] > 0
    assert source.describe(1)["error"] == "cannot be read: No such file or directory"
    assert source.describe(2)["error"] == "cannot be read: Is a directory"


def test_a_named_pipe_is_not_waited_for(files):
    """In a child: whoever waits may hold the GIL, so that nothing ends it but a signal."""
    folder, names, contents = files
    (folder / names[1]).unlink()
    os.mkfifo(folder / names[1])
    code = """
import sys
import numpy as np
from jaxaug.iterators.sources.storage.loose import LooseFiles
source = LooseFiles(sys.argv[1], sys.argv[2:])
print(source.read(np.arange(3)).lengths.tolist(), source.describe(1)["error"])
"""
    command = [sys.executable, "-c", code, str(folder), *names[:3]]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300)
    expected = [len(contents[0]), 0, len(contents[2])]
    assert child.stdout == f"{expected} cannot be read: Illegal seek\n", child.stderr


def test_a_folder_whose_links_go_round_in_circles(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.jpg").write_bytes(b"image")
    (tmp_path / "cat" / "up").symlink_to("..")
    what = r"`root`: '.*cat/up' is a link to a folder that holds it"
    with pytest.raises(SourceError, match=what) as error:
        ImageFolder(tmp_path)
    assert str(error.value).count("up") == 1  # not the whole way round


def class_folders(root, **counts):
    """Folders with so many images each."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"{number}.jpg").write_bytes(b"image")
    return root


def test_a_class_folder_without_images_is_an_error(tmp_path):
    class_folders(tmp_path, a=2, b=0, c=1)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    what = r"no images in 'b' below '.*': remove .* or fix the labels by classes="
    with pytest.raises(SourceError, match=what):
        ImageFolder(tmp_path)
    for number in range(7):
        (tmp_path / f"empty{number}").mkdir()
    what = r"no images in 'b', 'empty0', .*, 'empty3' and 3 more below"
    with pytest.raises(SourceError, match=what):
        ImageFolder(tmp_path)


def test_parts_of_a_data_set_that_would_be_classes_are_warned_of(tmp_path):
    class_folders(tmp_path / "train", cat=1, dog=1)
    class_folders(tmp_path / "test", cat=1, dog=1)
    with pytest.warns(UserWarning, match=r"parts of a data set: give ImageFolder\('.*/train'\)"):
        assert ImageFolder(tmp_path).classes == ("test", "train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ImageFolder(tmp_path / "train").classes == ("cat", "dog")
        ImageFolder(tmp_path, classes=["train", "test"])
        class_folders(tmp_path / "gear", train=1, car=1)
        ImageFolder(tmp_path / "gear")


def test_a_folder_without_class_folders_is_warned_of(tmp_path):
    class_folders(tmp_path, dogs=2)
    parent = re.escape(str(tmp_path))
    message = f"{parent}/dogs' has images and no class folders, .* give '{parent}' if .* Files"
    with pytest.warns(UserWarning, match=message):
        assert ImageFolder(tmp_path / "dogs").labels.tolist() == [0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ImageFolder(tmp_path / "dogs", classes=["."]).labels.tolist() == [0, 0]
        assert ImageFolder(tmp_path).classes == ("dogs",)


def test_images_beside_class_folders_are_an_error(tmp_path):
    class_folders(tmp_path, cat=1, dog=1)
    (tmp_path / "cover.png").write_bytes(b"image")
    what = r"images in no class folder below '.*': 'cover.png'\. Remove them, or name '\.' in"
    with pytest.raises(SourceError, match=what):
        ImageFolder(tmp_path)
    assert ImageFolder(tmp_path, ["cat", "dog", "."]).labels.tolist() == [0, 2, 1]


def test_empty_folders_that_are_no_classes(tmp_path):
    class_folders(tmp_path / "flat", thumbnails=0)
    (tmp_path / "flat" / "a.jpg").write_bytes(b"image")
    assert ImageFolder(tmp_path / "flat", ["."]).classes == (".",)
    class_folders(tmp_path / "deep", a=1)
    (tmp_path / "deep" / "a" / "empty").mkdir()
    (tmp_path / "deep" / ".ipynb_checkpoints").mkdir()
    assert ImageFolder(tmp_path / "deep").classes == ("a",)


def test_classes_fix_the_labels(tmp_path):
    class_folders(tmp_path, b=1, a=2, empty=0)
    source = ImageFolder(tmp_path, classes=["missing", "b", "empty", "a"])
    assert source.classes == ("missing", "b", "empty", "a")
    assert source.labels.tolist() == source.features["label"].tolist() == [3, 3, 1]
    assert source.describe(2)["class"] == "b" and source.path(2).endswith("b/0.jpg")
    other = ImageFolder(tmp_path, ("b", "a"))
    assert other.labels.tolist() == [1, 1, 0] and other.fingerprint() != source.fingerprint()


def test_images_in_folders_that_are_not_among_the_classes_are_an_error(tmp_path):
    class_folders(tmp_path, cat=1, dog=1)
    what = r"`classes` must name every folder with images.*; it lacks 'dog'\."
    with pytest.raises(SourceError, match=what):
        ImageFolder(tmp_path, classes=["cat", "dgo"])
    (tmp_path / "a.jpg").write_bytes(b"image")
    with pytest.raises(SourceError, match=r"it lacks '\.'"):
        ImageFolder(tmp_path, classes=["cat", "dog"])


@pytest.mark.parametrize("classes", ["cat", [], ["cat", "cat"], [1, 2]])
def test_classes_that_are_no_names(tmp_path, classes):
    class_folders(tmp_path, cat=1)
    with pytest.raises(ValueError, match="`classes` must be different names of folders, got "):
        ImageFolder(tmp_path, classes=classes)


def test_the_home_folder_may_be_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    class_folders(tmp_path / "images", cat=1)
    (tmp_path / "list.txt").write_text("images/cat/0.jpg\n~/images/cat/0.jpg\n")
    (tmp_path / "instances.json").write_text(json.dumps(coco()))
    assert ImageFolder("~/images").path(0) == str(tmp_path / "images/cat/0.jpg")
    listed = FileList("~/list.txt")
    assert [bytes(listed.read(np.arange(2))["image"].view(row)) for row in range(2)] == [
        b"image"
    ] * 2
    assert Coco("~/images", "~/instances.json").path(0) == str(tmp_path / "images" / "x.jpg")


def test_what_macos_leaves_beside_images_is_no_image(tmp_path):
    for name in ("a.jpg", "._a.jpg", "_b.jpg"):
        (tmp_path / name).write_bytes(b"image")
    source = ImageFolder(tmp_path)
    assert [os.path.basename(source.path(index)) for index in range(len(source))] == [
        "_b.jpg",
        "a.jpg",
    ]


def test_a_list_that_begins_with_a_byte_order_mark(tmp_path):
    source = FileList(write_list(tmp_path, "\ufeffa.jpg 1\nb.jpg 2\n"))
    assert [os.path.basename(source.path(index)) for index in range(2)] == ["a.jpg", "b.jpg"]


def write_list(tmp_path, text):
    path = tmp_path / "list.txt"
    path.write_text(text)
    return path


def test_a_list_of_single_labels(tmp_path):
    for name, image in zip(("a.jpg", "b c.jpg"), jpegs(2)):
        (tmp_path / name).write_bytes(image)
    source = FileList(write_list(tmp_path, "b c.jpg\t7\n\na.jpg\t0\r\n"), sep="\t")
    assert isinstance(source, Source) and len(source) == 2
    features = dict(source.read(np.array([1, 0])))
    encoded = features.pop("image")
    assert [bytes(encoded.view(row)) for row in range(2)] == jpegs(2)
    assert features["label"].dtype == np.int32 and features["label"].tolist() == [0, 7]
    assert source.describe(0) == {"record": 0, "path": str(tmp_path / "b c.jpg")}


def test_quotes_of_csv_hold_what_has_a_comma(tmp_path):
    """As the csv module writes them; beside other separators they are part of a text."""
    rows = [["a, b.jpg", "3"], ['5" disk.jpg', "1"], ["c.jpg", "2"]]
    path = tmp_path / "list.csv"
    for sep in ",;":
        with open(path, "w", newline="") as file:
            csv.writer(file, delimiter=sep, quoting=csv.QUOTE_ALL).writerows(rows)
        source = FileList(path, sep=sep)
        assert source.labels.tolist() == [3, 1, 2]
        assert [os.path.basename(source.path(row)) for row in range(3)] == [r[0] for r in rows]
    path.write_text('a.jpg,"A cat, ""asleep"""\nb.jpg,so, so\n')
    texts = FileList(path, sep=",", dtype=str).texts(np.arange(2), ["text"])["text"]
    assert texts == ['A cat, "asleep"', "so, so"]
    path.write_text('a.jpg\t"Hm" he said\n')
    source = FileList(path, sep="\t", dtype=str)
    assert source.texts(np.arange(1), ["text"])["text"] == ['"Hm" he said']
    path.write_text('"a.jpg"\t0\n"b.jpg,1\n')
    with pytest.raises(SourceError, match="line 1: quotes must be as in CSV"):
        FileList(path, sep=",")


def test_several_labels_become_a_multi_hot_target_through_the_loader(tmp_path):
    for number, image in enumerate(jpegs(4)):
        (tmp_path / f"{number}.jpg").write_bytes(image)
    path = write_list(tmp_path, "0.jpg 2 0\n1.jpg 1\n2.jpg\n3.jpg   3 1 0\n")
    assert FileList(path).labels.tolist() == [[2, 0, -1], [1, -1, -1], [-1, -1, -1], [3, 1, 0]]

    def multi_hot(key, sample):
        return sample | {"label": jax.nn.one_hot(sample["label"], 4).max(0)}

    sharding = batch_sharding(jax.devices("cpu")[:1])
    with Loader(FileList(path), 4, transform=multi_hot, shuffle=False, sharding=sharding) as loader:
        label = np.asarray(next(loader)["label"])
    assert label.tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1]]


def test_a_list_without_labels_and_absolute_paths(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"image")
    (tmp_path / "below").mkdir()
    path = write_list(tmp_path / "below", f"{tmp_path}/a.jpg\n../a.jpg\n")
    features = dict(FileList(path).read(np.arange(2)))
    encoded = features.pop("image")
    assert [bytes(encoded.view(row)) for row in range(2)] == [b"image"] * 2 and features == {}


@pytest.mark.parametrize(
    "text, sep, message",
    [
        ("", None, "names no files: expected lines of `path label`"),
        ("a.jpg 1\ngs://b/a.jpg 1", None, "line 2: 'gs://b/a.jpg' must be a path on this machine"),
        ("a.jpg 1\na.jpg\0b 1", None, r"line 2: a path must have no byte of 0, got 'a.jpg\\x00b'"),
        (
            "a.jpg 1\n\n \nb c.jpg 1\n",
            None,
            r"line 4: a label must be an integer.*got 'c.jpg'.*blanks in its name.* tab.*'.t'",
        ),
        (
            "a.jpg,x",
            ",",
            "line 1: a label must be an integer from 0 to 2.31 - 1, got 'x': correct it.",
        ),
        ("a.jpg -1", None, "got '-1'"),
        (f"a.jpg {2**31}", None, "got '2147483648'"),
    ],
)
def test_lists_that_will_not_do(tmp_path, text, sep, message):
    with pytest.raises(SourceError, match=message):
        FileList(write_list(tmp_path, text), sep=sep)
    with pytest.raises(SourceError, match=r"missing.txt.*cannot be read"):
        FileList(tmp_path / "missing.txt")


def test_a_list_of_parts_of_sounds_is_shown_as_records(tmp_path):
    path = write_list(tmp_path, "a.wav 0 0 1\na.wav 1 1 inf\n")
    source = FileList(path, column="audio", spans="seconds")
    assert repr(source) == f"FileList('{path}': 2 records, ['label'])"


def test_fingerprints_of_lists_see_paths_and_labels(tmp_path):
    texts = ["a.jpg 1\n", "a.jpg 2\n", "b.jpg 1\n", "a.jpg 1 2\n", "a.jpg\n"]
    assert len({FileList(write_list(tmp_path, text)).fingerprint() for text in texts}) == len(texts)


def test_numbers_of_regression_lists(tmp_path):
    generator = np.random.default_rng(0)
    for count in (1, 3):
        numbers = generator.normal(0, 100, (5, count))
        rows = [",".join(["a b.jpg", *map(repr, row)]) for row in numbers.tolist()]
        source = FileList(write_list(tmp_path, "\n".join(rows)), sep=",", dtype=float)
        labels = source.read(np.array([4, 0, 2]))["label"]
        expected = numbers[[4, 0, 2]].astype(np.float32)
        np.testing.assert_array_equal(labels, expected[:, 0] if count == 1 else expected)
        assert labels.dtype == np.float32 and source.path(0) == str(tmp_path / "a b.jpg")
    whole = FileList(write_list(tmp_path, "a.jpg 1 2\nb.jpg 3 4\n"), dtype=float)
    assert whole.labels.tolist() == [[1, 2], [3, 4]] and whole.labels.dtype == np.float32


@pytest.mark.parametrize(
    "text, message",
    [
        ("a.jpg 1 2\n\nb.jpg 3\n", "line 3: each image must have as many numbers, 2 .* got 1"),
        ("a.jpg\nb.jpg 3\n", "line 1: each image must have as many numbers, 1 .* got 0"),
        ("path x\na.jpg 1\n", "line 1: a label must be a finite number .* got 'x'.* a header"),
        ("a b.jpg 1\n", r"line 1: .* got 'b.jpg'.* blanks in its name, .* tab.* sep='\\t'"),
        ("a.jpg nan\n", "line 1: .* got 'nan'"),
        ("a.jpg 1e39\n", "line 1: .* got '1e39'"),
    ],
)
def test_numbers_that_will_not_do(tmp_path, text, message):
    with pytest.raises(SourceError, match=message):
        FileList(write_list(tmp_path, text), dtype=float)


def test_the_rest_of_a_line_may_be_a_caption(tmp_path):
    path = write_list(tmp_path, "a.jpg\tein Hund, 3 Jahre \tgroß\nb.jpg\t\nc.jpg\n")
    source = FileList(path, sep="\t", dtype=str)
    assert source.features == {} and source.labels is None
    assert source.texts(np.array([0]), ["text"]) == {"text": ["ein Hund, 3 Jahre \tgroß"]}
    assert source.describe(0)["text"].startswith("ein Hund")
    assert source.texts(np.array([2, 1]), ["text"], missing="") == {"text": ["", ""]}
    with pytest.raises(SourceError, match="record 1 has no text 'text'"):
        source.texts(np.array([1]), ["text"])
    other = FileList(write_list(tmp_path, "a.jpg\tx\nb.jpg\t\nc.jpg\n"), sep="\t", dtype=str)
    assert other.fingerprint() != source.fingerprint()
    with pytest.raises(ValueError, match="`dtype` must be one of"):
        FileList(path, dtype="float")


def coco(**changes):
    """Three images, boxes out of order, ids with gaps."""
    images = [
        {"id": 50, "file_name": "x.jpg"},
        {"id": 7, "file_name": "y.jpg"},
        {"id": 9, "file_name": "z.jpg"},
    ]
    boxes = [
        (9, 90, [1.5, 2, 3, 4], 0),
        (50, 3, [10, 20, 30, 5], 0),
        (9, 3, [0, 0, 56, 40], 0),
        (9, 3, [5, 5, 9, 9], 1),  # a crowd
        (50, 90, [4, 4, 0, 3], 0),  # without area
    ]
    annotations = [
        {"image_id": i, "category_id": c, "bbox": b, "iscrowd": crowd} for i, c, b, crowd in boxes
    ]
    categories = [{"id": 90, "name": "brush"}, {"id": 3, "name": "car"}]
    return {"images": images, "annotations": annotations, "categories": categories} | changes


def write_coco(tmp_path, found):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(found))
    return path


def test_files_of_lvis_name_images_by_the_end_of_a_url(tmp_path):
    url = "http://images.cocodataset.org"
    images = [
        {"id": 7, "coco_url": f"{url}/train2017/000000000007.jpg"},
        {"id": 9, "coco_url": f"{url}/val2017/000000000009.jpg"},
        {"id": 50, "coco_url": f"{url}/val2017/000000000050.jpg", "file_name": "COCO_val_50.jpg"},
    ]
    source = Coco(tmp_path, write_coco(tmp_path, coco(images=images)))
    paths = ["train2017/000000000007.jpg", "val2017/000000000009.jpg", "COCO_val_50.jpg"]
    assert [source.path(i) for i in range(3)] == [str(tmp_path / path) for path in paths]


def test_coco_boxes(tmp_path):
    source = Coco(tmp_path / "images", write_coco(tmp_path, coco()))
    assert isinstance(source, Source) and len(source) == 3 and source.classes == ("car", "brush")
    features = dict(source.read(np.array([2, 1, 0])))
    features.pop("image")
    assert features["boxes"].dtype == np.float32
    assert features["boxes"].tolist() == [
        [[1.5, 2, 4.5, 6], [0, 0, 56, 40]],
        [[0] * 4] * 2,
        [[10, 20, 40, 25], [0] * 4],
    ]
    assert features["box_labels"].tolist() == [[1, 0], [-1, -1], [0, -1]]
    assert features["box_count"].tolist() == [2, 0, 1]
    about = source.describe(2)
    assert (about["image_id"], about["categories"]) == (9, ["brush", "car"])
    assert about["path"] == str(tmp_path / "images" / "z.jpg") and "No such file" in about["error"]


def test_coco_boxes_are_scaled_with_their_image(tmp_path):
    (tmp_path / "images").mkdir()
    for name, image in zip("xyz", jpegs(3, height=80, width=112)):
        (tmp_path / "images" / f"{name}.jpg").write_bytes(image)
    source = Coco(tmp_path / "images", write_coco(tmp_path, coco()))
    from jaxaug import Decoder

    sharding = batch_sharding(jax.devices("cpu")[:1])
    with Decoder((40, 56), devices=jax.devices("cpu")[:1]) as decoder:
        with Loader(source, 3, shuffle=False, sharding=sharding, decode=decoder) as loader:
            batch = next(loader)
    assert batch["boxes"][2, 1].tolist() == [0, 0, 28, 20] and batch["box_count"].tolist() == [
        1,
        0,
        2,
    ]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"images": []}, "has no images"),
        (
            {"annotations": [{"image_id": 1, "category_id": 3, "bbox": [0, 0, 1, 1]}]},
            "names image 1, which is not",
        ),
        (
            {"annotations": [{"image_id": 9, "category_id": 4, "bbox": [0, 0, 1, 1]}]},
            "names category 4, which is",
        ),
        (
            {"annotations": [{"image_id": 9, "category_id": 3, "bbox": [0, 0, 1]}]},
            "no COCO instances file",
        ),
        (
            {"annotations": [{"id": 4, "image_id": 9, "category_id": 3, "bbox": [NAN, 0, 1, 1]}]},
            r"annotation 4 has the box \[nan, 0, 1, 1\]",
        ),
        ({"categories": None}, "no COCO instances file: TypeError"),
        ({"images": [{"id": 1}]}, "no COCO instances file: KeyError: 'file_name'"),
        (
            {"images": [{"id": key, "file_name": f"{key}.jpg"} for key in (50, 7, 9, 7)]},
            "two or more images have the id 7",
        ),
        (
            {"categories": [{"id": key, "name": f"{key}"} for key in (3, 90, 3.0)]},
            "two or more categories have the id 3",
        ),
    ],
)
def test_coco_files_that_will_not_do(tmp_path, changes, message):
    with pytest.raises(SourceError, match=message):
        Coco(tmp_path, write_coco(tmp_path, coco(**changes)))


def joints(*rows):
    return [number for row in rows for number in row]


def full_coco(**changes):
    """Persons with three joints, and a crowd, with ids and areas."""
    images = [{"id": 50, "file_name": "x.jpg"}, {"id": 7, "file_name": "y.jpg"}]
    first = {"id": 11, "image_id": 7, "category_id": 1, "bbox": [10, 5, 20, 30], "area": 311.5}
    second = {"id": 12, "image_id": 7, "category_id": 1, "bbox": [0, 0, 8, 8], "area": 60}
    crowd = {"id": 9, "image_id": 7, "category_id": 1, "bbox": [30, 0, 9, 9], "area": 70}
    first["keypoints"] = joints((12, 7, 2), (0, 0, 0), (29, 34, 1))
    crowd |= {"iscrowd": 1, "keypoints": joints((31, 1, 0), (32, 2, 2), (33, 3, 2))}
    annotations = [first, crowd, second]
    categories = [{"id": 1, "name": "person"}]
    return {"images": images, "annotations": annotations, "categories": categories} | changes


ALL = ("keypoints", "box_area", "box_ids", "box_crowd", "image_id")


def test_coco_has_keypoints_areas_ids_and_crowds(tmp_path):
    path = write_coco(tmp_path, full_coco())
    features = dict(Coco(tmp_path, path, features=ALL).read(np.array([1, 0])))
    features.pop("image")
    assert features["box_ids"].tolist() == [[11, 9, 12], [-1] * 3]
    assert features["box_area"].tolist() == [[311.5, 70, 60], [0] * 3]
    assert features["box_crowd"].tolist() == [[False, True, False], [False] * 3]
    assert features["image_id"].tolist() == [7, 50]
    first = [[12, 7, 2], [0, 0, 0], [29, 34, 1]]
    crowd = [[0, 0, 0], [32, 2, 2], [33, 3, 2]]
    zeros = [[0, 0, 0]] * 3
    assert features["keypoints"].tolist() == [[first, crowd, zeros], [zeros] * 3]

    features = dict(Coco(tmp_path, path, features=["keypoints", "box_ids"]).read(np.array([1])))
    features.pop("image")
    assert features["box_ids"].tolist() == [[11, 12]]
    assert features["keypoints"].tolist() == [[first, zeros]]
    assert sorted(Coco(tmp_path, path).features) == sorted(
        features.keys() - {"keypoints", "box_ids"}
    )


def test_coco_columns_follow_their_boxes(tmp_path):
    from jaxaug import augment

    for name, image in zip("xy", jpegs(2, height=40, width=60)):
        (tmp_path / f"{name}.jpg").write_bytes(image)
    source = Coco(tmp_path, write_coco(tmp_path, full_coco()), features=ALL)
    per_box = ("box_labels", "keypoints")
    chain = augment.Compose(
        [
            augment.RandomHorizontalFlip(1.0),
            augment.SanitizeBoxes(min_size=9.0, per_box=per_box),
        ]
    )
    sharding = batch_sharding(jax.devices("cpu")[:1])
    options = {"shuffle": False, "sharding": sharding, "last_batch": "pad"}
    with Loader(source, 3, transform=chain, **options) as loader:
        batch = jax.device_get(next(loader))
    assert batch["boxes"][1].tolist() == [[30, 5, 50, 35], [21, 0, 30, 9], [0] * 4]
    assert batch["box_ids"][1].tolist() == [11, 9, -1] and batch["box_count"][1] == 2
    assert batch["box_area"][1].tolist() == [311.5, 70, 0]
    assert batch["box_crowd"][1].tolist() == [False, True, False]
    assert batch["keypoints"][1, 0].tolist() == [[48, 7, 2], [0, 0, 0], [31, 34, 1]]
    assert not batch["keypoints"][1, 2].any()
    assert batch["image_id"].tolist() == [50, 7, -1] and (batch["box_ids"][2] == -1).all()

    take = lambda key, sample: {  # noqa: E731
        name: value for name, value in sample.items() if name != "keypoints"
    }
    for mix in (augment.MixUp(num_classes=1), augment.Mosaic((40, 60))):
        with Loader(source, 4, transform=take, batch_transform=mix, **options) as loader:
            batch = jax.device_get(next(loader))
        ids = {11: 311.5, 12: 60, 9: 70, -1: 0}
        rows = batch["boxes"].shape[:2]
        assert batch["box_ids"].shape == batch["box_area"].shape == rows
        assert [ids[each] for each in batch["box_ids"].ravel().tolist()] == (
            batch["box_area"].ravel().tolist()
        )
        assert ((batch["box_ids"] >= 0) == batch["boxes_valid"]).all()


@pytest.mark.parametrize(
    "keypoints, message",
    [
        ({}, 'no annotation has "keypoints"'),
        ({11: [1, 2], 12: [1, 2]}, "annotation 11 has keypoints"),
        (
            {11: [1, 2, 2], 12: [1, 2, 2, 3, 4, 2]},
            r"annotation 11 has keypoints \[3\], others \[6\]",
        ),
    ],
)
def test_coco_keypoints_that_will_not_do(tmp_path, keypoints, message):
    found = full_coco()
    found["annotations"] = [
        {name: value for name, value in entry.items() if name != "keypoints"}
        | ({"keypoints": keypoints[entry["id"]]} if entry["id"] in keypoints else {})
        for entry in found["annotations"]
    ]
    with pytest.raises(SourceError, match=message):
        Coco(tmp_path, write_coco(tmp_path, found), features=["keypoints"])
    with pytest.raises(ValueError, match=r"`features` must be one of 'keypoints'.* got 'area'"):
        Coco(tmp_path, write_coco(tmp_path, found), features=["area"])


def test_coco_without_any_box(tmp_path):
    source = Coco(tmp_path, write_coco(tmp_path, coco(annotations=[])))
    features = dict(source.read(np.arange(3)))
    features.pop("image")
    assert features["boxes"].shape == (3, 1, 4) and not features["box_count"].any()


def test_a_folder_that_goes_and_comes_back_is_masked_meanwhile(tmp_path):
    for number, image in enumerate(jpegs(4)):
        path = tmp_path / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(image)
    sharding = batch_sharding(jax.devices("cpu")[:1])
    with Loader(
        ImageFolder(tmp_path), 4, shuffle=False, on_error="mask", sharding=sharding
    ) as loader:
        assert next(loader)["valid"].all()
        os.rename(tmp_path / "class0", tmp_path / "elsewhere")
        loader.set_state(loader.get_state())  # forget what was read ahead
        assert next(loader)["valid"].tolist() == [False, False, True, True]
        assert "No such file" in loader.stats["bad_records"][0]["reason"]
        os.rename(tmp_path / "elsewhere", tmp_path / "class0")
        loader.set_state(loader.get_state())
        assert next(loader)["valid"].all()
