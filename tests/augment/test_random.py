"""Random numbers whose distribution SciPy knows."""

import jax
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


@pytest.mark.parametrize("bounds", [(0, 2**23 + 1), (0, 2**31 - 1), (-(2**31), 2**31 - 1)])
def test_integers_of_a_range_that_float32_does_not_resolve_are_refused(bounds):
    with pytest.raises(ValueError, match="at most 8388608 numbers"):
        random.integers(KEYS[0], *bounds)
