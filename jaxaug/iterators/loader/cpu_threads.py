"""The threads of JAX's CPU client, which deadlock if they are too few for several devices."""

import os
from collections.abc import Sequence

import jax

from jaxaug._typing import Device

_VARIABLE = "NPROC"  # XLA's CPU client makes so many threads
# Until then a computation that waits for room among the 32 of its device occupies one of the
# threads that compute them. With as many threads as devices all of them soon wait if a training
# runs ahead beside a Loader. Seen with 0.10.2, 0.11.0, 0.11.1 and 0.11.2, not with 0.12.0.1.
_MENDED_IN = (0, 12)
# The training and two Loaders of three threads start seven computations at a time.
_THREADS_PER_DEVICE = 8


def deadlock_note(devices: Sequence[Device]) -> str | None:
    """Return a warning if a training beside a Loader may deadlock on these devices, else None.

    Args:
      devices: those of this process that compute batches.

    Example:
      >>> deadlock_note(jax.local_devices(backend="cpu")[:1]) is None
      True
    """
    on_cpus = len(devices) > 1 and devices[0].platform == "cpu"
    if not on_cpus or jax.__version_info__ >= _MENDED_IN:
        return None

    threads = os.environ.get(_VARIABLE, "")
    enough = len(devices) * _THREADS_PER_DEVICE
    if threads.isdecimal() and int(threads) >= enough:
        return None

    return (
        f"jax {jax.__version__} may hang, or abort after 40 s with 'Termination timeout', where a "
        f"training and a Loader compute on {len(devices)} CPU devices: for more threads, set "
        f"{_VARIABLE}={enough} in the environment before jax starts, or take jax 0.12."
    )
