"""Several CPU devices: where JAX has too few threads for them the Loader says so."""

import os
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest

from jaxaug import Loader, iterators
from jaxaug.iterators.loader import cpu_threads

TRAINING = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_num_cpu_devices", 8)
from jax.sharding import NamedSharding, PartitionSpec
from jaxaug import Loader, augment, iterators

@jax.jit
def step(weights, image):
    def loss(weights):
        return jnp.tanh(image.reshape(len(image), -1) @ weights).mean()
    return weights - 0.1 * jax.grad(loss)(weights)

source = iterators.InMemory(np.zeros((64, 32, 32, 3), np.uint8), {})
chain = augment.Compose([augment.RandomRotation(20), augment.Normalize(mean=0.5, std=0.5)])
with Loader(source, batch_size=32, transform=chain) as loader:
    mesh = loader.element_spec["image"].sharding.mesh
    weights = jax.device_put(np.ones((3072, 64), np.float32), NamedSharding(mesh, PartitionSpec()))
    for batch in loader.steps(150):
        weights = step(weights, batch["image"])
print(weights.shape)
"""


def notes() -> list[str]:
    """Return the warnings of a new Loader on all devices."""
    source = iterators.InMemory(np.zeros((16, 4, 4, 3), np.uint8), {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Loader(source, batch_size=8).close()
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("threads", [None, "", "63", "many"])
def test_too_few_threads_are_told(monkeypatch, threads):
    monkeypatch.setattr(cpu_threads, "_MENDED_IN", (99,))
    monkeypatch.delenv("NPROC")
    if threads is not None:
        monkeypatch.setenv("NPROC", threads)

    (note,) = notes()

    assert "NPROC=64" in note
    assert f"jax {jax.__version__} may hang" in note


def test_enough_threads_are_not(monkeypatch):
    monkeypatch.setattr(cpu_threads, "_MENDED_IN", (99,))
    monkeypatch.setenv("NPROC", "64")

    assert notes() == []


def test_a_jax_that_does_not_deadlock_is_not(monkeypatch):
    monkeypatch.setattr(cpu_threads, "_MENDED_IN", (0,))
    monkeypatch.delenv("NPROC")

    assert notes() == []


def test_one_device_is_not(monkeypatch):
    monkeypatch.setattr(cpu_threads, "_MENDED_IN", (99,))
    monkeypatch.delenv("NPROC")

    assert cpu_threads.deadlock_note(jax.devices()[:1]) is None


def test_with_enough_threads_a_training_runs_ahead_of_its_loader():
    child = subprocess.run(
        [sys.executable, "-c", TRAINING],
        env={**os.environ, "NPROC": "64"},
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert child.stdout == "(3072, 64)\n", child.stderr
