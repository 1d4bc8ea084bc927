"""Far sources: many batches in one read, in the same order, each with its own errors."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators import Blocks, Concat, InMemory, Renamed, Subset
from jaxaug.iterators.loader.read_ahead import rest_of_runs
from jaxaug.iterators.loader.reader import BatchPlan, RecordReader
from jaxaug.iterators.loader.state import Cursor
from jaxaug.iterators.sources.storage.files import DataFile
from jaxaug.iterators.sources.storage.staged import Staged
from tests.images import jpegs
from tests.iterators.loaders import N, no_threads_soon, one_device


class Distant(InMemory):
    """Records in memory that are read as far ones are; the reads that were made."""

    def __init__(self, images, ahead=12, bad=None):
        super().__init__(images)
        self.reads = []
        self.bad = bad
        self._ahead = ahead

    @property
    def records_ahead(self):
        return self._ahead

    def read(self, indices):
        if threading.current_thread().name == "jaxaug-ahead":
            self.reads.append(indices.tolist())
        if self.bad is not None and self.bad in indices:
            raise OSError("no such record")
        return super().read(indices)


class Holding(Distant):
    """One that holds runs; what it was asked to hold."""

    def __init__(self, images, ahead=12, bad=None):
        super().__init__(images, ahead, bad)
        self.held = []
        self.keepers = weakref.WeakSet()

    def hold(self, indices, keeper):
        self.held.append(indices.tolist())
        self.keepers.add(keeper)


@pytest.fixture
def images():
    return jpegs(N)


def indices_of(loader, batches):
    return [next(loader)["index"].tolist() for _ in range(batches)]


@pytest.mark.parametrize("shuffle", [True, False, Blocks(N, run=3, lanes=4)])
@pytest.mark.parametrize("last_batch", ["drop", "pad"])
def test_batches_that_are_read_together_are_those_of_single_reads(images, shuffle, last_batch):
    found = []
    for ahead in (0, 12, 1000):
        source = Distant(images, ahead)
        options = {"shuffle": shuffle, "last_batch": last_batch, "sharding": one_device()}
        with Loader(source, 5, **options) as loader:
            batches = [next(loader) for _ in range(12)]  # over two ends of an epoch
            state = loader.get_state()
        found.append([np.asarray(batch["image"]).tobytes() for batch in batches])
        found.append([state, *[batch["index"].tolist() for batch in batches]])
    assert found[0] == found[2] == found[4] and found[1] == found[3] == found[5]


def test_the_first_batch_waits_for_no_other(images):
    source = Distant(images, ahead=12)
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        indices_of(loader, 6)
    assert [len(each) for each in source.reads[:3]] == [4, 12, 8]
    holding = Holding(images, ahead=12)
    with Loader(holding, 4, shuffle=Blocks(N, 3, 4), sharding=one_device(), epochs=1) as loader:
        first = next(loader)["index"].tolist()
    assert holding.reads[0] == first and not set(first) & set(np.concatenate(holding.held).tolist())


@pytest.mark.parametrize("last_batch", ["drop", "pad"])
@pytest.mark.parametrize("batch, ahead", [(4, 12), (3, 12), (5, 12), (5, 1000)])
def test_runs_are_held_whole_once_and_before_they_are_read(images, last_batch, batch, ahead):
    source = Holding(images, ahead)
    order = Blocks(N, run=3, lanes=4)
    options = {"shuffle": order, "last_batch": last_batch, "sharding": one_device(), "epochs": 1}
    with Loader(source, batch, **options) as loader:
        batches = [loader_batch["index"].tolist() for loader_batch in loader]
    wanted = [index for each in batches[1:] for index in each if index >= 0]
    held = [index for each in source.held for index in each]
    assert sorted(held) == sorted(wanted)
    begins = [at for at in range(1, len(held)) if (held[at] - held[at - 1]) % N != 1]
    assert len(begins) <= N / 3 + 2 * 4


@pytest.mark.parametrize("most", [1, 2, 7, 100])
@pytest.mark.parametrize("start", [0, 512, 12_544])
@pytest.mark.parametrize("lanes", [64, 1024])
def test_each_position_is_held_once_after_a_resume(start, most, lanes):
    order = Blocks(50_000, run=20, lanes=lanes)
    found = []
    for first in range(start, 25_000, 512):
        positions = first + np.arange(512).reshape(8, 64)
        found.append(rest_of_runs(order.runs, positions, lanes, most, since=start))
        assert np.isin(positions, np.concatenate(found)).all()
    found = np.concatenate(found)
    assert np.unique(found).size == found.size and found.min() == start


def test_a_long_epoch_of_blocks_takes_a_request_for_8_mb():
    """With records of 79 kB, the bound of what waits, and bytes that nobody writes."""
    size, count, asked = 79_000, 300_000, []

    def read(file, offset, destination):
        asked.append(len(destination))
        return len(destination)

    file = DataFile("http://host/a.tar", size * count, '"1"')
    source = Made(Staged([file], timeout=600.0, read=read), size, count)
    reader = RecordReader(source=source, sampler=Blocks(count))
    plan = BatchPlan(256, np.arange(256), drop=True, epochs=1)
    rows = sum(len(batch.indices) for batch in reader.batches(plan, Cursor(0, 0)))
    assert rows == count // 256 * 256
    assert sum(asked) == rows * size  # nothing twice
    # The first batch comes by itself, and the first and the last run of a lane are shorter.
    assert len(asked) < 1.07 * rows * size / (8 << 20) + 2 * 256
    assert max(asked) < 1.5 * (8 << 20)


class Made:
    """Records of one size, one after the other in a file."""

    def __init__(self, storage, size, count):
        self.storage = storage
        self.size = size
        self.count = count
        self.records_ahead = (256 << 20) // size

    def __len__(self):
        return self.count

    def _ranges(self, indices):
        return np.zeros(len(indices), int), indices * self.size, np.full(len(indices), self.size)

    def read(self, indices):
        return {"image": self.storage.read(*self._ranges(indices))[0]}

    def hold(self, indices, keeper):
        self.storage.hold(*self._ranges(indices), keeper)

    def describe(self, index):
        return {"record": index}

    def fingerprint(self):
        return "made"


def test_a_batch_that_cannot_be_read_fails_alone(images):
    source = Distant(images, ahead=12)
    with Loader(source, 4, shuffle=False, sharding=one_device(), epochs=1) as loader:
        source.bad = 9
        assert indices_of(loader, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(OSError, match="no such record"):
            next(loader)
        assert indices_of(loader, 3) == np.arange(12, 24).reshape(3, 4).tolist()


def test_a_loader_that_is_closed_leaves_no_reads(images):
    loader = Loader(Distant(images), 4, sharding=one_device())
    next(loader)
    loader.close()
    no_threads_soon()


def test_what_is_held_goes_with_the_loader_that_asked(images):
    source = Holding(images)
    options = {"shuffle": Blocks(N, 3, 4), "sharding": one_device()}
    first, second = (Loader(source, 4, **options) for _ in range(2))
    for loader in (first, second):
        indices_of(loader, 6)
    assert len(source.keepers) == 2
    for left, loader in ((1, first), (0, second)):
        loader.close()
        until = time.monotonic() + 60  # a read may be under way
        while len(source.keepers) > left and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        assert len(source.keepers) == left


def test_sources_of_far_ones_are_far(images):
    near = InMemory(images)
    far = Distant(images, ahead=12)
    assert Subset(near, [1]).records_ahead == Concat([near, near]).records_ahead == 0
    assert Subset(far, [1]).records_ahead == Concat([near, far]).records_ahead == 12
    assert Renamed(far).records_ahead == 12 and Renamed(near).records_ahead == 0
    assert hasattr(Renamed, "records_ahead")  # Python 3.12 asks the class


def test_what_is_known_of_all_records_has_the_new_names(images):
    class Known(InMemory):
        def summary(self):
            return {"image": 5}

    assert Renamed(Known(images), {"image": "left"}).summary() == {"left": 5}
    assert Renamed(InMemory(images)).summary() == {}
