"""A run of transforms of single values: the table of the 256 levels gives what each pixel gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment._chain import levels
from tests.test_contract import KEYS, SPLIT, always, batch, exported, info_of

OPERATORS = [name for name in exported(augment.Pointwise) if getattr(augment, name).by_value]
RUN = (
    augment.RandomGamma((0.7, 1.4), p=0.5),
    augment.RandomSolarize(0.5, p=0.5),
    augment.RandomPosterize(5, p=0.5),
    augment.RandomInvert(p=0.5),
    augment.RandomRGBShift(0.1),
)
NORMALIZE = augment.Normalize((0.4, 0.5, 0.6), (0.2, 0.25, 0.3), "bfloat16")
CHAINS = {
    "alone": RUN,
    "normalized": (*RUN, NORMALIZE),
    "cropped before": (augment.CenterCrop(8), *RUN, NORMALIZE),
    "turned behind": (*RUN, augment.RandomRotation(20)),
    "chosen": (augment.OneOf(RUN), *RUN),
    "summed behind": (*RUN[:1], augment.RandomAutocontrast(1.0), *RUN[1:]),
}


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(levels, "on_gpu", lambda kernel, otherwise, *operands: kernel(*operands))


def run(chain, sample=None):
    sample = batch("RandomInvert") if sample is None else sample
    return jax.jit(jax.vmap(chain))(KEYS, sample)["image"]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_value_depends_on_level_and_channel_alone(name):
    transform = always(name)

    def both(key, sample):
        info = info_of(sample)
        steps = [levels.LevelStep(transform, transform.draw(key, info), info)]
        image = sample["image"]
        return levels.by_table(image, steps, None), levels.by_pixel(image, steps, None)

    table, pixel = jax.jit(jax.vmap(both))(KEYS, batch(name))
    np.testing.assert_allclose(table, pixel, rtol=0, atol=1e-6)


def test_most_operators_of_tone_are_tables():
    assert {"RandomGamma", "RandomInvert", "RandomPosterize", "RandomSolarize"} <= set(OPERATORS)
    assert not {"Grayscale", "PixelDropout", "HueSaturationValue"} & set(OPERATORS)


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_gives_the_same_by_tables(name, request):
    chain = augment.Compose(CHAINS[name])
    by_pixel = run(chain)
    request.getfixturevalue("as_on_a_gpu")

    assert run(chain).dtype == by_pixel.dtype
    difference = np.asarray(run(chain), np.float32) - np.asarray(by_pixel, np.float32)
    assert np.abs(difference).max() <= (1e-6 if by_pixel.dtype != jnp.uint8 else 1)


def test_a_run_is_one_table(as_on_a_gpu, monkeypatch):
    calls = []
    look_up = levels.look_up
    monkeypatch.setattr(levels, "look_up", lambda *each: calls.append(each) or look_up(*each))
    augment.Compose((*RUN, NORMALIZE))(KEYS[0], batch("RandomInvert")["image"][0])

    ((indices, table),) = calls
    assert indices.shape == (16, 20, 3) and table.shape == (3, 256) and table.dtype == jnp.bfloat16


def test_floats_are_no_levels(as_on_a_gpu, monkeypatch):
    monkeypatch.setattr(levels, "look_up", None)
    image = jnp.linspace(0, 1, 2 * 3 * 3).reshape(2, 3, 3)
    result = augment.RandomInvert(1.0)(KEYS[0], image)
    np.testing.assert_array_equal(result, 1 - image)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 4), (0, 3, 3)])
def test_images_of_any_shape(as_on_a_gpu, shape):
    image = jnp.full(shape, 55, jnp.uint8)
    result = augment.Compose([augment.RandomInvert(1.0), augment.RandomInvert(1.0)])(KEYS[0], image)
    np.testing.assert_array_equal(result, image)


def test_each_device_looks_up_its_own_rows(as_on_a_gpu):
    """The batch is sharded explicitly, and the table the same for all images."""
    chain = augment.Compose([augment.RandomPosterize(3, p=1.0)])
    sample = batch("RandomPosterize")
    split = jax.device_put((KEYS, sample), SPLIT)
    with jax.set_mesh(SPLIT.mesh):
        result = jax.jit(jax.vmap(chain))(*split)["image"]

    assert result.sharding.is_equivalent_to(SPLIT, 4)
    np.testing.assert_array_equal(result, run(chain, sample))
