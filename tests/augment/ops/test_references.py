"""Banks of references against NumPy: histograms, moments, Fourier amplitudes."""

import dataclasses

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
KEY = jax.random.key(0)
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


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_a_flat_image_becomes_as_flat(value):
    """It gets the mean of the reference; what rounding leaves of other frequencies is no phase."""
    amplitudes = np.asarray(as_amplitudes("references", BANK))[1]
    tight = np.full((61, 47, 3), value, np.float32)
    canvas = np.pad(tight, ((0, 3), (0, 33), (0, 0)))
    swap = jax.jit(functional.swap_low_frequencies, static_argnums=3)
    mean = np.broadcast_to((BANK[1] / 255).mean((0, 1)), tight.shape)
    np.testing.assert_allclose(swap(tight, amplitudes, np.int32(5), 5), mean, atol=0.008)
    size = np.array([61, 47], np.int32)
    out = swap(canvas, amplitudes, np.int32(5), 5, size)[:61, :47]
    np.testing.assert_allclose(out, mean, atol=0.008)


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


@pytest.mark.parametrize("height, width", [(8, 6), (7, 8), (9, 5)])
def test_all_frequencies_of_a_small_image_are_swapped_once(height, width):
    """Up to half of an even side, where -f and f are one, and a share that float32 rounds up."""
    small = IMAGE[:height, :width]
    bank = picture(7, height, width)[None]
    out = A.FDA(bank, (0.5, 0.5), p=1.0)(KEY, small)
    highest = min(height, width) // 2
    spectrum = np.fft.fft2(small.astype(float), axes=(0, 1))
    wanted = np.abs(np.fft.fft2(bank[0] / 255, axes=(0, 1)))
    rows, columns = (abs(np.fft.fftfreq(side) * side) <= highest for side in (height, width))
    swapped = np.where((rows[:, None] & columns[None, :])[:, :, None], wanted, np.abs(spectrum))
    expected = np.fft.ifft2(spectrum / np.abs(spectrum) * swapped, axes=(0, 1)).real
    np.testing.assert_allclose(out, np.clip(expected, 0, 1), atol=1e-4)


def test_a_fixed_share_reaches_as_far_without_a_canvas():
    # 0.29 * 100 is below 29 in float64, not in float32.
    fda = jax.jit(A.FDA(BANK, (0.29, 0.29), p=1.0))
    image = picture(8, 100, 100).astype(np.float32) / 255
    sample = {"image": np.pad(image, ((0, 20), (0, 20), (0, 0))), "size": np.int32([100, 100])}
    out = fda(KEY, sample)["image"][:100, :100]
    np.testing.assert_allclose(out, fda(KEY, image), atol=1e-4)


def test_a_small_reference_has_no_frequencies_beyond_its_own():
    kept = np.asarray(as_amplitudes("references", picture(1, 8, 10)[None]))[0]
    assert not kept[:, 6:].any() and not kept[: 32 - 4].any() and not kept[32 + 5 :].any()
    assert kept[32 - 4 : 32 + 5, :6].all()


def test_low_contrast_keeps_its_deviation():
    image = np.float32(0.01) + np.float32(1e-4) * picture(3, 40, 50).astype(np.float32) / 255
    mean, deviation = np.float32([0.5] * 3), np.float32([0.1] * 3)
    out = np.asarray(functional.match_moments(image * 4, mean, deviation, 1.0))
    np.testing.assert_allclose(out.std((0, 1)), 0.1, rtol=0.05)


KINDS = [
    (A.HistogramMatching, BANK),
    (A.PixelDistributionAdaptation, BANK),
    (A.FDA, BANK),
    (A.OverlayElements, BANK[..., [0, 1, 2, 0]]),
]


@pytest.mark.parametrize("kind, bank", KINDS)
def test_a_bank_of_other_values_or_channels_is_refused(kind, bank):
    for values in (bank.astype(np.float32), np.full(bank.shape, np.nan)):
        for given in (values, jax.numpy.asarray(values)):
            with pytest.raises(ValueError, match=r"floats in \[0, 1\], got"):
                kind(given)
    for image in (bank[0], jax.numpy.asarray(bank[0])):
        with pytest.raises(ValueError, match="must be images"):
            kind(image)
    transform = kind(bank, p=1.0)
    for channels in (1, 4, 13):
        with pytest.raises(ValueError, match=f"the channels of the image, {channels}, got 3"):
            transform(KEY, np.zeros((5, 6, channels), np.uint8))
    assert dataclasses.replace(transform, p=0.5) == kind(bank, p=0.5)
