"""The columns of features that sources know without reading any image."""

import json
import os
import tracemalloc

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators import (
    Arrays,
    Coco,
    FileList,
    Files,
    ImageFolder,
    InMemory,
    RandomAccess,
    TFRecord,
    WebDataset,
    balanced_weights,
)
from jaxaug.iterators.sources.split import split
from jaxaug.iterators.sources.subset import Subset
from tests.iterators.sources import containers


def folder(path):
    for number in range(5):
        (path / f"class{number % 2}").mkdir(exist_ok=True)
        (path / f"class{number % 2}" / f"{number}.jpg").write_bytes(b"image")
    return ImageFolder(path)


def file_list(path):
    (path / "list.txt").write_text("a.jpg 3 1\nb.jpg 0\nc.jpg\n")
    return FileList(path / "list.txt")


def unlabelled(path):
    (path / "list.txt").write_text("a.jpg\nb.jpg\n")
    return FileList(path / "list.txt")


def coco(path):
    images = [{"id": 4, "file_name": "x.jpg"}, {"id": 2, "file_name": "y.jpg"}]
    boxes = [{"image_id": 2, "category_id": 7, "bbox": [1, 2, 3, 4]}]
    found = {"images": images, "annotations": boxes, "categories": [{"id": 7, "name": "car"}]}
    (path / "instances.json").write_text(json.dumps(found))
    return Coco(path, path / "instances.json")


def tfrecord(path):
    (path / "a.tfrecord").write_bytes(containers.tfrecord(containers.labelled_examples(6)))
    return TFRecord(path / "a.tfrecord")


def webdataset(path):
    (path / "a.tar").write_bytes(containers.tar(containers.labelled_files(6)))
    return WebDataset(path / "a.tar")


def in_memory(path):
    return InMemory([b"x"] * 4, {"label": np.arange(4), "weight": np.ones((4, 2))})


def files(path):
    names = [path / "a" / "x.jpg", path / "b.jpg"]
    for name in names:
        name.parent.mkdir(exist_ok=True)
        name.write_bytes(str(name.name).encode())
    features = {"label": np.arange(2), "caption": ["an x", "a b"], "point": np.ones((2, 3))}
    return Files(names, features)


def subset(path):
    return Subset(tfrecord(path), np.array([4, 1, 1]))


def part(path):
    return split(in_memory(path), "[-50%:]")


@pytest.mark.parametrize(
    "make",
    [folder, file_list, unlabelled, coco, tfrecord, webdataset, in_memory, files, subset, part],
)
def test_features_are_what_read_gives(tmp_path, monkeypatch, make):
    source = make(tmp_path)
    wanted = dict(source.read(np.arange(len(source))))
    wanted.pop("image")
    monkeypatch.setattr(type(source), "read", None)  # no need of it
    assert source.features.keys() == wanted.keys()
    for name, column in source.features.items():
        assert column.dtype == wanted[name].dtype and np.array_equal(column, wanted[name])


def random_access(path):
    return RandomAccess([{"image": b"...", "label": 3, "weight": 0.5}] * 7)


@pytest.mark.parametrize(
    "make",
    [folder, file_list, coco, tfrecord, webdataset, in_memory, files, random_access, subset, part],
)
def test_a_source_prints_its_records_and_features(tmp_path, make):
    source = make(tmp_path)
    features = dict(source.read(np.zeros(1, int)))
    features.pop("image")
    printed = repr(source)
    assert printed.startswith(f"{type(source).__name__}(") and f"{len(source)} " in printed
    assert str(sorted(features)) in printed


def arrays(path):
    return Arrays({"x": np.arange(3), "path": [path / "a", path / "b", path / "c"]})


@pytest.mark.parametrize(
    "make", [folder, file_list, coco, webdataset, in_memory, files, random_access, arrays, subset]
)
@pytest.mark.parametrize("place", ["first", "beyond"])
def test_numbers_outside_of_the_records_are_no_records(tmp_path, make, place):
    source = make(tmp_path)
    number = -1 if place == "first" else len(source)
    with pytest.raises(IndexError, match=rf"must lie in \[0, {len(source)}\), got {number} to"):
        source.read(np.array([number]))


def test_class_weights_need_no_image(tmp_path):
    assert (
        balanced_weights(folder(tmp_path).features["label"]).tolist() == [1 / 3] * 3 + [1 / 2] * 2
    )


def test_a_subset_of_a_source_without_columns(tmp_path):
    source = Subset(RandomAccess([{"image": b"...", "label": 3}]), range(1))
    with pytest.raises(
        AttributeError, match=r"RandomAccess.* knows no features without reading its records"
    ):
        source.features  # noqa: B018


def test_a_fingerprint_copies_no_column():
    column = np.zeros((1000, 10_000), np.uint8)  # such as a memmap of masks
    source = InMemory([b"image"] * 1000, {"mask": column})
    tracemalloc.start()
    try:
        first = source.fingerprint()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < column.nbytes / 10

    column[-1, -1] = 1
    assert source.fingerprint() != first
    assert InMemory([b"image"] * 1000, {"mask": np.asfortranarray(column)}).fingerprint() == (
        source.fingerprint()
    )


def test_files_are_a_list_of_paths_with_columns(tmp_path, monkeypatch):
    source = files(tmp_path)
    got = source.read(np.array([1, 0]))
    assert [bytes(got["image"].view(row)) for row in range(2)] == [b"b.jpg", b"x.jpg"]
    assert got["label"].tolist() == [1, 0] and got["point"].shape == (2, 3)
    assert source.texts(np.array([1]), ["caption"]) == {"caption": ["a b"]}
    assert source.path(0) == str(tmp_path / "a" / "x.jpg")
    monkeypatch.chdir(tmp_path)
    features = {"label": np.arange(2), "point": np.ones((2, 3))}
    assert Files(["a/x.jpg", "b.jpg"], features).fingerprint() == source.fingerprint()
    assert Files(["b.jpg", "a/x.jpg"], features).fingerprint() != source.fingerprint()
    os.remove("b.jpg")
    assert source.read(np.array([1]))["image"].lengths.tolist() == [0]
    assert "error" in source.describe(1)


def test_files_are_of_the_column_that_is_named(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"...")
    columns = Files([tmp_path / "a.wav"], {"label": [3]}, column="audio").read(np.array([0]))
    assert columns.keys() == {"audio", "label"} and bytes(columns["audio"].view(0)) == b"..."


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Files("images"), TypeError, "ImageFolder"),
        (lambda: Files([]), SourceError, "at least one path, got none"),
        (lambda: Files(["http://a/b.jpg"]), SourceError, "'http://a/b.jpg' must be a path on this"),
        (lambda: Arrays({"x": ["s3://a/b.npy"]}), SourceError, "'s3://a/b.npy' must be a path on"),
        (lambda: Files(["a.jpg"], {"label": [1, 2]}), ValueError, "1 in all, got 2"),
        (lambda: FileList("*.wav"), SourceError, r"Files\(sorted\(glob.glob\('.*\*.wav'\)\)\)"),
        (lambda: FileList(["a.wav"]), TypeError, "a list of paths is read by Files"),
    ],
)
def test_errors_of_files(make, error, words):
    with pytest.raises(error, match=words):
        make()
