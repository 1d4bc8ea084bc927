"""Loaders with a decoder of gray canvases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.augment import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop
from jaxaug.decode import Decoder, decode_image
from jaxaug.iterators import InMemory, Loader
from tests.images import jpegs

IMAGES = [*jpegs(8, 40, 56), *jpegs(4, 130, 90, seed=20)]


@pytest.fixture
def decoder(cpu_devices):
    with Decoder((64, 64), "host", cpu_devices, channels="gray") as one:
        yield one


def source():
    return InMemory(IMAGES, {"label": np.arange(12)})


def test_batches_are_gray_canvases(decoder):
    with Loader(source(), 8, seed=0, shuffle=False, decode=decoder, last_batch="pad") as loader:
        first, second = loader
        assert loader.element_spec["image"].shape == (8, 64, 64, 1)
        found = loader.sample(2)
    assert first["image"].shape == second["image"].shape == (8, 64, 64, 1)
    for row in range(8):
        expected = decode_image(IMAGES[row], "gray")
        np.testing.assert_array_equal(np.asarray(first["image"])[row, :40, :56, 0], expected)
    assert np.asarray(second["valid"]).tolist() == [True] * 4 + [False] * 4
    assert not np.asarray(second["image"])[4:].any()
    np.testing.assert_array_equal(found["original"], decode_image(IMAGES[2], "gray"))
    np.testing.assert_array_equal(found["sample"]["image"], np.asarray(first["image"])[2])


def test_transforms_get_one_channel(decoder):
    shapes = []

    def transform(key, sample):
        shapes.append(sample["image"].shape)
        return sample

    with Loader(source(), 8, seed=0, decode=decoder, transform=transform) as loader:
        next(loader)
    assert set(shapes) == {(64, 64, 1)}

    chain = Compose(
        [RandomResizedCrop(32), RandomHorizontalFlip(0.5), Normalize(0.5, 0.25, "bfloat16")]
    )
    with Loader(source(), 8, seed=0, decode=decoder, transform=chain) as loader:
        batch = next(loader)
    assert batch["image"].shape == (8, 32, 32, 1) and batch["image"].dtype == jnp.bfloat16
    assert jax.device_get(batch["image"]).astype(np.float32).std() > 0.1


def test_gray_pixels_of_a_source_still_have_three_channels():
    pixels = np.zeros((12, 20, 30), np.uint8)
    with Loader(InMemory(pixels), 8, seed=0) as loader:
        assert next(loader)["image"].shape == (8, 20, 30, 3)
