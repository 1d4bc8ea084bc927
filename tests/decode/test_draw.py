"""Draws of decoders on the host: uniform, independent, pure."""

import numpy as np
import pytest
from scipy import stats

from jaxaug.decode import draw_integers, draw_uniform
from jaxaug.iterators.loader.keys import decode_keys

KEYS = decode_keys(0, 0, np.arange(100_000))


def splitmix(state: int) -> int:
    """SplitMix64's output of a state, in Python's integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def key_of(*words: int) -> int:
    key = 0
    for word in words:
        key = splitmix((key + word + 0x9E3779B97F4A7C15) % 2**64)
    return key


def test_golden_values():
    """Never change these: a resumed run shows the clips of the one that it goes on with by them."""
    records = [0, 5, 2**40]
    keys = decode_keys(-1, 2, np.array(records))
    purpose = int.from_bytes(b"decode", "big")
    assert keys.tolist() == [key_of(2**64 - 1, purpose, 2, record) for record in records]
    placed = decode_keys(-1, 2, np.array(records), np.array([9, 9, 8]))
    assert placed[1] == key_of(2**64 - 1, purpose, 2, 5, 9)
    bits = [splitmix((int(key) + 3 * 0x9E3779B97F4A7C15) % 2**64) for key in keys]
    assert draw_uniform(keys, 3).tolist() == [(word >> 11) / 2**53 for word in bits]

    assert decode_keys(1, 2, np.array([5])).tolist() == [17506412845835765387]
    assert decode_keys(1, 2, np.array([5]), np.array([9])).tolist() == [12450023796879885430]


def test_draws_are_uniform_over_keys_and_over_counters():
    for draws in (draw_uniform(KEYS), draw_uniform(KEYS[:1], np.arange(100_000))):
        assert 0 <= draws.min() and draws.max() < 1
        assert stats.kstest(draws, "uniform").pvalue > 1e-3


def test_draws_of_neighbors_are_independent():
    draws = draw_uniform(KEYS[:, None], np.arange(2))
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 0.01
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.01
    epochs = draw_uniform(decode_keys(0, 1, np.arange(100_000)))
    assert abs(np.corrcoef(draws[:, 0], epochs)[0, 1]) < 0.01


def test_integers_are_uniform_below_high():
    drawn = draw_integers(KEYS, high=7)
    assert drawn.dtype == np.int64
    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-3
    highs = np.arange(1, 100_001)
    assert (draw_integers(KEYS, 1, high=highs) < highs).all()
    assert draw_integers(KEYS, 2, high=2**53).max() < 2**53


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`high` must lie in \[1, 2\^53\], got 0 to 3"):
        draw_integers(KEYS[:2], high=np.array([3, 0]))
    with pytest.raises(TypeError, match=r"`keys` must be uint64\[n\], .* got int64"):
        draw_uniform(np.arange(3))
