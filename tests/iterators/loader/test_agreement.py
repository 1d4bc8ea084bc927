"""Processes compare what their Loaders were given: the texts, the exchange, real processes."""

import collections
import itertools
import json
import re
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.decode import Image, Mask
from jaxaug.errors import JaxaugError
from jaxaug.iterators import InMemory
from jaxaug.iterators.loader import agreement as agreement_module
from jaxaug.iterators.loader.agreement import Peers, differences, flatten, name_processes, peers_of
from jaxaug.sharding import batch_sharding
from tests.images import jpegs
from tests.iterators.forked import forks, free_port
from tests.iterators.loaders import one_device


class Store:
    """The key-value store of `jax.distributed`, as far as it is used, within one process."""

    def __init__(self):
        self.values = {}
        self.requests = 0
        self.changed = threading.Condition()

    def key_value_set(self, key, value):
        with self.changed:
            self.requests += 1
            if key in self.values:
                raise RuntimeError(f"ALREADY_EXISTS: key {key} already exists.")
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key, milliseconds):
        with self.changed:
            self.requests += 1
            if not self.changed.wait_for(lambda: key in self.values, milliseconds / 1000):
                raise RuntimeError(f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key}")
            return self.values[key]

    def key_value_try_get(self, key):
        with self.changed:
            self.requests += 1
            if key not in self.values:
                raise RuntimeError(f"NOT_FOUND: Config key {key} not found.")
            return self.values[key]

    def key_value_dir_get(self, key):
        with self.changed:
            self.requests += 1
            return [(name, value) for name, value in self.values.items() if name.startswith(key)]

    def key_value_delete(self, key):
        with self.changed:
            self.requests += 1
            self.values.pop(key, None)


def peers_in(store, key, rank, ranks, **seconds):
    """Peers that give up soon: a test may fail, and should not hang."""
    return Peers(store, key, rank, ranks, **{"warn_after": 4, "give_up_after": 5} | seconds)


def outcome(peers, facts, raised=None, call="Loader(...)"):
    """None, or the error of one process's comparison."""
    try:
        with peers.compare(call) as own:
            if raised is not None:
                raise raised
            own.update(facts)
    except BaseException as error:
        return error
    return None


def exchange(store, facts, raised=(), **seconds):
    """The outcome on each process of `facts`, all at the same time."""
    ranks = sorted(facts)
    peers = {rank: peers_in(store, "key", rank, ranks, **seconds) for rank in ranks}
    raised = dict(raised)
    with ThreadPoolExecutor(len(ranks)) as pool:
        running = [pool.submit(outcome, peers[r], facts[r], raised.get(r)) for r in ranks]
        return [each.result() for each in running]


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(agreement_module, "_POLL_SECONDS", 0.02)


# --- the comparison and its texts


RECORDS = "give all the same records in the same order (has each process a full copy?)"
FEATURES = "give all the same `transform` and records with the same features"
uint8 = jax.ShapeDtypeStruct((8,), "uint8")
float32 = jax.ShapeDtypeStruct((8,), "float32")


@pytest.mark.parametrize("name, value", [("seed", 3), ("epochs", None), ("canvas", (64, 64))])
def test_equal_facts_have_no_difference(name, value):
    assert differences({rank: flatten({name: value}) for rank in range(3)}) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_size": 2},
        {"seed": 1},
        {"shuffle": False},
        {"epochs": 3},
        {"decode": Image(canvas=(16, 16))},
        {"decode": {"image": Image(canvas=(64, 64)), "mask": Mask(fill=0)}},
        {"max_bad": 0.5},
        {"last_batch": "pad"},
        {"on_error": "mask"},
        {"transform": augment.RandomHorizontalFlip(0.25)},
        {"transform": augment.Compose([augment.RandomHorizontalFlip(0.5)])},
        {"transform": lambda key, sample: sample},
        {"batch_transform": lambda key, group: group},
        {"sharding": batch_sharding(jax.devices("cpu")[:2])},
        {"sharding": batch_sharding(jax.devices("cpu")[1:2])},
        {"transform": lambda key, sample: {"image": sample["image"]}},
    ],
)
def test_what_makes_a_batch_is_compared(changed):
    source = InMemory(jpegs(4), {"mask": np.zeros((4, 64, 64), np.uint8)})

    def facts(**changed):
        arguments = {"batch_size": 4, "decode": Image(canvas=(64, 64)), "sharding": one_device()}
        arguments |= {"transform": augment.RandomHorizontalFlip(0.5)} | changed
        with Loader(source, **arguments) as loader:
            return flatten(loader._plan.facts(loader.element_spec))

    assert facts() == facts()
    assert differences({0: facts(), 1: facts(**changed)})


def test_a_function_is_the_same_on_all_processes_whatever_its_address():
    source = InMemory(jpegs(4))
    facts = []
    for number in range(2):
        chain = augment.Compose([augment.Lambda(lambda key, image, number=number: image)])
        with Loader(source, 4, transform=chain, sharding=one_device()) as loader:
            facts.append(flatten(loader._plan.facts(loader.element_spec)))
    assert facts[0] == facts[1]


@pytest.mark.parametrize(
    "facts, values, advice",
    [
        (
            [{"seed": 3, "epochs": None}, {"seed": 4, "epochs": None}],
            "process 0 has seed=3, process 1 has seed=4",
            "give all the same `seed`",
        ),
        (
            [{"last_batch": "pad"}, {"last_batch": "drop"}],
            "process 0 has last_batch='pad', process 1 has last_batch='drop'",
            "give all the same `last_batch`",
        ),
        (
            [
                {"canvas": (64, 64)},
                {"canvas": (128, 64)},
                {"canvas": (64, 64)},
            ],
            "processes 0, 2 have canvas=(64, 64), process 1 has canvas=(128, 64)",
            "give all the same `canvas`",
        ),
        (
            [{"fingerprint": "a"}, {"fingerprint": "b"}],
            "process 0 has fingerprint='a', process 1 has fingerprint='b'",
            RECORDS,
        ),
        (
            [{"length": 24}, {"length": 23}, {"length": 24}],
            "processes 0, 2 have length=24, process 1 has length=23",
            RECORDS,
        ),
        (
            [{"state": {"epoch": 1, "seed": 3}}, {"state": {"epoch": 2, "seed": 3}}],
            "process 0 has state['epoch']=1, process 1 has state['epoch']=2",
            "give all the same state",
        ),
        (
            [{"element_spec": {"a": uint8}}, {"element_spec": {"a": float32}}],
            "process 0 has element_spec['a']=uint8[8], process 1 has element_spec['a']=float32[8]",
            FEATURES,
        ),
        (
            [{"element_spec": {"a": uint8}}, {"element_spec": {"a": uint8, "b": uint8}}],
            "process 0 has no element_spec['b'], process 1 has element_spec['b']=uint8[8]",
            FEATURES,
        ),
    ],
)
def test_a_difference_is_named_with_its_values_and_its_cure(facts, values, advice):
    assert differences(dict(enumerate(map(flatten, facts)))) == [f"{values}: {advice}."]


def test_each_difference_is_named():
    first = {"seed": "3", "a": "1", "b": "2"}
    second = {"b": "1", "a": "1", "seed": "4"}
    lines = differences({0: first, 1: second})
    assert [line.split("=")[0] for line in lines] == ["process 0 has seed", "process 0 has b"]


def test_a_long_value_is_cut_and_still_compared_to_its_end():
    long = "x" * 100_000
    texts = [flatten({"order": long + end}) for end in "aab"]
    assert len(json.dumps(texts[0])) < 2_000
    assert not differences({0: texts[0], 1: texts[1]})
    assert len(differences({0: texts[0], 1: texts[2]})) == 1


def test_many_processes_are_counted():
    assert name_processes(range(5, 105)) == "processes 5, 6, 7, 8, 9, 10, 11, 12 and 92 more"


# --- the exchange


def test_equal_facts_pass_and_leave_only_the_verdict_in_the_store():
    store = Store()
    assert exchange(store, {0: {"seed": 3}, 1: {"seed": 3}}) == [None, None]
    assert list(store.values) == ["key/0/verdict"]


def test_every_process_raises_the_same_value_error():
    errors = exchange(Store(), {0: {"seed": 3}, 2: {"seed": 4}, 5: {"seed": 3}})
    assert all(type(error) is ValueError for error in errors)
    assert {str(error) for error in errors} == {
        "Loader(...) differs between processes:\n"
        "- processes 0, 5 have seed=3, process 2 has seed=4: give all the same `seed`."
    }


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_process_that_raises_is_named_to_the_others(fast, rank):
    raised = {rank: OSError("no folder '/data'")}
    errors = exchange(Store(), {r: {"seed": 3} for r in range(3)}, raised)
    assert errors.pop(rank) is raised[rank]
    assert all(type(error) is JaxaugError for error in errors)
    message = f"Loader(...) failed on process {rank}: OSError: no folder '/data'"
    assert {str(error) for error in errors} == {message}


@pytest.mark.parametrize("count", [10, 40, pytest.param(1024, marks=pytest.mark.slow)])
def test_the_requests_grow_with_the_number_of_processes(monkeypatch, count):
    """Beside those of processes that ask again, while they wait for slow ones."""
    monkeypatch.setattr(agreement_module, "_POLL_SECONDS", 100)
    store = Store()
    patience = {"warn_after": 90, "give_up_after": 100}
    exchange(store, {rank: {"seed": 3} for rank in range(count)}, **patience)
    assert store.requests == 4 * count + 1


def test_rounds_and_loaders_do_not_mix():
    store = Store()
    loaders = {r: [peers_in(store, key, r, [0, 1]) for key in "ab"] for r in (0, 1)}

    def process(rank):
        first, second = loaders[rank]
        return [
            outcome(first, {"seed": 1}),
            outcome(second, {"seed": 2}),
            outcome(first, {"state": {"epoch": 7}}),
            outcome(first, {"state": {"epoch": rank}}, call="Loader.set_state"),
            outcome(first, {"state": {"epoch": 9}}),
        ]

    with ThreadPoolExecutor(2) as pool:
        for results in pool.map(process, (0, 1)):
            error = results.pop(3)
            assert results == [None] * 4
            assert "Loader.set_state differs" in str(error)
            assert "state['epoch']=0" in str(error)


def test_a_process_that_does_not_come_is_named_in_a_warning_and_then_an_error(fast):
    store = Store()
    peers = peers_in(store, "key", 0, [0, 1, 2], warn_after=0.1, give_up_after=0.4)
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match=r"waited \d+ s for processes 1, 2\.") as warned:
        error = outcome(peers, {"seed": 3})
    assert 0.4 <= time.monotonic() - start < 60
    assert [warning.filename for warning in warned] == [__file__]
    assert type(error) is JaxaugError
    assert re.match(r"processes 1, 2 did not call Loader\(\.\.\.\) within \d+ s\.", str(error))

    late = outcome(peers_in(store, "key", 1, [0, 1, 2]), {"seed": 3})  # does not wait
    assert "failed on process 0: JaxaugError: processes 1, 2 did not call" in str(late)


def test_a_warning_for_which_the_user_stops_reaches_the_others(fast):
    store = Store()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error = outcome(peers_in(store, "key", 0, [0, 1], warn_after=0.05), {})
    assert type(error) is RuntimeWarning
    assert "RuntimeWarning" in str(outcome(peers_in(store, "key", 1, [0, 1]), {}))


def test_a_store_that_is_gone_is_an_error_of_its_own():
    class Gone(Store):
        def blocking_key_value_get(self, key, milliseconds):
            raise RuntimeError("UNAVAILABLE: failed to connect to all addresses")

    error = outcome(peers_in(Gone(), "key", 0, [0, 1]), {})
    assert type(error) is RuntimeError and "UNAVAILABLE" in str(error)


# --- the processes of a sharding


class Client(NamedTuple):
    rank: int

    def process_index(self):
        return self.rank


class Device(NamedTuple):
    id: int
    process_index: int
    client: Client
    platform: str = "gpu"


class Sharding(NamedTuple):
    device_set: frozenset


def sharding_of(rank, *owners):
    """Two devices of each of the processes `owners`, as process `rank` sees them."""
    devices = [Device(2 * o + k, o, Client(rank)) for o in owners for k in (0, 1)]
    return Sharding(frozenset(devices))


def test_one_process_asks_nobody(monkeypatch):
    monkeypatch.delattr(agreement_module, "_client")
    with peers_of(batch_sharding()).compare("Loader(...)") as facts:
        facts["seed"] = 3
    with peers_of(sharding_of(1, 1)).compare("Loader(...)") as facts:
        facts["seed"] = 3


def test_a_process_without_a_device_is_told_so():
    message = r"`sharding` must hold a device of this process \(process 1\), got devices of "
    with pytest.raises(ValueError, match=message + "processes 0, 2: make the Loader on"):
        peers_of(sharding_of(1, 0, 2))
    with pytest.raises(ValueError, match=message + "process 0: make the Loader on process 0 only"):
        peers_of(sharding_of(1, 0))


def test_processes_that_are_not_connected_get_one_warning_and_go_on():
    with pytest.warns(RuntimeWarning, match=r"jax\.distributed\.initialize\(\)") as warned:
        peers = peers_of(sharding_of(0, 0, 1))
    assert len(warned) == 1
    assert outcome(peers, {"seed": 3}) is None


def test_keys_are_alike_on_all_processes_and_differ_between_loaders_and_devices(monkeypatch):
    monkeypatch.setattr(agreement_module, "_client", Store)

    def keys(rank):
        fresh = collections.defaultdict(itertools.count)
        monkeypatch.setattr(agreement_module, "_ordinals", fresh)
        return [peers_of(sharding_of(rank, *o)).key for o in ((0, 1), (0, 1), (0, 1, 2))]

    assert keys(0) == keys(1)
    assert len(set(keys(0))) == 3


# --- real processes

WORKER = """
import json, os, signal, sys, threading, time, warnings
import jax
from jax._src import distributed
port, count, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_preemption_service", False)
jax.distributed.initialize(
    f"localhost:{port}", num_processes=count, process_id=rank, initialization_timeout=300
)
from jaxaug.iterators import InMemory
from jaxaug.iterators.loader.agreement import peers_of
from jaxaug.sharding import batch_sharding

results = {}

def over(*ranks):
    return batch_sharding([d for d in jax.devices() if d.process_index in ranks])

def attempt(name, sharding, facts=(), raised=None, rounds=1, **seconds):
    start = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            peers = peers_of(sharding, **seconds)
            for _ in range(rounds):
                with peers.compare("Loader(...)") as own:
                    if raised is not None:
                        raise raised
                    own.update(facts)
            error = ""
        except BaseException as caught_error:
            error = f"{type(caught_error).__name__}: {caught_error}"
    words = [str(each.message) for each in caught]
    results[name] = [error, words, time.monotonic() - start]

def meet(*ranks):
    # Wait until these processes have come here.
    client = distributed.global_state.client
    if rank in ranks:
        client.key_value_set(f"met {rank}", "")
    for each in ranks:
        client.blocking_key_value_get(f"met {each}", 60_000)

everyone = over(*range(count))
images = [bytes([n]) * 100 for n in range(24)]
"""

PAIR = """
source = InMemory(images)
attempt("equal", everyone, {"seed": 3, "fingerprint": source.fingerprint()})
attempt("another seed", everyone, {"seed": 3 + rank})
attempt("second Loader", everyone, {"seed": 3})
fewer = InMemory(images[: 24 - rank])
facts = {"fingerprint": fewer.fingerprint(), "length": len(fewer)}
attempt("a missing file", everyone, facts)
attempt("another canvas", everyone, {"canvas": (64 + 64 * rank, 64), "seed": 3})
attempt("one raises", everyone, {}, OSError("no folder '/data'") if rank == 1 else None)
attempt("the first raises", everyone, {}, OSError("no folder '/data'") if rank == 0 else None)
attempt("one's own", over(rank), {"seed": rank})
attempt("of process 0", over(0), {"seed": 3})
if rank == 0:
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
else:
    meet(0)
attempt("Ctrl-C", everyone, {"seed": 3})
if rank == 0:
    meet(0)
attempt("rounds", everyone, {"state": {"epoch": 1}}, rounds=20)
"""

TRIPLE = """
attempt("another seed", everyone, {"seed": 4 if rank == 1 else 3})
attempt("a subset", over(0, 2), {"seed": 3})
attempt("all after the subset", everyone, {"seed": 3})
attempt("one raises", everyone, {}, OSError("no folder '/data'") if rank == 2 else None)
if rank == 1:
    meet(0, 2)
attempt("one is late", everyone, {"seed": 3}, warn_after=1.5, give_up_after=3)
if rank != 1:
    meet(rank)
"""


def launch(run, count, scenarios):
    """The results of the scenarios on each of `count` processes."""
    code = WORKER + scenarios + 'print("RESULTS", json.dumps(results), flush=True)\n'
    port = free_port()
    ends = run(code, [(port, count, rank) for rank in range(count)])
    lines = [[li for li in end.out.splitlines() if li.startswith("RESULTS ")] for end in ends]
    assert all(lines), "\n".join(end.error[-2000:] for end in ends)
    return [json.loads(line[0].removeprefix("RESULTS ")) for line in lines]


@pytest.fixture(scope="module")
def run():
    with forks() as run:
        yield run


@pytest.fixture(scope="module")
def pair(run):
    return launch(run, 2, PAIR)


@pytest.fixture(scope="module")
def triple(run):
    return launch(run, 3, TRIPLE)


def errors_of(results, name, within=30.0):
    """The error of each process, all of them in time."""
    errors, words, seconds = zip(*(result[name] for result in results))
    assert max(seconds) < within
    assert not any(words)
    return list(errors)


@pytest.mark.parametrize("name", ["equal", "second Loader", "one's own", "rounds"])
def test_two_processes_that_agree_go_on(pair, name):
    assert errors_of(pair, name) == ["", ""]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("another seed", "process 0 has seed=3, process 1 has seed=4: give all the same `seed`"),
        ("a missing file", "process 0 has length=24, process 1 has length=23: give all the same"),
        ("another canvas", "process 0 has canvas=(64, 64), process 1 has canvas=(128, 64): "),
    ],
)
def test_two_processes_that_differ_both_raise(pair, name, expected):
    first, second = errors_of(pair, name)
    assert first == second
    assert first.startswith("ValueError: Loader(...) differs between processes:")
    assert expected in first
    assert ("has fingerprint=" in first) is (name == "a missing file")


@pytest.mark.parametrize("name, rank", [("one raises", 1), ("the first raises", 0)])
def test_one_of_two_processes_that_raises_ends_the_other(pair, name, rank):
    errors = errors_of(pair, name)
    own = "OSError: no folder '/data'"
    assert errors.pop(rank) == own
    assert errors == [f"JaxaugError: Loader(...) failed on process {rank}: {own}"]


def test_a_sharding_of_another_process_alone_is_refused(pair):
    first, second = errors_of(pair, "of process 0")
    assert first == ""
    assert "ValueError: `sharding` must hold a device of this process (process 1)" in second


def test_waiting_can_be_interrupted_and_the_other_is_told(pair):
    first, second = errors_of(pair, "Ctrl-C")
    assert first.startswith("KeyboardInterrupt")
    assert second.startswith("JaxaugError: Loader(...) failed on process 0: KeyboardInterrupt")
    assert pair[0]["Ctrl-C"][2] < 30


def test_all_of_three_processes_name_the_one_that_differs(triple):
    line = "processes 0, 2 have seed=3, process 1 has seed=4: give all the same `seed`."
    assert all(line in error for error in errors_of(triple, "another seed"))


def test_two_of_three_processes_agree_by_themselves(triple):
    first, second, third = errors_of(triple, "a subset")
    assert first == third == ""
    assert "got devices of processes 0, 2" in second
    assert errors_of(triple, "all after the subset") == [""] * 3


def test_one_of_three_processes_that_raises_ends_the_others(triple):
    first, second, third = errors_of(triple, "one raises")
    assert first == second == "JaxaugError: Loader(...) failed on process 2: " + third


def test_a_process_that_is_late_is_named_by_the_others_and_told_at_once(triple):
    errors, words, seconds = zip(*(result["one is late"] for result in triple))
    for rank in (0, 2):
        assert len(words[rank]) == 1 and "for process 1." in words[rank][0]
        assert 2 < seconds[rank] < 30
        assert "process 1 did not call Loader(...) within" in errors[rank]
    assert "process 1 did not call Loader(...) within" in errors[1]
    assert not words[1]  # it does not wait
