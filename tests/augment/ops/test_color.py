"""Color: the pure functions and the jitter against numpy and colorsys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.augment import (
    ColorJitter,
    Grayscale,
    ImageInfo,
    RandomGrayscale,
    RandomPhotometricDistort,
)
from jaxaug.augment import functional as F
from jaxaug.augment._xla import exact_sum
from tests.reference import color as reference

KEY = jax.random.key(0)
IMAGE = np.random.default_rng(0).uniform(0, 1, (9, 13, 3)).astype(np.float32)
IMAGE[0, :4] = [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 1]]
TURNS = (reference.brightness, reference.contrast, reference.saturation, reference.hue)
NAMES = ("brightness", "contrast", "saturation", "hue")


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0, 1.7])
@pytest.mark.parametrize("name", NAMES[:3])
def test_factors(name, value):
    out = getattr(F, f"adjust_{name}")(IMAGE, value)
    expected = getattr(reference, name)(IMAGE.astype(np.float64), value)
    np.testing.assert_allclose(np.clip(out, 0, 1), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", NAMES[:3])
def test_half_precision_is_the_rounded_result_of_float32(name, dtype):
    image = jnp.asarray(IMAGE, dtype)
    adjust = getattr(F, f"adjust_{name}")
    expected = adjust(image.astype(jnp.float32), 0.4).astype(dtype)
    assert adjust(image, 0.4).dtype == dtype
    np.testing.assert_array_equal(adjust(image, 0.4), expected)


@pytest.mark.parametrize("turns", [-0.5, -0.21, 0.0, 0.1, 0.5])
def test_hue(turns):
    np.testing.assert_allclose(F.adjust_hue(IMAGE, turns), reference.hue(IMAGE, turns), atol=2e-6)


def test_hue_has_finite_gradients_on_gray():
    gray = jnp.full((2, 2, 3), 0.3, jnp.float32)
    gradients = jax.grad(lambda x, t: F.adjust_hue(x, t).sum(), argnums=(0, 1))(
        gray, jnp.float32(0.2)
    )
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_jitter_takes_its_turns_in_the_drawn_order():
    transform = ColorJitter(0.6, 0.6, 0.6, 0.3)
    jitter = jax.jit(transform)
    orders = set()
    for seed in range(6):
        key = jax.random.key(seed)
        params = transform.make_params(jax.random.fold_in(key, 0), ImageInfo((9, 13)))
        expected = IMAGE.astype(np.float64)
        order = tuple(np.asarray(params.order).tolist())
        for component in order:
            expected = TURNS[component](expected, float(params[component]))
        np.testing.assert_allclose(jitter(key, IMAGE), expected, atol=1e-5)
        orders.add(order)
    assert len(orders) > 3


def test_jitter_draws_orders_and_factors_uniformly_and_apart():
    transform = ColorJitter(0.4, (0.5, 1.0), 1.5, 0.1)
    draw = jax.jit(jax.vmap(lambda key: transform.make_params(key, ImageInfo((9, 13)))))
    params = jax.tree.map(np.asarray, draw(jax.random.split(KEY, 4800)))
    for values, (low, high) in zip(params[:4], [(0.6, 1.4), (0.5, 1.0), (0.0, 2.5), (-0.1, 0.1)]):
        assert (
            low <= values.min() < low + (high - low) / 100
            and high - (high - low) / 100 < values.max() <= high
        )
        assert abs(values.mean() - (low + high) / 2) < (high - low) / 40
    _, counts = np.unique(params.order, axis=0, return_counts=True)
    assert len(counts) == 24 and counts.min() > 150 and counts.max() < 250  # 200 each, sigma 14
    first = params.order[:, 0].astype(float)
    assert np.abs(np.corrcoef([*params[:4], first]) - np.eye(5)).max() < 0.06


def test_components_left_out_are_left_out():
    transform = ColorJitter(saturation=0.5, hue=0.1)
    params = transform.make_params(KEY, ImageInfo((9, 13)))
    assert sorted(params.order.tolist()) == [2, 3]
    text = str(jax.make_jaxpr(lambda x: transform.apply(params, x, ImageInfo((9, 13))))(IMAGE))
    assert "reduce_sum" not in text  # no contrast, no mean
    np.testing.assert_array_equal(ColorJitter()(KEY, IMAGE), IMAGE)


def test_contrast_takes_the_mean_of_the_used_part():
    canvas = np.ones((20, 20, 3), np.float32)
    canvas[:9, :13] = IMAGE
    transform = ColorJitter(contrast=(0.5, 0.5))
    out = transform(KEY, {"image": canvas, "size": jnp.array([9, 13], jnp.int32)})["image"]
    np.testing.assert_allclose(out[:9, :13], reference.contrast(IMAGE, 0.5), atol=1e-6)


def test_photometric_distort_of_contrast_alone_changes_contrast():
    alone = RandomPhotometricDistort((1, 1), (0.5, 0.5), (1, 1), (0, 0), p=1.0)
    out = np.sort(alone(KEY, IMAGE), axis=2)  # in whatever order of the channels
    expected = np.sort(reference.contrast(IMAGE, 0.5), axis=2)
    np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 7), (1, 4096), (4096, 1), (4096, 4096)])
def test_the_sum_is_exact_to_a_thousandth_of_a_level(shape):
    """Of an image of 3/255, the darkest that shows: all rounding goes one way."""
    value = np.float32(3 / 255)
    total = jax.jit(exact_sum)(jnp.full(shape, value))
    assert abs(float(total) / (shape[0] * shape[1]) - float(value)) * 255 < 1e-3


def test_the_sum_is_that_of_numpy():
    noise = np.random.default_rng(0).uniform(-1, 2, (300, 500)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(exact_sum)(noise), noise.astype(np.float64).sum(), rtol=1e-6)


def test_jitter_probability():
    draw = jax.vmap(lambda key: ColorJitter(0.5, p=0.3).draw(key, ImageInfo((9, 13))).params)
    assert abs((draw(jax.random.split(KEY, 3000)).brightness != 1).mean() - 0.3) < 0.03


def test_grayscale():
    expected = np.repeat((IMAGE @ np.array([0.2989, 0.587, 0.114]))[..., None], 3, axis=2)
    np.testing.assert_allclose(Grayscale()(KEY, IMAGE), expected, atol=1e-6)
    draw = jax.vmap(lambda key: RandomGrayscale(0.2).draw(key, ImageInfo((9, 13))).applied)
    on = draw(jax.random.split(KEY, 3000))
    assert abs(on.mean() - 0.2) < 0.03


def test_errors():
    with pytest.raises(
        TypeError, match=r"expected a float image .*, got uint8\[2, 2, 3\]: call `to_float`"
    ):
        F.adjust_hue(jnp.zeros((2, 2, 3), jnp.uint8), 0.1)
    with pytest.raises(
        ValueError, match=r"`brightness` must be one number of at least 0 .* got -0.1"
    ):
        ColorJitter(-0.1)
    with pytest.raises(ValueError, match=r"`hue` must be one number in \[0, 0.5\] .* got 0.6"):
        ColorJitter(hue=0.6)


@pytest.mark.parametrize("size", [None, (9, 14)])
def test_jitter_of_gpus_is_that_of_cpus(size):
    """Two passes give what one turn after another does, wherever contrast stands in the order."""
    image = jnp.asarray(np.random.default_rng(0).random((3, 12, 16), np.float32))
    info = ImageInfo((12, 16), None if size is None else jnp.array(size, jnp.int32))
    jitter = ColorJitter(0.4, (0.2, 1.8), 0.4, 0.1)
    places = set()

    @jax.jit
    def both_ways(key):
        params = jitter.make_params(key, info)
        ways = (jitter._in_a_loop, jitter._in_two_passes)
        return params.order, *(way(params, image, info) for way in ways)

    for seed in range(12):
        order, expected, found = both_ways(jax.random.key(seed))
        places.add(order.tolist().index(1))
        np.testing.assert_allclose(found, expected, atol=2e-6)
        assert np.abs(np.asarray(expected - image)).max() > 0.05
    assert places == {0, 1, 2, 3}
