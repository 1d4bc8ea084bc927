"""A row has the same bits in any number of rows, also where the laws of transforms are too small.

Results stay floats here, as a last bit seldom moves one of 8, and no side fits vectors. Each case
goes red without what it names, with XLA's optimizations.
"""

import jax
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import audio, volume
from tests.images import picture

ROWS = 7
KEYS = jax.random.split(jax.random.key(7), ROWS)
IMAGES = np.stack([picture(row, 33, 47) for row in range(ROWS)])
DICE = np.random.default_rng(0)


def image(*transforms):
    return augment.Compose([*transforms, augment.Normalize(0.45, 0.22)]), {"image": IMAGES}


def sound(transform):
    return transform, {"audio": DICE.random((ROWS, 1551), np.float32) - 0.5}


def voxels(transform):
    return transform, {"volume": DICE.random((ROWS, 9, 16, 23), np.float32)}


CASES = {
    "products of matrices and of homographies": image(augment.RandomPerspective(p=1.0)),
    "the mean of contrast": image(augment.ColorJitter(contrast=0.4)),
    "the mean of a channel": image(augment.ExposureMatching(p=1.0)),
    "the levels of a sound": sound(audio.Standardize()),
    "the places of voxels": voxels(volume.Affine(degrees=20)),
}


@pytest.mark.bits
@pytest.mark.parametrize("name", CASES)
def test_a_row_has_the_same_bits_in_any_number_of_rows(name):
    transform, samples = CASES[name]
    run = jax.jit(jax.vmap(transform))
    many = run(KEYS, samples)
    few = run(KEYS[:2], {entry: values[:2] for entry, values in samples.items()})
    for entry, values in few.items():
        np.testing.assert_array_equal(values, many[entry][:2])
