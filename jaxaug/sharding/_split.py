"""The split of a batch over processes and devices."""

import math
from typing import NamedTuple

from jax.sharding import NamedSharding

from jaxaug._typing import Device


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
