"""The state of a Loader in Orbax checkpoints, three ways."""

import asyncio
import json

import jax
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import StateError
from jaxaug.iterators import InMemory
from jaxaug.sharding import batch_sharding
from tests.images import jpegs

ocp = pytest.importorskip("orbax.checkpoint")
v1 = pytest.importorskip("orbax.checkpoint.experimental.v1")

pytestmark = pytest.mark.training  # Orbax's own arithmetic promotes dtypes

N = 12


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N)})


def make_loader(source, batch_size=2):
    sharding = batch_sharding(jax.devices("cpu")[:1])
    return Loader(source, batch_size, seed=3, sharding=sharding, epochs=1, last_batch="pad")


def indices(batches) -> list[int]:
    return [i for batch in batches for i in batch["index"].tolist() if i >= 0]


def save_v1(path, loader, weights):
    v1.save_checkpointables(path, {"model": weights, "data": loader})


def load_v1(path, loader, weights):
    return v1.load_checkpointables(path, {"model": weights, "data": loader})["model"]


def save_handler(path, loader, weights):
    from jaxaug.iterators.orbax import LoaderState

    with ocp.CheckpointManager(path) as manager:
        manager.save(
            7,
            args=ocp.args.Composite(model=ocp.args.StandardSave(weights), data=LoaderState(loader)),
        )
        next(loader)  # the save may still be running: it must hold the state of its call


def load_handler(path, loader, weights):
    from jaxaug.iterators.orbax import LoaderState

    with ocp.CheckpointManager(path) as manager:
        items = ocp.args.Composite(
            model=ocp.args.StandardRestore(weights), data=LoaderState(loader)
        )
        found = manager.restore(manager.latest_step(), args=items)
    assert found["data"] is loader
    return found["model"]


def save_json(path, loader, weights):
    with ocp.CheckpointManager(path) as manager:
        data = ocp.args.JsonSave(loader.get_state())
        manager.save(7, args=ocp.args.Composite(model=ocp.args.StandardSave(weights), data=data))


def load_json(path, loader, weights):
    with ocp.CheckpointManager(path) as manager:
        items = ocp.args.Composite(
            model=ocp.args.StandardRestore(weights), data=ocp.args.JsonRestore()
        )
        found = manager.restore(manager.latest_step(), args=items)
    loader.set_state(found["data"])
    return found["model"]


@pytest.mark.parametrize(
    "save, load",
    [(save_v1, load_v1), (save_handler, load_handler), (save_json, load_json)],
    ids=["v1", "v0", "json"],
)
def test_orbax_resumes_exactly_with_another_batch_size(source, tmp_path, save, load):
    weights = {"w": jax.numpy.arange(3.0)}
    with make_loader(source) as loader:
        seen = indices([next(loader), next(loader)])
        save(tmp_path / "checkpoint", loader, weights)
    with make_loader(source, 3) as loader:
        restored = load(tmp_path / "checkpoint", loader, weights)
        rest = indices(loader)
    assert restored["w"].tolist() == [0, 1, 2]
    assert len(seen) == 4 and len(rest) == N - 4 and sorted(seen + rest) == list(range(N))


def test_an_asynchronous_v1_save_holds_the_state_of_its_call(source, tmp_path):
    with make_loader(source) as loader:
        seen = indices([next(loader)])
        response = v1.save_checkpointables_async(tmp_path / "checkpoint", {"data": loader})
        next(loader)
        response.result()
        v1.load_checkpointables(tmp_path / "checkpoint", {"data": loader})
        assert sorted(seen + indices(loader)) == list(range(N))


@pytest.mark.parametrize(
    "rank, options, written",
    [
        (0, {}, True),
        (1, {}, False),
        (0, {"primary_host": None}, True),
        (1, {"primary_host": None}, True),  # each process saves in a folder of its own
        (0, {"primary_host": 1}, False),
        (1, {"primary_host": 1}, True),
    ],
)
def test_the_processes_write_that_orbax_is_told(
    source, tmp_path, monkeypatch, rank, options, written
):
    from jaxaug.iterators.orbax import LoaderHandler, LoaderState

    multiprocessing_options = ocp.options.MultiprocessingOptions(**options)
    handler = LoaderHandler(multiprocessing_options=multiprocessing_options)
    with make_loader(source) as loader:
        monkeypatch.setattr(jax, "process_index", lambda: rank)
        handler.save(tmp_path, LoaderState(loader))
        files = [json.loads(file.read_text()) for file in tmp_path.iterdir()]
        assert files == [loader.get_state()] * written


def test_a_missing_or_damaged_file_is_a_state_error(source, tmp_path):
    async def load(loader):
        await (await loader.load(tmp_path))

    with make_loader(source) as loader:
        with pytest.raises(
            StateError, match=r"no state of a Loader can be read from .*loader.json"
        ):
            asyncio.run(load(loader))
        (tmp_path / "loader.json").write_text("{")
        with pytest.raises(StateError, match="no state of a Loader"):
            asyncio.run(load(loader))
        (tmp_path / "loader.json").write_text(json.dumps(loader.get_state() | {"seed": 4}))
        with pytest.raises(StateError, match="saved with seed=4"):
            asyncio.run(load(loader))
