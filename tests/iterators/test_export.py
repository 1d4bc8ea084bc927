"""Batches in the arrays of other libraries, and for pmap."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug import Loader
from jaxaug.iterators import InMemory, for_pmap, to_numpy, to_tf, to_torch
from jaxaug.sharding import batch_sharding
from tests.images import jpegs

N = 24


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N)})


eight_devices = pytest.mark.skipif(
    jax.device_count() != 8,
    reason="needs eight devices of jax's default backend, as on the CPU here",
)


def sharding(kind: str) -> NamedSharding:
    devices = jax.devices("cpu")
    if kind == "one":
        return batch_sharding(devices[:1])
    shape, names = ((8,), ("a",)) if kind == "eight" else ((4, 2), ("a", "b"))
    mesh = jax.make_mesh(
        shape, names, axis_types=(AxisType.Explicit,) * len(names), devices=devices
    )
    return NamedSharding(mesh, P("a"))


@pytest.mark.parametrize("kind", ["one", "eight", "replicated"])
def test_to_numpy_gives_all_local_rows_in_order(source, kind):
    with Loader(source, 8, sharding=sharding(kind), seed=2) as loader:
        expected = [{k: np.asarray(v) for k, v in batch.items()} for batch in loader]
        loader.set_state(loader.get_state() | {"epoch": 0})
        exported = to_numpy(loader)
        assert len(exported) == 3
        found = list(exported)
        assert loader.get_state()["epoch"] == 1
    assert len(found) == 3
    for ours, theirs in zip(found, expected):
        assert ours.keys() == theirs.keys() and all(
            type(array) is np.ndarray for array in ours.values()
        )
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name])


@eight_devices
def test_for_pmap_gives_what_pmap_takes(source):
    with Loader(source, 16, sharding=sharding("eight"), shuffle=False) as loader:
        batch = next(iter(for_pmap(loader)))
        loader.set_state(loader.get_state() | {"epoch": 0, "position": 0})
        plain = next(loader)
    assert (
        batch["image"].shape == (8, 2, 40, 56, 3)
        and batch["index"].tolist() == np.arange(16).reshape(8, 2).tolist()
    )
    np.testing.assert_array_equal(batch["image"].reshape(16, 40, 56, 3), plain["image"])
    total = jax.pmap(lambda label: jax.lax.psum(jnp.sum(label), "i"), axis_name="i")(batch["label"])
    assert total.tolist() == [120] * 8


@pytest.mark.parametrize("kind", ["one", "replicated"])
def test_for_pmap_refuses_what_pmap_cannot_take(source, kind):
    with Loader(source, 8, sharding=sharding(kind)) as loader:
        with pytest.raises(
            ValueError, match="`loader` must split its batch over all local devices"
        ):
            for_pmap(loader)


def test_to_torch_shares_memory(source):
    torch = pytest.importorskip("torch")
    with Loader(source, 8, sharding=sharding("one"), shuffle=False) as loader:
        batch = next(iter(to_torch(loader)))
        assert batch["label"].tolist() == list(range(8)) and batch["image"].dtype == torch.uint8
        assert batch["valid"].dtype == torch.bool
    with Loader(source, 8, sharding=sharding("eight"), shuffle=False) as loader:
        labels = next(iter(to_torch(loader)))["label"]
        assert [label.tolist() for label in labels] == [[i] for i in range(8)]


def test_to_tf_hands_over_capsules(source, monkeypatch):
    """With the real tensorflow where it is installed; else with a stand-in that takes the same
    capsules.
    """
    try:
        import tensorflow as tf
    except ImportError:
        dlpack = types.SimpleNamespace(from_dlpack=lambda capsule: _Tensor(capsule))
        tf = types.SimpleNamespace(experimental=types.SimpleNamespace(dlpack=dlpack))
        monkeypatch.setitem(sys.modules, "tensorflow", tf)
    with Loader(source, 8, sharding=sharding("one"), shuffle=False) as loader:
        exported = to_tf(loader)
        batch = next(iter(exported))
        loader.set_state(loader.get_state() | {"position": 0})
        plain = next(loader)
    assert len(exported) == 3 and batch.keys() == plain.keys()
    for name, tensor in batch.items():
        np.testing.assert_array_equal(tensor.numpy(), np.asarray(plain[name]))


class _Tensor:
    """numpy takes objects with `__dlpack__`, tensorflow the capsules that these give."""

    def __init__(self, capsule):
        assert type(capsule).__name__ == "PyCapsule"
        self._capsule = capsule

    def __dlpack__(self, **options):
        return self._capsule

    def __dlpack_device__(self):
        return 1, 0  # kDLCPU

    def numpy(self):
        return np.from_dlpack(self)


@pytest.mark.parametrize("export", [to_numpy, to_torch, to_tf, for_pmap])
def test_an_export_of_something_else_is_refused_and_tells_what_it_is(source, export):
    with pytest.raises(
        TypeError, match=rf"`loader` must be a jaxaug.Loader, got InMemory: write {export.__name__}"
    ):
        export(source)
    with Loader(source, 8) as loader:
        assert repr(export(loader)) == f"{export.__name__}({loader!r})"


@eight_devices
def test_nested_batches_are_exported(source):
    views = lambda key, sample: {"views": (sample["image"], sample["image"][::2])}  # noqa: E731
    with Loader(source, 8, transform=views) as loader:
        first, second = next(iter(to_numpy(loader)))["views"]
        np.testing.assert_array_equal(first[:, ::2], second)
        assert next(iter(for_pmap(loader)))["views"][1].shape == (8, 1, 20, 56, 3)


@pytest.mark.filterwarnings("ignore:1 of 12 records could not be decoded")
@pytest.mark.parametrize("kind", ["one", "eight"])
def test_labels_of_blank_rows_are_ignored_by_torch(kind):
    torch = pytest.importorskip("torch")
    source = InMemory([*jpegs(11), b"no image"], {"label": np.arange(12), "weight": np.ones(12)})
    options = {"shuffle": False, "last_batch": "pad", "on_error": "mask"}
    with Loader(source, 8, sharding=sharding(kind), **options) as loader:
        _, last = to_torch(loader)
    label = last["label"] if kind == "one" else torch.cat(last["label"])
    weight = last["weight"] if kind == "one" else torch.cat(last["weight"])
    assert label.tolist() == [8, 9, 10] + [-100] * 5
    assert weight.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
