"""Random numbers whose distribution SciPy knows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug.augment import random

KEYS = jax.random.split(jax.random.key(5), 20_000)
MIN_PVALUE = 1e-4


def draw(function):
    return np.asarray(jax.jit(jax.vmap(function))(KEYS))


@pytest.mark.parametrize("alpha", [0.4, 1.0, 3.0])  # of smaller ones, many round to 1
def test_beta(alpha):
    numbers = draw(lambda key: random.beta(key, alpha, (2,)))
    assert numbers.dtype == np.float32
    for column in numbers.T:
        assert stats.kstest(column, stats.beta(alpha, alpha).cdf).pvalue > MIN_PVALUE
    assert abs(np.corrcoef(numbers.T)[0, 1]) < 0.03


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5, 1000.0])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_dirichlet(alpha, count):
    shares = draw(lambda key: random.dirichlet(key, alpha, count))
    assert shares.dtype == np.float32
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    for column in shares.T:
        beta = stats.beta(alpha, (count - 1) * alpha)
        assert stats.kstest(column, beta.cdf).pvalue > MIN_PVALUE
    if count > 2:
        pair = stats.beta(2 * alpha, (count - 2) * alpha)
        assert stats.kstest(shares[:, 0] + shares[:, 1], pair.cdf).pvalue > MIN_PVALUE


@pytest.mark.parametrize("alpha", [1e-3, 1e-2])
def test_a_small_alpha_gives_all_to_one(alpha):
    shares = draw(lambda key: random.dirichlet(key, alpha, 3))
    assert np.isfinite(shares).all()
    largest = shares.argmax(axis=1)
    assert stats.chisquare(np.bincount(largest)).pvalue > MIN_PVALUE
    assert (shares.max(axis=1) > 0.99).mean() > 0.9


def test_one_share_is_everything():
    np.testing.assert_array_equal(draw(lambda key: random.dirichlet(key, 0.01, 1)), 1)


def test_integers_reach_every_number():
    numbers = draw(lambda key: random.integers(key, -(2**23) - 5, -5, (8,)))
    assert numbers.dtype == np.int32
    assert stats.kstest(numbers.ravel(), stats.uniform(-(2**23) - 5, 2**23).cdf).pvalue > MIN_PVALUE
    assert stats.binomtest(int((numbers % 2).sum()), numbers.size).pvalue > MIN_PVALUE


def test_numbers_that_are_zero(monkeypatch):
    """A number may be 0, one time in eight million."""
    zeros = jnp.zeros((4, 5), jnp.float32)
    monkeypatch.setattr(random.jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape))
    monkeypatch.setattr(random, "uniform_field", lambda key, shape: zeros)
    assert not random.coin(KEYS[0], 0.0)
    assert random.choice(KEYS[0], [0.0, 1.0]) == 1
    assert np.isfinite(random.normal_field(KEYS[0], zeros.shape)).all()


@pytest.mark.parametrize("bounds", [(0, 2**23 + 1), (0, 2**31 - 1), (-(2**31), 2**31 - 1)])
def test_integers_of_a_range_that_float32_does_not_resolve_are_refused(bounds):
    with pytest.raises(ValueError, match="at most 8388608 numbers"):
        random.integers(KEYS[0], *bounds)


@pytest.mark.parametrize("field", [random.uniform_field, random.normal_field])
def test_a_field_depends_on_the_place_alone(field):
    """Not on the canvas, the channels beside it, the batch, compilation or x64."""
    whole = np.asarray(field(KEYS[0], (33, 40, 4)))
    for shape in [(33, 40, 3), (8, 9, 4), (7, 1, 1), (1, 40, 2)]:
        part = whole[: shape[0], : shape[1], : shape[2]]
        np.testing.assert_array_equal(field(KEYS[0], shape), part)
    np.testing.assert_array_equal(field(KEYS[0], (9, 12)), whole[:9, :12, 0])

    many = jax.jit(jax.vmap(lambda key: field(key, (33, 40, 4))))(KEYS[:3])
    assert many.dtype == np.float32
    np.testing.assert_allclose(many[0], whole, rtol=1e-6, atol=1e-7)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(field(KEYS[0], (33, 40, 4)), whole)


def test_the_fields_are_distributed_as_they_say():
    uniform = np.asarray(random.uniform_field(KEYS[1], (301, 300, 3)))
    normal = np.asarray(random.normal_field(KEYS[2], (301, 300, 3)))
    assert uniform.min() >= 0 and uniform.max() < 1 and np.isfinite(normal).all()
    assert stats.kstest(uniform.ravel(), stats.uniform.cdf).pvalue > MIN_PVALUE
    assert stats.kstest(normal.ravel(), stats.norm.cdf).pvalue > MIN_PVALUE


def test_neighbors_channels_and_keys_are_independent():
    fields = np.asarray(jax.vmap(lambda key: random.normal_field(key, (200, 201, 2)))(KEYS[:2]))
    first = fields[0, :, :, 0]
    pairs = {
        "rows": (first[1:], first[:-1]),
        "columns": (first[:, 1:], first[:, :-1]),
        "channels": (first, fields[0, :, :, 1]),
        "keys": (first, fields[1, :, :, 0]),
    }
    for name, (a, b) in pairs.items():
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02, name
    assert len(np.unique(fields)) > 0.98 * fields.size


def test_a_field_of_a_key_of_another_implementation():
    key = jax.random.key(0, impl="rbg")
    assert random.uniform_field(key, (3, 4, 2)).shape == (3, 4, 2)


@pytest.mark.parametrize("shape", [(3,), (3, 4, 2, 1), (1, 2**20 + 1)])
def test_a_field_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"`shape` must be \(H, W\) or \(H, W, C\)"):
        random.uniform_field(KEYS[0], shape)
