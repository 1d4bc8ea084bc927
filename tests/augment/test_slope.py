"""A function that is computed in one way and differentiated in another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxaug.augment._slope import with_slope_of

POINTS = np.array([0.5, -1.25, 2.0], np.float32)
CHANGE = np.array([1.0, -2.0, 0.25], np.float32)
VALUES = np.round(3 * POINTS**2 + 2 * POINTS)
SLOPES = 6 * POINTS + 2


def reference(operands, times):
    squares = operands["x"] ** 2 * times.astype(operands["x"].dtype)
    return {"sum": squares + operands["shift"]}


@with_slope_of(reference)
def rounded(operands, times):
    """Return the same by a loop of unknown length, whose slope JAX takes forward only."""
    x = operands["x"]
    squares = lax.fori_loop(0, times, lambda _, total: total + x**2, jnp.zeros_like(x))
    return {"sum": jnp.round(squares + operands["shift"])}


def function(x):
    """Return `rounded` of one array; its integer operand has no slope."""
    return rounded({"x": x, "shift": 2 * x}, jnp.int32(3))["sum"]


@pytest.mark.parametrize("run", [lambda function: function, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("x64", [False, True])
def test_values_are_of_the_function_and_slopes_of_the_reference(run, x64):
    with jax.enable_x64(x64):
        points = jnp.asarray(POINTS, jnp.float64 if x64 else jnp.float32)
        change = jnp.asarray(CHANGE, points.dtype)
        values, slopes = jax.jvp(run(function), (points,), (change,))
        gradient = jax.grad(lambda x: run(function)(x).sum())(points)

    assert values.dtype == slopes.dtype == gradient.dtype == points.dtype
    np.testing.assert_array_equal(values, VALUES)
    np.testing.assert_allclose(slopes, SLOPES * CHANGE, rtol=1e-6)
    np.testing.assert_allclose(gradient, SLOPES, rtol=1e-6)


def test_slopes_of_slopes():
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(function)))(POINTS), [6, 6, 6], rtol=1e-6)
    along = jax.jacfwd(jax.jacrev(function))(jnp.asarray(POINTS[:1]))
    np.testing.assert_allclose(along, [[[6]]], rtol=1e-6)


def test_slopes_of_batches():
    rows = np.stack([POINTS, -POINTS])
    np.testing.assert_array_equal(jax.vmap(function)(rows), [VALUES, function(-POINTS)])
    for each in (jax.vmap(function), lambda rows: lax.map(function, rows)):
        slopes = jax.grad(lambda rows, each=each: each(rows).sum())(rows)
        np.testing.assert_allclose(slopes, 6 * rows + 2, rtol=1e-6)
