"""Banks of references against NumPy: histograms, moments, Fourier amplitudes."""

import jax
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import functional
from jaxaug.augment._ops.references import as_amplitudes, as_curves, as_moments
from tests.images import picture

PIXELS = picture(0, 24, 31)
IMAGE = PIXELS.astype(np.float32) / 255
HEIGHT, WIDTH = IMAGE.shape[:2]
BANK = np.stack([picture(5, 40, 32) // 2, picture(6, 40, 32)])
CANVAS = np.full((30, 40, 3), 0.9, np.float32)
CANVAS[:HEIGHT, :WIDTH] = IMAGE
SIZE = np.array([HEIGHT, WIDTH], np.int32)


def matched(source, reference):
    """As `skimage.exposure.match_histograms` does it, of one channel."""
    _, places, counts = np.unique(source.ravel(), return_inverse=True, return_counts=True)
    values, others = np.unique(reference.ravel(), return_counts=True)
    shares = np.cumsum(counts) / source.size
    return np.interp(shares, np.cumsum(others) / reference.size, values)[places].reshape(
        source.shape
    )


def test_histograms_are_matched_as_scikit_image_does():
    curves = np.asarray(as_curves("references", BANK))[1]
    out = np.asarray(functional.match_histogram(IMAGE, curves, 0.75)) * 255
    for channel in range(3):
        wanted = matched(PIXELS[:, :, channel], BANK[1, :, :, channel])
        blended = 0.25 * PIXELS[:, :, channel] + 0.75 * wanted
        np.testing.assert_allclose(out[:, :, channel], blended, atol=0.6)


def test_moments_are_those_of_the_reference():
    mean, deviation = np.asarray(as_moments("references", BANK))[0]
    out = np.asarray(functional.match_moments(IMAGE, mean, deviation, 1.0), float)
    exact = IMAGE.astype(float)
    wanted = (exact - exact.mean((0, 1))) / exact.std((0, 1)) * deviation + mean
    np.testing.assert_allclose(out, np.clip(wanted, 0, 1), atol=2e-5)
    np.testing.assert_allclose(mean, (BANK[0] / 255).mean((0, 1)), atol=1e-6)


@pytest.mark.parametrize("border", [0, 2, 5])
def test_low_frequencies_are_swapped_as_by_numpys_fft(border):
    amplitudes = np.asarray(as_amplitudes("references", BANK))[0]
    spectrum = np.fft.fft2(IMAGE.astype(float), axes=(0, 1))
    for v in range(-border, border + 1):
        for u in range(-border, border + 1):
            # The amplitude at -(u, v) is that at (u, v).
            row, column = (v, u) if u >= 0 else (-v, -u)
            wanted = amplitudes[row + amplitudes.shape[0] // 2, column] * HEIGHT * WIDTH
            spectrum[v, u] *= wanted / np.abs(spectrum[v, u])
    wanted = np.fft.ifft2(spectrum, axes=(0, 1)).real
    swap = jax.jit(functional.swap_low_frequencies, static_argnums=3)
    out = swap(IMAGE, amplitudes, np.int32(border), 5)
    np.testing.assert_allclose(out, wanted, atol=1e-4)
    beside = swap(CANVAS, amplitudes, np.int32(border), 5, SIZE)
    np.testing.assert_allclose(np.asarray(beside)[:HEIGHT, :WIDTH], out, atol=1e-5)


def test_a_bank_is_checked_and_may_lie_anywhere():
    for bank in (BANK[0], BANK.astype(np.int32), [BANK[0], BANK[1, :8]]):
        with pytest.raises(ValueError, match="`references` must be images"):
            A.HistogramMatching(bank)
    floats = BANK.astype(np.float32) / 255
    for kind in (A.HistogramMatching, A.PixelDistributionAdaptation, A.FDA):
        ours, others = (jax.tree.leaves(kind(each, p=1.0)) for each in (BANK, list(floats)))
        for one, other in zip(ours, others, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_an_overlay_is_a_blend_of_a_slice():
    element = BANK[0, :7, :9][..., [0, 1, 2, 0]].astype(np.float32) / 255
    for top, left in ((3, 4), (-2, 27), (20, -5)):
        wanted = np.pad(IMAGE.astype(float), ((10, 10), (10, 10), (0, 0)))
        window = np.s_[top + 10 : top + 17, left + 10 : left + 19]
        alpha = element[..., 3:]
        wanted[window] = wanted[window] * (1 - alpha) + alpha * element[..., :3]
        out = functional.overlay(IMAGE, element, np.int32(top), np.int32(left))
        np.testing.assert_allclose(out, wanted[10:-10, 10:-10], atol=1e-6)
