"""The batches of a Loader: their content, spec, layouts, resume, padding, mixing."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug import Loader
from jaxaug.decode import decode_image
from jaxaug.iterators import InMemory
from jaxaug.sharding import batch_sharding
from tests.images import jpegs
from tests.iterators.loaders import N, by_index, jitter, named_sharding, one_device


def mesh(shape, names, kind):
    count = int(np.prod(shape))
    return jax.make_mesh(
        shape, names, axis_types=(kind,) * len(names), devices=jax.devices("cpu")[:count]
    )


def test_a_batch_holds_the_decoded_records(source, images):
    with Loader(source, 4, shuffle=False, sharding=one_device(), seed=3) as loader:
        batch = next(loader)
    assert batch["index"].tolist() == batch["label"].tolist() == [0, 1, 2, 3]
    assert batch["image"].shape == (4, 40, 56, 3) and batch["image"].dtype == jnp.uint8
    assert batch["size"].tolist() == [[40, 56]] * 4 and batch["valid"].all()
    for row in range(4):
        np.testing.assert_array_equal(batch["image"][row], decode_image(images[row]))


def test_element_spec_is_what_comes(source):
    with Loader(source, 8, transform=jitter) as loader:
        spec = loader.element_spec
        batch = next(loader)
    assert {k: (v.shape, v.dtype, v.sharding) for k, v in spec.items()} == {
        k: (v.shape, v.dtype, v.sharding) for k, v in batch.items()
    }


LAYOUTS = {
    "batch 6, one device": (6, one_device),
    "batch 12, one device": (12, one_device),
    "batch 24, 8 devices": (24, lambda: batch_sharding(jax.devices("cpu"))),
    "Auto": (8, lambda: NamedSharding(mesh((4,), ("data",), AxisType.Auto), P("data"))),
    "Explicit": (8, lambda: NamedSharding(mesh((4,), ("data",), AxisType.Explicit), P("data"))),
    "replicated axis": (
        8,
        lambda: NamedSharding(mesh((4, 2), ("data", "model"), AxisType.Auto), P("data")),
    ),
    "two axes": (
        24,
        lambda: NamedSharding(mesh((2, 4), ("a", "b"), AxisType.Explicit), P(("a", "b"))),
    ),
    "reversed axes": (
        24,
        lambda: NamedSharding(mesh((2, 4), ("a", "b"), AxisType.Auto), P(("b", "a"))),
    ),
}


@pytest.fixture(scope="module")
def reference(source):
    with Loader(source, 4, transform=jitter, sharding=one_device(), seed=1) as loader:
        return by_index(loader, N // 4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_bits(name, source, reference):
    batch_size, make = LAYOUTS[name]
    sharding = make()
    with Loader(source, batch_size, transform=jitter, sharding=sharding, seed=1) as loader:
        batch = next(loader)
        assert batch["image"].sharding == sharding
        for shard in batch["image"].addressable_shards:  # replicas hold the same rows
            np.testing.assert_array_equal(shard.data, np.asarray(batch["image"])[shard.index])
        loader.set_state(loader.get_state() | {"epoch": 0, "position": 0})
        assert by_index(loader, N // batch_size) == reference


def test_a_sharding_may_name_all_axes_of_an_image(source):
    mesh = jax.make_mesh((4,), ("data",), (AxisType.Auto,), devices=jax.devices("cpu")[:4])
    sharding = NamedSharding(mesh, P("data", None, None, None))
    with Loader(source, 8, sharding=sharding) as loader:
        batch = next(loader)
    assert batch["label"].sharding == NamedSharding(mesh, P("data"))
    assert batch["image"].sharding.is_equivalent_to(sharding, 4)


@pytest.mark.parametrize("batch_size, resumed", [(6, 6), (6, 4), (4, 10)])
def test_resume_after_every_step_gives_exactly_the_rest(source, reference, batch_size, resumed):
    options = {
        "transform": jitter,
        "sharding": one_device(),
        "seed": 1,
        "last_batch": "pad",
        "epochs": 1,
    }
    with (
        Loader(source, batch_size, **options) as loader,
        Loader(source, resumed, **options) as other,
    ):
        delivered: dict = {}
        for _ in range(len(loader) - 1):
            delivered |= by_index(loader, 1)
            other.set_state(json.loads(json.dumps(loader.get_state())))
            rest: dict = {}
            for batch in other:
                rest |= {
                    int(i): np.asarray(batch["image"][r]).tobytes()
                    for r, i in enumerate(batch["index"])
                    if i >= 0
                }
            assert delivered.keys().isdisjoint(rest)
            assert delivered | rest == reference


def test_epochs_differ_and_end(source):
    with Loader(source, 4, sharding=one_device(), epochs=2) as loader:
        orders = [[int(i) for batch in loader for i in batch["index"]] for _ in range(2)]
        assert sorted(orders[0]) == sorted(orders[1]) == list(range(N)) and orders[0] != orders[1]
        with pytest.warns(UserWarning, match=r"epochs=2 are used up"):
            assert list(loader) == []
        with pytest.raises(StopIteration):
            next(loader)
        assert loader.get_state()["epoch"] == 2


def test_pad_fills_the_tail_with_marked_rows(source):
    with Loader(
        source, 10, shuffle=False, transform=jitter, last_batch="pad", sharding=one_device()
    ) as loader:
        assert len(loader) == 3
        last = list(loader)[-1]
    assert last["index"].tolist() == [20, 21, 22, 23] + [-1] * 6
    assert last["valid"].tolist() == [True] * 4 + [False] * 6
    assert not np.asarray(last["image"][4:]).any() and last["label"].tolist()[4:] == [-1] * 6


def test_padding_rows_without_transform_have_the_size_of_the_canvas(source):
    with Loader(source, 16, shuffle=False, last_batch="pad", sharding=one_device()) as loader:
        last = list(loader)[-1]
    assert last["size"][-1].tolist() == [40, 56]


def test_batch_transform_mixes_consecutive_samples(source):
    def swap(key, group):
        return {"image": group["image"][::-1], "label": group["label"][::-1]}

    with Loader(
        source,
        8,
        shuffle=False,
        batch_transform=swap,
        sharding=batch_sharding(jax.devices("cpu")[:2]),
    ) as loader:
        assert next(loader)["label"].tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    with pytest.raises(ValueError, match="multiple of 2 rows"):
        Loader(source, 8, batch_transform=swap, sharding=batch_sharding(jax.devices("cpu")))


def test_transfer_guard_and_thread_guard_pass(source):
    jax.config.update("jax_transfer_guard", "disallow")
    try:
        with jax.thread_guard(True), Loader(source, 8, transform=jitter) as loader:
            next(loader), next(loader)
    finally:
        jax.config.update("jax_transfer_guard", "allow")


@pytest.mark.parametrize("kind", ["one", "eight", "reversed"])
def test_rows_that_fill_up_a_batch_are_not_read(kind):
    class Counted(InMemory):
        asked = ()

        def read(self, indices):
            self.asked += (sorted(indices.tolist()),)
            return super().read(indices)

    source = Counted(jpegs(11), {"label": np.arange(11)})
    options = {"shuffle": False, "last_batch": "pad", "epochs": 1}
    with Loader(source, 8, sharding=named_sharding(kind), **options) as loader:
        source.asked = ()
        first, last = loader
    assert source.asked == ([*range(8)], [8, 9, 10])
    assert first["label"].tolist() == [*range(8)]
    assert last["label"].tolist() == last["index"].tolist() == [8, 9, 10, -1, -1, -1, -1, -1]
    assert last["valid"].tolist() == [True] * 3 + [False] * 5
