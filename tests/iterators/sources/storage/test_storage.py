"""Mapped and staged reading: the same bytes, and what happens when files change, fail, stall, or
are far away.
"""

import contextlib
import ctypes
import gc
import mmap
import os
import platform
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage.files import list_files
from jaxaug.iterators.sources.storage.local_disks import all_local
from jaxaug.iterators.sources.storage.mapped import Mapped
from jaxaug.iterators.sources.storage.read import FileReader
from jaxaug.iterators.sources.storage.staged import _MAX_GAP, _SPAN, Staged, _merge
from tests.iterators.sources import containers
from tests.iterators.sources.packed.shards import check_rows, noise, resident, source_of


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


def test_neighbors_are_read_in_one_go():
    files = np.array([1, 0, 0, 0, 0, 1])
    offsets = np.array([0, 100, 0, 300 + _MAX_GAP, 301 + 2 * _MAX_GAP, 0])
    spans, span_of, places, size = _merge(files, offsets, np.array([10, 200, 100, 1, 5, 10]))
    assert [(span.file, span.offset, span.length) for span in spans] == [
        (0, 0, 302 + 2 * _MAX_GAP + 4),
        (1, 0, 10),  # the same record twice is read once
    ]
    assert (
        span_of.tolist() == [1, 0, 0, 0, 0, 1]
        and places[0] == places[5]
        and size == places.max() + 10
    )
    far, *_ = _merge(np.zeros(2, int), np.array([0, 11 + _MAX_GAP]), np.array([10, 10]))
    assert len(far) == 2
    starts = np.arange(0, 13 * _SPAN // 4, 1 << 20)
    run, *_ = _merge(np.zeros(starts.size, int), starts, np.full(starts.size, 1 << 20))
    # Three reads, of nine records or eight.
    assert [span.length >> 20 for span in run] == [9, 9, 8]
    assert [span.offset for span in run] == [0, 9 << 20, 18 << 20]


def test_staged_memory_outlives_the_storage_and_is_never_reused(tmp_path):
    files, contents = noise(tmp_path, [100_000])
    storage = Staged(files)
    first, _ = storage.read(np.array([0]), np.array([5]), np.array([1000]))
    storage.read(np.array([0]), np.array([50_000]), np.array([1000]))
    os.truncate(files[0].path, 0)
    del storage
    assert bytes(first.view(0)) == contents[0][5:1005]


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


def nothing_cached(descriptors, *ranges):
    return np.full(len(descriptors), -1)


def written_to(tmp_path, mmap):
    """Return a source of which a file was written to after its first use, in place.

    Also the path of that file, and its bytes and its time before.
    """
    source = source_of(tmp_path, mmap, retries=0)
    check_rows(source, [])
    path = tmp_path / "b.tfrecord"
    whole = path.read_bytes()
    stamp = path.stat().st_mtime_ns
    with open(path, "r+b") as file:
        file.write(whole[::-1])
    os.utime(path, ns=(stamp + 1, stamp + 1))  # whatever the clock's resolution
    check_rows(source, [3, 4, 5])
    return source, path, whole, stamp


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_written_to_after_its_first_use_gives_failed_rows(
    tmp_path, monkeypatch, mmap, cached
):
    if not cached:
        monkeypatch.setattr(libc, "read_cached", nothing_cached)
    source, path, whole, stamp = written_to(tmp_path, mmap)
    assert "changed since it was indexed: open the source again" in source.describe(3)["error"]
    path.write_bytes(whole)
    os.utime(path, ns=(stamp, stamp))
    check_rows(source, [])


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_was_written_to_and_then_replaced_is_opened_anew(tmp_path, mmap):
    source, path, whole, stamp = written_to(tmp_path, mmap)
    (tmp_path / "new").write_bytes(whole)
    os.utime(tmp_path / "new", ns=(stamp, stamp))
    os.replace(tmp_path / "new", path)
    check_rows(source, [])
    os.unlink(path)
    check_rows(source, [])


def test_a_file_written_to_while_it_is_read_gives_failed_rows(tmp_path, monkeypatch):
    source = source_of(tmp_path, mmap=False, retries=0)
    path = tmp_path / "b.tfrecord"
    stamp = path.stat().st_mtime_ns
    for module, name in ((os, "preadv"), (libc, "read_cached")):
        check_rows(source, [])

        def late(*given, read):
            os.utime(path, ns=(stamp + 1, stamp + 1))
            return read(*given)

        real = getattr(module, name)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, partial(late, read=real))
            if module is os:
                patch.setattr(libc, "read_cached", nothing_cached)
            check_rows(source, [3, 4, 5])
        os.utime(path, ns=(stamp, stamp))


@pytest.mark.parametrize("mmap", [True, False])
def test_a_batch_asks_each_file_once(tmp_path, monkeypatch, mmap):
    source = source_of(tmp_path, mmap)
    status = libc.file_status
    fstats = libc.FileStatus.ask
    asked = []
    check_rows(source, [])
    monkeypatch.setattr(
        libc, "file_status", lambda those, local: asked.extend(those) or status(those, local)
    )
    monkeypatch.setattr(
        libc.FileStatus,
        "ask",
        lambda status, those: asked.extend(those.tolist()) or fstats(status, those),
    )
    check_rows(source, [])
    assert len(asked) == len(set(asked)) == 2


def test_a_file_being_read_stays_open_though_other_threads_open_many(tmp_path, monkeypatch):
    files, contents = noise(tmp_path, [100] * 3)
    reader = FileReader(max_open=1)
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
    storage = Staged(files, read=FileReader(max_open=4))
    for seed in range(30):
        files_, offsets, lengths = ranges(contents, 200, seed)
        encoded, failures = storage.read(files_, offsets, lengths)
        assert not failures
        for row, (file, offset, length) in enumerate(zip(files_, offsets, lengths)):
            assert bytes(encoded.view(row)) == contents[file][offset : offset + length]


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


@pytest.mark.parametrize("statx", ["known", "unknown", "forbidden"])
def test_what_is_asked_of_files(tmp_path, monkeypatch, statx):
    """Some containers forbid statx, and older C libraries lack it."""
    if statx != "known":
        function = None if statx == "unknown" else lambda *arguments: -1
        monkeypatch.setattr(libc, "_keeping_gil", lambda name: function)
    late = 4_000_000_000 * 10**9 + 1
    sizes_and_times = [(0, 0), (1, 1), (70_000, 1_700_000_000_123_456_789), (5_000_000_000, late)]
    paths = []
    expected = []
    files = libc.FileStatus(6)
    for number, (size, modified) in enumerate(sizes_and_times, 1):
        paths.append(tmp_path / str(size))
        paths[-1].touch()
        os.truncate(paths[-1], size)
        os.utime(paths[-1], ns=(0, modified))
        told = os.stat(paths[-1])  # not all file systems keep every time
        expected.append([told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns])
        files.add(number, str(paths[-1]))
    with contextlib.ExitStack() as opened:
        descriptors = [opened.enter_context(path.open()).fileno() for path in paths]
        for local in (True, False):
            found = libc.file_status([*descriptors, 999_999], local).tolist()
            assert found == [*(each[2:] for each in expected), [-1, -1]]
            assert libc.file_status([], local).shape == (0, 2)
    none = [-1] * 4
    found = files.ask(np.array([4, 1, 0, 3])).tolist()
    assert found == [expected[3], expected[0], none, expected[2]]
    paths[0].write_bytes(b"more")
    paths[2].unlink()
    assert files.ask(np.array([1, 2, 3]))[:, 2].tolist() == [4, 1, -1]
    assert files.ask(np.array([], int)).shape == (0, 4)


@pytest.mark.parametrize(
    "machine, header", [("x86_64", "asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")]
)
def test_the_numbers_of_system_calls_are_those_of_the_kernel(machine, header):
    folders = (Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu"))
    found = [folder / header for folder in folders if (folder / header).exists()]
    if not found:
        pytest.skip("the headers of Linux are not installed, or of another machine")
    text = found[0].read_text()
    for name, number in libc._CALL_NUMBERS[machine]._asdict().items():
        assert re.search(rf"#define __(?:NR|NR3264)_{name}\s+{number}\b", text), name


@pytest.mark.parametrize(
    "module, name, value",
    [
        (platform, "machine", lambda: "riscv64"),
        (sys, "maxsize", 2**31 - 1),  # of 32 bits: on its kernel of 64, too, other numbers
        (sys, "platform", "freebsd14"),
    ],
)
def test_no_system_call_is_made_by_a_number_that_may_be_another_ones(
    tmp_path, monkeypatch, module, name, value
):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    calls = []
    monkeypatch.setattr(libc, "_syscall", lambda: lambda *given: calls.append(given) or -1)
    monkeypatch.setattr(libc, "_keeping_gil", lambda name: lambda *given: calls.append(name) or -1)
    monkeypatch.setattr(libc, "_contexts", {})
    seen = np.zeros(3, np.uint8)
    with path.open("rb") as file, monkeypatch.context() as patched:
        patched.setattr(module, name, value)
        opened = libc.open_cached(str(path))
        ranges = np.array([[file.fileno(), 0, seen.ctypes.data, 3]]).T
        done = libc.read_cached(*ranges).tolist()
    assert opened == -1 and done == [-1] and set(calls) <= {"fstatfs"}


def test_the_path_of_a_link_is_followed_once(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    files = libc.FileStatus(1)
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
    assert len(asked) == 1


def test_one_file_on_a_network_disk_is_enough(tmp_path, monkeypatch):
    (tmp_path / "far").mkdir()
    files, _ = noise(tmp_path, [10])
    far, _ = noise(tmp_path / "far", [10])
    folder = f"{tmp_path}/far/"
    stat = os.stat
    asked = []

    def two_devices(path, *args, **kwargs):
        status = stat(path, *args, **kwargs)
        if not str(path).startswith(folder):
            return status
        return SimpleNamespace(st_dev=status.st_dev + 1)

    monkeypatch.setattr(os, "stat", two_devices)
    kind = lambda path: asked.append(path) or (NFS if path.startswith(folder) else EXT4)  # noqa: E731
    monkeypatch.setattr(libc, "file_system", kind)
    near, distant = files[0].path, far[0].path
    assert all_local([near]) and not all_local([near, near, distant, distant])
    assert asked == [near, near, distant]


@pytest.mark.parametrize("share, storage", [(1.9, Staged), (2.1, Mapped)])
def test_more_bytes_than_the_process_may_map_are_read(tmp_path, monkeypatch, share, storage):
    import resource

    files = source_of(tmp_path, mmap=True)._files
    limit = int(share * sum(file.size for file in files))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, resource.RLIM_INFINITY))
    source = source_of(tmp_path, mmap=True)
    assert type(source._storage) is storage
    check_rows(source, [])


def test_more_files_than_the_kernel_maps_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.storage._MAX_MAPPED_FILES", 1)
    source = source_of(tmp_path, mmap=True)
    assert type(source._storage) is Staged
    check_rows(source, [])


MANY_SHARDS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import numpy as np
from jaxaug.iterators import WebDataset
source = WebDataset(sys.argv[1] + "/*.tar", mmap=sys.argv[2] == "True")
encoded = source.read(np.arange(1100))["image"]
assert encoded.lengths.all(), source.describe(int(np.argmin(encoded.lengths)))
assert [int(bytes(encoded.view(row))) for row in range(1100)] == list(range(1100))
opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
files = [open(os.devnull) for _ in range(500)]  # the user's own
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], opened)
"""


@pytest.mark.parametrize("mmap", [True, False])
def test_more_shards_than_descriptors(tmp_path, mmap):
    for number in range(1100):
        (tmp_path / f"{number:04d}.tar").write_bytes(containers.tar({"a.jpg": b"%d" % number}))
    command = [sys.executable, "-c", MANY_SHARDS, str(tmp_path), str(mmap)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=240)
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
