from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug.sharding import assemble, batch_sharding
from jaxaug.sharding._mesh import check_batch_sharding
from jaxaug.sharding._split import count_row_ranges, local_row_ranges, spans_processes

DEVICES = np.array(jax.devices("cpu"))


def mesh(kind, *shape):
    return Mesh(
        DEVICES.reshape(shape), ("a", "b", "c")[: len(shape)], axis_types=(kind,) * len(shape)
    )


def test_batch_sharding_takes_devices_meshes_and_axes():
    assert batch_sharding().mesh.size == len(jax.devices())
    assert batch_sharding(DEVICES[:4]).shard_shape((8, 3)) == (2, 3)
    two = mesh(AxisType.Explicit, 2, 4)
    assert batch_sharding(two).shard_shape((16,)) == (2,)
    assert batch_sharding(two, "b").shard_shape((16,)) == (4,)
    assert batch_sharding(two, ("b", "a")).spec == P(("b", "a"))
    with pytest.raises(ValueError, match=r"among the mesh axes \('a', 'b'\), got 'x'"):
        batch_sharding(two, "x")


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize(
    "shape, spec",
    [
        ((8,), P("a")),
        ((2, 4), P(("a", "b"))),
        ((2, 4), P("b")),
        ((2, 4), P(("b", "a"))),
        ((8,), P()),
    ],
)
def test_assemble_is_device_put_without_the_host(kind, shape, spec):
    sharding = NamedSharding(mesh(kind, *shape), spec)
    rows = np.arange(48, dtype=np.float32).reshape(16, 3)
    ranges = local_row_ranges(sharding, 16)
    assert [each.start for each in ranges] == sorted(each.start for each in ranges)
    shards = [jax.device_put(rows[each.start : each.stop], each.devices[-1]) for each in ranges]
    result = assemble(shards, sharding)
    expected = jax.device_put(rows, sharding)
    assert result.sharding == expected.sharding
    for ours, theirs in zip(result.addressable_shards, expected.addressable_shards):
        assert ours.device == theirs.device
        np.testing.assert_array_equal(ours.data, theirs.data)


def test_assemble_copies_nothing_but_replicas():
    sharding = batch_sharding(DEVICES[:2])
    shards = [jax.device_put(jnp.full((2, 64), i), DEVICES[i]) for i in range(2)]
    result = assemble(shards, sharding)
    assert [s.data.unsafe_buffer_pointer() for s in result.addressable_shards] == [
        s.unsafe_buffer_pointer() for s in shards
    ]


def test_assemble_names_what_is_wrong():
    shards = [jax.device_put(jnp.zeros((2, 3)), device) for device in DEVICES[:2]]
    with pytest.raises(ValueError, match="one array for each of 4 local ranges of rows, got 2"):
        assemble(shards, batch_sharding(DEVICES[:4]))
    with pytest.raises(ValueError, match="rows 0:2 must lie on one of"):
        assemble(shards[::-1], batch_sharding(DEVICES[:2]))


def test_local_row_ranges_want_a_divisible_batch():
    with pytest.raises(ValueError, match=r"multiple of 8, .* got 12: take 8 or 16"):
        local_row_ranges(batch_sharding(), 12)
    with pytest.raises(ValueError, match=r"got 3: take 8\."):
        local_row_ranges(batch_sharding(), 3)


class Elsewhere:
    """A device of a process."""

    def __init__(self, process_index):
        self.process_index = process_index


@pytest.mark.parametrize(
    "spec, processes, spans",
    [
        (P(("a", "b")), [0, 0, 1, 1], False),  # each row on one device
        (P("a"), [0, 0, 1, 1], False),  # replicas beside each other
        (P("b"), [0, 0, 1, 1], True),
        (P(), [0, 0, 1, 1], True),
        (P(), [0, 0, 0, 0], False),
        (P("a"), [0, 0, 1, 2], True),  # the last rows alone
    ],
)
def test_replicas_on_several_processes_are_seen(spec, processes, spans):
    local = NamedSharding(Mesh(DEVICES[:4].reshape(2, 2), ("a", "b")), spec)
    indices = local.devices_indices_map((count_row_ranges(local),))
    spread = {Elsewhere(number): indices[device] for device, number in zip(DEVICES, processes)}
    fake = SimpleNamespace(
        spec=local.spec, mesh=local.mesh, devices_indices_map=lambda shape: spread
    )
    assert spans_processes(fake) is spans


def test_only_the_batch_axis_may_be_split():
    check_batch_sharding(NamedSharding(mesh(AxisType.Auto, 8), P("a", None)))
    with pytest.raises(ValueError, match="splits axis 1"):
        check_batch_sharding(NamedSharding(mesh(AxisType.Auto, 8), P(None, "a")))
    with pytest.raises(TypeError, match="NamedSharding"):
        check_batch_sharding(jax.sharding.SingleDeviceSharding(DEVICES[0]))
