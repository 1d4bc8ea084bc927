"""Mapped and staged reading: the same bytes, and what happens when files change, fail, stall, or
are far away.
"""

import ctypes
import gc
import http.server
import importlib
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from email.utils import formatdate
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from jaxaug.decode.native import libc
from jaxaug.errors import SourceError
from jaxaug.iterators.sources import _files
from jaxaug.iterators.sources._files import FileReader, list_files, read_fully
from jaxaug.iterators.sources._storage import _GAP, _SPAN, Mapped, Staged, _merge, all_local
from jaxaug.iterators.sources.tfrecord import TFRecord
from jaxaug.iterators.sources.webdataset import WebDataset
from tests.iterators import containers


def noise(folder, sizes):
    """Files of random bytes: (DataFiles, their contents)."""
    generator = np.random.default_rng(0)
    contents = []
    for number, size in enumerate(sizes):
        contents.append(generator.bytes(size))
        (folder / f"{number}.bin").write_bytes(contents[-1])
    return list_files([folder / f"{number}.bin" for number in range(len(sizes))]), contents


def ranges(contents, count, seed=1):
    generator = np.random.default_rng(seed)
    files = generator.integers(0, len(contents), count)
    sizes = np.array([len(content) for content in contents])[files]
    offsets = (generator.random(count) * sizes).astype(np.int64)
    return (
        files,
        offsets,
        (generator.random(count) * np.minimum(sizes - offsets, 5000)).astype(np.int64),
    )


@pytest.mark.parametrize("make", [Mapped, Staged])
def test_ranges_of_several_files(tmp_path, make):
    files, contents = noise(tmp_path, [50_000, 1, 300_000])
    wanted = ranges(contents, 200)
    encoded, failures = make(files).read(*wanted)
    assert not failures and encoded.addresses.dtype == encoded.lengths.dtype == np.uint64
    for row, (file, offset, length) in enumerate(zip(*(column.tolist() for column in wanted))):
        assert bytes(encoded.view(row)) == contents[file][offset : offset + length]
    nothing = np.zeros(0, np.int64)
    assert make(files).read(nothing, nothing, nothing)[0].lengths.shape == (0,)


def test_neighbours_are_read_in_one_go():
    files = np.array([1, 0, 0, 0, 0, 1])
    offsets = np.array([0, 100, 0, 300 + _GAP, 301 + 2 * _GAP, 0])
    spans, span_of, places, size = _merge(files, offsets, np.array([10, 200, 100, 1, 5, 10]))
    assert [(span.file, span.offset, span.length) for span in spans] == [
        (0, 0, 302 + 2 * _GAP + 4),
        (1, 0, 10),  # the same record twice is read once
    ]
    assert (
        span_of.tolist() == [1, 0, 0, 0, 0, 1]
        and places[0] == places[5]
        and size == places.max() + 10
    )
    far, *_ = _merge(np.zeros(2, int), np.array([0, 11 + _GAP]), np.array([10, 10]))
    assert len(far) == 2
    starts = np.arange(0, 5 * _SPAN // 2, 1 << 20)
    run, *_ = _merge(np.zeros(starts.size, int), starts, np.full(starts.size, 1 << 20))
    assert [span.length for span in run] == [_SPAN, _SPAN, _SPAN // 2]


def test_staged_memory_outlives_the_storage_and_is_never_reused(tmp_path):
    files, contents = noise(tmp_path, [100_000])
    storage = Staged(files)
    first, _ = storage.read(np.array([0]), np.array([5]), np.array([1000]))
    storage.read(np.array([0]), np.array([50_000]), np.array([1000]))
    os.truncate(files[0].path, 0)
    del storage
    assert bytes(first.view(0)) == contents[0][5:1005]


def source_of(folder, mmap, **options):
    """Six records in two files."""
    examples = containers.labelled_examples(6)
    for name, part in (("a", examples[:3]), ("b", examples[3:])):
        (folder / f"{name}.tfrecord").write_bytes(containers.tfrecord(part))
    return TFRecord(folder / "*.tfrecord", mmap=mmap, **options)


def check_rows(source, bad):
    """Rows of `bad` have length 0 and an error that names the file; the others are right."""
    encoded, features = source.read(np.arange(6))
    assert features["label"].tolist() == list(range(6))
    for row, image in enumerate(containers.jpegs(6)):
        assert bytes(encoded.view(row)) == (b"" if row in bad else image)
        about = source.describe(row) if row in bad else {}
        assert ("error" in about) == (row in bad)
        assert row not in bad or about["path"] in about["error"]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_truncated_in_the_epoch_gives_failed_rows(tmp_path, mmap, opened):
    source = source_of(tmp_path, mmap, retries=0)
    whole = (tmp_path / "b.tfrecord").read_bytes()
    stamp = (tmp_path / "b.tfrecord").stat().st_mtime_ns
    if opened:
        check_rows(source, [])
    os.truncate(tmp_path / "b.tfrecord", 20)
    check_rows(source, [3, 4, 5])
    check_rows(source, [3, 4, 5])  # the source stays usable
    if opened:
        (tmp_path / "b.tfrecord").write_bytes(whole)
        os.utime(tmp_path / "b.tfrecord", ns=(stamp, stamp))
        check_rows(source, [])  # and forgets errors that are over
        assert "error" not in source.describe(4)


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_deleted_before_its_first_use(tmp_path, mmap):
    source = source_of(tmp_path, mmap, retries=0)
    os.unlink(tmp_path / "a.tfrecord")
    check_rows(source, [0, 1, 2])
    assert "No such file" in source.describe(0)["error"]


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_deleted_or_replaced_after_its_first_use_is_read_on(tmp_path, mmap):
    source = source_of(tmp_path, mmap)
    check_rows(source, [])
    os.unlink(tmp_path / "a.tfrecord")
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", tmp_path / "b.tfrecord")
    check_rows(source, [])


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_rewritten_between_indexing_and_first_use(tmp_path, mmap):
    source = source_of(tmp_path, mmap, retries=0)
    path = tmp_path / "b.tfrecord"
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(0, 0))
    check_rows(source, [3, 4, 5])
    assert "changed since it was indexed" in source.describe(3)["error"]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_written_to_after_its_first_use_gives_failed_rows(
    tmp_path, monkeypatch, mmap, cached
):
    if not cached:
        monkeypatch.setattr(FileReader, "cached", lambda *args: False)
    source = source_of(tmp_path, mmap, retries=0)
    check_rows(source, [])
    path = tmp_path / "b.tfrecord"
    whole = path.read_bytes()
    stamp = path.stat().st_mtime_ns
    with open(path, "r+b") as file:  # the same file, the same size
        file.write(whole[::-1])
    os.utime(path, ns=(stamp + 1, stamp + 1))  # whatever the clock's resolution
    check_rows(source, [3, 4, 5])
    assert "changed since it was indexed: open the source again" in source.describe(3)["error"]
    path.write_bytes(whole)
    os.utime(path, ns=(stamp, stamp))
    check_rows(source, [])


def test_a_file_written_to_while_it_is_read_gives_failed_rows(tmp_path, monkeypatch):
    source = source_of(tmp_path, mmap=False, retries=0)
    preadv = os.preadv
    check_rows(source, [])
    path = tmp_path / "b.tfrecord"
    stamp = path.stat().st_mtime_ns

    def late(*args):
        os.utime(path, ns=(stamp + 1, stamp + 1))
        return preadv(*args)

    monkeypatch.setattr(os, "preadv", late)
    check_rows(source, [3, 4, 5])


@pytest.mark.parametrize("mmap", [True, False])
def test_a_batch_asks_each_file_once(tmp_path, monkeypatch, mmap):
    source = source_of(tmp_path, mmap)
    fstat = os.fstat
    fstats = libc.FileFacts.ask
    asked = []
    check_rows(source, [])
    monkeypatch.setattr(
        os, "fstat", lambda descriptor: asked.append(descriptor) or fstat(descriptor)
    )
    monkeypatch.setattr(
        libc.FileFacts,
        "ask",
        lambda facts, those: asked.extend(those.tolist()) or fstats(facts, those),
    )
    check_rows(source, [])
    assert len(asked) == len(set(asked)) == 2


def test_a_file_being_read_stays_open_though_other_threads_open_many(tmp_path, monkeypatch):
    files, contents = noise(tmp_path, [100] * 3)
    reader = FileReader(most=1)
    preadv = os.preadv

    def late(descriptor, buffers, offset):  # as if two other threads came between
        monkeypatch.setattr(os, "preadv", preadv)
        for other in (1, 2):
            reader(files[other], 0, memoryview(bytearray(1)))
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", late)
    got = bytearray(100)
    assert reader(files[0], 0, memoryview(got)) == 100 and bytes(got) == contents[0]


def test_more_files_than_may_be_open_give_the_right_bytes(tmp_path):
    files, contents = noise(tmp_path, [3000] * 40)
    storage = Staged(files, read=FileReader(most=4))
    for seed in range(30):
        files_, offsets, lengths = ranges(contents, 200, seed)
        encoded, failures = storage.read(files_, offsets, lengths)
        assert not failures
        for row, (file, offset, length) in enumerate(zip(files_, offsets, lengths)):
            assert bytes(encoded.view(row)) == contents[file][offset : offset + length]


def resident(address, length):
    """Which share of the mapped pages the page cache holds, 0 to 1."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    pages = (ctypes.c_ubyte * -(-(address + length - first) // mmap.PAGESIZE))()
    mincore = ctypes.CDLL(None).mincore
    assert mincore(ctypes.c_void_p(first), ctypes.c_size_t(address + length - first), pages) == 0
    return np.mean([page & 1 for page in pages])


@pytest.mark.skipif(
    not hasattr(os, "posix_fadvise"), reason="nothing here can empty the page cache"
)
def test_mapped_ranges_are_asked_for_all_at_once(tmp_path):
    files, _ = noise(tmp_path, [40_000_000])
    descriptor = os.open(files[0].path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    storage = Mapped(files)
    offsets = np.array([10_000_123, 20_000_000, 39_000_000])
    length = 300_000
    base = int(storage.read(np.zeros(1, int), np.zeros(1, int), np.array([500]))[0].addresses[0])
    if any(resident(base + offset, length) for offset in offsets.tolist()):
        pytest.skip("this file system keeps its files in memory")
    storage._disk_is_at_work = lambda: True
    storage.read(np.zeros(3, int), offsets, np.full(3, length))
    deadline = time.monotonic() + 20
    while not all(
        resident(base + offset, length) == 1 for offset in offsets.tolist()
    ):  # nobody has touched them
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_is_asked_for_while_no_disk_is_at_work(tmp_path, monkeypatch):
    files, _ = noise(tmp_path, [1_000_000])
    asked = []
    blocks = SimpleNamespace(ru_inblock=0)
    monkeypatch.setattr("resource.getrusage", lambda who: blocks)
    monkeypatch.setattr(libc, "will_need", lambda *range: asked.append(range))
    storage = Mapped(files)
    for blocks.ru_inblock, count in ((0, 3), (0, 3), (7, 6), (7, 6), (8, 9)):
        storage.read(np.zeros(1, int), np.array([5000]), np.array([300_000]))
        assert len(asked) == count  # 128 kB each
    assert all(begin % mmap.PAGESIZE == 0 for begin, *_ in asked)
    assert asked[2][0] + asked[2][1] - asked[0][0] == 300_000 + 5000 % mmap.PAGESIZE


def test_the_ends_of_records_are_mapped_before_anybody_looks(tmp_path):
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "RUSAGE_THREAD") or not _may_read_own_memory():
        pytest.skip("the system has no process_vm_readv, or does not allow it")
    content = np.random.default_rng(0).bytes(40 << 20)
    with open(
        tmp_path / "pieces", "wb", buffering=0
    ) as file:  # what is written in small pieces lies in small pages
        for at in range(0, len(content), 4096):
            file.write(content[at : at + 4096])
    offsets = np.arange(600) * 65536 + 100  # the kernel maps 64 kB around a fault
    mapped = Mapped(list_files([tmp_path / "pieces"]))
    encoded, _ = mapped.read(np.zeros(600, int), offsets, np.full(600, 40_000))
    ends = [
        np.ctypeslib.as_array((ctypes.c_uint8 * 40_000).from_address(int(at)))
        for at in encoded.addresses
    ]
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    found = [(end[0], end[-1]) for end in ends]
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 20
    assert found == [(content[at], content[at + 39_999]) for at in offsets.tolist()]


def test_pages_are_touched_once_as_long_as_no_disk_is_at_work(tmp_path, monkeypatch):
    files, _ = noise(tmp_path, [300_000, 200_000])
    touched = []
    blocks = SimpleNamespace(ru_inblock=0)
    monkeypatch.setattr("resource.getrusage", lambda who: blocks)
    monkeypatch.setattr(libc, "map_pages", lambda addresses: touched.append(len(addresses)))
    storage = Mapped(files)
    rows = (np.array([0, 1]), np.array([10, 10]), np.array([200_000, 20_000]))
    for blocks.ru_inblock in (0, 0, 0, 3, 3):
        storage.read(*rows)
    assert touched == [4, 4]  # at first, and when pages may have gone
    storage.read(np.array([1]), np.array([150_000]), np.array([0]))
    assert touched == [4, 4, 2]


def test_pages_are_touched_by_the_blocks_that_the_kernel_maps(tmp_path, monkeypatch):
    files, _ = noise(tmp_path, [200_000])
    touched = []
    blocks = SimpleNamespace(ru_inblock=0)
    monkeypatch.setattr("resource.getrusage", lambda who: blocks)
    monkeypatch.setattr(libc, "map_pages", lambda addresses: touched.append(addresses.tolist()))
    storage = Mapped(files)
    storage.read(np.zeros(1, int), np.array([0]), np.array([1]))
    storage._bases[0] = base = (
        7 * 65536 + 5 * 4096
    )  # they begin at multiples of 64 kB in memory, not in the file
    for offset in (40_000, 65536 - 5 * 4096 - 1, 65536 - 5 * 4096, 100_000, 199_999):
        storage.read(np.zeros(1, int), np.array([offset]), np.array([1]))
    assert [at[0] for at in touched[1:]] == [base + 65536 - 5 * 4096, base + 199_999]


@pytest.mark.parametrize("known", [True, False])
def test_what_is_asked_of_files(tmp_path, monkeypatch, known):
    if not known:
        monkeypatch.setattr(libc, "_stat", lambda: None)
    elif sys.platform != "linux":
        pytest.skip("struct stat is known of Linux alone")
    late = 4_000_000_000 * 10**9 + 1
    facts = [(0, 0), (1, 1), (70_000, 1_700_000_000_123_456_789), (5_000_000_000, late)]
    paths = []
    expected = []
    files = libc.FileFacts(6)
    for number, (size, modified) in enumerate(facts, 1):
        paths.append(tmp_path / str(size))
        paths[-1].touch()
        os.truncate(paths[-1], size)
        os.utime(paths[-1], ns=(0, modified))
        told = os.stat(paths[-1])  # not all file systems keep every time
        expected.append([told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns])
        files.add(number, str(paths[-1]))
    none = [-1] * 4
    found = files.ask(np.array([4, 1, 0, 3])).tolist()
    assert found == [expected[3], expected[0], none, expected[2]]
    paths[0].write_bytes(b"more")
    paths[2].unlink()
    assert files.ask(np.array([1, 2, 3]))[:, 2].tolist() == [4, 1, -1]
    assert files.ask(np.array([], int)).shape == (0, 4)


def test_the_path_of_a_link_is_followed_once(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    files = libc.FileFacts(1)
    files.add(0, str(tmp_path / "link"))
    (tmp_path / "link").unlink()
    assert files.ask(np.array([0]))[0, 2] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="statfs is known of Linux alone")
def test_file_systems_are_told_apart(tmp_path):
    assert libc.file_system("/proc") == 0x9FA0  # linux/magic.h
    assert libc.file_system("/sys") == 0x62656572
    assert libc.file_system(str(tmp_path / "missing")) is None


NFS = 0x6969
FUSE = 0x65735546
LUSTRE = 0x0BD00BD0
UNKNOWN = 0x12345678
EXT4 = 0xEF53


@pytest.mark.parametrize(
    "kind, storage",
    [(kind, Staged) for kind in (NFS, FUSE, LUSTRE, UNKNOWN)] + [(EXT4, Mapped), (None, Mapped)],
)
def test_files_of_network_disks_are_read_rather_than_mapped(tmp_path, monkeypatch, kind, storage):
    asked = []
    monkeypatch.setattr(libc, "file_system", lambda path: asked.append(path) or kind)
    source = source_of(tmp_path, mmap=True, timeout=7.0, retries=5)
    assert type(source._storage) is storage
    assert asked == [str(tmp_path / "a.tfrecord")]  # once a file system
    assert storage is Mapped or (source._storage._timeout, source._storage._retries) == (7.0, 5)
    check_rows(source, [])
    asked.clear()
    source_of(tmp_path, mmap=False)
    assert asked == []


def test_one_file_on_a_network_disk_is_enough(tmp_path, monkeypatch):
    (tmp_path / "far").mkdir()
    files, _ = noise(tmp_path, [10])
    far, _ = noise(tmp_path / "far", [10])
    stat = os.stat
    asked = []

    def two_devices(path, *args, **kwargs):
        facts = stat(path, *args, **kwargs)
        if "/far/" not in str(path):
            return facts
        return SimpleNamespace(st_dev=facts.st_dev + 1)

    monkeypatch.setattr(os, "stat", two_devices)
    kind = lambda path: asked.append(path) or (NFS if "/far/" in path else EXT4)  # noqa: E731
    monkeypatch.setattr(libc, "file_system", kind)
    assert all_local(files) and not all_local(files + files + far + far)
    assert asked == [files[0].path, files[0].path, far[0].path]


def test_more_files_than_the_kernel_maps_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources._storage._MOST_MAPPED", 1)
    source = source_of(tmp_path, mmap=True)
    assert type(source._storage) is Staged
    check_rows(source, [])


MANY_SHARDS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import numpy as np
from jaxaug.iterators import WebDataset
source = WebDataset(sys.argv[1] + "/*.tar", mmap=sys.argv[2] == "True")
encoded, features = source.read(np.arange(3000))
assert encoded.lengths.all(), source.describe(int(np.argmin(encoded.lengths)))
assert [int(bytes(encoded.view(row))) for row in range(3000)] == list(range(3000))
opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
files = [open(os.devnull) for _ in range(500)]  # the user's own
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], opened)
"""


@pytest.mark.parametrize("mmap", [True, False])
def test_more_shards_than_descriptors(tmp_path, mmap):
    for number in range(3000):
        (tmp_path / f"{number:04d}.tar").write_bytes(containers.tar({"a.jpg": b"%d" % number}))
    command = [sys.executable, "-c", MANY_SHARDS, str(tmp_path), str(mmap)]
    child = subprocess.run(command, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    soft, opened = map(int, child.stdout.split())
    assert soft == 1024 and opened < (50 if mmap else 350)


def test_a_mapping_lives_as_long_as_its_bytes_are_referred_to(tmp_path):
    def mapped():
        with open("/proc/self/maps") as file:
            return str(tmp_path / "0.bin") in file.read()

    if not os.path.exists("/proc/self/maps"):
        pytest.skip("nothing here tells what is mapped")
    files, contents = noise(tmp_path, [100_000])
    storage = Mapped(files)
    encoded, _ = storage.read(np.array([0]), np.array([5]), np.array([1000]))
    del storage
    gc.collect()
    assert mapped() and bytes(encoded.view(0)) == contents[0][5:1005]
    del encoded
    gc.collect()
    assert not mapped()


def _may_read_own_memory():
    byte = (ctypes.c_uint8 * 1)(7)
    target = np.array([ctypes.addressof(byte), 1], np.uint64)
    seen = (ctypes.c_uint8 * 1)()
    into = np.array([ctypes.addressof(seen), 1], np.uint64)
    read = libc._process_vm_readv()
    return (
        read is not None and read(os.getpid(), into.ctypes.data, 1, target.ctypes.data, 1, 0) == 1
    )


@pytest.fixture
def reads(monkeypatch):
    """The flags of each preadv; those that may not wait go on as long as `held` says."""
    preadv = os.preadv

    class Reads(list):
        held = staticmethod(lambda: True)

        def preadv(self, descriptor, buffers, offset, flags=0):
            self.append(flags)
            if flags and not self.held():
                buffers[0][:1] = b"x"  # what is held in part is read again
                return 1
            return preadv(descriptor, buffers, offset)

    reads = Reads()
    monkeypatch.setattr(_files, "NO_WAIT", 8)  # as on Linux, wherever this runs
    monkeypatch.setattr(os, "preadv", reads.preadv)
    return reads


def check_far_records(storage, contents, count):
    offsets = np.arange(count) * 100_000  # too far apart to be read in one go
    encoded, failures = storage.read(np.zeros(count, int), offsets, np.full(count, 500))
    assert not failures
    for row, offset in enumerate(offsets.tolist()):
        assert bytes(encoded.view(row)) == contents[0][offset : offset + 500]


@pytest.mark.parametrize("cached", [0, 3, 29])
def test_threads_read_what_the_page_cache_does_not_hold(tmp_path, reads, cached):
    files, contents = noise(tmp_path, [3_000_000])
    storage = Staged(files)
    check_far_records(storage, contents, 5)
    assert reads == [0] * 5  # opening a file may wait as well
    reads.clear()
    reads.held = lambda: len(reads) <= cached
    check_far_records(storage, contents, 29)
    assert reads == [8] * min(cached + 1, 29) + [0] * (29 - cached)


def test_threads_read_where_one_alone_hardly_gets_to_it(tmp_path, reads, monkeypatch):
    files, contents = noise(tmp_path, [3_000_000])
    storage = Staged(files)
    check_far_records(storage, contents, 1)
    reads.clear()
    reads.held = lambda: time.sleep(0.01) is None
    check_far_records(storage, contents, 29)
    assert 1 <= reads.count(8) <= 3 and reads.count(8) + reads.count(0) == 29


class Faulty:
    """A `Read` that misbehaves at chosen calls for the ranges of one file."""

    def __init__(self, file, faults):
        self.inner = FileReader()
        self.file = file
        self.faults = list(faults)
        self.lock = threading.Lock()

    def __call__(self, file, offset, destination):
        fault = None
        if file.path.endswith(self.file):
            with self.lock:
                fault = self.faults.pop(0) if self.faults else None
        if fault is None:
            return self.inner(file, offset, destination)
        return fault(lambda part: self.inner(file, offset, part), destination)


def error(read, destination):
    raise OSError(5, "Input/output error")


def short(read, destination):
    return read(destination[: max(1, len(destination) // 3)])


def end(read, destination):
    return 0


def stall(read, destination):
    time.sleep(1.0)
    return read(destination)


@pytest.mark.parametrize(
    "faults, bad, message",
    [
        ([error], [], ""),
        ([error] * 2, [], ""),
        ([error] * 3, [3, 4, 5], "Input/output error"),
        ([short] * 5, [], ""),
        ([short, error, short], [], ""),
        ([end], [], ""),
        ([end] * 3, [3, 4, 5], "ends at byte"),
        ([stall], [], ""),
        ([stall] * 3, [3, 4, 5], "no answer within 0.4 s"),
    ],
)
def test_faults_are_retried_and_then_named(tmp_path, monkeypatch, faults, bad, message):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    source = source_of(tmp_path, mmap=False)
    source._storage = Staged(
        source._files, timeout=0.4, retries=2, read=Faulty("b.tfrecord", faults)
    )
    check_rows(source, bad)
    assert all(message in source.describe(row)["error"] for row in bad)
    check_rows(source, [])  # the next batch is whole again


@pytest.mark.parametrize("make", [TFRecord, WebDataset])
@pytest.mark.parametrize("retries", [0, 1])
def test_users_say_how_long_and_how_often_reads_are_tried(tmp_path, monkeypatch, make, retries):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    example = containers.tfrecord(containers.labelled_examples(3))
    packed = containers.tar(containers.labelled_files(3))
    (tmp_path / "a").write_bytes(example if make is TFRecord else packed)
    source = make(tmp_path / "a", mmap=False, timeout=0.2, retries=retries)
    calls = []
    go_on = threading.Event()

    def hang(reader, file, offset, destination):
        if file is source._files[0]:  # and no thread that another test left behind
            calls.append(offset)
            go_on.wait(30)
        return 0

    monkeypatch.setattr(FileReader, "__call__", hang)
    encoded, _ = source.read(np.arange(3))
    go_on.set()
    assert encoded.lengths.tolist() == [0, 0, 0] and len(calls) == 1 + retries
    assert source.describe(0)["error"].endswith("no answer within 0.2 s")


@pytest.mark.parametrize("make", [TFRecord, WebDataset])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"timeout": 0}, "`timeout` must be a number of seconds above 0, got 0"),
        ({"timeout": float("inf")}, "`timeout`"),
        ({"timeout": "1"}, "`timeout`"),
        ({"retries": -1}, "`retries` must be an int of at least 0, got -1"),
        ({"retries": 1.5}, "`retries`"),
        ({"retries": True}, "`retries`"),
    ],
)
def test_timeouts_and_retries_that_are_none(make, options, message):
    with pytest.raises(ValueError, match=message):
        make("missing", **options)


def test_the_timeout_counts_reads_however_many_there_are(tmp_path):
    files, contents = noise(tmp_path, [1000])

    def slow(file, offset, destination):
        time.sleep(0.02)
        destination[:] = contents[0][offset:][: len(destination)]
        return len(destination)

    storage = Staged(files * 600, timeout=0.3, retries=0, threads=4, read=slow)
    count = 600  # 3 s in all
    encoded, failures = storage.read(np.arange(count), np.full(count, 3), np.full(count, 10))
    assert not failures and bytes(encoded.view(599)) == contents[0][3:13]


def test_what_was_read_before_a_stall_is_delivered(tmp_path):
    files, contents = noise(tmp_path, [1000] * 40)
    go_on = threading.Event()

    def read(file, offset, destination):
        if file is files[39]:
            go_on.wait(30)
        destination[:] = contents[files.index(file)][offset:][: len(destination)]
        return len(destination)

    storage = Staged(files, timeout=0.3, retries=0, threads=1, read=read)
    encoded, failures = storage.read(np.arange(40), np.zeros(40, int), np.full(40, 10))
    go_on.set()
    assert failures == {39: f"{files[39].path!r}: no answer within 0.3 s"}
    found = [bytes(encoded.view(row)) for row in range(39)]
    assert found == [content[:10] for content in contents[:39]]


def test_stalled_reads_leave_no_threads_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    source = source_of(tmp_path, mmap=False)
    source._storage = Staged(
        source._files, timeout=0.4, retries=0, read=Faulty("b.tfrecord", [stall])
    )
    check_rows(source, [3, 4, 5])
    del source
    gc.collect()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [
            thread.name for thread in threading.enumerate() if thread.name.startswith("jaxaug-read")
        ]
        if not left:
            break
        time.sleep(0.05)
    assert not left


def test_a_read_that_ends_late_does_not_change_what_was_handed_over(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    files, contents = noise(tmp_path, [1000, 1000])
    go_on = threading.Event()
    ended = threading.Event()
    calls = []

    def read(file, offset, destination):
        calls.append(file)
        destination[:] = contents[files.index(file)][offset:][: len(destination)]
        if calls.count(files[0]) == 1 and file is files[0]:
            go_on.wait(30)
            destination[:] = b"Z" * len(destination)
            ended.set()
        return len(destination)

    storage = Staged(files, timeout=0.2, read=read)
    encoded, failures = storage.read(np.array([0, 1]), np.array([5, 7]), np.array([10, 20]))
    go_on.set()
    assert ended.wait(30) and not failures and calls.count(files[0]) == 2
    assert [bytes(encoded.view(row)) for row in range(2)] == [contents[0][5:15], contents[1][7:27]]


def test_reading_a_file_through_retries_too(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    (file,), (content,) = noise(tmp_path, [1000])
    destination = bytearray(1000)
    read_fully(
        Faulty(".bin", [short, error, error, short]), file, 0, memoryview(destination), retries=2
    )
    assert destination == content
    with pytest.raises(SourceError, match=r"0.bin' cannot be read at byte 10: Input/output error"):
        read_fully(Faulty(".bin", [error] * 3), file, 10, memoryview(destination)[:5], retries=2)


class Server(http.server.BaseHTTPRequestHandler):
    """Files with ranges; every `fails`-th answer of content is a 503. `stamp` gives the header that
    tells a change.
    """

    contents: ClassVar[dict] = {}
    requests: ClassVar[list] = []
    stamp = staticmethod(lambda content: {"ETag": f'"{zlib.crc32(content)}"'})
    fails = 0
    ranges = True
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        content = self.contents.get(self.path)
        wanted = self.headers.get("Range") if self.ranges else None
        if body and content is not None:
            self.requests.append(wanted)
            if self.fails and len(self.requests) % self.fails == 0:
                return self.send(503, b"")
        if content is None:
            return self.send(404, b"")
        extra = self.stamp(content) | ({"Accept-Ranges": "bytes"} if self.ranges else {})
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            first = int(first)
            last = min(int(last or len(content) - 1), len(content) - 1)
            extra["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content = content[first : last + 1]
        self.send(206 if wanted else 200, content, body, extra)

    def send(self, status, content, body=True, extra=None):
        self.send_response(status)
        for name, value in ((extra or {}) | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    handler = type("Handler", (Server,), {"contents": {}, "requests": []})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield handler, f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.mark.parametrize("fails", [0, 4])
def test_remote_files(server, monkeypatch, fails):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    handler, url = server
    files = containers.labelled_files(8)
    names = list(files)
    for shard in range(2):
        handler.contents[f"/s-{shard}.tar"] = containers.tar(
            {name: files[name] for name in names[shard * 8 :][:8]}
        )
    handler.fails = fails
    source = WebDataset(url + "/s-{0..1}.tar")
    assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(8)))
    handler.requests.clear()
    again = WebDataset(url + "/s-{0..1}.tar")  # the stored index serves: no content is asked for
    assert handler.requests == [] and again.fingerprint() == source.fingerprint()
    encoded, _ = again.read(np.array([0, 5]))
    assert bytes(encoded.view(1)) == containers.jpegs(8)[5] and None not in handler.requests
    assert fails or len(handler.requests) == 2
    assert again.describe(5)["key"] == "0005"


def test_globs_of_a_remote_store(server):
    memory = importlib.import_module("fsspec").filesystem("memory")
    data = containers.tfrecord(containers.labelled_examples(3))
    for name in ("a", "b"):
        memory.pipe_file(f"/jaxaug-test/{name}.tfrecord", data)
    source = TFRecord("memory://jaxaug-test/*.tfrecord")
    assert len(source) == 6 and source.describe(3)["path"] == "memory:///jaxaug-test/b.tfrecord"
    encoded, _ = source.read(np.array([4]))
    assert bytes(encoded.view(0)) == containers.jpegs(3)[1]
    with pytest.raises(SourceError, match="matches no file"):
        TFRecord("memory://jaxaug-test/*.tar")
    memory.rm("/jaxaug-test", recursive=True)


def test_a_protocol_that_nobody_knows():
    pytest.importorskip("fsspec")
    with pytest.raises(
        SourceError, match=r"'nobody://a.tar' is remote, which needs fsspec: .*nobody"
    ):
        WebDataset("nobody://a.tar")


def test_remote_files_that_are_missing_or_changed(server):
    handler, url = server
    with pytest.raises(SourceError, match=r"none.tar' cannot be opened"):
        WebDataset(url + "/none.tar")
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(2))
    first = WebDataset(url + "/a.tar")
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(9))
    assert (len(first), len(WebDataset(url + "/a.tar"))) == (2, 9)


def test_a_server_without_ranges_is_refused_before_it_is_indexed(server):
    handler, url = server
    handler.ranges = False
    tar = containers.tar(containers.labelled_files(2))
    handler.contents |= {f"/{name}.tar": tar for name in "abc"}
    with pytest.raises(SourceError, match=r"'.*a.tar' ignores ranges: sent 10240 bytes for 1\."):
        WebDataset(url + "/{a,b,c}.tar")
    assert len(handler.requests) == 1


def test_a_server_that_cannot_be_reached_is_not_a_missing_file(server, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(SourceError, match=r"a.tar' cannot be opened: Connection refused\."):
            WebDataset(f"http://127.0.0.1:{port}/a.tar")
    handler, url = server
    with pytest.raises(SourceError, match=r"a.tar' cannot be opened: No such file or directory\."):
        WebDataset(url + "/a.tar")
    monkeypatch.setattr(handler, "answer", lambda self, body: self.send(403, b"", body))
    with pytest.raises(SourceError, match=r"a.tar' cannot be opened: 403.*Forbidden"):
        WebDataset(url + "/a.tar")


@pytest.mark.parametrize(
    "error, tries",
    [(OSError, 4), (TimeoutError, 4), (PermissionError, 1), (ValueError, 1)],
)
def test_which_failures_may_pass(monkeypatch, error, tries):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    asked = []

    def info(name):
        asked.append(name)
        raise error("no")

    system = SimpleNamespace(invalidate_cache=lambda: None, info=info)
    monkeypatch.setattr(_files, "_system", lambda path: (system, path))
    with pytest.raises(SourceError, match="'any://a' cannot be opened: no"):
        list_files("any://a")
    assert len(asked) == tries


@pytest.mark.parametrize("failures, opens", [(3, True), (1000, False)])
def test_a_server_that_fails_for_a_moment_is_asked_again(server, monkeypatch, failures, opens):
    monkeypatch.setattr("jaxaug.iterators.sources._files._FIRST_PAUSE", 0.001)
    handler, url = server
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(2))
    answer = handler.answer
    asked = []

    def sometimes(self, body):
        asked.append(body)
        if len(asked) <= failures:
            return self.send(503, b"", body)
        return answer(self, body)

    monkeypatch.setattr(handler, "answer", sometimes)
    if opens:
        assert len(WebDataset(url + "/a.tar")) == 2
    else:
        with pytest.raises(SourceError, match=r"a.tar' cannot be opened: 503.*Unavailable"):
            WebDataset(url + "/a.tar")


STAMPS = {
    "ETag": lambda content: {"ETag": f'"{zlib.crc32(content)}"'},
    "Last-Modified": lambda content: {
        "Last-Modified": formatdate(zlib.crc32(content), usegmt=True)
    },
}


def two_versions(count=4):
    """A shard, and one of the same size with other images and labels."""
    images = containers.jpegs(2 * count)
    images = [image.ljust(max(map(len, images)), b"\0") for image in images]
    labelled = [
        (f"{i % count}", label, image) for i, (label, image) in enumerate(zip("01234567", images))
    ]
    shards = []
    for part in (labelled[:count], labelled[count:]):
        members = [
            {f"{key}.jpg": image, f"{key}.cls": label.encode()} for key, label, image in part
        ]
        shards.append(
            containers.tar({name: data for pair in members for name, data in pair.items()})
        )
    assert len(shards[0]) == len(shards[1])
    return images[:count], images[count:], *shards


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_remote_change_of_the_same_size_is_seen_when_opened_again(server, stamp):
    handler, url = server
    handler.stamp = staticmethod(STAMPS[stamp])
    _, images, before, after = two_versions()
    handler.contents["/a.tar"] = before
    WebDataset(url + "/a.tar")
    handler.contents["/a.tar"] = after
    assert containers.images_by_label(WebDataset(url + "/a.tar")) == dict(enumerate(images, 4))
    handler.requests.clear()
    WebDataset(url + "/a.tar")
    assert handler.requests == []


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("during", [True, False])
def test_a_remote_change_of_the_same_size_while_open_gives_failed_rows(
    server, monkeypatch, stamp, during
):
    handler, url = server
    handler.stamp = staticmethod(STAMPS[stamp])
    images, _, before, after = two_versions()
    handler.contents |= {"/a.tar": before, "/b.tar": before}
    source = WebDataset([url + "/a.tar", url + "/b.tar"], retries=0)
    source.read(np.arange(8))
    answer = handler.answer

    def then_change(self, body):
        answer(self, body)
        handler.contents["/b.tar"] = after

    if during:
        monkeypatch.setattr(handler, "answer", then_change)
    else:
        handler.contents["/b.tar"] = after
    encoded, _ = source.read(np.arange(8))
    assert [bytes(encoded.view(row)) for row in range(8)] == images + [b""] * 4
    assert (
        "b.tar' changed since it was indexed: open the source again" in source.describe(5)["error"]
    )


def test_a_remote_batch_asks_each_file_once(server, monkeypatch):
    handler, url = server
    handler.contents |= {"/a.tar": two_versions()[2], "/b.tar": two_versions()[3]}
    source = WebDataset([url + "/a.tar", url + "/b.tar"])
    asked = []
    monkeypatch.setattr(
        handler, "do_HEAD", lambda self: asked.append(self.path) or self.answer(body=False)
    )
    source.read(np.arange(8))
    assert sorted(asked) == ["/a.tar", "/b.tar"]


@pytest.mark.parametrize(
    "before, after",
    [
        ({"ETag": "a", "Last-Modified": "x"}, {"ETag": "b", "Last-Modified": "x"}),  # HTTP
        ({"Last-Modified": "x"}, {"Last-Modified": "y"}),  # HTTP without ETag
        ({"ETag": "a", "LastModified": 1}, {"ETag": "b", "LastModified": 1}),  # S3
        (
            {"etag": "m", "generation": "1", "updated": "x"},
            {"etag": "n", "generation": "2", "updated": "y"},
        ),  # GCS
        ({"created": 1}, {"created": 2}),  # memory
    ],
)
def test_the_stamps_of_file_systems(monkeypatch, before, after):
    system = SimpleNamespace(invalidate_cache=lambda: None)
    monkeypatch.setattr(_files, "_system", lambda path: (system, path))
    seen = []
    for facts in (before, before, after):
        system.info = lambda name, facts=facts: {"name": name, "size": 7} | facts
        seen += list_files("any://a")
    assert seen[0] == seen[1] != seen[2] and all(seen)


def test_a_remote_file_that_is_not_there_is_said_to_be_missing():
    pytest.importorskip("fsspec")
    with pytest.raises(SourceError, match=r"nothing\.tfrecord' cannot be opened: No such file"):
        TFRecord("memory://nothing.tfrecord")
