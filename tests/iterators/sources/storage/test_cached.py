"""The cache of remote blocks: the same bytes, bounded, safe under kills, damage and sharing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.webdataset import WebDataset
from jaxaug.iterators.sources.storage import cached as cached_module
from jaxaug.iterators.sources.storage import segment as segment_module
from jaxaug.iterators.sources.storage.cached import Cached
from jaxaug.iterators.sources.storage.files import list_files
from jaxaug.iterators.sources.storage.segment import Segment
from jaxaug.iterators.sources.storage.staged import Staged
from tests.iterators.sources import containers
from tests.iterators.sources.packed.test_remote import Server, serving

SIZES = [300_000, 5, 99_999]


@pytest.fixture
def far(tmp_path, monkeypatch):
    """A function that opens a storage with a cache; the server; what its files hold."""
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(cached_module, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(cached_module, "_GROUP_BLOCKS", 4)
    contents = [np.random.default_rng(size).bytes(size) for size in SIZES]
    with serving(Server) as (handler, url):
        handler.contents |= {f"/{number}.bin": data for number, data in enumerate(contents)}

        def opened(bound=1e9):
            files = list_files(f"{url}/{{0..2}}.bin")
            return Cached(Staged(files, timeout=5), files, str(tmp_path / "cache"), bound)

        yield opened, handler, contents


def random_ranges(count=60, seed=0):
    rng = np.random.default_rng(seed)
    files = rng.integers(0, 3, count)
    ends = np.array(SIZES)[files]
    offsets = rng.integers(0, ends)
    return files, offsets, rng.integers(0, np.minimum(ends - offsets, 35_000) + 1)


def check_read(storage, contents, ranges):
    encoded, failures = storage.read(*ranges)
    assert not failures and storage.flush(60)
    for row, (file, offset, length) in enumerate(zip(*(x.tolist() for x in ranges))):
        assert bytes(encoded.view(row)) == contents[file][offset : offset + length]


def blocks_below(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file() and path.name != "lock"]


def test_a_second_read_asks_for_nothing(far):
    opened, handler, contents = far
    check_read(opened(), contents, random_ranges())
    handler.requests.clear()
    again = opened()
    check_read(again, contents, random_ranges())
    check_read(again, contents, random_ranges())  # of blocks that were checked
    assert handler.requests == []
    check_read(again, contents, random_ranges(seed=1))  # some of them new
    assert handler.requests
    check_read(again, contents, [np.zeros(0, np.int64)] * 3)


def test_a_process_compares_a_checksum_once(far, monkeypatch):
    """Each source of a process did so anew."""
    opened, handler, contents = far
    check_read(opened(), contents, random_ranges())
    monkeypatch.setattr(segment_module, "_good", {})
    check_read(opened(), contents, random_ranges())
    monkeypatch.setattr(segment_module, "_entry_of", None)
    handler.requests.clear()
    check_read(opened(), contents, random_ranges())
    assert handler.requests == []


def test_a_segment_that_is_made_anew_has_no_blocks(far, tmp_path):
    """What the process knows of the one before it says nothing of its bytes."""
    opened, handler, contents = far
    check_read(opened(), contents, random_ranges())
    for path in blocks_below(tmp_path / "cache"):
        size = path.stat().st_size
        path.unlink()
        path.write_bytes(bytes(size))
    handler.requests.clear()
    check_read(opened(), contents, random_ranges())
    assert handler.requests


@pytest.mark.parametrize("change", ["flipped", "cut", "longer", "empty"])
def test_damaged_blocks_are_read_anew(far, tmp_path, monkeypatch, change):
    opened, handler, contents = far
    check_read(opened(), contents, random_ranges())
    for path in blocks_below(tmp_path / "cache"):
        data = path.read_bytes()
        flipped = bytes(np.frombuffer(data, np.uint8) ^ (np.arange(len(data)) % 997 == 5))
        wrong = {"flipped": flipped, "cut": data[:-1], "longer": data + b"x", "empty": b""}
        path.write_bytes(wrong[change])
    monkeypatch.setattr(segment_module, "_good", {})  # as in another process
    check_read(opened(), contents, random_ranges())
    handler.requests.clear()
    check_read(opened(), contents, random_ranges())
    assert handler.requests == []


def test_the_folder_is_bounded_and_what_was_used_last_stays(far, tmp_path, monkeypatch):
    opened, handler, contents = far
    bound = 120_000
    storage = opened(bound)
    monkeypatch.setattr(cached_module, "_LOOK_SECONDS", 0.0)
    one = [np.array([0]), np.array([0]), np.array([9_000])]
    sizes = []
    for seed in range(20):
        check_read(storage, contents, one)
        check_read(storage, contents, random_ranges(3, seed))
        found = [path.stat() for path in blocks_below(tmp_path / "cache")]
        sizes.append(sum(512 * facts.st_blocks for facts in found))
    assert max(sizes) <= bound * 1.02 + 20_000 and sizes[-1] > 0.5 * bound
    handler.requests.clear()
    check_read(storage, contents, one)
    assert handler.requests == []


def test_blocks_that_cannot_be_held_are_errors_of_the_next_read(far, monkeypatch):
    opened, handler, contents = far
    storage = opened()
    one = [np.array([0]), np.array([0]), np.array([9_000])]
    asked = []
    monkeypatch.setattr(
        handler, "answer", lambda self, body: asked.append(1) or self.send(503, b"")
    )
    storage.hold(*one, storage)
    tried = len(asked)
    encoded, failures = storage.read(*one)
    assert tried and len(asked) == tried
    assert encoded.lengths.tolist() == [0] and "503" in failures[0]
    monkeypatch.undo()
    check_read(storage, contents, one)


def test_a_changed_file_has_other_blocks(far):
    opened, handler, contents = far
    storage = opened()
    check_read(storage, contents, [np.array([0]), np.array([0]), np.array([1000])])
    contents[0] = contents[0][::-1]
    handler.contents["/0.bin"] = contents[0]
    check_read(opened(), contents, random_ranges())
    with pytest.raises(SourceError, match=r"0.bin' changed since it was indexed"):
        storage.read(np.array([0]), np.array([299_000]), np.array([1000]))


@pytest.mark.parametrize(
    "time", [0, *[pytest.param(k, marks=pytest.mark.slow) for k in range(1, 10)]]
)
@pytest.mark.parametrize("call, good", [("replace", 0), ("ftruncate", 1), ("pwrite", 7)])
def test_a_full_disk_costs_a_warning(far, monkeypatch, call, good, time):
    opened, _, contents = far
    seed = 10 * time
    calls = []
    real = getattr(os, call)

    def refuse(*arguments):
        calls.append(arguments)
        if len(calls) > good:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    storage = opened()
    monkeypatch.setattr(os, call, refuse)
    with pytest.warns(RuntimeWarning, match="nothing more is kept in .*: No space left"):
        check_read(storage, contents, random_ranges(seed=seed))
    check_read(storage, contents, random_ranges(seed=seed + 1))
    monkeypatch.setattr(os, call, real)
    check_read(opened(), contents, random_ranges(seed=seed + 2))


def test_what_is_not_written_yet_is_not_asked_for_again(far, monkeypatch):
    opened, handler, contents = far
    go_on = threading.Event()
    write = Segment.write
    monkeypatch.setattr(Segment, "write", lambda *arguments: go_on.wait(30) and write(*arguments))
    storage = opened()
    some = [np.array([0]), np.array([5]), np.array([35_000])]
    encoded, _ = storage.read(*some)
    asked = len(handler.requests)
    again, _ = storage.read(*some)
    go_on.set()
    assert len(handler.requests) == asked and storage.flush(30)
    assert bytes(encoded.view(0)) == bytes(again.view(0)) == contents[0][5:35_005]
    check_read(storage, contents, some)
    assert len(handler.requests) == asked


def test_a_removed_segment_is_read_on_and_let_go(far, tmp_path, monkeypatch):
    opened, handler, contents = far
    storage = opened()
    some = [np.array([0]), np.array([0]), np.array([35_000])]
    check_read(storage, contents, some)
    encoded, _ = storage.read(*some)
    for path in blocks_below(tmp_path / "cache"):
        path.unlink()
    assert bytes(encoded.view(0)) == contents[0][:35_000]
    monkeypatch.setattr(cached_module, "_LOOK_SECONDS", 0.0)
    asked = len(handler.requests)
    check_read(storage, contents, some)  # which fetches and keeps it anew
    assert len(handler.requests) > asked and blocks_below(tmp_path / "cache")
    assert bytes(encoded.view(0)) == contents[0][:35_000]


def test_threads_share_a_storage(far):
    opened, _, contents = far
    storage = opened(200_000)
    errors = []

    def read(seed):
        try:
            for number in range(5):
                check_read(storage, contents, random_ranges(20, 10 * seed + number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(seed,), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads)


def test_blocks_that_two_threads_have_fetched_are_kept_and_let_go(far, monkeypatch):
    opened, _, contents = far
    storage = opened()
    both, go_on = threading.Barrier(2), threading.Event()
    write, fetch = Segment.write, storage._fetch
    monkeypatch.setattr(Segment, "write", lambda *arguments: go_on.wait(30) and write(*arguments))
    monkeypatch.setattr(storage, "_fetch", lambda blocks: (fetch(blocks), both.wait(30))[0])
    some = [np.array([0]), np.array([0]), np.array([35_000])]
    threads = [
        threading.Thread(target=storage.read, args=tuple(some), daemon=True) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    go_on.set()
    assert storage.flush(30) and not storage._unwritten
    assert [write.exception(1) for write in storage._writes] == [None, None]
    check_read(opened(), contents, some)


READ = """
import sys
import numpy as np
from jaxaug.iterators import WebDataset
source = WebDataset(sys.argv[1], cache=sys.argv[2], cache_bytes=float(sys.argv[3]))
print("ready", flush=True)
rng = np.random.default_rng(int(sys.argv[4]))
for _ in range(int(sys.argv[5])):
    rows = rng.integers(0, len(source), 8)
    images = source.read(rows)["image"]
    good = all(bytes(images.view(row))[:2] == b"\\xff\\xd8" for row in range(8))
    assert good and not source._failures
"""


def test_processes_share_a_folder_and_may_be_killed(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "index"))
    folder = tmp_path / "cache"
    with serving(Server) as (handler, url):
        files = containers.labelled_files(30)
        handler.contents |= {f"/{n}.tar": containers.tar(files) for n in range(4)}
        WebDataset(f"{url}/{{0..3}}.tar")
        command = [sys.executable, "-c", READ, f"{url}/{{0..3}}.tar", folder, "100000"]
        running = [
            subprocess.Popen([*map(str, command), str(seed), "200"], stdout=subprocess.PIPE)
            for seed in range(2)
        ]
        watchdog = threading.Timer(300, running[0].kill)  # which ends the wait for its line
        watchdog.start()
        try:
            assert running[0].stdout is not None and running[0].stdout.readline()
            time.sleep(0.2)
            running[0].send_signal(signal.SIGKILL)
            assert running[1].wait(300) == 0
        finally:
            watchdog.cancel()
            for process in running:
                process.kill()
                process.communicate(timeout=300)

        source = WebDataset(f"{url}/{{0..3}}.tar", cache=folder, cache_bytes=1e6)
        found = source.read(np.arange(len(source)))["image"]
        images = containers.jpegs(30) * 4
        assert [bytes(found.view(row)) for row in range(len(source))] == images
        assert source._storage.flush(60)
        requests = len(handler.requests)
        again = WebDataset(f"{url}/{{0..3}}.tar", cache=folder, cache_bytes=1e6)
        again.read(np.arange(len(source)))
        assert len(handler.requests) == requests


def test_unfinished_files_of_killed_processes_go(far, tmp_path):
    opened, _, contents = far
    check_read(opened(), contents, random_ranges())
    folder = blocks_below(tmp_path / "cache")[0].parent
    for name, age in (("old", 7200), ("new", 0)):
        path = folder / f"{name}.blocks.1-2"
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age, time.time() - age))
    check_read(opened(), contents, random_ranges(seed=3))
    names = {path.name for path in blocks_below(folder)}
    assert "new.blocks.1-2" in names and "old.blocks.1-2" not in names


def test_a_block_is_not_written_to_the_file_of_another(tmp_path):
    """One that took the place of a removed one: what this process has mapped would not have it."""
    content = np.arange(20, dtype=np.uint8)
    path = str(tmp_path / "ab" / "x.blocks")
    first = Segment(path, np.array([10, 10, 4]), 10)
    first.write(1, content.ctypes.data)
    Path(path).unlink()
    second = Segment(path, np.array([10, 10, 4]), 10)
    first.write(2, content.ctypes.data)
    assert first.find(np.arange(3)).tolist() == [False, True, False] and not first.is_there()
    assert second.is_there() and not second.find(np.arange(3)).any()
    second.write(2, content.ctypes.data)
    assert Segment(path, np.array([10, 10, 4]), 10).find(np.arange(3)).tolist() == [0, 0, 1]


@pytest.mark.parametrize("wrong", [0, -1.0, "1", None])
def test_a_bound_that_is_none_is_named(tmp_path, wrong):
    path = tmp_path / "a.tar"
    path.write_bytes(containers.tar(containers.labelled_files(2)))
    with pytest.raises(ValueError, match="`cache_bytes` must be"):
        WebDataset(path, cache=tmp_path, cache_bytes=wrong)


def test_a_full_memory_of_segments_forgets_others_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_module, "_good", {})
    monkeypatch.setattr(segment_module, "_MAX_REMEMBERED", 2)
    paths = [str(tmp_path / name) for name in "abc"]
    for path in [*paths[:2], *paths[:2]]:  # known ones push nothing out
        Segment(path, np.array([8]), 8)
        assert list(segment_module._good) == paths[: len(segment_module._good)]
    Segment(paths[2], np.array([8]), 8)
    assert list(segment_module._good) == paths[1:]
