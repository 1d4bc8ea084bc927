"""What a run shows and leaves behind: statistics, progress, interrupts, faults."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.decode import Decoder
from jaxaug.errors import DecodeError
from jaxaug.iterators import InMemory, TFRecord, _stats, progress
from jaxaug.iterators._stats import Stats
from jaxaug.iterators.sources._read import FileReader
from jaxaug.iterators.sources.packed.staged import Staged
from jaxaug.sharding import batch_sharding
from tests.images import jpegs
from tests.iterators.sources import containers

N = 24


def one_device():
    return batch_sharding(jax.devices("cpu")[:1])


class Slow(InMemory):
    """A source that takes its time."""

    def read(self, indices):
        time.sleep(0.03)
        return super().read(indices)


@pytest.mark.parametrize("name", ["image", "size", "valid", "index"])
def test_features_with_the_names_of_a_batch_are_refused(name):
    with pytest.raises(
        ValueError, match=f"`source` must not have a feature named '{name}'.*Rename it"
    ):
        Loader(InMemory(jpegs(4), {name: np.arange(4)}), 4, sharding=one_device())


def test_stats_tell_rate_and_the_stage_that_is_always_at_work():
    with Loader(Slow(jpegs(N)), 4, sharding=one_device()) as loader:
        before = loader.stats
        assert (
            before["seconds"] == before["images_per_second"] == 0 and before["bottleneck"] is None
        )
        for _ in range(12):
            next(loader)
        stats = loader.stats
    assert stats["bottleneck"] == "reader" and stats["shares"]["reader"] > 0.5
    assert set(stats["shares"]) == {"reader", "decoder", "device", "consumer"}
    assert all(0 <= share <= 1 for share in stats["shares"].values())
    np.testing.assert_allclose(stats["images_per_second"], stats["images"] / stats["seconds"])


def test_a_slow_consumer_is_named():
    with Loader(InMemory(jpegs(N)), 4, sharding=one_device()) as loader:
        next(loader)
        for _ in range(10):
            time.sleep(0.03)
            next(loader)
        assert loader.stats["bottleneck"] == "consumer"


def test_time_in_several_builders_is_shared_out():
    stats = Stats(builders=3)
    stats.asked()
    time.sleep(0.05)
    stats.delivered({}, [], {"decoder": 0.06})  # of 3 x 0.05
    assert 0.1 < stats.snapshot()["shares"]["decoder"] <= 0.4


@pytest.fixture
def at(monkeypatch):
    """Sets the clock."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(_stats, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return lambda now: setattr(clock, "now", now)


def test_a_turn_is_the_devices_until_the_batch_is_ready_and_then_the_consumers(at):
    stats = Stats(builders=1)
    ready = Future()

    def shares(*stages):
        snapshot = stats.snapshot()
        return [snapshot["shares"][stage] * snapshot["seconds"] for stage in stages]

    at(10.0), stats.asked()
    at(11.0), stats.handed(ready)
    at(12.0)
    assert shares("device", "consumer") == [1, 0]  # not ready yet
    ready.set_result(13.0)
    at(15.0), stats.asked()
    assert shares("device", "consumer") == [2, 2]
    at(16.0), stats.handed(None)
    at(18.0)
    assert shares("device", "consumer") == [2, 4]
    at(18.0), stats.asked()
    at(19.0), stats.handed(Future())
    at(20.0), stats.asked()
    assert shares("device", "consumer") == [3, 4]  # it asked for the next one, ready or not


def test_the_clock_stands_while_nobody_wants_a_batch(at):
    stats = Stats(builders=1)
    at(1.0), stats.asked()
    at(2.0), stats.handed(None)
    at(4.0), stats.pause()
    at(100.0)
    assert stats.snapshot()["seconds"] == 3 and stats.snapshot()["shares"]["consumer"] == 2 / 3
    stats.pause(), stats.asked()
    at(101.0)
    assert stats.snapshot()["seconds"] == 4 and stats.snapshot()["shares"]["consumer"] == 2 / 4


def heavy(key, sample):
    image = sample["image"].astype(jnp.float32)
    return {"image": jax.lax.fori_loop(0, 200, lambda i, x: jnp.sin(x), image)}


def test_a_slow_transform_is_the_devices_time_not_the_consumers():
    with Loader(InMemory(jpegs(N)), 4, transform=heavy, sharding=one_device()) as loader:
        for _ in range(12):
            jax.block_until_ready(next(loader)["image"])
        shares = loader.stats["shares"]
        assert loader.stats["bottleneck"] == "device" and shares["device"] > 2 * shares["consumer"]
        next(loader)  # not ready: a thread waits for it
    assert [t.name for t in threading.enumerate() if t.name.startswith("jaxaug")] == []
    assert loader.stats["bottleneck"] == "device"


class WaitsForCanvases(Decoder):
    def decode_rows(self, encoded, headers=None):
        started = time.perf_counter()
        time.sleep(0.03)
        return super().decode_rows(encoded, headers)._replace(waited=time.perf_counter() - started)


def test_the_wait_for_canvases_that_the_device_reads_is_the_devices_time():
    with WaitsForCanvases((40, 56), "host", jax.devices("cpu")[:1]) as decoder:
        with Loader(InMemory(jpegs(N)), 4, decoder=decoder, sharding=one_device()) as loader:
            for _ in range(12):
                next(loader)
            stats = loader.stats
    assert (
        stats["bottleneck"] == "device"
        and stats["shares"]["device"] > 2 * stats["shares"]["decoder"]
    )


@pytest.mark.parametrize("end", ["epoch", "stop", "error", "close"])
def test_what_passes_after_the_end_belongs_to_nobody(end):
    images = [*jpegs(N - 1), b"no"] if end == "error" else jpegs(N)
    with Loader(InMemory(images), 4, shuffle=False, epochs=1, sharding=one_device()) as loader:
        with pytest.raises(DecodeError) if end == "error" else contextlib.nullcontext():
            [*(loader if end == "epoch" else loader.steps())]
        if end == "close":
            loader.set_state(loader.get_state() | {"epoch": 0})
            next(loader), loader.close()
        before = loader.stats
        time.sleep(0.02)
        assert loader.stats == before and before["seconds"] > 0


def test_progress_is_the_rest_of_the_epoch_and_names_the_bottleneck(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Loader(Slow(jpegs(N)), 4, sharding=one_device()) as loader:
        next(loader), next(loader)
        seen = [i for batch in progress(loader) for i in batch["index"].tolist()]
        assert len(set(seen)) == 16 and loader.get_state()["epoch"] == 1
    line = capsys.readouterr().err.split("\r")[-1]
    assert "epoch 0: 100%" in line and "6/6" in line and "images/s, slowest: reading" in line


def test_progress_writes_nothing_into_a_pipe(capsys):
    with Loader(InMemory(jpegs(8)), 4, sharding=one_device()) as loader:
        assert len(list(progress(loader))) == 2
    assert capsys.readouterr().err == ""


INTERRUPTED = """
import pathlib, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background inherits "ignore"
import jax
jax.config.update("jax_num_cpu_devices", 2)
from jaxaug import Loader
from jaxaug.iterators import ImageFolder
from tests.images import jpegs
root = pathlib.Path(sys.argv[1])
for i, image in enumerate(jpegs(64)):
    (root / f"{i}.jpg").write_bytes(image)
class Slow(ImageFolder):
    reads = 0
    def read(self, indices):
        Slow.reads += 1
        if Slow.reads > 7:  # two at construction and five batches: the sixth keeps the consumer waiting
            time.sleep(1.5)
        return super().read(indices)
loader = Loader(Slow(root), 32)
try:
    for batch in loader.steps():
        print("BATCH", flush=True)
except KeyboardInterrupt:
    stages = ("jaxaug-reader", "jaxaug-build", "jaxaug-files")
    before = [t.name for t in threading.enumerate() if t.name.startswith(stages)]
    batch = next(loader)  # still usable
    loader.close()
    after = [t.name for t in threading.enumerate() if t.name.startswith("jaxaug")]
    print("LEFT", before, after, flush=True)
    sys.exit(3)
"""


def test_ctrl_c_ends_cleanly_and_leaves_no_thread_or_process(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(5):
        assert child.stdout is not None and child.stdout.readline().startswith("BATCH")
    children = f"/proc/{child.pid}/task/{child.pid}/children"
    assert not os.path.exists(children) or not open(children).read().split()
    time.sleep(
        0.3
    )  # until the child waits for its next batch: an interrupt of its own code is no matter of the Loader
    child.send_signal(signal.SIGINT)
    try:
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 3, err[-2000:]
    assert "LEFT [] []" in out and "Traceback" not in err, (out[-200:], err[-2000:])


def two_files(tmp_path, mmap) -> TFRecord:
    """Eight images, four to a file."""
    for name, start in (("a", 0), ("b", 4)):
        records = [
            containers.example({"image/encoded": image, "image/class/label": start + i})
            for i, image in enumerate(jpegs(4, seed=start))
        ]
        (tmp_path / f"{name}.tfrecord").write_bytes(containers.tfrecord(records))
    return TFRecord(tmp_path / "*.tfrecord", mmap=mmap)


# A mapping does not ask for permission again, and waiting for it cannot be stopped: see `Mapped`.
@pytest.mark.parametrize(
    "fault, mmap",
    [
        ("cut", True),
        ("cut", False),
        ("deleted", True),
        ("deleted", False),
        ("taken", False),
        ("stalled", False),
    ],
)
def test_a_fault_of_one_file_masks_its_rows_and_the_next_epoch_works(tmp_path, fault, mmap):
    source = two_files(tmp_path, mmap)
    path = tmp_path / "b.tfrecord"
    moved = tmp_path / "moved"
    data = path.read_bytes()
    times = path.stat().st_mtime_ns
    reader = FileReader()
    refuse = []

    def read(file, offset, destination):
        if refuse and file.path == str(path):
            time.sleep(1.0 if refuse[0] == "stalled" else 0)
            raise PermissionError(13, "Permission denied")
        return reader(file, offset, destination)

    if fault in ("taken", "stalled"):
        source._storage = Staged(source._files, timeout=0.3, retries=0, read=read)
    elif not mmap:
        source._storage = Staged(source._files, retries=0)
    options = {"shuffle": False, "sharding": one_device(), "on_error": "mask"}
    with (
        Loader(source, 8, **options) as loader,
        Loader(source, 8, **(options | {"on_error": "raise"})) as strict,
    ):
        if fault == "cut":
            path.write_bytes(data[:100])
        elif fault == "deleted":
            path.rename(moved)
        else:
            refuse.append(fault)
        assert next(loader)["valid"].tolist() == [True] * 4 + [False] * 4
        bad = loader.stats["bad_records"]
        message = {
            "cut": "100 bytes|ends at byte|changed",
            "deleted": "No such file",
            "taken": "Permission denied",
        }
        assert [record["index"] for record in bad[:4]] == [4, 5, 6, 7] and bad[0]["file"] == str(
            path
        )
        assert re.search(message.get(fault, "no answer within 0.3 s"), bad[0]["reason"])
        with pytest.raises(DecodeError, match=r"record 4 \(.*b.tfrecord"):
            next(strict)
        refuse.clear()
        if fault == "cut":
            path.write_bytes(data)
            os.utime(path, ns=(times, times))
        elif fault == "deleted":
            moved.rename(path)
        for each, epoch in ((loader, 1), (strict, 0)):  # what failed was not delivered
            each.set_state(each.get_state())  # forget what was read ahead
            assert each.get_state()["epoch"] == epoch and next(each)["label"].tolist() == list(
                range(8)
            )
            assert each.get_state()["epoch"] == epoch + 1
        assert loader.stats["images"] >= 12
