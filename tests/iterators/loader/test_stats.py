"""The statistics of a Loader: counts, clock, and the share of each stage."""

import contextlib
import threading
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader, decode
from jaxaug.decode import Decoder
from jaxaug.errors import DecodeError
from jaxaug.iterators import InMemory
from jaxaug.iterators.loader import stats as stats_module
from jaxaug.iterators.loader.stats import Readiness, Stats
from tests.images import encode, jpegs, picture
from tests.iterators.loaders import one_device, threads

N = 24


class Slow(InMemory):
    """A source that takes its time."""

    def read(self, indices):
        time.sleep(0.03)
        return super().read(indices)


def draw_until(loader, told):
    """Draw batches until the stats are as expected: a thread that was late once weighs less and
    less."""
    deadline = time.monotonic() + 60
    while True:
        next(loader)
        stats = loader.stats
        if (stats["batches"] >= 12 and told(stats)) or time.monotonic() > deadline:
            return stats


def test_stats_tell_rate_and_the_stage_that_is_always_at_work():
    with Loader(Slow(jpegs(N)), 4, sharding=one_device()) as loader:
        before = loader.stats
        assert (
            before["seconds"] == before["images_per_second"] == 0 and before["bottleneck"] is None
        )
        stats = draw_until(loader, lambda stats: stats["shares"]["reader"] > 0.5)
    assert stats["bottleneck"] == "reader" and stats["shares"]["reader"] > 0.5
    assert set(stats["shares"]) == {"reader", "decoder", "device", "consumer"}
    assert all(0 <= share <= 1 for share in stats["shares"].values())
    np.testing.assert_allclose(stats["images_per_second"], stats["images"] / stats["seconds"])


def test_a_signal_handler_may_ask_for_stats():
    """It runs amidst any line of the main thread, also of those that count a batch."""
    stats = Stats(builders=1)
    asked = []

    class Interrupted(dict):
        def items(self):
            asked.append(stats.snapshot()["batches"])
            return super().items()

    counting = threading.Thread(
        target=stats.delivered, args=(Interrupted(images=4), [], {}), daemon=True
    )
    counting.start()
    counting.join(20)
    assert asked == [1] and stats.snapshot()["images"] == 4


def consumes(stats):
    time.sleep(0.03)
    return stats["bottleneck"] == "consumer"


def test_a_slow_consumer_is_named():
    with Loader(InMemory(jpegs(N)), 4, sharding=one_device()) as loader:
        next(loader)
        assert draw_until(loader, consumes)["bottleneck"] == "consumer"


@pytest.fixture
def at(monkeypatch):
    """Sets the clock."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(stats_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return lambda now: setattr(clock, "now", now)


def test_time_in_several_builders_is_shared_out(at):
    stats = Stats(builders=3)
    at(1.0), stats.asked()
    at(3.0), stats.delivered({}, [], {"decoder": 1.5})  # of 3 x 2
    assert stats.snapshot()["shares"]["decoder"] == 0.25


def test_a_turn_is_the_devices_until_the_batch_is_ready_and_then_the_consumers(at):
    stats = Stats(builders=1)
    ready = Readiness(None)

    def shares(*stages):
        snapshot = stats.snapshot()
        return [snapshot["shares"][stage] * snapshot["seconds"] for stage in stages]

    at(10.0), stats.asked()
    at(11.0), stats.handed(ready)
    at(12.0)
    assert shares("device", "consumer") == [1, 0]  # not ready yet
    ready.time = 13.0
    at(15.0), stats.asked()
    assert shares("device", "consumer") == [2, 2]
    at(16.0), stats.handed(None)
    at(18.0)
    assert shares("device", "consumer") == [2, 4]
    at(18.0), stats.asked()
    at(19.0), stats.handed(Readiness(None))
    at(20.0), stats.asked()
    assert shares("device", "consumer") == [3, 4]  # it asked for the next one, ready or not


def test_a_turn_that_nobody_watches_is_shared_as_the_last_one_that_was(at):
    stats = Stats(builders=1)
    unwatched = Readiness(None, is_watched=False)

    def seconds():
        snapshot = stats.snapshot()
        return [snapshot["shares"][each] * snapshot["seconds"] for each in ("device", "consumer")]

    at(0.0), stats.asked(), stats.handed(unwatched)
    at(1.0), stats.asked()
    assert seconds() == [1, 0]  # before one was watched: the batch was not ready, that is all
    ready = Readiness(None)
    stats.handed(ready)
    ready.time = 2.0
    at(5.0), stats.asked()
    assert seconds() == [2, 3]
    stats.handed(unwatched)
    at(9.0), stats.asked()
    assert seconds() == [3, 6]
    stats.handed(None)  # ready at once, which is known
    at(10.0), stats.asked()
    assert seconds() == [3, 7]


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
        deadline = time.monotonic() + 60
        found = False
        while not found and time.monotonic() < deadline:
            for _ in range(12):
                jax.block_until_ready(next(loader)["image"])
            stats = loader.stats
            shares = stats["shares"]
            longest = stats["bottleneck"] == "device"  # threads that start late are first
            found = longest and shares["device"] > 2 * shares["consumer"]
        assert found, (stats["bottleneck"], shares)
        next(loader)  # not ready: a thread waits for it
    assert threads() == []


def waits_for_device(stats):
    shares = stats["shares"]
    return stats["bottleneck"] == "device" and shares["device"] > 2 * shares["decoder"]


class WaitsForCanvases(Decoder):
    def decode_rows(self, *given):
        started = time.perf_counter()
        time.sleep(0.03)
        decoded = super().decode_rows(*given)
        return decoded._replace(wait_seconds=time.perf_counter() - started)


def test_the_wait_for_canvases_that_the_device_reads_is_the_devices_time():
    with WaitsForCanvases((40, 56), "host", jax.devices("cpu")[:1]) as decoder:
        with Loader(InMemory(jpegs(N)), 4, decode=decoder, sharding=one_device()) as loader:
            stats = draw_until(loader, waits_for_device)
    assert waits_for_device(stats)


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


@pytest.mark.parametrize("on_error", ["mask", "replace"])
def test_a_decoder_counts_no_rows_that_fill_up_a_batch(on_error):
    images = jpegs(10)
    images[9] = b"broken"
    options = {"on_error": on_error, "shuffle": False, "last_batch": "pad", "epochs": 1}
    with Loader(InMemory(images), 8, sharding=one_device(), **options) as loader:
        loader.sample(3)
        for _ in loader:
            pass
        assert loader.decoders["image"] is not None
        counts = loader.decoders["image"].stats
    # Nine records and the sample; a replacement is decoded in the place of the broken one.
    expected = {"mask": (10, 1), "replace": (11, 0)}[on_error]
    assert (counts["images"], counts["failed"]) == expected


def test_an_image_of_which_one_side_is_shrunk_counts_as_shrunk():
    images = [encode(picture(0, *sides)) for sides in ((1, 200), (200, 1), (64, 64))]
    with Loader(
        InMemory(images), 3, decode=decode.Image(canvas=(64, 64)), sharding=one_device()
    ) as loader:
        next(loader)
        assert loader.stats["shrunk"] == 2
