"""The index: stored once, found again, rebuilt when it must be, and never trusted when damaged."""

import bz2
import gzip
import json
import lzma
import os
import pickle
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import pytest

from jaxaug.__main__ import main
from jaxaug.decode import Encoded, read_headers
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.facts import facts_of
from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.packed.webdataset import WebDataset
from jaxaug.iterators.sources.storage import index as index_module
from jaxaug.iterators.sources.storage.files import DataFile, common_folder
from jaxaug.iterators.sources.storage.index_file import (
    IndexDamaged,
    read_header,
    read_index,
    write_index,
)
from tests.images import encode, picture
from tests.iterators.sources import containers

HEADER = {
    "counts": [3, 0, 2],
    "extra": {"classes": ["a"]},
    "fingerprint": "f",
    "kind": "test",
}


def columns():
    return {
        "offset": np.arange(5, dtype=np.uint64) * 10**12,
        "boxes": np.arange(30, dtype=np.float32).reshape(5, 3, 2),
        "flag": np.array([1, 0, 1, 0, 1], np.uint8),
        "empty": np.zeros((5, 0), np.int32),
    }


@pytest.fixture
def builds(monkeypatch):
    """Counts how often an index is built."""
    count = []
    build = index_module._build
    monkeypatch.setattr(index_module, "_build", lambda *args: count.append(1) or build(*args))
    return count


@pytest.fixture
def shards(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    examples = containers.labelled_examples(5)
    for name, part in (("a", examples[:2]), ("b", examples[2:])):
        (folder / f"{name}.tfrecord").write_bytes(containers.tfrecord(part))
    return folder


def open_shards(folder, **options):
    source = TFRecord(folder / "*.tfrecord", **options)
    assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(len(source))))
    return source


def index_files(folder):
    return (
        [name for name in os.listdir(folder) if name.endswith(".index")] if folder.exists() else []
    )


def test_columns_come_back_as_they_were(tmp_path):
    write_index(str(tmp_path / "x"), dict(HEADER), columns().items())
    index = read_index(str(tmp_path / "x"))
    assert (index.extra, index.fingerprint, index.row_starts.tolist()) == (
        {"classes": ["a"]},
        "f",
        [0, 3, 3, 5],
    )
    for name, column in columns().items():
        assert index.columns[name].dtype == column.dtype and np.array_equal(
            index.columns[name], column
        )
    assert os.listdir(tmp_path) == ["x"]
    with pytest.raises(IndexDamaged, match="other files"):
        read_index(str(tmp_path / "x"), {"kind": "another"})


def test_every_damaged_byte_is_found(tmp_path):
    path = tmp_path / "x"
    write_index(str(path), dict(HEADER), columns().items())
    good = path.read_bytes()
    unnoticed = 0
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        try:
            index = read_index(str(path))
        except IndexDamaged:
            continue
        unnoticed += 1  # only the zeros between two columns: they are nobody's
        assert good[at] == 0 and all(
            np.array_equal(index.columns[name], c) for name, c in columns().items()
        )
    assert unnoticed < 4 * 64
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(IndexDamaged):
            read_index(str(path))
    path.write_bytes(good + b"x")
    with pytest.raises(IndexDamaged, match="another length"):
        read_index(str(path))


@pytest.mark.parametrize("count", [100, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_mutated_index_is_built_anew(shards, builds, count):
    open_shards(shards)
    (path,) = [shards / name for name in index_files(shards)]
    good = path.read_bytes()
    generator = np.random.default_rng(count)
    for _ in range(count):
        path.write_bytes(containers.mutate(good, generator))
        open_shards(shards)
    assert 0.7 * count < len(builds) - 1 <= count
    assert path.read_bytes() == good


def test_the_stored_index_is_used(shards, builds):
    first = open_shards(shards)
    second = open_shards(shards)
    assert len(builds) == 1 and first.fingerprint() == second.fingerprint()
    assert len(index_files(shards)) == 1
    TFRecord(shards / "*.tfrecord", label=None)
    TFRecord(shards / "a.tfrecord")
    assert len(builds) == 3  # other options, other files
    open_shards(shards)
    assert len(builds) == 3


def test_an_index_beside_the_data_is_not_data(shards, builds):
    for _ in range(2):
        source = TFRecord(shards / "*")
        assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(5)))
    assert len(builds) == 1 and len(index_files(shards)) == 1


def test_the_index_follows_the_data(shards, builds):
    old = open_shards(shards)
    examples = containers.labelled_examples(6)
    (shards / "b.tfrecord").write_bytes(containers.tfrecord(examples[2:]))
    assert len(open_shards(shards)) == 6 and len(builds) == 2
    assert open_shards(shards).fingerprint() != old.fingerprint()
    os.utime(shards / "b.tfrecord", ns=(1, 1))
    open_shards(shards)
    assert len(builds) == 3
    (shards / "c.tfrecord").write_bytes(b"")
    open_shards(shards)
    assert len(builds) == 4


def test_a_moved_data_set_keeps_its_index_and_fingerprint(shards, builds):
    before = open_shards(shards).fingerprint()
    shards.rename(shards.parent / "moved")
    assert open_shards(shards.parent / "moved").fingerprint() == before and len(builds) == 1


def test_facts_in_the_index_are_those_of_the_bytes(shards):
    source = open_shards(shards)
    images = containers.jpegs(5)
    wanted = read_headers(Encoded.from_bytes([images[3], images[0]]))
    found = source.headers(np.array([3, 0]))["image"]
    for name, column in wanted._asdict().items():
        assert getattr(found, name).tolist() == column.tolist(), name


def rewrite(path, **changes):
    """Write an index again with other columns; the checksums are those of the new ones."""
    index = read_index(path)
    header = read_header(path)
    changed = {name: np.array(column) for name, column in index.columns.items()}
    for name, change in changes.items():
        changed[name] = change(changed[name].astype(np.uint64))
    del index
    write_index(str(path), header, changed.items())


def last(value):
    """Change the last record alone."""
    return lambda column: np.concatenate([column[:-1], np.array([value], np.uint64)])


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": lambda column: column + np.uint64(2**40)},
        {"offset": last(2**64 - 1)},
        {"length": last(2**64 - 1)},
        {"offset": last(2**64 - 20), "length": last(60)},  # the sum wraps to 40
        {"lead": last(10**6)},
    ],
)
@pytest.mark.parametrize("chunk", [2, 1 << 20])
def test_records_outside_their_files_build_anew(shards, builds, monkeypatch, changes, chunk):
    monkeypatch.setattr(index_module, "_MAX_CHECKED_RECORDS", chunk)
    path = open_shards(shards).index_path
    good = open(path, "rb").read()
    rewrite(path, **changes)
    assert open(path, "rb").read() != good
    open_shards(shards)
    assert len(builds) == 2 and open(path, "rb").read() == good


@pytest.mark.parametrize("changes", [{"mask_offset": last(10**6)}, {"mask_length": last(10**6)}])
def test_masks_outside_their_files_build_anew(tmp_path, builds, changes):
    (image,) = containers.jpegs(1)
    examples = [containers.example({"image": image, "mask": b"mask"}) for _ in range(3)]
    (tmp_path / "a.tfrecord").write_bytes(containers.tfrecord(examples))

    def read_masks():
        options = {"image": "image", "mask": "mask", "label": None}
        source = TFRecord(tmp_path / "a.tfrecord", **options)
        masks = source.read(np.arange(3))["mask"]
        assert [bytes(masks.view(row)) for row in range(3)] == [b"mask"] * 3
        return source.index_path

    rewrite(read_masks(), **changes)
    read_masks()
    assert len(builds) == 2


def test_an_index_of_another_number_of_files_is_built_anew(shards, builds):
    path = open_shards(shards).index_path
    index = read_index(path)
    header = read_header(path)
    copied = {name: np.array(column) for name, column in index.columns.items()}
    write_index(path, header | {"counts": [5]}, copied.items())
    open_shards(shards)
    assert len(builds) == 2


def test_the_fingerprint_knows_the_sizes_of_the_files(tmp_path):
    prints = []
    for zeros in (0, 512, 0):
        folder = tmp_path / str(len(prints))
        folder.mkdir()
        data = containers.tar(containers.labelled_files(3)) + bytes(zeros)
        (folder / "a.tar").write_bytes(data)
        prints.append(WebDataset(folder / "a.tar").fingerprint())
    assert prints[0] == prints[2] != prints[1]


def test_a_record_may_end_where_its_file_does(shards, builds):
    path = open_shards(shards).index_path
    sizes = [os.path.getsize(shards / name) for name in ("a.tfrecord", "b.tfrecord")]
    offsets = read_index(path).columns["offset"].astype(np.int64)
    until_the_end = np.array([sizes[0]] * 2 + [sizes[1]] * 3) - offsets
    for more, built in ((0, 1), (1, 2)):
        rewrite(path, length=lambda column, more=more: (until_the_end + more).astype(np.uint64))
        assert len(TFRecord(shards / "*.tfrecord")) == 5 and len(builds) == built


@pytest.mark.parametrize(
    "paths, folder, names",
    [
        (["/data/a.tar", "/data/b.tar"], "/data", ["a.tar", "b.tar"]),
        (["/data/x/a.tar", "/data/y/b.tar"], "/data", ["x/a.tar", "y/b.tar"]),
        (["/x/a.tar", "/y/b.tar"], "", ["x/a.tar", "y/b.tar"]),
        (["memory://bucket/a.tar", "/x/b.tar"], "", ["memory://bucket/a.tar", "/x/b.tar"]),
        (["s3://x/a.tar", "s3://y/b.tar"], "s3:/", ["x/a.tar", "y/b.tar"]),
        (["s3://x/a.tar", "gs://x/a.tar"], "", ["s3://x/a.tar", "gs://x/a.tar"]),
    ],
)
def test_the_common_folder_of_paths(paths, folder, names):
    assert common_folder(paths) == (folder, names)


@pytest.mark.parametrize(
    "paths, count",
    [
        (["/data/x/a.tar", "/data/y/b.tar"], 2),
        (["/x/a.tar", "/y/b.tar"], 1),
        (["s3://x/a.tar", "s3://y/b.tar"], 1),
        (["s3://x/a.tar", "gs://x/a.tar"], 1),
    ],
)
def test_without_a_local_folder_the_index_is_cached(tmp_path, monkeypatch, paths, count):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = [DataFile(path, 1, "1") for path in paths]
    form = index_module.Format("tar", {}, lambda *scanned: {}, facts_of("image"))
    _, places = index_module._places(files, form, None)
    assert len(places) == count and places[-1].startswith(str(tmp_path / "jaxaug"))


@pytest.mark.parametrize(
    "pack, name, tool",
    [
        (gzip, "gzip", "gunzip"),
        (bz2, "bzip2", "bunzip2"),
        (lzma, "xz", "unxz"),
        (zlib, "zlib", "zlib.decompress"),
    ],
)
def test_a_compressed_file_is_named_as_such(tmp_path, capsys, pack, name, tool):
    tar = containers.tar(containers.labelled_files(2))
    record = containers.tfrecord(containers.labelled_examples(2))
    (tmp_path / "a.tar.gz").write_bytes(pack.compress(tar))
    (tmp_path / "a.tfrecord.gz").write_bytes(pack.compress(record))
    for path, make in ((tmp_path / "a.tar.gz", WebDataset), (tmp_path / "a.tfrecord.gz", TFRecord)):
        with pytest.raises(SourceError, match=rf"{path.name}' is {name}: unpack it \({tool}\)"):
            make(path)
        assert main(["index", str(path)]) == 1
        assert f"is {name}: unpack it ({tool})" in capsys.readouterr().err


def test_a_record_as_long_as_gzips_magic_is_no_gzip(tmp_path):
    length = int.from_bytes(b"\x1f\x8b\x08\0\0\0\0\0", "little")
    around = len(containers.example({"image/encoded": bytes(500_000), "image/class/label": 1}))
    image = bytes(length - around + 500_000)
    record = containers.example({"image/encoded": image, "image/class/label": 1})
    (tmp_path / "a.tfrecord").write_bytes(containers.tfrecord([record]))
    assert (tmp_path / "a.tfrecord").read_bytes()[:8] == length.to_bytes(8, "little")
    assert len(TFRecord(tmp_path / "a.tfrecord")) == 1


def test_the_home_folder_of_data_and_of_a_packed_tar(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    for path in ("~/a.tar", "~/*.tar", "~/{a,a}.tar"):
        assert WebDataset(path).describe(0)["path"] == str(tmp_path / "a.tar")


def refuse_to_write(monkeypatch, folder):
    """As if there were no permission; the tests may run as root, whom no mode bits stop."""
    write = index_module.write_index

    def refusing(path, *args, **options):
        if path.startswith(str(folder)):
            raise PermissionError(13, "Permission denied")
        write(path, *args, **options)

    monkeypatch.setattr(index_module, "write_index", refusing)


def test_a_folder_that_cannot_be_written_gets_its_index_in_the_cache(
    shards, tmp_path, builds, monkeypatch
):
    refuse_to_write(monkeypatch, shards)
    open_shards(shards)
    open_shards(shards)
    assert len(builds) == 1 and index_files(shards) == []
    assert len(index_files(tmp_path / "cache" / "jaxaug")) == 1


def test_an_index_that_can_be_written_nowhere(shards, tmp_path, monkeypatch):
    refuse_to_write(monkeypatch, tmp_path)
    with pytest.raises(
        SourceError, match=r"no index can be written to .*Permission denied.*set XDG_CACHE_HOME"
    ):
        open_shards(shards)
    with pytest.raises(
        SourceError, match=r"Permission denied.*, or name a file or a folder by `index`"
    ):
        TFRecord(shards / "*.tfrecord", index=tmp_path / "x.index")


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_index(str(tmp_path / "x"), dict(HEADER), columns().items())
    assert os.listdir(tmp_path) == []


def test_many_open_at_once(shards):
    sources = []
    errors = []

    def run():
        try:
            sources.append(open_shards(shards))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not errors and len(sources) == 6
    assert len({source.fingerprint() for source in sources}) == 1
    assert len(os.listdir(shards)) == 5  # two files, the index of each, and both joined


def test_a_damaged_file_stops_the_others(tmp_path):
    """The error comes from the first bad file, and no thread of the index is left."""
    for number in range(20):
        data = containers.tfrecord(containers.labelled_examples(5))
        (tmp_path / f"{number:02d}.tfrecord").write_bytes(data[:-1] if number == 3 else data)
    with pytest.raises(SourceError, match=r"03.tfrecord': record 4 is cut"):
        TFRecord(tmp_path / "*.tfrecord")
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("jaxaug-index")
    ]
    assert index_files(tmp_path) == []


LARGE = """
import resource, sys, time
import numpy as np
from jaxaug.iterators.sources.storage.index_file import read_index
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before, start = resident(), time.perf_counter()
index = read_index(sys.argv[1])
opened = time.perf_counter() - start
rows = np.random.default_rng(0).integers(0, 10**7, 10**6)
total = sum(int(column[rows].astype(np.int64).sum()) for column in index.columns.values())
print(opened, (resident() - before) / 1e6)
"""


@pytest.mark.slow
def test_ten_million_records(tmp_path):
    generator = np.random.default_rng(0)
    count = 10**7
    wide = {"offset": np.uint64, "length": np.uint32, "lead": np.uint16, "feature/label": np.int32}
    narrow = {f"header/{name}": np.uint16 for name in ("height", "width", "scan_offset")}
    narrow |= {
        f"header/{n}": np.uint8
        for n in ("kind", "orientation", "coding", "precision", "components", "color")
    }
    kinds = wide | narrow | {"header/scan_components": np.uint8, "header/sampling": np.uint32}
    data = {name: generator.integers(0, 100, count).astype(dtype) for name, dtype in kinds.items()}
    write_index(str(tmp_path / "x"), HEADER | {"counts": [count]}, data.items())
    run = subprocess.run(
        [sys.executable, "-c", LARGE, tmp_path / "x"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    seconds, megabytes = map(float, run.stdout.split())
    print(f"opened in {seconds:.2f} s, {megabytes:.0f} MB after reading a tenth of all rows")
    assert megabytes < 400


def test_of_several_that_need_an_index_one_builds_it(tmp_path, builds, monkeypatch):
    (tmp_path / "a.tar").write_bytes(containers.tar(containers.labelled_files(3)))
    build = index_module._build
    waiting = threading.Barrier(4)

    def slow(*arguments):
        time.sleep(0.3)
        return build(*arguments)

    monkeypatch.setattr(index_module, "_build", slow)
    found = []

    def open_source():
        waiting.wait(60)
        found.append(len(WebDataset(tmp_path / "a.tar")))

    threads = [threading.Thread(target=open_source, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [3] * 4 and len(builds) == 1
    assert len(os.listdir(tmp_path)) == 2  # the tar and its index: no lock


def test_a_builder_that_fails_leaves_no_lock(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(SourceError):
        WebDataset(tmp_path / "a.tar")
    assert os.listdir(tmp_path) == ["a.tar"]


@pytest.fixture
def scans(monkeypatch):
    """The names of the files that are run through."""
    names = []
    scan = index_module._scan_file

    def counting(read, file, *rest):
        names.append(os.path.basename(file.path))
        return scan(read, file, *rest)

    monkeypatch.setattr(index_module, "_scan_file", counting)
    return names


@pytest.fixture
def five(tmp_path, monkeypatch):
    """Five shards, of which one has no records, and the third has its own features."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "five"
    folder.mkdir()
    images = containers.jpegs(20)
    for row in (5, 6, 17):  # facts that the images of other shards do not have
        images = [*images[:row], encode(picture(row, 9, 12)[..., 0]), *images[row + 1 :]]
    for number in range(5):
        files = {}
        for row in range(4 * number, 4 * number + 4 * (number != 3)):
            more = {"weight": 0.5, "big": 2**40} if number == 2 else {"weight": row}
            numbers = json.dumps({"label": row, **more}).encode()
            files |= {f"{row:02d}.jpg": images[row], f"{row:02d}.json": numbers}
        (folder / f"{number}.tar").write_bytes(containers.tar(files))
    return folder


def everything(source):
    found = dict(source.read(np.arange(len(source))))
    image = found.pop("image")
    rows = [bytes(image.view(row)) for row in range(len(source))]
    numbers = {name: (column.dtype, column.tolist()) for name, column in found.items()}
    headers = [column.tolist() for column in source.headers(np.arange(len(source)))["image"]]
    return rows, numbers, headers, source.fingerprint()


def test_shards_indexed_by_several_workers_are_joined(five, tmp_path, scans, monkeypatch):
    whole = everything(WebDataset(five / "*.tar", nulls="count", index=tmp_path / "x.index"))
    assert sorted(scans) == [f"{number}.tar" for number in range(5)]
    headers = read_headers(Encoded.from_bytes(whole[0]))
    assert whole[2] == [column.tolist() for column in headers] and len({*headers.components}) == 2
    for path in tmp_path.glob("*.jaxidx"):
        path.unlink()
    scans.clear()

    for part, share in ((1, ["1.tar", "4.tar"]), (0, ["0.tar", "3.tar"]), (2, ["2.tar"])):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(part + 7))
        monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "7")
        assert main(["index", str(five / "*.tar"), "--part", "3"]) == 0
        assert sorted(scans) == share
        scans.clear()
    assert everything(WebDataset(five / "*.tar", nulls="count")) == whole and scans == []
    assert WebDataset.index_shards(five / "*.tar", nulls="count") == (5, 5)

    moved = five.rename(tmp_path / "moved")
    (moved / os.path.basename(WebDataset(moved / "*.tar", nulls="count").index_path)).unlink()
    assert everything(WebDataset(moved / "*", nulls="count")) == whole and scans == []


@pytest.fixture
def store(monkeypatch):
    """A folder in memory, and the names of its files in the order in which they are read whole."""
    system = pytest.importorskip("fsspec").filesystem("memory")
    if system.exists("/indexes"):
        system.rm("/indexes", recursive=True)
    reads = []
    cat = type(system).cat_file

    def counting(self, path, *args, **options):
        reads.append(os.path.basename(path))
        return cat(self, path, *args, **options)

    monkeypatch.setattr(type(system), "cat_file", counting)
    return system, reads


def test_an_index_in_a_store_is_joined_there_and_read_once(five, tmp_path, scans, store):
    system, reads = store
    whole = everything(WebDataset(five / "*.tar", nulls="count", index=tmp_path / "x.index"))
    scans.clear()
    for part in range(3):
        command = ["index", str(five / "*.tar"), "--out", "memory://indexes/"]
        assert main([*command, "--part", f"{part}/3"]) == 0
    assert len(scans) == 5 and len(system.ls("/indexes")) == 5
    scans.clear()
    options = {"nulls": "count", "index": "memory://indexes/"}
    source = WebDataset(five / "*.tar", **options)
    assert everything(source) == whole and scans == [] and len(system.ls("/indexes")) == 6
    assert len(os.listdir(five)) == 5 and not (tmp_path / "cache").exists()

    reads.clear()
    again = WebDataset(five / "*.tar", **options)
    assert everything(again) == whole
    (name,) = reads
    assert again.index_path == f"memory://indexes/{name}"
    trusted = [os.fspath(five / f"{number}.tar") for number in range(5)]
    found = WebDataset(trusted, nulls="count", index=again.index_path, trust_index=True)
    assert everything(found) == whole and reads == [name] * 2
    assert everything(pickle.loads(pickle.dumps(found))) == whole


def test_what_a_verification_found_is_kept_in_a_store(five, store):
    options = {"nulls": "count", "index": "memory://indexes/a.index"}
    WebDataset(five / "*.tar", **options).keep_findings({2: "is bad"})
    assert WebDataset(five / "*.tar", **options).read(np.arange(3))["image"].lengths[2] == 0


def test_a_url_of_a_file_is_its_path(five, tmp_path):
    index = f"file://{tmp_path}/new/"
    source = WebDataset(five / "*.tar", nulls="count", index=index)
    assert os.path.dirname(source.index_path) == f"{tmp_path}/new"
    again = WebDataset(five / "*.tar", nulls="count", index=index[:-1])
    assert again.index_path == source.index_path and everything(again) == everything(source)


@pytest.mark.parametrize("damage", ["cut", "bits", "other"])
def test_a_damaged_index_in_a_store_is_made_anew(five, scans, store, damage):
    system, _ = store
    options = {"nulls": "count", "index": "memory://indexes/a.index"}
    whole = everything(WebDataset(five / "*.tar", **options))
    good = system.cat_file("/indexes/a.index")
    bad = {"cut": good[:-1], "bits": good[:70] + b"?" + good[71:], "other": b"<html>"}[damage]
    system.pipe_file("/indexes/a.index", bad)
    scans.clear()
    assert everything(WebDataset(five / "*.tar", **options)) == whole
    assert scans == [] and system.cat_file("/indexes/a.index") == good


def test_a_store_that_fails_is_not_taken_for_one_without_an_index(five, scans, store, monkeypatch):
    system, _ = store
    options = {"nulls": "count", "index": "memory://user:word@indexes/a.index"}

    def fail(self, path, *args, **options):
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(type(system), "cat_file", fail)
    with pytest.raises(SourceError, match=r"'memory://indexes/a.index' cannot be read: Permission"):
        WebDataset(five / "*.tar", **options)
    assert scans == []
    monkeypatch.undo()
    monkeypatch.setattr(type(system), "pipe_file", fail)
    with pytest.raises(SourceError, match=r"no index can be written to 'memory://indexes/a.index'"):
        WebDataset(five / "0.tar", **options)


def test_of_shards_one_that_changed_is_read_again(five, scans):
    WebDataset(five / "*.tar", nulls="count", index=f"{five}/index/")
    assert len(os.listdir(five / "index")) == 6 and len(os.listdir(five)) == 6
    scans.clear()
    images = containers.jpegs(20)
    (five / "1.tar").write_bytes(containers.tar({"a.jpg": images[0], "a.cls": b"9"}))
    source = WebDataset(five / "*.tar", nulls="count", index=five / "index")
    labels = [0, 1, 2, 3, 9, 8, 9, 10, 11, 16, 17, 18, 19]
    assert scans == ["1.tar"] and source.features["label"].tolist() == labels


def test_an_index_goes_on_where_it_was_stopped(five, scans):
    good = (five / "4.tar").read_bytes()
    (five / "4.tar").write_bytes(good[:1100])
    with pytest.raises(SourceError, match=r"4.tar' is cut"):
        WebDataset(five / "*.tar", nulls="count")
    (five / "4.tar").write_bytes(good)
    scans.clear()
    assert len(WebDataset(five / "*.tar", nulls="count")) == 16 and scans == ["4.tar"]


def test_a_shard_that_changes_while_it_is_run_through_is_not_indexed(five, monkeypatch):
    scan = WebDataset._scan

    def writing(self, reader, columns, report):
        found = scan(self, reader, columns, report)
        with open(five / "2.tar", "r+b") as file:
            file.write(b"x")
        return found

    monkeypatch.setattr(WebDataset, "_scan", writing)
    with pytest.raises(SourceError, match=r"2.tar' changed since it was indexed"):
        WebDataset(five / "2.tar")
    assert not list(five.glob("*.index"))


def test_damaged_indexes_of_single_files_are_made_anew(five, scans):
    whole = everything(WebDataset(five / "*.tar", nulls="count"))
    generator = np.random.default_rng(0)
    (path,) = five.glob("1.tar.*")
    good = path.read_bytes()
    for _ in range(20):
        scans.clear()
        (joined,) = five.glob("*.index")
        joined.unlink()
        path.write_bytes(containers.mutate(good, generator))
        assert everything(WebDataset(five / "*.tar", nulls="count")) == whole
        # Zeros between two columns are nobody's.
        assert (scans == [] and path.stat().st_size == len(good)) or path.read_bytes() == good


def test_records_of_an_index_too_large_to_be_checked_stay_within_their_files(five, monkeypatch):
    path = WebDataset(five / "*.tar", nulls="count").index_path
    rewrite(path, offset=last(10**6))
    monkeypatch.setattr("jaxaug.iterators.sources.storage.index_file._MAX_CHECKED_BYTES", 0)
    source = WebDataset(five / "*.tar", nulls="count")
    assert source.read(np.arange(15))["label"].tolist()[:2] == [0, 1]
    with pytest.raises(SourceError, match=r"the index '.*' has records outside of their files"):
        source.read(np.array([15]))


def test_a_record_takes_twenty_bytes_of_an_index(tmp_path):
    image = containers.jpegs(3)
    files = {}
    for row in range(3000):
        files |= {f"{row:06d}.jpg": image[row % 3], f"{row:06d}.cls": b"%d" % (row % 1000)}
    (tmp_path / "a.tar").write_bytes(containers.tar(files))
    source = WebDataset(tmp_path / "a.tar")
    columns = read_index(source.index_path).columns
    stored = {name: column for name, column in columns.items() if column.strides[0]}
    assert sum(column.itemsize for column in stored.values()) <= 20
    assert os.path.getsize(source.index_path) <= 20 * 3000 + 4096
    assert columns["lead"].tolist() == [512] * 3000


@pytest.mark.parametrize(
    "value, number, message",
    [("3/3", "", "must be I/N"), ("3", "", "must be I/N"), ("2", "2", "must"), ("a/b", "", "must")],
)
def test_parts_that_are_none(monkeypatch, capsys, value, number, message):
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID", raising=False)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", number)
    with pytest.raises(SystemExit):
        main(["index", "x.tar", "--part", value])
    assert message in capsys.readouterr().err
