"""Local shards relabeled as global arrays: no computation, and no copy but for replicas."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from jaxaug._typing import Array
from jaxaug.sharding._mesh import check_batch_sharding
from jaxaug.sharding._split import RowRange, count_row_ranges, local_row_ranges


def assemble(shards: Sequence[Array], sharding: NamedSharding) -> Array:
    """Return the global array whose local rows are `shards`.

    Args:
      shards: one single-device array [rows, ...] for each range of rows that this process holds, in
        the order of the rows, on one of the devices that hold the range. The others get a copy.
      sharding: the split of the global array [ranges * rows, ...], see `batch_sharding`.

    Raises:
      TypeError: shards that are no arrays on a device, or no NamedSharding.
      ValueError: not one shard for each range, or a shard on a device that does not hold its range;
        a sharding that splits more than the rows.

    Example:
      >>> import numpy as np
      >>> from jaxaug.sharding import batch_sharding
      >>> device = jax.devices()[0]
      >>> assemble([jax.device_put(np.zeros((2, 3)), device)], batch_sharding([device])).shape
      (2, 3)
    """
    for shard in shards:
        _check_shard(shard)
    rows = shards[0].shape[0] if len(shards) else 0
    batch_size, ranges = _local_ranges(sharding, rows)
    if len(ranges) != len(shards):
        raise ValueError(
            f"`shards` must hold one array for each of {len(ranges)} local ranges of rows, "
            f"got {len(shards)}."
        )

    arrays = []
    for each, shard in zip(ranges, shards):
        arrays += _replicate(shard, each)
    shape = (batch_size, *shards[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def _check_shard(shard: Any) -> None:
    """Raise TypeError unless `shard` is an array of rows on a device."""
    if isinstance(shard, jax.Array) and shard.ndim > 0:
        return
    got = f"{shard.dtype}[]" if isinstance(shard, jax.Array) else type(shard).__name__
    raise TypeError(
        f"`shards` must be jax.Arrays [rows, ...], got {got}: put the rows of each device there by "
        "jax.device_put(rows, device), and assemble the arrays of a dict one by one."
    )


def _replicate(shard: Array, rows: RowRange) -> list[Array]:
    """Return the shard itself on its device, and a copy on each other device of its rows."""
    home = next(iter(shard.devices()))
    if home not in rows.devices:
        raise ValueError(
            f"`shards` rows {rows.start}:{rows.stop} must lie on one of {rows.devices}, got {home}."
        )
    return [shard if device == home else jax.device_put(shard, device) for device in rows.devices]


@functools.lru_cache(maxsize=64)
def _local_ranges(sharding: NamedSharding, rows: int) -> tuple[int, list[RowRange]]:
    """Return the size of the global batch and its local ranges.

    A Loader asks for each array of each batch, hence the cache.
    """
    sharding = check_batch_sharding(sharding)
    batch_size = count_row_ranges(sharding) * rows
    return batch_size, local_row_ranges(sharding, batch_size)
