"""Batches as numpy arrays."""

import jax
import numpy as np

from jaxaug._typing import Array
from jaxaug.iterators._loader import Loader
from jaxaug.iterators.export._local import Export


def to_numpy(loader: Loader) -> Export:
    """A Loader's batches as dicts of numpy arrays: the rows of this process, in order.

    Iterating yields one epoch: exactly the rest of the Loader's current one, then the next. The arrays may be
    read-only: on the CPU they share the JAX arrays' memory.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Example:
      >>> import io, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> file = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(file, "JPEG")
      >>> source = InMemory([file.getvalue()] * 4, {"label": np.arange(4)})
      >>> with Loader(source, 2 * jax.device_count(), shuffle=False, last_batch="pad") as loader:
      ...     [batch["label"][:2].tolist() for batch in to_numpy(loader)][0]
      [0, 1]
    """
    return Export(loader, _to_array)


def _to_array(shards: list[Array]) -> np.ndarray:
    arrays = jax.device_get(shards)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
