"""Batches for `jax.pmap`, from Loaders over any mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxaug import Loader
from jaxaug.iterators import InMemory, for_pmap
from jaxaug.iterators.export.for_pmap import _check_rows, _spread
from tests.images import jpegs
from tests.iterators.loaders import named_sharding

pytestmark = pytest.mark.skipif(
    jax.device_count() != 8,
    reason="needs eight devices of jax's default backend, as on the CPU here",
)


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(32), {"label": np.arange(32)})


@pytest.mark.parametrize("kind", ["one", "eight", "replicated", "reversed"])
def test_rows_lie_in_order_on_the_devices_of_pmap(source, kind):
    with Loader(source, 16, sharding=named_sharding(kind), shuffle=False) as loader:
        batch, second = for_pmap(loader)
        loader.set_state(loader.get_state() | {"epoch": 0, "position": 0})
        plain = next(loader)
    assert batch["index"].tolist() == np.arange(16).reshape(8, 2).tolist()
    np.testing.assert_array_equal(batch["image"], plain["image"].reshape(8, 2, 40, 56, 3))

    owners = {
        next(iter(shard.data.devices())): shard.data for shard in batch["label"].global_shards
    }
    for number, device in enumerate(jax.local_devices()):
        assert owners[device].tolist() == [[2 * number, 2 * number + 1]]
    sums = jax.pmap(lambda label: jax.lax.psum(jnp.sum(label), "i"), axis_name="i")
    assert sums(batch["label"]).tolist() == [120] * 8
    assert sums(second["label"]).tolist() == [376] * 8


def pointers(array):
    return {shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}


@pytest.mark.parametrize("kind, moved", [("eight", False), ("reversed", True)])
def test_only_rows_that_lie_elsewhere_are_moved(source, kind, moved):
    with Loader(source, 16, sharding=named_sharding(kind)) as loader:
        image = next(loader)["image"]
        assert (pointers(_spread(image)) != pointers(image)) is moved


def test_rows_that_do_not_fill_the_devices_are_refused(source):
    with Loader(source, 4, sharding=named_sharding("one")) as loader:
        with pytest.raises(ValueError, match=r"multiple of 8 rows, .* got 4 of batch_size=4"):
            for_pmap(loader)


class _Device:
    def __init__(self, process_index):
        self.process_index = process_index


def test_rows_that_several_processes_hold_are_refused():
    class Replicated:
        def devices_indices_map(self, shape):
            return {_Device(0): (slice(0, 8),), _Device(1): (slice(0, 8),)}

    with pytest.raises(ValueError, match=r"`loader` must give each process rows of its own"):
        _check_rows(Replicated(), (8,))


def test_a_mesh_of_fewer_devices_is_spread_over_all(source):
    mesh = Mesh(np.array(jax.devices()[2:6]).reshape(2, 2), ("a", "b"))
    sharding = NamedSharding(mesh, PartitionSpec(("b", "a")))
    with Loader(source, 8, sharding=sharding, shuffle=False) as loader:
        batch = next(iter(for_pmap(loader)))
    assert batch["index"].tolist() == [[i] for i in range(8)]


@pytest.mark.parametrize("kind", ["eight", "reversed"])
def test_entries_without_numbers_are_taken_by_pmap_too(kind):
    source = InMemory(jpegs(16), {"boxes": np.zeros((16, 0, 4), np.float32)})
    with Loader(source, 16, sharding=named_sharding(kind)) as loader:
        batch = next(iter(for_pmap(loader)))
    assert batch["boxes"].shape == (8, 2, 0, 4)
    assert jax.pmap(lambda each: each["boxes"])(batch).shape == (8, 2, 0, 4)
