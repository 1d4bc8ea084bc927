"""Bytes that wait to be taken: each once, as they are in the file, and gone when they are used."""

import gc
import weakref

import numpy as np
import pytest

from jaxaug.iterators.sources.storage import held as held_module
from jaxaug.iterators.sources.storage.files import DataFile
from jaxaug.iterators.sources.storage.held import Held, Memory
from jaxaug.iterators.sources.storage.staged import Staged
from tests.iterators.sources.packed.shards import resident

RECORD = 20_000
COUNT = 200


@pytest.fixture
def contents():
    return np.random.default_rng(0).integers(0, 256, COUNT * RECORD, dtype=np.uint8)


@pytest.fixture
def far(contents):
    """A storage of two equal remote files, and the requests that it makes."""
    requests = []

    def read(file, offset, destination):
        requests.append((file.name, offset, len(destination)))
        destination[:] = contents[offset : offset + len(destination)].data
        return len(destination)

    files = [DataFile(f"http://host/{name}", contents.size, '"1"') for name in "ab"]
    return Staged(files, timeout=5.0, read=read), requests


class Reader:
    """What ranges are held for."""


@pytest.fixture
def reader():
    return Reader()


def ranges(records):
    """Files, offsets and lengths of records of both files."""
    records = np.asarray(records)
    return records // COUNT, records % COUNT * RECORD, np.full(records.size, RECORD)


def check(found, records, contents):
    for row, record in enumerate(np.asarray(records).tolist()):
        start = record % COUNT * RECORD
        assert bytes(found.view(row)) == contents[start : start + RECORD].tobytes()


def test_held_ranges_need_no_further_request(far, contents, reader):
    storage, requests = far
    storage.hold(*ranges(np.r_[20:60, 300:330]), reader)
    assert len(requests) == 2
    for records in ([25, 310, 59], [20, 21, 300]):
        found, failures = storage.read(*ranges(records))
        check(found, records, contents)
        assert not failures and len(requests) == 2
    found, _ = storage.read(*ranges([22, 100]))  # one that is held, and one that is not
    check(found, [22, 100], contents)
    assert requests[2:] == [("http://host/a", 100 * RECORD, RECORD)]


def test_what_was_used_up_is_read_again(far, contents, reader):
    """Its pages went back: its bytes would be zeros."""
    storage, requests = far
    storage.hold(*ranges(np.arange(10)), reader)
    for _ in range(3):
        found, _ = storage.read(*ranges([3, 4, 4]))
        check(found, [3, 4, 4], contents)
        del found
        gc.collect()
    assert len(requests) == 3
    found, _ = storage.read(*ranges([0, 1, 2, 5, 6, 7, 8, 9]))
    check(found, [0, 1, 2, 5, 6, 7, 8, 9], contents)
    assert len(requests) == 3


def test_ranges_that_share_bytes_are_each_right(far, contents, reader):
    storage, _ = far
    files, offsets, lengths = np.zeros(3, int), np.array([0, 0, 100]), np.array([50_000, 70, 9000])
    storage.hold(files, offsets, lengths, reader)
    for row in (1, 0, 2, 0):
        found, _ = storage.read(files[[row]], offsets[[row]], lengths[[row]])
        wanted = contents[offsets[row] : offsets[row] + lengths[row]]
        assert bytes(found.view(0)) == wanted.tobytes()
        del found
        gc.collect()


def test_what_is_held_goes_with_its_reader(far, contents):
    storage, requests = far
    readers = [Reader(), Reader()]
    for number, each in enumerate(readers):
        storage.hold(*ranges(np.arange(10) + 10 * number), each)
    places = weakref.ref(storage._held[readers[0]])
    del each, readers[0]
    gc.collect()
    assert places() is None
    found, _ = storage.read(*ranges([3, 13]))
    check(found, [3, 13], contents)
    assert requests[2:] == [("http://host/a", 3 * RECORD, RECORD)]


def test_what_cannot_be_held_is_told_by_the_read(contents, reader):
    """Which does not wait as long once more; the one after it tries anew."""
    requests = []

    def read(file, offset, destination):
        requests.append(offset)
        raise OSError("503")

    storage = Staged([DataFile("http://host/a", contents.size, '"1"')], timeout=1.0, read=read)
    storage.hold(*ranges([0, 1]), reader)
    for tried in (False, True):
        requests.clear()
        found, failures = storage.read(*ranges([1]))
        assert found.lengths.tolist() == [0] and [*failures] == [0]
        assert any(each in failures[0] for each in ("503", "no answer"))
        assert bool(requests) == tried


def test_pages_of_used_ranges_go_back():
    count, size = 64, 1 << 20
    memory = Memory.of(count * size)
    memory.data[:] = 1
    held = Held()
    places = np.arange(count) * size
    held.add(places, np.full(count, size), places, memory)
    del memory
    addresses, owner = held.take(places[: count // 2], np.full(count // 2, size))
    start = int(addresses[0])
    assert (addresses > 0).all() and resident(start, count * size) == 1
    del owner
    gc.collect()
    assert resident(start, count // 2 * size) == 0
    assert resident(start + count // 2 * size, count // 2 * size) == 1
    rest, _ = held.take(places[count // 2 :], np.full(count // 2, size))
    assert (rest > 0).all()


def test_what_nobody_takes_goes_in_the_end(monkeypatch):
    monkeypatch.setattr(held_module, "_MAX_BYTES", 1000)
    held = Held()
    for number in range(5):
        at = np.arange(4) * 100 + 1000 * number
        held.add(at, np.full(4, 100), np.arange(4) * 100, Memory.of(400))
    addresses, _ = held.take(np.array([0, 1000, 2000, 3000, 4000]), np.full(5, 100))
    assert (addresses > 0).tolist() == [False, False, False, True, True]
    assert len(held._memories) == 2
