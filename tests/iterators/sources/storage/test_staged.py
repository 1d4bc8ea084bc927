"""Reads by threads: which bytes, how often, how long, and what becomes of those that fail."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from types import SimpleNamespace

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.packed.webdataset import WebDataset
from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage import staged as staged_module
from jaxaug.iterators.sources.storage.files import DataFile, Patience
from jaxaug.iterators.sources.storage.read import FileReader, read_fully
from jaxaug.iterators.sources.storage.staged import Staged
from tests.iterators.sources import containers
from tests.iterators.sources.packed.shards import check_rows, noise, source_of


@pytest.fixture
def reads(monkeypatch):
    """The offsets of each `preadv`; `held` is how many ranges the page cache is said to hold."""
    preadv = os.preadv
    read_cached = libc.read_cached

    class Reads(list):
        held = 0

        def preadv(self, descriptor, buffers, offset):
            self.append(offset)
            return preadv(descriptor, buffers, offset)

        def read_cached(self, descriptors, offsets, addresses, lengths):
            """Of what is not held, the first byte comes as another one."""
            done = read_cached(descriptors, offsets, addresses, lengths)
            for address in addresses[self.held :].tolist():
                ctypes.memset(address, 0x78, 1)
            done[self.held :] = 1
            return done

    reads = Reads()
    monkeypatch.setattr(os, "preadv", reads.preadv)
    monkeypatch.setattr(libc, "read_cached", reads.read_cached)
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
    reads.held = 29
    check_far_records(storage, contents, 5)
    assert len(reads) == 5  # opening a file may wait as well
    reads.clear()
    reads.held = cached
    check_far_records(storage, contents, 29)
    assert sorted(reads) == [row * 100_000 for row in range(cached, 29)]


@pytest.mark.parametrize("max_open", [2, 64])
def test_files_of_local_disks_are_opened_and_read_without_threads(tmp_path, max_open):
    files, contents = noise(tmp_path, [5_000] * 10)
    read = FileReader(max_open, local=True)
    storage = Staged(files, read=read)
    which = np.random.default_rng(0).integers(0, 10, 700)  # more than one call takes
    offsets = np.random.default_rng(1).integers(0, 4000, 700)
    encoded, failures = storage.read(which, offsets, np.full(700, 900))
    assert not failures and len(read._opened) == min(max_open, 10)
    for row, (file, offset) in enumerate(zip(which.tolist(), offsets.tolist())):
        assert bytes(encoded.view(row)) == contents[file][offset : offset + 900]
    if sys.platform == "linux":
        assert storage._pool is None


def test_without_the_calls_of_linux_threads_read(tmp_path, monkeypatch):
    files, contents = noise(tmp_path, [3_000_000])
    monkeypatch.setattr(libc, "_take_context", lambda: 0)
    storage = Staged(files, local=True)
    check_far_records(storage, contents, 29)
    assert storage._pool is not None
    monkeypatch.setattr(libc, "_keeping_gil", lambda name: None)
    check_far_records(Staged(files, local=True), contents, 29)


def test_a_forked_child_reads_with_contexts_of_its_own(tmp_path):
    files, _ = noise(tmp_path, [3_000_000])
    code = """
import os, signal, sys
import numpy as np
from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage.files import list_files
from jaxaug.iterators.sources.storage.staged import Staged
storage = Staged(list_files([sys.argv[1]]), local=True)
def read():
    storage.read(np.zeros(9, int), np.arange(9) * 200_000, np.full(9, 100))
    return storage._pool is None
assert read()
child = os.fork()
if not child:
    signal.alarm(60)  # its end where it hangs
    os._exit(0 if read() and read() else 1)
assert os.waitpid(child, 0)[1] == 0 and read()
"""
    subprocess.run([sys.executable, "-c", code, files[0].path], check=True, timeout=300)


def test_a_forked_child_reads_with_threads_of_its_own(tmp_path):
    files, _ = noise(tmp_path, [3_000_000])
    code = """
import os, signal, sys
import numpy as np
from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage.files import list_files
from jaxaug.iterators.sources.storage.staged import Staged
libc.read_cached = lambda descriptors, *rest: np.full(len(descriptors), -1, np.int64)
storage = Staged(list_files([sys.argv[1]]), timeout=5, retries=0)
def failures():
    return storage.read(np.zeros(1, int), np.zeros(1, int), np.full(1, 100))[1]
assert not failures() and storage._pool is not None
child = os.fork()
if not child:
    signal.alarm(60)  # its end where it hangs
    os._exit(1 if failures() else 0)
assert os.waitpid(child, 0)[1] == 0 and not failures()
"""
    subprocess.run([sys.executable, "-c", code, files[0].path], check=True, timeout=300)


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


STALL = None  # stands for the fault of a fixture


class Stalls:
    """Time that passes only while all reads under way hang: no thread is late by it.

    Storage that is made meanwhile waits by this clock instead of that of the machine.
    """

    def __init__(self, monkeypatch):
        self.now = 0.0
        self._hanging = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        monkeypatch.setattr(staged_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(staged_module, "wait", self._wait)

    def hang(self):
        """Hang until the test is over."""
        with self._lock:
            self._hanging += 1
        self._over.wait(60)

    def fault(self, read, destination):
        """The same as a fault of `Faulty`."""
        self.hang()
        return read(destination)

    def end(self):
        self._over.set()

    def _wait(self, pending, seconds):
        done, left = wait(pending, 0.01)
        with self._lock:
            if len(left) == self._hanging:
                self._hanging = 0
                self.now += 1000 * seconds  # which are up to the next look at who waits
        return done, left


@pytest.fixture
def stalls(monkeypatch):
    stalls = Stalls(monkeypatch)
    yield stalls
    stalls.end()


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
        ([STALL], [], ""),
        ([STALL] * 3, [3, 4, 5], "no answer within 0.4 s"),
    ],
)
def test_faults_are_retried_and_then_named(tmp_path, monkeypatch, stalls, faults, bad, message):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    source = source_of(tmp_path, mmap=False)
    faults = [each or stalls.fault for each in faults]
    source._storage = Staged(
        source._files, timeout=0.4, retries=2, read=Faulty("b.tfrecord", faults)
    )
    check_rows(source, bad)
    assert all(message in source.describe(row)["error"] for row in bad)
    check_rows(source, [])  # the next batch is whole again


def test_a_remote_row_that_failed_stays_so_while_local_ones_are_tried_again():
    files = [DataFile("/a.tar", 100, "1"), DataFile("http://host/b.tar", 100, '"1"')]
    tries = []

    def read(file, offset, destination):
        tries.append(file.path)
        if file is files[0] and tries.count(file.path) == 2:
            return len(destination)
        raise OSError("does not answer")

    # Long enough for a thread of a loaded machine to begin within it.
    storage = Staged(files, timeout=2.0, retries=1, read=read)
    encoded, failures = storage.read(np.arange(2), np.zeros(2, int), np.full(2, 10))
    assert encoded.lengths.tolist() == [10, 0] and [*failures] == [1]


@pytest.mark.parametrize("make", [TFRecord, WebDataset])
@pytest.mark.parametrize("retries", [0, 1])
def test_users_say_how_long_and_how_often_reads_are_tried(
    tmp_path, monkeypatch, stalls, make, retries
):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    example = containers.tfrecord(containers.labelled_examples(3))
    packed = containers.tar(containers.labelled_files(3))
    (tmp_path / "a").write_bytes(example if make is TFRecord else packed)
    source = make(tmp_path / "a", mmap=False, timeout=0.2, retries=retries)
    calls = []

    def hang(reader, file, offset, destination):
        if file is source._files[0]:  # and no thread that another test left behind
            calls.append(offset)
            stalls.hang()
        return 0

    monkeypatch.setattr(FileReader, "__call__", hang)
    monkeypatch.setattr(libc, "open_cached", lambda path: -1)
    encoded = source.read(np.arange(3))["image"]
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


def test_the_timeout_counts_reads_however_many_there_are(tmp_path, stalls):
    files, contents = noise(tmp_path, [1000])

    def slow(file, offset, destination):
        stalls.now += 0.02  # in four threads
        time.sleep(0.001)  # so that the clock is looked at between them
        destination[:] = contents[0][offset:][: len(destination)]
        return len(destination)

    storage = Staged(files * 600, timeout=0.3, retries=0, threads=4, read=slow)
    count = 600  # some 12 s in all
    encoded, failures = storage.read(np.arange(count), np.full(count, 3), np.full(count, 10))
    assert not failures and bytes(encoded.view(599)) == contents[0][3:13]


def test_what_was_read_before_a_stall_is_delivered(tmp_path, stalls):
    files, contents = noise(tmp_path, [1000] * 40)

    def read(file, offset, destination):
        if file is files[39]:
            stalls.hang()
        destination[:] = contents[files.index(file)][offset:][: len(destination)]
        return len(destination)

    storage = Staged(files, timeout=0.3, retries=0, threads=1, read=read)
    encoded, failures = storage.read(np.arange(40), np.zeros(40, int), np.full(40, 10))
    assert failures == {39: f"{files[39].path!r}: no answer within 0.3 s"}
    found = [bytes(encoded.view(row)) for row in range(39)]
    assert found == [content[:10] for content in contents[:39]]


def test_stalled_reads_leave_no_threads_behind(tmp_path, monkeypatch, stalls):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    source = source_of(tmp_path, mmap=False)
    source._storage = Staged(
        source._files, timeout=0.4, retries=0, read=Faulty("b.tfrecord", [stalls.fault])
    )
    check_rows(source, [3, 4, 5])
    stalls.end()
    del source
    gc.collect()
    deadline = time.monotonic() + 60
    left = ["unknown"]
    while time.monotonic() < deadline:
        left = [
            thread.name for thread in threading.enumerate() if thread.name.startswith("jaxaug-read")
        ]
        if not left:
            break
        time.sleep(0.05)
    assert not left


HANGS = """
import time
import numpy as np
from jaxaug.iterators.sources.storage.files import DataFile
from jaxaug.iterators.sources.storage.staged import Staged

def read(file, offset, destination):
    if offset:
        time.sleep(3600)
    return len(destination)

storage = Staged([DataFile("a", 10**9, "")], timeout=4.0, retries=0, read=read)
_, failures = storage.read(np.zeros(2, int), np.array([0, 10**8]), np.array([10, 10]))
print(failures)
"""


def test_a_read_that_never_ends_does_not_hold_the_process():
    child = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=300
    )
    assert child.stdout == "{1: \"'a': no answer within 4 s\"}\n", child.stderr


def test_a_read_that_ends_late_does_not_change_what_was_handed_over(tmp_path, monkeypatch, stalls):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    files, contents = noise(tmp_path, [1000, 1000])
    ended = threading.Event()
    calls = []

    def read(file, offset, destination):
        calls.append(file)
        destination[:] = contents[files.index(file)][offset:][: len(destination)]
        if calls.count(files[0]) == 1 and file is files[0]:
            stalls.hang()
            destination[:] = b"Z" * len(destination)
            ended.set()
        return len(destination)

    storage = Staged(files, timeout=0.2, read=read)
    encoded, failures = storage.read(np.array([0, 1]), np.array([5, 7]), np.array([10, 20]))
    stalls.end()
    assert ended.wait(30) and not failures and calls.count(files[0]) == 2
    assert [bytes(encoded.view(row)) for row in range(2)] == [contents[0][5:15], contents[1][7:27]]


def test_reading_a_file_through_retries_too(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    (file,), (content,) = noise(tmp_path, [1000])
    destination = bytearray(1000)
    twice = Patience(retries=2)
    read_fully(
        Faulty(".bin", [short, error, error, short]),
        file,
        0,
        memoryview(destination),
        Patience(retries=2),
    )
    assert destination == content
    with pytest.raises(SourceError, match=r"0.bin' cannot be read at byte 10: Input/output error"):
        read_fully(Faulty(".bin", [error] * 3), file, 10, memoryview(destination)[:5], twice)
