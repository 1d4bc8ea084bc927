"""Sums of long sounds beside those of float64."""

import jax.numpy as jnp
import numpy as np

from jaxaug.augment.audio._sums import total


def test_a_sum_of_more_samples_than_an_int32_holds_halves_of():
    # All lines have nearly the highest lower half: it was -1021.
    values = np.full(33_100 * 512, 127 * 2.0**-21, np.float32)
    values[0] = 1
    np.testing.assert_allclose(total(jnp.asarray(values)), values.sum(dtype=np.float64), rtol=1e-6)
