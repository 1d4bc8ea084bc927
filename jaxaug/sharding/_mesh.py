"""Shardings of a batch: its first axis split over mesh axes, everything else replicated."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxaug._typing import Device

_DEVICE_MEMORY = ("device", "unpinned_host")  # the second is how CPUs name theirs


def batch_sharding(
    devices: "Mesh | Sequence[Device] | None" = None, axes: str | tuple[str, ...] | None = None
) -> NamedSharding:
    """The sharding that splits the first axis of a batch.

    Args:
      devices: a mesh, or devices to put on one axis named "batch"; all of `jax.devices()` by
        default.
      axes: the mesh axes that split the batch, all of them by default; the batch is replicated over
        the rest.

    Raises:
      ValueError: an axis that the mesh does not have.

    Example:
      >>> batch_sharding(jax.devices()[:1]).shard_shape((8, 3))
      (8, 3)
    """
    if not isinstance(devices, Mesh):
        devices = auto_mesh(jax.devices() if devices is None else devices)
    names = (
        tuple(devices.axis_names)
        if axes is None
        else (axes,)
        if isinstance(axes, str)
        else tuple(axes)
    )
    unknown = [name for name in names if name not in devices.axis_names]
    if unknown:
        raise ValueError(
            f"`axes` must be among the mesh axes {devices.axis_names}, got {unknown[0]!r}."
        )
    return NamedSharding(devices, PartitionSpec(names[0] if len(names) == 1 else names))


def auto_mesh(devices: Sequence[Device]) -> Mesh:
    """`devices` on one Auto axis "batch": a mesh of our own, whatever axis types the user's mesh
    has.
    """
    return Mesh(np.asarray(devices, dtype=object), ("batch",), axis_types=(AxisType.Auto,))


def check_batch_sharding(sharding: object) -> NamedSharding:
    """A sharding the Loader can fill: a NamedSharding that splits nothing but the first axis."""
    if not isinstance(sharding, NamedSharding):
        raise TypeError(
            f"`sharding` must be a jax.sharding.NamedSharding, got {type(sharding).__name__}: "
            "`jaxaug.sharding.batch_sharding(mesh, axes)` makes one."
        )
    split = [dim for dim, axes in enumerate(sharding.spec) if dim > 0 and axes not in (None, ())]
    if split:
        raise ValueError(
            f"`sharding` must split the batch axis alone, got {sharding.spec}, which splits axis {split[0]}: "
            "give PartitionSpec(axes of the batch) and reshard in the training step."
        )
    if sharding.memory_kind not in (None, *_DEVICE_MEMORY):
        raise ValueError(
            f"`sharding` must be in the devices' own memory, got memory_kind={sharding.memory_kind!r}: give it without "
            "one, and move the batch."
        )
    return sharding


def ambient_sharding() -> NamedSharding:
    """Return the sharding of a batch over the mesh of `jax.set_mesh`, over all of `jax.devices()`
    without one.

    Raises:
      ValueError: that mesh has several axes, so which of them split the batch is not known.
    """
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        return batch_sharding()
    if len(mesh.axis_names) > 1:
        raise ValueError(
            f"`sharding` must be given inside `jax.set_mesh` of a mesh with several axes, {mesh.axis_names}: such as "
            f"jaxaug.sharding.batch_sharding(mesh, {mesh.axis_names[0]!r})."
        )
    return batch_sharding(mesh)
