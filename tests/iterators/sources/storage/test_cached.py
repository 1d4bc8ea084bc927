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
from jaxaug.iterators.sources.storage.cached import Cached
from jaxaug.iterators.sources.storage.files import list_files
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
    assert not failures
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


@pytest.mark.parametrize("change", ["flipped", "cut", "longer", "empty"])
def test_damaged_blocks_are_read_anew(far, tmp_path, change):
    opened, handler, contents = far
    check_read(opened(), contents, random_ranges())
    for path in blocks_below(tmp_path / "cache"):
        data = path.read_bytes()
        flipped = bytes([data[0] ^ 1]) + data[1:]
        wrong = {"flipped": flipped, "cut": data[:-1], "longer": data + b"x", "empty": b""}
        path.write_bytes(wrong[change])
    check_read(opened(), contents, random_ranges())
    handler.requests.clear()
    check_read(opened(), contents, random_ranges())
    assert handler.requests == []


def test_the_folder_is_bounded_and_what_was_used_last_stays(far, tmp_path):
    opened, handler, contents = far
    bound = 120_000
    storage = opened(bound)
    one = [np.array([0]), np.array([0]), np.array([9_000])]
    sizes = []
    for seed in range(20):
        check_read(storage, contents, one)
        check_read(storage, contents, random_ranges(3, seed))
        sizes.append(sum(path.stat().st_size for path in blocks_below(tmp_path / "cache")))
    assert max(sizes) <= bound * 1.02 + 10_004 and sizes[-1] > 0.5 * bound
    handler.requests.clear()
    check_read(storage, contents, one)
    assert handler.requests == []


def test_a_changed_file_has_other_blocks(far):
    opened, handler, contents = far
    storage = opened()
    check_read(storage, contents, [np.array([0]), np.array([0]), np.array([1000])])
    contents[0] = contents[0][::-1]
    handler.contents["/0.bin"] = contents[0]
    check_read(opened(), contents, random_ranges())
    with pytest.raises(SourceError, match=r"0.bin' changed since it was indexed"):
        storage.read(np.array([0]), np.array([299_000]), np.array([1000]))


def test_a_full_disk_costs_a_warning(far, monkeypatch):
    opened, _, contents = far

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    storage = opened()
    monkeypatch.setattr(cached_module.os, "replace", refuse)
    with pytest.warns(RuntimeWarning, match="nothing more is kept in .*: No space left"):
        check_read(storage, contents, random_ranges())
    check_read(storage, contents, random_ranges())


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

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


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
        assert running[0].stdout is not None and running[0].stdout.readline()
        time.sleep(0.2)
        running[0].send_signal(signal.SIGKILL)
        assert running[1].wait(60) == 0
        running[0].wait()
        for process in running:
            assert process.stdout is not None
            process.stdout.close()

        source = WebDataset(f"{url}/{{0..3}}.tar", cache=folder, cache_bytes=1e6)
        found = source.read(np.arange(len(source)))["image"]
        images = containers.jpegs(30) * 4
        assert [bytes(found.view(row)) for row in range(len(source))] == images
        requests = len(handler.requests)
        again = WebDataset(f"{url}/{{0..3}}.tar", cache=folder, cache_bytes=1e6)
        again.read(np.arange(len(source)))
        assert len(handler.requests) == requests


def test_unfinished_files_of_killed_processes_go(far, tmp_path):
    opened, _, contents = far
    check_read(opened(), contents, random_ranges())
    folder = blocks_below(tmp_path / "cache")[0].parent
    for name, age in (("old", 7200), ("new", 0)):
        path = folder / f"{name}.block.1-2"
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age, time.time() - age))
    check_read(opened(), contents, random_ranges(seed=3))
    names = {path.name for path in blocks_below(folder)}
    assert "new.block.1-2" in names and "old.block.1-2" not in names


@pytest.mark.parametrize("wrong", [0, -1.0, "1", None])
def test_a_bound_that_is_none_is_named(tmp_path, wrong):
    path = tmp_path / "a.tar"
    path.write_bytes(containers.tar(containers.labelled_files(2)))
    with pytest.raises(ValueError, match="`cache_bytes` must be"):
        WebDataset(path, cache=tmp_path, cache_bytes=wrong)
