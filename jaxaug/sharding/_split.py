"""Which rows of the global batch this process holds, and on which devices."""

import math
from typing import NamedTuple

from jax.sharding import NamedSharding

from jaxaug._typing import Device


class Part(NamedTuple):
    """Rows [start, stop) of the global batch, held by one or several local devices."""

    start: int
    stop: int
    devices: tuple[Device, ...]


def count_parts(sharding: NamedSharding) -> int:
    """Into how many parts `sharding` splits the batch axis.

    Example:
      >>> import jax
      >>> from jaxaug.sharding import batch_sharding
      >>> count_parts(batch_sharding(jax.devices()[:1]))
      1
    """
    axes = sharding.spec[0] if len(sharding.spec) else None
    names = () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    return math.prod(sharding.mesh.shape[name] for name in names)


def local_parts(sharding: NamedSharding, batch_size: int) -> list[Part]:
    """The parts of a batch that lie on this process's devices, each once, in the order of their
    rows.

    Raises:
      ValueError: `batch_size` is not a multiple of the number of parts.
    """
    parts = count_parts(sharding)
    if batch_size % parts:
        near = sorted({max(batch_size // parts, 1) * parts, (batch_size // parts + 1) * parts})
        raise ValueError(
            f"`batch_size` must be a multiple of {parts}, the number of shards of the batch, got {batch_size}: "
            f"take {' or '.join(map(str, near))}."
        )
    holders: dict[tuple[int, int], list[Device]] = {}
    for device, index in sharding.addressable_devices_indices_map((batch_size,)).items():
        rows = index[0] if index else slice(None)
        holders.setdefault(
            (rows.start or 0, batch_size if rows.stop is None else rows.stop), []
        ).append(device)
    return [Part(start, stop, tuple(devices)) for (start, stop), devices in sorted(holders.items())]


def spans_processes(sharding: NamedSharding) -> bool:
    """Whether some rows of the batch lie on devices of more than one process.

    Example:
      >>> import jax
      >>> from jaxaug.sharding import batch_sharding
      >>> spans_processes(batch_sharding(jax.devices()))
      False
    """
    processes: dict[int, int] = {}  # first row -> a process that holds it
    return any(
        processes.setdefault((index[0].start or 0) if index else 0, device.process_index)
        != device.process_index
        for device, index in sharding.devices_indices_map((count_parts(sharding),)).items()
    )
