"""Local shards relabelled as global arrays: no copy of the first holder's rows, no computation."""

import functools
from collections.abc import Sequence

import jax
from jax.sharding import NamedSharding

from jaxaug.sharding._split import Part, count_parts, local_parts


def assemble(shards: Sequence[jax.Array], sharding: NamedSharding) -> jax.Array:
    """Make the global array whose local parts are `shards`.

    Args:
      shards: one single-device array [rows, ...] for each part of the batch that this process
        holds, in the order of the rows, on one of the devices that hold the part. The others get a
        copy.
      sharding: how the global array [parts * rows, ...] is split, see `batch_sharding`.

    Raises:
      ValueError: not one shard a part, or a shard on a device that does not hold its part.

    Example:
      >>> import numpy as np
      >>> from jaxaug.sharding import batch_sharding
      >>> device = jax.devices()[0]
      >>> assemble([jax.device_put(np.zeros((2, 3)), device)], batch_sharding([device])).shape
      (2, 3)
    """
    rows = shards[0].shape[0] if shards else 0
    batch_size, parts = _parts(sharding, rows)
    if len(parts) != len(shards):
        raise ValueError(
            f"`shards` must hold one array for each of {len(parts)} local parts, got {len(shards)}."
        )
    arrays = []
    for part, shard in zip(parts, shards):
        home = next(iter(shard.devices()))
        if home not in part.devices:
            raise ValueError(
                f"`shards` rows {part.start}:{part.stop} must lie on one of {part.devices}, got {home}."
            )
        arrays += [
            shard if device == home else jax.device_put(shard, device) for device in part.devices
        ]
    return jax.make_array_from_single_device_arrays(
        (batch_size, *shards[0].shape[1:]), sharding, arrays
    )


@functools.lru_cache(maxsize=64)
def _parts(sharding: NamedSharding, rows: int) -> tuple[int, list[Part]]:
    """Return the rows of the global batch and its local parts; a Loader asks for each array of each
    batch.
    """
    batch_size = count_parts(sharding) * rows
    return batch_size, local_parts(sharding, batch_size)
