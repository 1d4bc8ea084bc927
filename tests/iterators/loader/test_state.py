"""The state of a Loader: the arithmetic of its cursor, and the states that are refused."""

import asyncio
import contextlib
import json
import re

import jax
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import StateError
from jaxaug.iterators import (
    InMemory,
    Shuffled,
    Weighted,
)
from jaxaug.iterators.loader.agreement import Peers
from jaxaug.iterators.loader.state import (
    Checkpointable,
    Cursor,
    RunIdentity,
    batches_per_epoch,
    from_state,
    next_span,
    read_state,
    to_state,
)
from jaxaug.iterators.samplers.sampler import sampler_name
from tests.iterators.loaders import N, one_device


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("length, batch_size", [(10, 1), (10, 3), (10, 5), (10, 10), (11, 4)])
def test_an_epoch_is_cut_into_len_batches(length, batch_size, drop):
    cursor = Cursor(0, 0)
    spans = []
    while cursor.epoch == 0:
        spans.append(next_span(cursor, length, batch_size, drop))
        cursor = spans[-1].after
    covered = [position for span in spans for position in range(span.start, span.start + span.rows)]
    kept = length // batch_size * batch_size if drop else length
    assert covered == list(range(kept))
    assert len(spans) == batches_per_epoch(length, batch_size, drop)
    assert cursor == Cursor(1, 0)


def test_a_rest_too_short_for_another_batch_size_is_dropped():
    assert next_span(Cursor(0, 8), length=10, batch_size=4, drop=True).epoch == 1


RUN = RunIdentity(seed=7, fingerprint="abc", sampler="Shuffled(length=10, seed=1)", length=10)


GOOD = to_state(Cursor(2, 3), RUN)


def test_state_round_trip():
    assert from_state(GOOD, RUN) == Cursor(2, 3)


class Created:
    """A folder of Orbax v1, which is there when it is awaited."""

    def __init__(self, folder):
        self.folder = folder

    async def await_creation(self):
        return self.folder


def test_one_process_writes_the_file_for_all(tmp_path, monkeypatch):
    async def save():
        await (await Saved().save(Created(tmp_path)))

    class Saved(Checkpointable):
        def get_state(self):
            return GOOD

    for process in (1, 0):
        assert not list(tmp_path.iterdir())
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        asyncio.run(save())
    assert read_state(tmp_path) == GOOD


def test_a_file_that_one_process_lacks_is_told_to_the_others(tmp_path, monkeypatch):
    told = []

    @contextlib.contextmanager
    def compare(self, call):
        try:
            yield {}
        except StateError as error:  # which a comparison posts
            told.append((call, str(error)))
            raise

    async def load(loader):
        await (await loader.load(tmp_path))

    with Loader(InMemory(np.zeros((8, 2, 2, 3), np.uint8)), 8) as loader:
        monkeypatch.setattr(Peers, "compare", compare)
        with pytest.raises(StateError, match=r"no state of a Loader can be read from .*json"):
            asyncio.run(load(loader))
    assert [call for call, _ in told] == ["Loader.set_state"] and "json" in told[0][1]


def test_a_state_that_names_the_kind_of_its_order_alone_goes_on():
    assert from_state(GOOD | {"order": "Shuffled"}, RUN) == Cursor(2, 3)
    with pytest.raises(StateError, match="saved with the order Weighted, this Loader has Shuffled"):
        from_state(GOOD | {"order": "Weighted"}, RUN)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"version": 2}, "version 2"),
        ({"version": 0}, "damaged state: `version` must be an int of at least 1, got 0"),
        ({"version": -3}, "damaged state: `version` .* got -3"),
        ({"version": "1"}, "damaged state: `version` .* got '1'"),
        (
            {"order": "Shuffled(length=10, seed=2)"},
            r"seed=2\), this Loader has Shuffled\(length=10, seed=1\)",
        ),
        ({"seed": 8}, "seed=8"),
        ({"fingerprint": "abd"}, "another data set"),
        ({"position": 11}, "damaged state: epoch 2, position 11 of 10"),
        ({"position": -1}, "damaged"),
        ({"epoch": -1}, "damaged state: epoch -1, position 3"),
        ({"epoch": "2"}, "`epoch` must be int"),
        ({"epoch": None}, "`epoch` must be int"),
    ],
)
def test_other_states_are_refused_with_the_difference_named(change, words):
    with pytest.raises(StateError, match=words):
        from_state(GOOD | change, RUN)


@pytest.mark.parametrize("state", [{"version": 2, "step": 5}, GOOD | {"version": 3, "seed": [7]}])
def test_a_newer_version_is_told_before_its_fields_are_read(state):
    with pytest.raises(
        StateError, match=f"the state has version {state['version']}, .* up to 1: update jaxaug"
    ):
        from_state(state, RUN)


def test_a_state_must_be_a_dict():
    with pytest.raises(StateError, match="must be the dict"):
        from_state("x", RUN)


def test_a_state_of_another_data_set_is_refused(source, images):
    with Loader(source, 4, sharding=one_device()) as loader:
        state = loader.get_state()
    with Loader(InMemory(images[:-1]), 4, sharding=one_device()) as loader:
        with pytest.raises(StateError, match="another data set"):
            loader.set_state(state)


def test_a_state_of_another_order_is_refused(images):
    with (
        Loader(InMemory(images), 8) as shuffled,
        Loader(InMemory(images), 8, shuffle=False) as sequential,
    ):
        with pytest.raises(
            StateError, match=r"saved with the order Shuffled\(.*\), this Loader has Sequential"
        ):
            sequential.set_state(shuffled.get_state())


@pytest.mark.parametrize(
    "saved, other",
    [
        (Weighted(np.ones(N), seed=1), Weighted(np.ones(N), seed=2)),
        (Weighted(np.ones(N)), Weighted(np.arange(N))),
        (Weighted(np.ones(N)), Weighted(np.ones(N), num_samples=12)),
        (Shuffled(N, seed=1), Shuffled(N, seed=2)),
    ],
)
def test_a_state_of_other_parameters_of_the_order_is_refused(source, saved, other):
    with Loader(source, 4, shuffle=saved, sharding=one_device()) as loader:
        next(loader)
        state = json.loads(json.dumps(loader.get_state()))
        loader.set_state(state)
    with Loader(source, 4, shuffle=other, sharding=one_device()) as loader:
        with pytest.raises(
            StateError,
            match=re.escape(f"{sampler_name(saved)}, this Loader has {sampler_name(other)}"),
        ):
            loader.set_state(state)
        loader.set_state(state | {"order": type(saved).__name__})
