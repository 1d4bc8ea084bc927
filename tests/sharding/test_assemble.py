"""Local shards become global arrays without a copy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug.sharding import assemble, batch_sharding
from jaxaug.sharding._mesh import local_row_ranges

DEVICES = np.array(jax.devices("cpu"))


def mesh(kind, *shape):
    return Mesh(
        DEVICES.reshape(shape), ("a", "b", "c")[: len(shape)], axis_types=(kind,) * len(shape)
    )


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


@pytest.mark.parametrize(
    "shard, got",
    [
        (np.zeros((2, 3)), "ndarray"),
        (jnp.float32(0), r"float32\[\]"),
        ({"image": jnp.zeros((2, 3))}, "dict"),
    ],
)
def test_shards_that_are_no_rows_on_a_device_are_refused(shard, got):
    with pytest.raises(TypeError, match=rf"`shards` must be jax.Arrays \[rows, ...\], got {got}"):
        assemble([shard] * 2, batch_sharding(DEVICES[:2]))


def test_a_sharding_that_splits_more_than_the_rows_is_refused():
    shards = [jax.device_put(jnp.zeros((2, 4)), device) for device in DEVICES[:2]]
    with pytest.raises(ValueError, match="`sharding` must split the batch axis alone"):
        assemble(shards, NamedSharding(mesh(AxisType.Auto, 2, 4), P("a", "b")))
