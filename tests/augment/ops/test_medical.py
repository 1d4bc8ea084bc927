"""Stains, bias fields and spikes against NumPy in float64."""

import numpy as np

from jaxaug.augment import functional
from jaxaug.augment._ops.medical import STAINS
from tests.images import picture

IMAGE = np.clip(picture(0, 24, 31).astype(np.float32) / 255, 1 / 255, 1)
HEIGHT, WIDTH = IMAGE.shape[:2]


def test_stains_are_separated_by_least_squares():
    stains = np.array(STAINS["ruifrok"])
    density = -np.log(IMAGE.astype(float)).reshape(-1, 3)
    amounts = np.linalg.lstsq(stains.T, density.T, rcond=None)[0].T
    rest = density - amounts @ stains
    changed = (amounts * [0.8, 1.2] + [0.1, -0.1]) @ stains + rest
    separation = np.linalg.pinv(stains).astype(np.float32)
    out = functional.adjust_stain(
        IMAGE, stains.astype(np.float32), separation, (0.8, 1.2), (0.1, -0.1)
    )
    np.testing.assert_allclose(out, np.exp(-changed).reshape(IMAGE.shape), rtol=1e-4, atol=1e-5)


def test_the_bias_field_is_numpys_polynomial():
    coefficients = np.random.default_rng(1).uniform(-0.5, 0.5, 10).astype(np.float32)
    y = (2 * (np.arange(HEIGHT) + 0.5) / HEIGHT - 1)[:, None]
    x = (2 * (np.arange(WIDTH) + 0.5) / WIDTH - 1)[None, :]
    powers = [(i, j) for i in range(4) for j in range(4 - i)]
    field = sum(c * y**i * x**j for c, (i, j) in zip(coefficients.astype(float), powers))
    out = functional.bias_field(IMAGE, coefficients, 3)
    np.testing.assert_allclose(out, IMAGE * np.exp(field)[:, :, None], rtol=1e-5)


def test_a_spike_is_one_frequency_of_the_fourier_transform():
    wave = np.array([[3.0, -5.0]], np.float32)
    out = functional.k_space_spikes(IMAGE, wave, np.zeros(1, np.float32), np.array([0.5]))
    change = np.abs(np.fft.fft2(np.asarray(out, float)[:, :, 0] - IMAGE[:, :, 0]))
    change /= HEIGHT * WIDTH
    assert abs(change[-5, 3] - 0.25) < 1e-5 and abs(change[5, -3] - 0.25) < 1e-5
    change[-5, 3] = change[5, -3] = 0
    assert change.max() < 1e-6
