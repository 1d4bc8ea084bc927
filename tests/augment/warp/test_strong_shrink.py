"""More taps than are terms of the program: summed in turns, with the same result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from PIL import Image

from jaxaug import augment as A
from jaxaug.augment import matrix
from jaxaug.augment._base import axis
from jaxaug.augment._base.axis import PADDING_MODES
from jaxaug.augment._warp import interpolate, slices
from tests.reference import warp as reference

FRAME = (5, 6)
NOISE = np.random.default_rng(0).uniform(0, 1, (23, 31, 3)).astype(np.float32)
FILL = (0.2, 0.4, 0.6)
STRAIGHT = reference.shift(-5.3, 2.4) @ np.diag([4.6, 3.7, 1.0])
TURNED = reference.rotation(33, 23, 31) @ STRAIGHT


@pytest.fixture(autouse=True)
def few_terms(monkeypatch):
    """Ten taps become four turns of three, of which two read nothing."""
    monkeypatch.setattr(axis, "MAX_UNROLLED", 3)


def shrunk(image, pull, interpolation="bilinear", mode="constant", fill=FILL):
    straight = pull[0, 1] == 0
    pull_map = matrix.Matrix(
        xx=jnp.float32(pull[0, 0]),
        xy=0.0 if straight else jnp.float32(pull[0, 1]),
        x1=jnp.float32(pull[0, 2]),
        yx=0.0 if straight else jnp.float32(pull[1, 0]),
        yy=jnp.float32(pull[1, 1]),
        y1=jnp.float32(pull[1, 2]),
    )
    warp = A.Warp(pull_map, FRAME, max_shrink=(5.0, 5.0))
    return interpolate.resample(jnp.asarray(image), (23.0, 31.0), warp, interpolation, mode, fill)


@pytest.mark.parametrize("mode", PADDING_MODES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("pull", [STRAIGHT, TURNED], ids=["straight", "turned"])
def test_turns_read_what_padding_would_give(pull, interpolation, mode):
    fill = FILL if mode == "constant" else 0.0
    out = jax.jit(lambda image: shrunk(image, pull, interpolation, mode, fill))(NOISE)
    stretch = reference.footprint(pull)
    expected = reference.warp(NOISE, pull, FRAME, mode, fill, interpolation, stretch)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("pull", [STRAIGHT, TURNED], ids=["straight", "turned"])
def test_gradients_are_the_adjoint(pull):
    """Of a linear map A: <A x, y> is <x, A' y>."""

    y = np.random.default_rng(1).uniform(-1, 1, (*FRAME, 3)).astype(np.float32)

    def inner(image):
        return jnp.sum(shrunk(image, pull, fill=0.0) * y)

    product, gradients = jax.jit(jax.value_and_grad(inner))(NOISE)
    back = np.sum(np.float64(NOISE) * np.asarray(gradients))
    np.testing.assert_allclose(back, product, atol=1e-5)
    assert np.abs(product) > 0.1


@pytest.mark.parametrize("pull", [STRAIGHT, TURNED], ids=["straight", "turned"])
def test_batches_are_their_images(pull):
    def one(image):
        return shrunk(image, pull)

    batch = np.stack([NOISE, 1 - NOISE, NOISE[::-1]])
    at_once = jax.jit(jax.vmap(one))(batch)
    one_by_one = jax.jit(lambda rows: lax.map(one, rows))(batch)
    np.testing.assert_allclose(at_once, one_by_one, atol=1e-6)


@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize(
    "chain", [A.Resize((2, 3)), A.RandomRotation(20, interpolation="bilinear")]
)
def test_a_split_batch_on_an_explicit_mesh(chain):
    kinds = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((2,), ("data",), axis_types=kinds, devices=jax.devices()[:2])
    rows = jax.NamedSharding(mesh, jax.P("data"))
    chain = A.Compose([A.RandomResizedCrop(4), chain, A.ToFloat()])
    keys = jax.random.split(jax.random.key(0), 4)
    pixels = np.stack([NOISE] * 4)
    whole = jax.jit(jax.vmap(chain))(keys, pixels)
    with jax.set_mesh(mesh):
        split = jax.jit(jax.vmap(chain))(*jax.device_put((keys, pixels), rows))
    np.testing.assert_array_equal(split, whole)


@pytest.mark.parametrize("min_pixels", [0, 2**30], ids=["part", "whole"])
@pytest.mark.parametrize("size", [(1, 30_000), (7, 30_000), (7, 9_000)])
def test_a_strip_is_pils(monkeypatch, min_pixels, size):
    """Nine hundred taps and more, of a fraction of the canvas or of all of it."""
    monkeypatch.setattr(slices, "_MIN_PIXELS", min_pixels)
    monkeypatch.setattr(axis, "MAX_UNROLLED", 8)
    values = np.random.default_rng(0).uniform(0, 1, size).astype(np.float32)
    canvas = np.full((7, 30_000, 1), np.nan, np.float32)
    canvas[: size[0], : size[1], 0] = values
    sample = {"image": canvas, "size": np.array(size, np.int32)}
    out = jax.jit(A.Resize((2, 64)))(jax.random.key(0), sample)["image"]

    expected = Image.fromarray(values).resize((64, 2), Image.Resampling.BILINEAR)
    np.testing.assert_allclose(out[:, :, 0], np.asarray(expected), atol=2e-5)


def test_the_program_of_a_strip_has_few_terms(monkeypatch):
    monkeypatch.setattr(axis, "MAX_UNROLLED", 32)
    strip = jax.ShapeDtypeStruct((1, 300_000, 3), jnp.uint8)
    program = jax.make_jaxpr(A.RandomResizedCrop(64))(jax.random.key(0), strip)
    assert 0 < str(program).count(" gather[") < 200
