"""Values that are computed once: the same values, through every transformation, and not fused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import _boundary

NOISE = np.random.default_rng(0).uniform(0, 1, (5, 7, 3)).astype(np.float32)
BOUNDARIES = (_boundary.computed_once, _boundary.computed_once_on_cpu, _boundary._through_a_loop)


@pytest.mark.parametrize(
    "boundary, x64", [*((each, False) for each in BOUNDARIES), (BOUNDARIES[-1], True)]
)
def test_a_boundary_changes_nothing(boundary, x64):
    with jax.enable_x64(x64):
        batch = np.stack([NOISE, -NOISE])
        for value in (NOISE, NOISE[:1], (255 * NOISE).astype(np.uint8), NOISE[:, 0, 0]):
            np.testing.assert_array_equal(jax.jit(boundary)(value), value)
            np.testing.assert_array_equal(boundary(jnp.asarray(value)), value)
        np.testing.assert_array_equal(jax.jit(jax.vmap(boundary))(batch), batch)
        slopes = jax.grad(lambda x: (boundary(x) ** 2).sum())(jnp.asarray(NOISE))
        np.testing.assert_allclose(slopes, 2 * NOISE, rtol=1e-6)


@pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="GPUs read a line again rather than store it"
)
@pytest.mark.parametrize("chain", [(), (A.Grayscale(0.5),)])
def test_the_passes_of_a_resample_are_stored_on_cpus(chain):
    """The lines between rows and columns: [64, 128, 3] float32 an image, and little more."""
    transform = A.Compose([A.RandomResizedCrop(64), *chain, A.Normalize(0.5, 0.5)])
    keys = jax.random.split(jax.random.key(0), 2)
    image = jax.ShapeDtypeStruct((2, 128, 128, 3), jnp.uint8)
    compiled = jax.jit(jax.vmap(transform)).lower(keys, image).compile()
    stored = compiled.memory_analysis().temp_size_in_bytes / 2
    assert 64 * 128 * 3 * 4 <= stored < 2.2 * 64 * 128 * 3 * 4


def test_users_of_an_early_jax_are_told():
    advice = _boundary.cpu_advice()
    assert (advice is None) == _boundary.barrier_works_on_cpu()
    assert advice is None or jax.__version__ in advice
