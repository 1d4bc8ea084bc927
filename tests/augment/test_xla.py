"""Functions computed in one way and differentiated in another; values that are computed once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxaug import augment as A
from jaxaug.augment import _xla
from jaxaug.augment._xla import with_jvp_of

POINTS = np.array([0.5, -1.25, 2.0], np.float32)
CHANGE = np.array([1.0, -2.0, 0.25], np.float32)
VALUES = np.round(3 * POINTS**2 + 2 * POINTS)
DERIVATIVES = 6 * POINTS + 2
NOISE = np.random.default_rng(0).uniform(0, 1, (5, 7, 3)).astype(np.float32)
BARRIERS = (_xla.barrier, _xla.barrier_on_cpu, _xla._through_a_loop)


def reference(operands, times):
    squares = operands["x"] ** 2 * times.astype(operands["x"].dtype)
    return {"sum": squares + operands["shift"]}


@with_jvp_of(reference)
def rounded(operands, times):
    """Return the same by a loop of unknown length, whose derivative JAX takes forward only."""
    x = operands["x"]
    squares = lax.fori_loop(0, times, lambda _, total: total + x**2, jnp.zeros_like(x))
    return {"sum": jnp.round(squares + operands["shift"])}


def function(x):
    """Return `rounded` of one array; its integer operand has no derivative."""
    return rounded({"x": x, "shift": 2 * x}, jnp.int32(3))["sum"]


@pytest.mark.parametrize("run", [lambda function: function, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("x64", [False, True])
def test_values_are_of_the_function_and_derivatives_of_the_reference(run, x64):
    with jax.enable_x64(x64):
        points = jnp.asarray(POINTS, jnp.float64 if x64 else jnp.float32)
        change = jnp.asarray(CHANGE, points.dtype)
        values, derivatives = jax.jvp(run(function), (points,), (change,))
        gradient = jax.grad(lambda x: run(function)(x).sum())(points)

    assert values.dtype == derivatives.dtype == gradient.dtype == points.dtype
    np.testing.assert_array_equal(values, VALUES)
    np.testing.assert_allclose(derivatives, DERIVATIVES * CHANGE, rtol=1e-6)
    np.testing.assert_allclose(gradient, DERIVATIVES, rtol=1e-6)


def test_derivatives_of_derivatives():
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(function)))(POINTS), [6, 6, 6], rtol=1e-6)
    along = jax.jacfwd(jax.jacrev(function))(jnp.asarray(POINTS[:1]))
    np.testing.assert_allclose(along, [[[6]]], rtol=1e-6)


def test_derivatives_of_batches():
    rows = np.stack([POINTS, -POINTS])
    np.testing.assert_array_equal(jax.vmap(function)(rows), [VALUES, function(-POINTS)])
    for each in (jax.vmap(function), lambda rows: lax.map(function, rows)):
        derivatives = jax.grad(lambda rows, each=each: each(rows).sum())(rows)
        np.testing.assert_allclose(derivatives, 6 * rows + 2, rtol=1e-6)


@pytest.mark.parametrize(
    "barrier, x64", [*((each, False) for each in BARRIERS), (BARRIERS[-1], True)]
)
def test_a_barrier_changes_nothing(barrier, x64):
    with jax.enable_x64(x64):
        batch = np.stack([NOISE, -NOISE])
        for value in (NOISE, NOISE[:1], (255 * NOISE).astype(np.uint8), NOISE[:, 0, 0]):
            np.testing.assert_array_equal(jax.jit(barrier)(value), value)
            np.testing.assert_array_equal(barrier(jnp.asarray(value)), value)
        np.testing.assert_array_equal(jax.jit(jax.vmap(barrier))(batch), batch)
        derivatives = jax.grad(lambda x: (barrier(x) ** 2).sum())(jnp.asarray(NOISE))
        np.testing.assert_allclose(derivatives, 2 * NOISE, rtol=1e-6)


@pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="GPUs read a line again rather than store it"
)
@pytest.mark.parametrize("chain", [(), (A.RandomGrayscale(0.5),)])
def test_the_passes_of_a_resample_are_stored_on_cpus(chain):
    """The lines between rows and columns: [64, 128, 3] float32 an image, and little more."""
    transform = A.Compose([A.RandomResizedCrop(64), *chain, A.Normalize(0.5, 0.5)])
    keys = jax.random.split(jax.random.key(0), 2)
    image = jax.ShapeDtypeStruct((2, 128, 128, 3), jnp.uint8)
    compiled = jax.jit(jax.vmap(transform)).lower(keys, image).compile()
    stored = compiled.memory_analysis().temp_size_in_bytes / 2
    assert 64 * 128 * 3 * 4 <= stored < 2.2 * 64 * 128 * 3 * 4


def test_users_of_an_early_jax_are_told():
    advice = _xla.cpu_advice()
    assert (advice is None) == _xla.barrier_works_on_cpu()
    assert advice is None or jax.__version__ in advice
