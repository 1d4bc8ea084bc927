"""`Loader(keep=)`: each record is read once, and the batches are those of a Loader without it."""

import dataclasses
import errno
import importlib.metadata
import itertools
import os
import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import jaxaug
from jaxaug import Loader, augment
from jaxaug.decode import ColumnDecoder, Image, Ragged, Tokenized, Video, decode_image
from jaxaug.errors import DecodeError, PrecisionWarning
from jaxaug.iterators import (
    Arrays,
    Concat,
    FromIterable,
    ImageFolder,
    InMemory,
    PairedFolders,
    Renamed,
    Sequential,
    Shuffled,
    Subset,
    Weighted,
)
from jaxaug.iterators.loader import (
    builder,
    device_store,
    host_store,
    kept,
    mixed_store,
    plan,
    staging,
    tight_rows,
    tiles,
)
from jaxaug.iterators.loader.device_places import RecordPlaces, plan_moves
from jaxaug.iterators.loader.read_ahead import Keeper
from jaxaug.iterators.loader.reader import NOTHING, ReadTogether
from jaxaug.iterators.loader.row_slots import RowSlots, used_parts
from jaxaug.iterators.loader.state import BatchSpan, Cursor
from jaxaug.sharding import batch_sharding
from jaxaug.sharding._assemble import RowLayout
from jaxaug.sharding._mesh import local_row_ranges
from tests.images import encode, jpegs, picture
from tests.iterators.loaders import jitter

N = 22
BAD = (2, 3, 7, 8, 9, 20)


@pytest.fixture(params=["device", "device:0.4", "host", "disk"])
def keep(request, tmp_path):
    return f"disk:{tmp_path / 'kept'}" if request.param == "disk" else request.param


def devices(count):
    return batch_sharding(jax.devices("cpu")[:count])


def broken(images):
    """Return the images, some of them with bytes that only decoding, or a header, shows as bad."""
    return [
        (b"no image" if number % 2 else image[:-60]) if number in BAD else image
        for number, image in enumerate(images)
    ]


def annotated(images, **options):
    """Return a source of images with masks, boxes in different numbers, and labels."""
    lengths = np.arange(N) % 3
    boxes = np.random.default_rng(0).uniform(1, 30, (int(lengths.sum()), 4)).astype(np.float32)
    boxes[:, 2:] += boxes[:, :2]
    numbers = np.random.default_rng(1).integers(0, 5, (N, 40, 56), np.uint8)
    return InMemory(
        images,
        {
            "label": np.arange(N),
            "boxes": Ragged(boxes, lengths, 2),
            "weight": np.linspace(-0.0, 1, N),
        },
        masks=[encode(mask, "PNG") for mask in numbers],
    )


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for name, array in left.items():
        other = right[name]
        assert array.sharding == other.sharding and array.dtype == other.dtype, name
        assert np.asarray(array).tobytes() == np.asarray(other).tobytes(), name


def assert_same_batches(source, keep, count=None, state=None, **options):
    """Compare the batches of three epochs, and what the statistics say; return the kept records."""
    options = {"batch_size": 8, "seed": 3, "sharding": devices(2), "max_bad": None, **options}
    with Loader(source, **options) as plain, Loader(source, **options, keep=keep) as ours:
        if state is not None:
            plain.set_state(state)
            ours.set_state(state)
        for _ in range(3 * len(plain) if count is None else count):
            assert_equal(next(plain), next(ours))
            assert plain.get_state() == ours.get_state()
        found, wanted = ours.stats, plain.stats
        for name in ("batches", "images", "bad", "masked", "replaced"):
            assert found[name] == wanted[name], name
        named = [sorted(map(str, stats["bad_records"])) for stats in (found, wanted)]
        assert named[0] == named[1]
        return found["kept_records"]


@pytest.mark.parametrize(
    "on_error, last_batch, count",  # each pair of two of them
    [("mask", "drop", 1), ("replace", "pad", 1), ("replace", "drop", 2), ("mask", "pad", 2)],
)
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_batches_are_those_without_keep(keep, on_error, last_batch, count):
    source = annotated(broken(jpegs(N)))
    options = {"on_error": on_error, "last_batch": last_batch, "sharding": devices(count)}
    records = assert_same_batches(source, keep, **options)
    assert records == N - len(BAD) or last_batch == "drop"


@pytest.mark.bits
@pytest.mark.parametrize("side", [40, 140])  # images at once, and one after the other
def test_a_chain_with_mixing_gives_the_same_bits(keep, side):
    chain = augment.Compose(
        [
            augment.RandomResizedCrop(24),
            augment.ColorJitter(0.4),
            augment.Normalize(0.5, 0.25),
        ]
    )
    source = InMemory(jpegs(16, side, side + 8), {"label": np.arange(16)})
    assert_same_batches(
        source, keep, transform=chain, batch_transform=augment.MixUp(num_classes=16)
    )


@pytest.fixture
def runs(monkeypatch):
    """Let one call make three batches; return the numbers of batches that were launched."""
    launched = []
    launch = builder.KeepingBuilder.launch

    def counted(self, read):
        for batches in launch(self, read):
            launched.append(len(batches))
            yield batches

    monkeypatch.setattr(kept, "batches_a_call", lambda rows, layout: 3)
    monkeypatch.setattr(builder.KeepingBuilder, "launch", counted)
    return launched


@pytest.mark.bits
@pytest.mark.parametrize("count, position", [(1, 5), (2, 0)])
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_several_batches_a_call_are_those_of_one(keep, runs, count, position):
    chain = augment.Compose([augment.RandomCrop(24), augment.ColorJitter(0.4), augment.ToFloat()])
    images = jpegs(30)
    images[7] = b"no image"
    options = {
        "transform": chain,
        "batch_transform": augment.MixUp(num_classes=30),
        "on_error": "mask",
        "last_batch": "pad",
        "batch_size": 4,
        "max_bad": None,
        "sharding": devices(count),
        "seed": 3,
    }
    source = InMemory(images, {"label": np.arange(30)})
    with Loader(source, **options) as first:
        for _ in first.steps(position):
            pass
        state = first.get_state()
    assert_same_batches(source, keep, state=state, count=32, **options)
    assert {1, 3} == set(runs)


@pytest.mark.bits
def test_several_batches_a_call_are_read_ahead_and_drawn_twice(keep, runs):
    source = Distant(jpegs(N))
    order = Weighted(np.arange(N) % 5 + 1, seed=1)
    assert_same_batches(source, keep, batch_size=2, count=60, shuffle=order, transform=jitter)
    assert 3 in runs


def test_a_run_that_fails_fails_for_each_of_its_batches(runs, monkeypatch):
    source = InMemory(np.zeros((24, 8, 8, 3), np.uint8))
    with Loader(source, 4, sharding=devices(1), keep="device") as loader:
        for _ in loader.steps(6):
            pass
        state = loader.get_state()
        monkeypatch.setattr(device_store.DeviceStore, "launch_each", lambda *read: 1 / 0)
        loader.set_state(state)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                next(loader)
        monkeypatch.undo()
        assert loader.get_state() == state
        third = np.asarray(next(loader)["index"])
    with Loader(source, 4, sharding=devices(1)) as plain:
        expected = [np.asarray(batch["index"]) for batch in plain.steps(9)]
    assert third.tolist() == expected[8].tolist()


def test_small_batches_go_several_in_a_call():
    gpu, cpu = (SimpleNamespace(platform=name) for name in ("gpu", "cpu"))

    def batches(side, rows, devices):
        forms = {"image": jax.ShapeDtypeStruct((rows, side, side, 3), np.uint8)}
        schema: Any = SimpleNamespace(shapes=lambda count: forms)
        layout: Any = SimpleNamespace(rows=np.arange(rows), devices=devices)
        return kept.batches_a_call(schema, layout)

    assert [batches(side, 512, [gpu]) for side in (32, 64, 128, 224)] == [8, 8, 2, 1]
    assert batches(128, 512, [gpu] * 4) == 8
    assert batches(32, 512, [cpu]) == 1


@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_batches_that_are_read_together_are_the_same(keep):
    assert_same_batches(Distant(broken(jpegs(N))), keep, batch_size=4, on_error="replace")


@pytest.mark.parametrize("position", [0, 5])
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_a_resume_in_the_middle_gives_the_same(keep, position):
    source = annotated(broken(jpegs(N)))
    with Loader(source, 4, on_error="mask", max_bad=None, sharding=devices(2)) as first:
        for _ in first.steps(position):
            pass
        state = first.get_state()
    options = {"on_error": "mask", "batch_size": 4, "seed": 0, "last_batch": "pad"}
    assert_same_batches(source, keep, state=state, **options)


@pytest.mark.bits
def test_records_that_are_drawn_twice_have_their_positions_keys(keep):
    weights = np.arange(N) % 5
    source = InMemory(jpegs(N), {"label": np.arange(N)})
    records = assert_same_batches(source, keep, shuffle=Weighted(weights, seed=1), transform=jitter)
    assert records < N  # those of weight 0 are never drawn


@pytest.mark.parametrize("kind", ["array", "memmap", "gray", "float", "empty"])
def test_arrays_are_kept_too(keep, kind, tmp_path):
    pixels = np.stack([picture(number, 16, 24) for number in range(N)])
    if kind == "memmap":
        np.save(tmp_path / "pixels.npy", pixels)
        pixels = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    if kind == "gray":
        pixels = pixels[..., 0]
    if kind == "float":
        pixels = -pixels.astype(np.float32) * 0  # zeros with their sign
        pixels[0, 0, 0] = np.nan
    features = {"label": np.arange(N)}
    if kind == "empty":
        features["boxes"] = np.zeros((N, 0, 4), np.float32)
    assert_same_batches(InMemory(pixels, features), keep, last_batch="pad")


class Counted(InMemory):
    """Counts the reads of each record."""

    def __init__(self, images):
        super().__init__(images, {"label": np.arange(len(images))})
        self.reads = Counter()

    def read(self, indices):
        self.reads.update(indices.tolist())
        return super().read(indices)


class Distant(Counted):
    """Is read some batches at a time, ahead."""

    records_ahead = 8


@pytest.mark.parametrize("kind", [Counted, Distant])
@pytest.mark.parametrize("on_error", ["mask", "replace"])
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_later_epochs_read_nothing(keep, on_error, kind):
    source = kind(broken(jpegs(N)))
    options = {"on_error": on_error, "last_batch": "pad", "max_bad": None}
    decode = Image(canvas=(40, 56))  # picked without a look at the records
    with Loader(source, 4, sharding=devices(2), decode=decode, keep=keep, **options) as loader:
        source.reads.clear()
        for _ in itertools.chain(loader, loader):
            pass
        assert set(source.reads) == set(range(N))
        source.reads.clear()
        for _ in itertools.chain(loader, loader):
            pass
        assert not source.reads and loader.stats["batches"] == 4 * len(loader)


def test_a_record_that_must_be_read_is_looked_for_no_oftener_than_its_batch(keep, monkeypatch):
    asked = []
    find = kept.RecordStore.find
    monkeypatch.setattr(
        kept.RecordStore, "find", lambda self, rows: asked.append(rows.size) or find(self, rows)
    )
    source = InMemory(jpegs(4) * 16)
    with Loader(source, batch_size=1, seed=3, sharding=devices(1), epochs=1, keep=keep) as loader:
        asked.clear()
        assert len(list(loader)) == len(source)
    assert sum(asked) < 10 * len(source)


@pytest.mark.parametrize("kind", [Counted, Distant])
@pytest.mark.parametrize("keep", ["device", "host"], indirect=True)
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_a_dropped_tail_is_read_behind_its_epoch(keep, kind):
    source = kind(broken(jpegs(N)))
    options = {"decode": Image(canvas=(40, 56)), "on_error": "mask", "max_bad": None, "seed": 1}
    with Loader(source, 8, sharding=devices(1), keep=keep, **options) as loader:
        source.reads.clear()
        seen = [[np.asarray(batch["index"]) for batch in loader] for _ in range(2)]
        assert len(seen[0]) == len(seen[1]) == 2
        assert set(source.reads) == set(range(N))
        if kind is Counted:  # the other has asked for those of the next batches meanwhile
            assert set(source.reads.values()) == {1}
        source.reads.clear()
        for _ in loader:
            pass
        assert not source.reads and loader.stats["batches"] == 6
        assert loader.stats["kept_records"] == N - len(BAD)


def test_what_is_told_of_a_dropped_tail_is_told_in_the_next_epoch():
    deep = int(Shuffled(10, seed=0).records(0, np.arange(10))[-1])
    images = jpegs(10)
    images[deep] = encode(np.full((40, 56), 40_000, np.uint16), "PNG")
    options = {"decode": Image(canvas=(20, 28)), "seed": 0, "sharding": devices(1)}
    with Loader(InMemory(images), 8, **options, keep="device") as loader:
        next(loader)
        with pytest.warns(PrecisionWarning, match=f"record {deep} has 16 bits"):
            next(loader)
        assert loader.stats["shrunk"] == 10


def test_what_is_told_of_rows_that_were_read_ahead_is_told_after_a_restart():
    images = jpegs(12)
    images[5] = encode(np.full((40, 56), 40_000, np.uint16), "PNG")
    options = {"decode": Image(canvas=(20, 28)), "shuffle": False, "sharding": devices(1)}
    with Loader(InMemory(images), 4, **options, keep="host") as loader:
        next(loader)
        while loader.stats["kept_records"] < len(images):
            time.sleep(0.01)
        loader.set_state(loader.get_state())
        assert loader.stats["shrunk"] == 4
        with pytest.warns(PrecisionWarning, match="record 5 has 16 bits"):
            next(loader)
        next(loader)
        assert loader.stats["shrunk"] == 12


@pytest.mark.parametrize("options", [{"shuffle": False}, {"shuffle": True, "epochs": 1}])
def test_a_tail_that_nobody_gets_is_not_read(options):
    source = Counted(jpegs(N))
    decode = Image(canvas=(40, 56))
    options = {"decode": decode, "sharding": devices(1), "keep": "device", **options}
    with Loader(source, 8, **options) as loader:
        source.reads.clear()
        for _ in loader.steps(2 if "epochs" in options else 4):
            pass
    assert len(source.reads) == 16


def test_a_dropped_tail_that_is_kept_meanwhile_is_given_to_nobody():
    with Loader(Distant(jpegs(12)), 8, sharding=devices(1), keep="host") as loader:
        for _ in loader.steps(2):
            pass
        reader: Any = loader._plan.reader
        first = loader._plan.batches._replace(local=np.arange(4))  # of two processes
        [tail] = reader._found(first, [BatchSpan(0, 8, 4, Cursor(1, 0))])
        together = ReadTogether([tail._replace(dropped=True)], NOTHING, Keeper())
        [read] = reader._read_together(together)
        assert read.is_kept and not read.cursors


def test_an_error_of_a_dropped_tail_is_raised_when_its_turn_comes():
    orders = [Shuffled(10, seed=0).records(epoch, np.arange(10)) for epoch in range(4)]
    images = jpegs(10)
    bad = int(orders[0][-1])
    images[bad] = b"no image"
    expected = [bad in order[:8] for order in orders]
    assert not expected[0] and any(expected)

    raised = []
    with Loader(InMemory(images), 8, sharding=devices(1), seed=0, keep="device") as loader:
        for _ in orders:
            try:
                next(loader)
                raised.append(False)
            except DecodeError as error:
                raised.append(error.index == bad)
    assert raised == expected


def test_a_batch_with_a_bad_record_fails_in_each_epoch():
    images = jpegs(8)
    images[5] = b"no image"
    outcomes = []
    for keep in (None, "device"):
        with Loader(InMemory(images), 4, sharding=devices(1), keep=keep) as loader:
            for _ in range(6):
                try:
                    outcomes.append(np.asarray(next(loader)["index"]).tolist())
                except DecodeError as error:
                    outcomes.append(error.index)
    assert outcomes[:6] == outcomes[6:] and outcomes.count(5) == 6


def test_sample_is_that_without_keep():
    source = InMemory(jpegs(N), {"label": np.arange(N)})
    plain = Loader(source, 4, sharding=devices(1), transform=jitter)
    kept = Loader(source, 4, sharding=devices(1), transform=jitter, keep="device")
    with plain, kept:
        next(kept)
        for index in (0, 21):
            left, right = (loader.sample(index, 1)["sample"] for loader in (plain, kept))
            assert_equal(*({"image": jax.numpy.asarray(x["image"])} for x in (left, right)))


def test_memory_is_planned_before_it_is_taken(monkeypatch):
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8), {"label": np.arange(N)})
    needed = N * (8 * 8 * 3 + 4 + 17)  # pixels, label, and room for what names a row
    with Loader(source, 4, sharding=devices(2), keep="device") as loader:
        assert loader.stats["kept_bytes"] == needed and loader.stats["kept_records"] == 0

    free = needed // 2 - 1  # of one of two devices
    monkeypatch.setattr(device_store, "free_bytes", lambda devices: free)
    with pytest.raises(MemoryError, match=f"needs {free + 1:,} bytes on each .* {free:,} are free"):
        Loader(source, 4, sharding=devices(2), keep="device")


@pytest.mark.parametrize("keep", ["host", "disk"], indirect=True)
def test_memory_and_disk_are_planned_before_they_are_taken(keep, monkeypatch):
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8), {"label": np.arange(N)})
    needed = N * (8 * 8 * 3 + 4)
    with Loader(source, 4, sharding=devices(2), keep=keep) as loader:
        assert loader.stats["kept_bytes"] == needed and loader.stats["kept_records"] == 0

    monkeypatch.setattr(host_store, "free_host_bytes", lambda: needed - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=needed - 1))
    wider = InMemory(np.zeros((N, 9, 9, 3), np.uint8), {"label": np.arange(N)})  # not there yet
    with pytest.raises(MemoryError, match=f"needs [0-9,]+ bytes, .* and {needed - 1:,} are free"):
        Loader(wider, 4, sharding=devices(2), keep=keep)


def varied():
    """Return images that use from a fifth to all of a canvas of 40 x 56."""
    sizes = [(8 + 32 * number // (N - 1), 56 - number) for number in range(N)]
    return [encode(picture(i, *size), quality=90) for i, size in enumerate(sizes)]


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "_SIDE", 8)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_images_of_different_sizes_are_those_without_keep(keep, count, small_tiles):
    images = varied()
    images[5] = b"no image"
    source = InMemory(images, {"label": np.arange(N)})
    options = {"decode": Image(canvas=(43, 59)), "on_error": "mask", "last_batch": "pad"}
    records = assert_same_batches(source, keep, sharding=devices(count), **options)
    assert records == N - 1


@pytest.mark.bits
@pytest.mark.parametrize("keep", ["device", "host"], indirect=True)
def test_a_resume_in_a_run_gives_the_same_of_different_sizes(keep, runs, small_tiles):
    source = InMemory(varied(), {"label": np.arange(N)})
    chain = augment.Compose([augment.RandomResizedCrop(16), augment.ToFloat()])
    options = {"decode": Image(canvas=(43, 59)), "transform": chain, "batch_size": 2, "seed": 3}
    with Loader(source, **options, sharding=devices(2)) as first:
        for _ in first.steps(5):
            pass
        state = first.get_state()
    assert_same_batches(source, keep, state=state, count=30, **options)
    assert 3 in runs


def test_rows_are_gathered_for_several_calls_in_the_same_memory(monkeypatch):
    """On CPUs, three batches of two at a time; the last of an epoch alone."""
    monkeypatch.setattr(device_store, "_GATHERED_BYTES", 3 * 2 * 1300)
    monkeypatch.setattr(device_store, "MAX_POSITIONS", 6)
    taken = []
    take = device_store.DeviceStore._take_kept

    def noted(self, words):
        calls = take(self, words)
        taken.append([leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(calls)])
        return calls

    monkeypatch.setattr(device_store.DeviceStore, "_take_kept", noted)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 20, 3), np.uint8)
    source = InMemory(pixels, {"label": np.arange(20)})
    options = {"sharding": devices(1), "batch_size": 2, "transform": jitter}
    assert_same_batches(source, "device", count=50, **options)
    assert 12 <= len(taken) < 20
    assert all(each == taken[0] and len(each) == 6 for each in taken)


@pytest.mark.parametrize("share", ["device", "device:0.5"])
@pytest.mark.parametrize("images", [lambda: jpegs(N), varied])
def test_a_call_that_gathers_its_rows_gives_the_same(share, images, runs, small_tiles, monkeypatch):
    """As on GPUs; the chain is of whole numbers, as CPUs would fuse and round others."""
    monkeypatch.setattr(device_store, "_FUSES", "none")
    chain = augment.Compose([augment.RandomCrop(24), augment.RandomHorizontalFlip()])
    options = {"transform": chain, "batch_size": 4, "sharding": devices(1), "seed": 3}
    source = InMemory(images(), {"label": np.arange(N)})
    assert_same_batches(source, share, count=32, **options)
    assert 3 in runs or share != "device"


def test_images_larger_than_was_expected_go_to_the_host(monkeypatch, small_tiles):
    def expected(self, column):
        return {"pixels": np.full((5, 2), 9)}

    monkeypatch.setattr(Image, "expected_extents", expected)
    source = InMemory(varied(), {"label": np.arange(N)})
    options = {"decode": Image(canvas=(40, 56)), "last_batch": "pad"}
    assert assert_same_batches(source, "device", **options) == N


def test_a_record_that_finds_room_while_its_batch_is_taken_is_there(monkeypatch, small_tiles):
    """As one may that two batches at a time have read."""
    take_device, take = device_store.DeviceStore.take, mixed_store.MixedStore.take
    alone = threading.Lock()

    def then_all_find_room(self, *rows):
        taken = take_device(self, *rows)
        self.has = lambda indices: indices >= 0
        return taken

    def one_at_a_time(self, *rows):
        with alone:
            taken = take(self, *rows)
            vars(self._device).pop("has", None)
            return taken

    source = InMemory(varied(), {"label": np.arange(N)})
    options = {"decode": Image(canvas=(40, 56)), "last_batch": "pad", "sharding": devices(2)}
    with (
        Loader(source, 8, **options) as plain,
        Loader(source, 8, **options, keep="device:0.4") as ours,
    ):
        for number, batch in enumerate(plain.steps(4 * len(plain))):
            if number == 2 * len(plain):  # all are kept, so that none is written any more
                monkeypatch.setattr(device_store.DeviceStore, "take", then_all_find_room)
                monkeypatch.setattr(mixed_store.MixedStore, "take", one_at_a_time)
            assert_equal(batch, next(ours))


def test_devices_hold_what_images_use_of_their_canvases(small_tiles):
    source = InMemory(varied())
    options = {"decode": Image(canvas=(40, 56)), "sharding": devices(2)}
    with Loader(source, 4, **options, keep="device") as loader:
        used = loader.stats["kept_bytes"]
    # Seen or not, the largest image has room behind the others.
    used -= 2 * (40 * 56 * 3)
    assert used < 0.8 * N * 40 * 56 * 3


def test_several_devices_share_what_lies_beside_the_tiles(small_tiles):
    shapes = [(8 + number, 56 - number) for number in range(N)]
    masks = [encode(np.ones(shape, np.uint8), "PNG") for shape in shapes]
    images = [encode(picture(0, *shape), quality=90) for shape in shapes]
    source = InMemory(images, masks=masks)

    def used(count):
        options = {"decode": {"image": Image(canvas=(40, 56))}, "sharding": devices(count)}
        with Loader(source, 4, **options, keep="device") as loader:
            return loader.stats["kept_bytes"] - count * 40 * 56 * 3  # as above

    assert used(2) < 1.2 * used(1)


def test_what_lies_beyond_an_image_takes_no_memory(tmp_path):
    images = [encode(picture(number, 64, 64), quality=90) for number in range(4)]
    source = Rereading(images)
    options = {"decode": Image(canvas=(512, 512)), "sharding": devices(1), "shuffle": False}
    with Loader(source, 4, **options, keep=f"disk:{tmp_path}") as loader:
        pixels = np.asarray(next(loader)["image"])
        planned = loader.stats["kept_bytes"]
    (file,) = [path for path in tmp_path.rglob("*.bin") if path.stat().st_size == 4 * 512 * 512 * 3]
    block = file.stat().st_blksize
    assert file.stat().st_blocks * 512 <= 4 * (64 * 64 * 3 + 2 * block)
    assert 4 * 64 * 64 * 3 < planned < 4 * (64 * 64 * 3 + 100)
    with Loader(source, 4, **options, keep="host") as loader:
        assert loader.stats["kept_bytes"] == planned
        np.testing.assert_array_equal(np.asarray(next(loader)["image"]), pixels)


class Rereading(Counted):
    """Has the same content wherever it is made."""

    def fingerprint(self):
        return "rereading"


def epochs_of(source, keep, count=1, **options):
    """Return the arrays of whole epochs, in one list."""
    options = {"sharding": devices(2), "seed": 5, "last_batch": "pad", **options}
    with Loader(source, 4, decode=Image(canvas=(40, 56)), keep=keep, **options) as loader:
        source.reads.clear()
        return [jax.device_get(batch) for _ in range(count) for batch in loader]


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_a_later_run_reads_nothing_from_the_source(keep):
    first = epochs_of(Rereading(jpegs(N)), keep)
    source = Rereading(jpegs(N))
    again = epochs_of(source, keep)
    assert not source.reads
    jax.tree.map(np.testing.assert_array_equal, again, first)


def test_rows_of_which_nothing_is_used_are_kept_in_files(tmp_path):
    """Such as sounds that end before the clip of their video."""
    form = jax.ShapeDtypeStruct((3, 5), np.int16)
    slots = RowSlots(form, tight=True, path=tmp_path / "0.bin")
    extents = np.array([[0], [2]])
    rows = np.array([[0] * 5, [7, 8, 0, 0, 0]], np.int16)
    slots.write(np.array([2, 0]), used_parts(rows, extents))
    found = slots.empty(2)
    slots.read(np.array([2, 0]), extents, found)
    np.testing.assert_array_equal(found, rows)
    assert not slots.used(2, extents[:1]).size


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_a_disk_that_is_full_later_is_named(keep, monkeypatch):
    def full(file, start, count):
        raise OSError(errno.ENOSPC, "No space left on device")

    options = {"decode": Image(canvas=(80, 80)), "sharding": devices(1), "keep": keep}
    with Loader(InMemory(jpegs(N)), 4, **options) as loader:
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(OSError, match=r"`keep`='disk:.*for all 22 .* behind 0: free"):
                next(loader)


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_the_first_batch_does_not_wait_for_records_of_later_ones(keep, monkeypatch):
    looked_at = []
    checksum = host_store.DiskStore._checksum
    pixels = np.zeros((400, 8, 8, 3), np.uint8)
    options = {"shuffle": False, "sharding": devices(1), "keep": keep, "prefetch": 1}
    with Loader(InMemory(pixels), 4, **options, epochs=1) as loader:
        assert len(list(loader)) == 100
    monkeypatch.setattr(
        host_store.DiskStore,
        "_checksum",
        lambda self, index, stamp: looked_at.append(index) or checksum(self, index, stamp),
    )
    with Loader(InMemory(pixels), 4, **options) as loader:
        next(loader)
        time.sleep(0.3)  # what is read ahead has been
        assert 4 <= len(looked_at) < 100


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_another_source_or_decoder_has_records_of_its_own(keep):
    epochs_of(Rereading(jpegs(N)), keep)
    other = Counted(jpegs(N))
    epochs_of(other, keep)
    assert set(other.reads) == set(range(N))
    source = Rereading(jpegs(N))
    other = Image(canvas=(40, 56), truncated="accept")  # which may have other pixels
    with Loader(source, 4, decode=other, sharding=devices(1), keep=keep) as loader:
        source.reads.clear()
        next(loader)
    assert source.reads


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_bytes_that_changed_on_disk_are_decoded_again(keep, tmp_path):
    first = epochs_of(Rereading(jpegs(N)), keep)
    (file,) = [path for path in tmp_path.rglob("*.bin") if path.stat().st_size == N * 40 * 56 * 3]
    content = bytearray(file.read_bytes())
    for record in (3, 11):
        content[record * 40 * 56 * 3 + 1000] ^= 1
    file.write_bytes(content)
    source = Rereading(jpegs(N))
    again = epochs_of(source, keep)
    assert set(source.reads) == {3, 11}
    jax.tree.map(np.testing.assert_array_equal, again, first)


@pytest.mark.parametrize("kind", ["images", "subset", "masks", "subset of masks"])
@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_files_that_changed_are_decoded_again(keep, kind, tmp_path):
    for folder, suffix in (("images/a", "jpg"), ("masks/a", "png")):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(8):
            pixels = picture(number, 24, 32)
            content = encode(pixels[..., 0], "PNG") if suffix == "png" else encode(pixels, "JPEG")
            (tmp_path / folder / f"{number}.{suffix}").write_bytes(content)

    def batches(keep):
        source: Any = ImageFolder(tmp_path / "images")
        if kind.endswith("masks"):
            source = PairedFolders(tmp_path / "images/a", tmp_path / "masks/a")
        if kind.startswith("subset"):
            source = Subset(source, range(6))
        options = {"sharding": devices(1), "shuffle": False, "epochs": 1, "keep": keep}
        with Loader(source, 2, decode={"image": Image(canvas=(24, 32))}, **options) as loader:
            return jax.device_get(list(loader))

    before = batches(keep)
    name = "masks/a/3.png" if kind.endswith("masks") else "images/a/3.jpg"
    (tmp_path / name).write_bytes((tmp_path / name.replace("3", "4")).read_bytes())
    os.utime(tmp_path / name, ns=(1, 1))
    after = batches(keep)
    jax.tree.map(np.testing.assert_array_equal, after, batches(None))
    entry = "mask" if kind.endswith("masks") else "image"
    assert (after[1][entry] != before[1][entry]).any()


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_a_file_that_changes_behind_its_read_is_decoded_again(keep, tmp_path):
    """Before its row is written: the row must not have the stamp of the new file."""
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "0.png"
    path.write_bytes(encode(picture(0, 24, 32), "PNG"))

    class Changing(ImageFolder):
        def read(self, indices):
            found = super().read(indices)
            path.write_bytes(encode(picture(next(versions), 24, 32), "PNG"))
            return found

    versions = itertools.count(1)
    options = {"sharding": devices(1), "decode": Image(canvas=(24, 32)), "epochs": 1}
    for kind in (Changing, ImageFolder):
        with Loader(kind(tmp_path / "a", classes=["."]), 1, keep=keep, **options) as loader:
            (batch,) = loader
    np.testing.assert_array_equal(batch["image"][0], decode_image(path.read_bytes()))


def _changing(kind, tmp_path):
    """Return a function that makes a source of 600 records, and one that changes record 301.

    Neither its size nor a time tells, nor one of the rows that a fingerprint has.
    """
    pixels = np.arange(600 * 8 * 8 * 3).reshape(600, 8, 8, 3).astype(np.uint8)
    images = [encode(each, "BMP") for each in pixels[:7]]  # of one size
    images = [images[number % 7] for number in range(600)]
    masks = [encode(pixels[number % 7, ..., 0], "BMP") for number in range(600)]
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r+")
    make = {
        "pixels": lambda: InMemory(pixels),
        "memmap": lambda: InMemory(mapped),
        "images": lambda: InMemory(images),
        "masks": lambda: InMemory(images, masks=masks),
        "arrays": lambda: Arrays({"image": pixels, "label": np.arange(600)}),
        "subset": lambda: Subset(Concat([InMemory(pixels), InMemory(pixels)]), range(600)),
        "renamed": lambda: Renamed(Arrays({"x": mapped}), {"x": "image"}),
    }[kind]

    def change():
        pixels[301] += 1
        mapped[301] += 1
        masks[301] = masks[302]
        if kind != "masks":
            images[301] = images[302]

    return make, change


@pytest.mark.parametrize(
    "kind", ["pixels", "memmap", "images", "masks", "arrays", "subset", "renamed"]
)
@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_rows_that_changed_are_kept_anew(keep, kind, tmp_path, monkeypatch):
    make, change = _changing(kind, tmp_path)

    def batches(keep):
        options = {"shuffle": False, "epochs": 1, "sharding": devices(1), "keep": keep}
        with Loader(make(), 100, **options) as loader:
            return jax.device_get(list(loader))

    before = batches(keep)
    written = []
    write = host_store.DiskStore.write
    monkeypatch.setattr(
        host_store.DiskStore,
        "write",
        lambda self, rows, indices: written.extend(indices.tolist()) or write(self, rows, indices),
    )
    jax.tree.map(np.testing.assert_array_equal, batches(keep), before)
    assert not written
    change()
    after = batches(keep)
    jax.tree.map(np.testing.assert_array_equal, after, batches(None))
    entry = "mask" if kind == "masks" else "image"
    assert (after[3][entry][1] != before[3][entry][1]).any()
    assert {index for index in written if index >= 0} == {301}


@pytest.mark.parametrize("library", ["jaxaug", "pillow", "simplejpeg"])
@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_another_version_of_what_decodes_begins_anew(keep, library, monkeypatch):
    epochs_of(Rereading(jpegs(N)), keep)
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: "99" if name == library else version(name),
    )
    monkeypatch.setattr(jaxaug, "__version__", "99" if library == "jaxaug" else jaxaug.__version__)
    source = Rereading(jpegs(N))
    epochs_of(source, keep)
    assert set(source.reads) == set(range(N))


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_arrays_do_not_begin_anew_with_a_library_that_decodes_nothing(keep, monkeypatch, tmp_path):
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8))
    for version in ("1", "2"):
        monkeypatch.setattr(importlib.metadata, "version", lambda name, version=version: version)
        Loader(source, 4, sharding=devices(1), keep=keep).close()
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_place_that_is_no_directory_is_named(tmp_path):
    (tmp_path / "file").touch()
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8))
    with pytest.raises(NotADirectoryError, match=r"`keep`='disk:.*must name a directory that can"):
        Loader(source, 4, sharding=devices(1), keep=f"disk:{tmp_path / 'file'}")


@pytest.mark.parametrize("keep", ["disk"], indirect=True)
def test_a_run_that_ended_in_the_middle_goes_on_from_its_records(keep):
    source = Rereading(jpegs(N))
    with Loader(source, 4, sharding=devices(1), keep=keep, decode=Image(canvas=(40, 56))) as loader:
        next(loader)
    source = Rereading(jpegs(N))
    epochs_of(source, keep)
    assert 0 < len(source.reads) <= N - 4


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_record_has_one_place_in_the_share_of_a_device(count):
    generator = np.random.default_rng(count)
    length, rows = 101, 3 * count
    slots = -(-length // count)
    places = RecordPlaces(length, devices=count, slots=slots)
    taken = {}
    for _ in range(600):
        indices = generator.integers(-1, length, rows)  # with PADDING, some twice
        found = places.assign(indices)
        assert found.shape == (count, rows, 1)
        written = found[..., 0]
        for device in range(count):
            assert len(set(written[device].tolist())) == rows
            for row in np.flatnonzero(written[device] < slots):
                assert indices[row] not in taken
                taken[indices[row]] = (device, written[device, row])
    assert set(taken) == set(range(length)) and len(set(taken.values())) == length
    device, first = places.find(np.arange(length))
    assert dict(enumerate(zip(device.tolist(), first[:, 0].tolist()))) == taken


@pytest.mark.parametrize("count", [1, 3])
def test_tiles_of_records_do_not_overlap(count):
    generator = np.random.default_rng(count)
    length = 60
    tiles = generator.integers(1, 9, length)
    room = int(tiles.sum()) // count  # not enough for all, as a record's lie together
    places = RecordPlaces(length, devices=count, slots=length, tiles=[room])
    for _ in range(100):
        indices = generator.integers(0, length, 2 * count)
        counts = np.stack([np.ones(len(indices), int), tiles[indices]], axis=1)
        places.assign(indices, counts)
    device, first = places.find(np.arange(length))
    held = np.zeros((count, room), int)
    there = np.flatnonzero(places.has(np.arange(length)))
    for record in there:
        held[device[record], first[record, 1] :][: tiles[record]] += 1
    assert held.max() == 1 and held.sum() == tiles[there].sum()
    assert held.sum() > 0.9 * tiles.sum() - 8 * count


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_moved_rows_arrive_at_their_places(count):
    generator = np.random.default_rng(count)
    rows = 5 * count
    store = generator.integers(0, 10**6, (count, 40))
    senders = generator.integers(0, count, rows)
    slots = generator.integers(0, 40, rows)
    moves = plan_moves(senders, slots[:, None], count)
    sent = np.take_along_axis(store, moves.slots.reshape(count, -1).astype(int), axis=1)
    received = sent.reshape(count, count, moves.capacity).swapaxes(0, 1).reshape(count, -1)
    arrived = np.take_along_axis(received, moves.rows.reshape(count, -1).astype(int), axis=1)
    np.testing.assert_array_equal(arrived.reshape(-1), store[senders, slots])


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_of_the_same_device_in_each_epoch_do_not_move(shuffle, monkeypatch):
    moved = []
    take = device_store.DeviceStore._take_moved
    monkeypatch.setattr(
        device_store.DeviceStore,
        "_take_moved",
        lambda self, *rows: moved.append(1) or take(self, *rows),
    )
    source = InMemory(np.stack([picture(number, 8, 8) for number in range(24)]))
    assert_same_batches(source, "device", shuffle=shuffle, sharding=devices(4))
    assert bool(moved) == shuffle


@pytest.mark.parametrize("count", [1, 2, 4])
def test_rows_of_the_host_are_compacted_by_device(count):
    generator = np.random.default_rng(count)
    for share in (1, 3, 8, 20):
        asked = generator.random(count * share) < 0.4
        asked[-1] = True
        rows, places = mixed_store.compacted(asked, count)
        shares = rows.reshape(count, -1)
        assert sorted(rows[rows >= 0].tolist()) == np.flatnonzero(asked).tolist()
        assert shares.shape[1] <= share + -(-share // 8)
        for row in range(len(asked)):
            place = places[row]
            found = shares[row // share][place] if place >= 0 else -1
            assert found == (row if asked[row] else -1)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_host_gets_those_rows_of_devices_that_it_keeps(count):
    values = np.random.default_rng(count).integers(0, 256, (count * 11, 3, 2), np.uint8)
    shards = list(map(jax.device_put, np.split(values, count), jax.devices("cpu")[:count]))
    for rows in ([count * 11 - 1], [0, 4, 9], range(count * 11)):
        found = host_store._rows_of(shards, np.array(rows))
        np.testing.assert_array_equal(np.concatenate(found), values[rows])


def test_what_devices_keep_is_not_copied_to_the_host(monkeypatch, small_tiles):
    copied = []
    monkeypatch.setattr(host_store, "_rows_of", lambda shards, rows: copied.append(rows))
    options = {"decode": Image(canvas=(40, 56)), "sharding": devices(2), "last_batch": "pad"}
    with Loader(InMemory(varied()), 4, **options, keep="device") as loader:
        for _ in loader.steps(2 * len(loader)):
            pass
        assert loader.stats["kept_records"] == N
    assert not copied


def test_a_share_of_the_records_is_on_the_devices_and_the_rest_on_the_host(monkeypatch):
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8), {"label": np.arange(N)})
    on_device, on_host = 8 * 8 * 3 + 4 + 17, 8 * 8 * 3 + 4  # there is room for what names a row
    with Loader(source, 4, sharding=devices(2), keep="device:0.5") as loader:
        assert loader.stats["kept_bytes"] == 12 * on_device + 11 * on_host  # 11, in equal shares

    monkeypatch.setattr(host_store, "free_host_bytes", lambda: 11 * on_host - 1)
    with pytest.raises(
        MemoryError, match=rf"'device:0\.50' needs {11 * on_host:,} bytes on the host"
    ):
        Loader(source, 4, sharding=devices(2), keep="device:0.50")
    monkeypatch.setattr(device_store, "free_bytes", lambda devices: 6 * on_device)
    with pytest.raises(MemoryError, match=r"keep='device:0\.49' keeps that share there, the rest"):
        Loader(source, 4, sharding=devices(2), keep="device")
    monkeypatch.undo()
    with Loader(source, 4, sharding=devices(2), keep="device:0.49") as loader:
        assert next(loader)["image"].shape == (4, 8, 8, 3)


def test_the_share_that_would_fit_is_that_of_all_records(monkeypatch):
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8), {"label": np.arange(N)})
    free = 3 * (8 * 8 * 3 + 4 + 17)
    monkeypatch.setattr(device_store, "free_bytes", lambda devices: free)
    with pytest.raises(MemoryError, match=r"'device:0\.5' needs .* keep='device:0\.22' keeps"):
        Loader(source, 4, sharding=devices(2), keep="device:0.5")
    with Loader(source, 4, sharding=devices(2), keep="device:0.22") as loader:
        assert next(loader)["image"].shape == (4, 8, 8, 3)

    free = 2  # no share fits
    with pytest.raises(MemoryError, match=r"or leave `keep` out\.$"):
        Loader(source, 4, sharding=devices(2), keep="device")


@pytest.mark.parametrize("length, batch_size", [(22, 8), (24, 8), (5, 8)])
def test_a_process_needs_its_rows_of_an_order_that_stays(length, batch_size):
    layouts: Any = [SimpleNamespace(rows=np.arange(first, first + 2)) for first in range(0, 8, 2)]
    needed = [
        plan._count_needed(Sequential(length), length, layout, batch_size) for layout in layouts
    ]
    places = [np.isin(np.arange(length) % batch_size, layout.rows) for layout in layouts]
    assert needed == [int(np.count_nonzero(each)) for each in places] and sum(needed) == length
    assert plan._count_needed(Shuffled(length), length, layouts[0], batch_size) == length


def test_records_that_were_not_foreseen_go_to_the_host(monkeypatch):
    monkeypatch.setattr(plan, "_count_needed", lambda *order, **sizes: 6)
    source = InMemory(jpegs(N), {"label": np.arange(N)})
    records = assert_same_batches(source, "device", shuffle=False, last_batch="pad")
    assert records == N


@pytest.mark.parametrize("keep", ["host", "disk"], indirect=True)
def test_rows_are_gathered_by_several_threads(keep, monkeypatch):
    monkeypatch.setattr(host_store, "_THREAD_BYTES", 100)
    monkeypatch.setattr(host_store, "usable_cpus", lambda: 3)
    assert_same_batches(annotated(jpegs(N)), keep, last_batch="pad")
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("jaxaug-gather")]


def watched(monkeypatch, owner, name):
    """Return the list of what a method will have returned."""
    method = getattr(owner, name)
    returned = []

    def call(*args):
        returned.append(method(*args))
        return returned[-1]

    monkeypatch.setattr(owner, name, call)
    return returned


@pytest.mark.parametrize("keep", ["host", "disk", "device:0.4"], indirect=True)
def test_arrays_that_go_through_page_locked_memory_are_the_same(keep, monkeypatch):
    """As on GPUs; on CPUs it is memory like any other."""
    lent = watched(monkeypatch, staging.Staging, "rows")
    monkeypatch.setattr(staging, "_COPIES", "cpu")
    pixels = np.random.default_rng(5).integers(0, 256, (N, 30, 20, 3)).astype(np.uint8)
    options = {"last_batch": "pad", "sharding": devices(1)}
    assert_same_batches(InMemory(pixels, {"label": np.arange(N)}), keep, count=30, **options)
    assert len({id(each) for each in lent}) < len(lent)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("keep", ["host", "disk", "device:0.4"], indirect=True)
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_rows_that_are_sent_as_what_they_use_are_the_same(keep, count, monkeypatch):
    """As on GPUs."""
    monkeypatch.setattr(tight_rows, "_PADS", "none")
    monkeypatch.setattr(staging, "_COPIES", "cpu")
    monkeypatch.setattr(host_store, "_THREAD_BYTES", 100)
    sent = watched(monkeypatch, tight_rows.TightRows, "places")
    came = watched(monkeypatch, tight_rows.TightRows, "join")
    images = varied()
    images[5] = b"no image"
    source = InMemory(images, {"label": np.arange(N)})
    options = {"decode": Image(canvas=(43, 59)), "on_error": "mask", "last_batch": "pad"}
    assert_same_batches(source, keep, sharding=devices(count), **options)
    assert came and max(room for _, _, room in sent) < 8 * 43 * 59 * 3


@pytest.mark.parametrize("axes, count", [(1, 2), (2, 1), (2, 4), (3, 1)])
def test_devices_join_what_rows_use_and_spread_it(axes, count, monkeypatch):
    monkeypatch.setattr(staging, "_COPIES", "cpu")
    generator = np.random.default_rng(axes)
    rows = generator.integers(1, 2**15, (12, 9, 11, 30)).astype(np.int16)
    extents = generator.integers(0, np.add(rows.shape[1 : 1 + axes], 1), (12, axes))
    extents[[3, 11]] = 0
    extents[5] = rows.shape[1 : 1 + axes]
    sharding = devices(count)
    ranges = local_row_ranges(sharding, 12)
    layout = RowLayout(ranges, [each.devices[0] for each in ranges], sharding)
    tight = tight_rows.TightRows(jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype), layout)

    shards = list(map(jax.device_put, np.split(rows, count), layout.devices))
    parts = tight.join(shards, extents)
    expected = np.zeros_like(rows)
    starts, ends, room = tight.places(extents)
    values = np.full(room, -1, np.int16)
    for number, part in enumerate(parts):
        sides = tuple(map(slice, extents[number]))
        np.testing.assert_array_equal(part, rows[number][sides].reshape(-1))
        expected[number][sides] = rows[number][sides]
        values[starts[number] : ends[number]] = part
    spread = tight.spread(*jax.device_put((values, extents.astype(np.int32)), layout.split))
    np.testing.assert_array_equal(spread, expected)


def test_free_bytes_are_those_of_the_fullest_device(monkeypatch):
    class Device:
        def __init__(self, used):
            self.used = used

        def memory_stats(self):
            return {"bytes_limit": 100, "bytes_in_use": self.used}

    assert device_store.free_bytes([Device(10), Device(70)]) == 30
    alone = device_store.free_bytes(jax.devices("cpu")[:1])
    assert alone is None or alone > 2**20


def test_what_cannot_keep_says_so():
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8))
    wrong: list[Any] = ["disk", "disk:", 3, "device:", "device:0", "device:1.5", "device:half"]
    for keep in wrong:
        with pytest.raises(ValueError, match="`keep` must be None, 'device', 'device:SHARE' with"):
            Loader(source, 4, sharding=devices(1), keep=keep)
    with pytest.raises(ValueError, match="`keep` must be None for a stream"):
        stream = FromIterable(lambda: iter([{"x": 1}] * 4))
        Loader(stream, 4, shuffle=False, sharding=devices(1), keep="device")


@dataclasses.dataclass(frozen=True)
class Drawn(ColumnDecoder):
    """Numbers that are drawn while they are decoded."""

    @property
    def draws(self):
        return True

    def forms(self):
        return {"x": jax.ShapeDtypeStruct((), np.int32)}


def test_what_is_drawn_while_decoding_is_not_kept():
    source = InMemory(np.zeros((N, 8, 8, 3), np.uint8), {"x": np.arange(N)})
    options = {"sharding": devices(1), "decode": {"x": Drawn()}, "keep": "device"}
    with pytest.raises(ValueError, match=r"`keep` must be None where decoding is random.*'x'"):
        Loader(source, 4, **options)
    assert Video(start="random").draws and not Video(start="center").draws


def test_what_a_function_decodes_is_not_kept_for_later_runs(tmp_path):
    """Another vocabulary would be given the numbers of the first."""
    source = Renamed(InMemory([b"1 2", b"3"] * 4), {"image": "text"})
    tokens = Tokenized(lambda text: list(map(int, text.split())), 2)
    options = {"decode": {"text": tokens}, "shuffle": False, "sharding": devices(1)}
    with pytest.raises(ValueError, match=r"where a function decodes, .* 'text' has Tokenized\("):
        Loader(source, 2, keep=f"disk:{tmp_path}", **options)
    with Loader(source, 2, keep="host", **options) as loader:
        for _ in range(2):
            assert {str(batch["text"].tolist()) for batch in loader} == {"[[1, 2], [3, 0]]"}


def test_a_closed_loader_gives_the_memory_back():
    source = InMemory(np.zeros((N, 29, 37, 3), np.uint8))
    before = jax.live_arrays("cpu")  # of other tests, which these references keep alive

    def held():
        there = [x for x in jax.live_arrays("cpu") if x.shape == (N, 29, 37, 3)]
        return [x for x in there if not any(x is other for other in before)]

    loader = Loader(source, 4, sharding=devices(1), keep="device")
    batch = next(loader)
    end = time.monotonic() + 30
    while len(held()) != 1 and time.monotonic() < end:  # none while a row is being written
        time.sleep(0.01)
    assert len(held()) == 1
    loader.close()
    assert not held() and batch["image"].shape == (4, 29, 37, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["device", "device:0.4", "host"])
@pytest.mark.parametrize("side", [32, 256])  # several batches a call, and one
def test_what_gpus_keep_is_what_they_get_without_it(keep, side):
    gpus = jax.devices("gpu")
    rows = 128 * len(gpus)
    images = [picture(number, side, side) for number in range(16)]
    pixels = np.stack([images[number % 16] for number in range(3 * rows + 40)])
    chain = augment.Compose(
        [augment.RandomCrop(side, padding=4), augment.ColorJitter(0.4), augment.ToFloat()]
    )
    source = InMemory(pixels, {"label": np.arange(len(pixels))})
    options = {"sharding": batch_sharding(gpus), "batch_size": rows, "last_batch": "pad"}
    assert_same_batches(source, keep, transform=chain, count=24, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["device", "device:0.4", "host"])
@pytest.mark.parametrize("backend", ["host", "auto"])
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_images_of_different_sizes_that_gpus_keep_are_those_without_it(keep, backend):
    gpus = jax.devices("gpu")
    rows = 32 * len(gpus)
    sides = np.random.default_rng(0).integers(9, 193, (3 * rows + 20, 2)).tolist()
    images = [encode(picture(i % 16, *each), quality=90) for i, each in enumerate(sides)]
    images[5] = b"no image"
    chain = augment.Compose([augment.RandomResizedCrop(64), augment.ColorJitter(0.4)])
    options = {
        "decode": Image(canvas=(192, 180), backend=backend, deterministic=True),
        "transform": chain,
        "sharding": batch_sharding(gpus),
        "batch_size": rows,
        "on_error": "mask",
        "last_batch": "pad",
        "count": 16,
    }
    source = InMemory(images, {"label": np.arange(len(images))})
    assert assert_same_batches(source, keep, **options) == len(images) - 1


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["device", "device:0.4", "host"])
def test_no_canvas_leaves_a_gpu_unasked(keep):
    source = InMemory([encode(picture(number, 40, 50)) for number in range(64)])
    options = {"decode": Image(canvas=(40, 50)), "sharding": batch_sharding(jax.devices("gpu")[:1])}
    jax.config.update("jax_transfer_guard", "disallow")
    try:
        with Loader(source, 16, **options, keep=keep) as loader:
            assert sum(len(batch["valid"]) for batch in loader.steps(8)) == 128
    finally:
        jax.config.update("jax_transfer_guard", "allow")


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_moves_unasked(keep, count):
    source = InMemory(np.zeros((8, 4, 4, 3), np.uint8))
    jax.config.update("jax_transfer_guard", "disallow")
    try:
        with Loader(source, 2, sharding=devices(count), keep=keep) as loader:
            for _ in loader.steps(16):  # behind the first, records stay where they are
                pass
            with jax.transfer_guard("disallow_explicit" if keep == "device" else "disallow"):
                for _ in loader.steps(8):
                    pass
    finally:
        jax.config.update("jax_transfer_guard", "allow")
