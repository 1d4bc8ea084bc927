"""Helpers of the tests of Loaders."""

import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxaug.sharding import batch_sharding

N = 24


def jitter(key, sample):
    """A stand-in transform: per-sample noise and a fixed output size, so that `size` leaves."""
    image = sample["image"][:32, :48].astype(jnp.float32) / jnp.float32(255)
    noise = jax.random.uniform(key, (), jnp.float32)
    return {"image": image * noise, "label": sample["label"]}


def one_device():
    return batch_sharding(jax.devices("cpu")[:1])


def by_index(loader, batches):
    """{(epoch, index): image bytes} of the next `batches` batches."""
    seen = {}
    for _ in range(batches):
        batch = {name: np.asarray(array) for name, array in next(loader).items()}
        for row in np.flatnonzero(batch["valid"]):
            seen[int(batch["index"][row])] = batch["image"][row].tobytes()
    return seen


_EARLIER: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def forget_threads():
    """Leave those of earlier tests, which may end late, out of `threads`."""
    _EARLIER.update(threading.enumerate())


def threads():
    """Return the threads of jaxaug that this test has started."""
    running = [t for t in threading.enumerate() if t.name.startswith("jaxaug")]
    return [t for t in running if t not in _EARLIER]


def no_threads_soon():
    """A Loader that is collected tells its threads to end, without waiting for them."""
    deadline = time.monotonic() + 20
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == []


def named_sharding(kind: str) -> NamedSharding:
    """A sharding of the CPU devices: "one", "eight", "replicated" over pairs, or "reversed"."""
    devices = jax.devices("cpu")
    if kind == "one":
        return one_device()
    if kind == "reversed":
        return batch_sharding(devices[::-1])
    shape, names = ((4, 2), ("a", "b")) if kind == "replicated" else ((8,), ("a",))
    mesh = jax.make_mesh(
        shape, names, axis_types=(AxisType.Explicit,) * len(names), devices=devices
    )
    return NamedSharding(mesh, PartitionSpec("a"))
