"""Shardings of a batch: its first axis split over mesh axes, and the rows that are local.

Everything but the first axis is replicated.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxaug._typing import Device

_DEVICE_MEMORY = ("device", "unpinned_host")  # the second is the CPU's name for its own


def batch_sharding(
    devices: "Mesh | Sequence[Device] | None" = None, axes: str | tuple[str, ...] | None = None
) -> NamedSharding:
    """Return the sharding that splits the first axis of a batch.

    Args:
      devices: a mesh, or devices to put on one axis named "batch"; all of `jax.devices()` by
        default.
      axes: the mesh axes that split the batch, all of them by default; the batch is replicated over
        the rest.

    Raises:
      ValueError: an axis that the mesh does not have; no devices, or one of them twice.

    Example:
      >>> batch_sharding(jax.devices()[:1]).shard_shape((8, 3))
      (8, 3)
    """
    if devices is None:
        devices = jax.devices()
    mesh = devices if isinstance(devices, Mesh) else auto_mesh(_check_devices(devices))
    if axes is None:
        axes = tuple(mesh.axis_names)
    names = (axes,) if isinstance(axes, str) else tuple(axes)

    for name in names:
        if name not in mesh.axis_names:
            raise ValueError(f"`axes` must be among the mesh axes {mesh.axis_names}, got {name!r}.")
    return NamedSharding(mesh, PartitionSpec(names[0] if len(names) == 1 else names))


def _check_devices(devices: Any) -> list[Device]:
    """Return `devices` as a list; raise ValueError unless they are different devices."""
    listed = list(devices) if isinstance(devices, Iterable) else []
    good = all(isinstance(device, jax.Device) for device in listed)
    if not listed or not good or len(set(listed)) < len(listed):
        raise ValueError(
            "`devices` must be a jax.sharding.Mesh or a sequence of different devices, such as "
            f"jax.devices(), got {devices!r}."
        )
    return listed


def auto_mesh(devices: Sequence[Device]) -> Mesh:
    """Return `devices` on one Auto axis "batch": our own mesh, whatever the user's is like."""
    return Mesh(np.asarray(devices, dtype=object), ("batch",), axis_types=(AxisType.Auto,))


def check_batch_sharding(sharding: object) -> NamedSharding:
    """Return a sharding that a Loader can fill: it splits nothing but the first axis.

    Entries of the spec behind the first are left out, as arrays of a batch may have one axis only.

    Raises:
      TypeError: it is no NamedSharding.
      ValueError: it has no devices, splits another axis, or is not in the devices' own memory.
    """
    if not isinstance(sharding, NamedSharding):
        raise TypeError(
            f"`sharding` must be a jax.sharding.NamedSharding, got {type(sharding).__name__}: "
            "`jaxaug.sharding.batch_sharding(mesh, axes)` makes one."
        )

    if not isinstance(sharding.mesh, Mesh):
        raise ValueError(
            f"`sharding` must have devices, got {type(sharding.mesh).__name__}: give a "
            "NamedSharding of a jax.sharding.Mesh."
        )
    if PartitionSpec.UNCONSTRAINED in sharding.spec[:1]:
        raise ValueError(
            f"`sharding` must name the axes that split the batch, got {sharding.spec}: give "
            "jaxaug.sharding.batch_sharding(mesh, axes)."
        )
    for dimension, axes in enumerate(sharding.spec):
        if dimension > 0 and axes not in (None, ()):
            raise ValueError(
                f"`sharding` must split the batch axis alone, got {sharding.spec}, which splits "
                f"axis {dimension}: give PartitionSpec(axes of the batch) and reshard in the "
                "training step."
            )

    if sharding.memory_kind not in (None, *_DEVICE_MEMORY):
        raise ValueError(
            "`sharding` must be in the devices' own memory, got "
            f"memory_kind={sharding.memory_kind!r}: give it without one, and move the batch."
        )
    if len(sharding.spec) <= 1:
        return sharding
    spec = PartitionSpec(sharding.spec[0])
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


def ambient_sharding() -> NamedSharding:
    """Return the sharding over the mesh of `jax.set_mesh`, or over all devices without one.

    Raises:
      ValueError: that mesh has several axes, so which of them split the batch is not known.
    """
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        return batch_sharding()
    if len(mesh.axis_names) > 1:
        raise ValueError(
            "`sharding` must be given inside `jax.set_mesh` of a mesh with several axes, "
            f"{mesh.axis_names}: such as jaxaug.sharding.batch_sharding(mesh, "
            f"{mesh.axis_names[0]!r})."
        )
    return batch_sharding(mesh)


class RowRange(NamedTuple):
    """Rows [start, stop) of the global batch, held by one or several local devices."""

    start: int
    stop: int
    devices: tuple[Device, ...]

    @property
    def length(self) -> int:
        """The number of rows."""
        return self.stop - self.start


def count_row_ranges(sharding: NamedSharding) -> int:
    """Return the number of ranges into which `sharding` splits the batch axis.

    Example:
      >>> import jax
      >>> from jaxaug.sharding import batch_sharding
      >>> count_row_ranges(batch_sharding(jax.devices()[:1]))
      1
    """
    axes = sharding.spec[0] if len(sharding.spec) else None
    if axes is None:
        return 1
    names = (axes,) if isinstance(axes, str) else tuple(axes)
    return math.prod(sharding.mesh.shape[name] for name in names)


def local_row_ranges(sharding: NamedSharding, batch_size: int) -> list[RowRange]:
    """Return the ranges of rows that lie on this process's devices, each once, in row order.

    Raises:
      ValueError: `batch_size` is not a multiple of the number of ranges.
    """
    count = count_row_ranges(sharding)
    if batch_size % count:
        below = max(batch_size // count, 1) * count
        above = (batch_size // count + 1) * count
        near = sorted({below, above})
        raise ValueError(
            f"`batch_size` must be a multiple of {count}, the number of shards of the batch, "
            f"got {batch_size}: take {' or '.join(map(str, near))}."
        )

    holders: dict[tuple[int, int], list[Device]] = {}
    for device, index in sharding.addressable_devices_indices_map((batch_size,)).items():
        start, stop, _ = (index[0] if index else slice(None)).indices(batch_size)
        holders.setdefault((start, stop), []).append(device)
    return [RowRange(*bounds, tuple(devices)) for bounds, devices in sorted(holders.items())]


def spans_processes(sharding: NamedSharding) -> bool:
    """Return True if some rows of the batch lie on devices of more than one process.

    Example:
      >>> import jax
      >>> from jaxaug.sharding import batch_sharding
      >>> spans_processes(batch_sharding(jax.devices()))
      False
    """
    count = count_row_ranges(sharding)
    owners: dict[int, set[int]] = {}  # first row -> the processes that hold it
    for device, index in sharding.devices_indices_map((count,)).items():
        start = (index[0] if index else slice(None)).indices(count)[0]
        owners.setdefault(start, set()).add(device.process_index)
    return any(len(processes) > 1 for processes in owners.values())
