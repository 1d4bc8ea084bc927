"""Copies of sources: pickled to a fresh process, as workers of other loaders get them, and deep
copies.
"""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from jaxaug.iterators import Loader, RandomAccess, Subset, TFRecord, WebDataset, split, to_numpy
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers, test_features


def random_access(path):
    rows = [{"image": image, "label": i} for i, image in enumerate(containers.jpegs(4))]
    return RandomAccess(rows)


def staged(path):
    (path / "a.tar").write_bytes(containers.tar(containers.labelled_files(6)))
    return WebDataset(path / "a.tar", mmap=False, timeout=7.0, retries=1)


def options(path):
    records = [containers.example({"img": image, "class": 7}) for image in containers.jpegs(3)]
    (path / "a.tfrecord").write_bytes(containers.tfrecord(records))
    return TFRecord(path / "a.tfrecord", image="img", label="class", features=[])


def odd_names(path):
    """A path that would be a pattern, were it expanded again."""
    (path / "a{1,2}").mkdir()
    for name in ("[b].tar", "b.tar"):
        (path / "a{1,2}" / name).write_bytes(containers.tar({"x.jpg": name.encode()}))
    return WebDataset(path / "*" / "*.tar")


def part(path):
    return split(test_features.webdataset(path), 0.5)


SOURCES = [
    test_features.folder,
    test_features.file_list,
    test_features.coco,
    test_features.tfrecord,
    test_features.webdataset,
    test_features.subset,
    staged,
    options,
    odd_names,
    random_access,
    part,
]


def everything(source):
    features = dict(source.read(np.arange(len(source))))
    encoded = features.pop("image")
    images = [bytes(encoded.view(row)) for row in range(len(source))]
    columns = {name: (str(column.dtype), column.tolist()) for name, column in features.items()}
    return repr(source), images, columns, source.fingerprint(), source.describe(len(source) - 1)


CHILD = """
import os, pickle, sys
os.chdir("/")
from tests.iterators.loader.test_copies import everything
while sys.stdin.buffer.peek(1):
    pickle.dump(everything(pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def child():
    """A fresh process that answers each pickled source with what it reads of it."""
    command = [sys.executable, "-c", CHILD]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": os.getcwd()}, **pipes
    ) as process:
        yield process


@pytest.mark.parametrize("make", SOURCES)
def test_a_source_travels_to_a_fresh_process(tmp_path, monkeypatch, child, make):
    monkeypatch.chdir(tmp_path)
    source = make(tmp_path)
    pickle.dump(source, child.stdin)
    child.stdin.flush()
    assert pickle.load(child.stdout) == everything(source)


@pytest.mark.parametrize("make", SOURCES)
def test_a_deep_copy_outlives_the_original(tmp_path, make):
    source = make(tmp_path)
    wanted = everything(source)
    duplicate = copy.deepcopy(source)
    del source
    assert everything(duplicate) == everything(pickle.loads(pickle.dumps(duplicate))) == wanted


def test_a_relative_folder_is_found_from_elsewhere(tmp_path, monkeypatch):
    test_features.folder(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    source = type(test_features.folder(tmp_path))(tmp_path.name)
    monkeypatch.chdir("/")
    assert source.read(np.arange(5))["image"].lengths.tolist() == [5] * 5


def test_a_copy_reads_as_its_original_does(tmp_path):
    duplicate = pickle.loads(pickle.dumps(staged(tmp_path)))
    assert (duplicate._storage._timeout, duplicate._storage._retries) == (7.0, 1)


def test_a_copy_is_of_the_state_that_was_opened(tmp_path):
    source = Subset(test_features.webdataset(tmp_path), [0, 5])
    pickled = pickle.dumps(source)
    path = tmp_path / "a.tar"
    stamp = path.stat().st_mtime_ns
    os.utime(path, ns=(stamp + 1, stamp + 1))
    duplicate = pickle.loads(pickled)
    assert duplicate.fingerprint() == source.fingerprint()
    assert duplicate.read(np.arange(2))["image"].lengths.tolist() == [0, 0]
    assert "changed since it was indexed" in duplicate.describe(0)["error"]


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy])
def test_a_loader_says_why_it_cannot_be_copied(tmp_path, duplicate):
    with Loader(test_features.webdataset(tmp_path), 2, sharding=one_device()) as loader:
        with pytest.raises(TypeError, match="a Loader cannot be pickled or copied, as it holds"):
            duplicate(to_numpy(loader))
