"""The shardings of a batch: those that are made, and those that are refused."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug.sharding import batch_sharding
from jaxaug.sharding._mesh import check_batch_sharding

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


@pytest.mark.parametrize(
    "devices, got",
    [
        (DEVICES[0], "CpuDevice"),
        ([], r"\[\]"),
        (DEVICES.reshape(2, 4), "array"),
        ([DEVICES[0], DEVICES[0]], r"\[CpuDevice\(id=0\), CpuDevice\(id=0\)\]"),
        (8, "8"),
        ("cpu", "'cpu'"),
        (mesh(AxisType.Auto, 8).abstract_mesh, "AbstractMesh"),
    ],
)
def test_what_is_no_list_of_devices_is_refused(devices, got):
    with pytest.raises((ValueError, TypeError), match=rf"`devices` must be .* got {got}"):
        batch_sharding(devices)


def test_only_the_batch_axis_may_be_split():
    split = NamedSharding(mesh(AxisType.Auto, 8), P("a"))
    assert check_batch_sharding(split) == split
    assert check_batch_sharding(NamedSharding(split.mesh, P("a", None, ()))) == split
    assert check_batch_sharding(NamedSharding(split.mesh, P())).is_fully_replicated
    with pytest.raises(ValueError, match="splits axis 1"):
        check_batch_sharding(NamedSharding(mesh(AxisType.Auto, 8), P(None, "a")))
    with pytest.raises(ValueError, match=r"axes that split the batch, got .*UNCONSTRAINED"):
        check_batch_sharding(NamedSharding(split.mesh, P(P.UNCONSTRAINED)))
    with pytest.raises(ValueError, match="must have devices, got AbstractMesh"):
        check_batch_sharding(NamedSharding(split.mesh.abstract_mesh, P("a")))
    with pytest.raises(TypeError, match="NamedSharding"):
        check_batch_sharding(jax.sharding.SingleDeviceSharding(DEVICES[0]))
